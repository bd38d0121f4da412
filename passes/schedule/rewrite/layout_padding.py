"""Initialization of the padding that a new layout leaves between elements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.index_map import map_indices
from mlcc.arith.structural_keys import same_expr
from mlcc.ir import calls, tir
from mlcc.ir import construct as c
from mlcc.ir.node import replace, walk
from mlcc.ir.visit import Substitute, substitute
from mlcc.passes.schedule.analysis.bindings import vars_of
from mlcc.passes.schedule.analysis.block_access import points
from mlcc.passes.schedule.tree import Body, Stmt


@dataclass(frozen=True, slots=True)
class PaddingPlan:
    """Statements to insert before all others, replacements of statements, and statements to insert after others (by
    identity).

    `reuse` says which block of a replacement was which.
    """

    prologue: Body = ()
    replacements: dict[int, Stmt] = field(default_factory=dict)
    epilogue: dict[int, Body] = field(default_factory=dict)
    reuse: dict[tir.Block, tir.Block] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class _Write:
    """A store to the buffer, the innermost block around it, and the loops from the outermost to the innermost one
    that its indices use. `in_order`: these loops are the dimensions of the buffer, one by one, with nothing else in
    the outer ones."""

    store: tir.BufferStore
    realize: tir.BlockRealize | None
    loops: tuple[tir.For, ...]
    in_order: bool


def plan_padding(
    site: tir.Block, old: tir.Buffer, new: tir.Buffer, back: tir.IndexMap, padding: tir.Expr, value: tir.IndexMap,
    analyzer: Analyzer,
) -> PaddingPlan:  # fmt: skip
    """Plan the padding. `padding` is the condition, over the indices of `back`, that holds where no element is stored.

    Nothing writes the buffer: its padding is assumed to be right. A writer runs over it in order: it is made to run
    over the new shape and choose. Else the padding is stored after the last writer.
    """
    if tir.const_int(padding) == 0:
        return PaddingPlan()
    writes = _Writes(old).collect(site)
    if not writes:
        return PaddingPlan(prologue=(_assumption(new, back, padding, value, analyzer),))
    replacements: dict[int, Stmt] = {}
    reuse: dict[tir.Block, tir.Block] = {}
    for write in writes:
        if write.in_order:
            nest = _over_new_shape(write, new, back, padding, value, analyzer, reuse)
            if nest is not None:
                replacements[id(write.loops[0])] = nest
    if replacements:
        return PaddingPlan(replacements=replacements, reuse=reuse)
    last = writes[-1]
    behind: Stmt | None = last.loops[0] if last.loops else last.realize
    assert behind is not None
    return PaddingPlan(epilogue={id(behind): (_fill(new, back, padding, value, analyzer),)})


class _Writes:
    """Collect the stores to a buffer, with the loops that drive their indices."""

    def __init__(self, buffer: tir.Buffer) -> None:
        self._buffer = buffer
        self._writes: list[_Write] = []
        self._loops: list[tir.For] = []
        self._depth: dict[tir.Var, tuple[int, int]] = {}
        self._values: dict[tir.Var, tir.Expr] = {}
        self._realize: tir.BlockRealize | None = None

    def collect(self, block: tir.Block) -> list[_Write]:
        for stmt in (*(block.init or ()), *block.body):
            self._stmt(stmt)
        return self._writes

    def _stmt(self, stmt: Stmt) -> None:
        match stmt:
            case tir.For(var=var, body=body):
                self._depth[var] = (len(self._loops), len(self._loops))
                self._loops.append(stmt)
                for inner in body:
                    self._stmt(inner)
                self._loops.pop()
                del self._depth[var]
            case tir.BlockRealize(block=block, values=values):
                for axis, value in zip(block.iter_vars, values, strict=True):
                    self._bind(axis.var, value)
                outer, self._realize = self._realize, stmt
                self.collect(block)
                self._realize = outer
            case tir.Bind(var=var, value=value):
                self._bind(var, value)
            case tir.BufferStore(buffer=buffer) if buffer is self._buffer:
                self._store(stmt)
            case tir.IfThenElse(then_body=then, else_body=other):
                for inner in (*then, *(other or ())):
                    self._stmt(inner)
            case tir.While(body=body) | tir.AttrStmt(body=body):
                for inner in body:
                    self._stmt(inner)

    def _bind(self, var: tir.Var, value: tir.Expr) -> None:
        depth = self._range(value)
        if depth is not None:
            self._depth[var] = depth
            self._values[var] = substitute(value, self._values)

    def _range(self, expr: tir.Expr) -> tuple[int, int] | None:
        depths = [self._depth[v] for v in vars_of(expr) if v in self._depth]
        return (min(d[0] for d in depths), max(d[1] for d in depths)) if depths else None

    def _store(self, store: tir.BufferStore) -> None:
        spans = [s for s in map(self._range, store.indices) if s is not None]
        loops = tuple(self._loops[min(s[0] for s in spans) : max(s[1] for s in spans) + 1]) if spans else ()
        in_order = len(loops) == len(self._buffer.shape) == len(store.indices) > 0 and all(
            substitute(index, self._values) is loop.var
            and tir.const_int(loop.min) == 0
            and same_expr(loop.extent, size)
            and loop.kind is tir.ForKind.SERIAL
            for loop, index, size in zip(loops, store.indices, self._buffer.shape, strict=True)
        )
        in_order = in_order and all(outer.body == (inner,) for outer, inner in pairwise(loops))
        self._writes.append(_Write(store, self._realize, loops, in_order))


# ---------------------------------------------------------------- the three ways


def _loops(back: tir.IndexMap, new: tir.Buffer, body: Stmt) -> Stmt:
    """Return `body` in loops over the new shape, whose variables are the indices of `back`."""
    for var, size in zip(reversed(back.indices), reversed(new.shape), strict=True):
        body = tir.For(var, c.const(0, size.dtype), size, tir.ForKind.SERIAL, (body,))
    return body


def _axes(back: tir.IndexMap, new: tir.Buffer) -> tuple[tir.IterVar, ...]:
    return tuple(
        tir.IterVar(tir.Var(f"v_{v.name}", v.dtype), tir.Range(c.const(0, size.dtype), size), tir.IterKind.SPATIAL)
        for v, size in zip(back.indices, new.shape, strict=True)
    )


def _assumption(
    new: tir.Buffer, back: tir.IndexMap, padding: tir.Expr, value: tir.IndexMap, analyzer: Analyzer
) -> Stmt:
    axes = _axes(back, new)
    indices = tuple(a.var for a in axes)
    is_padding = substitute(padding, dict(zip(back.indices, indices, strict=True)))
    holds = c.equal(c.load(new, *indices), map_indices(value, indices, analyzer)[0])
    claim = calls.make("assume", "bool", c.logical_or(c.logical_not(is_padding), holds))
    block = tir.Block(
        f"buffer_{new.name}_assumptions", axes, (tir.BufferRegion(new, points(indices)),), (), (tir.Evaluate(claim),)
    )
    return _loops(back, new, tir.BlockRealize(back.indices, tir.TRUE, block))


def _fill(new: tir.Buffer, back: tir.IndexMap, padding: tir.Expr, value: tir.IndexMap, analyzer: Analyzer) -> Stmt:
    axes = _axes(back, new)
    indices = tuple(a.var for a in axes)
    store = tir.BufferStore(new, map_indices(value, indices, analyzer)[0], indices)
    writes = (tir.BufferRegion(new, points(indices)),)
    block = tir.Block(f"buffer_{new.name}_padding", axes, (), writes, (store,))
    return _loops(back, new, tir.BlockRealize(back.indices, padding, block))


def _over_new_shape(
    write: _Write, new: tir.Buffer, back: tir.IndexMap, padding: tir.Expr, value: tir.IndexMap, analyzer: Analyzer,
    reuse: dict[tir.Block, tir.Block],
) -> Stmt | None:  # fmt: skip
    """Return the writer's loops over the new shape, storing the padding or the value; None if that is not possible."""
    realize = write.realize
    if realize is None or not realize.block.iter_vars:
        return _opaque_over_new_shape(write, new, back, padding, value, analyzer, reuse)
    old_indices, axes = write.store.indices, realize.block.iter_vars
    count = len(old_indices)
    starts = [s for s in range(len(axes) - count + 1) if axes[s].var is old_indices[0]]
    if not starts:
        return None
    start = starts[0]
    mine = axes[start : start + count]
    if any(a.var is not i or a.kind is not tir.IterKind.SPATIAL for a, i in zip(mine, old_indices, strict=True)):
        return None
    inner = write.loops[-1].body
    if any(isinstance(n, tir.Block) and n is not realize.block for n in walk(inner)) or not _holds(inner, realize):
        return None
    new_axes = _axes(back, new)
    virtual = {v: a.var for v, a in zip(back.indices, new_axes, strict=True)}
    values: dict[tir.Var, tir.Expr] = {loop.var: e for loop, e in zip(write.loops, back.result, strict=True)}
    for index, expr in zip(old_indices, back.result, strict=True):
        values[index] = substitute(expr, virtual)  # type: ignore[index]
    indices: tuple[tir.Expr, ...] = tuple(a.var for a in new_axes)
    is_padding = substitute(padding, virtual)
    pad_value = map_indices(value, indices, analyzer)[0]

    def store(old: tir.BufferStore) -> tir.BufferStore | None:
        if old.buffer is not write.store.buffer or not all(map(same_expr, old.indices, old_indices)):
            return None
        return tir.BufferStore(new, calls.if_then_else(is_padding, pad_value, substitute(old.value, values)), indices)

    block = realize.block
    body = _with_stores(block.body, store, values)
    init = None if block.init is None else _with_stores(block.init, store, values)
    if body is None or (block.init is not None and init is None):
        return None
    new_block = replace(
        block, iter_vars=(*axes[:start], *new_axes, *axes[start + count :]), body=body, init=init,
        reads=substitute(block.reads, values), writes=substitute(block.writes, values),
    )  # fmt: skip
    reuse[block] = new_block
    kept = realize.values
    new_realize = tir.BlockRealize(
        (*kept[:start], *back.indices, *kept[start + count :]), substitute(realize.predicate, values), new_block
    )
    around = Substitute({**values, realize: new_realize})
    nest: Body = tuple(around.visit(s) for s in inner)
    for var, size in zip(reversed(back.indices), reversed(new.shape), strict=True):
        nest = (tir.For(var, c.const(0, size.dtype), size, tir.ForKind.SERIAL, nest),)
    return nest[0]


def _opaque_over_new_shape(
    write: _Write, new: tir.Buffer, back: tir.IndexMap, padding: tir.Expr, value: tir.IndexMap, analyzer: Analyzer,
    reuse: dict[tir.Block, tir.Block],
) -> Stmt | None:  # fmt: skip
    """Like `_over_new_shape`, for a store indexed by the loops themselves, in no block or one without axes."""
    inner = write.loops[-1].body
    if any(isinstance(n, tir.Block) and (n.iter_vars or n.init) for n in walk(inner)) or _calls(inner):
        return None
    values: dict[tir.Var, tir.Expr] = {loop.var: e for loop, e in zip(write.loops, back.result, strict=True)}
    pad_value = map_indices(value, back.indices, analyzer)[0]

    def store(old: tir.BufferStore) -> tir.BufferStore | None:
        if old.buffer is not write.store.buffer or not all(map(same_expr, old.indices, write.store.indices)):
            return None
        return tir.BufferStore(new, calls.if_then_else(padding, pad_value, substitute(old.value, values)), back.indices)

    body = _with_stores(inner, store, values)
    if body is None:
        return None
    blocks = ([n for n in walk(part) if isinstance(n, tir.Block)] for part in (inner, body))
    reuse.update(zip(*blocks, strict=True))
    for var, size in zip(reversed(back.indices), reversed(new.shape), strict=True):
        body = (tir.For(var, c.const(0, size.dtype), size, tir.ForKind.SERIAL, body),)
    return body[0]


def _calls(body: Body) -> bool:
    """Return True if there is a statement with side effects other than stores (`Evaluate`)."""
    return any(isinstance(n, tir.Evaluate) for n in walk(body))


def _holds(body: Body, realize: tir.BlockRealize) -> bool:
    return any(n is realize for n in walk(body))


def _with_stores(
    body: Body, store: Callable[[tir.BufferStore], tir.BufferStore | None], values: dict[tir.Var, tir.Expr]
) -> Body | None:
    """Return `body` with its stores replaced, None if one of them cannot be."""
    replaced: dict[tir.BufferStore, tir.BufferStore] = {}
    for node in walk(body):
        if isinstance(node, tir.BufferStore):
            new_store = store(node)
            if new_store is None:
                return None
            replaced[node] = new_store
    return substitute(body, {**values, **replaced})
