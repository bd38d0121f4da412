"""samples/c_app as the build systems of C programs make it: configured, built, run, and built again after a change."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """A copy of the sample and of the model beside it, with `mlcc` on the path."""
    for name in ("c_app", "digits"):
        shutil.copytree(ROOT / "samples" / name, tmp_path / name, ignore=shutil.ignore_patterns("out"))
    command = tmp_path / "bin" / "mlcc"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m mlcc "$@"\n')
    command.chmod(0o755)
    return tmp_path


def run(sample: Path, *command: str) -> str:
    tool = shutil.which(command[0], path=f"{BIN}:{os.environ['PATH']}")
    if tool is None:
        pytest.skip(f"needs {command[0]}")
    env = {**os.environ, "PATH": f"{sample / 'bin'}:{BIN}:{os.environ['PATH']}", "MLCC_CACHE": "0"}
    env.pop("MAKEFLAGS", None)
    done = subprocess.run(
        [tool, *command[1:]], cwd=sample / "c_app", env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


COMMANDS = {
    "make": (["make"], "out/mlp.o", "of 360"),
    "cmake": (
        ["cmake -G Ninja -S . -B out", "cmake --build out", "ctest --test-dir out --output-on-failure -V"],
        "out/libmlp.a", "100% tests passed",
    ),
    "meson": (["meson setup out", "meson test -C out --verbose"], "out/mlp.o", "Ok:"),
}  # fmt: skip


@pytest.mark.parametrize("system", COMMANDS)
def test_build_and_run(sample: Path, system: str) -> None:
    commands, library, expected = COMMANDS[system]
    printed = "".join(run(sample, *command.split()) for command in commands)
    assert expected in printed and "360" in printed
    made = sample / "c_app" / library
    first = made.stat().st_mtime_ns
    build = commands[-1] if system != "cmake" else commands[1]
    run(sample, *build.split())
    assert made.stat().st_mtime_ns == first  # nothing has changed
    text = sample / "digits" / "mlp.mlc"
    text.write_text(text.read_text() + "\n# another line\n")
    os.utime(text, ns=(first + 10**10, first + 10**10))
    run(sample, *build.split())
    assert made.stat().st_mtime_ns != first
