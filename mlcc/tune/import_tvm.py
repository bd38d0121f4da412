"""Import of TVM's MetaSchedule records into mlcc's database, as initial candidates of the search.

TVM measured them without a baseline, so they count as unproven: `mlcc tune` measures them before other candidates.
"""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Iterator
from typing import Any

from mlcc.errors import CompileError, error
from mlcc.files import read_bytes
from mlcc.grammar.parser import parse
from mlcc.ir import tir
from mlcc.passes.schedule.mls.run import apply_schedule
from mlcc.records.database import Database
from mlcc.records.record import SEARCH, TVM, Record, Setting
from mlcc.records.workload import MAIN, key_of, module_of
from mlcc.tune.recorded_runner import candidate_key
from mlcc.tune.tvm_trace import trace_script
from mlcc.tune.tvm_workload import UnsupportedContent, workload_text

WORKLOADS, RECORDS = "database_workload.json", "database_tuning_record.json"


def import_records(database: Database, folder: str) -> tuple[int, list[str]]:
    """Add the records of a folder. Return the number of imported records, and why others were skipped.

    Raises CompileError: E0001 for files that cannot be read, E1135 for files that are not TVM's database."""
    workloads = [_workload(line) for line in _lines(os.path.join(folder, WORKLOADS))]
    records: list[Record] = []
    texts: dict[str, str] = {}
    skipped: list[str] = []
    for number, line in enumerate(_lines(os.path.join(folder, RECORDS)), 1):
        try:
            at, (trace, seconds, target, *_) = line
            workload = workloads[at]
            if isinstance(workload, str):
                raise UnsupportedContent(workload)
            record = _record(workload, trace, seconds or [], target)
        except (UnsupportedContent, CompileError) as exc:
            why = exc.diagnostics[0].message if isinstance(exc, CompileError) else str(exc)
            skipped.append(f"record {number}: {why}")
        except (ValueError, TypeError, IndexError) as exc:
            raise _not_tvm_database(folder, number) from exc
        else:
            records.append(record)
            texts[record.workload] = f"# of TVM\n{module_of(workload).script()}"
    database.add(records, [*texts.items()])
    return len(records), skipped


def _lines(path: str) -> Iterator[Any]:
    for number, line in enumerate(read_bytes(path).decode("utf-8", "replace").splitlines(), 1):
        if line.strip():
            try:
                yield json.loads(line)
            except ValueError as exc:
                raise _not_tvm_database(path, number) from exc


def _not_tvm_database(path: str, number: int) -> CompileError:
    help = f"a folder has {WORKLOADS} and {RECORDS}, as MetaSchedule's JSONDatabase writes them"
    return CompileError(
        error("E1135", f"{path} is not a database of TVM: line {number} has another structure", help=help)
    )


def _workload(line: Any) -> tir.PrimFunc | str:
    """Return the only function of a workload, or why it cannot be read."""
    try:
        _, encoded = line
        functions = [*parse(workload_text(str(encoded)), name="<workload>").functions.values()]
    except (UnsupportedContent, CompileError, ValueError, TypeError) as exc:
        return exc.diagnostics[0].message if isinstance(exc, CompileError) else str(exc)
    if len(functions) == 1 and isinstance(functions[0], tir.PrimFunc):
        return functions[0]
    return f"a workload has {len(functions)} functions"


def _record(workload: tir.PrimFunc, trace: Any, seconds: list[float], target: Any) -> Record:
    """The record of a trace on a workload. Raises NotRead, CompileError for a trace that does not apply to it."""
    text = trace_script(trace)
    scheduled = apply_schedule(module_of(workload), text)[MAIN]
    assert isinstance(scheduled, tir.PrimFunc)
    kind = target.get("kind", "llvm") if isinstance(target, dict) else str(target)
    setting = Setting(TVM, str(kind), 0, 0, TVM)
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return Record(
        key_of(workload), setting, "", candidate_key(scheduled), SEARCH, "ok", trace=text,
        seconds=tuple(float(s) for s in seconds), made=now,
    )  # fmt: skip
