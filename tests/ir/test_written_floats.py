"""Floating constants remember the double that was written; computing uses the value rounded to the dtype."""

from __future__ import annotations

import numpy as np
import pytest

import mlcc
from mlcc.arith.structural_keys import same_expr
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.construct import round_float
from mlcc.ir.dtypes import DType
from mlcc.ir.equal import assert_structural_equal, structural_equal, structural_hash

TEXT = """
@T.prim_func
def main(A: T.Buffer((4,), "{dtype}"), B: T.Buffer((4,), "{dtype}")):
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = A[vi] * T.{dtype}({value})
"""
VALUES = ("0.1", "1e-06", "3.276366618154713e-05", "-2.2", "0.10000000149011612", "1.4426950216293335", "0.5", "448.0")


def literal(module: mlcc.IRModule) -> str:
    return mlcc.script(module).split("* ")[1].split("\n")[0]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_the_text_stays(value: str, dtype: str) -> None:
    module = mlcc.parse(TEXT.format(dtype=dtype, value=value))
    assert literal(module) == f"T.{dtype}({value})"
    for dialect in ("mlcc", "tvm"):
        text = mlcc.script(module, dialect=dialect)
        again = mlcc.parse(text)
        assert_structural_equal(module, again)
        assert mlcc.script(again, dialect=dialect) == text


def test_the_value_is_rounded() -> None:
    made = c.const(0.1, "float32")
    assert isinstance(made, tir.FloatImm)
    assert made.value == float(np.float32(0.1)) and made.written == 0.1
    assert c.const(0.5, "float32").written is None  # type: ignore[attr-defined]


def test_what_was_written_is_no_meaning() -> None:
    short, long = (mlcc.parse(TEXT.format(dtype="float32", value=v)) for v in ("0.1", repr(float(np.float32(0.1)))))
    assert structural_equal(short, long) and structural_hash(short) == structural_hash(long)
    assert mlcc.script(short) != mlcc.script(long)
    assert same_expr(c.const(0.1, "float32"), c.const(float(np.float32(0.1)), "float32"))


def test_folds_use_values() -> None:
    tenth = c.const(0.1, "float32")
    total = c.add(tenth, tenth)
    assert isinstance(total, tir.FloatImm)
    assert total.value == float(np.float32(0.1) + np.float32(0.1)) and total.written is None
    assert c.negate(tenth).written == -0.1  # type: ignore[attr-defined]
    narrow = c.cast("float16", tenth)
    assert isinstance(narrow, tir.FloatImm)
    assert narrow.value == round_float(float(np.float32(0.1)), DType.of("float16"))


def test_a_cast_that_rounds_twice_forgets_the_double() -> None:
    # just above a tie of float16: float32 rounds it to the tie, which goes to even
    value = 1 + 2**-11 + 2**-40
    made = c.cast("float16", c.const(value, "float32"))
    assert isinstance(made, tir.FloatImm)
    assert made.value == 1.0 and made.written is None
