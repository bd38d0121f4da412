"""Casts between all dtypes, reinterpretation, and the rounding of narrow floats."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.construct import round_float, wrap
from mlcc.ir.dtypes import DType
from mlcc.ir.tir import ForKind
from mlcc.machine import host
from mlcc.targets.llvm.object.compile import Machine
from tests.targets.build import call, elementwise, from_bfloat16, storage, to_bfloat16
from tests.targets.harness import Native

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
ALL = [*INTS, *FLOATS, "bool"]


def samples(dtype: str) -> np.ndarray:
    """Values of a dtype as it is stored, its edges included."""
    if dtype == "bool":
        return np.array([False, True])
    if dtype in INTS:
        info = np.iinfo(dtype)
        values = {
            info.min,
            info.max,
            info.max // 2,
            0,
            1,
            100,
            127,
            2**24 + 1,
            2**31 - 1,
            2**53 + 1,
            65519,
            65520,
            65521,
        }
        return np.array(sorted(wrap(v, DType.of(dtype)) for v in values), dtype)
    values = [0.0, -0.0, 0.5, -0.5, 0.999, 1.5, -1.5, 127.5, 128.0, -129.0, 255.9, 256.0, 2.0**31, -(2.0**31), 2.0**32,
              2.0**63, -(2.0**63), 2.0**64, 1e30, -1e30, math.inf, -math.inf, math.nan, 1e-30, 1e-45, 65519.99, 65520.0,
              1.00048828125, 1.0004882812500002, 1.0009765625 / 2, 1.00390625, 1.0039062500001, 3.3961775e38, 5.96e-8,
              2.98e-8, 2.9802322387695312e-08, 2.9802322387695316e-08, 1e-310,
              2147483520.0, 2147483647.5, -2147483649.0, 4294967040.0, 4294967295.5]  # fmt: skip
    if dtype == "float64":
        return np.array(values)
    single = np.array(values, "float32")
    return to_bfloat16(single) if dtype == "bfloat16" else single.astype(dtype)


def to_number(value: np.generic, dtype: str) -> int | float:
    if dtype == "bfloat16":
        return float(from_bfloat16(np.array([value]))[0])
    return value.item()


def expected(value: int | float, target: str) -> int | float:
    """What `docs/semantics.md` says."""
    element = DType.of(target)
    if target == "bool":
        return bool(value != 0)
    if target in INTS:
        if isinstance(value, int):
            return wrap(int(value), element)
        info = np.iinfo(target)
        if math.isnan(value):
            return 0
        return min(max(math.trunc(value) if math.isfinite(value) else value, info.min), info.max)
    if isinstance(value, int):
        return round_float(float(np.float32(value)) if element.bits < 64 else float(value), element)
    return round_float(value, element)


def stored(values: list[int | float], target: str) -> np.ndarray:
    if target == "bfloat16":
        return to_bfloat16(np.array(values, "float32"))
    if target in INTS:
        return np.array([int(v) for v in values], target)
    return np.array(values, target)


@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("kind", [ForKind.SERIAL, ForKind.VECTORIZED], ids=lambda k: k.value)
@pytest.mark.parametrize("source", ALL)
def test_casts_match_their_reference(source: str, kind: ForKind, cpu: str) -> None:
    if cpu == "x86-64-v4" and "avx512f" not in _host_features():
        pytest.skip("this machine has no AVX-512")
    data = samples(source)
    results = [(t, lambda x, t=t: tir.Cast(DType.of(t), x)) for t in ALL]
    native = Native(elementwise(len(data), [source], results, kind), machine=Machine(cpu=cpu))
    outs = [np.zeros(len(data), storage(t)) for t in ALL]
    assert native(data, *outs) == 0
    numbers = [to_number(v, source) for v in data]
    for target, out in zip(ALL, outs, strict=True):
        want = stored([expected(v, target) for v in numbers], target)
        if target in FLOATS:
            nan = np.isnan(from_bfloat16(want) if target == "bfloat16" else want)
            got_nan = np.isnan(from_bfloat16(out) if target == "bfloat16" else out)
            np.testing.assert_array_equal(got_nan, nan, err_msg=target)
            bits = f"uint{8 * want.dtype.itemsize}"
            np.testing.assert_array_equal(out.view(bits)[~nan], want.view(bits)[~nan], err_msg=f"{numbers} to {target}")
        else:
            np.testing.assert_array_equal(out, want, err_msg=f"{numbers} to {target}")


def _host_features() -> frozenset[str]:
    import llvmlite.binding as llvm

    return frozenset(name for name, on in llvm.get_host_cpu_features().items() if on)


@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v3"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_narrow_float_survives(dtype: str, cpu: str) -> None:
    """Load and store all 65536 values; widen them all; add zero to them all."""
    data = np.arange(65536, dtype="uint16")
    zero = c.const(0.0, dtype)
    fns = [
        (dtype, lambda x: x),
        ("float32", lambda x: c.cast("float32", x)),
        (dtype, lambda x: tir.Add(x.dtype, x, zero)),
    ]
    native = Native(elementwise(65536, [dtype], fns), machine=Machine(cpu=cpu))
    same, wide, added = np.zeros(65536, "uint16"), np.zeros(65536, "float32"), np.zeros(65536, "uint16")
    assert native(data, same, wide, added) == 0
    reference = from_bfloat16(data) if dtype == "bfloat16" else data.view("float16").astype("float32")
    nan = np.isnan(reference)
    np.testing.assert_array_equal(wide[~nan], reference[~nan])
    assert np.isnan(wide[nan]).all()
    np.testing.assert_array_equal(same[~nan], data[~nan])
    minus_zero = data == 0x8000
    np.testing.assert_array_equal(added[~nan & ~minus_zero], data[~nan & ~minus_zero])
    assert added[minus_zero] == 0
    for made in (same, added):
        back = from_bfloat16(made) if dtype == "bfloat16" else made.view("float16")
        assert np.isnan(back[nan]).all()


@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v3"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_random_floats_are_rounded_to_nearest(dtype: str, cpu: str) -> None:
    rng = np.random.default_rng(3)
    data = rng.integers(0, 2**32, 50000, dtype="uint64").astype("uint32").view("float32")
    data = np.concatenate([data, (rng.integers(0, 65536, 4000, dtype="uint64") << 16).astype("uint32").view("float32")])
    out = np.zeros(len(data), "uint16")
    native = Native(
        elementwise(len(data), ["float32"], [(dtype, lambda x: c.cast(dtype, x))]), machine=Machine(cpu=cpu)
    )
    assert native(data, out) == 0
    want = to_bfloat16(data) if dtype == "bfloat16" else data.astype("float16").view("uint16")
    keep = ~np.isnan(data)
    np.testing.assert_array_equal(out[keep], want[keep])


FLOAT8 = {"float8_e5m2": (2, -14, 15), "float8_e4m3fn": (3, -6, 8)}


@pytest.mark.parametrize("dtype", list(FLOAT8))
def test_eight_bit_floats_match_their_bits(dtype: str) -> None:
    """Every value widens to what its bits say and comes back; float32 rounds to the nearest of them."""
    mantissa, least, _ = FLOAT8[dtype]
    bits = np.arange(256, dtype="uint8")
    table = np.zeros(256)
    for b in range(256):
        exponent, fraction = (b & 0x7F) >> mantissa, b & ((1 << mantissa) - 1)
        size = math.ldexp(fraction, least - mantissa) if exponent == 0 else math.ldexp(
            (1 << mantissa) + fraction, exponent - 1 + least - mantissa)  # fmt: skip
        if dtype == "float8_e4m3fn":
            size = math.nan if b & 0x7F == 0x7F else size
        elif exponent == 31:
            size = math.nan if fraction else math.inf
        table[b] = -size if b & 0x80 else size
    wide, back = np.zeros(256, "float32"), np.zeros(256, "uint8")
    results = [("float32", lambda x: c.cast("float32", x)), (dtype, lambda x: x)]
    assert Native(elementwise(256, [dtype], results))(bits, wide, back) == 0
    np.testing.assert_array_equal(wide, table.astype("float32"))
    nan = np.isnan(table)
    np.testing.assert_array_equal(back[~nan], bits[~nan])
    rng = np.random.default_rng(1)
    data = (rng.uniform(-1, 1, 2000) * 2.0 ** rng.integers(-20, 17, 2000)).astype("float32")
    out = np.zeros(2000, "uint8")
    assert Native(elementwise(2000, ["float32"], [(dtype, lambda x: c.cast(dtype, x))]))(data, out) == 0
    finite = np.sort(table[np.isfinite(table)])
    limit = finite[-1] + (finite[-1] - finite[-2]) / 2
    for x, b in zip(data, out, strict=True):
        if abs(x) >= limit:
            assert not math.isfinite(table[b])
        else:
            assert abs(table[b] - x) == np.abs(finite - x).min()


def test_reinterpret_keeps_the_bits() -> None:
    data = np.array([0.0, -0.0, 1.0, math.inf, 1e-45], "float32")
    outs = [np.zeros(5, "int32"), np.zeros(5, "float32")]
    native = Native(
        elementwise(5, ["float32"], [
            ("int32", call("reinterpret", "int32")),
            ("float32", lambda x: call("reinterpret", "float32")(call("reinterpret", "uint32")(x))),
        ])
    )  # fmt: skip
    assert native(data, *outs) == 0
    np.testing.assert_array_equal(outs[0], data.view("int32"))
    np.testing.assert_array_equal(outs[1].view("int32"), data.view("int32"))


def test_reinterpret_keeps_the_bits_of_float16() -> None:
    data = np.arange(0, 65536, 257, dtype="uint16")
    out, back = np.zeros(len(data), "float16"), np.zeros(len(data), "uint16")
    native = Native(elementwise(len(data), ["uint16"], [("float16", call("reinterpret", "float16"))]))
    assert native(data, out) == 0
    keep = ~np.isnan(data.view("float16"))
    np.testing.assert_array_equal(out.view("uint16")[keep], data[keep])
    assert Native(elementwise(len(data), ["float16"], [("uint16", call("reinterpret", "uint16"))]))(out, back) == 0
    np.testing.assert_array_equal(back[keep], data[keep])


@pytest.mark.skipif("avx2" not in " ".join(host.cpu_features()), reason="no fused multiply-add here")
@pytest.mark.parametrize("method", ["round", "floor"])
def test_what_becomes_an_integer_is_not_contracted(method: str) -> None:
    """Coordinates of an image that grows from 2 to 7 rows: 3.5 * (2 / 7) - 0.5 is one half, and fused a bit more."""
    places = np.arange(7, dtype="float32")
    half = c.const(0.5, "float32")
    scale = float(np.float32(2) / np.float32(7))

    def coordinate(x: tir.Expr) -> tir.Expr:
        return c.cast("int32", call(method, "float32")(c.sub(c.mul(c.add(x, half), c.const(scale, "float32")), half)))

    out = np.zeros(7, "int32")
    func = elementwise(7, ["float32"], [("int32", coordinate)])
    assert Native(func, machine=Machine(cpu="x86-64-v3"), level=3)(places, out) == 0
    scaled = (places + np.float32(0.5)) * np.float32(scale) - np.float32(0.5)
    np.testing.assert_array_equal(out, getattr(np, method)(scaled))
