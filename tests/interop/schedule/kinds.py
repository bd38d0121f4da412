"""Kinds of schedules that design spaces of TVM's own consist of: programs drawn by a seed, and what TVM does to them.

A case is scheduled by TVM; the trace that it prints is replayed by mlcc, and both results are compared by TVM's own
equality, which looks at the doubles of constants, too.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import tvm
from tvm.script import from_source
from tvm_ffi import structural_equal

import mlcc

Steps = Callable[[Any], Any]
Case = tuple[str, Steps]


def replayed(case: Case) -> str | None:
    """How mlcc's replay of TVM's trace differs from TVM's result; None where it does not. Raises CompileError."""
    text, steps = case
    sch = tvm.s_tir.Schedule(from_source(text), seed=1)
    before = sch.mod
    steps(sch)
    made = mlcc.apply_schedule(mlcc.parse(before.script()), str(sch.trace))
    shown = mlcc.script(made, dialect="tvm")
    mine = from_source(shown)
    module = mine if isinstance(mine, tvm.IRModule) else tvm.IRModule({"main": mine})
    return None if structural_equal(module, sch.mod) else f"{sch.trace}\n{sch.mod.script()}\nmlcc:\n{shown}"


def _func(params: str, *lines: str) -> str:
    body = "".join(f"    {line}\n" for line in "\n".join(lines).strip("\n").split("\n"))
    return f"@T.prim_func(s_tir=True)\ndef main({params}):\n{body}"


def _buffers(dtype: str = "float32", **shapes: tuple[int, ...]) -> str:
    return ", ".join(f'{name}: T.Buffer({shape}, "{dtype}")' for name, shape in shapes.items())


_COPY = """
for i, j in T.grid({m}, {n}):
    with T.sblock("C"):
        vi, vj = T.axis.remap("SS", [i, j])
        C[vi, vj] = {value}
"""


def sampled_maps(rng: random.Random) -> Case:
    """Layouts by tiles that sampling chose, as tensor-core rules make them."""
    m, n = 16 * rng.randint(1, 4), 16 * rng.randint(1, 4)
    text = _func(_buffers(A=(m, n), C=(m, n)), _COPY.format(m=m, n=n, value="A[vi, vj] + T.float32(1)"))

    def steps(sch: Any) -> None:
        block = sch.get_sblock("C")
        i, j = sch.get_loops(block)
        a, b = sch.sample_perfect_tile(i, n=2, max_innermost_factor=16)
        c, d = sch.sample_perfect_tile(j, n=2, max_innermost_factor=16)
        fn = rng.choice((
            lambda i, j: (i // b, j // d, i % b, j % d), lambda i, j: (j // d, i, j % d),
            lambda i, j: (i // b % a, j, i % b), lambda i, j: (i // (b * 1), j // d % c, i % b, j % d),
        ))  # fmt: skip
        side = rng.choice(("read", "write"))
        cache = sch.cache_read(block, 0, "global") if side == "read" else sch.cache_write(block, 0, "global")
        sch.transform_layout(block, (side, 0), fn)
        sch.split(sch.get_loops(cache)[0], factors=[None, b])

    return text, steps


def float_constants(rng: random.Random) -> Case:
    """Constants that float32 and float16 round."""
    dtype = rng.choice(("float32", "float16"))
    value = rng.choice((1e-6, 1 / 30522, 0.1, -2.2, 1e-3 / 3, rng.uniform(-4, 4)))
    line = f"A[vi, vj] * T.{dtype}({value!r}) + T.{dtype}({rng.uniform(0, 1)!r})"
    text = _func(_buffers(dtype, A=(8, 32), C=(8, 32)), _COPY.format(m=8, n=32, value=line))

    def steps(sch: Any) -> None:
        block = sch.get_sblock("C")
        sch.reverse_compute_at(sch.cache_write(block, 0, "local"), sch.get_loops(block)[0])
        sch.vectorize(sch.get_loops(block)[-1])

    return text, steps


def padded_rows(rng: random.Random) -> Case:
    """Few vectors times a matrix, the unknown number of vectors padded to a tile."""
    tile, n, k = rng.choice((4, 8, 16)), 32, rng.choice((32, 64))
    dtype = rng.choice(("int32", "int64"))
    dims = f"T.int64({n}), T.int64({k})" if dtype == "int64" else f"{n}, {k}"
    rows = dims.split(", ")
    text = _func(
        f'a: T.handle, B: T.Buffer(({dims}), "float16"), c: T.handle',
        f"m = T.{dtype}()",
        f'A = T.match_buffer(a, (m, {rows[1]}), "float16")',
        f'C = T.match_buffer(c, (m, {rows[0]}), "float16")',
        f"for i, j, k in T.grid(m, {dims}):",
        '    with T.sblock("C"):',
        '        vi, vj, vk = T.axis.remap("SSR", [i, j, k])',
        "        with T.init():",
        "            C[vi, vj] = T.float16(0)",
        "        C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vj, vk]",
    )

    def steps(sch: Any) -> None:
        block = sch.get_sblock("C")
        sch.pad_einsum(block, [tile, 1, 1])
        i, j, _k = sch.get_loops(block)
        outer, _inner = sch.split(i, factors=[None, tile])
        left, _right = sch.split(j, factors=[None, 16])
        sch.reorder(outer, left)
        (after,) = sch.get_consumers(block)
        sch.reverse_compute_at(after, left, preserve_unit_loops=rng.random() < 0.5)

    return text, steps


def half_steps(rng: random.Random) -> Case:
    """A producer computed at a loop whose iterations need x // s and (x + k) // s: quotients that differ by a step."""
    by, more = rng.choice((2, 3, 4)), rng.randint(2, 6)
    n = 4 * by
    text = _func(
        _buffers(A=(n, 8), C=(n, 8)),
        f"B = T.sblock_alloc_buffer(({n}, 8))",
        f"for i, j in T.grid({n}, 8):",
        '    with T.sblock("B"):',
        '        vi, vj = T.axis.remap("SS", [i, j])',
        "        B[vi, vj] = A[vi, vj] * T.float32(2)",
        f"for i, j, r in T.grid({n}, 8, {more}):",
        '    with T.sblock("C"):',
        '        vi, vj, vr = T.axis.remap("SSR", [i, j, r])',
        "        with T.init():",
        "            C[vi, vj] = T.float32(0)",
        f"        C[vi, vj] = C[vi, vj] + B[(vi + vr) // {by}, vj]",
    )

    def steps(sch: Any) -> None:
        loop = sch.get_loops(sch.get_sblock("C"))[0]
        sch.compute_at(sch.get_sblock("B"), loop, preserve_unit_loops=True)
        sch.fuse(*sch.get_loops(sch.get_sblock("B"))[1:])

    return text, steps


def more_than_is_used(rng: random.Random) -> Case:
    """A consumer that goes into the producer of a padded, tiled buffer."""
    tile = rng.choice((4, 8, 16))
    n = 4 * tile
    m = n - rng.randint(1, tile - 1)
    text = _func(
        _buffers(A=(n, n), C=(m, m)),
        f"B = T.sblock_alloc_buffer((4, 4, {tile}, {tile}))",
        f"for i, j, x, y in T.grid(4, 4, {tile}, {tile}):",
        '    with T.sblock("B"):',
        '        vi, vj, vx, vy = T.axis.remap("SSSS", [i, j, x, y])',
        f"        B[vi, vj, vx, vy] = A[vi * {tile} + vx, vj * {tile} + vy]",
        _COPY.format(m=m, n=m, value=f"B[vi // {tile}, vj // {tile}, vi % {tile}, vj % {tile}] + T.float32(1)"),
    )
    return text, lambda sch: sch.reverse_compute_inline(sch.get_sblock("C"))


def narrow_axes(rng: random.Random) -> Case:
    """Axes of int32 that index buffers of int64 sizes."""
    n = rng.choice((8, 12))
    sizes = f"T.int64({n}), T.int64(8)"
    text = _func(
        f'A: T.Buffer(({sizes}), "float32"), C: T.Buffer(({sizes}), "float32")',
        _COPY.format(m=n, n=8, value="A[vi, vj] + T.float32(1)"),
    )
    name = rng.choice(("cache_read", "cache_write"))
    return text, lambda sch: getattr(sch, name)(sch.get_sblock("C"), 0, "global")


def two_way_maps(rng: random.Random) -> Case:
    """Maps that bring their inverse, as the rewriting of layouts prints them; and the flag that it leaves."""
    n = rng.choice((16, 32))
    text = _func(_buffers(A=(n, 8), C=(n, 8)), _COPY.format(m=n, n=8, value="A[vi, vj]"))

    def steps(sch: Any) -> None:
        block = sch.get_sblock("C")
        cache = sch.cache_read(block, 0, "global")
        both = tvm.tirx.IndexMap.from_func(
            lambda i, j: (i // 8, j, i % 8), inverse_index_map=lambda x, y, z: (x * 8 + z, y), index_dtype="int32"
        )
        sch.transform_layout(block, ("read", 0), both)
        sch.annotate(cache, "meta_schedule.layout_rewrite_preproc", True)

    return text, steps


def looks(rng: random.Random) -> Case:
    """Steps that only look."""
    text = _func(_buffers(A=(8, 8), C=(8, 8)), _COPY.format(m=8, n=8, value="A[vi, vj]"))

    def steps(sch: Any) -> None:
        (block,) = sch.get_output_blocks(sch.get_sblock("root"))
        sch.parallel(sch.get_loops(block)[rng.randrange(2)])

    return text, steps


KINDS: dict[str, Callable[[random.Random], Case]] = {
    f.__name__: f
    for f in (
        sampled_maps, float_constants, padded_rows, half_steps, more_than_is_used, narrow_axes, two_way_maps, looks,
    )
}  # fmt: skip


def case(kind: str, seed: int) -> Case:
    """The case of a kind that a seed draws."""
    return KINDS[kind](random.Random(f"{kind}/{seed}"))
