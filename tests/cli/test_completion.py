"""What shells complete: commands, options, and values of parameters."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mlcc.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
TEXT = "@T.prim_func\ndef scale(A: T.Buffer((8,), 'float32'), B: T.Buffer((8,), 'float32')):\n    B[0] = A[0]\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.mlc").write_text(TEXT + TEXT.replace("scale", "shift"))


def mlcc(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(
        [sys.executable, "-m", "mlcc", *words], env=env, capture_output=True, text=True, check=True, timeout=120
    )


def completed(line: str) -> list[tuple[str, str]]:
    """(kind, value) of what bash is told for a line whose last word is not complete."""
    words = line.split(" ")
    done = mlcc(_MLCC_COMPLETE="bash_complete", COMP_WORDS=line, COMP_CWORD=str(len(words) - 1))
    assert done.stderr == ""
    return [(kind, value) for kind, _, value in (word.partition(",") for word in done.stdout.split())]


def values(line: str) -> list[str]:
    found = completed(line)
    assert all(kind == "plain" for kind, _ in found), found
    return [value for _, value in found]


def test_commands_and_options() -> None:
    assert values("mlcc ") == list(COMMANDS)
    assert values("mlcc co") == ["compile"]
    assert "--quiet" in values("mlcc --") and "--random" in values("mlcc run --ra")


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("mlcc run ", "file"), ("mlcc run m.mlc --in x", "file"), ("mlcc check m.mlc n", "file"),
        ("mlcc compile m.mlc -o ", "file"), ("mlcc schedule m.mlc --script ", "file"), ("mlcc inspect ", "file"),
        ("mlcc import ", "file"), ("mlcc compile m.mlc --dump-dir d", "dir"),
    ],
)  # fmt: skip
def test_files_and_folders(line: str, kind: str) -> None:
    """The shell itself completes these."""
    assert completed(line) == [(kind, line.rpartition(" ")[2])]


def test_values() -> None:
    assert values("mlcc compile -t ll") == ["llvm", "llvm{cpu=native}"]
    assert "nvidia/geforce-rtx-3090" in values("mlcc run -t nvidia/geforce")
    assert values("mlcc passes m.mlc -p fuse,lower-to-t") == ["fuse,lower-to-tir"]
    assert "fuse-tir" in values("mlcc passes --help-pass fuse")
    assert "E0312" in values("mlcc explain E031")
    assert values("mlcc explain reduction-") == ["reduction-axis"]
    assert values("mlcc help ru") == ["run", "rule"] and "E0312" in values("mlcc help E031")
    assert values("mlcc compile --emit llv") == ["llvm-ir"]
    assert values("mlcc passes --dialect t") == ["tvm"]


def test_functions_of_the_file() -> None:
    assert values("mlcc run m.mlc --func s") == ["scale", "shift"]
    assert values("mlcc bench m.mlc --func sc") == ["scale"]
    assert values("mlcc run none.mlc --func s") == []
    mlcc("compile", "m.mlc", "-o", "m.o")
    assert values("mlcc run m.o --func sh") == ["shift"]


def test_lines_with_mistakes_are_completed_in_silence() -> None:
    for line in ("mlcc rnu x", "mlcc run --nothing x", "mlcc run -q -t ll"):
        completed(line)


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_the_script_of_bash() -> None:
    """bash takes the script as the page says, and calls mlcc by it."""
    script = mlcc(_MLCC_COMPLETE="bash_source").stdout
    Path("mlcc").write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m mlcc "$@"\n')
    Path("mlcc").chmod(0o755)
    line = 'COMP_WORDS=(mlcc compile -t ll); COMP_CWORD=3; _mlcc_completion ./mlcc; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", f"{script}\n{line}"], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["llvm", "llvm{cpu=native}"], done.stderr
