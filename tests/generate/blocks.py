"""Blocks beyond the plain ones: blocks in blocks, with memory and views of their own, and axes of other kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import replace
from mlcc.ir.tir import IterKind

if TYPE_CHECKING:
    from tests.generate.functions import Dims, Generator, Scope


def opaque(g: Generator, target: tir.Buffer, scope: Scope) -> tir.Stmt:
    """A block without axes around plain loops."""
    loops, _, nest = g.axes("ijkl", target.shape)
    inner = scope.inner()
    inner.loops = list(zip(loops, target.shape, strict=True))
    g.accessed = {target: [tuple(loops)]}
    store = c.store(target, g.value(target.dtype, inner), *loops)
    return g.block("Q", [], [], (g.nest(nest, (store,)),), target)


def unusual_axes(g: Generator, target: tir.Buffer, scope: Scope) -> tir.Stmt:
    """Axes that start elsewhere than at 0, and axes that may be neither reordered nor run in parallel."""
    rng = g.rng
    loops, axes, nest = g.axes("ijkl", target.shape)
    nest = [replace(loop, kind=tir.ForKind.SERIAL, thread=None) for loop in nest]
    inner = scope.inner()
    inner.loops = []
    values: list[tir.Expr] = []
    places: list[tir.Expr] = []
    iter_vars = []
    for loop, axis, extent in zip(loops, axes, target.shape, strict=True):
        start = rng.choice([0, 0, 1, 3])
        if isinstance(extent, tir.Var) and not g.options.raw:
            start = 0  # TVM reads (1, 1 + n) as a domain of 1 + n - 1
        domain = tir.Range(c.const(start, extent.dtype), extent)
        kind = rng.choice([IterKind.SPATIAL, IterKind.OPAQUE, IterKind.SCAN])
        iter_vars.append(tir.IterVar(axis, domain, kind))
        values.append(c.add(loop, c.const(start, extent.dtype)))
        places.append(c.sub(axis, c.const(start, extent.dtype)))
        if start == 0:
            inner.loops.append((axis, extent))
    g.accessed = {target: [tuple(places)]}
    store = c.store(target, g.value(target.dtype, inner), *places)
    return g.nest(nest, (g.block("A", iter_vars, values, (store,), target),))


def nested(g: Generator, target: tir.Buffer, scope: Scope) -> tir.Stmt:
    """A block over the first dimension; in it, a block fills memory of its own, and another writes the target's row."""
    rng = g.rng
    rest = target.shape[1:]
    loops, axes, nest = g.axes("i", target.shape[:1])
    row = axes[0]
    inner = scope.inner()
    inner.loops = [(row, target.shape[0])]
    temporary = g.buffer("W", rest)
    touched: dict[tir.Buffer, list[Dims]] = {}
    outer = {row, *g.symbols}

    def fill(into: tir.Buffer, where: tuple[tir.Expr, ...], readable: Scope, extra: list[tir.Buffer]) -> tir.Stmt:
        inner_loops, inner_axes, inner_nest = g.axes("jkl", rest)
        reading = readable.inner()
        reading.loops = [*readable.loops, *zip(inner_axes, rest, strict=True)]
        reading.buffers += extra
        place = (*where, *inner_axes)
        g.accessed = {into: [place]}
        store = c.store(into, g.value(into.dtype, reading), *place)
        for buffer, places in g.accessed.items():
            touched.setdefault(buffer, []).extend(places)
        iter_vars = [
            tir.IterVar(v, tir.Range(c.const(0, n.dtype), n), IterKind.SPATIAL)
            for v, n in zip(inner_axes, rest, strict=True)
        ]
        realize = g.block("N", iter_vars, list(inner_loops), (store,), into, outer=outer)
        return g.nest(inner_nest, (realize,))

    matches: tuple[tir.MatchBufferRegion, ...] = ()
    first = fill(temporary, (), inner, [])
    typed = bool(rest) or g.options.raw  # TVM keeps the dtype of an offset only by that of the shape
    if rng.random() < 0.4 and g.options.matched and not target.strides and typed:
        view = _row_of(g, target, row)
        matches = (view,)
        second = fill(view.buffer, (), inner, [temporary])
    else:
        second = fill(target, (row,), inner, [temporary])
    reads = [g.region(b, p, outer) for b, p in touched.items() if b is not target and b in scope.buffers]
    full = [tir.Range(c.const(0, n.dtype), n) for n in rest]
    written = tir.BufferRegion(target, (tir.Range(row, c.const(1, row.dtype)), *full))
    axis = tir.IterVar(row, tir.Range(c.const(0, row.dtype), target.shape[0]), IterKind.SPATIAL)
    g.count += 1
    block = tir.Block(
        f"B{g.count}", (axis,), tuple(reads), (written,), (first, second), None, (temporary,), matches
    )  # fmt: skip
    return g.nest(nest, (tir.BlockRealize((loops[0],), tir.TRUE, block),))


def _row_of(g: Generator, target: tir.Buffer, row: tir.Var) -> tir.MatchBufferRegion:
    """A view of one row, with strides and offset as they turn out."""
    rest = target.shape[1:]
    index = row.dtype
    full = [tir.Range(c.const(0, n.dtype), n) for n in rest]
    source = tir.BufferRegion(target, (tir.Range(row, c.const(1, index)), *full))
    strides: tuple[Any, ...] = tuple(tir.Var(f"s{i}", index) for i in range(len(rest)))
    offset = tir.Var("offset", index)
    view = c.make_buffer(
        "M", rest, target.dtype, target.scope, strides=strides, elem_offset=offset, offset_factor=1
    )  # fmt: skip
    return tir.MatchBufferRegion(view, source)


FORMS = (nested, nested, opaque, unusual_axes)


def unusual(g: Generator, target: tir.Buffer, scope: Scope) -> tir.Stmt:
    """One of the forms above."""
    form = g.rng.choice(FORMS)
    if form is nested and not target.shape:
        form = opaque
    return form(g, target, scope)
