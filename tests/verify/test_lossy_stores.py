"""W0305: stores that convert a float to a dtype that does not hold it, NumPy's `can_cast` being the judge."""

from __future__ import annotations

import numpy as np
import pytest

import mlcc

FLOATS = ("float16", "float32", "float64")
DTYPES = (*FLOATS, "int8", "int32", "int64")


def warned(store: str, given: str, kept: str) -> bool:
    text = (
        f'@T.prim_func\ndef main(A: T.Buffer((8,), "{given}"), B: T.Buffer((8,), "{kept}")):\n'
        f"    for i in range(8):\n        {store}\n"
    )
    found = mlcc.lint(mlcc.parse(text))
    assert {d.code for d in found} <= {"W0305"}
    return bool(found)


@pytest.mark.parametrize("kept", DTYPES)
@pytest.mark.parametrize("given", FLOATS)
def test_floats(given: str, kept: str) -> None:
    lossy = not np.can_cast(given, kept)
    for value in ("A[i]", f"A[i] * T.{given}(3)", "T.exp(A[i])", "(A[i] + A[i])"):
        assert warned(f"B[i] = {value}", given, kept) == lossy, value
        assert not warned(f'B[i] = T.Cast("{kept}", {value})', given, kept), value


def test_what_else_is_no_loss() -> None:
    assert not warned("B[i] = A[i] * 2.5", "float32", "float32")
    assert not warned("B[i] = A[i]", "int64", "float32")
    assert not warned("B[i] = T.Cast('float32', A[i]) + 1.0", "float64", "float32")
    assert not warned("B[i] = A[i].astype('float32')", "float64", "float32")


def test_an_expression_that_widens() -> None:
    assert warned("B[i] = A[i] + T.float64(1)", "float32", "float32")
