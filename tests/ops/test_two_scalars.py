"""Binary operators of two scalars: the result is a scalar, whose value everything downstream can use."""

from __future__ import annotations

import numpy as np
import pytest

import mlcc
from mlcc.errors import CompileError
from mlcc.interp import run_function
from mlcc.ir import relax
from mlcc.passes.graph.lower_to_tir import LowerToTir
from mlcc.passes.manage.manager import PassContext

ARITHMETIC = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "floor_divide": np.floor_divide,
    "mod": np.fmod, "floor_mod": np.mod, "maximum": np.maximum, "minimum": np.minimum,
}  # fmt: skip
COMPARISONS = {
    "equal": np.equal, "not_equal": np.not_equal, "less": np.less, "less_equal": np.less_equal,
    "greater": np.greater, "greater_equal": np.greater_equal,
}  # fmt: skip
FLOATS = {"divide": np.divide, "power": np.power, "atan2": np.arctan2, "log_add_exp": np.logaddexp}


def program(name: str, dtype: str, result: str, combine: str) -> str:
    return f"""
@R.function
def main(x: R.Prim("{dtype}"), y: R.Prim("{dtype}"), t: R.Tensor((2,), "{result}")):
    z = R.{name}(x, y)
    w = R.{combine}(t, z)
    return w
"""


def everywhere(text: str, *inputs: object) -> list[np.ndarray]:
    """The result of the interpreter, before and after lowering, and of compiled code at two levels."""
    module = mlcc.parse(text)
    assert mlcc.structural_equal(module, mlcc.parse(mlcc.script(module)))
    found = [run_function(m, "main", inputs) for m in (module, LowerToTir().run(module, PassContext()))]
    return found + [mlcc.load(mlcc.build(module, opt_level=level))["main"](*inputs) for level in (0, 2)]


@pytest.mark.parametrize("name", ARITHMETIC)
@pytest.mark.parametrize(("dtype", "x", "y"), [
    ("float32", 7.5, -2.0), ("float32", -1e8, 0.3), ("float64", 5.25, 1.5), ("float16", 7.5, -2.0),
    ("int64", 7, -2), ("int32", -9, 4)])  # fmt: skip
def test_arithmetic_of_scalars_matches_numpy(name: str, dtype: str, x: float, y: float) -> None:
    kind = np.dtype(dtype).type
    wanted = ARITHMETIC[name](kind(x), kind(y)) + np.zeros(2, dtype)
    for got in everywhere(program(name, dtype, dtype, "add"), kind(x), kind(y), np.zeros(2, dtype)):
        np.testing.assert_array_equal(got, wanted, strict=True)


@pytest.mark.parametrize("name", COMPARISONS)
@pytest.mark.parametrize(("dtype", "x", "y"), [("bool", True, False), ("int64", 3, 3), ("int32", 3, -3)])
def test_comparisons_of_scalars_match_numpy(name: str, dtype: str, x: float, y: float) -> None:
    kind = np.dtype(dtype).type
    wanted = np.logical_or(np.zeros(2, bool), COMPARISONS[name](kind(x), kind(y)))
    for got in everywhere(program(name, dtype, "bool", "logical_or"), kind(x), kind(y), np.zeros(2, bool)):
        np.testing.assert_array_equal(got, wanted, strict=True)


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons_of_floats_are_refused_at_o0(name: str) -> None:
    """At -O0 the comparison is a scalar of the graph, which native code computes of integers only; it says so."""
    text = program(name, "float32", "bool", "logical_or")
    module = mlcc.parse(text)
    inputs = (np.float32(1.5), np.float32(2.0), np.zeros(2, bool))
    for m in (module, LowerToTir().run(module, PassContext())):
        np.testing.assert_array_equal(run_function(m, "main", inputs), np.full(2, COMPARISONS[name](1.5, 2.0)))
    got = mlcc.load(mlcc.build(module))["main"](*inputs)
    np.testing.assert_array_equal(got, np.full(2, COMPARISONS[name](1.5, 2.0)))
    with pytest.raises(CompileError, match="E0753"):
        mlcc.build(module, opt_level=0)


@pytest.mark.parametrize("name", FLOATS)
def test_float_scalars_match_numpy(name: str) -> None:
    x, y = np.float32(2.5), np.float32(3.0)
    for got in everywhere(program(name, "float32", "float32", "add"), x, y, np.zeros(2, "float32")):
        np.testing.assert_allclose(got, np.full(2, FLOATS[name](x, y)), rtol=1e-6)


def test_a_size_of_two_sizes() -> None:
    """The value is known, so that it can be a dimension."""
    text = """
@R.function
def main(n: R.Prim("int64"), x: R.Tensor(("n", 2), "float32")):
    rows = R.add(n, R.prim_value(3))
    y = R.zeros(R.shape([rows, 2]), "float32")
    return y
"""
    for got in everywhere(text, 4, np.ones((4, 2), "float32")):
        np.testing.assert_array_equal(got, np.zeros((7, 2), "float32"), strict=True)


def test_scalars_of_unknown_value_keep_their_dtype() -> None:
    module = mlcc.parse("""
@R.function(pure=False)
def main(x: R.Prim("float32")):
    y = R.call_packed("env.next", x, sinfo_args=R.Prim("float32"))
    z = R.multiply(x, y)
    return z
""")
    ret = module["main"].ret_struct_info
    assert isinstance(ret, relax.PrimStructInfo) and str(ret.dtype) == "float32" and ret.value is None


@pytest.mark.parametrize(("name", "left", "right"), [
    ("add", "float32", "int32"), ("less", "int64", "int32"), ("bitwise_and", "float32", "float32"),
    ("floor_divide", "bool", "bool")])  # fmt: skip
def test_scalars_of_two_dtypes_are_refused(name: str, left: str, right: str) -> None:
    with pytest.raises(CompileError, match="E0444"):
        mlcc.parse(f'@R.function\ndef main(x: R.Prim("{left}"), y: R.Prim("{right}")):\n    return R.{name}(x, y)\n')
