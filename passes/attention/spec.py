"""What an attention computes, as functions from places to expressions: whatever the graph says around the two products
is in them, be it a view of an operand, a mask or a bias."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.tir import Expr, Stmt

Element = Callable[[Expr, Expr, Expr, Expr], Expr]  # of (batch, head, place, column)


@dataclass(frozen=True, slots=True, eq=False)
class Limits:
    """Which keys count for a query, those in `low <= j < high`; a query that has none gives zeros.

    `bounds(i, low, high, place)` are statements that store both, int64, at `place` of two buffers. `reach(first, rows)`
    is what queries `first` to `first + rows` see, a begin and an end (within 0 and the number of keys), by which tiles
    are left out, and statements before them, for one of the threads: `reach(first, rows, thread)`.
    """

    bounds: Callable[[Expr, tir.Buffer, tir.Buffer, Expr], list[Stmt]]
    reach: Callable[[Expr, int, Expr], tuple[Expr, Expr, list[Stmt]]]


@dataclass(frozen=True, slots=True, eq=False)
class Attention:
    """softmax over keys j of `score(q[b, h, i, :] @ k[b, h, j, :], b, h, i, j)`, times v[b, h, j, :].

    Extents are int64 expressions over the variables of the parameters; `width` is that of queries and keys, `columns`
    that of values. Elements have the dtype `dtype`, scores are float32. All keys count, and without any the results are
    zeros, unless there are `limits`. `result` is where a result is stored.

    `params` are the function's, in order, with the `buffers` of those that are tensors; the result is the last.
    """

    batch: Expr
    heads: Expr
    queries: Expr
    keys: Expr
    width: int
    columns: int
    dtype: DType
    query: Element
    key: Element
    value: Element
    score: Callable[[Expr, Expr, Expr, Expr, Expr], Expr]
    limits: Limits | None
    result: Callable[[Expr, Expr, Expr, Expr], tuple[tir.Buffer, tuple[Expr, ...]]]
    params: tuple[tir.Var, ...]
    buffers: tuple[tir.Buffer | None, ...]
