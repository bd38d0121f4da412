"""Primitives that find blocks and loops."""

from __future__ import annotations

from mlcc.errors import did_you_mean
from mlcc.ir import tir
from mlcc.passes.schedule.analysis import scope
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.registry import primitive
from mlcc.passes.schedule.state import BlockRef, LoopRef, State
from mlcc.passes.schedule.tree import child_realizes


@primitive()
def get_block(state: State, name: str, func_name: str | None = None) -> BlockRef:
    """Return the block called `name` in a function: `func_name`, else the one chosen by `work_on`, else the only one.

    Refused if no block, or more than one, has the name (E0615), or no such function is there (E0616).
    TVM: `get_sblock`.
    """
    func_name = state.function_name(func_name)
    state.recorded["func_name"] = func_name
    tree = state.tree(func_name)
    blocks = tree.blocks_named(name)
    if len(blocks) == 1:
        return state.block_ref(func_name, blocks[0])
    if blocks:
        raise Refusal("E0615", f"`{func_name}` has {len(blocks)} blocks called `{name}`", tuple(blocks))
    known = sorted({r.block.name for r in tree.realizes})
    help = did_you_mean(name, known) or (f"its blocks are {', '.join(known[:20])}" if known else "it has no blocks")
    raise Refusal("E0615", f"`{func_name}` has no block called `{name}`", help=help)


@primitive()
def get_loops(state: State, block: BlockRef) -> list[LoopRef]:
    """Return the loops around a block, up to the enclosing block, outermost first."""
    loops = block.tree.loops_above(block.block)
    return [LoopRef(state, block.func_name, loop) for loop in loops]


@primitive()
def get_child_blocks(state: State, block_or_loop: BlockRef | LoopRef) -> list[BlockRef]:
    """Return the outermost blocks below a block or a loop, in order."""
    realizes = child_realizes(block_or_loop.node.body)
    return [state.block_ref(block_or_loop.func_name, r.block) for r in realizes]


@primitive()
def get_producers(state: State, block: BlockRef) -> list[BlockRef]:
    """Return the blocks of the same scope that write what this block reads, in order."""
    return [
        state.block_ref(block.func_name, b) for b in _without_plain_scopes(scope.producers(block.tree, block.block))
    ]


@primitive()
def get_consumers(state: State, block: BlockRef) -> list[BlockRef]:
    """Return the blocks of the same scope that read what this block writes, in order."""
    return [
        state.block_ref(block.func_name, b) for b in _without_plain_scopes(scope.consumers(block.tree, block.block))
    ]


@primitive()
def get_output_blocks(state: State, scope_block: BlockRef) -> list[BlockRef]:
    """Return the blocks below `scope_block` that write buffers which it does not allocate, in order."""
    return [state.block_ref(scope_block.func_name, b) for b in scope.output_blocks(scope_block.tree, scope_block.block)]


@primitive()
def enter_postproc(state: State) -> None:
    """Mark in the trace where decisions end and clean-up begins; changes nothing."""


def _without_plain_scopes(blocks: list[tir.Block]) -> list[tir.Block]:
    """Without mere scopes, as a partitioned loop leaves, which state no accesses."""
    return [b for b in blocks if b.iter_vars or b.reads or b.writes]
