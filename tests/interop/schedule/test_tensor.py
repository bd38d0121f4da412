"""blockize and tensorize: the modules that TVM makes, and its yes and no. `test_differential` has generated cases."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

tvm = pytest.importorskip("tvm")

import mlcc  # noqa: E402
from mlcc.ir import tir  # noqa: E402
from mlcc.ir.module import IRModule  # noqa: E402
from mlcc.ir.node import replace  # noqa: E402
from mlcc.ir.visit import rewrite_bottom_up  # noqa: E402
from mlcc.passes.schedule.tensor_intrin import register  # noqa: E402
from tests.interop.harness import from_tvm, to_tvm  # noqa: E402

MATMUL = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((32, 32), "float32"), B: T.Buffer((32, 32), "float32"), C: T.Buffer((32, 32), "float32")):
    for i, j, k in T.grid(32, 32, 32):
        with T.sblock("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vj, vk]
"""
BATCHED = (
    MATMUL.replace("(32, 32)", "(3, 32, 32)")
    .replace("i, j, k in T.grid(", "b, i, j, k in T.grid(3, ")
    .replace('vi, vj, vk = T.axis.remap("SSR", [i', 'vb, vi, vj, vk = T.axis.remap("SSSR", [b, i')
    .replace("[vi,", "[vb, vi,")
    .replace("[vj, vk]", "[vb, vj, vk]")
)
LONG = MATMUL.replace("32,", "T.int64(32),").replace("32)", "T.int64(32))")

SIDE_BY_SIDE = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((8, 6), "float32"), B: T.Buffer((8, 6), "float32"), C: T.Buffer((8, 6), "float32")):
    for i in range(8):
        for j in range(6):
            with T.sblock("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)
        for j in range(6):
            with T.sblock("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi, vj] + T.float32(1)
        for j in range(6):
            with T.sblock("D"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = C[vi, vj] + B[vi, 5 - vj]
"""


class Both:
    """The same steps on both sides; what they give is kept by name."""

    def __init__(self, text: str, intrinsics: dict[str, tuple[str, str]] | None = None) -> None:
        theirs = to_tvm(text)
        self.sides = (tvm.s_tir.Schedule(theirs), mlcc.Schedule(from_tvm(theirs)))
        for name, (desc, impl) in (intrinsics or {}).items():
            tvm.s_tir.TensorIntrin.register(name, to_tvm(desc)["main"], to_tvm(impl)["main"], override=True)
            register(self.sides[1], name, desc, impl)

    def do(self, step: Any) -> list[bool]:
        """Which sides take the step."""
        taken = []
        for sch in self.sides:
            try:
                step(sch)
                taken.append(True)
            except (mlcc.CompileError, RuntimeError, ValueError):  # TVM's errors are RuntimeErrors
                taken.append(False)
        return taken

    def assert_equal(self) -> None:
        theirs, ours = self.sides
        mlcc.assert_structural_equal(ordered(from_tvm(theirs.mod)), ordered(ours.mod))


def ordered(mod: IRModule) -> IRModule:
    """The regions of blocks made of several by name: TVM has them in the order of a hash."""

    def rule(node: Any) -> Any:
        if isinstance(node, tir.Block) and node.name.startswith("outer_"):
            reads, writes = (tuple(sorted(r, key=lambda x: x.buffer.name)) for r in (node.reads, node.writes))
            return replace(node, reads=reads, writes=writes)
        return node

    made = mod.copy()
    for name, func in mod.functions.items():
        made.update_func(name, rewrite_bottom_up(func, rule))
    return made


def tile(sch: Any, size: int = 8, name: str = "C") -> list[Any]:
    loops = list(sch.get_loops(sch.get_sblock(name)))[-3:]
    outer, inner = zip(*(sch.split(loop, [None, size]) for loop in loops), strict=True)
    sch.reorder(*outer, *inner)
    return [*outer, *inner]


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("text", [MATMUL, BATCHED, LONG], ids=["matmul", "batched", "int64"])
def test_blockize_at_every_loop_agrees(text: str, keep: bool) -> None:
    for at in range(6):
        both = Both(text)
        taken = both.do(lambda sch, at=at: sch.blockize(tile(sch)[at], preserve_unit_iters=keep))
        assert taken == [True, True]
        both.assert_equal()


@pytest.mark.parametrize("sizes", [(8, 8), (5, 8), (8, 5), (1, 32), (32, 1), (7, 3)])
def test_blockize_what_does_not_divide(sizes: tuple[int, int]) -> None:
    for at, order in itertools.product(range(5), [(0, 2, 1, 3, 4), (0, 1, 2, 3, 4), (2, 0, 3, 1, 4)]):
        both = Both(MATMUL)

        def step(sch: Any, at: int = at, order: tuple[int, ...] = order) -> None:
            i, j, k = sch.get_loops(sch.get_sblock("C"))
            loops = [*sch.split(i, [None, sizes[0]]), *sch.split(j, [None, sizes[1]]), k]
            sch.reorder(*(loops[n] for n in order))
            sch.blockize(sch.get_loops(sch.get_sblock("C"))[at])

        taken = both.do(step)
        assert taken[0] == taken[1], (at, order)
        both.assert_equal()


@pytest.mark.parametrize("names", ["BC", "CD", "BCD", "BD"])
@pytest.mark.parametrize("keep", [True, False])
def test_blockize_of_a_list_agrees(names: str, keep: bool) -> None:
    both = Both(SIDE_BY_SIDE)
    taken = both.do(lambda sch: sch.blockize([sch.get_sblock(n) for n in names], preserve_unit_iters=keep))
    assert taken == [names != "BD"] * 2
    both.assert_equal()


HEAD = """
@T.prim_func(s_tir=True)
def main(a: T.handle, b: T.handle, c: T.handle):
{vars}    A = T.match_buffer(a, (8, 8), "float32"{a})
    B = T.match_buffer(b, (8, 8), "float32"{b})
    C = T.match_buffer(c, (8, 8), "float32"{c})
    with T.sblock("root"):
        T.reads(C[0:8, 0:8], A[0:8, 0:8], B[0:8, 0:8])
        T.writes(C[0:8, 0:8])
"""
LOOPS = """
        for i, j, k in T.grid(8, 8, 8):
            with T.sblock("update"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vj, vk]
"""
CALL = """
        T.evaluate(T.call_extern("int32", "mm", C.access_ptr("w"), A.access_ptr("r"), B.access_ptr("r"){more}))
"""
BLOCK = '        T.sblock_attr({"by": 1, "warp_execution": True})'
AGAIN = "        for r in range(8):\n    " + CALL.strip("\n").format(more=", sa * 2, r")
STRIDED = {n: f", offset_factor=8, strides=[s{n}, 1]" for n in "abc"}
VARS = "".join(f"    s{n} = T.int32()\n" for n in "abc")
PLAIN = dict.fromkeys("abc", ", offset_factor=8")
DESC = HEAD.format(vars="", **PLAIN) + LOOPS
IMPLS = {
    "call": HEAD.format(vars=VARS, **STRIDED) + CALL.format(more=", sa, sb, sc"),
    "compact": HEAD.format(vars="", **PLAIN) + CALL.format(more=""),
    "loops": HEAD.format(vars="", **PLAIN) + LOOPS.replace("for i, j, k in T.grid", "for k, i, j in T.grid"),
    "counted": HEAD.format(vars=VARS, **STRIDED) + AGAIN,
    "notes": HEAD.format(vars="", **PLAIN) + BLOCK + CALL.format(more=""),
}  # fmt: skip


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("text", [MATMUL, BATCHED, LONG], ids=["matmul", "batched", "int64"])
def test_tensorize_agrees(text: str, impl: str) -> None:
    both = Both(text, {"mm": (DESC, IMPLS[impl])})

    def step(sch: Any) -> None:
        loops = tile(sch)
        block = sch.blockize(loops[3])
        sch.decompose_reduction(block, loops[2])
        sch.annotate(block, "by", 2)
        sch.tensorize(block, "mm")

    assert both.do(step) == [True, True]
    both.assert_equal()


def test_tensorize_of_a_loop_agrees() -> None:
    both = Both(MATMUL, {"mm": (DESC, IMPLS["call"])})

    def step(sch: Any) -> None:
        loops = tile(sch)
        sch.decompose_reduction(sch.get_sblock("C"), loops[2])
        sch.tensorize(loops[3], "mm", preserve_unit_iters=False)

    taken = both.do(step)
    assert taken[0] == taken[1]
    both.assert_equal()


VARIANTS = {
    "as it is": LOOPS,
    "other operands": LOOPS.replace("A[vi, vk] * B[vj, vk]", "B[vj, vk] * A[vi, vk]"),
    "other order of the sum": LOOPS.replace("C[vi, vj] + A[vi, vk] * B[vj, vk]", "A[vi, vk] * B[vj, vk] + C[vi, vj]"),
    "not transposed": LOOPS.replace("B[vj, vk]", "B[vk, vj]"),
    "other loops": LOOPS.replace("for i, j, k", "for i, k, j"),
    "other kinds": LOOPS.replace("SSR", "SSS"),
    "unrolled": LOOPS.replace("for i, j, k in T.grid(8, 8, 8):", (
        "for i in T.unroll(8):\n          for j, k in T.grid(8, 8):")),
    "a constant more": LOOPS.replace("B[vj, vk]", "B[vj, vk] * T.float32(1)"),
    "maximum": LOOPS.replace("C[vi, vj] + A[vi, vk] * B[vj, vk]", "T.max(C[vi, vj], A[vi, vk] * B[vj, vk])"),
    "without the block": """
        for i, j, k in T.grid(8, 8, 8):
            C[i, j] = C[i, j] + A[i, k] * B[j, k]
""",
    "spelled otherwise": LOOPS.replace("vi, vj, vk = T.axis.remap(\"SSR\", [i, j, k])", (
        "vi = T.axis.spatial(8, i + 0)\n                vj = T.axis.spatial(8, j * 1)\n"
        "                vk = T.axis.reduce(8, k)")),
}  # fmt: skip


@pytest.mark.parametrize("name", VARIANTS)
def test_matching_of_descriptions_agrees(name: str) -> None:
    desc = HEAD.format(vars="", **PLAIN) + VARIANTS[name]
    both = Both(MATMUL, {"mm": (desc, IMPLS["call"])})

    def prepare(sch: Any) -> None:
        loops = tile(sch)
        sch.decompose_reduction(sch.blockize(loops[3]), loops[2])

    assert both.do(prepare) == [True, True]
    taken = both.do(lambda sch: sch.tensorize(sch.get_sblock("C_o_update"), "mm"))
    assert taken[0] == taken[1]
    both.assert_equal()


@pytest.mark.parametrize("scope", ["local", "shared", "global.A_reg"])
def test_scopes_of_operands_agree(scope: str) -> None:
    scoped = {**PLAIN, "a": f', offset_factor=8, scope="{scope}"'}
    desc, impl = HEAD.format(vars="", **scoped) + LOOPS, HEAD.format(vars="", **scoped) + CALL.format(more="")
    for cached in (True, False):
        both = Both(MATMUL, {"mm": (desc, impl)})

        def step(sch: Any, cached: bool = cached) -> None:
            loops = tile(sch)
            block = sch.blockize(loops[3])
            if cached:
                sch.cache_read(block, 0, scope)
            sch.decompose_reduction(block, loops[2])
            sch.tensorize(block, "mm")

        assert both.do(step) == [cached, cached]
        both.assert_equal()
