"""Recognition of attention: a product of queries and keys, masks, a softmax, and a product with the values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from mlcc import ops
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import DType
from mlcc.ir.node import replace
from mlcc.ops.shapes import prove_equal
from mlcc.passes.graph.decompose import scalar
from mlcc.passes.graph.relax_mutator import RelaxMutator
from mlcc.passes.recognition.graph import Graph, axes_of, dims_of, dtype_of, is_float
from mlcc.passes.recognition.masks import Masks, constant_array, is_hidden
from mlcc.passes.recognition.polynomial import is_wider
from mlcc.relax.construct import make_tuple, prim_value, shape_expr

_MAX_DEPTH = 16  # operators between a product and its softmax
_VIEWS = ("permute_dims", "reshape")
_LENGTH_BEFORE_HEADS = {4: (0, 2, 1, 3), 3: (0, 1, 2), 2: (0, 1)}  # moves heads after the length
_KEY_ORDER = {4: (0, 3, 1, 2), 3: (0, 2, 1), 2: (1, 0)}
_UNIT_AXES = {4: (), 3: (2,), 2: (0, 2)}  # where unit batch and head axes are inserted
_MASK_UNIT_AXES = {4: (), 3: (1,), 2: (0, 1)}


@dataclass
class _Scores:
    """The operations between a product and the operand of a softmax, collected backwards."""

    product: relax.Call
    factor: float = 1.0
    masks: Masks = field(default_factory=Masks)


def attention(graph: Graph, root: relax.Expr, emitter: RelaxMutator) -> relax.Expr | None:
    """Match an attention by its last product; return the result of the attention operator, or None.

    `emitter` binds the intermediate values.
    """
    second = graph.call(root, "matmul")
    weights = None if second is None else _weights(graph, second.args[0])
    if second is None or weights is None:
        return None
    softmax, guarded = weights
    scores = _scores(graph, softmax.args[0])
    if scores is None or not _is_plain(scores, softmax, second) or not scores.masks.is_exact(graph):
        return None
    return _AttentionBuilder(graph, emitter, scores, second, guarded).build()


def _weights(graph: Graph, expr: relax.Expr) -> tuple[relax.Call, bool] | None:
    """Match the softmax of the attention weights; return it, and True if NaN in its result counts as 0."""
    guarded = False
    for _ in range(_MAX_DEPTH):
        call = graph.call(expr, "astype", "where", "nn.softmax")
        if call is None:
            return None
        if call.op.name == "relax.nn.softmax":
            return (call, guarded) if guarded or graph.used_once(expr) else None
        if call.op.name == "relax.where":
            condition, zero, rest = call.args
            asked = graph.call(condition, "isnan")
            if asked is None or graph.scalar(zero) != 0 or graph.number(asked.args[0]) != graph.number(rest):
                return None
            guarded, expr = True, rest
        elif graph.used_once(expr) and is_float(dtype_of(call.args[0])):
            expr = call.args[0]
        else:
            return None
    return None


def _scores(graph: Graph, logits: relax.Expr) -> _Scores | None:
    """Match the scores of a softmax: the product, its scale, and the masks, applied elementwise."""
    factor, masks, expr = 1.0, Masks(), logits
    dims = dims_of(logits)
    for _ in range(_MAX_DEPTH):
        if not graph.used_once(expr) or not _equal_extents(dims_of(expr), dims):
            return None
        call = graph.call(expr, "matmul", "astype", "multiply", "divide", "add", "subtract", "where")
        if call is None:
            return None
        name = call.op.name.removeprefix("relax.")
        if name == "matmul":
            return _Scores(call, factor, masks)
        if name == "astype":
            if not is_float(dtype_of(call.args[0])) or is_wider(dtype_of(call.args[0]), dtype_of(call)):
                return None
            expr = call.args[0]
        elif name in ("multiply", "divide"):
            scaled = _without_scalar(graph, call)
            if scaled is None or scaled[1] <= 0:
                return None
            expr, factor = scaled[0], factor * scaled[1]
        elif name == "where":
            _, if_true, if_false = call.args
            for visible, hidden, seen in ((if_true, if_false, True), (if_false, if_true, False)):
                if is_hidden(graph, hidden, dtype_of(call)):
                    masks.hide(call, seen, graph.scalar(hidden) or 0.0)
                    expr = visible
                    break
            else:
                return None
        else:
            split = _without_bias(graph, call)
            if split is None or name == "subtract":
                return None
            expr = split[0]
            masks.add(call, split[1], factor)
    return None


def _without_scalar(graph: Graph, call: relax.Call) -> tuple[relax.Expr, float] | None:
    """Split a product with a scalar, or a quotient by one, into the tensor and its factor; None if it is neither."""
    tensor, other = call.args
    number = graph.scalar(other)
    if call.op.name == "relax.divide":
        return (tensor, 1 / number) if number else None
    if number is None:
        tensor, number = other, graph.scalar(tensor)
    return None if number is None else (tensor, number)


def _without_bias(graph: Graph, call: relax.Call) -> tuple[relax.Expr, relax.Expr] | None:
    """Split a sum into the scores and the tensor that is added to them."""
    for scores, bias in (call.args, call.args[::-1]):
        if _leads_to_product(graph, scores):
            return scores, bias
    return None


def _leads_to_product(graph: Graph, expr: relax.Expr) -> bool:
    more = ("relax.where",)
    return any(graph.call(e, "matmul") is not None and graph.used_once(e) for e in graph.tree(expr, *more))


def _is_plain(scores: _Scores, softmax: relax.Call, second: relax.Call) -> bool:
    """Return True if the attention operator supports the shapes and dtypes."""
    dims, logits = dims_of(scores.product), dims_of(softmax)
    operands = (*scores.product.args, second.args[1])
    shapes = [dims_of(operand) for operand in operands]
    if dims is None or len(dims) not in _LENGTH_BEFORE_HEADS or softmax.attrs["axis"] % len(dims) != len(dims) - 1:
        return False
    if not _equal_extents(dims, logits) or any(shape is None or len(shape) != len(dims) for shape in shapes):
        return False
    q, k, v = shapes
    assert q is not None and k is not None and v is not None
    if not _equal_extents(q[:1] if len(dims) > 2 else (), k[:1] if len(dims) > 2 else ()):
        return False
    if not _equal_extents(k[:-2], v[:-2]) or not prove_equal(k[-1], v[-2]) or not prove_equal(q[-1], k[-2]):
        return False
    if len(dims) == 4 and not prove_equal(q[1], k[1]):
        heads, shared = tir.const_int(q[1]), tir.const_int(k[1])
        if not heads or not shared or heads % shared:
            return False
    if any(dims_of(step.operand) is None for step in scores.masks.steps):
        return False
    return _dtype(scores, second) is not None


def _dtype(scores: _Scores, second: relax.Call) -> DType | None:
    """Return the float dtype that can represent all operands and masks, or None."""
    operands = (*scores.product.args, second.args[1], second)
    masks = (step.needed for step in scores.masks.steps)
    dtypes = {*map(dtype_of, operands), *(dtype for dtype in masks if dtype is not None)}
    widest = max(dtypes, key=lambda dtype: dtype.bits if dtype is not None else 0)
    fits = is_float(widest) and all(dtype is widest or is_wider(widest, dtype) for dtype in dtypes)
    return widest if fits else None


def _equal_extents(first: Sequence[tir.Expr] | None, second: Sequence[tir.Expr] | None) -> bool:
    if first is None or second is None or len(first) != len(second):
        return False
    return all(prove_equal(a, b) for a, b in zip(first, second, strict=True))


class _AttentionBuilder:
    """Emit the attention operator for a match."""

    def __init__(self, graph: Graph, emitter: RelaxMutator, scores: _Scores, second: relax.Call, guarded: bool) -> None:
        self.graph, self.emitter = graph, emitter
        self.scores, self.second, self.guarded = scores, second, guarded
        self.rank = len(dims_of(second) or ())
        dtype = _dtype(scores, second)
        assert dtype is not None
        self.dtype = dtype

    def build(self) -> relax.Expr:
        query, query_factor = self._unscaled(self.scores.product.args[0])
        key, key_factor = self._unscaled(self.scores.product.args[1])
        factor = self.scores.factor * query_factor * key_factor
        keys, values = (key, _KEY_ORDER[self.rank]), (self.second.args[1], _LENGTH_BEFORE_HEADS[self.rank])
        q = self._as_4d(query, _LENGTH_BEFORE_HEADS[self.rank])
        k, v = (self._as_4d(*operand) for operand in self._grouped_operands(keys, values))
        causal_mask = self.scores.masks.causal_mask(self.graph)
        bias = None if causal_mask is not None else self._bias()
        attrs = {"scale": self._scale(factor, q), "causal_mask": causal_mask}
        if bias is None:
            call = ops.bind_call("nn.attention", (q, k, v), attrs)
        else:
            call = ops.bind_call("nn.attention_bias", (q, k, v, bias), attrs)
        result: relax.Expr = self.emitter.emit(replace(call, span=self.second.span))
        masked_queries = None if bias is None or not self.guarded else self._fully_masked(bias)
        if masked_queries is not None:
            result = self.emitter.emit_op("where", masked_queries, self._scalar(0.0), result)
        if self.rank == 4:
            result = self.emitter.emit_op("permute_dims", result, axes=list(_LENGTH_BEFORE_HEADS[4]))
        if self.rank < 4:
            result = self.emitter.emit_op("squeeze", result, axis=list(_UNIT_AXES[self.rank]))
        return self._cast(result, dtype_of(self.second))

    def _scale(self, factor: float, q: relax.Expr) -> float | None:
        """Return the scale of the scores, or None if it is the operator's default."""
        width = tir.const_int((dims_of(q) or ())[-1])
        usual = width is not None and width > 0 and abs(factor * math.sqrt(width) - 1) < 2.0**-22
        return None if usual else factor

    def _unscaled(self, expr: relax.Expr) -> tuple[relax.Expr, float]:
        """Split a tensor into an unscaled tensor and its positive factor, applied before or after views."""
        call = self.graph.call(expr, "multiply", "divide", *_VIEWS)
        if call is None:
            return expr, 1.0
        if call.op.name.removeprefix("relax.") not in _VIEWS:
            scaled = _without_scalar(self.graph, call)
            if scaled is None or not _equal_extents(dims_of(scaled[0]), dims_of(call)) or scaled[1] <= 0:
                return expr, 1.0
            rest, factor = self._unscaled(scaled[0])
            return rest, factor * scaled[1]
        rest, factor = self._unscaled(call.args[0])
        if factor == 1:
            return expr, 1.0
        return self.emitter.emit(replace(call, args=(rest, *call.args[1:]))), factor

    def _grouped_operands(self, *operands: tuple[relax.Expr, Sequence[int]]) -> list[tuple[relax.Expr, Sequence[int]]]:
        """Return keys and values before each head is repeated for a group of query heads."""
        peeled = [self._untransposed(*operand) for operand in operands]
        sources = [self._before_repeat(value) if self.rank == 4 else None for value, _ in peeled]
        if (
            sources[0] is None
            or sources[1] is None
            or not _equal_extents(*((dims_of(x) or ())[1:2] for x in sources if x is not None))
        ):
            return list(operands)
        return [(x, order) for x, (_, order) in zip(sources, peeled, strict=True) if x is not None]

    def _before_repeat(self, value: relax.Expr) -> relax.Expr | None:
        """Match (batch, groups, length, width) with repeated groups; return the tensor before repetition, or None.

        The graph repeats groups by a broadcast to (batch, groups, times, length, width) and a reshape.
        """
        reshaped = self.graph.call(value, "reshape")
        broadcast = None if reshaped is None else self.graph.call(reshaped.args[0], "broadcast_to")
        expanded = None if broadcast is None else self.graph.call(broadcast.args[0], "expand_dims", "reshape")
        if reshaped is None or broadcast is None or expanded is None:
            return None
        x = expanded.args[0]
        dims, repeated, inner, result = (dims_of(e) for e in (x, broadcast, expanded, reshaped))
        if dims is None or repeated is None or inner is None or result is None or len(dims) != 4 or len(repeated) != 5:
            return None
        between = (*dims[:2], repeated[2], *dims[2:])
        has_unit_axis = (
            len(inner) == 5 and tir.const_int(inner[2]) == 1 and _equal_extents((*inner[:2], *inner[3:]), dims)
        )
        fits = _equal_extents(repeated, between) and _equal_extents((result[0], *result[2:]), (dims[0], *dims[2:]))
        return x if has_unit_axis and fits else None

    def _as_4d(self, value: relax.Expr, order: Sequence[int]) -> relax.Expr:
        """Emit a tensor as (batch, length, heads, width); `order` maps each position to an axis."""
        permuted, order = self._untransposed(value, order)
        if list(order) != list(range(len(order))):
            permuted = self.emitter.emit_op("permute_dims", permuted, axes=list(order))
        if self.rank < 4:
            permuted = self.emitter.emit_op("expand_dims", permuted, axis=list(_UNIT_AXES[self.rank]))
        return self._cast(permuted, self.dtype)

    def _untransposed(self, value: relax.Expr, order: Sequence[int]) -> tuple[relax.Expr, Sequence[int]]:
        """Strip the transposes of a tensor; return the source, and the order in terms of its axes."""
        while True:
            call = self.graph.call(value, "permute_dims")
            if call is not None:
                axes, value = axes_of(call), call.args[0]
            else:
                part = self._untransposed_slice(value)
                if part is None:
                    return value, order
                value, axes = part
            order = [axes[at] for at in order]

    def _untransposed_slice(self, value: relax.Expr) -> tuple[relax.Expr, list[int]] | None:
        """Match a slice along one axis of a transposed tensor; return the source's slice and the order of its axes."""
        squeezed = self.graph.call(value, "squeeze")
        sliced_view = None if squeezed is None else self.graph.call(squeezed.args[0], "strided_slice")
        transposed = None if sliced_view is None else self.graph.call(sliced_view.args[0], "permute_dims")
        if (
            squeezed is None
            or sliced_view is None
            or transposed is None
            or not isinstance(sliced_view.args[1], relax.Tuple)
        ):
            return None
        slice_axes = [self.graph.scalar(axis) for axis in sliced_view.args[1].fields]
        if len(slice_axes) != 1 or slice_axes[0] is None or [int(slice_axes[0])] != list(squeezed.attrs["axis"] or ()):
            return None
        axes = axes_of(transposed)
        source = axes.pop(int(slice_axes[0]))
        axis_tuple = make_tuple((prim_value(c.const(source, "int64")),))
        sliced = self.emitter.emit_op(
            "strided_slice", transposed.args[0], axis_tuple, *sliced_view.args[2:], **sliced_view.attrs
        )
        return self.emitter.emit_op("squeeze", sliced, axis=[source]), [a - (a > source) for a in axes]

    def _cast(self, value: relax.Expr, dtype: DType | None) -> relax.Expr:
        return value if dtype_of(value) is dtype else self.emitter.emit_op("astype", value, dtype=str(dtype))

    def _turned(self, value: relax.Expr, order: Sequence[int]) -> relax.Expr:
        while (call := self.graph.call(value, "permute_dims")) is not None:
            axes = axes_of(call)
            value, order = call.args[0], [axes[at] for at in order]
        if list(order) == list(range(len(order))):
            return value
        return self.emitter.emit_op("permute_dims", value, axes=list(order))

    # ------------------------------------------------------------ masks

    def _scalar(self, value: float) -> relax.Constant:
        return scalar(value, self.dtype)

    def _bias(self) -> relax.Expr | None:
        """Emit the tensor that is added to the scores: (batch, heads, queries, keys), extents of 1 broadcast.

        None if nothing is added.
        """
        bias: relax.Expr | None = None
        for step in reversed(self.scores.masks.steps):
            if step.seen is None:
                term = self._cast(self._mask_as_4d(step.operand), self.dtype)
                if step.factor != 1:
                    term = self.emitter.emit_op("multiply", term, self._scalar(step.factor))
                bias = term if bias is None else self.emitter.emit_op("add", bias, term)
            else:
                one, other = bias or self._scalar(0.0), self._scalar(step.hidden)
                pair = (one, other) if step.seen else (other, one)
                bias = self.emitter.emit_op("where", self._mask_as_4d(step.operand), *pair)
        return None if bias is None else self._over_all_keys(bias)

    def _mask_as_4d(self, mask: relax.Expr) -> relax.Expr:
        """Emit a mask with four dimensions."""
        rank = len(dims_of(mask) or ())
        if rank < self.rank:
            mask = self.emitter.emit_op("expand_dims", mask, axis=list(range(self.rank - rank)))
        if self.rank < 4:
            mask = self.emitter.emit_op("expand_dims", mask, axis=list(_MASK_UNIT_AXES[self.rank]))
        return mask

    def _over_all_keys(self, bias: relax.Expr) -> relax.Expr:
        """Emit the bias broadcast along the keys."""
        dims, keys = dims_of(bias), (dims_of(self.scores.product) or ())[-1]
        if dims is None or tir.const_int(dims[-1]) != 1 or tir.const_int(keys) == 1:
            return bias
        return self.emitter.emit_op("broadcast_to", bias, shape_expr((*dims[:-1], keys)))

    def _fully_masked(self, bias: relax.Expr) -> relax.Expr | None:
        """Emit the mask of queries without unmasked keys; None if every query has one."""
        array = constant_array(self.graph, bias)
        if array is not None and not (array.max(-1) == -math.inf).any():
            return None
        choice = self.graph.call(bias, "where")
        numbers = [None] if choice is None else [self.graph.scalar(value) for value in choice.args[1:]]
        if all(number is not None and number > -math.inf for number in numbers):
            return None
        hidden = self.emitter.emit_op("equal", bias, self._scalar(-math.inf))
        blind = self.emitter.emit_op("min", hidden, axis=[3], keepdims=True)
        return self.emitter.emit_op("permute_dims", blind, axes=list(_LENGTH_BEFORE_HEADS[4]))
