"""Match the loops of a block with those of a tensor intrinsic."""

from __future__ import annotations

from typing import Any, NamedTuple

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.structural_keys import same_expr
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import children, find
from mlcc.ir.tir import IterKind
from mlcc.ir.visit import used_vars
from mlcc.passes.schedule.handles import BlockRV, LoopRV
from mlcc.passes.schedule.schedule import Schedule
from mlcc.passes.schedule.state import BlockRef
from mlcc.passes.schedule.tensor_intrin import TensorIntrin, find_intrin
from mlcc.passes.schedule.tree import Tree
from mlcc.tune.schedule_rule.analysis import block_of


def matches_intrin(ref: BlockRef, intrin: TensorIntrin) -> bool:
    """Return True if the block computes the intrinsic's description, up to indices and storage scopes."""
    return match_intrin_accesses(ref, intrin) is not None


def match_intrin_accesses(ref: BlockRef, intrin: TensorIntrin) -> list[Accesses] | None:
    """Match the block's accesses with those of the description; None if the block computes something else."""
    described = inner_block(intrin)
    kinds = (IterKind.SPATIAL, IterKind.REDUCE)
    if any(axis.kind not in kinds for axis in (*ref.block.iter_vars, *described.iter_vars)):
        return None
    matcher = _AccessMatcher()
    return list(matcher.found.values()) if matcher.same(ref.block.body, described.body) else None


class Accesses(NamedTuple):
    """A buffer of a block and the one of a description that it stands for, both with the indices of their accesses."""

    buffer: tir.Buffer
    indices: tuple[tir.Expr, ...]
    described: tuple[tir.Expr, ...]


def inner_block(intrin: TensorIntrin) -> tir.Block:
    """Return the innermost block of the description, which computes one element."""
    return _inner_block(intrin).block


def _inner_block(intrin: TensorIntrin) -> tir.BlockRealize:
    realize: tir.BlockRealize = next(find(intrin.description.block.body, tir.BlockRealize))
    return realize


class _AccessMatcher:
    """Pairs the buffers of a block with those of a description, by dtype, and each pair with one set of indices."""

    def __init__(self) -> None:
        self.found: dict[tir.Buffer, Accesses] = {}

    def same(self, here: Any, described: Any) -> bool:
        """Return True if the two match structurally. Indices of the description are variables."""
        match here, described:
            case tuple(), tuple():
                return len(here) == len(described) and all(map(self.same, here, described))
            case tir.BufferStore(), tir.BufferStore():
                return self._access(here, described) and self.same(here.value, described.value)
            case tir.BufferLoad(), tir.BufferLoad():
                return self._access(here, described)
            case (tir.IntImm(), tir.IntImm()) | (tir.FloatImm(), tir.FloatImm()):
                return bool(here.dtype == described.dtype and here.value == described.value)
            case (tir.Cast(), tir.Cast()) | (tir.BinaryOp(), tir.BinaryOp()):
                alike = type(here) is type(described) and here.dtype == described.dtype
                return alike and self.same(tuple(children(here)), tuple(children(described)))
        return False

    def _access(self, here: tir.BufferStore | tir.BufferLoad, described: tir.BufferStore | tir.BufferLoad) -> bool:
        if here.buffer.dtype != described.buffer.dtype:
            return False
        if described.buffer not in self.found:
            if any(one.buffer is here.buffer for one in self.found.values()):
                return False
            self.found[described.buffer] = Accesses(here.buffer, here.indices, described.indices)
        known = self.found[described.buffer]
        return known.buffer is here.buffer and all(map(same_expr, here.indices, known.indices))


def tile_with_tensor_intrin(sch: Schedule, block: BlockRV, intrin_name: str) -> LoopRV | None:
    """Tile the block's loops by the intrinsic's extents, and reorder the tile loops innermost.

    Returns the outermost loop of the tile; None if loops and axes do not match, or an extent is not divisible.
    TVM: `TileWithTensorIntrin` without padding.
    """
    ref = block_of(sch, block)
    realize = _inner_block(find_intrin(sch.state, intrin_name))
    described = list(find(find_intrin(sch.state, intrin_name).description.block.body, tir.For))
    matcher = _loop_pairs(ref, realize, described)
    if not matcher:
        return None
    handles = dict(zip((loop.var for loop in ref.tree.loops_above(ref.block)), sch.get_loops(block), strict=True))
    inner: dict[int, LoopRV] = {}
    for loop, target in matcher:
        extent = tir.const_int(target.extent)
        _, inner[described.index(target)] = sch.split(handles[loop.var], factors=[None, extent])
    tile = {sch.get(loop).var for loop in inner.values()}
    met = False
    below: list[LoopRV] = []
    for loop_rv in sch.get_loops(block):
        if sch.get(loop_rv).var in tile:
            met = True
        elif met:
            below.append(loop_rv)
    ordered = [inner[at] for at in sorted(inner)]
    sch.reorder(*below, *ordered)
    return ordered[0]


def _loop_pairs(
    ref: BlockRef, described: tir.BlockRealize, described_loops: list[tir.For]
) -> list[tuple[tir.For, tir.For]] | None:
    """Return pairs of corresponding loops of the block and the description, innermost axes first."""
    own = _nest_of(ref.tree, ref.block)
    values, axes = ref.realize.values, ref.block.iter_vars
    if len(axes) < len(described.values) or len(own) != len(axes):
        return None
    analyzer = Analyzer()
    matcher: list[tuple[tir.For, tir.For]] = []
    at = len(axes) - 1
    for axis, value in zip(reversed(described.block.iter_vars), reversed(described.values), strict=True):
        target = _driving_loop(analyzer, value, described_loops, ())
        while at >= 0 and axes[at].kind is not axis.kind:
            at -= 1
        if target is None or at < 0:
            return None
        loop = _driving_loop(analyzer, values[at], own, tuple(known for known, _ in matcher))
        at -= 1
        if loop is None:
            continue
        extent, tile = tir.const_int(loop.extent), tir.const_int(target.extent)
        if extent is None or tile is None or extent % tile:
            return None
        matcher.append((loop, target))
    return matcher


def _nest_of(tree: Tree, block: tir.Block) -> list[tir.For]:
    """Return the perfect loop nest around a block: up to a loop with several statements."""
    nest: list[tir.For] = []
    for loop in reversed(tree.loops_above(block)):
        if len(loop.body) != 1:
            break
        nest.insert(0, loop)
    return nest


def _driving_loop(
    analyzer: Analyzer, value: tir.Expr, loops: list[tir.For], taken: tuple[tir.For, ...]
) -> tir.For | None:
    """Return the first loop that drives a value: the value is its variable plus a loop-invariant term."""
    every = {loop.var for loop in loops}
    for loop in loops:
        if loop not in taken and not used_vars(analyzer.simplify(c.sub(value, loop.var))) & every:
            return loop
    return None
