"""Cost models: random, nearest neighbours, gradient-boosted trees."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from mlcc.tune.cost_model.cost_model import CostModel
from mlcc.tune.cost_model.decision_model import DecisionModel

if TYPE_CHECKING:
    from mlcc.tune.tune_context import TuneContext

_NEIGHBOURS = 8
_MIN_SAMPLES = 24  # measurements from which on trees are used
_NUM_TREES = 150  # trees


class RandomModel(CostModel):
    """Random scores, reproducible by their seed. TVM: `RandomModel`."""

    needs_schedules = False

    def __init__(self, *, seed: int = 0, max_range: int = 100) -> None:
        self.max_range = max_range
        self._random = np.random.default_rng(seed)

    def predict(self, context: TuneContext, candidates: Sequence[Any]) -> np.ndarray:
        return self._random.random(len(candidates)) * self.max_range


class FrozenModel(CostModel):
    """A frozen model: ignores updates."""

    def __init__(self, model: CostModel) -> None:
        self._model = model

    @property
    def needs_schedules(self) -> bool:  # type: ignore[override]
        return self._model.needs_schedules

    def predict(self, context: TuneContext, candidates: Sequence[Any]) -> np.ndarray:
        return self._model.predict(context, candidates)


class NearestModel(DecisionModel):
    """Nearest neighbours: predicts the mean log time of candidates with similar decisions, weighted by nearness."""

    def _predict_log_times(
        self, context: TuneContext, data: np.ndarray, times: np.ndarray, queries: np.ndarray
    ) -> np.ndarray:
        squares = (queries**2).sum(1)[:, None] + (data**2).sum(1)[None, :] - 2 * queries @ data.T
        distances = np.maximum(squares, 0.0)
        nearest = np.argsort(distances, axis=1, kind="stable")[:, :_NEIGHBOURS]
        weights = 1.0 / (np.take_along_axis(distances, nearest, axis=1) + 0.5)
        return (weights * times[nearest]).sum(1) / weights.sum(1)  # type: ignore[no-any-return]


class BoostedTrees(NearestModel):
    """Gradient boosting by LightGBM (`library="lightgbm"`) or XGBoost, which the extra `[tune]` brings; nearest
    neighbours while there are few measurements. Raises ImportError where the library is not installed.

    Equal measurements give equal models: one thread, deterministic options."""

    def __init__(self, library: str = "lightgbm") -> None:
        super().__init__()
        if importlib.util.find_spec(library) is None:
            raise ImportError(f"{library} is not installed: pip install 'mlcc[tune]'")
        self.library = library
        self._trees: dict[str, tuple[int, Predictor]] = {}  # by task: the number of columns, the predictor

    def _fit(self, context: TuneContext, data: np.ndarray, times: np.ndarray) -> None:
        if len(times) >= _MIN_SAMPLES:
            self._trees[context.task_name] = data.shape[1], _BOOSTING[self.library](data, times)

    def _predict_log_times(
        self, context: TuneContext, data: np.ndarray, times: np.ndarray, queries: np.ndarray
    ) -> np.ndarray:
        near = super()._predict_log_times(context, data, times, queries)
        if context.task_name not in self._trees:
            return near
        columns, trees = self._trees[context.task_name]
        return (near + 3.0 * trees(queries[:, :columns])) / 4.0


Predictor: TypeAlias = Callable[[np.ndarray], np.ndarray]


def _lightgbm(data: np.ndarray, times: np.ndarray) -> Predictor:
    package = importlib.import_module("lightgbm")
    options = {
        "objective": "regression", "learning_rate": 0.1, "num_leaves": 15, "min_data_in_leaf": 3, "verbose": -1,
        "seed": 0, "num_threads": 1, "deterministic": True, "force_row_wise": True,
    }  # fmt: skip
    return package.train(options, package.Dataset(data, times), _NUM_TREES).predict  # type: ignore[no-any-return]


def _xgboost(data: np.ndarray, times: np.ndarray) -> Predictor:
    package = importlib.import_module("xgboost")
    options = {"max_depth": 6, "learning_rate": 0.1, "tree_method": "hist", "seed": 0, "nthread": 1}
    booster = package.train(options, package.DMatrix(data, times), _NUM_TREES)
    return lambda rows: booster.predict(package.DMatrix(rows))


_BOOSTING: dict[str, Callable[[np.ndarray, np.ndarray], Predictor]] = {"lightgbm": _lightgbm, "xgboost": _xgboost}


def best_installed(**_: Any) -> CostModel:
    """Create boosted trees by XGBoost or LightGBM, or nearest neighbours if neither is installed."""
    for library in ("xgboost", "lightgbm"):
        if importlib.util.find_spec(library) is not None:
            return BoostedTrees(library)
    return NearestModel()
