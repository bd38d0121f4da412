"""Expansion of the extern calls in an attention kernel template (`fma.mlc`, `mma.mlc`).

The calls of the templates:

    fetch_query(b, h, first, thread, tile)    all threads of a block copy rows, from `first` on, into a tile in shared
    fetch_key, fetch_value                    memory, with zeros past the last row
    parts(), first(number)                    the number of blocks per head, and the first query of one of them
    prepare(first, thread)                    computes what `begin` and `stop` return
    begin(number), stop(number)               the range of key tiles that a block visits
    bounds(i, place, low, high)               stores the range of unmasked keys of a query at `place` of two buffers
    above(start, low), under(start, high)     these bounds relative to the first key of a tile, clamped to the tile
    score(b, h, i, j, n, above, under, s)     the score of key j + n, from its dot product `s`; -inf if it is masked:
                                              unless `above` <= n < `under`
    exponent(s)                               the exponent of a score, for the powers that `power` computes
    power(x)                                  e**x or 2**x
    factor(total)                             the factor that normalizes the results at the end
    state(number, b, h, i, lane, most, total) stores the maximum and the sum of a query, where they are needed;
                                              the maximum is an exponent
    result(number, b, h, i, column, n, value) stores the result in column `column + n`
    wait()                                    waits for this thread's asynchronous copies
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
from mlcc.passes.attention.template import KernelTemplate, load_template
from mlcc.passes.attention.tiles import Tile

VECTOR_BYTES = 16
_LOG2_E = 1.4426950408889634
_LEAST_SCALE = 2.0**-100  # of a score, so that products are normal numbers


class AttentionKernel(KernelTemplate):
    """Instantiate a kernel template: replace its extern calls by code, and copy all other nodes."""

    def __init__(self, attention: Attention, tile: Tile) -> None:
        self.attention = attention
        self.tile = tile
        # loop over the stored columns
        store_loop_kind = "range" if tile.columns > attention.columns else "T.vectorized"
        super().__init__(
            load_template(tile.text, **tile.placeholders(), pair=store_loop_kind),
            (attention.batch, attention.heads, attention.queries, attention.keys),
        )
        self.has_async_copies = False  # set by asynchronous copies
        self.key_tiles = (attention.keys, attention.keys)  # the range of key tiles
        self.binary_scale = binary_scale(attention)

    def call_parts(self) -> Expr:
        return tile_count(self.attention.queries, self.tile.rows)

    def call_first(self, number: Expr) -> Expr:
        return c.mul(number, self.tile.rows)

    def do_prepare(self, first: Expr, thread: Expr) -> list[Stmt]:
        limits = self.attention.limits
        begin, stop = c.const(0, INT64), self.attention.keys
        before: list[Stmt] = []
        if limits is not None:
            begin, stop, before = limits.tile_range(first, self.tile.rows, thread)
        self.key_tiles = c.floordiv(begin, self.tile.keys), tile_count(stop, self.tile.keys)
        self.scratch = [s.buffer for s in before if isinstance(s, tir.AllocBuffer)]
        return [s for s in before if not isinstance(s, tir.AllocBuffer)]

    def call_begin(self, number: Expr) -> Expr:
        return self.key_tiles[0]

    def call_stop(self, number: Expr) -> Expr:
        return self.key_tiles[1]

    def do_bounds(self, i: Expr, index: Expr, low: tir.Var, high: tir.Var) -> list[Stmt]:
        limits = self.attention.limits
        return [] if limits is None else limits.bounds(i, self.by_data[low], self.by_data[high], index)

    def _offset_in_tile(self, start: Expr, bound: Expr) -> Expr:
        keys = c.const(self.tile.keys, INT64)
        return c.cast(INT32, c.maximum(c.const(0, INT64), c.minimum(c.sub(bound, start), keys)))

    def call_above(self, start: Expr, low: Expr) -> Expr:
        return c.const(0, INT32) if self.attention.limits is None else self._offset_in_tile(start, low)

    def call_under(self, start: Expr, high: Expr) -> Expr:
        return self._offset_in_tile(start, self.attention.keys if self.attention.limits is None else high)

    def call_score(self, b: Expr, h: Expr, i: Expr, j: Expr, n: Expr, above: Expr, under: Expr, s: Expr) -> Expr:
        score = s
        if self.binary_scale is None:
            score = self.attention.score(s, b, h, i, c.add(j, c.cast(INT64, n)))
        counts = c.less(n, under)
        if self.attention.limits is not None:
            counts = c.logical_and(c.less_equal(above, n), counts)
        masked = c.const(-math.inf, FLOAT32)
        if any(isinstance(n, tir.BufferLoad) and n.buffer.scope == "global" for n in walk(score)):
            return c.call(
                FLOAT32, "if_then_else", c.logical_and(c.less(i, self.attention.queries), counts), score, masked
            )
        return tir.Select(FLOAT32, counts, score, masked)

    def call_exponent(self, s: Expr) -> Expr:
        return s if self.binary_scale is None else c.mul(s, c.const(self.binary_scale, FLOAT32))

    def call_power(self, x: Expr) -> Expr:
        if self.tile.fast_powers:
            return c.call(FLOAT32, "call_pure_extern", "__expf" if self.binary_scale is None else "__exp2f", x)
        return power(self.binary_scale, x)

    def call_factor(self, total: Expr) -> Expr:
        return normalization_factor(self.attention, total)

    # ------------------------------------------------------------ memory

    def do_state(self, number: Expr, b: Expr, h: Expr, i: Expr, lane: Expr, most: Expr, total: Expr) -> list[Stmt]:
        return []

    def do_result(self, number: Expr, b: Expr, h: Expr, i: Expr, column: Expr, n: Expr, value: Expr) -> list[Stmt]:
        column = c.add(c.cast(INT64, column), c.cast(INT64, n))
        buffer, at = self.result_location(number, b, h, i, column)
        store = tir.BufferStore(buffer, c.cast(buffer.dtype, value), at)
        if self.tile.columns == self.attention.columns:
            return [store]
        return [tir.IfThenElse(c.less(column, self.attention.columns), (store,))]

    def result_location(
        self, number: Expr, b: Expr, h: Expr, i: Expr, column: Expr
    ) -> tuple[tir.Buffer, tuple[Expr, ...]]:
        """Return the buffer and the indices that a result is stored at."""
        return self.attention.result(b, h, i, column)

    def do_wait(self) -> list[Stmt]:
        return [tir.Evaluate(c.call("void", "ptx_wait_group", 0))] if self.has_async_copies else []

    def do_fetch_query(self, b: Expr, h: Expr, first: Expr, thread: Expr, tile: Expr) -> list[Stmt]:
        attention = self.attention
        return self._fetch(
            attention.query, attention.queries, (attention.width, self.tile.width), (b, h, first), thread, tile
        )

    def do_fetch_key(self, b: Expr, h: Expr, first: Expr, thread: Expr, tile: Expr) -> list[Stmt]:
        attention = self.attention
        return self._fetch(
            attention.key, attention.keys, (attention.width, self.tile.width), (b, h, first), thread, tile
        )

    def do_fetch_value(self, b: Expr, h: Expr, first: Expr, thread: Expr, tile: Expr) -> list[Stmt]:
        attention = self.attention
        return self._fetch(
            attention.value, attention.keys, (attention.columns, self.tile.columns), (b, h, first), thread, tile
        )

    def _fetch(
        self, element: Element, extent: Expr, columns: tuple[int, int], at: tuple[Expr, Expr, Expr], thread: Expr,
        tile: Expr,
    ) -> list[Stmt]:  # fmt: skip
        """Copy rows into a tile; neighbouring threads read contiguous elements.

        Contiguous elements run along the columns, copied in vectors if whole ones fit, or along the rows.
        """
        b, h, first = at
        assert isinstance(tile, tir.Var)
        target = self.by_data[tile]
        rows = tir.const_int(target.shape[0]) or 0
        width, padded_width = columns
        row_var, column_var = tir.Var("row", INT64), tir.Var("column", INT64)
        value = element(b, h, row_var, column_var)
        # such as transposed keys
        transposed = _is_contiguous_along(value, row_var) and not _is_contiguous_along(value, column_var)
        sizes = (1,) if transposed else (VECTOR_BYTES // self.attention.dtype.bytes, 4, 2, 1)
        lanes = next(n for n in sizes if width % n == 0 and padded_width % n == 0)
        vectors_per_row = padded_width // lanes
        round_var = tir.Var("turn", thread.dtype)
        vector_index = c.add(c.mul(round_var, self.tile.threads), thread)
        if transposed:
            row, column = c.floormod(vector_index, rows), c.floordiv(vector_index, rows)
        else:
            row, column = (
                c.floordiv(vector_index, vectors_per_row),
                c.mul(c.floormod(vector_index, vectors_per_row), lanes),
            )
        i = c.add(first, c.cast(INT64, row))
        inside = c.less(i, extent)
        if padded_width > width:
            inside = c.logical_and(inside, c.less(column, width))  # whole vectors are inside or outside
        store, is_async = self._copy_vector(
            element(b, h, i, column_var), column_var, lanes, target, (row, column), inside
        )
        rounds = -(-rows * vectors_per_row // self.tile.threads)
        if rows * vectors_per_row % self.tile.threads:
            store = tir.IfThenElse(c.less(vector_index, rows * vectors_per_row), (store,))
        zero = c.const(0, thread.dtype)
        loops: list[Stmt] = [tir.For(round_var, zero, c.const(rounds, thread.dtype), tir.ForKind.SERIAL, (store,))]
        return [*loops, tir.Evaluate(c.call("void", "ptx_commit_group"))] if is_async else loops

    def _copy_vector(
        self,
        value: Expr,
        column_var: tir.Var,
        lanes: int,
        target: tir.Buffer,
        position: tuple[Expr, Expr],
        inside: Expr,
    ) -> tuple[Stmt, bool]:
        """Return a copy of adjacent elements into a tile, and True if it is asynchronous.

        Elements that are not `inside` become zeros.
        """
        row, column = position
        offset = _aligned_offset(value, column_var, lanes) if lanes * value.dtype.bytes == VECTOR_BYTES else None
        if offset is not None and target.dtype is value.dtype:
            self.has_async_copies = True
            offset = substitute(offset, {column_var: c.cast(INT64, column)})
            return _async_copy(target, _linear_offset(target, position), value.buffer, offset, inside), True  # type: ignore[attr-defined]
        zero = c.const(0, column.dtype)
        lane = tir.Var("lane", column.dtype) if lanes > 1 else zero
        element_column = c.add(column, lane)
        value = substitute(value, {column_var: c.cast(INT64, element_column)})
        loaded = c.call(value.dtype, "if_then_else", inside, value, c.const(0, value.dtype))
        store: Stmt = tir.BufferStore(target, c.cast(target.dtype, loaded), (row, element_column))
        if isinstance(lane, tir.Var):
            store = tir.For(lane, zero, c.const(lanes, column.dtype), tir.ForKind.VECTORIZED, (store,))
        return store, False


def normalization_factor(attention: Attention, total: Expr) -> Expr:
    """Return the factor that normalizes the results: the reciprocal of the sum of weights.

    It is 1 if no key is unmasked, so that the results are zeros. Infinite scores do not count as masked.
    """
    no_keys = c.equal(attention.keys, 0) if attention.limits is None else c.equal(total, 0.0)
    return c.div(c.const(1, FLOAT32), tir.Select(FLOAT32, no_keys, c.const(1, FLOAT32), total))


def power(binary_scale: float | None, x: Expr) -> Expr:
    """Return the power of an exponent."""
    return c.call(FLOAT32, "exp" if binary_scale is None else "exp2", x)


def binary_scale(attention: Attention) -> float | None:
    """Return scale * log2(e) if scores are dot products times a positive constant `scale`, else None.

    With it exp(score - greatest score) is 2**(dot product * binary_scale - greatest exponent): one multiply-add for
    each score. A factor of at most 1 does not overflow; other scores, such as those with a mask added, keep e**x.
    """
    product, *indices = (tir.Var(n, FLOAT32 if n == "s" else INT64) for n in "sbhij")
    match attention.score(product, *indices):
        case tir.Mul(lhs=lhs, rhs=tir.FloatImm(value=value)) if lhs is product:
            factor = value * _LOG2_E
        case tir.Div(lhs=lhs, rhs=tir.FloatImm(value=value)) if lhs is product and value:
            factor = _LOG2_E / value
        case _:
            return None
    return factor if _LEAST_SCALE <= factor <= 1 else None


def tile_count(extent: Expr, size: int) -> Expr:
    """Return the number of tiles of `size` that cover an extent."""
    return c.floordiv(c.add(extent, size - 1), size)


def _is_contiguous_along(value: Expr, var: tir.Var) -> bool:
    """Return True if a load reads contiguous elements along a variable."""
    if not isinstance(value, tir.BufferLoad) or not value.indices:
        return False
    *outer, last = value.indices
    base = substitute(last, {var: c.const(0, INT64)})
    return not any(var in used_vars(n) for n in outer) and Analyzer().prove_equal(last, c.add(base, var))


def _aligned_offset(value: Expr, column: tir.Var, lanes: int) -> Expr | None:
    """Return the linear offset of a load, or None if it is not contiguous along `column` or may be unaligned.

    It is aligned if it is a multiple of `lanes` for every column that is a multiple of `lanes`.
    """
    if not _is_contiguous_along(value, column):
        return None
    assert isinstance(value, tir.BufferLoad)
    base = substitute(value.indices[-1], {column: c.const(0, INT64)})
    steps_and_starts = map(Analyzer().modular_set, (base, value.buffer.shape[-1]))
    return (
        None
        if any(step % lanes or start % lanes for step, start in steps_and_starts)
        else _linear_offset(value.buffer, value.indices)
    )


def _linear_offset(buffer: tir.Buffer, at: Sequence[Expr]) -> Expr:
    offset: Expr = at[0]
    for index, extent in zip(at[1:], buffer.shape[1:], strict=True):
        offset = c.add(c.mul(offset, extent), index)
    return offset


def _async_copy(target: tir.Buffer, target_offset: Expr, source: tir.Buffer, source_offset: Expr, inside: Expr) -> Stmt:
    """Copy 16 bytes from global to shared memory asynchronously, zeros where not `inside`."""
    args = (target.data, target_offset, source.data, source_offset, VECTOR_BYTES, inside)
    return tir.Evaluate(c.call(target.dtype, "ptx_cp_async", *args))
