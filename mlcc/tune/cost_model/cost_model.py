"""The base of cost models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from mlcc.tune.runner import RunnerResult

if TYPE_CHECKING:
    from mlcc.tune.tune_context import TuneContext


class CostModel:
    """Predicts the performance of candidates. TVM: `CostModel`.

    `needs_schedules`: the model reads the schedules of candidates (`candidate.sch`), which must be replayed first;
    otherwise it uses their decisions only (`candidate.space`, `candidate.steps`).
    """

    needs_schedules: ClassVar[bool] = True

    def load(self, path: str) -> None:
        """Read a model written by `save`. Raises OSError."""

    def save(self, path: str) -> None:
        """Write the model's state."""

    def update(self, context: TuneContext, candidates: Sequence[Any], results: Sequence[RunnerResult]) -> None:
        """Learn from measured candidates."""

    def predict(self, context: TuneContext, candidates: Sequence[Any]) -> np.ndarray:
        """Predict a score for each candidate, float64, shape (n,): nonnegative, higher is faster."""
        raise NotImplementedError

    @staticmethod
    def create(kind: Any = "xgb", *args: Any, **kwargs: Any) -> CostModel:
        """Create a model by name: `random`, `none`, `nearest`, `lgb` (LightGBM), `xgb` (XGBoost, else LightGBM, else
        `nearest`: whatever is installed). Raises ValueError for other names, ImportError for `lgb` without LightGBM."""
        from mlcc.tune.cost_model import BoostedTrees, NearestModel, RandomModel, best_installed

        named: dict[str, Callable[..., CostModel]] = {
            "random": RandomModel, "none": RandomModel, "nearest": NearestModel, "lgb": BoostedTrees,
            "xgb": best_installed,
        }  # fmt: skip
        if isinstance(kind, CostModel):
            return kind
        if kind not in named:
            raise ValueError(f"`cost_model` must be {', '.join(named)} or a CostModel, not {kind!r}")
        return named[kind](*args, **kwargs)
