"""Expansion of the calls in a kernel's text (`fma.mlc`, `mma.mlc`).

The calls of the texts, all of externs:

    fetch_query(b, h, first, thread, tile)    all threads of a block fill a tile in shared memory with rows from `first`
    fetch_key, fetch_value                    on, and with zeros beyond the last
    parts(), first(number)                    how many blocks have a head, and the first query of one of them
    prepare(first, thread)                    what `begin` and `stop` need
    begin(number), stop(number)               the tiles of keys that a block goes over
    bounds(i, place, low, high)               stores the keys that count for a query at a place of two buffers
    above(start, low), under(start, high)     these bounds, from the first key of a tile and within it
    score(b, h, i, j, n, above, under, s)     what the graph makes of a product with key j + n; -inf where it does not
                                              count: what is n keys on is not from `above` and before `under`
    factor(total)                             what results are multiplied with at the end
    state(number, b, h, i, lane, most, total) stores the maximum and the sum of a query, if somebody needs them
    result(number, b, h, i, column, n, value) stores a result, n columns on
    wait()                                    until what this thread fetches has come
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import FLOAT32, INT32, INT64
from mlcc.ir.node import walk
from mlcc.ir.tir import Expr, Stmt
from mlcc.ir.visit import substitute, used_vars
from mlcc.passes.attention.spec import Attention, Element
from mlcc.passes.attention.text import Text, read
from mlcc.passes.attention.tiles import Tile

VECTOR_BYTES = 16


class Fill(Text):
    """Replaces the text's calls by code, and copies all other nodes."""

    def __init__(self, what: Attention, tile: Tile) -> None:
        self.what = what
        self.tile = tile
        pair = "range" if tile.columns > what.columns else "T.vectorized"  # of columns that are stored
        super().__init__(read(tile.text, **tile.values(), pair=pair), (what.batch, what.heads, what.queries, what.keys))
        self.copies = False  # are there asynchronous ones?
        self.range = (what.keys, what.keys)  # of tiles of keys

    def call_parts(self) -> Expr:
        return tiles(self.what.queries, self.tile.rows)

    def call_first(self, number: Expr) -> Expr:
        return c.mul(number, self.tile.rows)

    def do_prepare(self, first: Expr, thread: Expr) -> list[Stmt]:
        limits = self.what.limits
        begin, stop = c.const(0, INT64), self.what.keys
        before: list[Stmt] = []
        if limits is not None:
            begin, stop, before = limits.reach(first, self.tile.rows, thread)
        self.range = c.floordiv(begin, self.tile.keys), tiles(stop, self.tile.keys)
        self.scratch = [s.buffer for s in before if isinstance(s, tir.AllocBuffer)]
        return [s for s in before if not isinstance(s, tir.AllocBuffer)]

    def call_begin(self, number: Expr) -> Expr:
        return self.range[0]

    def call_stop(self, number: Expr) -> Expr:
        return self.range[1]

    def do_bounds(self, i: Expr, place: Expr, low: tir.Var, high: tir.Var) -> list[Stmt]:
        limits = self.what.limits
        return [] if limits is None else limits.bounds(i, self.by_data[low], self.by_data[high], place)

    def _within(self, start: Expr, bound: Expr) -> Expr:
        keys = c.const(self.tile.keys, INT64)
        return c.cast(INT32, c.maximum(c.const(0, INT64), c.minimum(c.sub(bound, start), keys)))

    def call_above(self, start: Expr, low: Expr) -> Expr:
        return c.const(0, INT32) if self.what.limits is None else self._within(start, low)

    def call_under(self, start: Expr, high: Expr) -> Expr:
        return self._within(start, self.what.keys if self.what.limits is None else high)

    def call_score(self, b: Expr, h: Expr, i: Expr, j: Expr, n: Expr, above: Expr, under: Expr, s: Expr) -> Expr:
        score = self.what.score(s, b, h, i, c.add(j, c.cast(INT64, n)))
        counts = c.less(n, under)
        if self.what.limits is not None:
            counts = c.logical_and(c.less_equal(above, n), counts)
        none = c.const(-math.inf, FLOAT32)
        if any(isinstance(n, tir.BufferLoad) and n.buffer.scope == "global" for n in walk(score)):
            return c.call(FLOAT32, "if_then_else", c.logical_and(c.less(i, self.what.queries), counts), score, none)
        return tir.Select(FLOAT32, counts, score, none)

    def call_factor(self, total: Expr) -> Expr:
        return factor(self.what, total)

    # ------------------------------------------------------------ memory

    def do_state(self, number: Expr, b: Expr, h: Expr, i: Expr, lane: Expr, most: Expr, total: Expr) -> list[Stmt]:
        return []

    def do_result(self, number: Expr, b: Expr, h: Expr, i: Expr, column: Expr, n: Expr, value: Expr) -> list[Stmt]:
        column = c.add(c.cast(INT64, column), c.cast(INT64, n))
        buffer, at = self.place(number, b, h, i, column)
        store = tir.BufferStore(buffer, c.cast(buffer.dtype, value), at)
        if self.tile.columns == self.what.columns:
            return [store]
        return [tir.IfThenElse(c.less(column, self.what.columns), (store,))]

    def place(self, number: Expr, b: Expr, h: Expr, i: Expr, column: Expr) -> tuple[tir.Buffer, tuple[Expr, ...]]:
        """Return the buffer and the indices of a result."""
        return self.what.result(b, h, i, column)

    def do_wait(self) -> list[Stmt]:
        return [tir.Evaluate(c.call("void", "ptx_wait_group", 0))] if self.copies else []

    def do_fetch_query(self, b: Expr, h: Expr, first: Expr, thread: Expr, tile: Expr) -> list[Stmt]:
        what = self.what
        return self._fetch(what.query, what.queries, (what.width, self.tile.width), (b, h, first), thread, tile)

    def do_fetch_key(self, b: Expr, h: Expr, first: Expr, thread: Expr, tile: Expr) -> list[Stmt]:
        what = self.what
        return self._fetch(what.key, what.keys, (what.width, self.tile.width), (b, h, first), thread, tile)

    def do_fetch_value(self, b: Expr, h: Expr, first: Expr, thread: Expr, tile: Expr) -> list[Stmt]:
        what = self.what
        return self._fetch(what.value, what.keys, (what.columns, self.tile.columns), (b, h, first), thread, tile)

    def _fetch(
        self, element: Element, extent: Expr, columns: tuple[int, int], at: tuple[Expr, Expr, Expr], thread: Expr,
        tile: Expr,
    ) -> list[Stmt]:  # fmt: skip
        """Fetch rows of a tile; neighbouring threads read contiguous elements.

        These are along the columns, in vectors if whole ones fit, or along the rows.
        """
        b, h, first = at
        assert isinstance(tile, tir.Var)
        target = self.by_data[tile]
        rows = tir.const_int(target.shape[0]) or 0
        own, whole = columns
        at_row, at_column = tir.Var("row", INT64), tir.Var("column", INT64)
        value = element(b, h, at_row, at_column)
        turned = _beside(value, at_row) and not _beside(value, at_column)  # such as keys by columns
        sizes = (1,) if turned else (VECTOR_BYTES // self.what.dtype.bytes, 4, 2, 1)
        lanes = next(n for n in sizes if own % n == 0 and whole % n == 0)
        across = whole // lanes
        turn = tir.Var("turn", thread.dtype)
        place = c.add(c.mul(turn, self.tile.threads), thread)
        if turned:
            row, column = c.floormod(place, rows), c.floordiv(place, rows)
        else:
            row, column = c.floordiv(place, across), c.mul(c.floormod(place, across), lanes)
        i = c.add(first, c.cast(INT64, row))
        inside = c.less(i, extent)
        if whole > own:
            inside = c.logical_and(inside, c.less(column, own))  # whole vectors are
        store, later = self._moved(element(b, h, i, at_column), at_column, lanes, target, (row, column), inside)
        turns = -(-rows * across // self.tile.threads)
        if rows * across % self.tile.threads:
            store = tir.IfThenElse(c.less(place, rows * across), (store,))
        zero = c.const(0, thread.dtype)
        loops: list[Stmt] = [tir.For(turn, zero, c.const(turns, thread.dtype), tir.ForKind.SERIAL, (store,))]
        return [*loops, tir.Evaluate(c.call("void", "ptx_commit_group"))] if later else loops

    def _moved(
        self, value: Expr, at_column: tir.Var, lanes: int, target: tir.Buffer, to: tuple[Expr, Expr], inside: Expr
    ) -> tuple[Stmt, bool]:
        """Return a copy of adjacent elements into a tile, zeros where not `inside`, and True if it is asynchronous."""
        row, column = to
        begin = _begin(value, at_column, lanes) if lanes * value.dtype.bytes == VECTOR_BYTES else None
        if begin is not None and target.dtype is value.dtype:
            self.copies = True
            begin = substitute(begin, {at_column: c.cast(INT64, column)})
            return _copy(target, _flat(target, to), value.buffer, begin, inside), True  # type: ignore[attr-defined]
        zero = c.const(0, column.dtype)
        lane = tir.Var("lane", column.dtype) if lanes > 1 else zero
        each = c.add(column, lane)
        value = substitute(value, {at_column: c.cast(INT64, each)})
        loaded = c.call(value.dtype, "if_then_else", inside, value, c.const(0, value.dtype))
        store: Stmt = tir.BufferStore(target, c.cast(target.dtype, loaded), (row, each))
        if isinstance(lane, tir.Var):
            store = tir.For(lane, zero, c.const(lanes, column.dtype), tir.ForKind.VECTORIZED, (store,))
        return store, False


def factor(what: Attention, total: Expr) -> Expr:
    """Return the factor that normalizes the results: the reciprocal of the sum of weights.

    If no key counts it is 1, so that the results are zeros; infinite scores are no such case.
    """
    none = c.equal(what.keys, 0) if what.limits is None else c.equal(total, 0.0)
    return c.div(c.const(1, FLOAT32), tir.Select(FLOAT32, none, c.const(1, FLOAT32), total))


def tiles(extent: Expr, size: int) -> Expr:
    """Return the number of tiles of `size` that cover an extent."""
    return c.floordiv(c.add(extent, size - 1), size)


def _beside(value: Expr, place: tir.Var) -> bool:
    """Return True if a load reads contiguous elements along a variable."""
    if not isinstance(value, tir.BufferLoad) or not value.indices:
        return False
    *outer, last = value.indices
    rest = substitute(last, {place: c.const(0, INT64)})
    return not any(place in used_vars(n) for n in outer) and Analyzer().prove_equal(last, c.add(rest, place))


def _begin(value: Expr, column: tir.Var, lanes: int) -> Expr | None:
    """Return the linear offset of a load, or None if it is not contiguous along `column` or may be unaligned.

    It is aligned if each column that `lanes` divides begins at a multiple of `lanes`.
    """
    if not _beside(value, column):
        return None
    assert isinstance(value, tir.BufferLoad)
    rest = substitute(value.indices[-1], {column: c.const(0, INT64)})
    known = map(Analyzer().modular_set, (rest, value.buffer.shape[-1]))
    return None if any(step % lanes or start % lanes for step, start in known) else _flat(value.buffer, value.indices)


def _flat(buffer: tir.Buffer, at: Sequence[Expr]) -> Expr:
    offset: Expr = at[0]
    for index, extent in zip(at[1:], buffer.shape[1:], strict=True):
        offset = c.add(c.mul(offset, extent), index)
    return offset


def _copy(target: tir.Buffer, to: Expr, source: tir.Buffer, begin: Expr, inside: Expr) -> Stmt:
    """Copy 16 bytes from global to shared memory asynchronously, zeros where not `inside`."""
    args = (target.data, to, source.data, begin, VECTOR_BYTES, inside)
    return tir.Evaluate(c.call(target.dtype, "ptx_cp_async", *args))
