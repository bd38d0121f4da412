"""The function that computes an attention: one kernel, or two for a few queries (split keys, then a combination)."""

from __future__ import annotations

from collections.abc import Sequence

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import Attrs
from mlcc.ir.tir import Stmt
from mlcc.machine.gpu_tables import GpuFacts
from mlcc.passes.attention.fill import Fill
from mlcc.passes.attention.parts import Combine, Parts, Share
from mlcc.passes.attention.spec import Attention
from mlcc.passes.attention.tiles import Tile, small_tile_for, tile_for
from mlcc.passes.auto_schedule.eligibility import MADE_BY, SCHEDULED
from mlcc.passes.gpu.insert_barriers import MANUAL


def kernel(what: Attention, facts: GpuFacts) -> tir.PrimFunc | None:
    """Return the function of an attention; None if none of its tiles fits on the chip."""
    tile, small = tile_for(what, facts), small_tile_for(what, facts)
    queries = tir.const_int(what.queries)
    if tile is None:
        return None
    if small is None or queries is not None and queries > small.rows:
        return _function(what, *Fill(what, tile).code(), why=str(tile))
    share = Share.of(what, small, facts)
    buffers, body = _apart(what, small, share)
    why = f"{small}, keys shared out to {share.most} blocks"
    if queries is None:
        whole, otherwise = Fill(what, tile).code()
        few = c.less_equal(what.queries, small.rows)
        body, buffers = (tir.IfThenElse(few, body, otherwise),), (*buffers, *whole)
        why = f"{tile}; up to {small.rows} queries {why}"
    return _function(what, buffers, body, why)


def _apart(what: Attention, tile: Tile, share: Share) -> tuple[tuple[tir.Buffer, ...], tuple[Stmt, ...]]:
    """Return two kernels: one whose blocks split the keys of a head, and one that combines their results."""
    first, parts = Parts(what, tile, share).code()
    second, combine = Combine(what, share).code()
    return (share.partial, *first, *second), (*parts, *combine)


def _function(what: Attention, buffers: Sequence[tir.Buffer], body: tuple[Stmt, ...], why: str) -> tir.PrimFunc:
    root = tir.Block("root", (), (), (), body, alloc_buffers=tuple(buffers))
    attrs = Attrs({SCHEDULED: True, MADE_BY: f"fuse-attention: {why}", MANUAL: True, "tir.noalias": True})
    return tir.PrimFunc(what.params, what.buffers, attrs, (tir.BlockRealize((), tir.TRUE, root),))
