"""The database of records: several writers, crashes, and files that are not what they should be."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mlcc.errors import CompileError
from mlcc.records import database
from mlcc.records.database import MEMORY, Database
from mlcc.records.record import FINAL, TVM, Record, Setting

ROOT = Path(__file__).resolve().parents[2]
SETTING = Setting("some cpu", "llvm{cpu=native}", 1, 2, "0.1.0")


def record(candidate: str, ratio: float | None = None, **changes: object) -> Record:
    """A search record, or with a `ratio` a final one."""
    stage = 0 if ratio is None else FINAL
    bound = None if ratio is None else ratio + 0.01
    made = Record(
        "w1", SETTING, "base", candidate, stage, "ok", ratios=(0.5, 0.25), seconds=(1e-6,), ratio=ratio, bound=bound
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def code(path: Path, reads_only: bool = False) -> str:
    with pytest.raises(CompileError) as caught:
        Database(str(path), reads_only=reads_only)
    return caught.value.diagnostics[0].code


def test_what_is_added_is_found(tmp_path: Path) -> None:
    path = str(tmp_path / "t.db")
    made = record(
        "c1", decisions='[["tile", [6, 4]]]', trace="def f(sch): ...", why="", seed=3, batch=7, made="2026-11-23"
    )
    with Database(path) as db:
        db.add([made, record("c2")], [("w1", "text")])
    with Database(path, reads_only=True) as db:
        assert db.find("w1", SETTING, "base", "c1", 0) == made
        assert db.find("w1", replace(SETTING, threads=2), "base", "c1", 0) is None
        assert db.find("w1", SETTING, "other", "c1", 0) is None
        assert [r.candidate for r in db.records("w1")] == ["c1", "c2"] and db.text("w1") == "text"
        assert db.text("w2") is None and not db.finals("w1")


def test_the_first_of_two_measurements_is_kept() -> None:
    with Database(MEMORY) as db:
        db.add([record("c", 0.9)])
        db.add([record("c", 0.5)])
        assert [r.ratio for r in db.finals("w1")] == [0.9]


def test_winners_are_the_best_correct_records() -> None:
    with Database(MEMORY) as db:
        slower = replace(SETTING, threads=2)
        db.add(
            [record("a", 0.9), record("b", 0.8), record("c", 0.7, status="wrong"), record("d", 0.95, setting=slower)]
        )
        assert [r.candidate for r in db.winners()] == ["b", "d"]
        assert [r.candidate for r in db.finals("w1")] == ["b", "a", "d"]
        before = db.digest()
        db.add([record("e")])
        assert db.digest() == before
        assert db.prune() == 3 and [r.candidate for r in db.records()] == ["b", "d"]
        assert db.digest() == before


def test_pruning_keeps_what_another_process_adds_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "t.db")
    with Database(path) as db, Database(path) as other:
        db.add([record("a", 0.9)])
        other._connection.execute("PRAGMA busy_timeout=0")
        found = Database.winners

        def winners(self: Database) -> list[Record]:
            best = found(self)
            with pytest.raises(CompileError, match="E1124"):  # it waits, and is added afterwards
                other.add([record("b", 0.5)])
            return best

        monkeypatch.setattr(Database, "winners", winners)
        assert db.prune() == 0


def test_merge_adds_the_records_of_another_database(tmp_path: Path) -> None:
    for name, ratios in (("a", {"x": 0.9, "y": 0.8}), ("b", {"x": 0.7, "z": 0.6})):
        with Database(str(tmp_path / name)) as db:
            db.add([record(n, r) for n, r in ratios.items()], [("w1", "text")])
    with Database(str(tmp_path / "a")) as db:
        assert db.merge(str(tmp_path / "b")) == 1
        assert {r.candidate: r.ratio for r in db.records()} == {"x": 0.9, "y": 0.8, "z": 0.6}
        assert db.merge(str(tmp_path / "b")) == 0


def test_eight_writers_lose_nothing(tmp_path: Path) -> None:
    """All records of all writers are there, but those that a killed one did not get to."""
    path = tmp_path / "t.db"
    script = (
        "import sys; from dataclasses import replace; from tests.tune.test_database import record\n"
        "from mlcc.records.database import Database\n"
        "db = Database(sys.argv[1])\n"
        "for n in range(60):\n"
        "    db.add([record(f'{sys.argv[2]}-{n}'), record(f'all-{n}', seed=int(sys.argv[2]))])\n"
        "    print(n, flush=True)\n"
    )
    env = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    started = [
        subprocess.Popen([sys.executable, "-c", script, str(path), str(n)], stdout=subprocess.PIPE, env=env, text=True)
        for n in range(8)
    ]
    victim = started[0]
    assert victim.stdout is not None
    for _ in range(20):
        victim.stdout.readline()
    victim.send_signal(signal.SIGKILL)
    said = [p.communicate()[0].split() for p in started]
    assert all(p.returncode == 0 for p in started[1:])
    with Database(str(path)) as db:
        names = [r.candidate for r in db.records()]
        assert len(names) == len({*names})
        assert {f"{w}-{n}" for w in range(1, 8) for n in range(60)} <= {*names}
        assert {f"0-{n}" for n in range(19)} | {f"0-{n}" for n in said[0]} <= {*names}
        assert db._all("PRAGMA integrity_check") == [("ok",)]


def test_another_process_creates_the_tables_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, connect = str(tmp_path / "t.db"), database._connect

    class Overtaken:
        """A connection; after its first statement another one has created the tables."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._link, self._is_first = connect(*args, **kwargs), True

        def __getattr__(self, name: str) -> Any:
            return getattr(self._link, name)

        def execute(self, *args: Any) -> Any:
            cursor = self._link.execute(*args)
            if not self._is_first:
                return cursor
            self._is_first, row = False, cursor.fetchone()
            monkeypatch.undo()
            Database(path).close()
            return SimpleNamespace(fetchone=lambda: row)

    monkeypatch.setattr(database, "_connect", Overtaken)
    with Database(path) as db:
        assert db.records() == []


def test_files_that_are_something_else(tmp_path: Path) -> None:
    text = tmp_path / "text.db"
    text.write_text("this is no database, though it is long enough to be one\n" * 40)
    assert code(text) == "E1120" and text.read_text().startswith("this is")
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as link:
        link.execute("CREATE TABLE t (a)")
    link.close()
    before = foreign.read_bytes()
    assert code(foreign) == code(foreign, True) == "E1120" and foreign.read_bytes() == before
    assert code(tmp_path / "absent.db", True) == "E1122" and not (tmp_path / "absent.db").exists()
    assert code(tmp_path / "no" / "folder.db") == "E1122"
    assert code(tmp_path) == "E1122"


@pytest.mark.parametrize("schema", [0, 7])
def test_other_schemas_are_refused(tmp_path: Path, schema: int) -> None:
    path = tmp_path / "t.db"
    with Database(str(path)) as db:
        db.add([record("a")])
        db._connection.execute(f"PRAGMA user_version={schema}")
    before = path.read_bytes()
    assert code(path) == code(path, True) == "E1123" and path.read_bytes() == before


OLDER = (
    "ALTER TABLE record DROP COLUMN digest", "UPDATE machine SET floors = json_extract(floors, '$[0]')",
    "PRAGMA user_version=1",
)  # fmt: skip


def test_an_older_schema_is_converted(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with Database(str(path)) as db:
        db.add([record("a", 0.9), record("b")], [("w1", "text")])
        db.keep_floors("d", 1, [[2.0, []]])
        for statement in OLDER:
            db._connection.execute(statement)
    before = path.read_bytes()
    with Database(str(path), reads_only=True) as db:
        assert [r.candidate for r in db.records()] == ["a", "b"] and db.floors("d", 1) == [[2.0, []]]
    assert path.read_bytes() == before
    with Database(str(tmp_path / "new.db")) as other:
        assert other.merge(str(path)) == 2
    with Database(str(path)) as db:
        assert db.records() == [record("a", 0.9), record("b")] and db.floors("d", 1) == [[2.0, []]]
        db.add([record("c", digest="d1")])
    with Database(str(path)) as db:
        assert [r.digest for r in db.records()] == ["", "", "d1"]


def test_two_convert_at_once(tmp_path: Path) -> None:
    path = str(tmp_path / "t.db")
    with Database(path) as db:
        for statement in OLDER:
            db._connection.execute(statement)
    code = f"from mlcc.records.database import Database; Database({path!r}).close()"
    started = [subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) for _ in range(3)]
    assert [one.wait() for one in started] == [0, 0, 0]


def test_records_of_the_same_code() -> None:
    with Database(MEMORY) as db:
        db.add([record("a"), record("b", digest="d1"), record("c", digest="d1"), record("d", 0.9, digest="d1")])
        found = db.find_same_code("w1", SETTING, "base", "d1", 0)
        assert found is not None and found.candidate == "b"
        assert db.find_same_code("w1", SETTING, "base", "", 0) is None
        assert db.find_same_code("w1", SETTING, "other", "d1", 0) is None


def test_pruning_keeps_what_was_imported() -> None:
    foreign = Setting(TVM, "llvm", 0, 0, TVM)
    with Database(MEMORY) as db:
        db.add([record("a", 0.9), record("b"), record("c", setting=foreign)])
        assert db.prune() == 1 and [r.candidate for r in db.records()] == ["a", "c"]
        assert db.prune(imported=True) == 1 and [r.candidate for r in db.records()] == ["a"]


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with Database(str(path)) as db:
        db.add([record(f"c{n}", trace="x" * 500) for n in range(200)])
    data = bytearray(path.read_bytes())
    data[8192:] = b"\xff" * (len(data) - 8192)
    path.write_bytes(data)
    with pytest.raises(CompileError) as caught, Database(str(path)) as db:
        db.records()
    assert caught.value.diagnostics[0].code == "E1120"


def test_a_file_whose_writer_was_killed_at_once_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    path.touch()
    with Database(str(path), reads_only=True) as db:
        assert db.records() == [] and db.winners() == []
    assert path.read_bytes() == b""
    with Database(str(path)) as db:
        db.add([record("a")])
    with Database(str(path), reads_only=True) as db:
        assert len(db.records()) == 1


@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_that_may_not_be_written(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with Database(str(path)) as db:
        db.add([record("a")])
    path.chmod(0o444)
    tmp_path.chmod(0o555)
    try:
        with Database(str(path), reads_only=True) as db:
            assert len(db.records()) == 1
        with pytest.raises(CompileError) as caught, Database(str(path)) as db:
            db.add([record("b")])
        assert caught.value.diagnostics[0].code == "E1122"
    finally:
        tmp_path.chmod(0o755)


def test_full_disks_lose_nothing(tmp_path: Path) -> None:
    """What does not fit is refused, what was there stays, and when there is room again it goes on."""
    path = str(tmp_path / "t.db")
    with Database(path) as db:
        db.add([record("a")])
        pages = db._all("PRAGMA page_count")[0][0]
        db._connection.execute(f"PRAGMA max_page_count={pages + 2}")
        with pytest.raises(CompileError) as caught:
            db.add([record(f"big-{n}", trace="x" * 4000) for n in range(50)])
        assert caught.value.diagnostics[0].code == "E1121"
        assert [r.candidate for r in db.records()] == ["a"]
        db._connection.execute("PRAGMA max_page_count=1000000")
        db.add([record("b")])
    with Database(path, reads_only=True) as db:
        assert [r.candidate for r in db.records()] == ["a", "b"]
