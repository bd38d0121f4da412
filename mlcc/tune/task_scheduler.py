"""Task schedulers, which choose the task to search next, under TVM's names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlcc.tune.kernel_search import KernelSearch
    from mlcc.tune.tune_context import TuneContext
    from mlcc.tune.tuning_loop import TuningLoop


@dataclass(frozen=True, eq=False)
class TaskRecord:
    """A task of a tuning. TVM: `TaskRecord`."""

    ctx: TuneContext
    task_weight: float


class TaskScheduler:
    """Chooses the task that gets the next batch. TVM: `TaskScheduler`.

    During tuning `tasks_`, `database_` and `measure_callbacks_` are those of the tuning.
    """

    tasks_: Sequence[TaskRecord] = ()
    measure_callbacks_: Sequence[Any] = ()
    database_: Any = None

    def choose(self, loop: TuningLoop, kernels: Sequence[KernelSearch]) -> KernelSearch:
        """Choose one of the unfinished kernels, of which there is at least one."""
        raise NotImplementedError

    @staticmethod
    def create(kind: Any = "gradient", *args: Any, **kwargs: Any) -> TaskScheduler:
        """Create a scheduler by name: `gradient`, `round-robin`. Raises ValueError for other names."""
        named: dict[str, type[TaskScheduler]] = {"gradient": GradientBased, "round-robin": RoundRobin}
        if isinstance(kind, TaskScheduler):
            return kind
        if kind not in named:
            raise ValueError(f"`task_scheduler` must be {', '.join(named)} or a TaskScheduler, not {kind!r}")
        return named[kind](*args, **kwargs)


class GradientBased(TaskScheduler):
    """Chooses the task with the largest expected gain of another batch. TVM: `GradientBased`.

    The expected gain follows from a task's weight and time, its last batches, and its distance from the roofline.
    `alpha`, `window_size` and `seed` of TVM's formula are ignored.
    """

    def __init__(self, *, alpha: float = 0.2, window_size: int = 3, seed: int = -1) -> None:
        self.alpha, self.window_size, self.seed = alpha, window_size, seed

    def choose(self, loop: TuningLoop, kernels: Sequence[KernelSearch]) -> KernelSearch:
        return max(kernels, key=loop.expected)


class RoundRobin(TaskScheduler):
    """Chooses the tasks in turn. TVM: `RoundRobin`."""

    def choose(self, loop: TuningLoop, kernels: Sequence[KernelSearch]) -> KernelSearch:
        return min(kernels, key=lambda kernel: kernel.batches)


create = TaskScheduler.create
