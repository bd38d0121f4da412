"""Products of matrices in every layout, with what is computed from them element by element.

The sums of a tile of the result (`tiles`) stay in registers while the whole depth goes by; what follows is computed as
the tile is stored. The operand that vectors are loaded from stands ready in panels as wide as a tile, where its reuse
pays for the copy; the other one is read element by element. Sizes that the tile does not divide are padded: with zeros
in the operands, and with stores that leave out what is beyond the end.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlcc.errors import CompileError
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.passes.auto_schedule.contraction import Contraction, Operand, contraction
from mlcc.passes.auto_schedule.inlining import inline_cheap, try_inline
from mlcc.passes.auto_schedule.kernel import Kernel, not_this
from mlcc.passes.auto_schedule.nests import reduce_nest, share_out, spatial_nest, vector_place, worth_threads
from mlcc.passes.auto_schedule.tiles import Tile, best_tile
from mlcc.passes.schedule.handles import BlockRV

LEAST_REUSE = 24  # rows that a panel has to serve before making it takes less time than it saves


def matmul(kernel: Kernel) -> str:
    """The rule: tiles over panels, as the module says."""
    inline_cheap(kernel)
    block, product = _product(kernel)
    plan = _plan(kernel, product)
    kernel.say(str(plan))
    others = [b for b in kernel.blocks() if kernel.sch.get(b) is not kernel.sch.get(block)]
    epilogue = _result_in_registers(kernel, block, product, plan)
    made = _operands(kernel, block, product, plan)
    _tiles(kernel, block, epilogue, product, plan)
    for other in (*made, *others):
        if _stands(kernel, other) and kernel.sch.get(other) is not kernel.sch.get(epilogue):
            kernel.say((reduce_nest if kernel.stage(other).reduced else spatial_nest)(kernel, other))
    return f"`{product.stage.block.name}` is a product of matrices"


# ---------------------------------------------------------------- what is to be done


@dataclass(frozen=True)
class Plan:
    """The tile, and which operands are copied: `panels` of the one that vectors are loaded from, `rows` of the other
    where its own layout is in the way."""

    tile: Tile
    panels: bool
    rows: bool

    def __str__(self) -> str:
        tile = f"tiles of {self.tile.rows} rows and {self.tile.vectors} vectors of {self.tile.lanes}"
        copies = ["panels of the right operand"] * self.panels + ["strips of the left one"] * self.rows
        return f"{tile}; {' and '.join(copies) or 'operands as they are'}"


def _product(kernel: Kernel) -> tuple[BlockRV, Contraction]:
    """The only contraction of a kernel, and the handle of its block."""
    found = []
    why = "it has no reduction"
    for block in kernel.blocks():
        stage = kernel.stage(block)
        if stage.reduced:
            made = contraction(stage)
            if isinstance(made, str):
                why = made
            else:
                found.append((block, made))
    if len(found) != 1:
        not_this(f"{len(found)} products" if found else why)
    return found[0]


def _plan(kernel: Kernel, product: Contraction) -> Plan:
    m, n, depth = product.extent(product.m), product.extent(product.n), product.depth
    bits = max(o.buffer.dtype.bits for o in (product.lhs, product.rhs))
    lanes = kernel.facts.lanes(max(bits, product.stage.stores[0].buffer.dtype.bits) // 8)
    tile = best_tile(kernel.facts, 1 if product.m is None else m, n, lanes)
    size = None if n is None or depth is None else n * depth * bits // 8
    fits = size is not None and size <= kernel.facts.l1_bytes // 2
    in_rows = product.consecutive(product.rhs) == product.n
    narrow = in_rows and n is not None and n <= tile.columns
    reused = m is not None and product.m is not None and m >= LEAST_REUSE
    panels = kernel.is_constant(product.rhs.buffer) or (reused and not narrow and not (fits and in_rows))
    if not panels and not in_rows:
        not_this("the right operand is consecutive in depth, and read too rarely to be worth another layout")
    across = product.m is not None and product.consecutive(product.lhs) == product.m
    return Plan(tile, panels, rows=across and not fits and tile.rows > 1)


# ---------------------------------------------------------------- the result


def _result_in_registers(kernel: Kernel, block: BlockRV, product: Contraction, plan: Plan) -> BlockRV:
    """Pad the product to whole tiles, and sum up in local memory; gives the block that stores what comes of it."""
    sch = kernel.sch
    axes = [product.stage.axes[a.var] for a in product.stage.block.iter_vars]
    of_loop = {loop.var: n for n, loop in enumerate(product.stage.loops)}
    places = [of_loop[v] for v in axes]  # type: ignore[index]
    steps = {product.m: plan.tile.rows, product.n: plan.tile.columns}
    sch.pad_einsum(block, [steps.get(p, 1) for p in places])
    last = _only_reader(kernel, block)
    if last is not None and kernel.stage(last).block.name.endswith("_pad"):  # the copy out of padded memory
        after = _only_reader(kernel, last)
        if after is not None and try_inline(kernel, last):
            last = after
    if last is None:
        return sch.cache_write(block, 0, "local")  # type: ignore[no-any-return]
    sch.set_scope(block, 0, "local")
    return last


def _only_reader(kernel: Kernel, block: BlockRV) -> BlockRV | None:
    """The one block that reads what a block computes for it alone, element by element."""
    readers = kernel.sch.get_consumers(block)
    stage = kernel.stage(block)
    if len(readers) != 1 or kernel.is_output(stage):
        return None
    reader = kernel.stage(readers[0])
    buffer = stage.block.writes[0].buffer
    loads = [a for a in reader.accesses if a.buffer is buffer and not a.stored]
    by_axes = len(loads) == 1 and all(isinstance(i, tir.Var) for i in loads[0].indices)
    if reader.reduced or not reader.plain or not by_axes or len(set(loads[0].indices)) != len(reader.loops):
        return None
    return readers[0]  # type: ignore[no-any-return]


# ---------------------------------------------------------------- the operands


def _operands(kernel: Kernel, block: BlockRV, product: Contraction, plan: Plan) -> list[BlockRV]:
    """Copies of operands in the layout that tiles read; gives the blocks that make them."""
    made = []
    for operand, place, step, wanted in (
        (product.rhs, product.n, plan.tile.columns, plan.panels),
        (product.lhs, product.m, plan.tile.rows, plan.rows),
    ):
        copy = _padding_of(kernel, block, operand)
        if copy is not None and not wanted and operand is product.rhs and try_inline(kernel, copy):
            continue
        if copy is None and wanted:
            copy = kernel.sch.cache_read(block, _number(kernel, block, operand.buffer), "global")
        if copy is None:
            continue
        if wanted:
            assert place is not None
            written = kernel.stage(copy).block.writes[0].buffer
            index_map = _in_panels(written, operand, place, product.k, step)
            kernel.sch.transform_layout(block, ("read", _number(kernel, block, written)), index_map)
            _fill_panels(kernel, copy, operand, product, place, step, plan.tile.lanes)
        else:
            made.append(copy)
    return made


def _padding_of(kernel: Kernel, block: BlockRV, operand: Operand) -> BlockRV | None:
    """The block that copies an operand into padded memory."""
    for producer in kernel.sch.get_producers(block):
        found = kernel.sch.get(producer)
        if found.name == f"{operand.buffer.name}_pad" and found.reads[0].buffer is operand.buffer:
            return producer  # type: ignore[no-any-return]
    return None


def _number(kernel: Kernel, block: BlockRV, buffer: tir.Buffer) -> int:
    """The place of a buffer among those that a block reads."""
    return [r.buffer for r in kernel.stage(block).block.reads].index(buffer)


def _in_panels(buffer: tir.Buffer, operand: Operand, place: int, depth: tuple[int, ...], step: int) -> tir.IndexMap:
    """Outer axes, panels, depth, and the elements of a panel side by side."""
    given = tuple(tir.Var(f"i{n}", size.dtype) for n, size in enumerate(buffer.shape))
    outer = [v for v, p in zip(given, operand.places, strict=True) if p != place and p not in depth]
    deep = [v for v, p in zip(given, operand.places, strict=True) if p in depth]
    (own,) = (v for v, p in zip(given, operand.places, strict=True) if p == place)
    return tir.IndexMap(given, (*outer, c.floordiv(own, step), *deep, c.floormod(own, step)))


def _fill_panels(
    kernel: Kernel, copy: BlockRV, operand: Operand, product: Contraction, place: int, step: int, lanes: int
) -> None:
    """The loops of a copy into panels, panel by panel: in vectors where the operand is consecutive along them, else in
    squares whose rows and columns are whole lines."""
    sch = kernel.sch
    stage = kernel.stage(copy)
    loops = kernel.loops(copy)  # one for each dimension of the operand
    at = operand.places.index(place)
    deep = [n for n, p in enumerate(operand.places) if p in product.k]
    outer = [loops[n] for n in range(len(loops)) if n != at and n not in deep]
    inside = [loops[n] for n in deep]
    many = worth_threads(kernel, stage)
    if product.consecutive(operand) == place and step % lanes == 0:
        panel, column, lane = sch.split(loops[at], [None, step // lanes, lanes])
        sch.reorder(*outer, panel, *inside, column, lane)
        sch.vectorize(lane)
    elif product.consecutive(operand) == place:
        panel, lane = sch.split(loops[at], [None, step])
        sch.reorder(*outer, panel, *inside, lane)
    else:
        panel, *strip = sch.split(loops[at], [None, step // lanes, lanes] if step % lanes == 0 else [None, step])
        far, near = sch.split(inside.pop(), [None, lanes])
        sch.reorder(*outer, panel, *strip[:-1], *inside, far, strip[-1], near)
    if many:
        share_out(kernel, [*outer, panel])


# ---------------------------------------------------------------- the tiles


def _tiles(kernel: Kernel, block: BlockRV, epilogue: BlockRV, product: Contraction, plan: Plan) -> None:
    """Tile by tile: zeros, the sums over the depth, and the stores."""
    sch, tile = kernel.sch, plan.tile
    loops = kernel.loops(block)
    many = worth_threads(kernel, kernel.stage(block))
    panel, *columns = sch.split(loops[product.n], [None, tile.vectors, tile.lanes])
    strip, *rows = sch.split(loops[product.m], [None, tile.rows]) if product.m is not None else (None,)
    outer = [*(loops[p] for p in product.outer), panel, *([strip] if strip is not None else [])]
    depth = [loops[p] for p in product.k]
    inner = [*rows, columns[0]] if tile.vectors <= tile.rows else [columns[0], *rows]
    sch.reorder(*outer, *depth, *inner, columns[1])
    sch.reverse_compute_at(epilogue, outer[-1])
    for loop in inner:
        sch.unroll(loop)
    sch.vectorize(columns[1])
    _stores(kernel, epilogue, len(outer), tile)
    if many:
        share_out(kernel, outer)
    sch.decompose_reduction(block, depth[0])


def _stores(kernel: Kernel, epilogue: BlockRV, above: int, tile: Tile) -> None:
    """The loops of what is stored of a tile: in vectors, the rest written out."""
    sch = kernel.sch
    stage, loops = kernel.stage(epilogue), kernel.loops(epilogue)
    own = list(range(above, len(loops)))
    vector = vector_place(stage, own)
    for place in own:
        if place != vector:
            sch.unroll(loops[place])
    if vector is None:
        return
    if vector != own[-1]:
        sch.reorder(*(loops[p] for p in own if p != vector), loops[vector])
    first, last = sch.split(loops[vector], [None, tile.lanes])
    sch.unroll(first)
    sch.vectorize(last)


def _stands(kernel: Kernel, block: BlockRV) -> bool:
    """Is a block still there, in loops of its own?"""
    try:
        kernel.sch.get(block)
    except CompileError:
        return False
    return True
