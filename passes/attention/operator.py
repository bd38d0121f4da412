"""Attention given by the operators `nn.attention`, `nn.attention_bias` and `nn.attention_var_len`."""

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
from mlcc.passes.attention.spec import Attention, Element, Limits
from mlcc.passes.attention.tail import Tail
from mlcc.te.scalar import raw
from mlcc.te.tensor import Tensor

NAMES = ("relax.nn.attention", "relax.nn.attention_bias", "relax.nn.attention_var_len")


def from_operator(call: relax.Call, tail: Tail, operands: Operands) -> Attention | None:
    """Describe the attention that an operator call computes, with the result layout of `tail`.

    None if dtypes of operands differ, or widths are unknown.
    """
    q, k, v = (operands.tensor(a, Cost.VIEW) for a in call.args[:3])
    batch, queries, heads, width = (c.cast(INT64, n) for n in q.buffer.shape)
    keys, columns = (c.cast(INT64, v.buffer.shape[n]) for n in (1, 3))
    if len({t.dtype for t in (q, k, v)}) != 1:
        return None
    wide, deep = tir.const_int(width), tir.const_int(columns)
    if wide is None or deep is None:
        return None
    extra = [operands.tensor(a, Cost.VIEW) for a in call.args[3:5]]
    bias = extra[0] if len(extra) == 1 else None
    attrs = call.attrs
    factor = scale(call)

    def score(s: Expr, b: Expr, h: Expr, i: Expr, j: Expr) -> Expr:
        scaled = c.mul(s, c.const(factor if factor is not None else wide**-0.5, FLOAT32))
        if bias is None:
            return scaled
        dims = (batch, heads, queries, keys)
        place = [raw(a) for a in broadcast_index(bias, dims, (b, h, i, j))]
        return c.add(scaled, c.cast(FLOAT32, element(bias, place)))

    mask = None if attrs["causal_mask"] is None else str(attrs["causal_mask"])
    if len(extra) == 2:
        limits: Limits | None = _Sequences(extra[0], extra[1], keys, mask, attrs["window_size"]).limits()
    else:
        limits = None if mask is None else causal(queries, keys, mask, attrs["window_size"])
    shape = (batch, queries, heads, columns)
    result, params, buffers = operands.parameters(tail.shape(operands), q.dtype)
    return Attention(
        batch, heads, queries, keys, wide, deep, q.dtype, _by_head(q, heads), _by_head(k, heads), _by_head(v, heads),
        score, limits, lambda b, h, i, e: (result, tail.place((b, i, h, e), shape, operands)), params, buffers,
    )  # fmt: skip


def _by_head(x: Tensor, heads: Expr) -> Element:
    """Return the accessor of a (batch, length, heads, width) tensor, whose heads several query heads may share."""
    own = c.cast(INT64, x.buffer.shape[2])
    share = c.floordiv(heads, own) if known_different(own, heads) else None

    def get(b: Expr, h: Expr, i: Expr, d: Expr) -> Expr:
        return element(x, (b, i, h if share is None else c.floordiv(h, share), d))

    return get


# ---------------------------------------------------------------- which keys count


def causal(queries: Expr, keys: Expr, mask: str, window: int | None) -> Limits:
    """Keys up to the query's own, counted from the first or (BottomRight) from where the last ones meet."""
    ahead: Expr = c.const(0, INT64)
    if mask == "BottomRight":
        ahead = c.sub(c.maximum(queries, keys), c.minimum(queries, keys))

    def upper(last: Expr) -> Expr:
        return c.minimum(keys, c.add(c.add(last, ahead), 1))

    def lower(first: Expr) -> Expr:
        if window is None:
            return c.const(0, INT64)
        return c.maximum(c.const(0, INT64), c.add(c.add(first, ahead), 1 - window))

    def bounds(i: Expr, low: tir.Buffer, high: tir.Buffer, place: Expr) -> list[Stmt]:
        return [c.store(low, lower(i), place), c.store(high, upper(i), place)]

    def reach(first: Expr, rows: int, thread: Expr) -> tuple[Expr, Expr, list[Stmt]]:
        return lower(first), upper(c.add(first, rows - 1)), []

    return Limits(bounds, reach)


@dataclass(frozen=True)
class _Sequences:
    """Sequences one after the other: sequence s has the queries from `starts_q[s]` to `starts_q[s + 1]`, and the keys
    likewise; queries of none have no keys. Starts do not descend."""

    starts_q: Tensor
    starts_k: Tensor
    keys: Expr
    mask: str | None
    window: int | None

    def limits(self) -> Limits:
        return Limits(self.bounds, self.reach)

    @property
    def count(self) -> Expr:
        return c.sub(c.cast(INT64, self.starts_q.buffer.shape[0]), 1)

    def _start(self, of: Tensor, s: Expr) -> Expr:
        return c.cast(INT64, element(of, (s,)))

    def _each(self, body: Callable[[Expr], list[Stmt]]) -> Stmt:
        s = tir.Var("s", INT64)
        return tir.For(
            s, c.const(0, INT64), c.maximum(c.const(0, INT64), self.count), tir.ForKind.SERIAL, tuple(body(s))
        )

    def bounds(self, i: Expr, low: tir.Buffer, high: tir.Buffer, place: Expr) -> list[Stmt]:
        def look(s: Expr) -> list[Stmt]:
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
            stores = (c.store(low, c.maximum(begin, 0), place), c.store(high, c.minimum(stop, self.keys), place))
            return [tir.IfThenElse(inside, stores)]

        zero = c.const(0, INT64)
        return [c.store(low, zero, place), c.store(high, zero, place), self._each(look)]

    def reach(self, first: Expr, rows: int, thread: Expr) -> tuple[Expr, Expr, list[Stmt]]:
        bounds = c.make_buffer("reach", (2,), INT64, "shared")

        def look(s: Expr) -> list[Stmt]:
            begin, end = (self._start(self.starts_q, n) for n in (s, c.add(s, 1)))
            low, high = (self._start(self.starts_k, n) for n in (s, c.add(s, 1)))
            meet = c.logical_and(c.less(begin, c.add(first, rows)), c.less(first, end))
            stores = (
                c.store(bounds, c.minimum(c.load(bounds, 0), c.maximum(low, 0)), 0),
                c.store(bounds, c.maximum(c.load(bounds, 1), c.minimum(high, self.keys)), 1),
            )
            return [tir.IfThenElse(meet, stores)]

        start = [c.store(bounds, self.keys, 0), c.store(bounds, c.const(0, INT64), 1)]
        alone = tir.IfThenElse(c.equal(thread, c.const(0, INT32)), (*start, self._each(look)))
        barrier = tir.Evaluate(c.call("void", "tvm_storage_sync", "shared"))
        return c.load(bounds, 0), c.load(bounds, 1), [tir.AllocBuffer(bounds), alone, barrier]
