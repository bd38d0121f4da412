"""Help, versions, colours, and how much is said."""

from __future__ import annotations

import importlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

import mlcc as package
from mlcc.cli.main import COMMANDS
from mlcc.cli.terminal import has_color, is_terminal
from tests.cli.test_cli import SCALE, Tool

ROOT = Path(__file__).resolve().parents[2]
WARNS = SCALE.replace("A: T.Buffer", 'unused: T.Buffer((8,), "float32"), A: T.Buffer')


@pytest.fixture
def mlcc(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tool:
    monkeypatch.chdir(tmp_path)
    return Tool(tmp_path, capfd)


def test_help_of_commands_and_codes(mlcc: Tool) -> None:
    assert mlcc("help") == mlcc("--help")
    for name in COMMANDS:
        assert mlcc("help", name) == mlcc(name, "--help")
    assert mlcc("help", "E0312") == mlcc("help", "[e0312]") == mlcc("explain", "E0312")
    mlcc("help", "rnu", code=2)
    assert "did you mean `run`?" in mlcc.err
    assert mlcc("-V") == mlcc("--version") and package.__version__ in mlcc("-V")


def test_help_lists_the_exit_codes(mlcc: Tool) -> None:
    from mlcc.cli import main

    for text in (mlcc("--help"), *(mlcc(name, "--help") for name in COMMANDS)):
        words = " ".join(text.split())
        codes = {int(n) for part in re.findall(r"Exit codes: (.*)", words) for n in re.findall(r"\b\d+\b", part)}
        known = {main.EXIT_INPUT, main.EXIT_USAGE, main.EXIT_DIFFERENT, main.EXIT_MACHINE, main.EXIT_BUG}
        assert codes >= known | {0, main.EXIT_INTERRUPTED}


@pytest.mark.parametrize("name", COMMANDS)
def test_options_say_what_their_values_are(name: str) -> None:
    """FILE, TARGET, N: no TEXT, no INTEGER RANGE."""
    command = importlib.import_module(f"mlcc.cli.cmd_{name}").command
    for param in command.params:
        shown = param.make_metavar(click.Context(command))
        if getattr(param, "is_flag", False) or isinstance(param.type, click.Choice):
            continue
        assert not re.search("TEXT|INTEGER|FLOAT|RANGE|PATH", shown), (param.name, shown)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    terminal, pipe = Terminal(), io.StringIO()
    assert has_color("auto", terminal) and not has_color("auto", pipe) and not has_color("auto", None)
    assert has_color("always", pipe) and not has_color("never", terminal)
    monkeypatch.setenv("TERM", "dumb")
    assert not has_color("auto", terminal) and not is_terminal(terminal)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert has_color("auto", pipe)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not has_color("auto", terminal) and has_color("always", terminal)
    monkeypatch.setenv("NO_COLOR", "")  # which counts as not set
    assert has_color("auto", pipe)
    monkeypatch.setenv("FORCE_COLOR", "0")
    assert not has_color("auto", terminal)


def test_colours_of_a_command(mlcc: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    mlcc("check", "no.mlc", code=1)
    assert "\x1b[" not in mlcc.err
    monkeypatch.setenv("FORCE_COLOR", "1")
    mlcc("check", "no.mlc", code=1)
    assert "\x1b[1;31merror[E0001]" in mlcc.err


@pytest.mark.parametrize("place", [0, 1, 2])
def test_quiet_and_verbose(mlcc: Tool, place: int) -> None:
    """Anywhere on the line."""
    mlcc.file("m.mlc", WARNS)

    def words(option: str) -> list[str]:
        line = ["run", "m.mlc", "--random"]
        return [*line[:place], option, *line[place:]]

    expected = mlcc("run", "m.mlc", "--random")
    assert "W0303" in mlcc.err
    assert mlcc(*words("-q")) == mlcc(*words("--quiet")) == expected and mlcc.err == ""
    assert mlcc(*words("-v")) == expected
    assert re.search(r"^LLVM .*: [0-9.]+ ms$", mlcc.err, re.M) and "W0303" in mlcc.err
    mlcc("check", "-q", "m.mlc", "--warnings", "error", code=1)
    assert "W0303" in mlcc.err


def test_quiet_or_verbose(mlcc: Tool) -> None:
    mlcc("-q", "cache", "stat", "-v", code=2)
    assert "either --quiet or --verbose" in mlcc.err


def test_verbose_names_what_the_cache_had(mlcc: Tool) -> None:
    mlcc.file("m.mlc", SCALE)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "MLCC_CACHE": "1", "MLCC_CACHE_DIR": str(mlcc.folder / "cache")}
    said = [
        subprocess.run(
            [sys.executable, "-m", "mlcc", "run", "-v", "m.mlc", "--random"], env=env, capture_output=True, text=True,
            check=True, timeout=120,
        ).stderr
        for _ in range(2)
    ]  # fmt: skip
    assert "LLVM" in said[0] and said[1] == "m.mlc: compiled before, from the cache\n"
