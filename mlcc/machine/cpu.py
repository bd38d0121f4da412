"""CPUs by LLVM's names, and the features that each is known to have."""

from __future__ import annotations

from collections.abc import Iterable

_CORE = frozenset(("sse3", "ssse3", "cx16", "sahf"))
_LEVEL_2 = _CORE | {"sse4.1", "sse4.2", "popcnt", "crc32"}
_FIRST_AVX = _LEVEL_2 | {"avx", "xsave"}
_LEVEL_3 = _LEVEL_2 | {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"}
_LEVEL_3_DOT = _LEVEL_3 | {"avxvnni"}
_LEVEL_4 = _LEVEL_3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_LEVEL_4_DOT = _LEVEL_4 | {"avx512vnni"}
_LEVEL_4_BF16 = _LEVEL_4_DOT | {"avx512bf16"}
_X86_CPUS: dict[str, frozenset[str]] = {
    **dict.fromkeys(("generic", "x86-64", "k8", "opteron", "athlon64", "nocona"), frozenset()),
    **dict.fromkeys(("core2", "penryn", "btver1"), _CORE),
    **dict.fromkeys(("x86-64-v2", "nehalem", "westmere", "silvermont", "goldmont", "tremont"), _LEVEL_2),
    **dict.fromkeys(("sandybridge", "bdver1"), _FIRST_AVX),
    **dict.fromkeys(("ivybridge", "btver2"), _FIRST_AVX | {"f16c"}), "bdver2": _FIRST_AVX | {"f16c", "fma"},
    **dict.fromkeys(
        ("x86-64-v3", "haswell", "broadwell", "skylake", "znver1", "znver2", "znver3"),
        _LEVEL_3,
    ),
    **dict.fromkeys(("alderlake", "raptorlake", "meteorlake", "gracemont"), _LEVEL_3_DOT),
    **dict.fromkeys(
        ("arrowlake", "lunarlake", "pantherlake", "sierraforest", "clearwaterforest"), _LEVEL_3_DOT | {"avxvnniint8"}
    ),
    **dict.fromkeys(("x86-64-v4", "skylake-avx512", "cannonlake"), _LEVEL_4),
    **dict.fromkeys(
        ("cascadelake", "icelake-client", "icelake-server", "tigerlake", "rocketlake"),
        _LEVEL_4_DOT,
    ),
    **dict.fromkeys(
        ("cooperlake", "sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d", "diamondrapids", "znver4",
         "znver5"),
        _LEVEL_4_BF16,
    ),
}  # fmt: skip
_DOT = frozenset(("dotprod",))
_MIXED_DOT = _DOT | {"i8mm"}
_SVE = frozenset(("sve",))
_ARM_CPUS: dict[str, frozenset[str]] = {
    **dict.fromkeys(
        ("generic", "cortex-a35", "cortex-a53", "cortex-a57", "cortex-a72", "cortex-a73", "thunderx2t99"),
        frozenset(),
    ),
    "a64fx": _SVE,
    **dict.fromkeys(
        ("cortex-a55", "cortex-a75", "cortex-a76", "cortex-a77", "cortex-a78", "cortex-x1", "neoverse-e1",
         "neoverse-n1", "tsv110", "apple-m1"),
        _DOT,
    ),
    **dict.fromkeys(
        ("cortex-a710", "cortex-x2", "neoverse-n2", "neoverse-v1", "neoverse-v2", "neoverse-512tvb"),
        _MIXED_DOT | _SVE,
    ),
    **dict.fromkeys(("ampere1", "ampere1a", "apple-m2", "apple-m3"), _MIXED_DOT),
}  # fmt: skip
_ZB = frozenset(("zba", "zbb", "zbs"))
_RISCV_CPUS: dict[str, frozenset[str]] = {  # beyond RV64GC
    **dict.fromkeys(("generic", "generic-rv64", "rocket-rv64", "sifive-u54", "sifive-u74"), frozenset()),
    "sifive-p550": frozenset(("zba", "zbb")),
    "xiangshan-nanhu": _ZB,
    "sifive-p670": _ZB | {"v"},
    "spacemit-x60": _ZB | {"v", "zfh", "zicond", "zvfh", "zvl256b"},
    "sifive-x280": frozenset(("v", "zba", "zbb", "zfh", "zvfh", "zvl512b")),
}
_BASES = {"zvfh": ("v", "zfh"), "zvl256b": ("v",), "zvl512b": ("v", "zvl256b")}  # what an extension builds on
CPUS = {"x86_64": _X86_CPUS, "aarch64": _ARM_CPUS, "riscv64": _RISCV_CPUS}


def features_of(triple: str, cpu: str, features: Iterable[str]) -> frozenset[str]:
    """Return the features that code for a CPU may use (of the listed levels), with the given ones added and removed."""
    enabled = set(CPUS.get(triple.partition("-")[0], {}).get(cpu, ()))
    for feature in features:
        if feature[:1] == "+":
            enabled |= {feature[1:], *_BASES.get(feature[1:], ())}
        elif feature[1:] in ("avx", *_LEVEL_2):  # what builds on it goes with it
            enabled.clear()
        else:
            enabled -= {feature[1:], *(name for name, bases in _BASES.items() if feature[1:] in bases)}
    return frozenset(enabled)


def vector_bytes_of(arch: str, enabled: frozenset[str]) -> int:
    """Return the bytes of the widest vectors of an architecture with these features.

    Without vector instructions, which RISC-V may lack, they are pairs of floats, for code in scalar registers.
    """
    if arch == "riscv64":
        if "v" not in enabled:
            return 8
        return 64 if "zvl512b" in enabled else 32 if "zvl256b" in enabled else 16
    return 64 if "avx512f" in enabled else 32 if "avx" in enabled else 16
