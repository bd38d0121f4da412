"""`bench tune`: its verdict tells losses from noise."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from bench.tune import FINE, LEAST, SLOWER, UNCLEAR, Measured, line, verdict
from bench.tune_pair import ratios


@pytest.mark.parametrize(("medians", "expected"), [
    ([1.05] * LEAST, SLOWER),
    ([1.0] * LEAST, FINE),
    ([0.9, 0.91, 0.9, 0.89, 1.2, 0.9, 0.9, 0.9], FINE),
    ([1.0, 1.02, 1.0, 1.03, 1.005], UNCLEAR),
    ([1.05] * (LEAST - 1), UNCLEAR),
    ([], UNCLEAR),
])  # fmt: skip
def test_verdict_tells_losses_from_noise(medians: list[float], expected: str) -> None:
    assert verdict(medians) == expected


def test_equal_modules_are_rarely_called_slower() -> None:
    random = Random(1)
    called = sum(verdict([random.gauss(1.0, 0.01) for _ in range(12)]) == SLOWER for _ in range(1000))
    assert called < 10


def test_code_that_is_the_same_is_not_measured() -> None:
    found = Measured(1.0, (), {})
    assert (found.ratio, found.verdict) == (1.0, "the same code")
    assert "the same code" in line("x", found)


@pytest.mark.parametrize("times", [(1.0, 1.1), (2.0, 1.0)])
def test_ratios_are_of_the_second_call_over_the_first(times: tuple[float, float]) -> None:
    now = [0.0]

    def call(seconds: float) -> Callable[[], None]:
        return lambda: now.__setitem__(0, now[0] + seconds)

    found = ratios([call(t) for t in times], 4, lambda: now[0], 0.01)
    assert found == pytest.approx([times[1] / times[0]] * 4)
