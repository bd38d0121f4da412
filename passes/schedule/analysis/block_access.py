"""The buffers that a block reads and writes, and the blocks that allocate them."""

from __future__ import annotations

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.regions import BlockAccess
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import replace, walk
from mlcc.ir.visit import has_block
from mlcc.passes.schedule.buffers import BufferArg
from mlcc.passes.schedule.substitution import map_realizes
from mlcc.passes.schedule.tree import Tree, child_realizes


def read_region(block: tir.Block, n: int) -> tir.BufferRegion:
    """Return the n-th region that `block` reads; refuse (E0614) a missing one."""
    return block.reads[BufferArg(n).of(block, "read").index]


def write_region(block: tir.Block, n: int) -> tir.BufferRegion:
    """Return the n-th region that `block` writes; refuse (E0614) a missing one."""
    return block.writes[BufferArg(n).of(block, "write").index]


def read_buffer(block: tir.Block, n: int) -> tir.Buffer:
    """Return the n-th buffer that `block` reads; refuse (E0614) a missing one."""
    return read_region(block, n).buffer


def write_buffer(block: tir.Block, n: int) -> tir.Buffer:
    """Return the n-th buffer that `block` writes; refuse (E0614) a missing one."""
    return write_region(block, n).buffer


def defining_block(tree: Tree, block: tir.Block, buffer: tir.Buffer) -> tuple[tir.Block | None, bool]:
    """Return the block, `block` or one around it, that defines `buffer`; True if it allocates it, False if it matches.

    (None, False) for what a parameter brings in.
    """
    at: tir.Block | None = block
    while at is not None:
        if buffer in at.alloc_buffers:
            return at, True
        if any(m.buffer is buffer for m in at.match_buffers):
            return at, False
        at = tree.scope(at)
    return None, False


def allocating_block(tree: Tree, buffer: tir.Buffer) -> tir.Block | None:
    """Return the block that allocates `buffer`; None for parameters and matched buffers."""
    sites = tree.cache.get("allocations")
    if sites is None:
        sites = tree.cache["allocations"] = {b: r.block for r in tree.realizes for b in r.block.alloc_buffers}
    return sites.get(buffer)


def with_loads_declared(init: tir.Block) -> tir.Block:
    """A block made of an init, with what it loads itself (a bias that `fuse_reduction_epilogue` starts from)."""
    loaded = {n.buffer.data: n.buffer for n in walk(init.body) if isinstance(n, tir.BufferLoad)}
    return replace(init, reads=BlockAccess(loaded).collect(init).reads.as_regions()) if loaded else init


def with_regions(block: tir.Block) -> tir.Block:
    """Return the block; one that is a mere scope and declares no accesses is given the regions accessed inside it."""
    if block.iter_vars or block.reads or block.writes:
        return block
    inside = map_realizes(block.body, lambda realize: replace(realize, block=with_exact_regions(realize.block)))
    regions = [r for realize in child_realizes(inside) for r in (*realize.block.reads, *realize.block.writes)]
    accessed = [
        n for n in (*walk(block.body), *regions) if isinstance(n, (tir.BufferLoad, tir.BufferStore, tir.BufferRegion))
    ]
    own = {buffer.data for buffer in block.alloc_buffers}
    visible = {n.buffer.data: n.buffer for n in accessed if n.buffer.data not in own}
    access = BlockAccess(visible).collect(replace(block, body=inside))
    return replace(block, reads=access.read_regions(block), writes=access.writes.as_regions())


def with_exact_regions(block: tir.Block) -> tir.Block:
    """Return the block with regions that are exactly what it accesses, as far as that is known."""
    if not (block.reads or block.writes):
        return with_regions(block)
    reads = tuple(exact_region(block, region, writing=False) for region in block.reads)
    writes = tuple(exact_region(block, region, writing=True) for region in block.writes)
    return replace(block, reads=reads, writes=writes)


def exact_region(block: tir.Block, region: tir.BufferRegion, writing: bool) -> tir.BufferRegion:
    """Return the exact region of a buffer that a leaf block accesses, where `region`, which it declares, may be larger.

    A partitioned loop, for instance, leaves regions that cover all its iterations. A block with blocks in it keeps
    `region`.
    """
    if has_block(block.body):
        return region
    access = BlockAccess({region.buffer.data: region.buffer}).collect(block)
    regions = (access.writes if writing else access.reads).as_regions()
    if len(regions) != 1:
        return region
    analyzer = Analyzer()
    same = all(
        analyzer.prove_equal(a.min, b.min) and analyzer.prove_equal(a.extent, b.extent)
        for a, b in zip(regions[0].region, region.region, strict=True)
    )
    return region if same else regions[0]


def points(indices: tuple[tir.Expr, ...]) -> tuple[tir.Range, ...]:
    """The region of the one element at `indices`."""
    return tuple(tir.Range(i, c.const(1, i.dtype)) for i in indices)
