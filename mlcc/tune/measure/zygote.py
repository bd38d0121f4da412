"""The zygote: a single-threaded process with arguments and baseline loaded, which forks a child per candidate.

It runs no candidate itself. It ends with its children when the pipe from the tuner closes, also if the tuner was
killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import select
import signal
import time
from collections.abc import Callable
from typing import Any

from mlcc.tune.measure import child
from mlcc.tune.measure.arguments import Bytes, ValueDistribution, fill, size_of
from mlcc.tune.measure.calls import LoadedKernel
from mlcc.tune.measure.kernel import Argument, Kernel
from mlcc.tune.measure.memory import GuardedMemory, staggered
from mlcc.tune.measure.pipes import receive, send
from mlcc.tune.measure.protocol import Answer, MeasureRequest, PrepareRequest, ResourceLimits

_MAX_INFINITE_SHARE = 0.01  # share of non-finite results from which on other arguments are tried
OK, WRONG = "ok", "wrong"


def main(reading: int, writing: int) -> None:
    """Answer requests until the pipe ends."""
    zygote = Zygote(reading)
    while (message := receive(reading)) is not None:
        try:
            answer = zygote.answer(pickle.loads(message))  # noqa: S301 - of the tuner, our parent
        except Exception as exc:  # noqa: BLE001 - reported to the tuner
            answer = Answer("crash", f"{type(exc).__name__}: {exc}")
        send(writing, pickle.dumps(answer))


class Zygote:
    """The zygote's state: the arguments, the reference results and the loaded baseline of one task."""

    def __init__(self, reading: int) -> None:
        self._reading = reading
        self._loaded: dict[str, LoadedKernel] = {}
        self._arguments: tuple[Argument, ...] = ()
        self._prepared: PrepareRequest | None = None
        self._tight: list[GuardedMemory] = []
        self._timed: list[list[GuardedMemory]] = []
        self._shared: list[GuardedMemory | None] = []

    def answer(self, request: PrepareRequest | MeasureRequest) -> Answer:
        """Carry out a request. Return its answer."""
        if isinstance(request, PrepareRequest):
            self._prepared = None
            outcome = self._prepare(request)
            self._prepared = request if outcome["status"] == OK else None
            return Answer(outcome["status"], outcome.get("why", ""))
        outcome = self._measure(request)
        seconds, ratios = (tuple(outcome.get(name, ())) for name in ("seconds", "ratios"))
        return Answer(outcome["status"], outcome.get("why", ""), seconds, ratios)

    def _prepare(self, request: PrepareRequest) -> dict[str, Any]:
        self._arguments = request.arguments
        self._tight, self._timed, self._shared = [], [], []  # free the memory of the previous task first
        sizes = [size_of(argument) for argument in request.arguments]
        self._tight = [GuardedMemory(size, tight=True) for size in sizes]
        self._timed = [staggered(sizes) for _ in range(request.sets)]
        written = [argument.written for argument in request.arguments]
        self._shared = [
            GuardedMemory(n, tight=True, shared=True) if w else None for n, w in zip(sizes, written, strict=True)
        ]
        reference = self._load(request.reference)
        outcome = self._compute_reference(request, reference, ValueDistribution.SIGNED)
        if outcome["status"] == OK and outcome["infinite"] > _MAX_INFINITE_SHARE:
            other = self._compute_reference(request, reference, ValueDistribution.POSITIVE)
            is_better = other["status"] == OK and other["infinite"] < outcome["infinite"]
            outcome = other if is_better else self._compute_reference(request, reference, ValueDistribution.SIGNED)
        elif outcome["status"] == WRONG:  # an index out of bounds, or a failed assertion
            outcome = self._compute_reference(request, reference, ValueDistribution.ZERO)
        for memory, argument in zip(self._tight, request.arguments, strict=True):
            if not argument.written:
                memory.make_read_only()
        return outcome

    def _compute_reference(
        self, request: PrepareRequest, reference: LoadedKernel, values: ValueDistribution
    ) -> dict[str, Any]:
        """Fill the arguments, and compute the reference results in a child."""
        for memory in (self._tight, *self._timed):
            fill([one.bytes for one in memory], request.arguments, request.seed, values)
        return self._run_in_child(
            lambda: child.compute_reference(reference, self._tight, request, self._expected), request.limits
        )

    @property
    def _expected(self) -> list[Bytes | None]:
        return [None if memory is None else memory.bytes for memory in self._shared]

    def _measure(self, request: MeasureRequest) -> dict[str, Any]:
        prepared = self._prepared
        if prepared is None:
            return {"status": "crash", "why": "there are no arguments"}
        baseline = self._load(request.baseline)
        return self._run_in_child(
            lambda: child.check_and_time(request, prepared, baseline, self._tight, self._expected, self._timed),
            request.limits,
        )

    def _load(self, kernel: Kernel) -> LoadedKernel:
        if kernel.digest not in self._loaded:
            self._loaded[kernel.digest] = LoadedKernel(kernel)
        return self._loaded[kernel.digest]

    def _tensor_at(self, address: int) -> str | None:
        """Return the name of the tensor in or near which an address lies."""
        names = [argument.name for argument in self._arguments]
        for memory in (self._tight, *self._timed):
            for name, one in zip(names, memory, strict=True):
                if one.size and one.holds(address):
                    return f"`{name}`"
        return None

    # ------------------------------------------------------------ children

    def _run_in_child(self, job: Callable[[], dict[str, Any]], limits: ResourceLimits) -> dict[str, Any]:
        """Run a job in a child process. Return its outcome. Raises SystemExit if the tuner has ended."""
        reading, writing = os.pipe()
        own = os.getpid()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            os.close(self._reading)
            child.run_isolated(job, self._tensor_at, limits, writing, own)
        os.close(writing)
        try:
            reply, is_stuck = self._listen(pid, reading, limits.silence)
        finally:
            os.close(reading)
            _kill(pid)
            _, status, _ = os.wait4(pid, 0)
        if reply:
            outcome: dict[str, Any] = json.loads(reply)
            return outcome
        return _exit_outcome(os.waitstatus_to_exitcode(status), is_stuck)

    def _listen(self, pid: int, reading: int, silence: float) -> tuple[bytes, bool]:
        """Read the line that a child writes before it ends. Return it, and whether the child hung."""
        poll = select.poll()
        poll.register(reading, select.POLLIN)
        poll.register(self._reading, 0)  # for its end only
        reply, used, since = b"", -1, time.monotonic()
        while True:
            for handle, event in poll.poll(1000):
                if handle == self._reading and event:
                    raise SystemExit
                part = os.read(reading, 1 << 16)
                if not part or part.endswith(b"\n"):
                    return reply + part, False
                reply += part
            now = _cpu_ticks(pid)
            if now != used:
                used, since = now, time.monotonic()
            elif time.monotonic() - since > silence:
                return b"", True


def _kill(pid: int) -> None:
    """Kill a child, and whatever it started."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def _cpu_ticks(pid: int) -> int:
    """CPU time that a process has used."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            words = file.read().rpartition(")")[2].split()
        return int(words[11]) + int(words[12])
    except (OSError, IndexError):
        return -1


def _exit_outcome(code: int, is_stuck: bool) -> dict[str, Any]:
    """Return the outcome of a child that ended without reporting one."""
    if is_stuck:
        return {"status": "timeout", "why": "it hangs: it used no more CPU time"}
    if -code in (signal.SIGPROF, signal.SIGXCPU):
        return {"status": "timeout", "why": "it takes too much CPU time"}
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return {"status": "crash", "why": f"it was ended by {how}" if code < 0 else f"it ended with {how}"}
