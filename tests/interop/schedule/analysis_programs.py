"""Programs, and steps of TVM's schedule on them, for the comparison of analyses."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Any

HEAD = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((128, 128), "float32"), B: T.Buffer((128, 128), "float32"), O: T.Buffer((128, 128), "float32")):
    C = T.sblock_alloc_buffer((128, 128))
"""


def _func(body: str) -> str:
    return HEAD + "".join(f"    {line}\n" for line in body.strip("\n").splitlines())


def _pair(first: str, second: str, around: str = "") -> str:
    """A producer of C and a consumer of it; `around` opens a loop over both."""
    pad = "    " if around else ""
    lines = [*first.strip("\n").splitlines(), *second.strip("\n").splitlines()]
    return _func("\n".join([*([around] if around else []), *(pad + line for line in lines)]))


MATMUL = """
for i, j, k in T.grid(128, 128, 128):
    with T.sblock("C"):
        vi, vj, vk = T.axis.remap("SSR", [i, j, k])
        with T.init():
            C[vi, vj] = T.float32(0)
        C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""


def _copy(name: str, target: str, source: str, i: str = "i", j: str = "j", loops: str = "i, j in T.grid(128, 128)",
          where: str = "", at: str = "vi, vj", shape: str = "128, 128") -> str:  # fmt: skip
    n, m = shape.split(", ")
    lines = [
        f"for {loops}:",
        f'    with T.sblock("{name}"):',
        f"        vi = T.axis.spatial({n}, {i})",
        f"        vj = T.axis.spatial({m}, {j})",
        *([f"        T.where({where})"] if where else []),
        f"        {target}[{at}] = {source}",
    ]
    return "\n".join(lines)


FIRST = _copy("C", "C", "A[vi, vj]")
RELU = _copy("D", "O", "T.max(C[vi, vj], T.float32(0))")

NESTS = {
    "matmul relu": _pair(MATMUL, RELU),
    "chain": _pair(FIRST, RELU),
    "shifted reads": _pair(FIRST, _copy("D", "O", "C[vi + 1, vj]", loops="i, j in T.grid(127, 128)")),
    "reads beyond": _pair(_copy("C", "C", "A[vi, vj]", loops="i, j in T.grid(64, 128)"), RELU),
    "reads less": _pair(FIRST, _copy("D", "O", "C[vi, vj]", loops="i, j in T.grid(64, 128)")),
    "writes every other": _pair(_copy("C", "C", "A[vi, vj]", i="i * 2", loops="i, j in T.grid(64, 128)"), RELU),
    "under one loop": _pair(
        _copy("C", "C", "A[vi, vj]", loops="j in range(128)"),
        _copy("D", "O", "C[vi, vj]", loops="k in range(128)", j="k"),
        "for i in range(128):",
    ),
    "one row late": _pair(
        _copy("C", "C", "A[vi, vj]", loops="j in range(128)"),
        _copy("D", "O", "C[127 - vi, vj]", loops="k in range(128)", j="k"),
        "for i in range(128):",
    ),
    "split by hand": _pair(_copy("C", "C", "A[vi, vj]", i="i * 16 + i1", loops="i, i1, j in T.grid(8, 16, 128)"), RELU),
    "fused by hand": _pair(_copy("C", "C", "A[vi, vj]", i="f // 128", j="f % 128", loops="f in range(16384)"), RELU),
    "predicate": _pair(
        _copy(
            "C", "C", "A[vi, vj]", i="i * 10 + i1", loops="i, i1, j in T.grid(13, 10, 128)", where="i * 10 + i1 < 128"
        ),
        RELU,
    ),
    "predicate cuts": _pair(_copy("C", "C", "A[vi, vj]", where="i < 100"), RELU),
    "predicate of both": _pair(
        _copy("C", "C", "A[vi, vj]", where="i < 100"), _copy("D", "O", "C[vi, vj]", where="i < 100")
    ),
    "predicate on two loops": _pair(_copy("C", "C", "A[vi, vj]", where="i + j < 100"), RELU),
    "both written": _pair(FIRST, _copy("D", "C", "B[vi, vj]") + "\n" + _copy("E", "O", "C[vi, vj]")),
    "two halves": _pair(
        _copy("C", "C", "A[vi, vj]", loops="i, j in T.grid(64, 128)"),
        _copy("D", "C", "A[vi, vj]", i="i + 64", loops="i, j in T.grid(64, 128)") + "\n" + _copy("E", "O", "C[vi, vj]"),
    ),
    "two far halves": _pair(
        _copy("C", "C", "A[vi, vj]", loops="i, j in T.grid(32, 128)"),
        _copy("D", "C", "A[vi, vj]", i="i + 96", loops="i, j in T.grid(32, 128)") + "\n" + _copy("E", "O", "C[vi, vj]"),
    ),
    "write after read": _pair(FIRST, RELU + "\n" + _copy("E", "C", "A[vi, vj]")),
    "in place": _pair(FIRST, _copy("D", "C", "C[vi, vj] + T.float32(1)") + "\n" + _copy("E", "O", "C[vi, vj]")),
    "unordered": _pair(_copy("D", "O", "C[vi, vj]"), FIRST),
    "same loop twice": _pair(_copy("C", "C", "A[vi, vj]", i="i", j="i"), RELU),
    "sum of loops": _pair(_copy("C", "C", "A[vi, 0]", i="i + j", j="0", loops="i, j in T.grid(64, 64)"), RELU),
    "product of loops": _pair(_copy("C", "C", "A[vi, 0]", i="i * j", j="0", loops="i, j in T.grid(11, 11)"), RELU),
    "backwards": _pair(_copy("C", "C", "A[vi, vj]", i="127 - i"), _copy("D", "O", "C[vi, vj]", j="127 - j")),
    "transposed": _pair(_copy("C", "C", "A[vi, vj]", i="j", j="i"), RELU),
    "shifted axis": _pair(_copy("C", "C", "A[vi, vj]", i="i + 64", loops="i, j in T.grid(64, 128)"), RELU),
    "loop from 2": _pair(
        _copy("C", "C", "A[vi, vj]", loops="i in range(2, 128):\n    for j in range(128)")
        .replace("\n    with", "\n        with")
        .replace("\n        v", "\n            v")
        .replace("\n        C", "\n            C"),
        RELU,
    ),
    "window": _pair(
        FIRST, _copy("D", "O", "C[vi, vj] + C[vi, vj + 1] + C[vi, vj + 2]", loops="i, j in T.grid(128, 126)")
    ),
    "window under a loop": _pair(
        _copy("C", "C", "A[vi, vj]", i="i0 * 8 + i", loops="i, j in T.grid(10, 128)", where="i0 * 8 + i < 128"),
        _copy(
            "D",
            "O",
            "C[vi, vj] + C[vi + 2, vj]",
            i="i0 * 8 + k",
            j="l",
            loops="k, l in T.grid(8, 128)",
            where="i0 * 8 + k < 126",
        ),
        "for i0 in range(16):",
    ),
    "no axes": _func("""
for i in range(4):
    with T.sblock("X"):
        C[0, 0] = A[0, 0]
with T.sblock("Y"):
    O[0, 0] = C[0, 0]
"""),
    "nested": _func("""
for i in range(8):
    with T.sblock("outer"):
        vo = T.axis.spatial(8, i)
        for j, k in T.grid(16, 128):
            with T.sblock("inner"):
                vj, vk = T.axis.remap("SS", [j, k])
                C[vo * 16 + vj, vk] = A[vo * 16 + vj, vk]
        for j, k in T.grid(16, 128):
            with T.sblock("after"):
                vj, vk = T.axis.remap("SS", [j, k])
                O[vo * 16 + vj, vk] = C[vo * 16 + vj, vk]
"""),
    "reduction without init": _func("""
for i, j in T.grid(128, 128):
    with T.sblock("X"):
        vi, vj = T.axis.remap("SR", [i, j])
        O[vi, 0] = O[vi, 0] + A[vi, vj]
"""),
    "reduce axis in the output": _func("""
for i, j in T.grid(128, 128):
    with T.sblock("X"):
        vi, vj = T.axis.remap("SR", [i, j])
        with T.init():
            O[vi, 0] = T.float32(0)
        O[vi, vj] = A[vi, vj]
"""),
    "symbolic": """
@T.prim_func(s_tir=True)
def main(a: T.handle, o: T.handle, n: T.int32, m: T.int32):
    A = T.match_buffer(a, (n, m), "float32")
    O = T.match_buffer(o, (n, m), "float32")
    C = T.sblock_alloc_buffer((n, m))
    for i, j in T.grid(n, m):
        with T.sblock("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj]
    for i, j in T.grid(n, m):
        with T.sblock("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            O[vi, vj] = C[vi, vj]
""",
    "symbolic split": """
@T.prim_func(s_tir=True)
def main(a: T.handle, o: T.handle, n: T.int32):
    A = T.match_buffer(a, (n,), "float32")
    O = T.match_buffer(o, (n,), "float32")
    C = T.sblock_alloc_buffer((n,))
    for i, j in T.grid((n + 31) // 32, 32):
        with T.sblock("C"):
            vi = T.axis.spatial(n, i * 32 + j)
            T.where(i * 32 + j < n)
            C[vi] = A[vi]
    for i, j in T.grid((n + 15) // 16, 16):
        with T.sblock("D"):
            vi = T.axis.spatial(n, i * 16 + j)
            T.where(i * 16 + j < n)
            O[vi] = C[vi]
""",
    "symbolic inside": """
@T.prim_func(s_tir=True)
def main(a: T.handle, o: T.handle, n: T.int64):
    A = T.match_buffer(a, (n * T.int64(32),), "float32")
    O = T.match_buffer(o, (n * T.int64(32),), "float32")
    C = T.sblock_alloc_buffer((n * T.int64(32),))
    for i in range(n):
        for j in range(T.int64(32)):
            with T.sblock("C"):
                vi = T.axis.spatial(n * T.int64(32), i * T.int64(32) + j)
                C[vi] = A[vi]
        for j in range(T.int64(31)):
            with T.sblock("D"):
                vi = T.axis.spatial(n * T.int64(32), i * T.int64(32) + j)
                O[vi] = C[vi + T.int64(1)]
        for j in range(T.int64(32)):
            with T.sblock("E"):
                vi = T.axis.spatial(n * T.int64(32), i * T.int64(32) + j)
                O[vi] = C[vi + T.int64(1)]
""",
    "opaque": _func("""
for i, j in T.grid(128, 128):
    with T.sblock("X"):
        vi = T.axis.opaque(128, i)
        vj = T.axis.reduce(128, j)
        with T.init():
            O[vi, 0] = T.float32(0)
        O[vi, 0] = O[vi, 0] + A[vi, vj]
"""),
    "shared over threads": _func("""
S = T.sblock_alloc_buffer((128, 128), scope="shared")
L = T.sblock_alloc_buffer((128, 128), scope="local")
for b in T.thread_binding(128, thread="blockIdx.x"):
    for t in T.thread_binding(128, thread="threadIdx.x"):
        with T.sblock("X"):
            vb, vt = T.axis.remap("SS", [b, t])
            S[vb, vt] = A[vb, vt]
        with T.sblock("Y"):
            vb, vt = T.axis.remap("SS", [b, t])
            L[vb, vt] = S[vb, 127 - vt]
        with T.sblock("Z"):
            vb, vt = T.axis.remap("SS", [b, t])
            O[vb, vt] = L[vb, 127 - vt]
"""),
    "branch": _func("""
for i, j in T.grid(128, 128):
    if i < 64:
        with T.sblock("X"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj]
for i, j in T.grid(128, 128):
    with T.sblock("Y"):
        vi, vj = T.axis.remap("SS", [i, j])
        O[vi, vj] = C[vi, vj]
"""),
}


def _split(sch: Any, name: str, at: int, factors: list[int | None]) -> Any:
    loops = sch.get_loops(sch.get_sblock(name))
    return sch.split(loops[at], factors)


def _tile(sch: Any) -> None:
    i, j, k = sch.get_loops(sch.get_sblock("C"))
    i0, i1 = sch.split(i, [None, 16])
    j0, j1 = sch.split(j, [None, 8])
    sch.reorder(i0, j0, k, i1, j1)
    sch.reverse_compute_at(sch.get_sblock("D"), j0)


def _uneven(sch: Any) -> None:
    for name in ("C", "D"):
        _split(sch, name, 0, [None, 10])
        _split(sch, name, -1, [7, None])


def _fused(sch: Any) -> None:
    for name in ("C", "D"):
        loops = sch.get_loops(sch.get_sblock(name))
        f = sch.fuse(*loops)
        sch.split(f, [None, 100])


def _fused_odd(sch: Any) -> None:
    i, j, *_ = sch.get_loops(sch.get_sblock("C"))
    f = sch.fuse(i, j)
    sch.split(f, [None, 5, 3])


def _compute_at(sch: Any) -> None:
    i, _ = sch.get_loops(sch.get_sblock("D"))
    i0, _ = sch.split(i, [None, 10])
    sch.compute_at(sch.get_sblock("C"), i0)


def _caches(sch: Any) -> None:
    _tile(sch)
    a = sch.cache_read(sch.get_sblock("C"), 0, "shared")
    sch.compute_at(a, sch.get_loops(sch.get_sblock("C"))[2])
    sch.cache_write(sch.get_sblock("D"), 0, "local")


def _decomposed(sch: Any) -> None:
    _uneven(sch)
    block = sch.get_sblock("C")
    sch.decompose_reduction(block, sch.get_loops(block)[1])


def _blockized(sch: Any) -> None:
    _tile(sch)
    sch.blockize(sch.get_loops(sch.get_sblock("C"))[2])


def _rfactored(sch: Any) -> None:
    _, ki = _split(sch, "C", 2, [None, 4])
    sch.rfactor(ki, 0)


def _bound(sch: Any) -> None:
    _tile(sch)
    loops = sch.get_loops(sch.get_sblock("D"))
    sch.bind(loops[0], "blockIdx.x")
    sch.bind(loops[2], "threadIdx.x")


Steps = Callable[[Any], None]
SCHEDULES: dict[str, tuple[str, Steps]] = {
    "tiled": ("matmul relu", _tile),
    "uneven": ("matmul relu", _uneven),
    "uneven chain": ("chain", _uneven),
    "uneven window": ("window", _uneven),
    "fused": ("matmul relu", _fused),
    "fused oddly": ("matmul relu", _fused_odd),
    "computed at": ("chain", _compute_at),
    "computed at, window": ("window", _compute_at),
    "computed at, shifted": ("shifted reads", _compute_at),
    "caches": ("matmul relu", _caches),
    "decomposed": ("matmul relu", _decomposed),
    "blockized": ("matmul relu", _blockized),
    "rfactored": ("matmul relu", _rfactored),
    "bound": ("matmul relu", _bound),
}


def scramble(sch: Any, seed: int) -> None:
    """Random steps; those that TVM refuses are left out."""
    rng = random.Random(seed)
    for _ in range(rng.randrange(2, 9)):
        block = sch.get_sblock(rng.choice(["C", "D"]))
        loops = sch.get_loops(block)
        with contextlib.suppress(Exception):
            _step(sch, block, loops, rng)


def _step(sch: Any, block: Any, loops: list[Any], rng: random.Random) -> None:
    match rng.randrange(6):
        case 0 | 1:
            sch.split(rng.choice(loops), [None, rng.choice([2, 3, 5, 8, 16])])
        case 2:
            at = rng.randrange(len(loops) - 1)
            sch.fuse(*loops[at : at + 2])
        case 3:
            sch.reorder(*rng.sample(loops, rng.randrange(2, len(loops) + 1)))
        case 4:
            sch.compute_at(sch.get_sblock("C"), rng.choice(sch.get_loops(sch.get_sblock("D"))))
        case 5:
            sch.reverse_compute_at(sch.get_sblock("D"), rng.choice(sch.get_loops(sch.get_sblock("C"))))
