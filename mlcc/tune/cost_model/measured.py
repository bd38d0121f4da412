"""Training data of cost models for a single kernel: decisions and the logarithms of times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mlcc.tune.cost_model.cost_model import CostModel
from mlcc.tune.cost_model.features import DecisionFeatures
from mlcc.tune.runner import RunnerResult

if TYPE_CHECKING:
    from mlcc.tune.tune_context import TuneContext

_FAILED = 4.0  # times the slowest that was measured: what a candidate counts with that does not run


class DecisionModel(CostModel):
    """The base of models that go by decisions. Each module that is tuned has measurements of its own."""

    needs_schedules = False

    def __init__(self) -> None:
        self._features: dict[str, DecisionFeatures] = {}
        self._seen: dict[str, tuple[list[Any], list[float]]] = {}

    def update(self, context: TuneContext, candidates: Sequence[Any], results: Sequence[RunnerResult]) -> None:
        known, times = self._seen.setdefault(context.task_name, ([], []))
        good = [result.run_secs for result in results]
        slowest = max([*times, *(math.log(np.median(secs)) for secs in good if secs)], default=0.0)
        known += [_Decided(candidate.space, candidate.steps) for candidate in candidates]
        times += [math.log(np.median(secs)) if secs else slowest + math.log(_FAILED) for secs in good]
        self._fit(context, *self._data(context))

    def predict(self, context: TuneContext, candidates: Sequence[Any]) -> np.ndarray:
        """Scores as `CostModel.predict` says: the speed relative to the best that was measured."""
        known, times = self._seen.get(context.task_name, ([], []))
        if not known:
            return np.ones(len(candidates))
        wanted = self._features_of(context).matrix(candidates)
        data, _ = self._data(context)
        expected = self._expect(context, _widened(data, wanted.shape[1]), np.array(times), wanted)
        return np.exp(np.min(times) - expected)  # type: ignore[no-any-return]

    def _data(self, context: TuneContext) -> tuple[np.ndarray, np.ndarray]:
        known, times = self._seen[context.task_name]
        return self._features_of(context).matrix(known), np.array(times)

    def _features_of(self, context: TuneContext) -> DecisionFeatures:
        return self._features.setdefault(context.task_name, DecisionFeatures())

    def _fit(self, context: TuneContext, data: np.ndarray, times: np.ndarray) -> None:
        """Learn from features, shape (n, columns), and logarithms of seconds, shape (n,)."""

    def _expect(self, context: TuneContext, data: np.ndarray, times: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """Predict the logarithms of seconds for the rows of `wanted`, from the measured rows."""
        raise NotImplementedError


class _Decided:
    """A measured candidate without its schedule."""

    def __init__(self, space: int, steps: Sequence[Any]) -> None:
        self.space, self.steps = space, steps


def _widened(data: np.ndarray, columns: int) -> np.ndarray:
    return np.pad(data, ((0, 0), (0, columns - data.shape[1])))
