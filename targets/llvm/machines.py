"""The machines that objects are made for: triples, CPUs and features that may reach LLVM.

LLVM reports what it cannot do by ending the process (an x86-64 without SSE2, say), so only what is listed passes.
"""

from __future__ import annotations

from collections.abc import Iterable

from mlcc.errors import CompileError, did_you_mean, error

_SHORT_TRIPLES = {
    "x86_64-linux-gnu": "x86_64-unknown-linux-gnu", "x86_64-pc-linux-gnu": "x86_64-unknown-linux-gnu",
    "aarch64-linux-gnu": "aarch64-unknown-linux-gnu",
}  # fmt: skip
TRIPLES = ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu")

BASELINES = {"x86_64": "x86-64", "aarch64": "generic"}  # the CPUs with nothing beyond their architecture

_CORE = frozenset(("sse3", "ssse3", "cx16", "sahf"))
_LEVEL_2 = _CORE | {"sse4.1", "sse4.2", "popcnt", "crc32"}
_FIRST_AVX = _LEVEL_2 | {"avx", "xsave"}
_LEVEL_3 = _LEVEL_2 | {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"}
_LEVEL_4 = _LEVEL_3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_X86_CPUS: dict[str, frozenset[str]] = {
    **dict.fromkeys(("generic", "x86-64", "k8", "opteron", "athlon64", "nocona"), frozenset()),
    **dict.fromkeys(("core2", "penryn", "btver1"), _CORE),
    **dict.fromkeys(("x86-64-v2", "nehalem", "westmere", "silvermont", "goldmont", "tremont"), _LEVEL_2),
    **dict.fromkeys(("sandybridge", "bdver1"), _FIRST_AVX),
    **dict.fromkeys(("ivybridge", "btver2"), _FIRST_AVX | {"f16c"}), "bdver2": _FIRST_AVX | {"f16c", "fma"},
    **dict.fromkeys(
        ("x86-64-v3", "haswell", "broadwell", "skylake", "alderlake", "raptorlake", "meteorlake", "arrowlake",
         "lunarlake", "pantherlake", "gracemont", "sierraforest", "clearwaterforest", "znver1", "znver2", "znver3"),
        _LEVEL_3,
    ),
    **dict.fromkeys(
        ("x86-64-v4", "skylake-avx512", "cascadelake", "cooperlake", "cannonlake", "icelake-client", "icelake-server",
         "tigerlake", "rocketlake", "sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d",
         "diamondrapids", "znver4", "znver5"),
        _LEVEL_4,
    ),
}  # fmt: skip
_ARM_CPUS: dict[str, frozenset[str]] = dict.fromkeys(
    ("generic", "cortex-a35", "cortex-a53", "cortex-a55", "cortex-a57", "cortex-a72", "cortex-a73", "cortex-a75",
     "cortex-a76", "cortex-a77", "cortex-a78", "cortex-a710", "cortex-x1", "cortex-x2", "neoverse-e1", "neoverse-n1",
     "neoverse-n2", "neoverse-v1", "neoverse-v2", "neoverse-512tvb", "a64fx", "ampere1", "ampere1a", "thunderx2t99",
     "tsv110", "apple-m1", "apple-m2", "apple-m3"),
    frozenset(),
)  # fmt: skip
CPUS = {"x86_64": _X86_CPUS, "aarch64": _ARM_CPUS}

# what may be switched on and off; the baseline of each architecture is not among it
FEATURES = {
    "x86_64": (
        "adx", "aes", "avx", "avx2", "avx512bf16", "avx512bitalg", "avx512bw", "avx512cd", "avx512dq", "avx512f",
        "avx512fp16", "avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512vl", "avx512vnni", "avx512vpopcntdq", "avxifma",
        "avxneconvert", "avxvnni", "avxvnniint16", "avxvnniint8", "bmi", "bmi2", "crc32", "cx16", "f16c", "fma", "fma4",
        "gfni", "lzcnt", "movbe", "pclmul", "popcnt", "prfchw", "sahf", "sha", "sse3", "sse4.1", "sse4.2", "sse4a",
        "ssse3", "vaes", "vpclmulqdq", "xop", "xsave",
    ),
    "aarch64": ("bf16", "crc", "dotprod", "fullfp16", "i8mm", "lse", "rdm", "sve", "sve2"),
}  # fmt: skip


def normal_triple(triple: str) -> str:
    """The triple in LLVM's full form, where a short one is known."""
    return _SHORT_TRIPLES.get(triple, triple)


def check(triple: str, cpu: str, features: Iterable[str]) -> None:
    """Raises CompileError for what is not listed, with the nearest name."""
    if triple not in TRIPLES:
        known = (*TRIPLES, *_SHORT_TRIPLES)
        raise CompileError(error("E0705", f"unknown triple `{triple}`", help=_nearest(triple, known, TRIPLES)))
    arch = triple.partition("-")[0]
    if cpu not in CPUS[arch]:
        raise CompileError(
            error("E0706", f"unknown CPU `{cpu}` for {arch}", help=_nearest(cpu, CPUS[arch], CPUS[arch]))
        )
    for feature in features:
        name = feature[1:]
        if feature[:1] not in ("+", "-") or name not in FEATURES[arch]:
            help = _nearest(name, FEATURES[arch], FEATURES[arch])
            raise CompileError(error("E0706", f"unknown feature `{feature}` for {arch}", help=help))


def _nearest(word: str, known: Iterable[str], listed: Iterable[str]) -> str:
    return did_you_mean(word, known) or f"known are {', '.join(listed)}"


def features_of(triple: str, cpu: str, features: Iterable[str]) -> frozenset[str]:
    """What code for the CPU may use (the listed levels), with the given features added and removed."""
    enabled = set(CPUS.get(triple.partition("-")[0], {}).get(cpu, ()))
    for feature in features:
        if feature[:1] == "+":
            enabled.add(feature[1:])
        elif feature[1:] in ("avx", *_LEVEL_2):  # what builds on it goes with it
            enabled.clear()
        else:
            enabled.discard(feature[1:])
    return frozenset(enabled)
