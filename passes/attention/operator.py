"""Attention written as an operator: `nn.attention`, `nn.attention_bias` or `nn.attention_var_len`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import FLOAT32, INT32, INT64
from mlcc.ir.tir import Expr, Stmt
from mlcc.ops.attention import scale
from mlcc.ops.registry import Cost
from mlcc.ops.shapes import known_different
from mlcc.ops.topi import broadcast_index
from mlcc.passes.attention.operands import Operands, element
from mlcc.passes.attention.result_layout import ResultLayout
from mlcc.passes.attention.spec import Attention, Element, KeyBounds
from mlcc.te.scalar import to_expr
from mlcc.te.tensor import Tensor

ATTENTION_OPERATORS = ("relax.nn.attention", "relax.nn.attention_bias", "relax.nn.attention_var_len")


def from_operator(call: relax.Call, tail: ResultLayout, operands: Operands) -> Attention | None:
    """Describe the attention that an operator call computes, with the result layout of `tail`.

    Return None if operands differ in dtype, or a width is unknown.
    """
    q, k, v = (operands.tensor(a, Cost.VIEW) for a in call.args[:3])
    batch, queries, heads, width = (c.cast(INT64, n) for n in q.buffer.shape)
    keys, columns = (c.cast(INT64, v.buffer.shape[n]) for n in (1, 3))
    if len({t.dtype for t in (q, k, v)}) != 1:
        return None
    head_width, value_width = tir.const_int(width), tir.const_int(columns)
    if head_width is None or value_width is None:
        return None
    extra_operands = [operands.tensor(a, Cost.VIEW) for a in call.args[3:5]]
    bias = extra_operands[0] if len(extra_operands) == 1 else None
    attrs = call.attrs
    factor = scale(call)

    def score(s: Expr, b: Expr, h: Expr, i: Expr, j: Expr) -> Expr:
        scaled = c.mul(s, c.const(factor if factor is not None else head_width**-0.5, FLOAT32))
        if bias is None:
            return scaled
        dims = (batch, heads, queries, keys)
        bias_indices = [to_expr(a) for a in broadcast_index(bias, dims, (b, h, i, j))]
        return c.add(scaled, c.cast(FLOAT32, element(bias, bias_indices)))

    mask = None if attrs["causal_mask"] is None else str(attrs["causal_mask"])
    if len(extra_operands) == 2:
        sequences = _PackedSequences(extra_operands[0], extra_operands[1], keys, mask, attrs["window_size"])
        limits: KeyBounds | None = sequences.limits()
    else:
        limits = None if mask is None else causal(queries, keys, mask, attrs["window_size"])
    shape = (batch, queries, heads, columns)
    result, params, buffers = operands.parameters(tail.shape(operands), q.dtype)
    return Attention(
        batch,
        heads,
        queries,
        keys,
        head_width,
        value_width,
        q.dtype,
        _head_accessor(q, heads),
        _head_accessor(k, heads),
        _head_accessor(v, heads),
        score,
        limits,
        lambda b, h, i, e: (result, tail.place((b, i, h, e), shape, operands)),
        params,
        buffers,
    )


def _head_accessor(x: Tensor, heads: Expr) -> Element:
    """Return the accessor of a (batch, length, heads, width) tensor; a group of query heads may share a head."""
    own_heads = c.cast(INT64, x.buffer.shape[2])
    group_size = c.floordiv(heads, own_heads) if known_different(own_heads, heads) else None

    def get(b: Expr, h: Expr, i: Expr, d: Expr) -> Expr:
        return element(x, (b, i, h if group_size is None else c.floordiv(h, group_size), d))

    return get


# ---------------------------------------------------------------- unmasked keys


def causal(queries: Expr, keys: Expr, mask: str, window: int | None) -> KeyBounds:
    """Return the key bounds of a causal mask: each query sees the keys up to its own position.

    Positions count from the first key or, for BottomRight, so that the last query sees the last key.
    """
    diagonal_offset: Expr = c.const(0, INT64)
    if mask == "BottomRight":
        diagonal_offset = c.sub(c.maximum(queries, keys), c.minimum(queries, keys))

    def upper(last: Expr) -> Expr:
        return c.minimum(keys, c.add(c.add(last, diagonal_offset), 1))

    def lower(first: Expr) -> Expr:
        if window is None:
            return c.const(0, INT64)
        return c.maximum(c.const(0, INT64), c.add(c.add(first, diagonal_offset), 1 - window))

    def bounds(i: Expr, low: tir.Buffer, high: tir.Buffer, place: Expr) -> list[Stmt]:
        return [c.store(low, lower(i), place), c.store(high, upper(i), place)]

    def tile_range(first: Expr, rows: int, thread: Expr) -> tuple[Expr, Expr, list[Stmt]]:
        return lower(first), upper(c.add(first, rows - 1)), []

    return KeyBounds(bounds, tile_range)


@dataclass(frozen=True)
class _PackedSequences:
    """Variable-length sequences packed one after another.

    Sequence s has the queries from `starts_q[s]` to `starts_q[s + 1]`, and likewise the keys. Queries outside all
    sequences see no keys. Starts must not decrease.
    """

    starts_q: Tensor
    starts_k: Tensor
    keys: Expr
    mask: str | None
    window: int | None

    def limits(self) -> KeyBounds:
        return KeyBounds(self.bounds, self.tile_range)

    @property
    def count(self) -> Expr:
        return c.sub(c.cast(INT64, self.starts_q.buffer.shape[0]), 1)

    def _start(self, of: Tensor, s: Expr) -> Expr:
        return c.cast(INT64, element(of, (s,)))

    def _for_each_sequence(self, body: Callable[[Expr], list[Stmt]]) -> Stmt:
        s = tir.Var("s", INT64)
        return tir.For(
            s, c.const(0, INT64), c.maximum(c.const(0, INT64), self.count), tir.ForKind.SERIAL, tuple(body(s))
        )

    def bounds(self, i: Expr, low: tir.Buffer, high: tir.Buffer, index: Expr) -> list[Stmt]:
        def store_if_inside(s: Expr) -> list[Stmt]:
            first, end = (self._start(self.starts_q, n) for n in (s, c.add(s, 1)))
            low_k, high_k = (self._start(self.starts_k, n) for n in (s, c.add(s, 1)))
            begin, stop = low_k, high_k
            if self.mask is not None:
                diagonal = c.sub(c.add(low_k, i), first)
                if self.mask == "BottomRight":
                    a, b = c.sub(high_k, low_k), c.sub(end, first)
                    diagonal = c.add(diagonal, c.sub(c.maximum(a, b), c.minimum(a, b)))
                stop = c.minimum(high_k, c.add(diagonal, 1))
                if self.window is not None:
                    begin = c.maximum(low_k, c.add(diagonal, 1 - self.window))
            inside = c.logical_and(c.less_equal(first, i), c.less(i, end))
            stores = (c.store(low, c.maximum(begin, 0), index), c.store(high, c.minimum(stop, self.keys), index))
            return [tir.IfThenElse(inside, stores)]

        zero = c.const(0, INT64)
        return [c.store(low, zero, index), c.store(high, zero, index), self._for_each_sequence(store_if_inside)]

    def tile_range(self, first: Expr, rows: int, thread: Expr) -> tuple[Expr, Expr, list[Stmt]]:
        bounds = c.make_buffer("reach", (2,), INT64, "shared")

        def extend_range(s: Expr) -> list[Stmt]:
            begin, end = (self._start(self.starts_q, n) for n in (s, c.add(s, 1)))
            low, high = (self._start(self.starts_k, n) for n in (s, c.add(s, 1)))
            overlaps = c.logical_and(c.less(begin, c.add(first, rows)), c.less(first, end))
            stores = (
                c.store(bounds, c.minimum(c.load(bounds, 0), c.maximum(low, 0)), 0),
                c.store(bounds, c.maximum(c.load(bounds, 1), c.minimum(high, self.keys)), 1),
            )
            return [tir.IfThenElse(overlaps, stores)]

        init = [c.store(bounds, self.keys, 0), c.store(bounds, c.const(0, INT64), 1)]
        by_first_thread = tir.IfThenElse(
            c.equal(thread, c.const(0, INT32)), (*init, self._for_each_sequence(extend_range))
        )
        barrier = tir.Evaluate(c.call("void", "tvm_storage_sync", "shared"))
        return c.load(bounds, 0), c.load(bounds, 1), [tir.AllocBuffer(bounds), by_first_thread, barrier]
