"""Products for tensor cores: programs that fit, and schedules with TVM's intrinsics in many forms."""

from __future__ import annotations

import random

from tests.fuzz.gpu_scripts import Taken, handle, pipeline

KINDS = {"f16": "float16", "bf16": "bfloat16", "s8": "int8", "f32": "float32", "s32": "int32"}
_TEXT = """
@T.prim_func
def main(A: T.Buffer(({m}, {k}), "{kind}"), B: T.Buffer({b_shape}, "{kind}"), C: T.Buffer(({m}, {n}), "{out}")):
    for i, j, k in T.grid({m}, {n}, {k}):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.{out}(0)
            C[vi, vj] = C[vi, vj] + {a} * {b}
"""


def program(rng: random.Random) -> str:
    """A product of whole tiles."""
    kind, out = rng.choice((("f16", "f32"), ("f16", "f16"), ("bf16", "f32"), ("s8", "s32")))
    m, n, k = (16 * rng.choice((1, 2, 2, 3, 4)) for _ in range(3))
    k = k * 2 if kind == "s8" else k
    trans = rng.random() < 0.4
    a, b = "A[vi, vk]", "B[vj, vk]" if trans else "B[vk, vj]"
    if kind != out:
        a, b = (f'T.Cast("{KINDS[out]}", {x})' for x in (a, b))
    shape = f"({n}, {k})" if trans else f"({k}, {n})"
    return _TEXT.format(m=m, n=n, k=k, b_shape=shape, kind=KINDS[kind], out=KINDS[out], a=a, b=b)


def tensor(t: Taken) -> None:
    rng = t.rng
    block = t.block("C")
    assert block is not None
    kind = next(k for k, d in KINDS.items() if d == str(block.reads[-1].dtype))
    out = next(k for k, d in KINDS.items() if d == str(block.writes[0].dtype))
    trans = "_trans" if "B[vj, vk]" in _body(t) else ""
    wmma = t.maybe(0.5) or kind == "s8"
    m, n, k = (16, 16, 16)
    loops = t.take("get_loops", handle(block), True)
    warps, each = [rng.choice((1, 1, 2)) for _ in range(2)], [rng.choice((1, 1, 2)) for _ in range(2)]
    depth = rng.choice((1, 1, 2))
    i = t.take("split", f"{loops}[0], factors=[None, {warps[0]}, {each[0]}, {m}]", True)
    j = t.take("split", f"{loops}[1], factors=[None, {warps[1]}, {each[1]}, {n}]", True)
    r = t.take("split", f"{loops}[2], factors=[None, {depth}, {k}]", True)
    t.take("reorder", f"{i}[0], {j}[0], {i}[1], {j}[1], {r}[0], {r}[1], {i}[2], {j}[2], {i}[3], {j}[3], {r}[2]")
    tile = t.take("blockize", f"{i}[3]", True)
    for at, axis in ((f"{i}[0]", "blockIdx.y"), (f"{j}[0]", "blockIdx.x"), (f"{i}[1]", "threadIdx.z"),
                     (f"{j}[1]", "threadIdx.y")):  # fmt: skip
        t.take("bind", f'{at}, "{axis}"')
    scope = rng.choice(("shared", "shared.dyn"))
    for number in (0, 1):
        copy = t.take("cache_read", f'{tile}, {number}, "{scope}"', True)
        t.take("compute_at", f"{copy}, {r}[0]{', preserve_unit_loops=True' if t.maybe(0.5) else ''}")
        _fetch(t, copy, warps)
        if t.maybe(0.6):
            t.take("storage_align", f"{copy}, 0, axis=-2, factor={rng.choice((16, 32))}, offset={rng.choice((8, 16))}")
    names = ("wmma.matrix_a", "wmma.matrix_b", "wmma.accumulator") if wmma else ("warp",) * 3
    a = t.take("cache_read", f'{tile}, 0, "{names[0]}"', True)
    b = t.take("cache_read", f'{tile}, 1, "{names[1]}"', True)
    c = t.take("cache_write", f'{tile}, 0, "{names[2]}"', True)
    for made in (a, b):
        t.take("compute_at", f"{made}, {r}[{rng.choice((1, 1, 0))}]")
    t.take("reverse_compute_at", f"{c}, {j}[1]")
    places = [_tile(t, made, m, n) for made in (a, b, c)]
    if not wmma:
        lanes = "lambda i, j: (i // 16, j // 16, 4 * (i % 8) + j % 8 // 2, 4 * (j % 16 // 8) + i % 16 // 8 * 2 + j % 2)"
        for made, side in ((a, "write"), (b, "write"), (c, "read")):
            t.take("transform_layout", f'{made}, ("{side}", 0), {lanes}')
    init = t.take("decompose_reduction", f"{tile}, {r}[0]", True)
    where = scope.replace(".", "_")
    dyn = "_dyn" if scope == "shared.dyn" else ""
    if wmma:
        t.take("tensorize", f'{init}, "wmma_fill_16x16x16_{out}"')
        t.take("tensorize", f'{places[0]}, "wmma_load_16x16x16_{kind}_a_{where}"')
        t.take("tensorize", f'{places[1]}, "wmma_load_16x16x16_{kind}_b{trans}_{where}"')
        t.take("tensorize", f'{tile}, "wmma_sync_16x16x16_{kind}{kind}{out}{trans}"')
        t.take("tensorize", f'{places[2]}, "wmma_store_16x16x16_{out}_global"')
    else:
        t.take("tensorize", f'{init}, "mma_fill_16x16_{out}"')
        t.take("tensorize", f'{places[0]}, "mma_ldmatrix_{kind}_a{dyn}"')
        t.take("tensorize", f'{places[1]}, "mma_ldmatrix_{kind}_b{trans}{dyn}"')
        t.take("tensorize", f'{tile}, "mma_{kind}{kind}{out}{trans}"')
        t.take("tensorize", f'{places[2]}, "mma_store_16x16_{out}_global_"')
    if t.maybe(0.6):
        if t.maybe(0.6):
            t.take(
                "annotate",
                f'{r}[0], "software_pipeline_stage", {rng.choice(([0, 0, 1], [0, 0, 2], [0, 0, 3], [0, 1, 2]))}',
            )
            t.take("annotate", f'{r}[0], "software_pipeline_order", {rng.choice(([0, 1, 2], [1, 2, 0]))}')
            t.take("annotate", f'{r}[0], "software_pipeline_async_stages", [0]')
        else:
            pipeline(t, f"{r}[0]")
    for at in (f"{r}[1]", f"{i}[2]", f"{j}[2]"):
        if t.maybe(0.5):
            t.take("unroll", at)


def _body(t: Taken) -> str:
    return str(t.player.module.script())


def _fetch(t: Taken, copy: str, warps: list[int]) -> None:
    fused = t.take("fuse", f"*sch.get_loops({copy})[-2:]", True)
    lanes = t.rng.choice((1, 2, 4, 8, 8))
    factors = [None, *warps, 32, *([lanes] if lanes > 1 else [])]
    parts = t.take("split", f"{fused}, factors={factors}", True)
    if not parts:
        return
    for at, axis in enumerate(("threadIdx.z", "threadIdx.y", "threadIdx.x"), 1):
        t.take("bind", f'{parts}[{at}], "{axis}"')
    if lanes > 1:
        t.take("vectorize", f"{parts}[4]")


def _tile(t: Taken, made: str, m: int, n: int) -> str:
    i = t.take("split", f"sch.get_loops({made})[-2], factors=[None, {m}]", True)
    j = t.take("split", f"sch.get_loops({made})[-1], factors=[None, {n}]", True)
    t.take("reorder", f"{i}[0], {j}[0], {i}[1], {j}[1]")
    return f"{i}[1]"
