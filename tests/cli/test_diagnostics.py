"""Diagnostics for programs: JSON lines and SARIF, wherever the option stands, usage errors included."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mlcc.cli.main import run

BAD = '@R.function\ndef main(x: R.Tensor((4,), "float32")):\n    y = R.add(x, z)\n    return y\n'
WARNED = '@R.function\ndef main(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")):\n    return x\n'


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.mlc").write_text(BAD)
    Path("b ad.mlc").write_text(BAD)
    Path("warned.mlc").write_text(WARNED)


LINES = [
    ["--diagnostics", "json", "check", "bad.mlc"], ["check", "--diagnostics", "json", "bad.mlc"],
    ["check", "bad.mlc", "--diagnostics=json"], ["check", "bad.mlc", "--color=never", "--diagnostics", "json"],
]  # fmt: skip


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_json_anywhere(line: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert run(line) == 1
    (found,) = map(json.loads, capfd.readouterr().err.splitlines())
    assert (found["code"], found["file"], found["primary"]["line"]) == ("E0201", "bad.mlc", 3)
    assert run(["check", "bad.mlc"]) == 1
    assert found["rendered"] + "\n" == capfd.readouterr().err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["chek", "bad.mlc"], "no such command `chek`"),
        (["check", "--frobnicate"], "no such option"),
        (["compile", "bad.mlc", "-O4"], "invalid value for '-O'"),
        (["compile", "bad.mlc", "-o"], "requires an argument"),
        (["schedule", "bad.mlc"], "give either --script FILE or --auto"),
    ],
)
@pytest.mark.parametrize("front", [True, False], ids=["front", "behind"])
def test_wrong_usage_as_json(line: list[str], message: str, front: bool, capfd: pytest.CaptureFixture[str]) -> None:
    option = ["--diagnostics=json"]
    assert run(option + line if front else [line[0], *option, *line[1:]]) == 2
    (found,) = map(json.loads, capfd.readouterr().err.splitlines())
    assert found["code"] == "E0090" and found["severity"] == "error"
    assert message in found["message"] and found["file"] is None
    assert found["rendered"].startswith("error[E0090]: ")


def test_files_without_a_place(capfd: pytest.CaptureFixture[str]) -> None:
    Path("net.pt").write_bytes(b"PK\x03\x04")
    Path("text.o").write_text(BAD)
    for line, file in (
        (["check", "bda.mlc"], "bda.mlc"), (["compile", "net.pt", "-o", "net.o"], "net.pt"),
        (["run", "text.o"], "text.o"), (["run", "warned.mlc", "--in", "no.npz"], "no.npz"),
    ):  # fmt: skip
        assert run([*line, "--diagnostics=json"]) == 1
        (found,) = map(json.loads, capfd.readouterr().err.splitlines())
        assert found["file"] == file and "line" not in found["primary"]
        (result,) = sarif([*line, "--diagnostics=sarif", "--warnings=off"], capfd, 1)["results"]
        assert result["locations"] == [{"physicalLocation": {"artifactLocation": {"uri": file}}}]


def test_what_follows_two_dashes_is_no_option(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "--", "--diagnostics"]) == 1
    assert "cannot read --diagnostics" in capfd.readouterr().err


def sarif(line: list[str], capfd: pytest.CaptureFixture[str], code: int) -> dict[str, Any]:
    assert run(line) == code
    document: dict[str, Any] = json.loads(capfd.readouterr().err)
    assert document["version"] == "2.1.0" and document["$schema"].endswith("sarif-2.1.0.json")
    (one,) = document["runs"]
    rules = [rule["id"] for rule in one["tool"]["driver"]["rules"]]
    for result in one["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note") and result["message"]["text"]
    return one  # type: ignore[no-any-return]


def test_sarif(capfd: pytest.CaptureFixture[str]) -> None:
    one = sarif(["check", "bad.mlc", "warned.mlc", "--diagnostics", "sarif"], capfd, 1)
    assert one["tool"]["driver"]["name"] == "mlcc"
    found = {r["ruleId"]: r for r in one["results"]}
    assert sorted(found) == ["E0201", "W0303"]
    assert (found["E0201"]["level"], found["W0303"]["level"]) == ("error", "warning")
    place = found["E0201"]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "bad.mlc"
    region = place["region"]
    assert (region["startLine"], region["endLine"]) == (3, 3)
    assert BAD.splitlines()[2][region["startColumn"] - 1 : region["endColumn"] - 1] == "z"


def test_sarif_of_nothing_usage_and_odd_names(capfd: pytest.CaptureFixture[str]) -> None:
    assert sarif(["check", "--diagnostics=sarif", "--warnings=off", "warned.mlc"], capfd, 0)["results"] == []
    (usage,) = sarif(["compile", "--diagnostics=sarif", "-O4", "bad.mlc"], capfd, 2)["results"]
    assert usage["ruleId"] == "E0090" and "locations" not in usage
    (odd,) = sarif(["--diagnostics=sarif", "check", "b ad.mlc"], capfd, 1)["results"]
    assert odd["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "b%20ad.mlc"


class Watching:
    """`mlcc check --watch` in a process; `lines(n)` are its next lines on stderr."""

    def __init__(self, *argv: str) -> None:
        root = Path(__file__).resolve().parents[2]
        command = [sys.executable, "-m", "mlcc", "check", "--watch", *argv]
        env = {**os.environ, "PYTHONPATH": str(root), "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=env)

    def until(self, end: str) -> list[str]:
        """The lines up to one that contains `end`."""
        assert self.process.stderr is not None
        lines: list[str] = []
        while not lines or end not in lines[-1]:
            raw = self.process.stderr.readline()
            assert raw, lines
            lines.append(raw.decode())
        return lines

    def close(self) -> int:
        self.process.terminate()
        self.process.communicate()
        return self.process.returncode


def test_watch() -> None:
    watching = Watching("bad.mlc", "warned.mlc")
    try:
        first = watching.until("watching 2 files")
        assert any("error[E0201]" in line for line in first) and any("warning[W0303]" in line for line in first)
        assert first[-1].startswith("-- 1 error;")
        Path("bad.mlc").write_text(BAD.replace("z)", "x)"))
        assert watching.until("watching")[-1].startswith("-- no errors;")
        Path("bad.mlc").unlink()
        gone = watching.until("watching")
        assert any("error[E0001]" in line for line in gone)
        Path("new.mlc").write_text(BAD)
        os.replace("new.mlc", "bad.mlc")  # as editors save
        assert any("error[E0201]" in line for line in watching.until("watching"))
    finally:
        code = watching.close()
    assert code == 143


def test_watch_as_json() -> None:
    watching = Watching("bad.mlc", "--diagnostics=json")
    try:
        found, done = map(json.loads, watching.until("checked"))
        assert found["code"] == "E0201" and done == {"checked": 1, "errors": 1}
    finally:
        watching.close()


def test_watch_refuses(capfd: pytest.CaptureFixture[str]) -> None:
    for line in (
        ["check", "--watch"],
        ["check", "--watch", "-"],
        ["check", "--watch", "bad.mlc", "--diagnostics", "sarif"],
    ):
        assert run(line) == 2
        assert "--watch" in capfd.readouterr().err
