"""Register and memory use of kernels as reported by NVIDIA's assembler (ptxas), if it is installed.

It is not needed to compile, as drivers assemble PTX themselves. It is part of CUDA toolkits, and of the wheels
nvidia-cuda-nvcc (CUDA 13) and nvidia-cuda-nvcc-cu12.
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

_TIMEOUT_SECONDS = 120
_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_SERIALIZED = re.compile(r"\((C75\d\d)\) (.*?) in (?:the )?function '(\w+)'")


@dataclass(frozen=True, slots=True)
class KernelResources:
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
    """ptxas is missing or rejected the text; the message is ptxas's."""


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


def assemble(text: str, arch: str, ptxas: Path | None = None) -> dict[str, KernelResources]:
    """Assemble a PTX module for an architecture; return each kernel's resources, by symbol. Raises PtxasError."""
    program = ptxas or find_ptxas()
    if program is None:
        raise PtxasError("ptxas was not found")
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
            process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            raise PtxasError(f"ptxas did not finish within {_TIMEOUT_SECONDS} seconds") from None
    if process.returncode:
        raise PtxasError(process.stderr.strip() or f"ptxas ended with {process.returncode}")
    return dict(_parse_report(process.stderr))


def _parse_report(report: str) -> Iterator[tuple[str, KernelResources]]:
    sections = _ENTRY.split(report)
    reasons: dict[str, list[str]] = {}
    for code, text, symbol in _SERIALIZED.findall(report):
        reasons.setdefault(symbol, []).append(f"{code}: {text}")
    for symbol, text in zip(sections[1::2], sections[2::2], strict=True):
        registers, stack, shared = (pattern.search(text) for pattern in (_REGISTERS, _STACK, _SHARED))
        frame = [int(n) for n in stack.groups()] if stack else [0, 0, 0]
        register_count = int(registers[1]) if registers else 0
        serialized = "; ".join(reasons.get(symbol, ()))
        yield (
            symbol,
            KernelResources(register_count, int(shared[1]) if shared else 0, frame[0], frame[1], frame[2], serialized),
        )


def add_assembled(source: str | bytes, manifest: dict[str, Any]) -> None:
    """Add the resources that ptxas reports to the kernels of a manifest, if it is installed and accepts them."""
    from mlcc.runtime.launch.files import read_contents
    from mlcc.runtime.loader import content_of

    content = content_of(source)
    code = read_contents(content.data, content.path, with_constants=False).code
    try:
        resources = assemble(code.decode(), str(manifest["target"].get("arch")))
    except (PtxasError, UnicodeDecodeError):
        return
    for name, facts in manifest["kernels"].items():
        assembled = resources.get(facts.get("symbol", name))
        if assembled is not None:
            facts["assembled"] = asdict(assembled)
