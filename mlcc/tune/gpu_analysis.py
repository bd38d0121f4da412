"""A runner for GPUs that are not there: candidates run under emulation, which checks them, and analysis says how long
they would take."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlcc.errors import MlccError
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.module import IRModule
from mlcc.ir.tensor_data import storage_dtype
from mlcc.machine.gpu_tables import GpuFacts
from mlcc.machine.target import CudaTarget
from mlcc.records.workload import MAIN
from mlcc.targets.emulate.report import KernelReport, MeasuringDevice
from mlcc.tune.contracts import Outcome, Status, Task
from mlcc.tune.measure.arguments import Bytes, Values, fill, size_of
from mlcc.tune.measure.check import difference
from mlcc.tune.measure.depth import error_bound
from mlcc.tune.measure.kernel import Argument
from mlcc.tune.measure.kernel_code import arguments_of

_CLOCK = 1.5e9  # cycles a second
_GLOBAL = 10.0  # bytes of global memory a cycle and multiprocessor
_SECTOR = 32
_LAUNCH = 4e-6  # seconds
_ENOUGH = 0.25  # of the warps of a multiprocessor hide the time that memory takes


class AnalysisRunner:
    """Emulates candidates on a GPU, compares their results with those of the unscheduled function on the CPU, and gives
    the seconds that `seconds_of` expects; see `contracts.Runner`."""

    device = "analysis"  # in records: no machine's times

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._known: dict[str, tuple[tuple[Argument, ...], list[Bytes]]] = {}

    def measure(
        self, task: Task, baseline: tir.PrimFunc, candidates: Sequence[tir.PrimFunc], samples: int
    ) -> list[Outcome]:
        """The outcomes of `candidates` in order. Each sample is the same: nothing is timed. Raises CompileError for a
        baseline that cannot be built."""
        usual = self._seconds(task, baseline)
        return [self._outcome(task, usual, candidate, samples) for candidate in candidates]

    def close(self) -> None:
        """Forget the arguments."""
        self._known.clear()

    def _outcome(self, task: Task, usual: float, candidate: tir.PrimFunc, samples: int) -> Outcome:
        try:
            seconds = self._seconds(task, candidate)
        except MlccError as exc:
            return Outcome(Status.REFUSED, why=exc.diagnostics[0].message)
        except _WrongResultError as exc:
            return Outcome(Status.WRONG, why=str(exc))
        return Outcome(Status.OK, (seconds,) * samples, (seconds / usual,) * samples)

    def _seconds(self, task: Task, func: tir.PrimFunc) -> float:
        from mlcc.driver import build
        from mlcc.runtime.loader import load

        target = CudaTarget.parse(task.target)
        facts = GpuFacts.of(target)
        made = build(_called(func), target, pipeline="", allow_native=False)
        assert made.launch is not None
        device = MeasuringDevice(made.launch.kernels, facts)
        arguments, expected = self._expected(task)
        memory = self._memory(arguments)
        load(made, device=device)[MAIN](*_arrays(arguments, memory))
        if device.report.findings:
            raise _WrongResultError(device.report.findings[0].message)
        bound = error_bound(task.func, task.sizes)
        for argument, got, wanted in zip(arguments, memory, expected, strict=True):
            wrong = difference(got, wanted, argument.dtype, bound) if argument.written else None
            if wrong is not None:
                raise _WrongResultError(f"{argument.name}: {wrong}")
        device.report.assembled({})
        return sum(seconds_of(kernel, facts) for kernel in device.report.kernels.values())

    def _expected(self, task: Task) -> tuple[tuple[Argument, ...], list[Bytes]]:
        from mlcc.driver import build
        from mlcc.runtime.loader import load

        if task.key not in self._known:
            arguments = arguments_of(task.func, task.sizes)
            memory = self._memory(arguments)
            plain = build(_called(task.func), "llvm{cpu=native}", opt_level=0)
            load(plain)[MAIN](*_arrays(arguments, memory))
            self._known[task.key] = arguments, memory
        return self._known[task.key]

    def _memory(self, arguments: Sequence[Argument]) -> list[Bytes]:
        memory: list[Bytes] = [np.zeros(size_of(argument), np.uint8) for argument in arguments]
        fill(memory, arguments, self._seed, Values.SIGNED)
        return memory


def _called(func: tir.PrimFunc) -> IRModule:
    """The function as one that can be called."""
    return IRModule({MAIN: func.with_attr("global_symbol", MAIN)})


class _WrongResultError(Exception):
    """What is wrong with the results of a candidate."""


def _arrays(arguments: Sequence[Argument], memory: Sequence[Bytes]) -> list[object]:
    made: list[object] = []
    for argument, data in zip(arguments, memory, strict=True):
        if argument.shape is None:
            made.append(argument.value)
        else:
            made.append(data.view(storage_dtype(DType.of(argument.dtype).element)).reshape(argument.shape))
    return made


def seconds_of(kernel: KernelReport, facts: GpuFacts) -> float:
    """What a kernel takes, roughly: the time of its accesses to global or to shared memory, whichever is longer, on the
    multiprocessors that its blocks fill, with too few warps to hide it if there are few; and the launches."""
    if not kernel.blocks:
        return _LAUNCH * kernel.launches
    scale = kernel.block_count / kernel.blocks
    requests = sum(access.requests for access in kernel.accesses)
    sectors, passes = kernel.total("global")[0], kernel.total("shared")[0]
    cycles = max(sectors * _SECTOR / _GLOBAL, passes, requests) * scale / facts.sm_count
    at_once = max(kernel.blocks_per_sm, 1) * facts.sm_count
    waves = -(-kernel.block_count // at_once)
    filled = kernel.block_count / (waves * at_once)
    hidden = min(kernel.occupancy * filled / _ENOUGH, 1.0)
    busy = min(kernel.block_count / facts.sm_count, 1.0)
    return (cycles / (_CLOCK * max(hidden, 0.02) * max(busy, 1e-3)) + _LAUNCH) * kernel.launches
