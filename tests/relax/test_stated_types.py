"""Annotations that say more of a value than is known: checked when the program runs, written as they were read."""

from __future__ import annotations

import numpy as np
import pytest

import mlcc
from mlcc.errors import CallError, CompileError
from mlcc.interp import run_function
from mlcc.ir import relax
from mlcc.ir.node import walk

STATED = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", "m"), "float32"), w: R.Tensor((4, 3), "float32")) -> R.Tensor((4, 3), "float32"):
        n = T.int64()
        m = T.int64()
        with R.dataflow():
            y: R.Tensor((4, m), "float32") = R.exp(x)
            z: R.Tensor((4, 3), "float32") = R.negative(y)
            q = R.multiply(z, w)
            a: R.Tensor((n, 3), "float32") = R.add(q, q)
            R.output(a)
        b = R.add(a, a)
        return b
"""


def casts(module: mlcc.IRModule) -> list[relax.MatchCast]:
    return [n for n in walk(module["main"]) if isinstance(n, relax.MatchCast)]


def test_they_print_as_they_were() -> None:
    module = mlcc.parse(STATED)
    text = mlcc.script(module)
    assert len(casts(module)) == 4 and "match_cast" not in text
    again = mlcc.parse(text)
    mlcc.assert_structural_equal(module, again)
    assert mlcc.script(again) == text


def test_tvm_reads_them() -> None:
    tvm = pytest.importorskip("tvm")
    theirs = tvm.script.from_source(STATED)
    tvm.ir.assert_structural_equal(theirs, tvm.script.from_source(mlcc.script(mlcc.parse(STATED), dialect="tvm")))
    tvm.ir.assert_structural_equal(
        theirs, tvm.script.from_source(mlcc.script(mlcc.parse(theirs.script()), dialect="tvm"))
    )


@pytest.mark.parametrize("level", [0, 1, 2])
def test_they_are_checked(level: int) -> None:
    module = mlcc.parse(STATED)
    compiled = mlcc.load(mlcc.build(module, opt_level=level))["main"]
    x, w = np.full((4, 3), 0.5, "float32"), np.full((4, 3), 2, "float32")
    wanted = -4 * np.exp(x) * w
    np.testing.assert_allclose(compiled(x, w), wanted, rtol=1e-5)
    np.testing.assert_allclose(run_function(module, "main", (x, w)), wanted, rtol=1e-6)
    for wrong, name in ((np.ones((5, 3), "float32"), "`y`"), (np.ones((4, 2), "float32"), "`z`")):
        for call in (lambda v: compiled(v, w), lambda v: run_function(module, "main", (v, w))):
            with pytest.raises(CallError, match=f"E0814.*{name}"):
                call(wrong)


def test_an_unknown_rank_and_dtype() -> None:
    module = mlcc.parse("@R.function\ndef main(x: R.Tensor) -> R.Tensor((2,), 'float32'):\n    return x\n")
    assert len(casts(module)) == 1
    np.testing.assert_array_equal(run_function(module, "main", (np.ones(2, "float32"),)), [1, 1])
    for wrong in (np.ones(3, "float32"), np.ones(2, "float64"), np.ones((2, 1), "float32")):
        with pytest.raises(CallError):
            run_function(module, "main", (wrong,))


def test_a_value_that_is_used_elsewhere_stays() -> None:
    module = mlcc.parse("""
@R.function
def main(x: R.Tensor(("n",), "float32")):
    y = R.exp(x)
    z: R.Tensor((4,), "float32") = y
    w = R.sum(y)
    return (z, w)
""")
    text = mlcc.script(module)
    assert 'z: R.Tensor((4,), dtype="float32") = y' in text
    mlcc.assert_structural_equal(module, mlcc.parse(text))


@pytest.mark.parametrize(("known", "stated"), [
    ('("n", 3), "float32"', '("m", 4), "float32"'), ('("n",), "float32"', '("n + 1",), "float32"'),
    ('("n",), "float32"', '("n",), "int32"'), ('("n",), "float32"', '("n", 1), "float32"')])  # fmt: skip
def test_what_can_never_be_is_an_error(known: str, stated: str) -> None:
    head = f"@R.function\ndef main(x: R.Tensor({known}), m: R.Prim('int64'))"
    with pytest.raises(CompileError, match="E0411"):
        mlcc.parse(f"{head} -> R.Tensor({stated}):\n    return x\n")


def test_the_type_of_an_operators_result() -> None:
    """`sinfo_args=` (`ty_args=` in texts of TVM 0.27) of an operator that infers its result."""
    head = "@R.function\ndef main(x: R.Tensor((2, 3), 'float32')):\n"
    plain = mlcc.parse(head + "    return R.add(x, x)\n")
    for name in ("sinfo_args", "ty_args", "type_args"):
        stated = mlcc.parse(head + f"    return R.add(x, x, {name}=(R.Tensor((2, 3), 'float32'),))\n")
        mlcc.assert_structural_equal(plain, stated)
    with pytest.raises(CompileError, match="E0411"):
        mlcc.parse(head + "    return R.add(x, x, sinfo_args=(R.Tensor((2, 4), 'float32'),))\n")
    with pytest.raises(CompileError, match="E0442"):
        mlcc.parse(head + "    return R.add(x, x, sinfo_args=3)\n")


def test_symbols_of_function_types_end_with_them() -> None:
    text = """
@R.function
def main(x: R.Tensor(("m", 2), "float32")) -> R.Callable((R.Tensor(("k", "n")),), R.Tensor(("k", "n")), True):
    @R.function
    def local(y: R.Tensor(("k", "n"))) -> R.Tensor(("k", "n")):
        return y
    return local
"""
    module = mlcc.parse(text)
    printed = mlcc.script(module)
    mlcc.assert_structural_equal(module, mlcc.parse(printed))
    assert mlcc.script(mlcc.parse(printed)) == printed


def test_types_of_a_signature_mention_its_shapes() -> None:
    head = "@R.function\ndef main(s: R.Shape(ndim=2), x: R.Tensor(s, 'float32')) -> R.Tensor(s, 'float32'):\n"
    module = mlcc.parse(head + "    return R.exp(x)\n")
    mlcc.assert_structural_equal(module, mlcc.parse(mlcc.script(module)))
