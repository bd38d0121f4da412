"""cache_inplace, cache_index, reindex, reindexed caches, read_at and write_at against TVM's, on many programs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

tvm = pytest.importorskip("tvm")

import mlcc  # noqa: E402
from mlcc.ir import tir  # noqa: E402
from mlcc.ir.equal import assert_structural_equal  # noqa: E402
from mlcc.ir.module import IRModule  # noqa: E402
from mlcc.ir.node import replace  # noqa: E402
from mlcc.ir.visit import rewrite_bottom_up  # noqa: E402
from mlcc.passes.schedule.tree import Tree  # noqa: E402
from tests.interop.schedule.agree import Step, assert_agree, blocks, mine, read, theirs  # noqa: E402
from tests.interop.schedule.cache_programs import PROGRAMS  # noqa: E402

MAPS: dict[int, list[Callable[..., Any]]] = {
    1: [lambda i: (i,), lambda i: (i // 4, i % 4)],
    2: [lambda i, j: (j, i), lambda i, j: (i,), lambda i, j: (i // 4, j, i % 4), lambda i, j: (i, j // 5, j % 5)],
    3: [lambda i, j, k: (k, i), lambda i, j, k: (j, i), lambda i, j, k: (k // 8, j, k % 8), lambda i, j, k: (k, j)],
}
# TVM's programs are wrong there: they read a cache before anything is in it, copy out of bounds what a predicate
# guards, have axes of a block outside of it, go on using the old buffer's pointer
WRONG_IN_TVM = {
    "in place": {"cache_inplace", "reindex", "reindex_cache_read", "reindex_cache_write", "write_at"},
    "blockized reduction": {"cache_inplace", "reindex", "reindex_cache_read", "reindex_cache_write", "read_at"},
    "predicate": {"reindex_cache_read", "reindex_cache_write"},
    "nested predicates": {"reindex_cache_read", "reindex_cache_write", "read_at", "write_at"},
    "opaque": {"read_at", "write_at"},
    "matched": {"read_at", "write_at"},
    "indirect": {"reindex"},  # reads of the index buffer, which TVM leaves out
    # each thread copies back what the others have yet to write
    "threads": {"write_at"},
    # it knows no variables there but those of loops
    "blocks in blocks": {"read_at", "write_at"},
    # it leaves out the condition of the loops around a copy
    "nested predicates, outer variables only": {"reindex_cache_read", "reindex_cache_write", "read_at", "write_at"},
    # (n + (0 - n) % 4) is spelled (n - n % -4)
    "symbolic": {"reindex_cache_read", "reindex_cache_write"},
}


def steps(module: IRModule) -> Iterator[Step]:
    func = module["main"]
    assert isinstance(func, tir.PrimFunc)
    tree = Tree(func)
    for block in blocks(module):
        name = block.name
        for n in range(len(block.reads)):
            yield "cache_inplace", (name, n, "local"), {}
        if block is tree.root:
            continue
        loops = range(len(tree.loops_above(block)))
        for kind, regions in (("read", block.reads), ("write", block.writes)):
            for n in range(len(regions)):
                yield "reindex", (name, (kind, n)), {}
                for index_map in MAPS.get(len(block.iter_vars), []):
                    yield f"reindex_cache_{kind}", (name, n, "shared", index_map), {}
                for at in loops:
                    yield f"{kind}_at", (("loop", name, at), ("block", name), n, "shared"), {}


@pytest.mark.parametrize("label", PROGRAMS)
def test_every_step_agrees(label: str) -> None:
    module, mirrored = read(PROGRAMS[label])
    for step in steps(mirrored):
        if step[0] not in WRONG_IN_TVM.get(label, ()):
            assert_agree(module, mirrored, step)


TERMS = [
    "A[vi // 4 + vj // 4, vj // 2]",
    "A[vi // 4 + vj // 4, vj // 2] + A[vi // 4 + vj // 4, vj // 2 + 1]",
    "A[vi * 2 + 1, vj * 2 + 1] * A[vi * 2 + 1, vj * 2 + 2]",
    "T.if_then_else(vi < 3, A[vi * 2, vj], A[vi * 2 + 1, vj // 3])",
    "A[vi % 7, vj] + T.Cast('float32', vi * 2 + vj)",
    "A[(vi + 1) * 2, vj * 2] + A[vi * 2 + 2, vj + vj]",
    "A[vi * 2 + 1, vj * 3] + A[vi * 2 + 3, vj * 3] + A[vi * 2 + 1, vj]",
    "A[T.max(vi - 1, 0), T.min(vj + 1, 39)] + A[T.max(vi - 1, 0), vj]",
]


@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize("least", [0, 1, 2, 3])
def test_cache_index_agrees(term: str, least: int) -> None:
    """TVM fails on fewer than two terms, gives buffers of two dimensions one stride, and no block reads them."""
    text = f"""
@T.prim_func(s_tir=True)
def main(A: T.Buffer((200, 200), "float32"), B: T.Buffer((80, 40), "float32")):
    for i, j in T.grid(80, 40):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = {term}
"""
    module, mirrored = read(text)
    step: Step = ("cache_index", ("B", "global", least), {})
    made, expected = mine(mirrored, step), theirs(module, step)
    assert made is not None
    if expected is None:
        assert len(list(blocks(made))) <= len(list(blocks(mirrored))) + 1
        return
    script = re.sub(r'(\(\d+, \d+\)(, "\w+")?), strides=\(1,\)', r"\1", expected.script())
    assert_structural_equal(rewrite_bottom_up(made["main"], _without_index_reads), mlcc.parse(script)["main"])


def _without_index_reads(node: Any) -> Any:
    if isinstance(node, tir.Block) and node.name == "B":
        reads = tuple(r for r in node.reads if not r.buffer.name.startswith("index_var"))
        return replace(node, reads=reads)
    return node
