"""What a machine must have to run code for a named CPU: more than code generation counts on.

LLVM may use every instruction of the CPU that it is told of. An artifact lists these features, so that a machine
without them refuses it before it runs.
"""

from __future__ import annotations

from mlcc.targets.llvm.compile import Machine

_V2 = "sse3 ssse3 sse4.1 sse4.2 popcnt cx16 sahf"
_V3 = f"{_V2} avx avx2 bmi bmi2 f16c fma lzcnt movbe xsave"
_V4 = f"{_V3} avx512f avx512bw avx512cd avx512dq avx512vl"
_ICE = f"{_V4} avx512ifma avx512vbmi avx512vbmi2 avx512vnni avx512bitalg avx512vpopcntdq gfni vaes vpclmulqdq"
_SAPPHIRE = f"{_ICE} avx512bf16 avx512fp16 avxvnni"
_ALDER = f"{_V3} avxvnni gfni vaes vpclmulqdq"
_ARROW = f"{_ALDER} avxifma avxneconvert avxvnniint8"
_V8_2 = "lse rdm"
_V8_4 = f"{_V8_2} dotprod fullfp16"
_SVE = f"{_V8_4} sve"

_GROUPS: tuple[tuple[str, str], ...] = (
    ("core2", "sse3 ssse3 cx16 sahf"), ("penryn", "sse3 ssse3 sse4.1 cx16 sahf"), ("nocona", "sse3 cx16"),
    ("x86-64-v2 nehalem westmere silvermont goldmont tremont", _V2),
    ("btver1", "sse3 ssse3 sse4a popcnt cx16 sahf lzcnt"),
    ("sandybridge", f"{_V2} avx xsave"), ("ivybridge", f"{_V2} avx f16c xsave"),
    ("bdver1", f"{_V2} avx fma4 xop sse4a lzcnt xsave"),
    ("bdver2", f"{_V2} avx fma4 xop fma f16c bmi sse4a lzcnt xsave"),
    ("btver2", f"{_V2} avx f16c bmi sse4a movbe lzcnt xsave"),
    ("x86-64-v3 haswell broadwell skylake", _V3), ("znver1 znver2", f"{_V3} sse4a sha"),
    ("znver3", f"{_V3} sse4a sha vaes vpclmulqdq"),
    ("alderlake raptorlake meteorlake gracemont", _ALDER),
    ("arrowlake lunarlake pantherlake sierraforest clearwaterforest", _ARROW),
    ("x86-64-v4 skylake-avx512", _V4), ("cascadelake", f"{_V4} avx512vnni"),
    ("cooperlake", f"{_V4} avx512vnni avx512bf16"), ("cannonlake", f"{_V4} avx512ifma avx512vbmi"),
    ("icelake-client icelake-server tigerlake rocketlake", _ICE),
    ("sapphirerapids emeraldrapids graniterapids graniterapids-d diamondrapids", _SAPPHIRE),
    ("znver4", f"{_ICE} avx512bf16 sse4a"), ("znver5", f"{_ICE} avx512bf16 avxvnni sse4a"),
    ("cortex-a55 cortex-a75 cortex-a76 cortex-a77 cortex-a78 cortex-x1 neoverse-e1 neoverse-n1 tsv110", _V8_4),
    ("thunderx2t99", _V8_2), ("apple-m1", _V8_4), ("ampere1 ampere1a apple-m2 apple-m3", f"{_V8_4} bf16 i8mm"),
    ("a64fx", f"{_V8_2} fullfp16 sve"), ("neoverse-v1 neoverse-512tvb", f"{_SVE} bf16 i8mm"),
    ("cortex-a710 cortex-x2 neoverse-n2 neoverse-v2", f"{_SVE} sve2 bf16 i8mm"),
)  # fmt: skip
_NEEDS = {cpu: frozenset(features.split()) for cpus, features in _GROUPS for cpu in cpus.split()}


def needed(machine: Machine) -> frozenset[str]:
    """LLVM's names of the features that code for a machine may use beyond the architecture's baseline."""
    made = set(_NEEDS.get(machine.cpu, ())) | machine.enabled
    for feature in machine.features:
        if feature.startswith("+"):
            made.add(feature[1:])
        else:
            made.discard(feature[1:])
    return frozenset(made)
