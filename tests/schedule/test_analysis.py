"""Scopes, bindings and conditions of blocks."""

from __future__ import annotations

import pytest

import mlcc
from mlcc.ir import tir
from mlcc.ir.tir import IterKind
from mlcc.passes.schedule.analysis.bindings import is_affine_binding, is_trivial_binding, loop_domain, loop_iter_kind
from mlcc.passes.schedule.analysis.block_access import (
    allocating_block,
    defining_block,
    read_buffer,
    read_region,
    write_buffer,
)
from mlcc.passes.schedule.analysis.checks import (
    check_affine_binding,
    check_complete_block,
    check_complete_or_reduction_block,
    check_not_output,
    check_subtree_compact_dataflow,
    check_trivial_binding,
    scope_root,
)
from mlcc.passes.schedule.analysis.conditions import (
    complete_block_violation,
    is_complete_block,
    is_reduction_block,
    other_writer,
    reduction_block_violation,
)
from mlcc.passes.schedule.analysis.scope import DepKind, consumers, output_blocks, producers, scope_info
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.tree import Tree
from tests.schedule.programs import MATMUL_RELU


def tree_of(text: str) -> Tree:
    func = mlcc.parse(text)["main"]
    assert isinstance(func, tir.PrimFunc)
    return Tree(func)


def block(tree: Tree, name: str) -> tir.Block:
    (found,) = tree.blocks_named(name)
    return found


def root(tree: Tree) -> tir.Block:
    assert tree.root is not None
    return tree.root


def names(blocks: list[tir.Block]) -> list[str]:
    return [b.name for b in blocks]


HEAD = '@T.prim_func\ndef main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):\n'


def nest(body: str) -> Tree:
    """A function of A and B whose body is `body`, four spaces further in."""
    return tree_of(HEAD + "".join(f"    {line}\n" for line in body.strip("\n").splitlines()))


ONE = """
for i, j in T.grid({loops}):
    with T.block("X"):
        vi = T.axis.{vi}
        vj = T.axis.{vj}
        {where}
        B[{at}] = {value}
"""


def tree_of_one_block(vi: str = "spatial(16, i)", vj: str = "spatial(16, j)", where: str = "pass", at: str = "vi, vj",
        value: str = "A[vi, vj]", loops: str = "16, 16") -> Tree:  # fmt: skip
    where = where if where != "pass" else "T.reads(A[0:16, 0:16])" if "B[" not in value else "T.reads(B[0:16, 0:16])"
    return nest(ONE.format(vi=vi, vj=vj, where=where, at=at, value=value, loops=loops))


# ---------------------------------------------------------------- scopes


def test_dependencies_of_a_scope_are_found() -> None:
    tree = tree_of(MATMUL_RELU)
    info = scope_info(tree, root(tree))
    assert names(info.blocks) == ["C", "D"]
    assert [(d.src.name, d.dst.name, d.kind, d.buffer.name) for d in info.deps] == [("C", "D", DepKind.RAW, "C")]
    assert scope_info(tree, root(tree)) is info
    assert names(producers(tree, block(tree, "D"))) == ["C"]
    assert names(consumers(tree, block(tree, "C"))) == ["D"]
    assert producers(tree, root(tree)) == []
    assert names(output_blocks(tree, root(tree))) == ["D"]


CHAIN = """
C = T.alloc_buffer((16,))
for i in range(16):
    with T.block("first"):
        vi = T.axis.spatial(16, i)
        C[vi] = A[vi, 0]
for i in range(16):
    with T.block("second"):
        vi = T.axis.spatial(16, i)
        B[vi, 0] = C[vi]
for i in range(16):
    with T.block("third"):
        vi = T.axis.spatial(16, i)
        C[vi] = A[vi, 1]
"""


def test_kinds_of_dependencies_are_told_apart() -> None:
    tree = nest(CHAIN)
    first, second, third = scope_info(tree, root(tree)).blocks
    kinds = {(d.src, d.dst): d.kind for d in scope_info(tree, root(tree)).deps}
    assert kinds == {
        (first, second): DepKind.RAW, (first, third): DepKind.WAW, (second, third): DepKind.WAR,
    }  # fmt: skip
    assert producers(tree, third) == [first]
    assert consumers(tree, first) == [second, third]
    assert other_writer(tree, first, root(tree)) == (first.writes[0].buffer, third)


# ---------------------------------------------------------------- bindings


def test_domains_of_loops_are_known() -> None:
    tree = tree_of(MATMUL_RELU)
    i, j, k = tree.loops_above(block(tree, "C"))
    assert list(loop_domain(tree, k)) == [k.var, j.var, i.var]
    assert list(loop_domain(tree, k, i)) == [k.var, j.var]
    assert loop_domain(tree, root(tree)) == {}


THREADS = """
for i in T.thread_binding(4, thread="blockIdx.x"):
    for j in T.thread_binding(4, thread="threadIdx.x"):
        with T.block("outer"):
            vi, vj = T.axis.remap("SS", [i, j])
            for k in range(4):
                with T.block("X"):
                    vk = T.axis.spatial(4, k)
                    B[vi * 4 + vj, vk] = A[vi * 4 + vj, vk]
"""


@pytest.mark.parametrize(
    ("scope", "found"),
    [("global", "k"), ("shared", "k j"), ("shared.dyn", "k j"), ("warp", "k j"), ("local", "k")],
)
def test_domains_over_threads_follow_the_scope(scope: str, found: str) -> None:
    tree = nest(THREADS)
    (k,) = tree.loops_above(block(tree, "X"))
    assert " ".join(v.name for v in loop_domain(tree, k, None, scope)) == found


def test_trivial_bindings_are_recognised() -> None:
    tree = tree_of_one_block()
    assert is_trivial_binding(tree, block(tree, "X"))
    tree = tree_of_one_block("spatial(16, j)", "spatial(16, i)")
    assert not is_trivial_binding(tree, block(tree, "X"))
    tree = tree_of_one_block("spatial(16, i)", "spatial(17, j + 1)")
    with pytest.raises(Refusal, match=r"must be the loops above \(i, j\) in order, but are \(i, j \+ 1\)"):
        check_trivial_binding(tree, block(tree, "X"))


@pytest.mark.parametrize(
    ("vi", "vj", "affine"),
    [
        ("spatial(16, i)", "spatial(16, j)", True),
        ("spatial(16, j)", "spatial(16, i)", True),
        ("spatial(256, i * 16 + j)", "spatial(1, 0)", True),
        ("spatial(16, i)", "spatial(16, i)", False),
        ("spatial(31, i * 2)", "spatial(16, j)", False),
        ("spatial(31, i + j)", "spatial(1, 0)", True),
        ("spatial(256, i * j)", "spatial(1, 0)", False),
    ],
)
def test_affine_bindings_are_recognised(vi: str, vj: str, affine: bool) -> None:
    tree = tree_of_one_block(vi, vj)
    found = block(tree, "X")
    assert is_affine_binding(tree, tree.realize(found)) is affine
    if not affine:
        with pytest.raises(Refusal) as caught:
            check_affine_binding(tree, found)
        assert caught.value.code == "E0638" and caught.value.at == (found,)


def test_kinds_of_loops_follow_their_axes() -> None:
    tree = tree_of(MATMUL_RELU)
    loops = tree.loops_above(block(tree, "C"))
    assert [loop_iter_kind(tree, x) for x in loops] == [IterKind.SPATIAL, IterKind.SPATIAL, IterKind.REDUCE]
    tree = tree_of_one_block("spatial(16, i)", "reduce(16, i)")
    i, j = tree.loops
    assert loop_iter_kind(tree, i) is IterKind.OPAQUE and loop_iter_kind(tree, j) is IterKind.SPATIAL


# ---------------------------------------------------------------- conditions


@pytest.mark.parametrize(
    ("tree", "complete", "reduction"),
    [
        (tree_of_one_block(), None, "has no init"),
        (tree_of_one_block(vj="reduce(16, j)", at="vi, 0"), "has a reduce axis `vj`", "has no init"),
        (tree_of_one_block(value="B[vj, vi]"), "reads `B`, which it also writes", "has no init"),
        (tree_of_one_block(vj="opaque(16, j)"), "has an opaque axis `vj`", "has no init"),
    ],
)
def test_conditions_of_blocks_are_checked(tree: Tree, complete: str | None, reduction: str) -> None:
    found = block(tree, "X")
    assert complete_block_violation(tree, found, root(tree)) == complete
    assert reduction_block_violation(tree, found, root(tree)) == reduction
    if complete is None:
        check_complete_or_reduction_block(tree, found, root(tree))
        return
    with pytest.raises(Refusal, match=f"not complete: it {complete}; and not a reduction: it {reduction}") as caught:
        check_complete_or_reduction_block(tree, found, root(tree))
    assert caught.value.code == "E0656"


def test_a_matmul_is_a_reduction() -> None:
    tree = tree_of(MATMUL_RELU)
    c, d = block(tree, "C"), block(tree, "D")
    assert is_reduction_block(tree, c, root(tree)) and is_complete_block(tree, d, root(tree))
    check_subtree_compact_dataflow(tree, tree.loops[0])
    with pytest.raises(Refusal, match="block `C` is not complete: it has a reduce axis `vk`"):
        check_complete_block(tree, c, root(tree))
    with pytest.raises(Refusal, match="block `D` writes `D`, which outlives block `root`"):
        check_not_output(tree, d, root(tree))
    check_not_output(tree, c, root(tree))


def test_two_writers_are_both_marked() -> None:
    tree = nest(CHAIN)
    first, _, third = scope_info(tree, root(tree)).blocks
    with pytest.raises(Refusal, match="not the only writer of `C`: block `third` writes it too") as caught:
        check_complete_block(tree, first, root(tree))
    assert caught.value.at == (first, third)
    with pytest.raises(Refusal, match="`third` writes `C` after `second` has read it"):
        scope_root(tree, first, require_stage_pipeline=True)
    assert scope_root(tree, first) is root(tree)


def test_a_reduce_axis_that_indexes_the_output() -> None:
    tree = nest("""
for i, j in T.grid(16, 16):
    with T.block("X"):
        vi, vj = T.axis.remap("SR", [i, j])
        with T.init():
            B[vi, 0] = T.float32(0)
        B[vi, vj] = A[vi, vj]
""")
    words = reduction_block_violation(tree, block(tree, "X"), root(tree))
    assert words == "indexes `B`, which it writes, by the reduce axis `vj`"


def test_the_root_block_has_no_scope() -> None:
    tree = tree_of_one_block()
    with pytest.raises(Refusal, match="root block") as caught:
        scope_root(tree, root(tree))
    assert caught.value.code == "E0655"


# ---------------------------------------------------------------- buffers


def test_buffers_are_found_by_number() -> None:
    tree = tree_of(MATMUL_RELU)
    c = block(tree, "C")
    assert [read_buffer(c, n).name for n in (0, 1)] == ["A", "B"]
    assert write_buffer(c, 0).name == "C"
    with pytest.raises(Refusal, match="block `C` writes 1 buffer: there is no write buffer 1") as caught:
        write_buffer(c, 1)
    assert caught.value.code == "E0614" and caught.value.help == "block `C` writes 0: `C`"
    with pytest.raises(Refusal, match="no read buffer -1"):
        read_region(c, -1)


def test_where_buffers_come_from() -> None:
    tree = tree_of(MATMUL_RELU)
    c = block(tree, "C")
    assert defining_block(tree, c, write_buffer(c, 0)) == (root(tree), True)
    assert defining_block(tree, c, read_buffer(c, 0)) == (None, False)
    assert allocating_block(tree, write_buffer(c, 0)) is root(tree)
    assert allocating_block(tree, read_buffer(c, 0)) is None
