"""Programs, before any step, for the comparison of caches; written in TVM's dialect."""

from __future__ import annotations


def func(body: str, *params: str) -> str:
    listed = ", ".join(params) or 'A: T.Buffer((64, 48), "float32"), D: T.Buffer((64, 48), "float32")'
    lines = "".join(f"    {line}\n" for line in body.strip("\n").splitlines())
    return f"@T.prim_func(s_tir=True)\ndef main({listed}):\n{lines}"


IO = ('A: T.Buffer((64, 48), "float32")', 'D: T.Buffer((64, 48), "float32")')

PROGRAMS: dict[str, str] = {
    "chain": func("""
B = T.sblock_alloc_buffer((64, 48))
C = T.sblock_alloc_buffer((64, 48))
for i, j in T.grid(64, 48):
    with T.sblock("B"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi, vj] = A[vi, vj] * T.float32(2)
for i, j in T.grid(64, 48):
    with T.sblock("C"):
        vi, vj = T.axis.remap("SS", [i, j])
        C[vi, vj] = B[vi, vj] + A[vi, vj]
for i, j in T.grid(64, 48):
    with T.sblock("D"):
        vi, vj = T.axis.remap("SS", [i, j])
        D[vi, vj] = B[vi, vj] + C[vi, vj]
"""),
    "one statement": func("""
for i, j in T.grid(64, 48):
    with T.sblock("D"):
        vi, vj = T.axis.remap("SS", [i, j])
        D[vi, vj] = A[vi, vj] * T.float32(2)
"""),
    "matmul relu": func("""
C = T.sblock_alloc_buffer((32, 16))
for i, j, k in T.grid(32, 16, 24):
    with T.sblock("C"):
        vi, vj, vk = T.axis.remap("SSR", [i, j, k])
        with T.init():
            C[vi, vj] = T.float32(0)
        C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
for i, j in T.grid(32, 16):
    with T.sblock("D"):
        vi, vj = T.axis.remap("SS", [i, j])
        D[vi, vj] = T.max(C[vi, vj], T.float32(0))
""", 'A: T.Buffer((32, 24), "float32")', 'B: T.Buffer((24, 16), "float32")', 'D: T.Buffer((32, 16), "float32")'),
    "under one loop": func("""
B = T.sblock_alloc_buffer((64, 48))
for i in range(64):
    for j in range(48):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for j in range(48):
        with T.sblock("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = B[vi, vj] + T.float32(1)
"""),
    "tiles under one loop": func("""
B = T.sblock_alloc_buffer((64, 48))
for i0, j0 in T.grid(4, 3):
    for i, j in T.grid(16, 16):
        with T.sblock("B"):
            vi = T.axis.spatial(64, i0 * 16 + i)
            vj = T.axis.spatial(48, j0 * 16 + j)
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j in T.grid(16, 16):
        with T.sblock("D"):
            vi = T.axis.spatial(64, i0 * 16 + i)
            vj = T.axis.spatial(48, j0 * 16 + j)
            D[vi, vj] = B[vi, vj] + T.float32(1)
"""),
    "three below, one beyond": func("""
B = T.sblock_alloc_buffer((64, 48))
C = T.sblock_alloc_buffer((64, 48))
E = T.sblock_alloc_buffer((64, 48))
for i in range(64):
    for j in range(48):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for j in range(48):
        with T.sblock("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] + T.float32(1)
    for j in range(48):
        with T.sblock("E"):
            vi, vj = T.axis.remap("SS", [i, j])
            E[vi, vj] = B[vi, vj] - C[vi, vj]
for i, j in T.grid(64, 48):
    with T.sblock("D"):
        vi, vj = T.axis.remap("SS", [i, j])
        D[vi, vj] = E[vi, vj] + B[vi, vj]
"""),
    "halo": func("""
B = T.sblock_alloc_buffer((66, 48))
for i0 in range(8):
    for i, j in T.grid(10, 48):
        with T.sblock("B"):
            vi = T.axis.spatial(66, i0 * 8 + i)
            vj = T.axis.spatial(48, j)
            B[vi, vj] = T.if_then_else(0 < vi and vi < 65, A[vi - 1, vj], T.float32(0))
    for i, j, k in T.grid(8, 48, 3):
        with T.sblock("D"):
            vi = T.axis.spatial(64, i0 * 8 + i)
            vj, vk = T.axis.remap("SR", [j, k])
            with T.init():
                D[vi, vj] = T.float32(0)
            D[vi, vj] = D[vi, vj] + B[vi + vk, vj]
"""),
    "predicate": func("""
B = T.sblock_alloc_buffer((64, 48))
for i0, i1, j in T.grid(7, 10, 48):
    with T.sblock("B"):
        T.where(i0 * 10 + i1 < 64)
        vi = T.axis.spatial(64, i0 * 10 + i1)
        vj = T.axis.spatial(48, j)
        B[vi, vj] = A[vi, vj] * T.float32(2)
for i0, i1, j in T.grid(7, 10, 48):
    with T.sblock("D"):
        T.where(i0 * 10 + i1 < 64)
        vi = T.axis.spatial(64, i0 * 10 + i1)
        vj = T.axis.spatial(48, j)
        D[vi, vj] = B[vi, vj] + T.float32(1)
"""),
    "blocks in blocks": func("""
B = T.sblock_alloc_buffer((64, 48))
for i0, j0 in T.grid(4, 3):
    with T.sblock("B_o"):
        vio, vjo = T.axis.remap("SS", [i0, j0])
        T.reads(A[vio * 16:vio * 16 + 16, vjo * 16:vjo * 16 + 16])
        T.writes(B[vio * 16:vio * 16 + 16, vjo * 16:vjo * 16 + 16])
        for i, j in T.grid(16, 16):
            with T.sblock("B"):
                vi = T.axis.spatial(64, vio * 16 + i)
                vj = T.axis.spatial(48, vjo * 16 + j)
                B[vi, vj] = A[vi, vj] * T.float32(2)
for i0, j0 in T.grid(4, 3):
    with T.sblock("D_o"):
        vio, vjo = T.axis.remap("SS", [i0, j0])
        T.reads(B[vio * 16:vio * 16 + 16, vjo * 16:vjo * 16 + 16])
        T.writes(D[vio * 16:vio * 16 + 16, vjo * 16:vjo * 16 + 16])
        C = T.sblock_alloc_buffer((64, 48))
        for i, j in T.grid(16, 16):
            with T.sblock("C"):
                vi = T.axis.spatial(64, vio * 16 + i)
                vj = T.axis.spatial(48, vjo * 16 + j)
                C[vi, vj] = B[vi, vj] * T.float32(2)
        for i, j in T.grid(16, 16):
            with T.sblock("D"):
                vi = T.axis.spatial(64, vio * 16 + i)
                vj = T.axis.spatial(48, vjo * 16 + j)
                D[vi, vj] = C[vi, vj] * T.float32(2) + B[vi, vj]
"""),
    "nested predicates": func("""
for i0, j0 in T.grid(4, 3):
    with T.sblock("D_o"):
        vio, vjo = T.axis.remap("SS", [i0, j0])
        T.reads(A[vio * 16:vio * 16 + 16, vjo * 16:vjo * 16 + 16])
        T.writes(D[vio * 16:vio * 16 + 16, vjo * 16:vjo * 16 + 16])
        for i, j in T.grid(16, 16):
            with T.sblock("D"):
                T.where(vio < 3 and vjo * 16 + j < 40)
                vi = T.axis.spatial(64, vio * 16 + i)
                vj = T.axis.spatial(48, vjo * 16 + j)
                D[vi, vj] = A[vi, vj] * T.float32(2)
"""),
    "nested predicates, outer variables only": func("""
for i0, j0 in T.grid(4, 3):
    with T.sblock("D_o"):
        vio, vjo = T.axis.remap("SS", [i0, j0])
        T.reads(A[vio * 16:vio * 16 + 16, vjo * 16:vjo * 16 + 16])
        T.writes(D[vio * 16:vio * 16 + 16, vjo * 16:vjo * 16 + 16])
        for i, j in T.grid(16, 16):
            with T.sblock("D"):
                T.where(vio < 3)
                vi = T.axis.spatial(64, vio * 16 + i)
                vj = T.axis.spatial(48, vjo * 16 + j)
                D[vi, vj] = A[vi, vj] * T.float32(2)
"""),
    "blockized reduction": func("""
for i0, j0, k0 in T.grid(2, 2, 3):
    with T.sblock("C_o"):
        vio, vjo, vko = T.axis.remap("SSR", [i0, j0, k0])
        T.reads(A[vio * 16:vio * 16 + 16, vko * 8:vko * 8 + 8], B[vko * 8:vko * 8 + 8, vjo * 8:vjo * 8 + 8])
        T.writes(C[vio * 16:vio * 16 + 16, vjo * 8:vjo * 8 + 8])
        with T.init():
            for i, j in T.grid(16, 8):
                with T.sblock("C_init"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.reads()
                    T.writes(C[vio * 16 + vi, vjo * 8 + vj])
                    C[vio * 16 + vi, vjo * 8 + vj] = T.float32(0)
        for i, j, k in T.grid(16, 8, 8):
            with T.sblock("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                C[vio * 16 + vi, vjo * 8 + vj] = (
                    C[vio * 16 + vi, vjo * 8 + vj] + A[vio * 16 + vi, vko * 8 + vk] * B[vko * 8 + vk, vjo * 8 + vj]
                )
""", 'A: T.Buffer((32, 24), "float32")', 'B: T.Buffer((24, 16), "float32")', 'C: T.Buffer((32, 16), "float32")'),
    "matched": func("""
for i0, j0 in T.grid(4, 3):
    with T.sblock("D"):
        vi, vj = T.axis.remap("SS", [i0, j0])
        T.reads(A[vi * 16:vi * 16 + 16, vj * 16:vj * 16 + 16])
        T.writes(D[vi * 16:vi * 16 + 16, vj * 16:vj * 16 + 16])
        X = T.match_buffer(A[vi * 16:vi * 16 + 16, vj * 16:vj * 16 + 16], (16, 16), offset_factor=1,
                           strides=[T.int32(), T.int32()])
        Y = T.match_buffer(D[vi * 16:vi * 16 + 16, vj * 16:vj * 16 + 16], (16, 16), offset_factor=1,
                           strides=[T.int32(), T.int32()])
        for i, j in T.grid(16, 16):
            Y[i, j] = X[i, j] * T.float32(2)
"""),
    "opaque": func("""
B = T.sblock_alloc_buffer((64, 48))
for i, j in T.grid(64, 48):
    with T.sblock("B"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi, vj] = A[vi, vj]
for i in range(1):
    with T.sblock("D"):
        T.reads(B[0:64, 0:48])
        T.writes(D[0:64, 0:48])
        T.evaluate(T.call_extern("int32", "f", B.data, D.data))
"""),
    "in place": func("""
for i, j in T.grid(64, 48):
    with T.sblock("D"):
        vi, vj = T.axis.remap("SS", [i, j])
        T.reads(D[vi, vj], A[vi, vj])
        T.writes(D[vi, vj])
        D[vi, vj] = D[vi, vj] + A[vi, vj]
"""),
    "two writers": func("""
B = T.sblock_alloc_buffer((64, 48))
for i, j in T.grid(32, 48):
    with T.sblock("B0"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi, vj] = A[vi, vj]
for i, j in T.grid(32, 48):
    with T.sblock("B1"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi + 32, vj] = A[vi, vj]
for i, j in T.grid(64, 48):
    with T.sblock("D"):
        vi, vj = T.axis.remap("SS", [i, j])
        D[vi, vj] = B[vi, vj]
"""),
    "not covered": func("""
B = T.sblock_alloc_buffer((64, 48))
for i, j in T.grid(32, 48):
    with T.sblock("B"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi, vj] = A[vi, vj]
for i, j in T.grid(64, 48):
    with T.sblock("D"):
        vi, vj = T.axis.remap("SS", [i, j])
        D[vi, vj] = B[vi, vj]
"""),
    "a part": func("""
B = T.sblock_alloc_buffer((64, 48))
for i, j in T.grid(32, 16):
    with T.sblock("B"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi + 8, vj * 2] = A[vi, vj]
for i, j in T.grid(32, 16):
    with T.sblock("D"):
        vi, vj = T.axis.remap("SS", [i, j])
        D[vi, vj] = B[vi + 8, vj * 2]
"""),
    "shifted part": func("""
B = T.sblock_alloc_buffer((64, 48))
for i, j in T.grid(32, 16):
    with T.sblock("B"):
        vi = T.axis.spatial(64, i + 8)
        vj = T.axis.spatial(48, j + 4)
        B[vi, vj] = A[vi, vj]
for i, j in T.grid(32, 16):
    with T.sblock("D"):
        vi, vj = T.axis.remap("SS", [i, j])
        D[vi, vj] = B[vi + 8, vj + 4]
"""),
    "two reads": func("""
B = T.sblock_alloc_buffer((65, 48))
for i, j in T.grid(65, 48):
    with T.sblock("B"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi, vj] = A[vi % 64, vj]
for i, j in T.grid(64, 48):
    with T.sblock("D"):
        vi, vj = T.axis.remap("SS", [i, j])
        D[vi, vj] = B[vi, vj] + B[vi + 1, vj]
"""),
    "int64": func("""
C = T.sblock_alloc_buffer((T.int64(32), T.int64(16)))
for i, j in T.grid(T.int64(32), T.int64(16)):
    with T.sblock("C"):
        vi, vj = T.axis.remap("SS", [i, j])
        C[vi, vj] = A[vj, vi]
for i, j in T.grid(T.int64(32), T.int64(16)):
    with T.sblock("D"):
        vi, vj = T.axis.remap("SS", [i, j])
        D[vi, vj] = C[vi, vj]
""", 'A: T.Buffer((T.int64(16), T.int64(32)), "float32")', 'D: T.Buffer((T.int64(32), T.int64(16)), "float32")'),
    "scalar": func("""
for k in range(64):
    with T.sblock("S"):
        vk = T.axis.reduce(64, k)
        with T.init():
            S[()] = T.float32(0)
        S[()] = S[()] + A[vk]
""", 'A: T.Buffer((64,), "float32")', 'S: T.Buffer((), "float32")'),
    "symbolic": """
@T.prim_func(s_tir=True)
def main(a: T.handle, d: T.handle):
    n = T.int32()
    A = T.match_buffer(a, (n, 48))
    D = T.match_buffer(d, (n, 48))
    B = T.sblock_alloc_buffer((n, 48))
    for i, j in T.grid(n, 48):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj]
    for i, j in T.grid(n, 48):
        with T.sblock("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = B[vi, vj]
""",
    "threads": func("""
B = T.sblock_alloc_buffer((64, 48), scope="shared")
for b in T.thread_binding(4, thread="blockIdx.x"):
    for t in T.thread_binding(16, thread="threadIdx.x"):
        for j in range(48):
            with T.sblock("B"):
                vi = T.axis.spatial(64, b * 16 + t)
                vj = T.axis.spatial(48, j)
                B[vi, vj] = A[vi, vj]
        for j in range(48):
            with T.sblock("D"):
                vi = T.axis.spatial(64, b * 16 + t)
                vj = T.axis.spatial(48, j)
                vb = T.axis.spatial(4, b)
                D[vi, vj] = B[vb * 16, vj]
"""),
    "two outputs": func("""
B = T.sblock_alloc_buffer((64, 48))
C = T.sblock_alloc_buffer((64, 48))
for i, j in T.grid(64, 48):
    with T.sblock("BC"):
        vi, vj = T.axis.remap("SS", [i, j])
        B[vi, vj] = A[vi, vj]
        C[vi, vj] = A[vi, vj] * T.float32(2)
for i, j in T.grid(64, 48):
    with T.sblock("E"):
        vi, vj = T.axis.remap("SS", [i, j])
        E[vi, vj] = C[vi, vj]
for i, j in T.grid(64, 48):
    with T.sblock("D"):
        vi, vj = T.axis.remap("SS", [i, j])
        D[vi, vj] = B[vi, vj] + C[vi, vj]
""", *IO, 'E: T.Buffer((64, 48), "float32")'),
    "indirect": func("""
for i, j in T.grid(64, 48):
    with T.sblock("D"):
        vi, vj = T.axis.remap("SS", [i, j])
        T.reads(A[0:64, vj], P[vi])
        T.writes(D[vi, vj])
        D[vi, vj] = A[P[vi], vj]
""", *IO, 'P: T.Buffer((64,), "int32")'),
    "reads its reader": func("""
B = T.sblock_alloc_buffer((64, 48))
for i, j in T.grid(64, 48):
    with T.sblock("E"):
        vi, vj = T.axis.remap("SS", [i, j])
        E[vi, vj] = D[vi, vj]
for i, j in T.grid(64, 48):
    with T.sblock("D"):
        vi, vj = T.axis.remap("SS", [i, j])
        D[vi, vj] = A[vi, vj]
for i, j in T.grid(64, 48):
    with T.sblock("F"):
        vi, vj = T.axis.remap("SS", [i, j])
        F[vi, vj] = D[vi, vj]
""", *IO, 'E: T.Buffer((64, 48), "float32")', 'F: T.Buffer((64, 48), "float32")'),
    "divided": func("""
B = T.sblock_alloc_buffer((64, 48))
for f in range(3072):
    with T.sblock("B"):
        vi = T.axis.spatial(64, f // 48)
        vj = T.axis.spatial(48, f % 48)
        B[vi, vj] = A[vi, vj]
for f in range(3072):
    with T.sblock("D"):
        vi = T.axis.spatial(64, f // 48)
        vj = T.axis.spatial(48, f % 48)
        D[vi, vj] = B[63 - vi, vj]
"""),
    "bool and int8": func("""
for i in range(64):
    with T.sblock("D"):
        vi = T.axis.spatial(64, i)
        D[vi] = T.Select(M[vi], A[vi], T.int8(0))
""", 'A: T.Buffer((64,), "int8")', 'M: T.Buffer((64,), "bool")', 'D: T.Buffer((64,), "int8")'),
}  # fmt: skip
