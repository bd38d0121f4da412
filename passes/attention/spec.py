"""The description of an attention, as functions from indices to expressions.

They cover whatever the graph computes around the two products: a view of an operand, a mask, a bias.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.tir import Expr, Stmt

Element = Callable[[Expr, Expr, Expr, Expr], Expr]  # of (batch, head, place, column)


@dataclass(frozen=True, slots=True, eq=False)
class Limits:
    """The range of keys that count for a query, `low <= j < high`; a query without keys gives zeros.

    `bounds(i, low, high, place)` gives statements that store both, int64, at `place` of two buffers. `reach(first,
    rows, thread)` gives the range of keys that queries `first` to `first + rows` see together, as a begin and an end
    within 0 and the number of keys; tiles outside are skipped. It also gives the statements that compute the range, for
    one of the threads.
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
