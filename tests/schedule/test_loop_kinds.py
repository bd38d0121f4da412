"""parallel, vectorize, unroll and bind; annotate and unannotate."""

from __future__ import annotations

import pytest

import mlcc
from tests.schedule.nests import elementwise, row_sums
from tests.schedule.tools import MATMUL, assert_same_results, refused, schedule


@pytest.mark.parametrize("name, kind", [("parallel", "parallel"), ("vectorize", "vectorized"), ("unroll", "unroll")])
def test_loops_get_their_kind(name: str, kind: str) -> None:
    text = elementwise(4, 8)
    for n in (0, 1):
        sch = schedule(text)
        loop = sch.get_loops("B")[n]
        getattr(sch, name)(loop)
        assert sch.get(loop).kind.value == kind
        assert_same_results(mlcc.parse(text), sch.mod)


@pytest.mark.parametrize("name, verb", [("parallel", "parallelize"), ("vectorize", "vectorize")])
def test_a_reduce_loop_runs_in_order(name: str, verb: str) -> None:
    sch = schedule(MATMUL)
    k = sch.get_loops("C")[2]
    words = f"cannot {verb} loop `k`: it drives the reduce axis `vk` of block `C`.*spatial: `i`, `j`.*rfactor"
    with refused("E0627", words):
        getattr(sch, name)(k)
    sch.unroll(k)
    sch = schedule(row_sums(4, 6))
    with refused("E0627", "reduce axis `vj`"):
        getattr(sch, name)(sch.fuse(*sch.get_loops("B")))


def test_bind_gives_loops_to_threads() -> None:
    sch = schedule(MATMUL)
    i, j, k = sch.get_loops("C")
    sch.bind(i, "blockIdx.x")
    sch.bind(j, "vthread.y")
    with refused("E0627", "cannot bind to `blockIdx.y` loop `k`.*bind it to `threadIdx.x`"):
        sch.bind(k, "blockIdx.y")
    sch.bind(k, "threadIdx.x")
    assert [sch.get(x).thread for x in (i, j, k)] == ["blockIdx.x", "vthread.y", "threadIdx.x"]
    with refused("E0628", "no thread axis `threadIdx.q`.*did you mean `threadIdx"):
        sch.bind(k, "threadIdx.q")
    sch.unroll(k)
    assert sch.get(k).thread is None


def test_loops_of_opaque_axes_are_refused() -> None:
    text = elementwise(4).replace('T.axis.remap("S", [i])', "T.axis.opaque(4, i)")
    sch = schedule(text)
    with refused("E0657"):
        sch.parallel(sch.get_loops("B")[0])


# ---------------------------------------------------------------- annotations


def test_annotations_of_loops_and_blocks() -> None:
    sch = schedule(elementwise(4, 8))
    block, (i, _) = sch.get_block("B"), sch.get_loops("B")
    sch.annotate(i, "pragma", 1)
    sch.annotate(block, "plan", {"tiles": [1, 2.5, "x"], "on": True})
    sch.annotate(block, "plan", 3)  # one that is there stays
    script = sch.mod.script()
    assert 'annotations={"pragma": 1}' in script
    assert 'T.block_attr({"plan": {"on": True, "tiles": [1, 2.5, "x"]}})' in script
    sch.unannotate(i, "pragma")
    sch.unannotate(block, "plan")
    mlcc.assert_structural_equal(sch.mod, mlcc.parse(elementwise(4, 8)))


def test_annotations_that_are_not_there() -> None:
    sch = schedule(elementwise(4, 8))
    block, (i, _) = sch.get_block("B"), sch.get_loops("B")
    sch.annotate(i, "pragma", 1)
    with refused("E0693", "loop `i` has no annotation `pragna`.*did you mean `pragma`"):
        sch.unannotate(i, "pragna")
    with refused("E0693", "block `B` has no annotation `x`.*its annotations: none"):
        sch.unannotate(block, "x")
    with refused("E0693", "cannot be a loop"):
        sch.annotate(block, "x", i)
