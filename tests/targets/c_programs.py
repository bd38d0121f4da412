"""C programs that are linked against an object."""

from __future__ import annotations

import subprocess
from pathlib import Path

from mlcc.targets.llvm.artifact import ObjectArtifact

CC = ["cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1"]


def run_c_program(folder: Path, artifact: ObjectArtifact, source: str, *more: str) -> str:
    """Save an artifact as model.o, compile and run a C program against it. Return its standard output."""
    artifact.save(folder / "model.o")
    (folder / "model.h").write_text(artifact.header("model.o"))
    (folder / "app.c").write_text(source)
    subprocess.run([*CC, "app.c", "model.o", *more, "-o", "app", "-lm"], cwd=folder, check=True)
    result = subprocess.run(["./app"], cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout
