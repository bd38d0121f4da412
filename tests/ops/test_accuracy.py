"""docs/accuracy.md has the bounds that the tests hold, and the tests hold them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.generate import op_calls
from tests.ops import accuracy, coverage
from tests.ops.cases import Case, T


def test_page_is_up_to_date(request: pytest.FixtureRequest) -> None:
    text = accuracy.PAGE.read_text()
    if request.config.getoption("--update-golden"):
        accuracy.PAGE.write_text(accuracy.filled(text))
    assert accuracy.PAGE.read_text() == accuracy.filled(text)


def test_exact_operators_are_known() -> None:
    assert set(op_calls.subjects()) >= coverage.EXACT
    assert not {"matmul", "sum", "exp", "nn.softmax", "nn.conv2d"} & coverage.EXACT


@pytest.mark.parametrize(("name", "steps", "is_wrong"), [("add", 1, True), ("add", 0, False), ("exp", 1, False)])
def test_one_unit_in_the_last_place_is_seen(
    name: str, steps: int, is_wrong: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an exact operator, and of no other."""
    tensors = (T((3,)), T((3,))) if name == "add" else (T((3,)),)
    expected = coverage.numbers.expected

    def moved(*given: Any) -> list[np.ndarray]:
        arrays = expected(*given)
        return [np.nextafter(a, a.dtype.type(np.inf)) for a in arrays] if steps else arrays

    monkeypatch.setattr(coverage.numbers, "expected", moved)
    (verdict,) = coverage.judge([op_calls.OpCall(Case(name, tensors), "float32", "")])
    assert bool(verdict.wrong) == is_wrong
