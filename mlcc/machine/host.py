"""Facts about the machine that mlcc runs on, each found once and only when asked for."""

from __future__ import annotations

import dataclasses
import functools
import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass

from mlcc.errors import MachineError
from mlcc.machine.limited_memory import llvm_library
from mlcc.runtime.cores import cgroup_quota as cgroup_quota
from mlcc.runtime.cores import num_cores as num_cores

DEFAULT_CACHES = (32 << 10, 1 << 20, 8 << 20)  # where the system does not say
_CPU_FOLDER = "/sys/devices/system/cpu"


@dataclass(frozen=True, slots=True)
class Caches:
    """Data cache sizes in bytes as one core sees them; a level that does not exist has the size of the one before."""

    l1: int
    l2: int
    l3: int
    line: int = 64


@functools.cache
def triple() -> str:
    """This machine's LLVM triple."""
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
    system = platform.system()
    if system == "Darwin":
        return f"{machine.replace('aarch64', 'arm64')}-apple-darwin"
    if system == "Windows":
        return f"{machine}-pc-windows-msvc"
    return f"{machine}-unknown-linux-gnu"


@functools.cache
def cpu_name() -> str:
    """This machine's CPU as LLVM names it."""
    return str(llvm_library().get_host_cpu_name())


@functools.cache
def cpu_features() -> tuple[str, ...]:
    """The features of this CPU that the operating system lets programs use, sorted: `+avx2`, ..."""
    return tuple(f"+{name}" for name, enabled in sorted(llvm_library().get_host_cpu_features().items()) if enabled)


@dataclass(frozen=True, slots=True)
class Gpu:
    """The GPU that artifacts run on: its compute capability, and sizes by the names of a target's options."""

    capability: tuple[int, int]
    sizes: Mapping[str, int]


@functools.cache
def gpu() -> Gpu:
    """The CUDA device of this machine. Raises MachineError (E0860) where there is none."""
    from mlcc.runtime.cuda import default_device

    try:
        device = default_device()
    except MachineError as exc:
        help = "compiling needs no GPU where its architecture is named: `cuda{arch=sm_90}`"
        raise MachineError([dataclasses.replace(d, help=help) for d in exc.diagnostics]) from None
    return Gpu(device.capability, device.sizes())


@functools.cache
def caches() -> Caches:
    """The cache sizes of the first core that this process may use."""
    cpu = min(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    return read_caches(f"{_CPU_FOLDER}/cpu{cpu}/cache")


def read_caches(folder: str) -> Caches:
    """Cache sizes from a folder laid out as Linux lays out `cpuN/cache`."""
    sizes: dict[int, int] = {}
    line = 64
    for index in range(16):
        at = f"{folder}/index{index}"
        kind, level, size = (" ".join(_lines(f"{at}/{name}")).strip() for name in ("type", "level", "size"))
        match = re.fullmatch(r"(\d+)([KMG]?)", size)
        if kind == "Instruction" or not level.isdigit() or match is None:
            continue
        sizes[int(level)] = int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]]
        written = " ".join(_lines(f"{at}/coherency_line_size")).strip()
        line = int(written) if written.isdigit() else line
    if not sizes:
        return Caches(*DEFAULT_CACHES)
    l1 = sizes.get(1, DEFAULT_CACHES[0])
    l2 = sizes.get(2, l1)
    return Caches(l1, l2, sizes.get(3, l2), line)


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []
