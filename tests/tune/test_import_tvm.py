"""Records of TVM's MetaSchedule: read without TVM, and tried first."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import mlcc
from mlcc.cli.main import run
from mlcc.records.database import MEMORY, Database
from mlcc.tune.engine import tune
from mlcc.tune.import_tvm import RECORDS, WORKLOADS, import_records
from mlcc.tune.recorded_runner import candidate_key
from mlcc.tune.tvm_trace import trace_script
from mlcc.tune.tvm_workload import UnsupportedContent, workload_text
from tests.tune.fakes import FakeRunner, FakeSpace, module

SAVED = Path(__file__).parent / "tvm_database"  # two tilings of the product of fakes.py with 64 rows


def test_what_tvm_saved_is_our_workload() -> None:
    with Database(MEMORY) as db:
        assert import_records(db, str(SAVED)) == (2, [])
        first, second = db.records()
        made = tune(module(64), runner=FakeRunner(), space=FakeSpace, threads=1, trials=1)
        assert first.workload == second.workload == made.kernels[0].task.key
        assert first.seconds == (2e-5,) and "decision=[8, 8]" in first.trace
        applied = mlcc.apply_schedule(made.extracted.module.copy(), first.trace.replace('"main"', '"mm64"'))
        func = applied["mm64"].without_attr("op_pattern")
        assert candidate_key(func) == first.candidate
        assert not db.winners() and import_records(db, str(SAVED))[0] == 2 and len(db.records()) == 2


def test_imported_records_are_tried_first() -> None:
    with Database(MEMORY) as db:
        import_records(db, str(SAVED))
        known = [r.candidate for r in db.records()]
        runner = FakeRunner()
        tune(module(64), runner=runner, space=FakeSpace, threads=1, trials=4, until=9.0, database=db)
        assert runner.measured[1:3] == known[::-1], "the faster one first, behind the default"


def test_command_imports_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["tune", "--import", str(SAVED)]) == 0 and "imported 2 records" in capsys.readouterr().err
    shutil.copytree(SAVED, tmp_path / "db")
    records = tmp_path / "db" / RECORDS
    lines = records.read_text().splitlines()
    other = json.loads(lines[0])
    other[1][0][0].append(["Teleport", ["b0"], [], []])
    records.write_text("\n".join([json.dumps(other), lines[1]]))
    assert run(["tune", "--import", "db"]) == 0
    assert "not imported: record 1: a trace has an instruction Teleport" in capsys.readouterr().err
    records.write_text("[1]\n")
    assert run(["tune", "--import", "db"]) == 1 and "E1135" in capsys.readouterr().err
    records.write_text("not JSON\n")
    assert run(["tune", "--import", "db"]) == 1 and "E1135" in capsys.readouterr().err
    assert run(["tune", "--import", "absent"]) == 1 and "E0001" in capsys.readouterr().err
    (tmp_path / "db" / WORKLOADS).write_text('["1", "AAAA"]\n')
    records.write_text(lines[1])
    assert run(["tune", "--import", "db"]) == 0
    assert "not imported: record 1: it is not a module" in capsys.readouterr().err


def test_steps_become_script_lines() -> None:
    trace = [
        [
            ["GetSBlock", [], ["a", "main"], ["b0"]],
            ["GetSBlock", [], ["c", "main"], ["b1"]],
            ["GetLoops", ["b0"], [], ["l2"]],
            ["Split", ["l2", "None", 4], [1, 0], ["l3", "l4"]],
            ["Fuse", ["l3", "l4"], [0], ["l5"]],
            ["CacheRead", ["b0", "b1"], [0, "shared"], ["b6"]],
            ["Annotate", ["b0", '"text"'], ["key"], []],
            ["SampleCategorical", [], [[1, 2], [0.5, 0.5]], ["v7"]],
            ["EnterPostproc", [], [], []],
        ],
        [[7, 1]],
    ]
    assert trace_script(trace).splitlines()[1:] == [
        '    b0 = sch.get_block(name="a", func_name="main")',
        '    b1 = sch.get_block(name="c", func_name="main")',
        "    l2, = sch.get_loops(block=b0)",
        "    l3, l4 = sch.split(loop=l2, factors=[None, 4], preserve_unit_iters=True, disable_predication=False)",
        "    l5 = sch.fuse(l3, l4, preserve_unit_iters=False)",
        '    b6 = sch.cache_read(block=b0, consumer_blocks=[b1], read_buffer_index=0, storage_scope="shared")',
        '    sch.annotate(block_or_loop=b0, ann_val="text", ann_key="key")',
        "    v7 = sch.sample_categorical(candidates=[1, 2], probs=[0.5, 0.5], decision=1)",
        "    sch.enter_postproc()",
    ]


@pytest.mark.parametrize("text", ["", "?", "AAAA", "e30="])
def test_texts_that_are_no_module_are_refused(text: str) -> None:
    with pytest.raises(UnsupportedContent):
        workload_text(text)
