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

_FAILURE_PENALTY = 4.0  # a failed candidate counts as this many times the slowest measurement


class DecisionModel(CostModel):
    """The base of models that use decisions only. Each tuned module has its own measurements."""

    needs_schedules = False

    def __init__(self) -> None:
        self._features: dict[str, DecisionFeatures] = {}
        self._measurements: dict[str, tuple[list[Any], list[float]]] = {}

    def update(self, context: TuneContext, candidates: Sequence[Any], results: Sequence[RunnerResult]) -> None:
        known, times = self._measurements.setdefault(context.task_name, ([], []))
        good = [result.run_secs for result in results]
        slowest = max([*times, *(math.log(np.median(secs)) for secs in good if secs)], default=0.0)
        known += [_MeasuredDecisions(candidate.space, candidate.steps) for candidate in candidates]
        times += [math.log(np.median(secs)) if secs else slowest + math.log(_FAILURE_PENALTY) for secs in good]
        self._fit(context, *self._data(context))

    def predict(self, context: TuneContext, candidates: Sequence[Any]) -> np.ndarray:
        """Predict the speed relative to the best measured one (see `CostModel.predict`)."""
        known, times = self._measurements.get(context.task_name, ([], []))
        if not known:
            return np.ones(len(candidates))
        queries = self._features_of(context).matrix(candidates)
        data, _ = self._data(context)
        expected = self._predict_log_times(context, _pad_columns(data, queries.shape[1]), np.array(times), queries)
        return np.exp(np.min(times) - expected)  # type: ignore[no-any-return]

    def _data(self, context: TuneContext) -> tuple[np.ndarray, np.ndarray]:
        known, times = self._measurements[context.task_name]
        return self._features_of(context).matrix(known), np.array(times)

    def _features_of(self, context: TuneContext) -> DecisionFeatures:
        return self._features.setdefault(context.task_name, DecisionFeatures())

    def _fit(self, context: TuneContext, data: np.ndarray, times: np.ndarray) -> None:
        """Learn from features, shape (n, columns), and logarithms of seconds, shape (n,)."""

    def _predict_log_times(
        self, context: TuneContext, data: np.ndarray, times: np.ndarray, queries: np.ndarray
    ) -> np.ndarray:
        """Predict the logarithms of seconds for the rows of `queries`, from the measured rows."""
        raise NotImplementedError


class _MeasuredDecisions:
    """A measured candidate without its schedule."""

    def __init__(self, space: int, steps: Sequence[Any]) -> None:
        self.space, self.steps = space, steps


def _pad_columns(data: np.ndarray, columns: int) -> np.ndarray:
    return np.pad(data, ((0, 0), (0, columns - data.shape[1])))
