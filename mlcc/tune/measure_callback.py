"""Callbacks after each measured batch, under TVM's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlcc.tune.builder import BuilderResult
    from mlcc.tune.runner import RunnerResult
    from mlcc.tune.search_strategy import MeasureCandidate
    from mlcc.tune.task_scheduler import TaskScheduler


class MeasureCallback:
    """A callback after each batch. A user's subclass defines `apply`. TVM: `MeasureCallback`, `PyMeasureCallback`."""

    def apply(
        self, task_scheduler: TaskScheduler, task_id: int, measure_candidates: Sequence[MeasureCandidate],
        builder_results: Sequence[BuilderResult], runner_results: Sequence[RunnerResult],
    ) -> None:  # fmt: skip
        """Handle the results of a batch of a task. Built files are deleted by now: their paths are None."""

    @staticmethod
    def create(kind: Any = "default") -> list[MeasureCallback]:
        """Return the default callbacks, or the given one or several. Raises ValueError for other values."""
        if kind == "default":
            return [AddToDatabase(), UpdateCostModel(), RemoveBuildArtifact()]
        given = [kind] if isinstance(kind, MeasureCallback) else kind
        if not isinstance(given, (list, tuple)) or not all(isinstance(one, MeasureCallback) for one in given):
            raise ValueError(f"`measure_callbacks` must be 'default' or a list of MeasureCallback, not {kind!r}")
        return list(given)


class AddToDatabase(MeasureCallback):
    """Adds records to the database at the end, after the best ones have been measured again. TVM: `AddToDatabase`."""


class UpdateCostModel(MeasureCallback):
    """Updates the cost model with the results of each batch. TVM: `UpdateCostModel`."""


class RemoveBuildArtifact(MeasureCallback):
    """Does nothing: mlcc's runners always remove built files. TVM: `RemoveBuildArtifact`."""


PyMeasureCallback = MeasureCallback
create = MeasureCallback.create
