"""The TIR function of an attention: one kernel, or for few queries two (split keys, then a combination)."""

from __future__ import annotations

from collections.abc import Sequence

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import Attrs
from mlcc.ir.tir import Stmt
from mlcc.machine.gpu_tables import GpuFacts
from mlcc.passes.attention.attention_kernel import AttentionKernel
from mlcc.passes.attention.spec import Attention
from mlcc.passes.attention.split_keys import CombineKernel, KeySplit, SplitKeysKernel
from mlcc.passes.attention.tiles import Tile, small_tile_for, tile_for
from mlcc.passes.auto_schedule.eligibility import MADE_BY, SCHEDULED
from mlcc.passes.gpu.insert_barriers import MANUAL


def attention_function(attention: Attention, facts: GpuFacts) -> tir.PrimFunc | None:
    """Return the TIR function of an attention, or None if no tile fits into shared memory."""
    tile, small = tile_for(attention, facts), small_tile_for(attention, facts)
    queries = tir.const_int(attention.queries)
    if tile is None:
        return None
    if small is None or queries is not None and queries > small.rows:
        return _prim_func(attention, *AttentionKernel(attention, tile).instantiate(), why=str(tile))
    share = KeySplit.of(attention, small, facts)
    buffers, body = _split_keys(attention, small, share)
    why = f"{small}, keys split among {share.max_count} blocks"
    if queries is None:
        full_buffers, full_body = AttentionKernel(attention, tile).instantiate()
        has_few_queries = c.less_equal(attention.queries, small.rows)
        body, buffers = (tir.IfThenElse(has_few_queries, body, full_body),), (*buffers, *full_buffers)
        why = f"{tile}; up to {small.rows} queries {why}"
    return _prim_func(attention, buffers, body, why)


def _split_keys(attention: Attention, tile: Tile, share: KeySplit) -> tuple[tuple[tir.Buffer, ...], tuple[Stmt, ...]]:
    """Return two kernels: one whose blocks split the keys of a head, and one that combines their partial results."""
    partial_buffers, partial_body = SplitKeysKernel(attention, tile, share).instantiate()
    combine_buffers, combine_body = CombineKernel(attention, share).instantiate()
    return (share.partial, *partial_buffers, *combine_buffers), (*partial_body, *combine_body)


def _prim_func(attention: Attention, buffers: Sequence[tir.Buffer], body: tuple[Stmt, ...], why: str) -> tir.PrimFunc:
    root = tir.Block("root", (), (), (), body, alloc_buffers=tuple(buffers))
    attrs = Attrs({SCHEDULED: True, MADE_BY: f"fuse-attention: {why}", MANUAL: True, "tir.noalias": True})
    return tir.PrimFunc(attention.params, attention.buffers, attrs, (tir.BlockRealize((), tir.TRUE, root),))
