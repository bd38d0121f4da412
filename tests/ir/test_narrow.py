"""bfloat16 and 8-bit floats as bit patterns."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcc.ir.construct import round_float
from mlcc.ir.dtypes import DType
from mlcc.ir.narrow_floats import decode, encode, is_narrow

NARROW = ["bfloat16", "float8_e4m3fn", "float8_e5m2"]
near_midpoints = st.builds(
    lambda bits, nudge: struct.unpack("<f", struct.pack("<I", bits << 16 | 0x8000))[0] * (1 + nudge * 2.0**-40),
    st.integers(0, 0xFFFF),
    st.integers(-1, 1),
)


@given(st.sampled_from(NARROW), st.floats(width=64) | st.floats(-300, 300) | near_midpoints)
def test_encoding_rounds_once(name: str, value: float) -> None:
    dtype = DType.of(name)
    got = float(decode(encode(value, dtype), dtype))
    want = round_float(value, dtype) if not math.isnan(value) else value
    if name == "float8_e4m3fn" and (math.isinf(want) or abs(want) > 448) or math.isnan(want):
        assert math.isnan(got)
    else:
        assert got == want and math.copysign(1, got) == math.copysign(1, want)


@pytest.mark.parametrize("name", NARROW)
def test_every_pattern_round_trips(name: str) -> None:
    dtype = DType.of(name)
    bits = np.arange(1 << dtype.bits).astype("uint16" if dtype.bits == 16 else "uint8")
    values = decode(bits, dtype)
    again = encode(values, dtype)
    sure = ~np.isnan(values)
    np.testing.assert_array_equal(again[sure], bits[sure])
    assert np.isnan(decode(again, dtype)[~sure]).all()


def test_shapes_stay_and_others_pass_through() -> None:
    assert encode([[1.0, 2.0]], DType.of("bfloat16")).shape == (1, 2)
    assert encode(1.5, DType.of("bfloat16")).shape == ()
    assert encode([1, 2], DType.of("int8")).dtype == np.int8 and not is_narrow(DType.of("int8"))
    with pytest.raises(OverflowError):
        encode(300, DType.of("int8"))
