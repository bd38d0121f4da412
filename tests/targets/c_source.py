"""Compiles C source of the target `c` with a C compiler, and loads it."""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mlcc
from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.runtime.manifest import read
from mlcc.runtime.native import NativeExecutable
from mlcc.targets.c.artifact import CArtifact

WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror")
FLAGS = ("-std=c99", "-O2", *WARNINGS)


@functools.cache
def compilers() -> tuple[str, ...]:
    """The C compilers of the machine: `cc`, and clang where it is installed."""
    return tuple(name for name in ("cc", "clang") if shutil.which(name))


def source(module: IRModule | tir.PrimFunc, level: int | None = None, target: str = "c", **options: Any) -> CArtifact:
    artifact = mlcc.build(module, target=target, opt_level=level, **options)
    assert isinstance(artifact, CArtifact)
    return artifact


def compiled(
    artifact: CArtifact, flags: tuple[str, ...] = FLAGS, cc: str = "cc", libraries: tuple[str, ...] = ()
) -> Path:
    """Compile to a shared library, warnings being errors."""
    folder = Path(tempfile.mkdtemp(prefix="mlcc-c-"))
    (folder / "model.c").write_bytes(artifact.emit("c", "model"))
    command = [cc, *flags, "-shared", "-fPIC", "model.c", *libraries, "-o", "model.so", "-lm"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stderr}\n{folder}/model.c"
    return folder / "model.so"


def load(
    artifact: CArtifact, flags: tuple[str, ...] = FLAGS, cc: str = "cc", libraries: tuple[str, ...] = ()
) -> NativeExecutable:
    """The functions of an artifact, compiled and loaded, with other files to link."""
    path = compiled(artifact, flags, cc, libraries)
    library = ctypes.CDLL(str(path))
    shutil.rmtree(path.parent)

    def find(symbol: str) -> int:
        return ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value or 0

    facts = artifact._facts("model")
    exe = NativeExecutable(read(facts), find, (0, 0))
    exe._library = library  # type: ignore[attr-defined]
    return exe


__all__ = ["Callable", "Mapping", "compiled", "compilers", "load", "source"]
