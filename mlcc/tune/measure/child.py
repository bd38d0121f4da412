"""The forked child process of one candidate: runs, checks and times it, and reports through a pipe.

The child is isolated from other processes: it has its own session, dies with its parent, has limits of CPU time and
memory, and no output but the pipe.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import resource
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from mlcc.runtime import faults, threads
from mlcc.runtime.faults import Fault
from mlcc.tune.measure.arguments import Bytes
from mlcc.tune.measure.calls import BoundCall, KernelError, LoadedKernel, workspace_of
from mlcc.tune.measure.check import difference, infinite_share
from mlcc.tune.measure.memory import GuardedMemory
from mlcc.tune.measure.protocol import MeasureRequest, PrepareRequest, ResourceLimits

_PR_SET_PDEATHSIG = 1
_MAX_SLOWDOWN = 50  # a candidate may be this many times slower than the baseline
_MIN_SECONDS = 0.5
# rounds of a sample, of which the minimum counts, as interference only adds to the time: on a busy machine, one round
# of 1 ms varies by 20 %, also in CPU time, and the minimum of three rounds of 0.4 ms by 3 %
_ROUNDS, _LONG_ROUNDS = 3, 2
_SHORT_SECONDS = 0.001  # seconds of a call up to which _ROUNDS are run


class WrongResult(Exception):
    """Raised for a candidate with wrong results."""


def run_isolated(
    job: Callable[[], dict[str, Any]],
    tensor_at: Callable[[int], str | None],
    limits: ResourceLimits,
    pipe: int,
    parent: int,
) -> NoReturn:
    """Run a job in this forked process and write its result to the pipe as a line of JSON. Never returns.

    `tensor_at` maps an address to the name of its tensor. This process dies with `parent`.
    """
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        _set_limits(limits)
        faults.install_handler(lambda fault: _report_fault(fault, tensor_at, pipe), "")
        _send_outcome(pipe, _outcome(job))
    finally:
        os._exit(0)


def _outcome(job: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return {"status": "ok", **job()}
    except WrongResult as exc:
        return {"status": "wrong", "why": str(exc)}
    except KernelError as exc:
        return {"status": "wrong", "why": str(exc)}
    except (MemoryError, OSError, ValueError) as exc:
        return {"status": "refused", "why": f"out of memory: {exc}"}
    except Exception as exc:  # noqa: BLE001 - reported to the tuner
        return {"status": "crash", "why": f"{type(exc).__name__}: {exc}"}


def _set_limits(limits: ResourceLimits) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    most = used + limits.memory
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
    set_cpu_limit(limits.seconds)


def set_cpu_limit(seconds: float) -> None:
    """Limit the further CPU time of this process: SIGPROF ends it then, or SIGXCPU if that is masked."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    most = int(time.process_time() + seconds) + 2
    resource.setrlimit(resource.RLIMIT_CPU, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _send_outcome(pipe: int, outcome: dict[str, Any]) -> None:
    os.write(pipe, json.dumps(outcome).encode() + b"\n")


def _report_fault(fault: Fault, tensor_at: Callable[[int], str | None], pipe: int) -> None:
    name = None if fault.address is None else tensor_at(fault.address)
    if name is not None:
        _send_outcome(pipe, {"status": "wrong", "why": f"it accesses memory outside of {name}"})
    else:
        where = "" if fault.address is None else f" at {fault.address:#x}"
        _send_outcome(pipe, {"status": "crash", "why": f"{fault.name}{where}"})
    os._exit(0)


# ---------------------------------------------------------------- jobs


def compute_reference(
    reference: LoadedKernel, memory: Sequence[GuardedMemory], request: PrepareRequest, into: Sequence[Bytes | None]
) -> dict[str, Any]:
    """Run the unscheduled kernel and copy its results to memory shared with the parent."""
    threads.set_num_threads(request.threads)
    BoundCall(reference, [memory], tight=True)()
    shares = [0.0]
    for argument, given, result in zip(request.arguments, memory, into, strict=True):
        if result is not None:
            result[:] = given.bytes
            shares.append(infinite_share(result, argument.dtype))
    return {"infinite": max(shares)}


def check_and_time(
    request: MeasureRequest, prepared: PrepareRequest, baseline: LoadedKernel, tight: Sequence[GuardedMemory],
    expected: Sequence[Bytes | None],
    timed: Sequence[Sequence[GuardedMemory]],
) -> dict[str, Any]:  # fmt: skip
    """Compare the results of a candidate with those expected, and time it beside the baseline."""
    for entry in (request.candidate.main, request.candidate.prepare):
        if entry is not None and entry.workspace > request.limits.memory:
            raise MemoryError(f"a workspace of {entry.workspace} bytes")
    threads.set_num_threads(prepared.threads)
    clock = time.thread_time if prepared.threads == 1 else time.perf_counter
    workspace = workspace_of(baseline.kernel, request.candidate)
    baseline_call = BoundCall(baseline, timed, workspace=workspace)
    baseline_seconds = _rough_seconds(baseline_call, request.least, clock)
    time_limit = max(_MIN_SECONDS, _MAX_SLOWDOWN * baseline_seconds) * prepared.threads
    set_cpu_limit(min(time_limit, request.limits.seconds))
    loaded = baseline if request.candidate.digest == baseline.kernel.digest else LoadedKernel(request.candidate)
    _check(loaded, prepared, tight, expected)
    candidate = BoundCall(loaded, timed, workspace=workspace)
    seconds = _rough_seconds(candidate, request.least, clock)
    counts = [max(1, int(request.least / max(s, 1e-9)) + 1) for s in (baseline_seconds, seconds)]
    pair = ((baseline_call, counts[0]), (candidate, counts[1]))
    rounds = _ROUNDS if prepared.threads > 1 or max(baseline_seconds, seconds) < _SHORT_SECONDS else _LONG_ROUNDS
    candidate_seconds: list[float] = []
    ratios: list[float] = []
    for turn in range(request.samples):
        set_cpu_limit(request.limits.seconds * rounds)
        baseline_sample, candidate_sample = _time_pair(pair, rounds, clock, backwards=bool(turn % 2))
        candidate_seconds.append(candidate_sample)
        ratios.append(candidate_sample / baseline_sample)
        if min(ratios) > request.give_up * (1 if turn else 2):  # a single one may be noise
            break
    return {"seconds": candidate_seconds, "ratios": ratios}


def _time_pair(
    pair: Sequence[tuple[BoundCall, int]], rounds: int, clock: Callable[[], float], *, backwards: bool
) -> list[float]:
    """Time two kernels alternately. Return the least seconds of a call of each over all rounds."""
    least = [math.inf] * len(pair)
    order = [*enumerate(pair)]
    for _ in range(rounds):
        for at, (call, count) in reversed(order) if backwards else order:
            least[at] = min(least[at], _seconds(call, count, clock))
    return least


def _check(
    loaded: LoadedKernel, prepared: PrepareRequest, tight: Sequence[GuardedMemory], expected: Sequence[Bytes | None]
) -> None:
    """Run a candidate once. Raises Wrong for unexpected results or writes outside of tensors."""
    call = BoundCall(loaded, [tight], tight=True)
    call()
    if call.stray_writes():
        raise WrongResult("it writes outside of its tensors")
    for argument, memory, result in zip(prepared.arguments, tight, expected, strict=True):
        if result is None:
            continue
        mismatch = difference(memory.bytes, result, argument.dtype, prepared.bound)
        if mismatch is not None:
            raise WrongResult(f"`{argument.name}`: {mismatch}")


def _rough_seconds(call: BoundCall, least: float, clock: Callable[[], float]) -> float:
    """Estimate the seconds of a call from one or two calls."""
    first = _seconds(call, 1, clock)
    return first if first > 4 * least else min(first, _seconds(call, 1, clock))


def _seconds(call: BoundCall, count: int, clock: Callable[[], float]) -> float:
    """Measure the mean seconds of `count` calls."""
    start = clock()
    call(count)
    return max(clock() - start, 1e-9) / count
