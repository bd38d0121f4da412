"""Bit fields of bytes at a stride of 4 as floats: words, masks and one subtraction, exact for every byte."""

from __future__ import annotations

import numpy as np
import pytest

import mlcc

TEXT = """
@T.prim_func
def main(A: T.Buffer((1024,), "{dtype}"), Z: T.Buffer((256,), "{zeros}"), B: T.Buffer((256,), "float32")):
    T.func_attr({{"global_symbol": "main"}})
    for i in range({blocks}):
        for j in T.vectorized({lanes}):
            B[i * {lanes} + j] = T.Cast("float32", {field} - {zero})
"""
UNSIGNED = 'T.bitwise_and(T.shift_right(T.Cast("int32", A[(i * {lanes} + j) * 4 + {byte}]), {start}), {mask})'
SIGNED = 'T.shift_right(T.shift_left(T.Cast("int32", A[(i * {lanes} + j) * 4 + {byte}]), {left}), {right})'


def text(byte: int, start: int, width: int, signed: bool, zero: str, dtype: str = "uint8", lanes: int = 16) -> str:
    field = (SIGNED if signed else UNSIGNED).format(
        byte=byte, start=start, mask=(1 << width) - 1, left=32 - width - start, right=32 - width, lanes=lanes
    )
    zeros = "int8" if zero == "Z" else "int32"
    zero = f'T.Cast("int32", Z[i * {lanes} + j])' if zero == "Z" else zero
    return TEXT.format(dtype=dtype, zeros=zeros, field=field, zero=zero, lanes=lanes, blocks=256 // lanes)


def check(source: str, byte: int, start: int, width: int, signed: bool, zero: str, dtype: str) -> None:
    random = np.random.default_rng(start * 8 + width)
    data = np.arange(1024, dtype="int64")
    data[byte::4] = np.arange(256)  # every byte
    z = random.integers(-128, 128, 256).astype("int8" if zero == "Z" else "int32")
    fields = data[byte::4] >> start & (1 << width) - 1
    fields -= (fields >> width - 1 << width) if signed else 0
    out = np.empty(256, "float32")
    mlcc.load(mlcc.build(mlcc.parse(source), "llvm{cpu=native}"))["main"](data.astype("uint8").view(dtype), z, out)
    expected = fields - (z.astype("int64") if zero == "Z" else int(zero))
    np.testing.assert_array_equal(out, expected.astype("float32"))


@pytest.mark.parametrize("zero", ["0", "8", "-65000", "Z"])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("byte", range(4))
def test_fields_of_words_become_floats(byte: int, signed: bool, zero: str) -> None:
    for start, width in ((0, 4), (4, 4), (0, 8), (6, 2), (3, 5), (7, 1)):
        dtype = "int8" if start == 3 else "uint8"
        source = text(byte, start, width, signed, zero, dtype)
        check(source, byte, start, width, signed, zero, dtype)


@pytest.mark.parametrize("target", ["llvm{cpu=znver4}", "llvm{cpu=x86-64-v3}", "llvm{cpu=x86-64}"])
def test_no_integers_are_converted(target: str) -> None:
    code = mlcc.build(mlcc.parse(text(2, 4, 4, False, "8")), target).emit("llvm-ir").decode()
    assert "itofp" not in code


@pytest.mark.parametrize(
    ("old", "new"),
    [("* 4", "* 3"), ("(1024,)", "(1023,)"), ("- 8", "- 80000"), (", 15)", ", 11)"), ("+ 2]", "+ i]")],
    ids=["stride", "size", "zero", "mask", "residue"],
)
def test_other_loads_are_converted_as_integers(old: str, new: str) -> None:
    source = text(2, 4, 4, False, "8")
    assert old in source
    source = source.replace(old, new).replace("range(16)", "range(2)")
    code = mlcc.build(mlcc.parse(source), "llvm{cpu=znver4}").emit("llvm-ir").decode()
    assert "itofp" in code
