"""Rewriting by example: what matches, what takes its place, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mlcc
from mlcc.errors import CompileError
from mlcc.interp import run_function
from mlcc.ir import IRModule
from mlcc.passes.manage.manager import PassContext, Pipeline, run_pipeline
from mlcc.verify import check
from tests.passes.modules import F, module_with_main, operators
from tests.passes.programs import Program


def rule(params: str, before: list[str], after: list[str], name: str = "rule", attrs: str = "") -> str:
    """Two functions; the last line of each is its result."""
    made = []
    for role, lines in (("before", before), ("after", after)):
        said = [f"R.func_attr({attrs})"] if attrs and role == "before" else []
        body = "\n".join(f"    {line}" for line in [*said, *lines[:-1], f"return {lines[-1]}"])
        made.append(f"@R.function\ndef {name}_{role}({params}):\n{body}\n")
    return "\n".join(made)


def rewrite(module: IRModule, text: str, tmp_path: Path, options: str = "") -> IRModule:
    path = tmp_path / "rules.mlc"
    path.write_text(text)
    made = mlcc.run_passes(module, f'rewrite{{rules="{path}"{options}}}')
    mlcc.assert_structural_equal(made, mlcc.parse(mlcc.script(made)))
    return made


FMA = rule(
    f"x: {F}, y: {F}, z: {F}", ["a = R.multiply(x, y)", "R.add(a, z)"], ["R.ewise_fma(x, y, z)"], "fma"
)  # fmt: skip
ANY = "x: R.Tensor, y: R.Tensor, z: R.Tensor"


@pytest.mark.parametrize(
    "lines",
    [
        ["a = R.multiply(x, y)", "gv = R.add(a, z)"],
        ["a = R.multiply(x, y)", "gv = R.add(z, a)"],
        ["gv = R.add(z, R.multiply(x, y))"],
        ["a = R.multiply(x, y)", "b = a", "gv = R.add(z, b)"],
    ],
)
def test_operands_in_either_order(lines: list[str], tmp_path: Path) -> None:
    made = rewrite(module_with_main(*lines), FMA, tmp_path)
    assert operators(made) == ["ewise_fma"]
    x, y, z = (np.full((4, 4), v, "float32") for v in (2, 3, 4))
    np.testing.assert_array_equal(run_function(made, "main", [x, y, z]), np.full((4, 4), 10))


@pytest.mark.parametrize("declared", ["False", '["multiply"]'])
def test_operands_match_in_the_written_order_only(declared: str, tmp_path: Path) -> None:
    text = FMA.replace("    a = ", f'    R.func_attr({{"commutative": {declared}}})\n    a = ', 1)
    turned = module_with_main("a = R.multiply(x, y)", "gv = R.add(z, a)")
    assert rewrite(turned, text, tmp_path)["main"] is turned["main"]
    assert operators(rewrite(module_with_main("a = R.multiply(x, y)", "gv = R.add(a, z)"), text, tmp_path)) == [
        "ewise_fma"
    ]


def test_both_orders_are_tried_until_all_fits(tmp_path: Path) -> None:
    """(x + y) * (x - y), where the sum could be taken either way and only one fits."""
    text = rule(
        "x: R.Tensor, y: R.Tensor",
        ["a = R.add(x, y)", "b = R.subtract(x, y)", "R.multiply(a, b)"],
        ["a = R.multiply(x, x)", "b = R.multiply(y, y)", "R.subtract(a, b)"],
    )
    module = module_with_main("b = R.subtract(y, x)", "a = R.add(x, y)", "gv = R.multiply(b, a)")
    made = rewrite(module, text, tmp_path)
    assert operators(made) == ["multiply", "multiply", "subtract"]
    given = [np.random.RandomState(i).rand(4, 4).astype("float32") for i in range(3)]
    np.testing.assert_allclose(run_function(made, "main", given), run_function(module, "main", given), 1e-5, 1e-5)


def test_annotations_are_constraints(tmp_path: Path) -> None:
    params = f'x: {F}, y: {F}, z: R.Tensor((4,), "float32")'
    module = module_with_main("a = R.multiply(x, y)", "gv = R.add(a, z)", params=params)
    assert rewrite(module, FMA, tmp_path)["main"] is module["main"]
    module = module_with_main("a = R.multiply(x, y)", "gv = R.add(a, z)")
    assert operators(rewrite(module, FMA.replace("float32", "float64"), tmp_path)) == ["multiply", "add"]
    square = 'x: R.Tensor(("n", "n"))'
    text = rule(square, ["R.tanh(x)"], ["R.exp(x)"])
    assert operators(rewrite(module_with_main("gv = R.tanh(x)"), text, tmp_path)) == ["exp"]
    wide = module_with_main("gv = R.tanh(x)", params='x: R.Tensor((4, 5), "float32")')
    assert operators(rewrite(wide, text, tmp_path)) == ["tanh"]
    symbolic = module_with_main("gv = R.tanh(x)", params='x: R.Tensor(("k", "k"), "float32")')
    assert operators(rewrite(symbolic, text, tmp_path)) == ["exp"]
    unlike = module_with_main("gv = R.tanh(x)", params='x: R.Tensor(("k", "l"), "float32")')
    assert operators(rewrite(unlike, text, tmp_path)) == ["tanh"]
    unknown = module_with_main("gv = R.tanh(x)", params='x: R.Tensor("float32", ndim=2)')
    assert operators(rewrite(unknown, text, tmp_path)) == ["tanh"]


def test_sizes_of_the_rule_become_those_of_the_place(tmp_path: Path) -> None:
    text = rule(
        'x: R.Tensor(("n", "m"), "float32")',
        ["a = R.permute_dims(x)", "R.reshape(a, R.shape([m * n]))"],
        ["a = R.reshape(x, R.shape([n * m]))", "R.negative(a)"],
    ).replace(":\n    a =", ":\n    n, m = T.int64(), T.int64()\n    a =")
    params = 'x: R.Tensor(("k", 3), "float32")'
    module = module_with_main(
        "k = T.int64()", "a = R.permute_dims(x)", "gv = R.reshape(a, R.shape([k * 3]))", params=params
    )
    made = rewrite(module, text, tmp_path)
    assert operators(made) == ["reshape", "negative"]
    assert "R.shape([k * 3])" in mlcc.script(made)
    check(made)


def test_results_that_others_use_stay(tmp_path: Path) -> None:
    module = module_with_main("a = R.multiply(x, y)", "gv = R.add(a, z)", "gv1 = R.exp(a)", result="gv, gv1")
    assert operators(rewrite(module, FMA, tmp_path)) == ["multiply", "ewise_fma", "exp"]
    alone = module_with_main("a = R.multiply(x, y)", "gv = R.add(a, z)", "gv1 = R.exp(z)", result="gv, gv1")
    assert operators(rewrite(alone, FMA, tmp_path)) == ["ewise_fma", "exp"]


def test_attributes_have_to_match(tmp_path: Path) -> None:
    before = ["a = R.sum(x, axis=[1], keepdims=True)", "R.divide(x, a)"]
    text = rule('x: R.Tensor(("n", "m"), "float32")', before, ["R.nn.softmax(x, axis=1)"])
    rows = ["a = R.sum(x, axis=[1], keepdims=True)", "gv = R.divide(x, a)"]
    assert operators(rewrite(module_with_main(*rows), text, tmp_path)) == ["nn.softmax"]
    columns = ["a = R.sum(x, axis=[0], keepdims=True)", "gv = R.divide(x, a)"]
    assert operators(rewrite(module_with_main(*columns), text, tmp_path)) == ["sum", "divide"]


def test_attributes_that_may_be_any_come_along(tmp_path: Path) -> None:
    text = rule(
        "x: R.Tensor",
        ["a = R.negative(x)", "R.sum(a, axis=[0])"],
        ["a = R.sum(x, axis=[0])", "R.negative(a)"],
        attrs='{"any_attrs": ["sum.axis", "relax.sum.keepdims"]}',
    )
    module = module_with_main("a = R.negative(x)", "gv = R.sum(a, axis=[1], keepdims=True)")
    made = rewrite(module, text, tmp_path)
    assert operators(made) == ["sum", "negative"]
    assert "R.sum(x, axis=[1], keepdims=True)" in mlcc.script(made)


def test_constants_match_by_value(tmp_path: Path) -> None:
    text = rule("x: R.Tensor", ['R.power(x, R.const(2.0, "float32"))'], ["R.multiply(x, x)"])
    assert operators(rewrite(module_with_main('gv = R.power(x, R.const(2.0, "float32"))'), text, tmp_path)) == [
        "multiply"
    ]
    assert operators(rewrite(module_with_main('gv = R.power(x, R.const(3.0, "float32"))'), text, tmp_path)) == ["power"]


def test_an_operand_twice_is_the_same_operand(tmp_path: Path) -> None:
    text = rule("x: R.Tensor", ["R.add(x, x)"], ['R.multiply(x, R.const(2.0, "float32"))'])
    assert operators(rewrite(module_with_main("a = R.add(x, x)", "gv = R.add(a, x)"), text, tmp_path)) == [
        "multiply",
        "add",
    ]


def test_rules_apply_until_none_does(tmp_path: Path) -> None:
    relus = ["a = R.nn.relu(x)", "b = R.nn.relu(a)", "c = R.nn.relu(b)", "d = R.nn.relu(c)", "gv = R.nn.relu(d)"]
    twice = rule("x: R.Tensor", ["a = R.nn.relu(x)", "R.nn.relu(a)"], ["R.nn.relu(x)"])
    assert operators(rewrite(module_with_main(*relus), twice, tmp_path)) == ["nn.relu"]
    chain = rule("x: R.Tensor", ["R.exp(x)"], ["R.tanh(x)"], "one") + rule(
        "x: R.Tensor", ["R.tanh(x)"], ["R.abs(x)"], "two"
    )
    assert operators(rewrite(module_with_main("gv = R.exp(x)"), chain, tmp_path)) == ["abs"]


def test_earlier_rules_go_first(tmp_path: Path) -> None:
    whole = rule("x: R.Tensor, y: R.Tensor", ["a = R.multiply(x, y)", "R.exp(a)"], ["R.minimum(x, y)"], "whole")
    part = rule("x: R.Tensor, y: R.Tensor", ["R.multiply(x, y)"], ["R.maximum(x, y)"], "part")
    module = module_with_main("a = R.multiply(x, y)", "gv = R.exp(a)")
    assert operators(rewrite(module, whole + part, tmp_path)) == ["minimum"]
    assert operators(rewrite(module, part + whole, tmp_path)) == ["maximum", "exp"]


@pytest.mark.parametrize(
    ("before", "after"),
    [("R.add(x, y)", "R.add(y, x)"), ("R.exp(x)", "R.exp(R.exp(x))"), ("R.exp(x)", "R.add(R.exp(x), R.exp(x))")],
)
def test_rules_that_never_end(before: str, after: str, tmp_path: Path) -> None:
    params = "x: R.Tensor, y: R.Tensor" if "y" in before else "x: R.Tensor"
    module = module_with_main("a = R.add(x, y)", "gv = R.exp(a)")
    with pytest.raises(CompileError) as caught:
        rewrite(module, rule(params, [before], [after], "loop"), tmp_path)
    (found,) = caught.value.diagnostics
    assert found.code == "E0543"
    assert "`loop`" in found.message


def test_the_limit_is_an_option(tmp_path: Path) -> None:
    relus = ["a = R.nn.relu(x)", *["a = R.nn.relu(a)"] * 7, "gv = R.nn.relu(a)"]
    twice = rule("x: R.Tensor", ["a = R.nn.relu(x)", "R.nn.relu(a)"], ["R.nn.relu(x)"])
    with pytest.raises(CompileError):
        rewrite(module_with_main(*relus), twice, tmp_path, " limit=1")
    assert operators(rewrite(module_with_main(*relus), twice, tmp_path, " limit=20")) == ["nn.relu"]


CALLS = """
@I.ir_module
class Module:
    @T.prim_func
    def fast(A: T.Buffer((4, 4), "float32"), B: T.Buffer((4, 4), "float32")):
        for i, j in T.grid(4, 4):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(3)

    @R.function
    def tir_before(x: R.Tensor((4, 4), "float32")):
        return R.exp(x)

    @R.function
    def tir_after(x: R.Tensor((4, 4), "float32")):
        cls = Module
        return R.call_tir(cls.fast, (x,), R.Tensor((4, 4), "float32"))

    @R.function
    def packed_before(x: R.Tensor(("n", "m"), "float32")):
        return R.tanh(x)

    @R.function
    def packed_after(x: R.Tensor(("n", "m"), "float32")):
        n, m = T.int64(), T.int64()
        return R.call_dps_packed("env.tanh", (x,), R.Tensor((n, m), "float32"))
"""


def test_rules_bring_functions_along(tmp_path: Path) -> None:
    module = module_with_main("a = R.exp(x)", "b = R.exp(y)", "c = R.tanh(a)", "gv = R.add(b, c)")
    made = rewrite(module, CALLS, tmp_path)
    assert operators(made) == ["fast", "fast", "env.tanh", "add"]
    assert made["fast"].is_private
    assert list(made) == ["main", "fast"]
    clash = module.copy()
    clash["fast"] = module["main"].with_attr("global_symbol", "fast")
    again = rewrite(clash, CALLS, tmp_path)
    assert operators(again)[:1] == ["fast1"]
    check(again)
    unused = rewrite(module_with_main("gv = R.add(x, y)"), CALLS, tmp_path)
    assert list(unused) == ["main"]


def test_calls_of_prim_funcs_match_by_what_they_do(tmp_path: Path) -> None:
    module = rewrite(module_with_main("a = R.exp(x)", "gv = R.tanh(a)"), CALLS, tmp_path)
    back = CALLS.replace("tir_before", "t_before").replace("tir_after", "tir_before").replace("t_before", "tir_after")
    back = (
        back.replace("packed_before", "p_before")
        .replace("packed_after", "packed_before")
        .replace("p_before", "packed_after")
    )
    assert operators(rewrite(module, back, tmp_path)) == ["exp", "tanh"]
    other = back.replace("T.float32(3)", "T.float32(4)")
    assert operators(rewrite(module, other, tmp_path)) == ["fast", "tanh"]


def test_rules_with_several_results_apply(tmp_path: Path) -> None:
    """Two products of one operand become one, in whatever order they stand."""
    text = rule(
        'x: R.Tensor(("n", 4), "float32"), v: R.Tensor((4, 4), "float32"), w: R.Tensor((4, 4), "float32")',
        ["a = R.matmul(x, v)", "b = R.matmul(x, w)", "(a, b)"],
        ["c = R.concat((v, w), axis=1)", "d = R.matmul(x, c)", "e = R.split(d, 2, axis=1)", "(e[0], e[1])"],
    )
    module = module_with_main(
        "a = R.matmul(x, y)", "b = R.exp(z)", "c = R.matmul(x, b)", "d = R.add(a, c)", "gv = R.tanh(d)"
    )
    made = rewrite(module, text, tmp_path)
    assert operators(made) == ["exp", "concat", "matmul", "split", "add", "tanh"]
    given = [np.random.RandomState(i).rand(4, 4).astype("float32") for i in range(3)]
    np.testing.assert_allclose(run_function(made, "main", given), run_function(module, "main", given), 1e-5, 1e-5)
    needed = module_with_main("a = R.matmul(x, y)", "b = R.exp(a)", "gv = R.matmul(x, b)")
    assert operators(rewrite(needed, text, tmp_path)) == ["matmul", "exp", "matmul"]


def test_values_of_another_block_are_out_of_reach(tmp_path: Path) -> None:
    text = (
        f"@R.function\ndef main(x: {F}, y: {F}, z: {F}):\n    with R.dataflow():\n        h = R.exp(x)\n"
        "        p = R.multiply(h, y)\n        R.output(p)\n    q = R.add(p, z)\n    return q\n"
    )
    module = mlcc.parse(text)
    assert rewrite(module, FMA, tmp_path)["main"] is module["main"]
    seen = mlcc.parse(text.replace("R.multiply(h, y)", "R.multiply(x, y)"))
    assert operators(rewrite(seen, FMA, tmp_path))[-1] == "ewise_fma"


def test_what_is_overwritten_is_not_read_later(tmp_path: Path) -> None:
    text = CALLS.replace("B[vi, vj] = A[vi, vj] * T", "A[vi, vj] = A[vi, vj] * T").split("    @R.function")[0]
    text = text.replace(', B: T.Buffer((4, 4), "float32")', "") + (
        f"    @R.function\n    def main(x: {F}, y: {F}):\n        cls = Module\n        with R.dataflow():\n"
        "            a = R.exp(x)\n            p = R.multiply(a, y)\n"
        f"            b = R.call_tir_inplace(cls.fast, (a,), inplace_indices=[0], out_sinfo={F})\n"
        "            q = R.add(p, b)\n            R.output(q)\n        return q\n"
    )
    module = mlcc.parse(text)
    assert rewrite(module, FMA, tmp_path)["main"] is module["main"]


def test_less_known_results_are_not_put_in(tmp_path: Path) -> None:
    text = rule("x: R.Tensor", ["R.exp(x)"], ['R.call_pure_packed("env.exp", x, sinfo_args=R.Tensor)'])
    module = module_with_main("gv = R.exp(x)")
    assert rewrite(module, text, tmp_path)["main"] is module["main"]


def test_branches_are_rewritten_too(tmp_path: Path) -> None:
    module = mlcc.parse(
        f'@R.function\ndef main(c: R.Tensor((), "bool"), x: {F}, y: {F}):\n    if c:\n        a = R.multiply(x, y)\n'
        "        b = R.add(a, y)\n    else:\n        b = R.add(x, y)\n    return b\n"
    )
    made = rewrite(module, FMA, tmp_path)
    assert "ewise_fma" in mlcc.script(made)
    check(made)


def test_the_form_that_tvm_has_for_rules(tmp_path: Path) -> None:
    text = (
        "@R.rewriter\nclass Rule:\n    @R.function\n    def pattern(x: R.Tensor):\n        return R.exp(x)\n\n"
        "    @R.function\n    def replacement(x: R.Tensor):\n        return R.tanh(x)\n"
    )
    assert operators(rewrite(module_with_main("gv = R.exp(x)"), text, tmp_path)) == ["tanh"]


ANY2 = "x: R.Tensor, y: R.Tensor"
WRONG = [
    ("", "E0207", ""),
    ("@R.function\ndef f(x: R.Tensor):\n    return R.exp(x)\n", "E0540", "has no rule"),
    ("@R.function\ndef a_before(x: R.Tensor):\n    return R.exp(x)\n", "E0540", "no function `a_after`"),
    (
        rule("x: R.Tensor", ["R.exp(x)"], ["R.tanh(x)"], attrs='{"comutative": True}'),
        "E0540",
        "did you mean `commutative`",
    ),
    (
        rule("x: R.Tensor", ["R.exp(x)"], ["R.tanh(x)"], attrs='{"commutative": ["subtract"]}'),
        "E0540",
        "is not commutative",
    ),
    (rule("x: R.Tensor", ["R.exp(x)"], ["R.tanh(x)"], attrs='{"any_attrs": "exp.axis"}'), "E0540", "`exp.axis`"),
    (
        rule(ANY2, ["R.add(x, y)"], ["R.subtract(x, y)"]).replace(f"after({ANY2})", "after(y: R.Tensor, x: R.Tensor)"),
        "E0541",
        "(y, x)",
    ),
    (rule(ANY2, ["R.add(x, y)"], ["R.exp(x)"]).replace(f"after({ANY2})", "after(x: R.Tensor)"), "E0541", "(x)"),
    (
        rule(f"x: {F}", ["R.exp(x)"], ["R.tanh(x)"]).replace(f"after(x: {F})", "after(x: R.Tensor)"),
        "E0541",
        "parameter `x`",
    ),
    (rule(f"x: {F}", ["R.exp(x)"], ["R.sum(x)"]), "E0541", "the result is"),
    (rule("x: R.Tensor", ["x"], ["R.tanh(x)"]), "E0542", "not computed by an operation"),
    (rule(ANY2, ["R.exp(x)"], ["R.add(x, y)"]), "E0542", "the parameter `y`"),
    (rule("x: R.Tensor", ["a = R.tanh(x)", "R.exp(x)"], ["R.tanh(x)"]), "E0542", "the value `a`"),
    (rule(f"x: {F}", [f"a = R.match_cast(x, {F})", "R.exp(a)"], ["R.tanh(x)"]), "E0542", "R.match_cast"),
    (rule("x: R.Tensor", ["a = R.exp(x)", "(a, a)"], ["a = R.exp(x)", "(a, a)"]), "E0542", "same value twice"),
    (rule("x: R.Tensor", ["R.exp(q)"], ["R.tanh(x)"]), "E0200", "q"),
]


@pytest.mark.parametrize(("text", "code", "said"), WRONG, ids=[f"{c}-{i}" for i, (_, c, _) in enumerate(WRONG)])
def test_files_that_are_no_rules(text: str, code: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(CompileError) as caught:
        rewrite(module_with_main("gv = R.exp(x)"), text, tmp_path)
    assert caught.value.diagnostics[0].code[:4] == code[:4]
    assert said in str(caught.value)


def test_everything_wrong_is_said_at_once(tmp_path: Path) -> None:
    text = rule(ANY2, ["R.exp(x)"], ["R.add(x, y)"], "a") + rule("x: R.Tensor", ["x"], ["R.tanh(x)"], "b")
    with pytest.raises(CompileError) as caught:
        rewrite(module_with_main("gv = R.exp(x)"), text, tmp_path)
    assert [d.code for d in caught.value.diagnostics] == ["E0542", "E0542"]


def test_the_file_lies_in_the_folder_of_a_text_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "rules.mlc").write_text(FMA)
    inner = tmp_path / "inner"
    inner.mkdir()
    for name in (
        "rewrite{rules=../rules.mlc}",
        "fuse-by-pattern{rules=../rules.mlc}",
        "update-func{file=../rules.mlc}",
    ):
        with pytest.raises(CompileError) as caught:
            context = PassContext(folder=str(inner), confined=True)
            run_pipeline(Pipeline.parse(name), module_with_main("gv = R.exp(x)"), context)
        assert caught.value.diagnostics[0].code == "E0510"


def test_a_pattern_with_too_many_ways_to_match_is_refused(tmp_path: Path) -> None:
    """A full tree of sums with different leaves, against one whose last leaf does not fit."""
    level = [f"x{i}" for i in range(32)]
    lines, count = [], 0
    while len(level) > 1:
        made = []
        for a, b in zip(level[::2], level[1::2], strict=True):
            lines.append(f"t{count} = R.add({a}, {b})")
            made.append(f"t{count}")
            count += 1
        level = made
    params = ", ".join(f"x{i}: R.Tensor" for i in range(32))
    text = rule(params, [*lines, level[0]], ["R.exp(x0)"]).replace("x31: R.Tensor", 'x31: R.Tensor((7, 7), "int8")')
    shown = ", ".join(f"x{i}: {F}" for i in range(32))
    module = module_with_main(*lines, f"gv = {level[0]}", params=shown)
    with pytest.raises(CompileError) as caught:
        rewrite(module, text, tmp_path)
    assert caught.value.diagnostics[0].code in ("E0542", "E0541")


NUMBERS = (
    rule(
        ANY,
        ["a = R.multiply(x, y)", "b = R.multiply(x, z)", "R.add(a, b)"],
        ["a = R.add(y, z)", "R.multiply(x, a)"],
        "factor",
    )
    + rule(
        "x: R.Tensor", ["a = R.negative(x)", "R.negative(a)"], ["R.multiply(x, R.const(1.0, 'float32'))"], "negative"
    )
    + rule("x: R.Tensor", ["a = R.abs(x)", "R.abs(a)"], ["R.abs(x)"], "abs")
    + rule(
        "x: R.Tensor, y: R.Tensor",
        ["a = R.maximum(x, y)", "R.subtract(a, x)"],
        ["a = R.subtract(y, x)", "R.nn.relu(a)"],
        "hinge",
    )
    + rule(
        "x: R.Tensor",
        ["R.sigmoid(x)"],
        [
            "a = R.negative(x)",
            "b = R.exp(a)",
            "c = R.add(b, R.const(1.0, 'float32'))",
            "R.divide(R.const(1.0, 'float32'), c)",
        ],
        "sigmoid",
    )
)


@pytest.mark.parametrize("part", range(3))
def test_true_rules_keep_the_numbers(part: int, tmp_path: Path, all_cases: bool) -> None:
    changed = 0
    for seed in range(part, 300 if all_cases else 36, 3):
        program = Program(seed, length=14)
        module = mlcc.parse(program.text())
        made = rewrite(module, NUMBERS, tmp_path)
        check(made)
        changed += made["main"] is not module["main"]
        given = list(program.inputs().values())
        want, have = run_function(module, "main", given), run_function(made, "main", given)
        for a, b in zip(*(r if isinstance(r, (tuple, list)) else [r] for r in (have, want)), strict=True):
            np.testing.assert_allclose(a, b, 1e-4, 1e-4, err_msg=f"seed {seed}")
    assert changed > 3
