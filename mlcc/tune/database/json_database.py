"""A database in two JSON-lines files in TVM's structure, with programs and traces as text."""

from __future__ import annotations

import json
import math
import os
from typing import Any

from mlcc.errors import CompileError, Source, error
from mlcc.grammar.parser import parse
from mlcc.ir.module import IRModule
from mlcc.machine.device import ANALYSIS
from mlcc.machine.target import Target
from mlcc.passes.schedule.mls.run import run_script
from mlcc.passes.schedule.schedule import Schedule
from mlcc.tune.arg_info import ArgInfo
from mlcc.tune.database.database import TuningRecord, Workload
from mlcc.tune.database.memory_database import MemoryDatabase

_WORKLOADS, _RECORDS = "database_workload.json", "database_tuning_record.json"


class JSONDatabase(MemoryDatabase):
    """Records in files, a line each: `[hash, text]` for a workload, and for a record `[workload, [trace, seconds,
    target, arguments]]`, where `workload` counts the lines of the other file, and `"analysis"` follows the arguments of
    a record by analysis. TVM: `JSONDatabase`.

    `work_dir` is the folder of both files, else each has its path. Raises CompileError E1121 for files that cannot be
    read or written, E1120 for a line that is none of these; FileNotFoundError where a file is missing and not
    `allow_missing`.
    """

    def __init__(
        self, path_workload: str | None = None, path_tuning_record: str | None = None, *, work_dir: str | None = None,
        allow_missing: bool = True, module_equality: str = "structural",
    ) -> None:  # fmt: skip
        super().__init__(module_equality)
        folder = work_dir or "."
        self.path_workload = path_workload or os.path.join(folder, _WORKLOADS)
        self.path_tuning_record = path_tuning_record or os.path.join(folder, _RECORDS)
        for path in (self.path_workload, self.path_tuning_record):
            if not allow_missing and not os.path.exists(path):
                raise FileNotFoundError(path)
        self._order: list[Workload] = []
        for number, line in _read_lines(self.path_workload):
            self._read_workload(number, line)
        for number, line in _read_lines(self.path_tuning_record):
            super().commit_tuning_record(self._read_record(number, line))

    def commit_workload(self, mod: IRModule) -> Workload:
        is_new = not self.has_workload(mod)
        workload = super().commit_workload(mod)
        if is_new:
            self._order.append(workload)
            _append(self.path_workload, [f"{workload.key:032x}", mod.script()])
        return workload

    def commit_tuning_record(self, record: TuningRecord) -> None:
        workload = self.commit_workload(record.workload.mod)
        secs = [s if math.isfinite(s) else None for s in record.run_secs or ()]
        target = None if record.target is None else str(record.target)
        args = [info.as_json() for info in record.args_info or ArgInfo.from_entry_func(workload.mod)]
        at = self._order.index(workload)
        marks = [ANALYSIS] if record.by_analysis else []
        _append(self.path_tuning_record, [at, [str(record.trace), secs or None, target, args, *marks]])
        super().commit_tuning_record(
            TuningRecord(
                record.trace, workload, record.run_secs, record.target, record.args_info, record.by_analysis
            )  # fmt: skip
        )

    def _read_workload(self, number: int, line: Any) -> None:
        match line:
            case [str(), str(text)]:
                workload = super().commit_workload(parse(text, name=f"{self.path_workload}:{number}"))
                self._order.append(workload)
            case _:
                raise _invalid_line(self.path_workload, number, "a workload is a hash and the text of a module")

    def _read_record(self, number: int, line: Any) -> TuningRecord:
        match line:
            case [int(at), [str(trace), secs, target, [*args], *marks]] if 0 <= at < len(self._order) and marks in (
                [],
                [ANALYSIS],
            ):
                workload = self._order[at]
                sch = Schedule(workload.mod, seed=1)
                run_script(sch, Source(f"{self.path_tuning_record}:{number}", trace))
                known = None if target is None else Target.parse(target)
                seconds = None if secs is None else [math.inf if s is None else float(s) for s in secs]
                infos = [ArgInfo.from_json(a) for a in args]
                return TuningRecord(sch.trace, workload, seconds, known, infos, bool(marks))
        raise _invalid_line(
            self.path_tuning_record, number, "a record is a workload and [trace, seconds, target, arguments]"
        )


def _read_lines(path: str) -> list[tuple[int, Any]]:
    """Parse the lines of a file as JSON, with their numbers; none if there is no file. Skips truncated lines."""
    if not os.path.exists(path):
        return []
    from mlcc.files import read_bytes

    parsed = []
    for number, line in enumerate(read_bytes(path).decode("utf-8", "replace").split("\n"), 1):
        try:
            if line:
                parsed.append((number, json.loads(line)))
        except ValueError:
            if not line.rstrip().endswith("]"):
                continue
            raise _invalid_line(path, number, "it is not JSON") from None
    return parsed


def _append(path: str, line: Any) -> None:
    """Append a line, after a line break if the last one was truncated by a crash."""
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "ab+") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - 1, 0))
            start = b"" if file.read(1) in (b"", b"\n") else b"\n"
            file.write(start + json.dumps(line).encode() + b"\n")
    except OSError as exc:
        raise CompileError(error("E1121", f"`{path}` cannot be written: {exc.strerror or exc}")) from exc


def _invalid_line(path: str, number: int, why: str) -> CompileError:
    return CompileError(error("E1120", f"`{path}` is not a database: line {number}: {why}"))
