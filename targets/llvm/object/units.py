"""Compile the units of a module in parallel: threads take units while later ones are still being emitted.

A unit is a complete LLVM module; its object comes from the cache if the same unit was compiled before. The order of
objects, and the error that is reported, do not depend on timing.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import astuple, dataclass, field
from typing import Any

from mlcc.cache.folder import default_cache
from mlcc.cache.object_cache import code_key
from mlcc.machine.limited_memory import memory_is_limited, run_apart
from mlcc.progress import Period, working
from mlcc.runtime.cores import num_cores
from mlcc.targets.llvm.object.compile import Machine, compile_unit, target_machine
from mlcc.targets.llvm.object.merge import merge_objects
from mlcc.targets.llvm.object.passes import Code, codegen_level

JOBS = "MLCC_JOBS"


@dataclass(eq=False)
class Unit:
    """A complete LLVM module, the kernels in it, and the result of its compilation.

    `compilation` is the CPU time of LLVM in seconds; 0 for a cached object (`known`). `period` is when it took place.
    `is_separate`: a static library has it in a member of its own, so that programs that do not call it do not get what
    it needs.
    """

    kernels: tuple[str, ...]
    text: str = field(repr=False)
    code: Code
    compilation: float = 0.0
    period: Period | None = None
    known: bool = False
    is_separate: bool = False
    obj: bytes = field(default=b"", repr=False)


def jobs() -> int:
    """Return the number of compile threads: one per core of this process, at most `MLCC_JOBS` (default 64)."""
    limit = os.environ.get(JOBS, "").strip()
    return min(num_cores(), int(limit) if limit else 64)


class _SwitchInterval:
    """The interpreter's thread switch interval, shortened during compilation.

    A thread waits for the GIL at the end of each call of LLVM, and the default of 5 ms is as long as an average call.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._former = 0.0

    def shorten(self) -> None:
        with self._lock:
            if not self._users:
                self._former = sys.getswitchinterval()
                sys.setswitchinterval(min(self._former, 0.0005))
            self._users += 1

    def restore(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                sys.setswitchinterval(self._former)


_switch_interval = _SwitchInterval()


class UnitCompiler:
    """Compile units at an optimisation level for a machine.

    `watch` is called with each finished unit, the number of units finished before it, and the number of units so far,
    in any thread, one call at a time. At the end of the context manager all threads have finished.
    """

    def __init__(self, machine: Machine, level: int, watch: Callable[[Unit, int, int], None] | None = None) -> None:
        self.machine = machine
        self.level = level
        self._watch = watch
        self.units: list[Unit] = []
        self._unique: dict[tuple[str, Code], Unit] = {}
        self._waiting: deque[Unit] = deque()
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._errors: dict[int, BaseException] = {}
        self._is_closed = False
        self._done = 0
        self._count = jobs()
        self._store = default_cache()
        self._has_stored = False

    def add(self, unit: Unit) -> None:
        """Queue a unit for compilation, which starts at once if a core is free. Equal units are compiled once."""
        first = self._unique.setdefault((unit.text, unit.code), unit)
        self.units.append(unit)
        if first is not unit:
            return
        with self._changed:
            self._waiting.append(unit)
            self._changed.notify()
        if self._count > 1 and len(self._threads) < self._count and not memory_is_limited():
            self._start_thread()

    def objects(self) -> list[bytes]:
        """Return the objects of all units, in order. Re-raises the exception of the first faulty one."""
        if self._threads:
            self._close()
        elif memory_is_limited():
            compiled = run_apart(lambda: self._compile_all(quietly=True))
            for unit, result in zip(self._unique.values(), compiled, strict=True):
                unit.obj, unit.compilation, unit.known, unit.period = result
                self._has_stored = self._has_stored or not unit.known
                self._notify(unit)
        else:
            self._compile_all()
        for index in sorted(self._errors):
            raise self._errors[index]
        if self._has_stored and self._store is not None:
            self._store.trim()
        for unit in self.units:
            if not unit.obj:
                first = self._unique[unit.text, unit.code]
                unit.obj, unit.known = first.obj, True
        return [unit.obj for unit in self.units]

    def linked(self) -> bytes:
        """Link the objects of all units into one. Raises what `objects` raises."""
        objects = list(dict.fromkeys(self.objects()))
        with working("link"):
            return merge_objects(objects)

    def __enter__(self) -> UnitCompiler:
        _switch_interval.shorten()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            with self._changed:
                self._waiting.clear()
            self._close()
        finally:
            _switch_interval.restore()

    # ------------------------------------------------------------ parts

    def _compile_all(self, quietly: bool = False) -> list[tuple[bytes, float, bool, Period | None]]:
        """Compile all queued units in this thread; `quietly` in a child, whose parent announces them."""
        machines: dict[int, Any] = {}
        while self._waiting:
            unit = self._waiting.popleft()
            self._compile(unit, machines)
            if not quietly:
                self._notify(unit)
        return [(unit.obj, unit.compilation, unit.known, unit.period) for unit in self._unique.values()]

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._run_thread, name="mlcc-llvm", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no thread can be started: `objects` does the work
            self._count = 1
            return
        self._threads.append(thread)

    def _run_thread(self) -> None:
        machines: dict[int, Any] = {}
        while True:
            with self._changed:
                while not self._waiting and not self._is_closed:
                    self._changed.wait()
                if not self._waiting:
                    return
                unit = self._waiting.popleft()
            try:
                self._compile(unit, machines)
                self._notify(unit)
            except BaseException as exc:  # noqa: BLE001 - raised where the objects are asked for
                with self._changed:
                    self._errors[self.units.index(unit)] = exc
                    self._waiting.clear()

    def _close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _compile(self, unit: Unit, machines: dict[int, Any]) -> None:
        """Compile a unit. `machines` caches this thread's target machines by code generator level."""
        begun = time.perf_counter()
        key = ""
        if self._store is not None:
            key = code_key([unit.text, unit.code.value, astuple(self.machine), self.level])
            unit.obj = self._store.get(key) or b""
            unit.known = bool(unit.obj)
        if not unit.known:
            start = time.thread_time()
            level = codegen_level(self.level, unit.code)
            if level not in machines:
                machines[level] = target_machine(self.machine, level)
            unit.obj = compile_unit(unit.text, self.machine, self.level, unit.code, machines[level])
            unit.compilation = time.thread_time() - start
            if self._store is not None:
                self._store.put(key, unit.obj, trim=False)
                self._has_stored = True
        unit.period = Period.since(begun)

    def _notify(self, unit: Unit) -> None:
        """Notify the watcher of a finished unit."""
        if self._watch is not None:
            with self._changed:
                self._watch(unit, self._done, len(self._unique))
                self._done += 1
