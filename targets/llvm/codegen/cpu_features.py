"""LLVM IR that finds out which features the CPU has and the operating system lets programs use.

x86-64 is asked by `cpuid`, and by `xgetbv` whether the system keeps vectors of 32 and 64 bytes; Linux tells what an
AArch64 has in the auxiliary vector (AT_HWCAP, AT_HWCAP2).
"""

from __future__ import annotations

from collections.abc import Collection

from mlcc.targets.llvm.codegen.ir_text import ModuleText

LAST_BLOCK = "asked"  # the block that the words are known in

# the word and the bit of each feature; words of x86-64 are registers that leaves of cpuid give
_X86 = {
    **dict.fromkeys(("sse3",), ("l1.c", 0)), "pclmul": ("l1.c", 1), "ssse3": ("l1.c", 9), "fma": ("l1.c", 12),
    "cx16": ("l1.c", 13), "sse4.1": ("l1.c", 19), "sse4.2": ("l1.c", 20), "crc32": ("l1.c", 20), "movbe": ("l1.c", 22),
    "popcnt": ("l1.c", 23), "aes": ("l1.c", 25), "xsave": ("l1.c", 26), "avx": ("l1.c", 28), "f16c": ("l1.c", 29),
    "bmi": ("l7.b", 3), "avx2": ("l7.b", 5), "bmi2": ("l7.b", 8), "avx512f": ("l7.b", 16), "avx512dq": ("l7.b", 17),
    "adx": ("l7.b", 19), "avx512ifma": ("l7.b", 21), "avx512cd": ("l7.b", 28), "sha": ("l7.b", 29),
    "avx512bw": ("l7.b", 30), "avx512vl": ("l7.b", 31),
    "avx512vbmi": ("l7.c", 1), "avx512vbmi2": ("l7.c", 6), "gfni": ("l7.c", 8), "vaes": ("l7.c", 9),
    "vpclmulqdq": ("l7.c", 10), "avx512vnni": ("l7.c", 11), "avx512bitalg": ("l7.c", 12),
    "avx512vpopcntdq": ("l7.c", 14), "avx512fp16": ("l7.d", 23),
    "avxvnni": ("l71.a", 4), "avx512bf16": ("l71.a", 5), "avxifma": ("l71.a", 23),
    "avxvnniint8": ("l71.d", 4), "avxneconvert": ("l71.d", 5), "avxvnniint16": ("l71.d", 10),
    "sahf": ("x1.c", 0), "lzcnt": ("x1.c", 5), "sse4a": ("x1.c", 6), "prfchw": ("x1.c", 8), "xop": ("x1.c", 11),
    "fma4": ("x1.c", 16),
}  # fmt: skip
_YMM, _ZMM = 0x6, 0xE6  # what xgetbv has to say for vectors of 32 bytes, and for those of 64 with their masks
_ARM = {
    "crc": ("cap", 7), "lse": ("cap", 8), "fullfp16": ("cap", 9), "rdm": ("cap", 12), "dotprod": ("cap", 20),
    "sve": ("cap", 22), "sve2": ("cap2", 1), "i8mm": ("cap2", 13), "bf16": ("cap2", 14),
}  # fmt: skip
_AT_HWCAP, _AT_HWCAP2 = 16, 26
_WIDE = frozenset(("avx", "fma", "f16c", "fma4", "xop"))  # beside all whose names begin so


_CPUID = (
    'call { i32, i32, i32, i32 } asm sideeffect "cpuid", '
    '"={ax},={bx},={cx},={dx},{ax},{cx},~{dirflag},~{fpsr},~{flags}"'
)
_EXTENDED = -1 << 31  # as i32: the leaves from 0x80000000 on
_LEAVES = (("l0", 0, 0), ("l1", 1, 0), ("l7", 7, 0), ("l71", 7, 1), ("x0", _EXTENDED, 0), ("x1", _EXTENDED + 1, 0))


def words_text(module: ModuleText, arch: str) -> list[str]:
    """The lines that ask the CPU; they leave each word in a value of its name, in the block `LAST_BLOCK`."""
    if arch != "x86_64":
        get = module.declare("getauxval", "i64", ["i64"])
        return [
            f"  %cap = call i64 {get}(i64 {_AT_HWCAP})", f"  %cap2 = call i64 {get}(i64 {_AT_HWCAP2})",
            f"  br label %{LAST_BLOCK}", f"{LAST_BLOCK}:",
        ]  # fmt: skip
    lines = [f"  %{name} = {_CPUID}(i32 {leaf}, i32 {part})" for name, leaf, part in _LEAVES]
    for name, of, register in (("max", "l0", 0), ("sub", "l7", 0), ("ext", "x0", 0)):
        lines.append(f"  %{name} = extractvalue {{ i32, i32, i32, i32 }} %{of}, {register}")
    lines += [
        "  %has.l1 = icmp uge i32 %max, 1",
        "  %has.l7 = icmp uge i32 %max, 7",
        "  %has.sub = icmp uge i32 %sub, 1",
        "  %has.l71 = and i1 %has.l7, %has.sub",
        f"  %has.x1 = icmp uge i32 %ext, {_EXTENDED + 1}",
    ]
    for word in dict.fromkeys(word for word, _ in _X86.values()):
        of, _, letter = word.partition(".")
        lines += [
            f"  %{word}.raw = extractvalue {{ i32, i32, i32, i32 }} %{of}, {'abcd'.index(letter)}",
            f"  %{word} = select i1 %has.{of}, i32 %{word}.raw, i32 0",
        ]
    return [
        *lines,
        f"  %osxsave = and i32 %l1.c, {1 << 27}",
        "  %keeps = icmp ne i32 %osxsave, 0",
        f"  br i1 %keeps, label %state, label %{LAST_BLOCK}",
        "state:",
        '  %both = call { i32, i32 } asm sideeffect "xgetbv", "={ax},={dx},{cx},~{dirflag},~{fpsr},~{flags}"(i32 0)',
        "  %low = extractvalue { i32, i32 } %both, 0",
        f"  br label %{LAST_BLOCK}",
        f"{LAST_BLOCK}:",
        "  %kept = phi i32 [ 0, %entry ], [ %low, %state ]",
    ]


def test_text(arch: str, features: Collection[str], name: str) -> list[str]:
    """The lines that leave in `name` whether the CPU has all of some features."""
    table, type = (_X86, "i32") if arch == "x86_64" else (_ARM, "i64")
    masks: dict[str, int] = {}
    for feature in sorted(features):
        word, bit = table[feature]
        masks[word] = masks.get(word, 0) | 1 << bit
    if arch == "x86_64":
        wide = [f for f in features if f.startswith("avx") or f in _WIDE]
        state = _ZMM if any(f.startswith("avx512") for f in wide) else _YMM if wide else 0
        masks["kept"] = state
    lines, before = [], "true"
    for number, (word, mask) in enumerate(masks.items()):
        at = f"%{name}.{number}"
        lines += [
            f"  {at}.bits = and {type} %{word}, {mask}",
            f"  {at}.all = icmp eq {type} {at}.bits, {mask}",
            f"  {at} = and i1 {before}, {at}.all",
        ]
        before = at
    return [*lines, f"  %{name} = and i1 {before}, true"]
