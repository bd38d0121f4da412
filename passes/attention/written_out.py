"""Recognition of attention in a graph: a product, elementwise operators, a softmax, and another product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlcc import ops, te
from mlcc.arith.analyzer import Analyzer
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import FLOAT32, INT64, DType
from mlcc.ir.tir import Expr
from mlcc.ops.registry import Cost, FusionKind
from mlcc.ops.topi import broadcast_index
from mlcc.passes.attention.operands import Operands, element, regroup
from mlcc.passes.attention.spec import Attention, Element
from mlcc.passes.attention.tail import Tail
from mlcc.passes.attention.wide import widened
from mlcc.passes.patterns.pattern_match import Index
from mlcc.relax.queries import Uses, is_call
from mlcc.te.scalar import raw
from mlcc.te.tensor import Tensor

_MATMUL, _SOFTMAX, _ASTYPE = "relax.matmul", "relax.nn.softmax", "relax.astype"
_DEEPEST = 16  # operators between a product and its softmax


@dataclass(frozen=True, slots=True, eq=False)
class WrittenOut:
    """`scores` is the first product's variable, `logits` what the softmax is of, `way` what leads from one to the
    other."""

    scores: relax.Var
    first: relax.Call
    logits: relax.Expr
    way: tuple[relax.Expr, ...]
    second: relax.Call


def find(second: relax.Expr, index: Index, uses: Uses) -> WrittenOut | None:
    """Match an attention by its last product; None if it is none, or a value in between has another use."""
    if not is_call(second, _MATMUL):
        return None
    weights = _only_used_here(second.args[0], index, uses)  # type: ignore[attr-defined]
    if is_call(weights, _ASTYPE):
        weights = _only_used_here(weights.args[0], index, uses)  # type: ignore[union-attr]
    if not is_call(weights, _SOFTMAX):
        return None
    logits = weights.args[0]  # type: ignore[union-attr]
    dims = _dims(logits)
    if dims is None or len(dims) < 2 or weights.attrs["axis"] % len(dims) != len(dims) - 1:  # type: ignore[union-attr]
        return None
    matched = _product(logits, index, uses, _DEEPEST)
    if matched is None:
        return None
    way, first = matched
    scores = way[0]
    operands = (*first.args, second.args[1])  # type: ignore[attr-defined]
    if any(len(_dims(o) or ()) < 2 for o in operands):
        return None
    shapes = _dims(scores), _dims(second)
    if not _same(shapes[0], dims) or not _same(shapes[1], dims, 1):  # heads that appear on the way, or with the values
        return None
    values = {_dtype(e) for e in (*operands, second.args[0])}  # type: ignore[attr-defined]
    if len(values) != 1 or not {_dtype(e) for e in (scores, logits, second)} <= {*values, FLOAT32}:
        return None
    return WrittenOut(scores, first, logits, tuple(way[1:]), second)  # type: ignore[arg-type]


def _dims(expr: relax.Expr) -> tuple[Expr, ...] | None:
    info = expr.struct_info
    return info.dims if isinstance(info, relax.TensorStructInfo) else None


def _dtype(expr: relax.Expr) -> DType | None:
    info = expr.struct_info
    return info.dtype if isinstance(info, relax.TensorStructInfo) else None


def _same(one: Sequence[Expr] | None, two: Sequence[Expr], but: int = 0) -> bool:
    """Return True if two shapes are equal, not counting the last `but` extents."""
    if one is None or len(one) != len(two):
        return False
    return all(Analyzer().prove_equal(a, b) for a, b in zip(one[: len(one) - but], two, strict=False))


def _only_used_here(expr: relax.Expr, index: Index, uses: Uses) -> relax.Expr | None:
    """Return the value of an operand that has no other use, or None."""
    if not isinstance(expr, relax.Var) or uses.count.get(expr) != 1:
        return None
    return index.value.get(expr)


def _product(expr: relax.Expr, index: Index, uses: Uses, depth: int) -> tuple[list[relax.Expr], relax.Call] | None:
    """Find the product below elementwise operators; return the variables between, and its call."""
    value = _only_used_here(expr, index, uses)
    if not isinstance(value, relax.Call) or not isinstance(value.op, tir.Op) or depth == 0:
        return None
    if value.op.name == _MATMUL:
        return [expr], value
    op = ops.get(value.op.name)
    if op is None or op.kind > FusionKind.BROADCAST:
        return None
    for operand in value.args:
        path = _product(operand, index, uses, depth - 1)
        if path is not None:
            path[0].append(expr)
            return path
    return None


# ---------------------------------------------------------------- what it computes


def from_graph(found: WrittenOut, tail: Tail, operands: Operands) -> Attention | None:
    """Describe the attention of a match, with the result layout of `tail`; None if it is not supported."""
    q, k = (operands.tensor(a, Cost.VIEW) for a in found.first.args)
    v = operands.tensor(found.second.args[1], Cost.VIEW)
    scores_info = found.scores.struct_info
    assert isinstance(scores_info, relax.TensorStructInfo)
    dims = tuple(c.cast(INT64, operands.given.renew(n)) for n in scores_info.dims or ())
    scores = te.placeholder(dims, scores_info.dtype, "scores")
    operands.known[found.scores] = scores
    operands.free = frozenset(found.way)
    logits = operands.tensor(found.logits, Cost.CHEAP)
    *outer, queries, keys = dims
    columns = c.cast(INT64, v.buffer.shape[-1])
    width, deep = tir.const_int(q.buffer.shape[-1]), tir.const_int(columns)
    if width is None or deep is None or logits.op.is_placeholder and logits is not scores:
        return None
    batch, heads = _two(outer)

    def of(x: Tensor, rows: Expr, across: Expr, turned: bool = False) -> Element:
        shape = (*outer, across, rows) if turned else (*outer, rows, across)

        def get(b: Expr, h: Expr, i: Expr, d: Expr) -> Expr:
            place = (*_places(b, h, outer), *((d, i) if turned else (i, d)))
            return element(x, [raw(a) for a in broadcast_index(x, shape, place)])

        return get

    def score(s: Expr, b: Expr, h: Expr, i: Expr, j: Expr) -> Expr:
        given = element(logits, (*_places(b, h, outer), i, j))
        return widened(given, {scores.buffer: s})

    shape = (*outer, queries, columns)
    dtype = _result_dtype(found.second)
    result, params, buffers = operands.parameters(tail.shape(operands), dtype)

    def store(b: Expr, h: Expr, i: Expr, e: Expr) -> tuple[tir.Buffer, tuple[Expr, ...]]:
        return result, tail.place((*_places(b, h, outer), i, e), shape, operands)

    wide = c.const(width, INT64)
    return Attention(
        batch, heads, queries, keys, width, deep, q.dtype, of(q, queries, wide), of(k, keys, wide, True),
        of(v, keys, columns), score, None, store, params, buffers,
    )  # fmt: skip


def _result_dtype(call: relax.Call) -> DType:
    info = call.struct_info
    assert isinstance(info, relax.TensorStructInfo)
    return info.dtype or FLOAT32


def _two(outer: Sequence[Expr]) -> tuple[Expr, Expr]:
    """Collapse the outer dimensions to batch and heads: the first of several, and the product of all others."""
    batch: Expr = outer[0] if len(outer) > 1 else c.const(1, INT64)
    heads: Expr = c.const(1, INT64)
    for n in outer[1:] if len(outer) > 1 else outer:
        heads = c.mul(heads, n)
    return batch, heads


def _places(b: Expr, h: Expr, outer: Sequence[Expr]) -> list[Expr]:
    """Return the indices of a batch and a head in the dimensions before the last two."""
    return regroup((b, h), _two(outer), outer)
