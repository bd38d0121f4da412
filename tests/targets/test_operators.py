"""Operators on every dtype against exact references, scalar and vectorized, edge values against edge values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

from mlcc.interp import run_prim_func
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.construct import truncdiv, wrap
from mlcc.ir.dtypes import DType
from mlcc.ir.intrinsics import INTRINSICS
from mlcc.ir.tir import ForKind
from mlcc.targets.llvm.object.compile import Machine
from tests.targets.build import call, elementwise, from_bfloat16, func, node, storage, to_bfloat16
from tests.targets.harness import Native

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's remarks on overflow and NaN
INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
KINDS = [ForKind.SERIAL, ForKind.VECTORIZED]


def int_values(dtype: str) -> list[int]:
    info = np.iinfo(dtype)
    values = {info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3, 5, 7, 16, 100, info.bits - 1, info.bits}
    if info.min < 0:
        values |= {-1, -2, -3, -7, -8, -100}
    return sorted(values)


def pairs(values: list[object], dtype: str) -> tuple[np.ndarray, np.ndarray]:
    made = list(itertools.product(values, values))
    return np.array([a for a, _ in made], dtype), np.array([b for _, b in made], dtype)


def _shift(bits: int, signed: bool, left: bool) -> Callable[[int, int], int]:
    def shifted(a: int, b: int) -> int:
        if not 0 <= b < bits:
            return -1 if not left and a < 0 else 0
        return a << b if left else a >> b

    return shifted


def int_operators(dtype: str) -> dict[str, tuple[Callable[..., tir.Expr], Callable[[int, int], int]]]:
    info = np.iinfo(dtype)
    signed = info.min < 0
    return {
        "add": (node(tir.Add), lambda a, b: a + b),
        "sub": (node(tir.Sub), lambda a, b: a - b),
        "mul": (node(tir.Mul), lambda a, b: a * b),
        "div": (node(tir.Div), lambda a, b: truncdiv(a, b) if b else 0),
        "mod": (node(tir.Mod), lambda a, b: a - truncdiv(a, b) * b if b else 0),
        "floordiv": (node(tir.FloorDiv), lambda a, b: a // b if b else 0),
        "floormod": (node(tir.FloorMod), lambda a, b: a % b if b else 0),
        "min": (node(tir.Min), min),
        "max": (node(tir.Max), max),
        "and": (call("bitwise_and"), lambda a, b: a & b),
        "or": (call("bitwise_or"), lambda a, b: a | b),
        "xor": (call("bitwise_xor"), lambda a, b: a ^ b),
        "shl": (call("shift_left"), _shift(info.bits, signed, True)),
        "shr": (call("shift_right"), _shift(info.bits, signed, False)),
        "not": (lambda a, b: call("bitwise_not")(a), lambda a, b: ~a),
        "abs": (lambda a, b: call("abs")(a), lambda a, b: abs(a)),
        "popcount": (lambda a, b: call("popcount")(a), lambda a, b: (a & ((1 << info.bits) - 1)).bit_count()),
        "clz": (lambda a, b: call("clz")(a), lambda a, b: info.bits - (a & ((1 << info.bits) - 1)).bit_length()),
    }


COMPARE = {
    "eq": (tir.EQ, lambda a, b: a == b), "ne": (tir.NE, lambda a, b: a != b), "lt": (tir.LT, lambda a, b: a < b),
    "le": (tir.LE, lambda a, b: a <= b), "gt": (tir.GT, lambda a, b: a > b), "ge": (tir.GE, lambda a, b: a >= b),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.value)
@pytest.mark.parametrize("dtype", INTS)
def test_integer_operators_match_their_reference(dtype: str, kind: ForKind) -> None:
    a, b = pairs(int_values(dtype), dtype)
    table = int_operators(dtype)
    results = [(dtype, fn) for fn, _ in table.values()] + [("bool", node(k)) for k, _ in COMPARE.values()]
    native = Native(elementwise(len(a), [dtype, dtype], results, kind))
    outs = [np.full(len(a), 77, t) for t, _ in results]
    assert native(a, b, *outs) == 0
    element = DType.of(dtype)
    for (name, (_, fn)), out in zip(table.items(), outs, strict=False):
        expected = [wrap(fn(int(x), int(y)), element) for x, y in zip(a, b, strict=True)]
        np.testing.assert_array_equal(out, np.array(expected, dtype), err_msg=name)
    for (name, (_, fn)), out in zip(COMPARE.items(), outs[len(table) :], strict=True):
        np.testing.assert_array_equal(out, fn(a, b), err_msg=name)


@pytest.mark.parametrize("dtype", INTS)
def test_division_by_constants_is_exact(dtype: str) -> None:
    values = int_values(dtype)
    a = np.array(values, dtype)
    element = DType.of(dtype)
    kinds = {tir.Div: "div", tir.Mod: "mod", tir.FloorDiv: "floordiv", tir.FloorMod: "floormod"}
    cases = [(k, d) for k in kinds for d in values]

    def fixed(kind: type[tir.BinaryOp], divisor: int) -> Callable[[tir.Expr], tir.Expr]:
        return lambda x: kind(x.dtype, x, tir.IntImm(x.dtype, divisor))

    native = Native(elementwise(len(a), [dtype], [(dtype, fixed(k, d)) for k, d in cases]))
    outs = [np.zeros(len(a), dtype) for _ in cases]
    assert native(a, *outs) == 0
    table = int_operators(dtype)
    for (kind, divisor), out in zip(cases, outs, strict=True):
        reference = table[kinds[kind]][1]
        expected = [wrap(reference(int(x), divisor), element) for x in a]
        np.testing.assert_array_equal(out, np.array(expected, dtype), err_msg=f"{kinds[kind]} by {divisor}")


# ---------------------------------------------------------------- floats

_SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3.0, 0.1, 1e-3, 7.25, 100.0, 65504.0, 65520.0, -6e-8, 1e-7,
            6.1e-5, 1e-40, 3e38, -3e38, math.inf, -math.inf, math.nan]  # fmt: skip


def float_values(dtype: str) -> list[float]:
    if dtype == "float64":
        return [*_SPECIAL, 5e-324, 1e308, 1e-310, 0.1 + 1e-12]
    return list(np.array(_SPECIAL, "float32").astype("float16" if dtype == "float16" else "float32"))


def narrow(values: np.ndarray, dtype: str) -> np.ndarray:
    """Computed values as the kernel stores them."""
    return to_bfloat16(values) if dtype == "bfloat16" else values.astype(dtype)


def widened(values: np.ndarray, dtype: str) -> np.ndarray:
    """Stored values as what is computed with."""
    if dtype == "bfloat16":
        return from_bfloat16(values)
    return values.astype("float32") if dtype == "float16" else values


def float_inputs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    a, b = pairs(float_values(dtype), "float64" if dtype == "float64" else "float32")
    return narrow(a, dtype), narrow(b, dtype)


def assert_same_floats(actual: np.ndarray, expected: np.ndarray, dtype: str, name: str) -> None:
    """Equal bits, but for the payload and sign of NaN."""
    a, e = widened(actual, dtype), widened(expected, dtype)
    np.testing.assert_array_equal(np.isnan(a), np.isnan(e), err_msg=name)
    bits = {2: "uint16", 4: "uint32", 8: "uint64"}[actual.dtype.itemsize]
    ok = ~np.isnan(a)
    np.testing.assert_array_equal(actual.view(bits)[ok], expected.view(bits)[ok], err_msg=name)


def _floormod(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.mod(a, b)


FLOAT_OPERATORS = {
    "add": (node(tir.Add), np.add),
    "sub": (node(tir.Sub), np.subtract),
    "mul": (node(tir.Mul), np.multiply),
    "div": (node(tir.Div), np.divide),
    "min": (node(tir.Min), lambda a, b: np.where((a <= b) | np.isnan(a), a, b)),
    "max": (node(tir.Max), lambda a, b: np.where((a >= b) | np.isnan(a), a, b)),
    "fmod": (node(tir.Mod), np.fmod),
    "floordiv": (node(tir.FloorDiv), lambda a, b: np.floor(a / b)),
    "floormod": (node(tir.FloorMod), _floormod),
    "floor": (lambda a, b: call("floor")(a), lambda a, b: np.floor(a)),
    "ceil": (lambda a, b: call("ceil")(a), lambda a, b: np.ceil(a)),
    "trunc": (lambda a, b: call("trunc")(a), lambda a, b: np.trunc(a)),
    "round": (lambda a, b: call("round")(a), lambda a, b: np.rint(a)),
    "fabs": (lambda a, b: call("fabs")(a), lambda a, b: np.abs(a)),
    "sqrt": (lambda a, b: call("sqrt")(a), lambda a, b: np.sqrt(a)),
    "copysign": (call("copysign"), np.copysign),
}  # fmt: skip
FLOAT_TESTS = {"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite}


@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v3"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.value)
@pytest.mark.parametrize("dtype", FLOATS)
def test_float_operators_match_their_reference(dtype: str, kind: ForKind, cpu: str) -> None:
    a, b = float_inputs(dtype)
    results = [(dtype, fn) for fn, _ in FLOAT_OPERATORS.values()] + [("bool", node(k)) for k, _ in COMPARE.values()]
    results += [("bool", lambda a, b, n=n: call(n, "bool")(a)) for n in FLOAT_TESTS]
    native = Native(elementwise(len(a), [dtype, dtype], results, kind), machine=Machine(cpu=cpu))
    outs = [np.zeros(len(a), storage(t)) for t, _ in results]
    assert native(a, b, *outs) == 0
    x, y = widened(a, dtype), widened(b, dtype)
    for (name, (_, fn)), out in zip(FLOAT_OPERATORS.items(), outs, strict=False):
        assert_same_floats(out, narrow(fn(x, y), dtype), dtype, name)
    rest = outs[len(FLOAT_OPERATORS) :]
    for (name, (_, fn)), out in zip(COMPARE.items(), rest, strict=False):
        np.testing.assert_array_equal(out, fn(x, y), err_msg=name)
    for (name, fn), out in zip(FLOAT_TESTS.items(), rest[len(COMPARE) :], strict=True):
        np.testing.assert_array_equal(out, fn(x), err_msg=name)


MATH = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p, "sin": np.sin,
    "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh,
    "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "erf": np.vectorize(math.erf), "rsqrt": lambda x: 1 / np.sqrt(x), "exp10": lambda x: np.power(10.0, x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}  # fmt: skip
MATH_2 = {"pow": np.power, "atan2": np.arctan2, "hypot": np.hypot}


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.value)
@pytest.mark.parametrize("dtype", FLOATS)
def test_mathematical_functions_match_their_reference(dtype: str, kind: ForKind) -> None:
    rng = np.random.default_rng(5)
    count = 37
    work = "float64" if dtype == "float64" else "float32"
    a, b = (narrow(rng.uniform(0.05, 3.0, count).astype(work), dtype) for _ in range(2))
    results = [(dtype, lambda a, b, n=n: call(n)(a)) for n in MATH] + [(dtype, call(n)) for n in MATH_2]
    native = Native(elementwise(count, [dtype, dtype], results, kind))
    outs = [np.zeros(count, storage(t)) for t, _ in results]
    assert native(a, b, *outs) == 0
    x, y = (widened(v, dtype).astype("float64") for v in (a, b))
    tolerance = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 2e-6, "float64": 1e-14}[dtype]
    expected = {n: fn(x) for n, fn in MATH.items()} | {n: fn(x, y) for n, fn in MATH_2.items()}
    for (name, value), out in zip(expected.items(), outs, strict=True):
        np.testing.assert_allclose(widened(out, dtype), value, rtol=tolerance, atol=tolerance, err_msg=name)


def test_fma_rounds_once() -> None:
    x = np.array([1 + 2**-12], "float32")
    native = Native(elementwise(1, ["float32"], [("float32", lambda a: call("fma")(a, a, c.const(-1.0, "float32")))]))
    out = np.zeros(1, "float32")
    assert native(x, out) == 0
    assert out[0] == np.float32(float(x[0]) ** 2 - 1)
    assert out[0] != x[0] * x[0] - np.float32(1)


def test_ldexp_takes_any_exponent() -> None:
    x = np.array([1.5, -1.5, 1.5, 1.5, 3.0, 0.0], "float32")
    n = np.array([3, -2, 2**40, -(2**40), -149, 5], "int64")
    out = np.zeros(6, "float32")
    assert Native(elementwise(6, ["float32", "int64"], [("float32", call("ldexp"))]))(x, n, out) == 0
    np.testing.assert_array_equal(out, np.float32([12.0, -0.375, math.inf, 0.0, 3 * 2.0**-149, 0.0]))


def test_bool_arithmetic_matches_truth_tables() -> None:
    a, b = (np.array(v, "bool") for v in ([0, 0, 1, 1], [0, 1, 0, 1]))
    table = {
        tir.Add: a | b, tir.Sub: a ^ b, tir.Mul: a & b, tir.Min: a & b, tir.Max: a | b, tir.And: a & b, tir.Or: a | b,
        tir.LT: ~a & b, tir.EQ: a == b, tir.Div: a & b, tir.FloorMod: a & False,
    }  # fmt: skip
    native = Native(elementwise(4, ["bool", "bool"], [("bool", node(k)) for k in table]))
    outs = [np.zeros(4, "bool") for _ in table]
    assert native(a, b, *outs) == 0
    for (kind, expected), out in zip(table.items(), outs, strict=True):
        np.testing.assert_array_equal(out, expected, err_msg=kind.__name__)


def test_any_byte_but_zero_is_true() -> None:
    a = np.array([0, 1, 2, 255], "uint8")
    out = np.zeros(4, "uint8")
    native = Native(elementwise(4, ["bool"], [("bool", lambda x: tir.Not(x.dtype, x))]))
    assert native(a, out) == 0
    assert out.tolist() == [1, 0, 0, 0]


# ---------------------------------------------------------------- against the interpreter


def test_what_the_interpreter_knows_the_targets_know() -> None:
    from mlcc.interp import calls as interpreted
    from mlcc.targets.cuda.emitter import DeviceEmitter
    from mlcc.targets.llvm.codegen import sanitized
    from mlcc.targets.llvm.codegen.emitter import Emitter

    known = {*interpreted.MATH, *interpreted._BITS, *interpreted._SPECIAL, "if_then_else"} & set(INTRINSICS)
    arguments_only = {"type_annotation", "tvm_stack_make_array"}
    of_devices = {"ptx_commit_group", "ptx_wait_group"}
    assert known - Emitter.CALLS.keys() == arguments_only | of_devices
    assert known - DeviceEmitter.CALLS.keys() == arguments_only | sanitized.TABLE.keys()


def test_fixed_point_products_are_within_one() -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-(2**31), 2**31, 64).astype("int32") for _ in range(2))
    s = rng.integers(-20, 3, 64).astype("int32")
    fn = lambda x, y, s: call("q_multiply_shift", "int32")(x, y, c.const(31), s)  # noqa: E731
    func = elementwise(64, ["int32"] * 3, [("int32", fn)])
    out, expected = np.zeros(64, "int32"), np.zeros(64, "int32")
    assert Native(func)(x, y, s, out) == 0
    run_prim_func(func, [x, y, s, expected])
    np.testing.assert_array_equal(out, expected)
    exact = [math.floor(int(a) * int(b) * 2.0 ** (int(n) - 31) + 0.5) for a, b, n in zip(x, y, s, strict=True)]
    fits = np.abs(exact) < 2**31
    np.testing.assert_allclose(out[fits], np.array(exact)[fits], atol=1)


def test_lane_masks_halves_and_dot_products() -> None:
    a, b = c.make_buffer("A", (8,), "int8"), c.make_buffer("B", (8,), "uint8")
    n, mask, out = tir.Var("n", DType.of("int64")), c.make_buffer("M", (8,), "bool"), c.make_buffer("O", (3,), "int32")
    halves = c.make_buffer("H", (8,), "int8")
    ramp = tir.Ramp(DType.of("int32x8"), c.const(0), c.const(1), 8)
    x, y = c.load(a, ramp), c.load(b, ramp)

    def half(which: str, value: tir.Expr) -> tir.Expr:
        return c.call(f"{value.dtype.element}x4", f"vector{which}", value)

    stores: list[tir.Stmt] = [
        tir.BufferStore(mask, c.call("boolx8", "get_active_lane_mask", n, c.const(5, "int64")), (ramp,)),
        tir.BufferStore(halves, c.call("int8x8", "vectorcombine", half("high", x), half("low", x)), (ramp,)),
    ]
    for k, which in enumerate(("low", "high")):
        stores.append(c.store(out, c.call("int32", "dp4a", half(which, x), half(which, y), c.const(1000 * k)), k))
    data, other = np.array([1, -2, 3, -4, 127, -128, 7, 8], "int8"), np.array([255, 1, 2, 3, 4, 5, 6, 200], "uint8")
    on, sums, swapped = np.zeros(8, "bool"), np.zeros(3, "int32"), np.zeros(8, "int8")
    assert Native(func([a, b, n, mask, out, halves], stores))(data, other, 2, on, sums, swapped) == 0
    assert on.tolist() == [True] * 3 + [False] * 5
    products = data.astype(int) * other
    assert sums.tolist() == [products[:4].sum(), 1000 + products[4:].sum(), 0]
    assert swapped.tolist() == [*data[4:], *data[:4]]
