"""A runner of candidates for GPUs: measured where there is one, scored by analysis where there is none."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

from mlcc.ir import tir
from mlcc.machine.device import ANALYSIS, measured_on
from mlcc.machine.target import CudaTarget
from mlcc.tune.contracts import Outcome, Status, Task
from mlcc.tune.measure.closeable import Closeable
from mlcc.tune.measure.gpu_worker import GpuMeasure, TaskData
from mlcc.tune.measure.process import Worker, WorkerDied
from mlcc.tune.measure.serialize import serialize

_WORKER = "mlcc.tune.measure.gpu_worker"
_CHECKED_SAMPLES = 15  # samples from which on results are checked by emulation
_WALL_FACTOR = 20


class GpuRunner(Closeable):
    """Builds, checks and times candidates for a GPU; see `contracts.Runner`.

    Where this machine has a GPU that runs code for the target, and with `on_gpu`, every candidate is checked and timed
    on it, by its own clock, in a process that is started anew when it fails. Elsewhere its time is estimated from
    occupancy, memory traffic and bank conflicts of its first blocks (`gpu_cost`), and the emulator checks the results
    of those that are sampled often. `device` is what records say instead of the key of what measures, None without.
    A context manager.
    """

    def __init__(self, *, seed: int = 0, seconds: float = 60.0, on_gpu: bool = True) -> None:
        self._seed = seed
        self._seconds = seconds
        self._on_gpu = on_gpu
        self.device = None if on_gpu else ANALYSIS
        self._worker = Worker(_WORKER, uses=500)

    def measure(
        self, task: Task, baseline: tir.PrimFunc, candidates: Sequence[tir.PrimFunc], samples: int
    ) -> list[Outcome]:
        """The outcomes of `candidates` in order."""
        target = CudaTarget.parse(task.target)
        on_gpu = self._on_gpu and measured_on(target) != ANALYSIS
        task_data = TaskData(serialize(task.func), target, tuple(sorted(task.sizes.items())), self._seed)
        packed_baseline, check = serialize(baseline), samples >= _CHECKED_SAMPLES
        return [
            self._ask(GpuMeasure(task_data, packed_baseline, serialize(func), samples, check, on_gpu, self._seconds))
            for func in candidates
        ]

    def close(self) -> None:
        """End the process."""
        self._worker.close()

    def _ask(self, request: GpuMeasure) -> Outcome:
        try:
            answer = self._worker.ask(serialize(request), _WALL_FACTOR * request.seconds)
        except WorkerDied as exc:
            status = Status.TIMEOUT if exc.is_timeout else Status.CRASH
            return Outcome(status, why=str(exc))
        outcome: Outcome = pickle.loads(answer)  # noqa: S301 - of a process of ours
        return outcome
