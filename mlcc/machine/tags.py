"""Targets by the names of machines, TVM's tags: `nvidia/tesla-p100`, `aws/cpu/c5.large`.

A GPU has the limits of a block as TVM's tags state them (1024 threads, 48 KiB of shared memory, 65536 registers), and
its multiprocessors and second-level cache. Code for GPUs that are older than any that code is generated for is for the
oldest of those: emulation runs it, and schedules are chosen by the limits of the GPU that was named.
"""

from __future__ import annotations

from collections.abc import Iterator

OLDEST = "sm_75"
_KIB = 1 << 10

# GPU: compute capability, multiprocessors, KiB of second-level cache
_GPUS: dict[str, tuple[int, int, int]] = {
    "nvidia-h100": (90, 132, 51200), "nvidia-a100": (80, 108, 40960), "nvidia-a40": (86, 84, 6144),
    "nvidia-a30": (80, 56, 24576), "nvidia-a10": (86, 72, 6144), "nvidia-a10g": (86, 80, 6144),
    "nvidia-a16": (86, 10, 2048), "nvidia-a2": (86, 10, 2048), "nvidia-t4": (75, 40, 4096),
    "nvidia-v100": (70, 80, 6144), "tesla-p100": (60, 56, 4096), "tesla-p40": (61, 30, 3072),
    "tesla-p4": (61, 20, 2048), "tesla-m60": (52, 16, 2048), "tesla-m40": (52, 24, 3072),
    "rtx-a6000": (86, 84, 6144), "quadro-rtx-8000": (75, 72, 6144), "quadro-rtx-6000": (75, 72, 6144),
    "quadro-rtx-5000": (75, 48, 4096), "quadro-rtx-4000": (75, 36, 4096), "quadro-gv100": (70, 80, 6144),
    "quadro-gp100": (60, 56, 4096), "quadro-p6000": (61, 30, 3072), "quadro-p5000": (61, 20, 2048),
    "geforce-rtx-5060-ti": (120, 36, 32768), "geforce-rtx-4090": (89, 128, 73728),
    "geforce-rtx-3090-ti": (86, 84, 6144), "geforce-rtx-3090": (86, 82, 6144), "geforce-rtx-3080-ti": (86, 80, 6144),
    "geforce-rtx-3080": (86, 68, 5120), "geforce-rtx-3070-ti": (86, 48, 4096), "geforce-rtx-3070": (86, 46, 4096),
    "geforce-rtx-3060": (86, 28, 3072), "nvidia-titan-rtx": (75, 72, 6144), "geforce-rtx-2080-ti": (75, 68, 5632),
    "geforce-rtx-2080": (75, 46, 4096), "geforce-rtx-2070": (75, 36, 4096), "geforce-rtx-2060": (75, 30, 3072),
    "nvidia-titan-v": (70, 80, 4608), "nvidia-titan-xp": (61, 30, 3072), "nvidia-titan-x": (61, 28, 3072),
    "geforce-gtx-1080-ti": (61, 28, 2816), "geforce-gtx-1080": (61, 20, 2048), "geforce-gtx-1070-ti": (61, 19, 2048),
    "geforce-gtx-1070": (61, 15, 2048), "geforce-gtx-1060": (61, 10, 1536), "geforce-gtx-1050": (61, 5, 1024),
    "geforce-gtx-titan-x": (52, 24, 3072), "geforce-gtx-980-ti": (52, 22, 3072), "geforce-gtx-980": (52, 16, 2048),
    "geforce-gtx-970": (52, 13, 1792), "geforce-gtx-960": (52, 8, 1024),
}  # fmt: skip

# CPU cores of the instances, all but the largest of Skylake
_C5 = {"large": 1, "xlarge": 2, "2xlarge": 4, "4xlarge": 8, "9xlarge": 18, "12xlarge": 24, "18xlarge": 36,
       "24xlarge": 48}  # fmt: skip
_CASCADE_LAKE = ("12xlarge", "24xlarge")
_ARM = "llvm{triple=aarch64-linux-gnu cpu=cortex-a72 num-cores=4}"


def _all() -> Iterator[tuple[str, str]]:
    for name, (capability, count, l2) in _GPUS.items():
        arch = f"sm_{max(capability, int(OLDEST[3:]))}" + "a" * (capability == 90)
        limits = f"sm-count={count} max-threads=1024 shared-bytes={48 * _KIB} registers=65536 l2={l2 * _KIB}"
        yield f"nvidia/{name}", f"cuda{{arch={arch} {limits}}}"
    for size, cores in _C5.items():
        cpu = "cascadelake" if size in _CASCADE_LAKE else "skylake-avx512"
        yield f"aws/cpu/c5.{size}", f"llvm{{cpu={cpu} num-cores={cores}}}"
    yield from (("raspberry-pi/4b-aarch64", _ARM), ("arm/rasp4b64", _ARM))


TAGS: dict[str, str] = dict(_all())  # names, and the texts of targets that they stand for
