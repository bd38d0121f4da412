"""The tensor intrinsics of dot products by TVM's names: of CPUs (x86, Arm, Hexagon) and of threads of GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

Values = Mapping[str, object]


def dots() -> Iterator[tuple[str, str, Values]]:
    """Return the names, each with its text and the values of its placeholders."""
    yield _dot("dot_16x4_vnni", 16, "uint8", "int8", "int32", _VNNI)
    yield _dot("dot_16x4_avx512", 16, "uint8", "int8", "int32", _AVX512)
    yield _dot("dot_4x4_i8i8s32_neon", 4, "int8", "int8", "int32", _NEON)
    for name, dtype, sums, call in (
        ("i8i8s32_sdot", "int8", "int32", "sdot"), ("u8u8u32_udot", "uint8", "uint32", "udot"),
        ("u8u8i32_hdot", "uint8", "int32", "udot"),
    ):  # fmt: skip
        yield _dot(f"dot_4x4_{name}", 4, dtype, dtype, sums, [line.format(dtype, sums, call) for line in _DOTPROD])
    for scope, mark in (("global", ""), ("global.vtcm", "vtcm_")):
        for right, call, last in (
            ("uint8", "vrmpyub", "words, one"),
            ("int8", "vrmpybusv", "T.Broadcast(one, 32), words"),
        ):
            name = f"dot_32x4_u8{right[0]}8i32_{mark}vrmpy"
            lines = [line.format(right, call, last) for line in _VRMPY]
            yield _dot(name, 32, "uint8", right, "int32", lines, scope)
    yield _dot("dot_product_32x2_i16i16i32_vdmpy", 32, "int16", "int16", "int32", _VDMPY, terms=2)
    for byte in ("uint8", "int8"):
        yield f"dma_read_128_{byte[0]}8", "dma_read", {"dtype": byte}
    bytes_of = {"s": "int8", "u": "uint8"}
    for kinds in ("ss", "us", "su", "uu"):
        left, right = (bytes_of[k] for k in kinds)
        sums = "uint32" if kinds == "uu" else "int32"
        name = f"dp4a_{kinds[0]}8{kinds[1]}8{'u32' if kinds == 'uu' else 's32'}"
        call = f'T.call_pure_extern("{sums}", "__dp4a", A[T.Ramp(0, 1, 4)], B[T.Ramp(0, 1, 4)], T.{sums}(0))'
        yield name, "dot_1", {"left": left, "right": right, "sums": sums, "call": call}
    words = ", ".join(f'T.reinterpret("int32", {x}[T.Ramp(0, 1, 4)])' for x in "AB")
    call = f'T.call_llvm_pure_intrin("int32", "llvm.amdgcn.sdot4", {words}, 0, T.bool(True))'
    yield "sdot4", "dot_1", {"left": "int8", "right": "int8", "sums": "int32", "call": call}


def _dot(
    name: str, lanes: int, left: str, right: str, sums: str, lines: list[str], scope: str = "global", terms: int = 4
) -> tuple[str, str, Values]:
    body = "\n        ".join(lines)
    values = {"lanes": lanes, "terms": terms, "left": left, "right": right, "sums": sums, "scope": scope, "body": body}
    return name, "dot_n", values


_VNNI = [
    "bytes: T.uint8x4 = A[T.Ramp(0, 1, 4)]",
    'one: T.int32 = T.reinterpret("int32", bytes)',
    "row: T.int8x64 = B[0, T.Ramp(0, 1, 64)]",
    'words: T.int32x16 = T.reinterpret("int32x16", row)',
    "sums: T.int32x16 = C[T.Ramp(0, 1, 16)]",
    "C[T.Ramp(0, 1, 16)] = T.call_llvm_pure_intrin(",
    '    "int32x16", "llvm.x86.avx512.vpdpbusd.512", sums, T.Broadcast(one, 16), words',
    ")",
]
_AVX512 = [
    "bytes: T.uint8x4 = A[T.Ramp(0, 1, 4)]",
    'one: T.int32 = T.reinterpret("int32", bytes)',
    "all: T.int32x16 = T.Broadcast(one, 16)",
    'left: T.uint8x64 = T.reinterpret("uint8x64", all)',
    "right: T.int8x64 = B[0, T.Ramp(0, 1, 64)]",
    'pairs: T.int16x32 = T.call_llvm_pure_intrin("int16x32", "llvm.x86.avx512.pmaddubs.w.512", left, right)',
    "C[T.Ramp(0, 1, 16)] = C[T.Ramp(0, 1, 16)] + T.call_llvm_pure_intrin(",
    '    "int32x16", "llvm.x86.avx512.pmaddw.d.512", pairs, T.Broadcast(T.int16(1), 32)',
    ")",
]
_DOTPROD = [
    "bytes: T.{0}x4 = A[T.Ramp(0, 1, 4)]",
    'one: T.{1} = T.reinterpret("{1}", bytes)',
    "all: T.{1}x4 = T.Broadcast(one, 4)",
    'left: T.{0}x16 = T.reinterpret("{0}x16", all)',
    "right: T.{0}x16 = B[0, T.Ramp(0, 1, 16)]",
    "sums: T.{1}x4 = C[T.Ramp(0, 1, 4)]",
    'C[T.Ramp(0, 1, 4)] = T.call_llvm_pure_intrin("{1}x4", "llvm.aarch64.neon.{2}", sums, left, right)',
]
_NEON = [
    "bytes: T.int8x4 = A[T.Ramp(0, 1, 4)]",
    'one: T.int32 = T.reinterpret("int32", bytes)',
    "two: T.int32x2 = T.Broadcast(one, 2)",
    'left: T.int8x8 = T.reinterpret("int8x8", two)',
    "right: T.int8x16 = B[0, T.Ramp(0, 1, 16)]",
    'low: T.int8x8 = T.vectorlow("int8x8", right)',
    'low_products: T.int16x8 = T.call_llvm_pure_intrin("int16x8", "llvm.aarch64.neon.smull", left, low)',
    'low_pairs: T.int32x4 = T.call_llvm_pure_intrin("int32x4", "llvm.aarch64.neon.saddlp", low_products)',
    'high: T.int8x8 = T.vectorhigh("int8x8", right)',
    'high_products: T.int16x8 = T.call_llvm_pure_intrin("int16x8", "llvm.aarch64.neon.smull", left, high)',
    'high_pairs: T.int32x4 = T.call_llvm_pure_intrin("int32x4", "llvm.aarch64.neon.saddlp", high_products)',
    "C[T.Ramp(0, 1, 4)] = C[T.Ramp(0, 1, 4)] + T.call_llvm_pure_intrin(",
    '    "int32x4", "llvm.aarch64.neon.addp", low_pairs, high_pairs',
    ")",
]
_VRMPY = [
    "bytes: T.uint8x4 = A[T.Ramp(0, 1, 4)]",
    'one: T.int32 = T.reinterpret("int32", bytes)',
    "row: T.{0}x128 = B[0, T.Ramp(0, 1, 128)]",
    'words: T.int32x32 = T.reinterpret("int32x32", row)',
    "C[T.Ramp(0, 1, 32)] = T.call_llvm_pure_intrin(",
    '    "int32x32", "llvm.hexagon.V6.{1}.acc.128B", C[T.Ramp(0, 1, 32)], {2}',
    ")",
]
_VDMPY = [
    "pair: T.int16x2 = A[T.Ramp(0, 1, 2)]",
    'one: T.int32 = T.reinterpret("int32", pair)',
    "row: T.int16x64 = B[0, T.Ramp(0, 1, 64)]",
    'words: T.int32x32 = T.reinterpret("int32x32", row)',
    "C[T.Ramp(0, 1, 32)] = T.call_llvm_pure_intrin(",
    '    "int32x32", "llvm.hexagon.V6.vdmpyhvsat.acc.128B", C[T.Ramp(0, 1, 32)], T.Broadcast(one, 32), words',
    ")",
]
