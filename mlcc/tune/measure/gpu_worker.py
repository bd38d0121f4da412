"""The process that builds and runs candidates for GPUs, on this machine's GPU or by emulation."""

from __future__ import annotations

import functools
import hashlib
import math
import statistics
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc.driver import build
from mlcc.errors import MlccError
from mlcc.ir.dtypes import DType
from mlcc.ir.module import IRModule
from mlcc.ir.tensor_data import storage_dtype
from mlcc.machine.gpu_tables import GpuFacts
from mlcc.machine.target import CudaTarget
from mlcc.runtime.loader import load
from mlcc.targets.cuda import ptxas
from mlcc.tune.contracts import Outcome, Status
from mlcc.tune.measure.arguments import ValueDistribution, fill, size_of
from mlcc.tune.measure.check import ErrorBound, difference
from mlcc.tune.measure.gpu_cost import CountingDevice, estimate_registers
from mlcc.tune.measure.kernel import Argument
from mlcc.tune.measure.kernel_code import kernel_arguments
from mlcc.tune.measure.serialize import deserialize
from mlcc.tune.measure.serve import serve
from mlcc.tune.measure.tolerance import error_bound

MAIN = "main"
_CALLS_PER_SAMPLE = 20  # calls in a sample, of a GPU
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class TaskData:
    """A serialized unscheduled function, and the data that determine its arguments."""

    func: bytes
    target: CudaTarget
    sizes: tuple[tuple[str, int], ...]
    seed: int


@dataclass(frozen=True)
class GpuMeasure:
    """Measure a candidate beside a baseline; where `check`, compare its results with those of the task's function.

    Functions are serialized (`wire`), so that results for them can be cached.
    """

    task: TaskData
    baseline: bytes
    candidate: bytes
    samples: int
    check: bool
    on_gpu: bool
    seconds: float = 60.0


def main(reading: int, writing: int) -> None:
    """Answer requests until the pipe ends."""
    serve(reading, writing, answer)


def answer(request: GpuMeasure) -> Outcome:
    """Build a candidate, check it and time it, or estimate its time. Return the outcome."""
    try:
        artifact = _build(request.candidate, request.task.target)
        digest = hashlib.sha256(artifact.emit("ptx")).hexdigest()[:32]
        if request.check or request.on_gpu:
            wrong = _check(request, artifact)
            if wrong is not None:
                return Outcome(Status.WRONG, why=wrong, digest=digest)
        if request.on_gpu:
            return _time(request, artifact, digest)
        candidate_seconds, baseline_seconds = (
            _estimate(func, request.task) for func in (request.candidate, request.baseline)
        )
    except MlccError as exc:
        first = exc.diagnostics[0]
        return Outcome(Status.REFUSED, why=f"{first.code}: {first.message}")
    if not math.isfinite(candidate_seconds):
        return Outcome(Status.REFUSED, why="a block needs more resources than a multiprocessor has", digest=digest)
    count = request.samples
    return Outcome(
        Status.OK, (candidate_seconds,) * count, (candidate_seconds / baseline_seconds,) * count, "by analysis", digest
    )


@functools.lru_cache(maxsize=4)
def _build(func: bytes, target: CudaTarget) -> Any:
    """Build the artifact of a scheduled function."""
    return build(IRModule({MAIN: deserialize(func).with_attr("global_symbol", MAIN)}), target, pipeline="")


# ---------------------------------------------------------------- analysis


@functools.lru_cache(maxsize=64)
def _estimate(func: bytes, task: TaskData) -> float:
    """Estimate the seconds of a call from the memory accesses of its first blocks."""
    facts = GpuFacts.of(task.target)
    artifact = _build(func, task.target)
    kernels = artifact.launch.kernels
    device = CountingDevice(kernels, facts)
    load(artifact, device=device)[MAIN](*_arguments(task)[1])
    registers = {k.name: estimate_registers(k) for k in kernels}
    if ptxas.find_ptxas() is not None:
        try:
            assembled = ptxas.assemble(artifact.emit("ptx").decode(), facts.arch.name)
        except ptxas.PtxasError:
            return math.inf
        registers |= {name: one.registers for name, one in assembled.items()}
    return sum(cost.seconds(facts, registers.get(cost.name, 32)) for cost in device.costs)


# ---------------------------------------------------------------- running


def _arguments(task: TaskData) -> tuple[tuple[Argument, ...], list[Any]]:
    """Return the parameters of the function and random arguments."""
    arguments = kernel_arguments(deserialize(task.func), dict(task.sizes))
    memory = [np.zeros(size_of(a), np.uint8) for a in arguments]
    fill(memory, arguments, task.seed, ValueDistribution.SIGNED)
    return arguments, [
        a.value if a.shape is None else _shaped(one, a) for a, one in zip(arguments, memory, strict=True)
    ]


def _shaped(memory: npt.NDArray[np.uint8], argument: Argument) -> Array:
    assert argument.shape is not None
    return memory.view(storage_dtype(DType.of(argument.dtype).element)).reshape(argument.shape)


@functools.lru_cache(maxsize=2)
def _expected(task: TaskData) -> tuple[ErrorBound, list[Any]]:
    """Run the unscheduled function on the CPU. Return the error bound for results, and its arguments afterwards."""
    func = deserialize(task.func)
    values = _arguments(task)[1]
    entry = func.with_attr("global_symbol", MAIN)
    load(build(IRModule({MAIN: entry}), "llvm{cpu=native}", 1, pipeline=""))[MAIN](*values)
    return error_bound(func, dict(task.sizes)), values


def _check(request: GpuMeasure, artifact: Any) -> str | None:
    """Compare a candidate's results with the expected ones. Return a description of the first mismatch, or None."""
    arguments, values = _arguments(request.task)
    load(artifact, device=None if request.on_gpu else artifact.emulator(True))[MAIN](*values)
    bound, expected = _expected(request.task)
    for argument, got, want in zip(arguments, values, expected, strict=True):
        if argument.written:
            flat = [np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in (got, want)]
            mismatch = difference(flat[0], flat[1], argument.dtype, bound)
            if mismatch is not None:
                return f"`{argument.name}`: {mismatch}"
    return None


def _time(request: GpuMeasure, artifact: Any, digest: str) -> Outcome:
    """Sample a candidate and the baseline alternately by the GPU's clock."""
    timers = []
    for one in (_build(request.baseline, request.task.target), artifact):
        timer = load(one).time_evaluator(MAIN, number=_CALLS_PER_SAMPLE, repeat=1)
        timers.append((timer, _arguments(request.task)[1]))
    seconds, ratios = [], []
    for _ in range(request.samples):
        baseline_seconds, candidate_seconds = (statistics.median(timer(*given).times) for timer, given in timers)
        seconds.append(candidate_seconds)
        ratios.append(candidate_seconds / baseline_seconds)
    return Outcome(Status.OK, tuple(seconds), tuple(ratios), "", digest)
