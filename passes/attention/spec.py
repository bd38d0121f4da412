"""The description of an attention as functions from indices to expressions.

It covers what the graph computes around the two products: views of operands, masks, a bias.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.tir import Expr, Stmt

Element = Callable[[Expr, Expr, Expr, Expr], Expr]  # of (batch, head, place, column)


@dataclass(frozen=True, slots=True, eq=False)
class KeyBounds:
    """The range of unmasked keys of a query, `low <= j < high`; the result of a query without keys is zero.

    `bounds(i, low, high, place)` returns statements that store both bounds, int64, at index `place` of two buffers.
    `tile_range(first, rows, thread)` returns the union of the ranges of queries `first` to `first + rows`, clamped to
    the keys there are, so that tiles outside can be skipped; it also returns the statements that one thread runs to
    compute it.
    """

    bounds: Callable[[Expr, tir.Buffer, tir.Buffer, Expr], list[Stmt]]
    tile_range: Callable[[Expr, int, Expr], tuple[Expr, Expr, list[Stmt]]]


@dataclass(frozen=True, slots=True, eq=False)
class Attention:
    """softmax over keys j of `score(q[b, h, i, :] @ k[b, h, j, :], b, h, i, j)`, times v[b, h, j, :].

    Extents are int64 expressions over the variables of the parameters. `width` is that of queries and keys, `columns`
    that of values. Elements have the dtype `dtype`, scores are float32. Without `limits` every key is unmasked, and the
    results are zeros if there are no keys. `result` returns where a result is stored.

    `params` are the parameters of the function in order, with the `buffers` of the tensors among them; the result is
    last.
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
    limits: KeyBounds | None
    result: Callable[[Expr, Expr, Expr, Expr], tuple[tir.Buffer, tuple[Expr, ...]]]
    params: tuple[tir.Var, ...]
    buffers: tuple[tir.Buffer | None, ...]
