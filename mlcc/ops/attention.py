"""Attention: softmax(scale * q @ k.T + bias) @ v for every head, with masks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from mlcc import te
from mlcc.arith.proofs import is_one
from mlcc.ir import construct, relax, tir
from mlcc.ir.dtypes import INT64
from mlcc.ops import topi
from mlcc.ops.lazy import np
from mlcc.ops.manipulate import reshape
from mlcc.ops.nn import MARKED, PLAIN, SoftmaxMarks, softmax
from mlcc.ops.registry import Impl, Precision
from mlcc.ops.shapes import Dims, Tensor, fail, int64, known_different, result, same_dtype, shape_text, tensor
from mlcc.te.scalar import Scalar, to_expr

MASKS = ("TopLeft", "BottomRight")

# ---------------------------------------------------------------- inference


def infer_attention(call: relax.Call) -> Tensor:
    """Infer (batch, query length, query heads, value width); query heads may be a multiple of key heads."""
    infos = [tensor(call, i) for i in range(len(call.args))]
    names = ("query", "key", "value", "bias") if len(infos) < 5 else ("query", "key", "value")
    for name, info in zip(names, infos, strict=False):
        if info.ndim != 4:
            rank = "an unknown number" if info.ndim < 0 else str(info.ndim)
            fail(call, "E0445", f"the {name} needs 4 dimensions (batch, length, heads, width), it has {rank}")
    _check_mask(call)
    query, key, value = infos[:3]
    dtype = same_dtype(call, infos[: len(names)])
    if query.dims is None or key.dims is None or value.dims is None:
        return result(None, dtype, 4, query.vdevice)
    _require_equal(call, "batch", query.dims[0], key.dims[0], value.dims[0])
    _require_equal(call, "length of keys and values", key.dims[1], value.dims[1])
    _require_equal(call, "width of queries and keys", query.dims[3], key.dims[3])
    _require_equal(call, "number of heads of keys and values", key.dims[2], value.dims[2])
    heads, groups = tir.const_int(query.dims[2]), tir.const_int(key.dims[2])
    if heads is not None and groups is not None and (heads % groups if groups else heads):
        fail(call, "E0445", f"{heads} heads of queries cannot be divided among {groups} heads of keys")
    if len(infos) == 4:
        _check_bias(call, infos[3], (query.dims[0], query.dims[2], query.dims[1], key.dims[1]))
    if len(infos) > 4:
        for info in infos[3:]:
            if info.dtype is not None and not info.dtype.is_int:
                fail(call, "E0444", f"starts and lengths of sequences must be integers, not {info.dtype}")
        starts = infos[3:5]
        if any(info.ndim not in (-1, 1) for info in starts):
            fail(call, "E0445", "the starts of sequences must have one dimension")
        if all(info.dims is not None for info in starts):
            _require_equal(call, "number of sequences", starts[0].dims[0], starts[1].dims[0])  # type: ignore[index]
    return result((*query.dims[:3], value.dims[3]), dtype, vdevice=query.vdevice)


def _check_mask(call: relax.Call) -> None:
    mask, window = call.attrs["causal_mask"], call.attrs["window_size"]
    if mask is not None and mask not in MASKS:
        fail(call, "E0442", f'`causal_mask="{mask}"` is not known', f"possible masks are {', '.join(MASKS)}")
    if window is not None and window <= 0:
        fail(call, "E0442", f"`window_size` must be positive, not {window}")


def _require_equal(call: relax.Call, what: str, first: tir.Expr, *others: tir.Expr) -> None:
    for other in others:
        if known_different(first, other):
            fail(call, "E0445", f"the {what} differs: {first} and {other}")


def _check_bias(call: relax.Call, bias: Tensor, wanted: Dims) -> None:
    if bias.dims is None:
        return
    *outer, last = zip(bias.dims, wanted, strict=True)
    if any(not is_one(a) and known_different(a, b) for a, b in outer) or known_different(*last):
        text = f"the bias {shape_text(bias.dims)} does not broadcast to {shape_text(wanted)}"
        fail(call, "E0445", f"{text} (batch, heads, queries, keys)")


def scale(call: relax.Call) -> float | None:
    """Return the scale factor of the scores that the call states, None for the default."""
    value = call.attrs["scale"]
    return value if value is None else float(getattr(value, "value", value))


def _window(call: relax.Call) -> int | None:
    """Return the width of the sliding window: the keys up to a query's own position, itself included; None for all."""
    window: int | None = call.attrs["window_size"]
    if window is not None and call.attrs["causal_mask"] is None:
        fail(call, "E0442", "`window_size` needs a `causal_mask`: the window ends at the diagonal")
    return window


# ---------------------------------------------------------------- lowering


def _heads_first(x: te.Tensor, heads: tir.Expr) -> te.Tensor:
    """Reshape (batch, length, heads, width) to (batch * heads, length, width), repeating shared key and value heads."""
    batch, length, num_heads, width = x.buffer.shape
    order = (0, 2, 1, 3)
    shape = [x.shape[a] for a in order]
    transposed = topi.compute_ax(shape, lambda b, h, s, d: x(b, s, h, d), "T_transpose")
    if known_different(num_heads, heads):
        group_size = construct.floordiv(heads, num_heads)
        shape[1] = Scalar(heads)
        repeated = transposed
        transposed = topi.compute_ax(shape, lambda b, h, s, d: repeated(b, h // Scalar(group_size), s, d), "T_repeat")
    return reshape(transposed, [construct.mul(batch, heads), length, width])


def _matmul(a: te.Tensor, b: te.Tensor, transposed: bool) -> te.Tensor:
    """Return the batched product a @ b.T or a @ b; 0 for an empty reduction axis."""
    batch, rows, inner = a.buffer.shape
    columns = b.buffer.shape[1 if transposed else 2]
    name = f"T_batch_matmul_N{'T' if transposed else 'N'}"
    if tir.const_int(inner) == 0:
        empty: te.Tensor = te.compute((batch, rows, columns), lambda n, i, j: te.const(0, a.dtype), name)
        return empty
    k = te.reduce_axis((0, Scalar(inner)), "k")

    def element(n: Any, i: Any, j: Any) -> Any:
        at = 0 if is_one(batch) else n
        return te.sum(a(at, i, k) * (b(at, j, k) if transposed else b(at, k, j)), axis=k)

    product: te.Tensor = te.compute((batch, rows, columns), element, name=name)
    return product


def _scaled(call: relax.Call, scores: te.Tensor, width: tir.Expr) -> te.Tensor:
    factor = scale(call)
    if factor is not None:
        return topi.multiply(scores, topi.float_constant(factor, scores.dtype))
    return topi.divide(scores, te.sqrt(topi.convert_integer(width, scores.dtype)))


def _masked_softmax(scores: te.Tensor, visible: Callable[[Any, Any], Any], marks: SoftmaxMarks) -> te.Tensor:
    """Softmax over the visible keys of each query; a query without visible keys has weights of 0."""
    rows = scores.buffer.shape[:2]
    k1, k2 = (te.reduce_axis((0, scores.shape[2]), "k") for _ in range(2))
    lowest, zero = te.min_value(scores.dtype), te.const(0, scores.dtype)
    masked = te.compute(
        scores.shape, lambda b, i, j: te.select(visible(i, j), scores(b, i, j), lowest), name="T_masked"
    )
    maxima = te.compute(rows, lambda b, i: te.max(marks.operand(masked(b, i, k1)), axis=k1), name="T_softmax_maxelem")
    exponentials = te.compute(
        scores.shape, lambda b, i, j: te.select(visible(i, j), te.exp(masked(b, i, j) - maxima(b, i)), zero),
        name="T_softmax_exp",
    )  # fmt: skip
    sums = te.compute(rows, lambda b, i: te.sum(exponentials(b, i, k2), axis=k2), name="T_softmax_expsum")

    def weight(b: Any, i: Any, j: Any) -> Any:
        divisor = te.select(sums(b, i) > zero, sums(b, i), te.const(1, scores.dtype))
        return exponentials(b, i, j) / marks.divisor(divisor)

    weights: te.Tensor = te.compute(scores.shape, weight, name="T_softmax_norm")
    return weights


def _attend(
    call: relax.Call, q: te.Tensor, k: te.Tensor, v: te.Tensor, bias: te.Tensor | None,
    softmax_of: Callable[[te.Tensor], te.Tensor],
) -> te.Tensor:  # fmt: skip
    batch, queries, heads, width = q.buffer.shape
    keys, result_width = v.buffer.shape[1], v.buffer.shape[3]
    scores = _matmul(_heads_first(q, heads), _heads_first(k, heads), True)
    scores = _scaled(call, scores, width)
    if bias is not None:
        flat = scores.buffer.shape
        scores = reshape(topi.add(reshape(scores, [batch, heads, queries, keys]), bias), flat)
    attended = _matmul(softmax_of(scores), _heads_first(v, heads), False)
    attended = reshape(attended, [batch, heads, queries, result_width])
    shape = [attended.shape[a] for a in (0, 2, 1, 3)]
    return topi.compute_ax(shape, lambda b, s, h, d: attended(b, h, s, d), "T_transpose")


def _lower_attention(
    call: relax.Call, q: te.Tensor, k: te.Tensor, v: te.Tensor, bias: te.Tensor | None = None, *,
    marks: SoftmaxMarks = PLAIN,
) -> te.Tensor:  # fmt: skip
    mask, window = call.attrs["causal_mask"], _window(call)
    if mask is None:
        return _attend(call, q, k, v, bias, lambda scores: softmax(scores, 2, marks))
    diagonal_offset = int64(0)
    if mask == "BottomRight":
        diagonal_offset = te.abs(Scalar(construct.sub(q.buffer.shape[1], k.buffer.shape[1]))).expr

    def visible(i: Any, j: Any) -> Any:
        last_key = i + Scalar(diagonal_offset)
        return j <= last_key if window is None else te.all(j <= last_key, j > last_key - window)

    return _attend(call, q, k, v, bias, lambda scores: _masked_softmax(scores, visible, marks))


def _lower_var_len(
    call: relax.Call, q: te.Tensor, k: te.Tensor, v: te.Tensor, *bounds: te.Tensor, marks: SoftmaxMarks = PLAIN
) -> te.Tensor:
    """Lower attention over concatenated sequences: a query attends to the keys of its own sequence."""
    starts_q, starts_k = bounds[:2]
    mask, window = call.attrs["causal_mask"], _window(call)
    queries = q.buffer.shape[1]
    s = te.reduce_axis((0, starts_q.shape[0]), "s")
    sequence_index = te.compute(
        (queries,), lambda i: te.sum((starts_q(s).astype(INT64) <= i).astype(INT64), axis=s), name="sequence"
    )
    last = starts_q.shape[0] - 1

    def span(starts: te.Tensor, i: Any) -> tuple[Any, Any]:
        """Return the bounds of the sequence that query `i` belongs to; both are 0 for a query outside all sequences."""
        number = sequence_index(i)
        inside = te.all(number > 0, number <= last)
        begin = te.if_then_else(inside, starts(number - 1).astype(INT64), te.const(0, INT64))
        return begin, te.if_then_else(inside, starts(number).astype(INT64), te.const(0, INT64))

    def bound(which: int) -> Callable[[Any], Any]:
        def place(i: Any) -> Any:
            (first, end), (low, high) = span(starts_q, i), span(starts_k, i)
            if mask is None:
                return (low, high)[which]
            diagonal = low + i - first
            if mask == "BottomRight":
                diagonal = diagonal + te.abs((high - low) - (end - first))
            if which == 1:
                return _minimum(high, diagonal + 1)
            return low if window is None else _maximum(low, diagonal + (1 - window))

        return place

    low = te.compute((queries,), bound(0), name="first_key")
    high = te.compute((queries,), bound(1), name="end_key")

    def visible(i: Any, j: Any) -> Any:
        return te.all(low(i) <= j, j < high(i))

    return _attend(call, q, k, v, None, lambda scores: _masked_softmax(scores, visible, marks))


def _minimum(a: Scalar, b: Scalar) -> Scalar:
    return Scalar(construct.minimum(to_expr(a), to_expr(b)))


def _maximum(a: Scalar, b: Scalar) -> Scalar:
    return Scalar(construct.maximum(to_expr(a), to_expr(b)))


# ---------------------------------------------------------------- NumPy


def _visible(call: relax.Call, queries: int, keys: int) -> Any:
    """Return the attention mask: True where a query (row) attends to a key (column)."""
    mask, window = call.attrs["causal_mask"], _window(call)
    distance = np.arange(keys) - np.arange(queries)[:, None]
    if mask is None:
        return np.ones_like(distance, bool)
    diagonal_offset = abs(queries - keys) if mask == "BottomRight" else 0
    return (distance <= diagonal_offset) & (window is None or distance > diagonal_offset - window)


def _np_heads(call: relax.Call, q: Any, k: Any, v: Any, bias: Any, visible: Any) -> Any:
    """Attention of (batch, heads, length, width); the mask `visible` has one row per query."""
    group_size = q.shape[1] // k.shape[1] if k.shape[1] else 1
    k, v = np.repeat(k, group_size, 1), np.repeat(v, group_size, 1)
    factor = scale(call)
    scores = q @ np.swapaxes(k, 2, 3)
    dtype = scores.dtype.type
    scores = scores * dtype(factor) if factor is not None else scores / np.sqrt(dtype(q.shape[3]))
    scores = np.where(visible, scores + bias, -np.inf)
    maxima = np.max(scores, -1, keepdims=True, initial=np.finfo(np.float32).min)
    exponentials = np.where(visible, np.exp(scores - maxima), 0)
    sums = np.sum(exponentials, -1, keepdims=True)
    empty = ~np.any(visible, -1, keepdims=True)
    return (exponentials / np.where(empty, 1, sums)).astype(v.dtype) @ v


def _np_attention(call: relax.Call, q: Any, k: Any, v: Any, bias: Any = 0) -> Any:
    first = [np.swapaxes(a, 1, 2) for a in (q, k, v)]
    attended = _np_heads(call, first[0], first[1], first[2], bias, _visible(call, q.shape[1], k.shape[1]))
    return np.swapaxes(attended, 1, 2)


def _np_var_len(call: relax.Call, q: Any, k: Any, v: Any, starts_q: Any, starts_k: Any, *_: Sequence[Any]) -> Any:
    attended = np.zeros((*q.shape[:3], v.shape[3]), q.dtype)
    for n in range(len(starts_q) - 1):
        rows, columns = (slice(int(s[n]), int(s[n + 1])) for s in (starts_q, starts_k))
        attended[:, rows] = _np_attention(call, q[:, rows], k[:, columns], v[:, columns])
    return attended


_SCORE_PARAMS = "scale: any = None, causal_mask: str? = None, window_size: int? = None"

OPS: dict[str, Impl] = {
    "nn.attention": Impl(
        f"query, key, value, {_SCORE_PARAMS}", infer_attention,
        _np_attention, _lower_attention, precision=Precision.HALF,
        accurate=functools.partial(_lower_attention, marks=MARKED),
    ),
    "nn.attention_bias": Impl(
        f"query, key, value, bias, {_SCORE_PARAMS}",
        infer_attention, _np_attention, _lower_attention, precision=Precision.HALF,
        accurate=functools.partial(_lower_attention, marks=MARKED),
    ),
    "nn.attention_var_len": Impl(
        f"query, key, value, seqstart_q, seqstart_k, max_seqlen_q, max_seqlen_k, {_SCORE_PARAMS}",
        infer_attention, _np_var_len, _lower_var_len, precision=Precision.HALF,
        accurate=functools.partial(_lower_var_len, marks=MARKED),
    ),
}  # fmt: skip
