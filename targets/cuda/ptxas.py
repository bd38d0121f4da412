"""NVIDIA's assembler (ptxas), if installed: register and memory use of kernels.

Nothing here is needed to compile: drivers assemble PTX themselves. It comes with CUDA toolkits, and by itself in the
wheels nvidia-cuda-nvcc (CUDA 13) and nvidia-cuda-nvcc-cu12.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

_SECONDS = 120  # that a module may take
_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_SERIALIZED = re.compile(r"\((C75\d\d)\) (.*?) in (?:the )?function '(\w+)'")


@dataclass(frozen=True, slots=True)
class Assembled:
    """The resources of a kernel as ptxas reports them.

    Registers of a thread, static shared memory of a block in bytes, the stack of a thread in local memory in bytes,
    bytes of spill stores and spill loads, and the reason why warpgroup products are serialised (C7510 and the like)."""

    registers: int
    shared: int
    stack: int
    spill_stores: int
    spill_loads: int
    serialized: str = ""


class PtxasError(Exception):
    """ptxas refused the text; the message is its own."""


@cache
def find_ptxas() -> Path | None:
    """Find ptxas on PATH, under CUDA_HOME or CUDA_PATH, or in an installed wheel; None if there is none."""
    for path in _candidates():
        if path.is_file() and os.access(path, os.X_OK):
            return path
    return None


def _candidates() -> Iterator[Path]:
    if on_path := shutil.which("ptxas"):
        yield Path(on_path)
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if root := os.environ.get(name):
            yield Path(root) / "bin" / "ptxas"
    nvidia = importlib.util.find_spec("nvidia")
    for root in (nvidia.submodule_search_locations or ()) if nvidia else ():
        for folder in ("cuda_nvcc", "cu13", "cu12"):
            yield Path(root) / folder / "bin" / "ptxas"


@cache
def version(ptxas: Path) -> tuple[int, int]:
    """Return the CUDA release of a ptxas."""
    text = subprocess.run([ptxas, "--version"], capture_output=True, text=True, check=True).stdout
    release = re.search(r"release (\d+)\.(\d+)", text)
    return (int(release[1]), int(release[2])) if release else (0, 0)


def assemble(text: str, arch: str, ptxas: Path | None = None) -> dict[str, Assembled]:
    """Assemble a PTX module for an architecture; return each kernel's resources, by symbol. Raises PtxasError."""
    program = ptxas or find_ptxas()
    if program is None:
        raise PtxasError("there is no ptxas here")
    with tempfile.TemporaryDirectory(prefix="mlcc-ptxas-") as folder:
        source = Path(folder, "kernels.ptx")
        source.write_text(text)
        command = [
            str(program),
            "-arch",
            arch,
            "-v",
            "--warn-on-spills",
            str(source),
            "-o",
            str(Path(folder, "out.cubin")),
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            raise PtxasError(f"ptxas did not end within {_SECONDS} seconds") from None
    if done.returncode:
        raise PtxasError(done.stderr.strip() or f"ptxas ended with {done.returncode}")
    return dict(_read(done.stderr))


def _read(report: str) -> Iterator[tuple[str, Assembled]]:
    parts = _ENTRY.split(report)
    waits: dict[str, list[str]] = {}
    for code, text, symbol in _SERIALIZED.findall(report):
        waits.setdefault(symbol, []).append(f"{code}: {text}")
    for symbol, text in zip(parts[1::2], parts[2::2], strict=True):
        registers, stack, shared = (pattern.search(text) for pattern in (_REGISTERS, _STACK, _SHARED))
        frame = [int(n) for n in stack.groups()] if stack else [0, 0, 0]
        used = int(registers[1]) if registers else 0
        serialized = "; ".join(waits.get(symbol, ()))
        yield symbol, Assembled(used, int(shared[1]) if shared else 0, frame[0], frame[1], frame[2], serialized)


def add_assembled(file: str, manifest: dict[str, Any]) -> None:
    """Add the resources that ptxas reports to the kernels of a manifest, if it is installed and accepts them."""
    from mlcc.runtime.launch.files import read_parts
    from mlcc.runtime.loader import read_file

    code = read_parts(read_file(file), file, with_constants=False).code
    try:
        resources = assemble(code.decode(), str(manifest["target"].get("arch")))
    except (PtxasError, UnicodeDecodeError):
        return
    for name, facts in manifest["kernels"].items():
        assembled = resources.get(facts.get("symbol", name))
        if assembled is not None:
            facts["assembled"] = asdict(assembled)
