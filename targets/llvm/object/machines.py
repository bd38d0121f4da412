"""Supported machines: the triples, CPUs and features that may be passed to LLVM.

LLVM aborts the process for unsupported combinations (an x86-64 without SSE2, say), so only listed ones are allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from mlcc.errors import CompileError, did_you_mean, error
from mlcc.machine.cpu import CPUS
from mlcc.machine.triples import ARCHES, TRIPLES, find_triple

# features that can be switched on and off, without the baseline of each architecture
FEATURES = {
    "x86_64": (
        "adx", "aes", "avx", "avx2", "avx512bf16", "avx512bitalg", "avx512bw", "avx512cd", "avx512dq", "avx512f",
        "avx512fp16", "avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512vl", "avx512vnni", "avx512vpopcntdq", "avxifma",
        "avxneconvert", "avxvnni", "avxvnniint16", "avxvnniint8", "bmi", "bmi2", "crc32", "cx16", "f16c", "fma", "fma4",
        "gfni", "lzcnt", "movbe", "pclmul", "popcnt", "prfchw", "sahf", "sha", "sse3", "sse4.1", "sse4.2", "sse4a",
        "ssse3", "vaes", "vpclmulqdq", "xop", "xsave",
    ),
    "aarch64": ("bf16", "crc", "dotprod", "fullfp16", "i8mm", "lse", "rdm", "strict-align", "sve", "sve2"),
    "riscv64": ("v", "zba", "zbb", "zbs", "zfh", "zicond", "zvfh", "zvl256b", "zvl512b"),
}  # fmt: skip


def normal_triple(triple: str) -> str:
    """Return the triple in LLVM's full form, if it is a known spelling."""
    known = find_triple(triple)
    return triple if known is None else str(known)


def check(triple: str, cpu: str, features: Iterable[str]) -> None:
    """Raise CompileError for an unlisted triple, CPU or feature, suggesting the nearest name."""
    if find_triple(triple) is None:
        raise CompileError(error("E0705", f"unknown triple `{triple}`", help=_triple_help(triple)))
    arch = triple.partition("-")[0]
    if cpu not in CPUS[arch]:
        help = did_you_mean(cpu, ("native", *CPUS[arch])) or f"known are native, {', '.join(CPUS[arch])}"
        raise CompileError(error("E0706", f"unknown CPU `{cpu}` for {arch}", help=help))
    for feature in features:
        name = feature[1:]
        if feature[:1] not in ("+", "-") or name not in FEATURES[arch]:
            help = _suggestion(name, FEATURES[arch], FEATURES[arch])
            raise CompileError(error("E0706", f"unknown feature `{feature}` for {arch}", help=help))


_OTHER_NAMES = {"amd64": "x86_64", "x86-64": "x86_64", "x64": "x86_64", "arm64": "aarch64", "riscv64gc": "riscv64"}
_OTHER_SYSTEMS = re.compile(r"android|darwin|macos|ios|windows|mingw|freebsd|wasi|uclinux")
_SHORT = tuple(triple.short for triple in TRIPLES)


def _triple_help(triple: str) -> str:
    """The help for a triple that code is not made for: the one that was meant, or what there is."""
    written, _, system = triple.partition("-")
    arch = _OTHER_NAMES.get(written, written)
    if arch not in ARCHES:
        return f"objects are made for {', '.join(ARCHES[:-1])} and {ARCHES[-1]}; known are {', '.join(_SHORT)}"
    if _OTHER_SYSTEMS.search(system):
        return f"objects are made for Linux and bare metal: {', '.join(s for s in _SHORT if s.startswith(arch))}"
    if find_triple(f"{arch}-{system}") is not None:
        return f"did you mean `{arch}-{system}`?"
    return did_you_mean(triple, (*_SHORT, *map(str, TRIPLES))) or f"known are {', '.join(_SHORT)}"


def _suggestion(word: str, known: Iterable[str], listed: Iterable[str]) -> str:
    return did_you_mean(word, known) or f"known are {', '.join(listed)}"
