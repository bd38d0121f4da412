"""What is known of blocks, compared with what TVM's schedule state keeps of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

tvm = pytest.importorskip("tvm")

from mlcc.ir import tir  # noqa: E402
from mlcc.ir.visit import has_block  # noqa: E402
from mlcc.passes.schedule.analysis.bindings import is_affine_binding, is_trivial_binding  # noqa: E402
from mlcc.passes.schedule.analysis.conditions import is_reduction_block  # noqa: E402
from mlcc.passes.schedule.analysis.region_cover import is_stage_pipeline, region_cover  # noqa: E402
from mlcc.passes.schedule.analysis.scope import consumers, output_blocks, producers  # noqa: E402
from mlcc.passes.schedule.tree import Tree  # noqa: E402
from tests.interop.harness import from_tvm, to_tvm  # noqa: E402
from tests.interop.schedule.analysis_programs import NESTS, SCHEDULES, scramble  # noqa: E402


def agree(mod: Any, exactly: bool = True) -> None:
    """Flags, producers, consumers, outputs and kinds of all blocks are what TVM finds.

    If not `exactly`, regions may be covered here of which TVM cannot prove it: two spellings of one index, say.
    """
    sch = tvm.s_tir.Schedule(mod)
    func = from_tvm(mod)["main"]
    assert isinstance(func, tir.PrimFunc)
    tree = Tree(func)
    assert tree.root is not None
    theirs_root = sch.get_sblock("root")
    for block in blocks_below(tree, tree.root):
        realize = tree.realize(block)
        theirs = sch.get_sblock(block.name)
        flags = sch.state._get_cached_flags(sch.get_sref(theirs))
        assert is_affine_binding(tree, realize) == flags.affine_binding, block.name
        mine = (region_cover(tree, block), is_stage_pipeline(tree, block))
        theirs_too = (flags.region_cover, flags.stage_pipeline)
        assert mine == theirs_too or (not exactly and mine > theirs_too), block.name
        if block is tree.root:
            continue
        assert names(producers(tree, block)) == [sch.get(b).name_hint for b in sch.get_producers(theirs)]
        assert names(consumers(tree, block)) == [sch.get(b).name_hint for b in sch.get_consumers(theirs)]
        scope = tree.scope(block)
        assert scope is not None
        is_reduction = tvm.get_global_func("s_tir.schedule.IsReductionBlock")
        found = is_reduction(sch, theirs, sch.get_sblock(scope.name))
        assert is_reduction_block(tree, block, scope) == bool(found), block.name
        is_trivial = tvm.get_global_func("s_tir.schedule.IsTrivialBinding")
        assert is_trivial_binding(tree, block) == bool(is_trivial(sch, theirs)), block.name
    if any(r.block.init and has_block(r.block.init) for r in tree.realizes):
        return  # TVM's search for output blocks looks into inits and fails there
    outputs = [sch.get(b).name_hint for b in sch.get_output_blocks(theirs_root)]
    assert names(output_blocks(tree, tree.root)) == outputs


def blocks_below(tree: Tree, block: tir.Block) -> Iterator[tir.Block]:
    """`block` and the blocks in it, without those in inits, which TVM's state does not know."""
    yield block
    for realize in tree.child_realizes(block):
        yield from blocks_below(tree, realize.block)


def names(blocks: list[tir.Block]) -> list[str]:
    return [b.name for b in blocks]


@pytest.mark.parametrize("name", NESTS)
def test_properties_of_nests_agree(name: str) -> None:
    agree(to_tvm(NESTS[name]))


@pytest.mark.parametrize("name", SCHEDULES)
def test_properties_of_scheduled_nests_agree(name: str) -> None:
    program, steps = SCHEDULES[name]
    sch = tvm.s_tir.Schedule(to_tvm(NESTS[program]))
    steps(sch)
    agree(sch.mod)


@pytest.mark.parametrize("program", ["matmul relu", "chain", "window", "shifted reads", "predicate", "fused by hand"])
def test_properties_of_random_schedules_agree(program: str, all_cases: bool) -> None:
    for seed in range(200 if all_cases else 4):
        sch = tvm.s_tir.Schedule(to_tvm(NESTS[program]))
        scramble(sch, seed)
        agree(sch.mod, exactly=False)
