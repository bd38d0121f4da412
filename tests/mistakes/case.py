"""A mistake that a user makes, and what mlcc says of it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Content = str | bytes | Mapping[str, Any]  # a text, raw bytes, or the arrays of an .npz

NET = """\
@I.ir_module
class Net:
    @R.function
    def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 16), "float32")):
        with R.dataflow():
            h = R.matmul(x, w)
            y = R.nn.relu(h)
            R.output(y)
        return y
"""
KERNEL = """\
@T.prim_func
def main(A: T.Buffer((32, 32), "float32"), B: T.Buffer((32, 32), "float32"), C: T.Buffer((32, 32), "float32")):
    for i, j, k in T.grid(32, 32, 32):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""


@dataclass(frozen=True)
class Case:
    """One mistake: a command line, or Python statements if `python`, in a folder with these files."""

    name: str
    do: str
    files: Mapping[str, Content] = field(default_factory=dict)
    python: bool = False
    expanded: bool = False  # by a shell, as braces are
    env: Mapping[str, str] = field(default_factory=dict)
    prepare: Callable[[], None] | None = None


def write(files: Mapping[str, Content]) -> None:
    """Write the files of a case, and those that every case has."""
    every: dict[str, Content] = {
        "net.mlc": NET, "kernel.mlc": KERNEL,
        "net.npz": {"x": np.ones((4, 8), "float32"), "w": np.ones((8, 16), "float32")},
    }  # fmt: skip
    for name, content in {**every, **files}.items():
        path = Path(name)
        path.parent.mkdir(exist_ok=True)
        if isinstance(content, Mapping):
            np.savez(path, **content)
        else:
            path.write_bytes(content.encode() if isinstance(content, str) else content)


def message(case: Case, folder: Path) -> str:
    """The exit code and everything that is said, in a folder that is made the current one."""
    import io

    write(case.files)
    if case.prepare is not None:
        case.prepare()
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err):
        outcome = _python(case.do) if case.python else _command(case)
    shown, said = (stream.buffer.getvalue().decode() for stream in (out, err))  # type: ignore[attr-defined]
    said = (outcome + said + ("" if said else shown)).replace(str(folder), "FOLDER")
    said = re.sub(r"for (x86_64|aarch64)$", "for ARCHITECTURE", said, flags=re.M)
    return re.sub(r"[ \t]+$", "", said, flags=re.M).rstrip("\n") + "\n"


def _command(case: Case) -> str:
    from mlcc.cli.main import run

    words = shlex.split(case.do)
    if case.expanded:
        expanded = subprocess.run(
            ["bash", "-c", f"printf '%s\\n' {case.do}"], capture_output=True, text=True, check=True
        )
        words = expanded.stdout.split("\n")[:-1]
    assert words[0] == "mlcc", case.name
    before = dict(os.environ)
    os.environ.update(case.env)
    try:
        return f"exit {run(words[1:])}\n"
    finally:
        os.environ.clear()
        os.environ.update(before)


def _python(text: str) -> str:
    try:
        exec(text, {})
    except Exception as exc:
        return f"{type(exc).__name__}: {exc}\n"
    return "no exception\n"
