"""The architecture and CPU features of this machine, by LLVM's names."""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Iterable, Mapping

from mlcc.errors import Diagnostic, LoadError, MachineError, error
from mlcc.runtime import settings

VERSION = "MLCC_CPU"  # the variable that names the version of kernels to run

_ARCHES = {"amd64": "x86_64", "x86-64": "x86_64", "arm64": "aarch64"}

# LLVM feature -> the kernel's word for it. A feature without a word asks nothing of the machine.
_X86_WORDS = {
    "sse3": "pni", "sse4.1": "sse4_1", "sse4.2": "sse4_2", "cx16": "cx16", "sahf": "lahf_lm", "lzcnt": "abm",
    "avx512ifma": "avx512ifma",
    "avx512vbmi2": "avx512_vbmi2", "avx512vnni": "avx512_vnni", "avx512bitalg": "avx512_bitalg",
    "avx512vpopcntdq": "avx512_vpopcntdq", "avx512bf16": "avx512_bf16", "avx512fp16": "avx512_fp16",
    "avx512vp2intersect": "avx512_vp2intersect", "avxvnni": "avx_vnni", "avxifma": "avx_ifma",
    "avxneconvert": "avx_ne_convert", "avxvnniint8": "avx_vnni_int8", "avxvnniint16": "avx_vnni_int16",
    "amx-tile": "amx_tile", "amx-int8": "amx_int8",
    "amx-bf16": "amx_bf16", "sha": "sha_ni", "rdrnd": "rdrand", "prfchw": "3dnowprefetch",
}  # fmt: skip
_X86_SAME = frozenset({
    "adx", "aes", "avx", "avx2", "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vbmi", "avx512vl",
    "bmi1", "bmi2", "clflushopt", "clwb", "f16c", "fma", "fma4", "fsgsbase", "gfni", "invpcid", "movbe",
    "mwaitx", "pclmulqdq", "popcnt", "rdseed", "serialize", "sse4a", "ssse3", "vaes", "vpclmulqdq", "xop",
    "xsave", "xsavec", "xsaveopt", "xsaves", "sse", "sse2",
})  # fmt: skip
_X86_OTHER_NAMES = {"bmi": "bmi1", "pclmul": "pclmulqdq"}
_ARM_WORDS = {
    "neon": "asimd", "fp-armv8": "fp", "fullfp16": "fphp", "dotprod": "asimddp", "crc": "crc32", "lse": "atomics",
    "rdm": "asimdrdm", "sve": "sve", "sve2": "sve2", "bf16": "bf16", "i8mm": "i8mm", "aes": "aes", "sha2": "sha2",
    "sha3": "sha3", "sm4": "sm4", "rcpc": "lrcpc", "jsconv": "jscvt", "complxnum": "fcma", "fp16fml": "asimdfhm",
}  # fmt: skip


def arch() -> str:
    """x86_64, aarch64, or what the system calls itself."""
    name = platform.machine().lower()
    return _ARCHES.get(name, name)


@functools.lru_cache(maxsize=1)
def cpu_words() -> frozenset[str] | None:
    """Return the operating system's list of CPU features; None if it has none."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            for line in file:
                key, _, value = line.partition(":")
                if key.strip() in ("flags", "Features"):
                    return frozenset(value.split())
                if key.strip() == "isa":  # rv64imafdcv_zba_zbb
                    letters, *names = value.strip().split("_")
                    return frozenset((*letters[4:], *names))
    except OSError:
        return None
    return None


def cpuinfo_flag(feature: str, machine: str) -> str | None:
    """The kernel's word for an LLVM feature; None if the feature asks nothing of the machine."""
    if machine == "aarch64":
        return _ARM_WORDS.get(feature)
    if machine == "riscv64":
        return feature
    feature = _X86_OTHER_NAMES.get(feature, feature)
    return feature if feature in _X86_SAME else _X86_WORDS.get(feature)


def required(features: Iterable[str], machine: str) -> list[str]:
    """Those of LLVM's features that a machine can lack, sorted: what a manifest lists."""
    return sorted(f for f in features if cpuinfo_flag(f, machine) is not None)


def check(built_for: str, features: tuple[str, ...], what: str = "the artifact") -> None:
    """Refuse code for another machine. Raises MachineError."""
    if os.name != "posix" or built_for != arch():
        raise MachineError(error("E0853", f"{what} is for {built_for}, this machine is {arch()}"))
    have = cpu_words()
    missing = [f for f in features if have is not None and cpuinfo_flag(f, built_for) not in {None, *have}]
    if missing:
        raise MachineError(_lacks(what, missing))


def check_version(built_for: str, versions: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse code whose version that the environment names does not exist or needs what this machine lacks; `versions`
    has the features of each. Raises LoadError, MachineError."""
    requested = os.environ.get(VERSION, "")
    if not versions or not requested:
        return
    if requested not in versions:
        message = f"{VERSION} is `{settings.shown(requested)}`, and the artifact has versions for {', '.join(versions)}"
        raise LoadError(error("E0015", message, help=f"unset {VERSION}, or name one of those"))
    check(built_for, versions[requested], f"the version for {requested} ({VERSION})")


def _lacks(what: str, missing: list[str]) -> Diagnostic:
    plural = "s" if len(missing) > 1 else ""
    return error(
        "E0854", f"{what} needs the CPU feature{plural} {', '.join(missing)}, which this machine does not have",
        help="compile it for this machine (-t 'llvm{cpu=native}') or for any (-t llvm)",
    )  # fmt: skip
