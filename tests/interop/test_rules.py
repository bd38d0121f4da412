"""Patterns and rules in text against TVM's: FuseOpsByPattern, and its rewriter made of two functions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mlcc

tvm = pytest.importorskip("tvm")

from tvm.relax.dpl import is_op, wildcard  # noqa: E402

from tests.generate import graphs  # noqa: E402
from tests.interop.harness import rounded, to_tvm  # noqa: E402
from tests.passes.programs import Program  # noqa: E402

T = tvm.relax.transform


def pattern(name: str, params: str, *lines: str) -> str:
    """A function with the attribute Composite; the last line gives the result."""
    body = "\n".join(f"    {line}" for line in lines[:-1])
    names = ", ".join(f"{p}: R.Tensor" for p in params.split())
    attrs = f'    R.func_attr({{"Composite": "{name}"}})\n'
    return f"@R.function\ndef {name.replace('.', '_')}({names}):\n{attrs}{body}\n    return {lines[-1]}\n"


def _square_add() -> Any:
    x = wildcard()
    return is_op("relax.add")(is_op("relax.multiply")(x, x), wildcard())


PATTERNS: dict[str, tuple[str, Callable[[], Any]]] = {
    "d.matmul_binary": (
        pattern("d.matmul_binary", "x w b", "a = R.matmul(x, w)", "R.add(a, b)"),
        lambda: is_op("relax.add")(is_op("relax.matmul")(wildcard(), wildcard()), wildcard()),
    ),
    "d.matmul": (
        pattern("d.matmul", "x w", "R.matmul(x, w)"),
        lambda: is_op("relax.matmul")(wildcard(), wildcard()),
    ),
    "e.square": (pattern("e.square", "x y", "a = R.multiply(x, x)", "R.add(a, y)"), _square_add),
    "e.binary": (
        pattern("e.binary", "x y z", "a = R.maximum(x, y)", "R.multiply(a, z)"),
        lambda: is_op("relax.multiply")(is_op("relax.maximum")(wildcard(), wildcard()), wildcard()),
    ),
    "e.relu": (pattern("e.relu", "x", "R.nn.relu(x)"), lambda: is_op("relax.nn.relu")(wildcard())),
    "e.tanh2": (
        pattern("e.tanh2", "x y", "a = R.tanh(x)", "R.subtract(a, y)"),
        lambda: is_op("relax.subtract")(is_op("relax.tanh")(wildcard()), wildcard()),
    ),
    "f.deep": (
        pattern("f.deep", "x y z", "a = R.add(x, y)", "b = R.add(a, z)", "R.nn.relu(b)"),
        lambda: is_op("relax.nn.relu")(is_op("relax.add")(is_op("relax.add")(wildcard(), wildcard()), wildcard())),
    ),
}


def compare(text: str, names: list[str], tmp_path: Path, **options: Any) -> bool:
    """Both make the same of a text; False if TVM cannot (it refuses where a group would need its own result)."""
    rules = tmp_path / "rules.mlc"
    rules.write_text("\n".join(PATTERNS[n][0] for n in names))
    given = ",".join(f"{k.replace('_', '-')}={json.dumps(v)}" for k, v in options.items())
    have = mlcc.run_passes(mlcc.parse(text), f'fuse-by-pattern{{rules="{rules}",{given}}}')
    try:
        want = T.FuseOpsByPattern([(n, PATTERNS[n][1]()) for n in names], **options)(to_tvm(text))
    except tvm.error.InternalError as exc:
        assert "cyclic dependency" in str(exc)
        return False
    read = to_tvm(mlcc.script(have, dialect="tvm"))
    try:
        tvm.ir.assert_structural_equal(rounded(read), rounded(want))
    except ValueError as exc:
        raise AssertionError(f"{exc}\n--- ours\n{read.script()}\n--- TVM's\n{want.script()}") from None
    return True


CASES = {
    "inner result used": ["a = R.matmul(x, w)", "c = R.add(a, b)", "d = R.exp(a)", "e = R.multiply(c, d)"],
    "inner result used first": ["a = R.matmul(x, w)", "d = R.exp(a)", "c = R.add(a, b)", "e = R.multiply(d, c)"],
    "operand between": ["a = R.matmul(x, w)", "d = R.exp(b)", "c = R.add(a, d)", "e = R.nn.relu(c)"],
    "around": ["a = R.matmul(x, w)", "d = R.exp(a)", "e = R.add(a, d)"],
    "chain": ["a = R.add(x, w)", "c = R.add(a, b)", "d = R.nn.relu(c)", "e = R.add(d, b)"],
    "constants": ['a = R.multiply(x, x)', 'e = R.add(a, R.const([1.0, 2.0, 3.0, 4.0], "float32"))'],
    "scalars": ["a = R.maximum(x, w)", 'e = R.multiply(a, R.const(2.0, "float32"))'],
    "twice the same": ["a = R.matmul(x, w)", "c = R.add(a, b)", "d = R.matmul(c, w)", "e = R.add(d, b)"],
}  # fmt: skip


def text_of(lines: list[str]) -> str:
    body = "\n".join(f"            {line}" for line in lines)
    return (
        '@I.ir_module\nclass Module:\n    @R.function\n    def main(x: R.Tensor((4, 4), "float32"), '
        'w: R.Tensor((4, 4), "float32"), b: R.Tensor((4,), "float32")):\n        with R.dataflow():\n'
        f"{body}\n            R.output(e)\n        return e\n"
    )


@pytest.mark.parametrize("annotate", [False, True])
@pytest.mark.parametrize("bind", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_fuse_by_pattern_agrees(case: str, bind: bool, annotate: bool, tmp_path: Path) -> None:
    same = compare(text_of(CASES[case]), list(PATTERNS), tmp_path, bind_constants=bind, annotate_codegen=annotate)
    assert same == (case != "around")


def test_fuse_by_pattern_in_chosen_functions(tmp_path: Path) -> None:
    body = "        with R.dataflow():\n            e = R.nn.relu(x)\n            R.output(e)\n        return e\n"
    signature = '(x: R.Tensor((4,), "float32")):\n'
    functions = "".join(f"    @R.function\n    def {name}{signature}{body}\n" for name in ("first", "main", "other"))
    text = f"@I.ir_module\nclass Module:\n{functions}"
    for annotate in (False, True):
        assert compare(text, ["e.relu"], tmp_path, annotate_codegen=annotate, entry_functions=["other", "main"])
        assert compare(text, ["e.relu"], tmp_path, annotate_codegen=annotate, entry_functions=[])
    with pytest.raises(mlcc.CompileError, match="(?s)E0506.*`main`"):
        mlcc.run_passes(mlcc.parse(text), f'fuse-by-pattern{{rules="{tmp_path}/rules.mlc",entry-functions=["mian"]}}')


def test_fuse_by_pattern_on_random_programs(tmp_path: Path, all_cases: bool) -> None:
    done = 0
    for seed in range(300 if all_cases else 30):
        names = list(PATTERNS)[seed % 3 :] if seed % 2 else list(reversed(PATTERNS))
        done += compare(
            Program(seed, length=14).text(),
            names,
            tmp_path,
            bind_constants=seed % 5 > 1,
            annotate_codegen=seed % 4 == 1,
        )
    assert done > 20


def test_fuse_by_pattern_on_generated_graphs(tmp_path: Path, all_cases: bool) -> None:
    """Symbolic sizes, tuples, calls of PrimFuncs and packed functions around what matches."""
    for seed in range(200 if all_cases else 24):
        options = graphs.Options(packed=seed % 2 == 0, branches=False, nested=False, dtypes=("float32", "float64"))
        module = mlcc.run_passes(graphs.module(seed, options), "normalize")
        compare(mlcc.script(module, dialect="tvm"), list(PATTERNS), tmp_path, annotate_codegen=seed % 3 == 0)


# ---------------------------------------------------------------- rewriting


def rule(params: str, before: list[str], after: list[str]) -> str:
    names = ", ".join(f"{p}: R.Tensor" for p in params.split())
    made = []
    for name, lines in (("pattern", before), ("replacement", after)):
        body = "".join(f"        {line}\n" for line in lines[:-1])
        made.append(f"    @R.function\n    def {name}({names}):\n{body}        return {lines[-1]}\n")
    return "@I.ir_module\nclass Module:\n" + "\n".join(made)


RULES = {
    "double": rule("x", ["a = R.add(x, x)", "a"], ['a = R.multiply(x, R.const(2.0, "float32"))', "a"]),
    "swap": rule(
        "x y z", ["a = R.multiply(x, y)", "b = R.add(a, z)", "b"], ["a = R.multiply(y, x)", "b = R.subtract(z, a)", "b"]
    ),
    "more": rule("x", ["a = R.sigmoid(x)", "a"], ["a = R.negative(x)", "b = R.exp(a)", "c = R.tanh(b)", "c"]),
}


@pytest.mark.parametrize("name", RULES)
def test_rewriting_as_the_rewriter_of_two_functions(name: str, tmp_path: Path, all_cases: bool) -> None:
    """TVM makes the types of what it replaces as vague as the rule's, and casts: operators are compared, in order."""
    path = tmp_path / "rule.mlc"
    exact = 'R.func_attr({"commutative": ["add", "multiply"]})'
    path.write_text(RULES[name].replace("R.Tensor):\n", f"R.Tensor):\n        {exact}\n", 1))
    rewriter = tvm.relax.dpl.PatternMatchingRewriter.from_module(to_tvm(RULES[name]))
    changed = 0
    for seed in range(200 if all_cases else 20):
        program = mlcc.run_passes(mlcc.parse(Program(seed, length=12).text()), "dead-code")
        have = mlcc.run_passes(program, f'rewrite{{rules="{path}"}}')
        changed += not mlcc.structural_equal(have, program)
        want = rewriter(to_tvm(mlcc.script(program, dialect="tvm")))
        assert operators(mlcc.script(have)) == operators(want.script()), f"seed {seed}"
    assert changed


def operators(text: str) -> list[str]:
    """The operators of a text, in order."""
    return [n for n in re.findall(r" = R\.([a-z_.]+)\(", text) if n not in ("match_cast", "dataflow", "output")]
