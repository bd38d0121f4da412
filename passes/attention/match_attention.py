"""Recognition of attention written as two products with elementwise operators and a softmax between them."""

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
from mlcc.passes.attention.float32_exprs import in_float32
from mlcc.passes.attention.operands import Operands, element, reshape_indices
from mlcc.passes.attention.result_layout import ResultLayout
from mlcc.passes.attention.spec import Attention, Element
from mlcc.passes.patterns.pattern_match import Index
from mlcc.relax.queries import DefUse, is_call
from mlcc.te.scalar import to_expr
from mlcc.te.tensor import Tensor

_MATMUL, _SOFTMAX, _ASTYPE = "relax.matmul", "relax.nn.softmax", "relax.astype"
_MAX_PATH = 16  # operators between a product and its softmax


@dataclass(frozen=True, slots=True, eq=False)
class AttentionMatch:
    """A matched attention: both products, the variable `scores` of the first, and the operand `logits` of the softmax.

    `path` holds the values between `scores` and `logits`.
    """

    scores: relax.Var
    query_key_product: relax.Call
    logits: relax.Expr
    path: tuple[relax.Expr, ...]
    value_product: relax.Call


def match_attention(value_product: relax.Expr, index: Index, uses: DefUse) -> AttentionMatch | None:
    """Match an attention by its last product; return None if an intermediate value has another use."""
    if not is_call(value_product, _MATMUL):
        return None
    weights = _single_use_value(value_product.args[0], index, uses)  # type: ignore[attr-defined]
    if is_call(weights, _ASTYPE):
        weights = _single_use_value(weights.args[0], index, uses)  # type: ignore[union-attr]
    if not is_call(weights, _SOFTMAX):
        return None
    logits = weights.args[0]  # type: ignore[union-attr]
    dims = _dims(logits)
    if dims is None or len(dims) < 2 or weights.attrs["axis"] % len(dims) != len(dims) - 1:  # type: ignore[union-attr]
        return None
    product = _product_below(logits, index, uses, _MAX_PATH)
    if product is None:
        return None
    path, query_key_product = product
    scores = path[0]
    operands = (*query_key_product.args, value_product.args[1])  # type: ignore[attr-defined]
    if any(len(_dims(o) or ()) < 2 for o in operands):
        return None
    shapes = _dims(scores), _dims(value_product)
    # heads introduced between the products, or by the values
    if not _same_shape(shapes[0], dims) or not _same_shape(shapes[1], dims, 1):
        return None
    values = {_dtype(e) for e in (*operands, value_product.args[0])}  # type: ignore[attr-defined]
    if len(values) != 1 or not {_dtype(e) for e in (scores, logits, value_product)} <= {*values, FLOAT32}:
        return None
    return AttentionMatch(scores, query_key_product, logits, tuple(path[1:]), value_product)  # type: ignore[arg-type]


def _dims(expr: relax.Expr) -> tuple[Expr, ...] | None:
    info = expr.struct_info
    return info.dims if isinstance(info, relax.TensorStructInfo) else None


def _dtype(expr: relax.Expr) -> DType | None:
    info = expr.struct_info
    return info.dtype if isinstance(info, relax.TensorStructInfo) else None


def _same_shape(shape: Sequence[Expr] | None, other: Sequence[Expr], ignored_last: int = 0) -> bool:
    """Return True if two shapes are equal, not counting the last `ignored_last` extents."""
    if shape is None or len(shape) != len(other):
        return False
    return all(Analyzer().prove_equal(a, b) for a, b in zip(shape[: len(shape) - ignored_last], other, strict=False))


def _single_use_value(expr: relax.Expr, index: Index, uses: DefUse) -> relax.Expr | None:
    """Return the value of an operand that has no other use, or None."""
    if not isinstance(expr, relax.Var) or uses.count.get(expr) != 1:
        return None
    return index.value.get(expr)


def _product_below(
    expr: relax.Expr, index: Index, uses: DefUse, depth: int
) -> tuple[list[relax.Expr], relax.Call] | None:
    """Find the product below elementwise operators; return its call, and the variables from it up to `expr`."""
    value = _single_use_value(expr, index, uses)
    if not isinstance(value, relax.Call) or not isinstance(value.op, tir.Op) or depth == 0:
        return None
    if value.op.name == _MATMUL:
        return [expr], value
    op = ops.get(value.op.name)
    if op is None or op.kind > FusionKind.BROADCAST:
        return None
    for operand in value.args:
        path = _product_below(operand, index, uses, depth - 1)
        if path is not None:
            path[0].append(expr)
            return path
    return None


# ---------------------------------------------------------------- description of a match


def from_match(match: AttentionMatch, tail: ResultLayout, operands: Operands) -> Attention | None:
    """Describe the attention of a match, with the result layout of `tail`; None if it is not supported."""
    q, k = (operands.tensor(a, Cost.VIEW) for a in match.query_key_product.args)
    v = operands.tensor(match.value_product.args[1], Cost.VIEW)
    scores_info = match.scores.struct_info
    assert isinstance(scores_info, relax.TensorStructInfo)
    dims = tuple(c.cast(INT64, operands.arguments.renew(n)) for n in scores_info.dims or ())
    scores = te.placeholder(dims, scores_info.dtype, "scores")
    operands.tensors[match.scores] = scores
    operands.always_recomputed = frozenset(match.path)
    logits = operands.tensor(match.logits, Cost.CHEAP)
    *outer, queries, keys = dims
    columns = c.cast(INT64, v.buffer.shape[-1])
    width, value_width = tir.const_int(q.buffer.shape[-1]), tir.const_int(columns)
    if width is None or value_width is None or logits.op.is_placeholder and logits is not scores:
        return None
    batch, heads = _batch_and_heads(outer)

    def accessor(x: Tensor, rows: Expr, across: Expr, transposed: bool = False) -> Element:
        shape = (*outer, across, rows) if transposed else (*outer, rows, across)

        def get(b: Expr, h: Expr, i: Expr, d: Expr) -> Expr:
            indices = (*_outer_indices(b, h, outer), *((d, i) if transposed else (i, d)))
            return element(x, [to_expr(a) for a in broadcast_index(x, shape, indices)])

        return get

    def score(s: Expr, b: Expr, h: Expr, i: Expr, j: Expr) -> Expr:
        logit = element(logits, (*_outer_indices(b, h, outer), i, j))
        return in_float32(logit, {scores.buffer: s})

    shape = (*outer, queries, columns)
    dtype = _result_dtype(match.value_product)
    result, params, buffers = operands.parameters(tail.shape(operands), dtype)

    def store(b: Expr, h: Expr, i: Expr, e: Expr) -> tuple[tir.Buffer, tuple[Expr, ...]]:
        return result, tail.place((*_outer_indices(b, h, outer), i, e), shape, operands)

    width_expr = c.const(width, INT64)
    return Attention(
        batch,
        heads,
        queries,
        keys,
        width,
        value_width,
        q.dtype,
        accessor(q, queries, width_expr),
        accessor(k, keys, width_expr, True),
        accessor(v, keys, columns),
        score,
        None,
        store,
        params,
        buffers,
    )


def _result_dtype(call: relax.Call) -> DType:
    info = call.struct_info
    assert isinstance(info, relax.TensorStructInfo)
    return info.dtype or FLOAT32


def _batch_and_heads(outer: Sequence[Expr]) -> tuple[Expr, Expr]:
    """Collapse the outer dimensions into batch and heads: the first of several, and the product of all others."""
    batch: Expr = outer[0] if len(outer) > 1 else c.const(1, INT64)
    heads: Expr = c.const(1, INT64)
    for n in outer[1:] if len(outer) > 1 else outer:
        heads = c.mul(heads, n)
    return batch, heads


def _outer_indices(b: Expr, h: Expr, outer: Sequence[Expr]) -> list[Expr]:
    """Return the indices of a batch and a head in the dimensions before the last two."""
    return reshape_indices((b, h), _batch_and_heads(outer), outer)
