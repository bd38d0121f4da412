"""`mlcc tune`: what it writes and says, how it ends, and what other commands make of its database."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import mlcc
from mlcc.cli import signals
from mlcc.cli.main import run
from mlcc.errors import CompileError, error
from mlcc.passes.auto_schedule.eligibility import SCHEDULED
from mlcc.records.database import Database
from mlcc.tune import engine, spaces
from tests.tune.fakes import FakeRunner, product_of

OTHER = "llvm{cpu=haswell triple=x86_64-unknown-linux-gnu}"
TUNE = ("--space", "fake", "--threads", "1", "--until", "2")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with model.mlc, in which tuning is a matter of known times."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLCC_NUM_THREADS", "1")
    monkeypatch.setitem(spaces.SPACE_FACTORIES, "fake", "tests.tune.fakes:FakeSpace")
    monkeypatch.setattr(engine, "runner_for", lambda *args: FakeRunner())
    (tmp_path / "model.mlc").write_text(product_of("mm", 32))
    return tmp_path


def tune(*args: str) -> int:
    return run(["tune", "model.mlc", "--trials", "12", *TUNE, *args])


def test_command_writes_a_module_and_a_script(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune("-o", "tuned.mlc", "--scripts", "scripts", "--report", "r.json") == 0
    out = capsys.readouterr().out
    assert re.search(r"^mm +100%.* 12$", out, re.M) and "12 candidates in" in out
    tuned = mlcc.parse((model / "tuned.mlc").read_text())
    assert tuned["mm"].attrs[SCHEDULED]
    script = (model / "scripts" / "mm.mls").read_text()
    assert script.startswith("# tuned schedule of mm\n") and "of the time of the rules' schedule" in script
    again = mlcc.apply_schedule(mlcc.parse((model / "model.mlc").read_text()), script)
    plain = tuned["mm"].without_attr("mlcc.made_by").without_attr("op_pattern")
    mlcc.assert_structural_equal(again["mm"], plain)
    report = json.loads((model / "r.json").read_text())
    assert report["trials"] == 12 and report["kernels"][0]["ratio"] < 0.98
    assert report["ratio"] == pytest.approx(report["kernels"][0]["ratio"])
    assert report["history"][-1][1] == 12
    assert tune("--report", "r.svg", "--scripts", "scripts") == 0
    picture = (model / "r.svg").read_text()
    assert picture.startswith("<svg") and picture.count("<polyline") == 2 and "% of the time, 0." in picture


def test_the_database_is_used(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune() == 0
    a, b = (np.ones(shape, np.float32) for shape in ((32, 32), (32, 16)))
    np.savez("in.npz", a=a, b=b)
    np.savez("want.npz", out=a @ b)
    capsys.readouterr()
    common = ["--func", "mm", "--in", "in.npz", "--db", "tune.db"]
    assert run(["run", "model.mlc", *common, "--expect", "want.npz"]) == 0
    assert run(["passes", "model.mlc", "-t", "llvm{cpu=native}", "--db", "tune.db", "--why-schedule"]) == 0
    said = capsys.readouterr()
    assert re.search(
        r"left alone: its loops are those of apply-tuned: record \w{8}, 0\.\d\d of the rules' time", said.err
    )
    assert "mlcc.made_by" in said.out
    assert run(["bench", "model.mlc", *common, "--repeat", "2"]) == 0
    assert re.search(r"^model.mlc +median.*\nmodel.mlc \(tuned\) +median", capsys.readouterr().out)
    assert run(["compile", "model.mlc", "-o", "m.o", "-t", "llvm{cpu=native}", "--db", "tune.db"]) == 0
    assert run(["run", "m.o", "--func", "mm", "--in", "in.npz", "--expect", "want.npz"]) == 0
    assert run(["bench", "m.o", *common]) == 2
    built = mlcc.build(mlcc.parse((model / "model.mlc").read_text()), "llvm{cpu=native}", db="tune.db")
    usual = mlcc.build(mlcc.parse((model / "model.mlc").read_text()), "llvm{cpu=native}")
    assert built.emit("obj") != usual.emit("obj")
    assert "apply-tuned" in json.dumps(built.manifest)


def test_records_of_other_builds_are_told_of(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune() == 0
    capsys.readouterr()
    assert run(["compile", "model.mlc", "-O3", "-o", "m.o", "-t", "llvm{cpu=native}", "--db", "tune.db"]) == 0
    said = capsys.readouterr().err
    assert "warning[W1101]: no record of tune.db matches this build: mm: its records are for -O2" in said
    assert run(["compile", "model.mlc", "-o", "m.o", "-t", OTHER, "--db", "tune.db", "--warnings=error"]) == 1
    assert "the target llvm{cpu=native}" in capsys.readouterr().err
    with pytest.warns(UserWarning, match="W1101"):
        mlcc.build(mlcc.parse((model / "model.mlc").read_text()), OTHER, db="tune.db")
    assert run(["compile", "model.mlc", "-O1", "-o", "m.o", "--db", "tune.db"]) == 0
    assert "warning[W1103]: tune.db is not used: no pass schedules kernels here" in capsys.readouterr().err
    with pytest.warns(UserWarning, match="W1103"):
        mlcc.build(mlcc.parse((model / "model.mlc").read_text()), opt_level=0, db="tune.db")


def test_a_record_that_does_not_fit(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its script was edited: a warning, and the rules' schedule."""
    assert tune() == 0
    with Database("tune.db") as db:
        db._connection.execute("UPDATE record SET trace = 'def f(sch):\n    sch.get_block(\"absent\")\n'")
    capsys.readouterr()
    assert run(["compile", "model.mlc", "-o", "m.o", "-t", "llvm{cpu=native}", "--db", "tune.db"]) == 0
    assert "warning[W1102]: the record of mm does not apply to it" in capsys.readouterr().err
    assert run(["passes", "model.mlc", "-t", "llvm{cpu=native}", "--db", "tune.db", "--why-schedule"]) == 0
    assert "mm: rule matmul" in capsys.readouterr().err


def test_the_cache_knows_of_records(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlcc.cache.object_cache import entry_key
    from mlcc.cli.options import records_key

    assert records_key(None) is None
    Database("tune.db").close()
    before = records_key("tune.db")
    assert tune() == 0
    after = records_key("tune.db")
    assert before != after
    assert entry_key("model.mlc", {"records": before}) != entry_key("model.mlc", {"records": after})


def test_records_are_listed_exported_merged_and_pruned(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune() == 0
    capsys.readouterr()
    assert run(["tune", "--list"]) == 0
    line = capsys.readouterr().out
    key = line.split()[0]
    assert " mm: llvm{cpu=native}, 1 thread, -O2" in line
    assert run(["tune", "--export", key, "best.mls"]) == 0
    made = mlcc.apply_schedule(mlcc.parse((model / "model.mlc").read_text().replace("def mm", "def main")),
                               (model / "best.mls").read_text())  # fmt: skip
    assert made["main"].attrs[SCHEDULED]
    assert run(["tune", "--export", "ffffffffff", "best.mls"]) == 1 and "E1134" in capsys.readouterr().err
    assert run(["tune", "--export", key, "tune.db"]) == 1
    assert run(["tune", "--db", "other.db", "--merge", "tune.db"]) == 0
    assert run(["tune", "--db", "other.db", "--list"]) == 0 and line in capsys.readouterr().out
    Database("empty.db").close()
    assert run(["tune", "--db", "empty.db", "--list"]) == 0 and "no schedule" in capsys.readouterr().err
    assert run(["tune", "--prune"]) == 0
    assert run(["tune", "--list"]) == 0 and capsys.readouterr().out == line


def test_wrong_usage_is_refused(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for args in (
        [], ["model.mlc", "--list"], ["--list", "--prune"], ["model.mlc", "--budget", "soon"],
        ["--list", "--budget", "5s"], ["--prune", "-o", "x.mlc"], ["model.mlc", "--data", "x.npz"],
        ["model.mlc", "--seed", "-1"], ["model.mlc", "--seed", str(1 << 64)],
    ):  # fmt: skip
        assert run(["tune", *args]) == 2, args
    assert "cannot be combined with --prune" in capsys.readouterr().err
    assert run(["tune", "--list", "--imported"]) == 2
    assert "--imported needs --prune" in capsys.readouterr().err
    assert tune("--scripts", "model.mlc") == 1 and "E0002" in capsys.readouterr().err
    assert not (model / "tune.db").exists(), "nothing was searched"
    assert tune("--space", "rule") == 1 and "did you mean `rules`?" in capsys.readouterr().err
    assert tune("--kernels", "x*") == 1 and "there are mm" in capsys.readouterr().err
    assert tune("--db", "model.mlc") == 1 and "E0012" in capsys.readouterr().err
    assert tune("-o", "tune.db") == 1
    (model / "text.db").write_text("something else that somebody has written " * 100)
    assert tune("--db", "text.db") == 1 and "E1120" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "wanted"), [("90", 90.0), ("90s", 90.0), ("10m", 600.0), ("1.5h", 5400.0)])
def test_budgets_are_parsed(text: str, wanted: float) -> None:
    from mlcc.cli.cmd_tune import seconds

    assert seconds(None, None, text) == wanted


def test_an_interrupted_search_keeps_what_it_has(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = [0]

    def each() -> None:
        count[0] += 1
        if count[0] == 10:
            raise signals.Stopped(signal.SIGTERM)

    monkeypatch.setattr(engine, "runner_for", lambda *args: FakeRunner(each))
    with pytest.raises(signals.Stopped):
        tune("-o", "tuned.mlc", "--report", "r.json")
    assert (model / "tuned.mlc").exists() and json.loads((model / "r.json").read_text())["kernels"]
    with Database("tune.db") as db:
        assert 0 < len(db.records()) < 12
    monkeypatch.setattr(engine, "runner_for", lambda *args: FakeRunner())
    assert tune() == 0


def test_a_search_that_cannot_go_on_keeps_what_it_has(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    count = [0]

    def each() -> None:
        count[0] += 1
        if count[0] == 10:
            raise CompileError(error("E1143", "no worker of the cluster is left"))

    monkeypatch.setattr(engine, "runner_for", lambda *args: FakeRunner(each))
    assert tune("-o", "tuned.mlc") == 1 and "E1143" in capsys.readouterr().err
    assert (model / "tuned.mlc").exists()


def test_a_full_disk_ends_it(model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def add(self: Database, *args: object) -> None:
        raise CompileError(error("E1121", "tune.db cannot be written: database or disk is full"))

    monkeypatch.setattr(Database, "add", add)
    assert tune() == 1 and "E1121" in capsys.readouterr().err


def test_live_table_shows_candidates(model: Path) -> None:
    import io

    from mlcc.cli.tune_table import LineAMinute, LiveTable

    class Terminal(io.StringIO):
        pass

    stream, times = Terminal(), iter(range(0, 10_000, 40))
    lines: list[str] = []
    log = LineAMinute(lines.append, lambda: float(next(times)))
    live = LiveTable(stream, lambda: float(next(times)))

    def changed(made: engine.Tuning) -> None:
        live.changed(made)
        log.changed(made)

    with engine.tuning(
        mlcc.parse((model / "model.mlc").read_text()), space="fake", threads=1, trials=12, budget=600, changed=changed
    ) as made:
        made.loop.run()
    live.close()
    shown = stream.getvalue()
    assert "kernel" in shown and "min" in shown and shown.endswith("\033[J")
    assert lines and all("candidate" in line for line in lines)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command(tmp_path: Path, number: signal.Signals) -> None:
    """With the code that shells expect, in good time, with all outputs, and without processes that stay."""
    (tmp_path / "model.mlc").write_text(product_of("mm", 64))
    args = ["tune", "model.mlc", "--budget", "10m", "--threads", "1", "-o", "tuned.mlc", "--until", "9"]
    root = Path(__file__).resolve().parents[2]
    env = os.environ | {"PYTHONPATH": f"{root}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    process = subprocess.Popen(
        [sys.executable, "-m", "mlcc", *args], cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True,
        stdout=subprocess.PIPE, start_new_session=True, preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )  # fmt: skip
    end = time.monotonic() + 120
    while time.monotonic() < end and _count(tmp_path / "tune.db") < 2:
        time.sleep(0.2)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number, err
    assert signals.MESSAGES[number] in err and "mm" in out
    assert "tir.is_scheduled" in (tmp_path / "tuned.mlc").read_text()
    for _ in range(50):
        if not _members(process.pid):
            break
        time.sleep(0.1)
    assert not _members(process.pid)


def _count(path: Path) -> int:
    try:
        with Database(str(path), reads_only=True) as db:
            return len(db.records())
    except CompileError:
        return 0


def _members(session: int) -> list[int]:
    """Processes of a session that are alive."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(words[3]) == session and words[0] != "Z":
            found.append(int(entry.parent.name))
    return found


def test_the_examples_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python of docs/tune.md, with processes that measure."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "tune.md").read_text()
    first, *others = re.findall(r"^```python\n(.*?)^```", page, re.S | re.M)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.mlc").write_text(product_of("mm", 64))
    scope: dict[str, object] = {}
    exec(first, scope)
    assert scope["tuned"]["mm"].attrs[SCHEDULED]  # type: ignore[index]
    with Database("tune.db", reads_only=True) as db:
        assert len(db.records()) > 1
    for text in others:
        exec(text, {})


def test_the_page_has_all_options() -> None:
    from mlcc.cli.cmd_tune import command

    page = (Path(__file__).resolve().parents[2] / "docs" / "tune.md").read_text()
    table = page.partition("## Options")[2].partition("## The database")[0]
    usual = {"--target", "--fast-math", "-O", "--data", "--force"}
    for param in command.params:
        names = [*param.opts] if param.param_type_name == "option" else []
        assert not names or set(names) & usual or any(f"`{n}" in table for n in names), names


def test_it_says_that_nothing_is_measured(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tune", "model.mlc", "--trials", "1", *TUNE, "-t", "cuda{arch=sm_121}"]) == 0
    assert "no GPU here runs code for cuda{arch=sm_121}: the times of candidates" in capsys.readouterr().err
