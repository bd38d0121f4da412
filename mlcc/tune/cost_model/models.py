"""Cost models: by chance, by the nearest neighbours, by boosted trees."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mlcc.tune.cost_model.cost_model import CostModel
from mlcc.tune.cost_model.measured import DecisionModel

if TYPE_CHECKING:
    from mlcc.tune.tune_context import TuneContext

_NEIGHBOURS = 8
_ENOUGH = 24  # measurements before trees say more than neighbours
_TREES: dict[str, Any] = {"n_estimators": 150, "learning_rate": 0.1, "random_state": 0, "n_jobs": 1}


class RandomModel(CostModel):
    """Draws its scores; equal seeds draw alike. TVM: `RandomModel`."""

    needs_schedules = False

    def __init__(self, *, seed: int = 0, max_range: int = 100) -> None:
        self.max_range = max_range
        self._random = np.random.default_rng(seed)

    def predict(self, context: TuneContext, candidates: Sequence[Any]) -> np.ndarray:
        return self._random.random(len(candidates)) * self.max_range


class NearestModel(DecisionModel):
    """Expects of a candidate what those with the most similar decisions took, each by how near it is."""

    def _expect(self, context: TuneContext, data: np.ndarray, times: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        squares = (wanted**2).sum(1)[:, None] + (data**2).sum(1)[None, :] - 2 * wanted @ data.T
        distances = np.maximum(squares, 0.0)
        nearest = np.argsort(distances, axis=1, kind="stable")[:, :_NEIGHBOURS]
        weights = 1.0 / (np.take_along_axis(distances, nearest, axis=1) + 0.5)
        return (weights * times[nearest]).sum(1) / weights.sum(1)  # type: ignore[no-any-return]


class BoostedTrees(NearestModel):
    """Gradient boosting by LightGBM (`library="lightgbm"`) or XGBoost, which the extra `[tune]` brings; nearest
    neighbours while there are few measurements. Raises ImportError where the library is not installed."""

    def __init__(self, library: str = "lightgbm") -> None:
        super().__init__()
        if importlib.util.find_spec(library) is None:
            raise ImportError(f"{library} is not installed: pip install 'mlcc[tune]'")
        self.library = library
        self._models: dict[str, Any] = {}

    def _fit(self, context: TuneContext, data: np.ndarray, times: np.ndarray) -> None:
        if len(times) >= _ENOUGH:
            self._models[context.task_name] = _regressor(self.library).fit(data, times)

    def _expect(self, context: TuneContext, data: np.ndarray, times: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        near = super()._expect(context, data, times, wanted)
        model = self._models.get(context.task_name)
        if model is None:
            return near
        return (near + 3.0 * model.predict(wanted[:, : model.n_features_in_])) / 4.0  # type: ignore[no-any-return]


def _regressor(library: str) -> Any:
    package = importlib.import_module(library)
    if library == "xgboost":
        return package.XGBRegressor(max_depth=6, tree_method="hist", **_TREES)
    return package.LGBMRegressor(
        num_leaves=15, min_child_samples=3, deterministic=True, force_row_wise=True, verbose=-1, **_TREES
    )


def best_installed(**_: Any) -> CostModel:
    """Boosted trees by XGBoost or LightGBM, nearest neighbours where neither is installed."""
    for library in ("xgboost", "lightgbm"):
        if importlib.util.find_spec(library) is not None:
            return BoostedTrees(library)
    return NearestModel()
