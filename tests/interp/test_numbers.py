"""One operation at a time, on every dtype, against definitions in Python integers and floats."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcc.interp import run_prim_func
from mlcc.interp.arithmetic import stored, to_memory
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.construct import round_float, truncdiv, wrap
from mlcc.ir.dtypes import DType
from mlcc.ir.narrow_floats import decode, is_narrow
from mlcc.ir.node import EMPTY

INTEGERS = ["int4", "int8", "int16", "int32", "int64", "uint4", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"]
CASES = settings(max_examples=25, deadline=None)


def evaluate(make: Any, out: DType, *columns: tuple[DType, list[Any]]) -> list[Any]:
    """`make(a, b, ...)` of each row."""
    size = len(columns[0][1])
    buffers = [c.make_buffer(f"x{n}", (size,), dtype) for n, (dtype, _) in enumerate(columns)]
    result = c.make_buffer("y", (size,), out)
    i = tir.Var("i", DType.of("int32"))
    value = make(*(tir.BufferLoad(b.dtype, b, (i,)) for b in buffers))
    loop = tir.For(i, c.const(0), c.const(size), tir.ForKind.SERIAL, (tir.BufferStore(result, value, (i,)),))
    params = tuple(tir.Var(f"p{n}", DType.of("handle")) for n in range(len(buffers) + 1))
    func = tir.PrimFunc(params, (*buffers, result), EMPTY, (loop,))
    arrays = [to_memory(np.array(v, np.float64 if d.is_float else stored(d)), d).astype(stored(d)) for d, v in columns]
    made = np.zeros(size, stored(out))
    run_prim_func(func, [*arrays, made])
    return [v.item() for v in (decode(made, out) if is_narrow(out) else made)]


def limits(dtype: DType) -> tuple[int, int]:
    low = -(1 << dtype.bits - 1) if dtype.kind == "int" else 0
    return low, (1 << dtype.bits - (dtype.kind == "int")) - 1


def numbers_of(dtype: DType) -> st.SearchStrategy[int]:
    low, high = limits(dtype)
    edges = st.sampled_from([low, low + 1, -1 if low else 1, 0, 1, 2, 3, 7, high - 1, high])
    return edges | st.integers(low, high)


INTEGER_OPS = {
    tir.Add: lambda a, b: a + b, tir.Sub: lambda a, b: a - b, tir.Mul: lambda a, b: a * b,
    tir.Div: lambda a, b: truncdiv(a, b) if b else 0, tir.Mod: lambda a, b: a - truncdiv(a, b) * b if b else 0,
    tir.FloorDiv: lambda a, b: a // b if b else 0, tir.FloorMod: lambda a, b: a % b if b else 0,
    tir.Min: min, tir.Max: max,
}  # fmt: skip


@pytest.mark.parametrize("name", INTEGERS)
@CASES
@given(data=st.data())
def test_integer_operators_match_python(name: str, data: st.DataObject) -> None:
    dtype = DType.of(name)
    rows = data.draw(st.lists(st.tuples(numbers_of(dtype), numbers_of(dtype)), min_size=1, max_size=20))
    left, right = [r[0] for r in rows], [r[1] for r in rows]
    for kind, rule in INTEGER_OPS.items():
        made = evaluate(lambda a, b, kind=kind: kind(dtype, a, b), dtype, (dtype, left), (dtype, right))
        assert made == [wrap(rule(a, b), dtype) for a, b in rows], kind


@pytest.mark.parametrize("name", INTEGERS)
@CASES
@given(data=st.data())
def test_bit_operators_match_python(name: str, data: st.DataObject) -> None:
    dtype = DType.of(name)
    bits = dtype.bits
    counts = st.integers(0, min(bits + 2, limits(dtype)[1]))
    rows = data.draw(st.lists(st.tuples(numbers_of(dtype), counts), min_size=1, max_size=20))
    left, right = [r[0] for r in rows], [r[1] for r in rows]

    def call(intrinsic: str) -> Any:
        return lambda *args: c.call(dtype, intrinsic, *args)

    def shifted(a: int, n: int) -> int:
        return wrap(a << n, dtype) if n < bits else 0

    both = (dtype, left), (dtype, right)
    assert evaluate(call("bitwise_and"), dtype, *both) == [wrap(a & b, dtype) for a, b in rows]
    assert evaluate(call("bitwise_or"), dtype, *both) == [wrap(a | b, dtype) for a, b in rows]
    assert evaluate(call("bitwise_xor"), dtype, *both) == [wrap(a ^ b, dtype) for a, b in rows]
    assert evaluate(call("shift_left"), dtype, *both) == [shifted(a, n) for a, n in rows]
    assert evaluate(call("shift_right"), dtype, *both) == [a >> n for a, n in rows]
    assert evaluate(call("bitwise_not"), dtype, (dtype, left)) == [wrap(~a, dtype) for a in left]
    pattern = [a & (1 << bits) - 1 for a in left]
    assert evaluate(call("popcount"), dtype, (dtype, left)) == [wrap(p.bit_count(), dtype) for p in pattern]
    clz = evaluate(lambda a: c.call("int32", "clz", a), DType.of("int32"), (dtype, left))
    assert clz == [bits - p.bit_length() for p in pattern]


def floats_of(dtype: DType) -> st.SearchStrategy[float]:
    special = [0.0, -0.0, 1.0, -1.0, 1.5, 3.0, 0.1, 1e-3, 300.0, 6e4, 1e30, -1e-30, math.inf, -math.inf, math.nan]
    edges = st.sampled_from(special)
    return (edges | st.floats(-1e5, 1e5)).map(lambda v: round_to(v, dtype))


def round_to(value: float, dtype: DType) -> float:
    """One rounding to the type; e4m3fn has no infinity and nothing above 448, so that overflow is NaN."""
    made = round_float(value, dtype)
    return math.nan if dtype.kind == "float8_e4m3fn" and abs(made) > 448 else made


def round_to_float32(value: float) -> float:
    """The nearest float32."""
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]  # type: ignore[no-any-return]
    except OverflowError:
        return math.copysign(math.inf, value)


def same_value(a: float, b: float) -> bool:
    return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))


def divided(a: float, b: float) -> float:
    if b != 0:
        return a / b
    if a == 0 or math.isnan(a) or math.isnan(b):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1, b)


FLOAT_OPS = {
    tir.Add: lambda a, b: a + b, tir.Sub: lambda a, b: a - b, tir.Mul: lambda a, b: a * b, tir.Div: divided,
    tir.Min: lambda a, b: a if a <= b or a != a else b, tir.Max: lambda a, b: a if a >= b or a != a else b,
}  # fmt: skip


@pytest.mark.parametrize("name", FLOATS)
@CASES
@given(data=st.data())
def test_float_operators_round_once(name: str, data: st.DataObject) -> None:
    """Python computes in float64; of narrower types the results are those of float32, whose rounding is harmless."""
    dtype = DType.of(name)
    rows = data.draw(st.lists(st.tuples(floats_of(dtype), floats_of(dtype)), min_size=1, max_size=20))
    for kind, rule in FLOAT_OPS.items():
        columns = (dtype, [r[0] for r in rows]), (dtype, [r[1] for r in rows])
        made = evaluate(lambda a, b, kind=kind: kind(dtype, a, b), dtype, *columns)
        for (a, b), got in zip(rows, made, strict=True):
            wide = rule(a, b)
            wanted = round_to(wide if dtype.bits == 64 else round_to_float32(wide), dtype)
            assert same_value(got, wanted), (kind, a, b, got, wanted)


@pytest.mark.parametrize("name", FLOATS)
@CASES
@given(data=st.data())
def test_comparisons_of_floats_match_python(name: str, data: st.DataObject) -> None:
    dtype, boolean = DType.of(name), DType.of("bool")
    rows = data.draw(st.lists(st.tuples(floats_of(dtype), floats_of(dtype)), min_size=1, max_size=20))
    rules = {
        tir.LT: float.__lt__, tir.LE: float.__le__, tir.EQ: float.__eq__, tir.NE: float.__ne__, tir.GE: float.__ge__,
    }  # fmt: skip
    for kind, rule in rules.items():
        columns = (dtype, [r[0] for r in rows]), (dtype, [r[1] for r in rows])
        made = evaluate(lambda a, b, kind=kind: kind(boolean, a, b), boolean, *columns)
        assert made == [bool(rule(a, b)) for a, b in rows]


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("to", INTEGERS)
def test_float_to_integer_saturates(source: str, to: str) -> None:
    have, want = DType.of(source), DType.of(to)
    values = [0.0, -0.0, 0.9, -0.9, 1.5, -1.5, 127.0, 128.0, 255.0, 300.0, -300.0, 7.99, -8.0, 1e10, -1e10, 1e20, -1e20,
              math.inf, -math.inf, math.nan]  # fmt: skip
    values = [round_to(v, have) for v in values]
    low, high = limits(want)

    def converted(v: float) -> int:
        if math.isnan(v):
            return 0
        return high if v == math.inf else low if v == -math.inf else min(max(int(v), low), high)

    assert evaluate(lambda a: tir.Cast(want, a), want, (have, values)) == [converted(v) for v in values]


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("to", [*INTEGERS, *FLOATS, "bool"])
def test_casts_from_integers_match_python(source: str, to: str) -> None:
    have, want = DType.of(source), DType.of(to)
    low, high = limits(have)
    values = [low, low // 3, 0, 1, 3, high // 5, high - 1, high]
    made = evaluate(lambda a: tir.Cast(want, a), want, (have, values))
    if want.is_bool:
        wanted = [v != 0 for v in values]
    elif want.is_float:
        wanted = [round_to(float(v) if want.bits == 64 else float(np.float32(v)), want) for v in values]
    else:
        wanted = [wrap(v, want) for v in values]
    assert all(same_value(float(a), float(b)) for a, b in zip(made, wanted, strict=True))


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("to", [*FLOATS, "bool"])
@CASES
@given(data=st.data())
def test_casts_between_floats_round_once(source: str, to: str, data: st.DataObject) -> None:
    have, want = DType.of(source), DType.of(to)
    values = data.draw(st.lists(floats_of(have), min_size=1, max_size=20))
    made = evaluate(lambda a: tir.Cast(want, a), want, (have, values))
    wanted = [v != 0 for v in values] if want.is_bool else [round_to(v, want) for v in values]
    assert all(same_value(float(a), float(b)) for a, b in zip(made, wanted, strict=True))


FUNCTIONS = {
    "exp": math.exp, "log1p": math.log1p, "tanh": math.tanh, "erf": math.erf, "sqrt": math.sqrt, "cos": math.cos,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)), "rsqrt": lambda x: 1 / math.sqrt(x), "atan": math.atan,
    "floor": math.floor, "ceil": math.ceil, "trunc": math.trunc, "round": round, "nearbyint": round, "fabs": abs,
    "exp2": lambda x: 2.0**x, "exp10": lambda x: 10.0**x, "log2": math.log2, "log10": math.log10,
}  # fmt: skip


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_library_functions_match_python(name: str, function: str) -> None:
    dtype = DType.of(name)
    values = [round_to(v, dtype) for v in (0.125, 0.5, 1.0, 1.5, 2.5, 3.25, 4.0)]
    made = evaluate(lambda a: c.call(dtype, function, a), dtype, (dtype, values))
    step = {16: 2**-8 if name == "bfloat16" else 2**-11, 32: 2**-23, 64: 2**-51}[dtype.bits]
    for value, got in zip(values, made, strict=True):
        assert got == pytest.approx(FUNCTIONS[function](value), rel=step, abs=0)


def test_bool_arithmetic_matches_truth_tables() -> None:
    boolean = DType.of("bool")
    a, b = [False, False, True, True], [False, True, False, True]
    both = (boolean, a), (boolean, b)

    def made(kind: type[tir.BinaryOp]) -> list[bool]:
        return evaluate(lambda x, y: kind(boolean, x, y), boolean, *both)

    assert made(tir.Add) == [False, True, True, True]
    assert made(tir.Sub) == [False, True, True, False]
    assert made(tir.Mul) == [False, False, False, True]
    assert made(tir.And) == [False, False, False, True]
    assert made(tir.Or) == [False, True, True, True]


def test_reinterpret_keeps_bits() -> None:
    float32, int32 = DType.of("float32"), DType.of("int32")
    values = [1.0, -0.0, 3.5]
    made = evaluate(lambda a: c.call(int32, "reinterpret", a), int32, (float32, values))
    assert made == [struct.unpack("<i", struct.pack("<f", v))[0] for v in values]
