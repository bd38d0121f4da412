"""The trace of a compilation: passes in their groups, and the work on each function, as `compile --time` has them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter

from mlcc import backends
from mlcc.ir.module import IRModule
from mlcc.machine.target import Target
from mlcc.passes.manage.compile_times import CompileTimes
from mlcc.passes.manage.manager import Pass, Pipeline
from mlcc.passes.manage.observers import Write
from mlcc.progress import Work
from mlcc.report.trace_events import Trace, TraceEvent


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


class CompileTrace(CompileTimes):
    """Compile times that are added to a trace as well. Both have the same readings of `clock`, which is the trace's.

    The steps of lowering are in a group `lower`, other passes in a group `passes`.
    """

    def __init__(
        self, trace: Trace, target: str | Target, write: Write, clock: Callable[[], float] = perf_counter
    ) -> None:
        super().__init__(write, clock)
        backend = backends.of(target)
        self.trace = trace
        self._lowering = {*backend.before_lowering, *backend.lowering, *backend.sanitizing}
        self._group: TraceEvent | None = None
        self._pass: TraceEvent | None = None
        self._under_way: dict[int, list[TraceEvent]] = {}  # announced work by thread
        self._main = threading.get_native_id()

    def start(self, pipeline: Pipeline, module: IRModule) -> None:
        super().start(pipeline, module)
        names = [one.name for one in pipeline.passes]
        first = len(names)  # of the steps of lowering, which are the last passes
        while first and names[first - 1] in self._lowering:
            first -= 1
        self._groups = ["passes"] * first + ["lower"] * (len(names) - first)

    def before(self, at: int, current: Pass, module: IRModule) -> None:
        super().before(at, current, module)
        start = _nanoseconds(self._started)
        group = self._groups[at]
        if self._group is None or self._group.name != group:
            self._end_group(start)
            self._group = self.trace.begin(group, "group", start)
        self._pass = self.trace.begin(current.name, "pass", start)
        self._pass.args["pass"] = str(current)

    def after(self, at: int, current: Pass, before: IRModule, module: IRModule) -> None:
        super().after(at, current, before, module)
        assert self._pass is not None
        self.trace.end(self._pass, _nanoseconds(self._started + self.spent[-1][1]))
        self._pass = None

    def finish(self) -> None:
        super().finish()
        if self._pass is not None:
            self._pass.args["failed"] = True
            self.trace.end(self._pass)
            self._pass = None
        self._end_group(None)

    def _end_group(self, stop: int | None) -> None:
        if self._group is not None:
            self.trace.end(self._group, stop)
            self._group = None

    def started(self, work: Work) -> None:
        name = f"{work.stage}: {work.kernel}" if work.kernel else work.stage
        self._under_way.setdefault(threading.get_native_id(), []).append(self.trace.begin(name, work.stage))

    def done(self, work: Work, seconds: float) -> None:
        super().done(work, seconds)
        if work.period is None:
            return
        start, stop = _nanoseconds(work.period.start), _nanoseconds(work.period.stop)
        announced = self._under_way.get(threading.get_native_id())
        if announced and announced[-1].category == work.stage:
            event = announced.pop()
            event.start = start
            self.trace.end(event, stop)
            return
        thread = work.period.thread
        name = f"{work.stage}: {work.kernel or 'code around the kernels'}"
        self.trace.add(name, work.stage, thread, start, stop, {"cpu_us": seconds * 1e6})
        self.trace.name_thread(thread, work.stage)
