"""Device keys, which identify the machine of a measurement by its components. Machines of one model share a key."""

from __future__ import annotations

import functools
import hashlib

from mlcc.errors import MachineError
from mlcc.machine import host
from mlcc.machine.gpu import Arch
from mlcc.machine.target import CudaTarget, Target

ANALYSIS = "analysis"  # the device of what was not measured
_GPU = "cuda "


def device_key(target: Target) -> str:
    """The key of the machine that code for a target is measured on: this one, or its GPU.

    A model name, cores, the caches in KiB, and a hash of the features. Raises MachineError (E0860) for a GPU target
    where there is none.
    """
    if target.kind == "cuda":
        gpu = host.gpu()
        return f"{_GPU}sm_{gpu.capability[0]}{gpu.capability[1]} {_digest(sorted(gpu.sizes.items()))}"
    return _cpu_key()


def is_gpu(key: str) -> bool:
    """Return True if a device key is that of a GPU."""
    return key.startswith(_GPU)


def gpu_runs(key: str, target: CudaTarget) -> bool:
    """Return True if the GPU of a device key runs code for a target."""
    digits = key.removeprefix(f"{_GPU}sm_").partition(" ")[0]
    return Arch.of(target.resolved().arch).fits((int(digits[:-1]), int(digits[-1])))


def measured_on(target: Target) -> str:
    """Return the device key, or "by analysis" for a GPU target whose code no GPU of this machine runs."""
    try:
        key = device_key(target)
    except MachineError:
        return ANALYSIS
    return key if not isinstance(target, CudaTarget) or gpu_runs(key, target) else ANALYSIS


@functools.cache
def _cpu_key() -> str:
    caches = host.caches()
    sizes = "/".join(str(size >> 10) for size in (caches.l1, caches.l2, caches.l3))
    return f"{host.cpu_name()} {host.num_cores()} cores {sizes} KiB {_digest([cpu_model(), *host.cpu_features()])}"


def cpu_model() -> str:
    """Return the model name of the CPU; an empty text if the system does not tell."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return ""


def _digest(parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:8]
