"""A runner on this machine: one process compiles candidates, another forks a child to check and time each of them."""

from __future__ import annotations

import math
import pickle
import signal
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from mlcc.errors import CompileError, error
from mlcc.ir import tir
from mlcc.machine import host
from mlcc.machine.target import LlvmTarget
from mlcc.tune.contracts import Outcome, Status, Task
from mlcc.tune.measure.arguments import size_of
from mlcc.tune.measure.builder import BuildAnswer, BuildRequest, ReferenceRequest
from mlcc.tune.measure.closeable import Closeable
from mlcc.tune.measure.kernel import Argument, Kernel
from mlcc.tune.measure.kernel_code import CompileOptions
from mlcc.tune.measure.process import Worker, WorkerDied
from mlcc.tune.measure.protocol import Answer, MeasureRequest, PrepareRequest, ResourceLimits
from mlcc.tune.measure.serialize import serialize

_BUILDER, _ZYGOTE = "mlcc.tune.measure.builder", "mlcc.tune.measure.zygote"
_MAX_CACHED = 256  # cached kernels
_MAX_SETS = 64
_SAMPLES_PER_PROCESS = 10  # in one process
_WALL_FACTOR = 20  # wall time limit per CPU time limit: machines are shared


class LocalRunner(Closeable):
    """Builds, checks and times candidates on this machine; see `contracts.Runner`.

    `jobs` processes compile. One candidate is timed at a time, while others are compiled if there are enough cores.
    `seed` determines the arguments, `limits` are the candidates' resource limits, `cold` makes arguments that no cache
    holds. A process is replaced after `uses` requests, which frees its memory. A context manager.
    """

    def __init__(
        self, jobs: int = 1, *, seed: int = 0, limits: ResourceLimits | None = None, cold: bool = False,
        least: float = 0.0004,
        build_seconds: float = 30.0, uses: int = 2000,
    ) -> None:  # fmt: skip
        self.limits = limits or ResourceLimits()
        self._seed = seed
        self._cold = cold
        self._least = least
        self._build_seconds = build_seconds
        self._builders = [Worker(_BUILDER, uses) for _ in range(max(jobs, 1))]
        self._zygote = Worker(_ZYGOTE, uses)
        self._prepared: tuple[PrepareRequest, int] | None = None
        self._cache: OrderedDict[bytes, BuildAnswer] = OrderedDict()
        self._lock = threading.Lock()  # guards the cache, which several threads use
        for worker in (self._zygote, *self._builders):
            worker.start()

    def measure(
        self, task: Task, baseline: tir.PrimFunc, candidates: Sequence[tir.PrimFunc], samples: int
    ) -> list[Outcome]:
        """The outcomes of `candidates` in order; those with equal code are measured once.

        Raises CompileError E1142 if the function or the baseline cannot be built or run.
        """
        recipe = _recipe(task)
        baseline_kernel = self._kernel(baseline, recipe)
        prepare = self._request(task, recipe, baseline_kernel)
        known: dict[str, Outcome] = {}
        outcomes = []
        for built in self._build_all(candidates, recipe, task.threads):
            kernel = built.kernel
            if kernel is None:
                outcomes.append(Outcome(_status_of_failure(built), why=built.why))
                continue
            if kernel.digest not in known:
                answer = self._sample(prepare, baseline_kernel, kernel, samples)
                known[kernel.digest] = Outcome(
                    Status(answer.status), answer.seconds, answer.ratios, answer.why, kernel.digest
                )
            outcomes.append(known[kernel.digest])
        return outcomes

    def close(self) -> None:
        """End all processes."""
        for worker in (self._zygote, *self._builders):
            worker.close()

    # ------------------------------------------------------------ building

    def _build_all(self, funcs: Sequence[tir.PrimFunc], recipe: CompileOptions, threads: int) -> Iterator[BuildAnswer]:
        """Yield the code of functions in order.

        Compiles ahead if there are several builders, or more cores than the measured kernel's threads.
        """
        if len(funcs) < 2 or (len(self._builders) == 1 and threads >= host.num_cores()):
            yield from (self._ask_builder(BuildRequest(func, recipe, self._build_seconds)) for func in funcs)
            return
        with ThreadPoolExecutor(len(self._builders)) as pool:
            requests = [BuildRequest(func, recipe, self._build_seconds) for func in funcs]
            yield from pool.map(self._ask_builder, requests, range(len(requests)))

    def _ask_builder(self, request: BuildRequest | ReferenceRequest, at: int = 0) -> BuildAnswer:
        """Send a request to a builder unless its answer is cached. A builder that dies is the candidate's failure."""
        message = serialize(request)
        with self._lock:
            if message in self._cache:
                self._cache.move_to_end(message)
                return self._cache[message]
        try:
            answer = self._builders[at % len(self._builders)].ask(message, _WALL_FACTOR * request.seconds)
            built: BuildAnswer = pickle.loads(answer)  # noqa: S301 - of a process of ours
        except WorkerDied as exc:
            built = BuildAnswer(None, _describe_death(exc))
        with self._lock:
            self._cache[message] = built
            if len(self._cache) > _MAX_CACHED:
                self._cache.popitem(last=False)
        return built

    def _kernel(self, baseline: tir.PrimFunc, recipe: CompileOptions) -> Kernel:
        built = self._ask_builder(BuildRequest(baseline, recipe, self._build_seconds))
        if built.kernel is None:
            raise CompileError(error("E1142", f"the baseline schedule cannot be built: {built.why}"))
        return built.kernel

    # ------------------------------------------------------------ running

    def _request(self, task: Task, recipe: CompileOptions, baseline_kernel: Kernel) -> PrepareRequest:
        """Prepare a task's reference results: by the unscheduled function, or by the baseline if that times out."""
        judge = self._ask_builder(ReferenceRequest(task.func, recipe, self._build_seconds))
        if judge.kernel is None:
            raise CompileError(error("E1142", f"the unscheduled function cannot be built: {judge.why}"))
        sets = self._sets(judge.arguments)
        prepare = PrepareRequest(
            judge.arguments, judge.kernel, judge.bound, self._seed, task.threads, sets, self.limits
        )
        if self._prepared is not None and self._prepared[0] in (prepare, replace(prepare, reference=baseline_kernel)):
            return self._prepared[0]
        try:
            answer = self._prepare_zygote(prepare)
            if answer.status == Status.TIMEOUT.value:
                prepare = replace(prepare, reference=baseline_kernel)
                answer = self._prepare_zygote(prepare)
        except WorkerDied as exc:
            answer = Answer(Status.CRASH.value, str(exc))
        if answer.status != Status.OK.value:
            raise CompileError(error("E1142", f"the unscheduled function cannot be run: {answer.why}"))
        return prepare

    def _sets(self, arguments: Sequence[Argument]) -> int:
        size = sum(map(size_of, arguments))
        return min(_MAX_SETS, math.ceil(2 * host.caches().l2 / max(size, 1)) + 1) if self._cold else 1

    def _prepare_zygote(self, prepare: PrepareRequest) -> Answer:
        """Let the zygote make arguments and reference results unless it has them. Retries once if it is killed."""
        self._zygote.start()
        if self._prepared == (prepare, self._zygote.started):
            return Answer(Status.OK.value)
        try:
            answer = self._ask_zygote(prepare, 4 * prepare.limits.seconds)
        except WorkerDied:
            answer = self._ask_zygote(prepare, 4 * prepare.limits.seconds)
        self._prepared = (prepare, self._zygote.started) if answer.status == Status.OK.value else None
        return answer

    def _sample(self, prepare: PrepareRequest, baseline_kernel: Kernel, kernel: Kernel, samples: int) -> Answer:
        """Measure a candidate in several processes in turn: the memory layout of a process biases its samples."""
        parts: list[Answer] = []
        for first in range(0, samples, _SAMPLES_PER_PROCESS):
            count = min(_SAMPLES_PER_PROCESS, samples - first)
            part = self._time(prepare, MeasureRequest(baseline_kernel, kernel, count, self._least, limits=self.limits))
            if part.status != Status.OK.value:
                return part
            parts.append(part)
            if len(part.ratios) < count:
                break
        seconds = tuple(s for part in parts for s in part.seconds)
        return Answer(Status.OK.value, "", seconds, tuple(r for part in parts for r in part.ratios))

    def _time(self, prepare: PrepareRequest, request: MeasureRequest) -> Answer:
        """Measure a candidate; retry once if the zygote was killed."""
        for _ in range(2):
            try:
                answer = self._prepare_zygote(prepare)
                if answer.status != Status.OK.value:
                    return answer
                return self._ask_zygote(request, (request.samples + 4) * request.limits.seconds)
            except WorkerDied as exc:
                died = exc
        return Answer(Status.CRASH.value, f"the measuring process failed: {died}")

    def _ask_zygote(self, request: PrepareRequest | MeasureRequest, seconds: float) -> Answer:
        answer: Answer = pickle.loads(self._zygote.ask(pickle.dumps(request), _WALL_FACTOR * seconds))  # noqa: S301 - as above
        return answer


def _recipe(task: Task) -> CompileOptions:
    return CompileOptions(LlvmTarget.parse(task.target), task.level, task.constants, dict(task.sizes))


def _status_of_failure(built: BuildAnswer) -> Status:
    return {_BUILD_TIMEOUT: Status.TIMEOUT}.get(
        built.why, Status.CRASH if built.why.startswith(_BUILDER_DIED) else Status.REFUSED
    )


_BUILD_TIMEOUT, _BUILDER_DIED = "LLVM takes too much CPU time", "LLVM gave up"


def _describe_death(exc: WorkerDied) -> str:
    """Return a description of a builder's death: timeout, signal or exit code."""
    if exc.is_timeout or exc.code is None:
        return _BUILD_TIMEOUT
    return (
        f"{_BUILDER_DIED}: {signal.Signals(-exc.code).name}"
        if exc.code < 0
        else f"{_BUILDER_DIED}: exit code {exc.code}"
    )
