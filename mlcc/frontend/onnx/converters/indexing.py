"""Gathers and scatters, top-k, and cumulative operators along one axis."""

from __future__ import annotations

from collections.abc import Sequence

from mlcc.frontend.onnx.helpers import iota_along, one_of, slice_axis
from mlcc.frontend.onnx.table import converts
from mlcc.frontend.onnx.translate import OnnxNode, OnnxTranslator
from mlcc.frontend.problems import Unsupported
from mlcc.ir import relax, tir
from mlcc.ops.shapes import product

REDUCTIONS = {"none": "update", "add": "add", "mul": "mul", "max": "max", "min": "min"}


@converts("Gather")
def _gather(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, indices: relax.Expr) -> relax.Expr:
    return t.op.take(x, indices, t.axis(x, node.attribute("axis", 0)))


@converts("GatherElements", since=11)
def _gather_elements(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, indices: relax.Expr) -> relax.Expr:
    return t.op.gather_elements(x, indices, t.axis(x, node.attribute("axis", 0)))


@converts("GatherND", since=11)
def _gather_nd(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, indices: relax.Expr) -> relax.Expr:
    return t.op.gather_nd(x, indices, node.attribute("batch_dims", 0))


def _reduction(node: OnnxNode) -> str:
    return REDUCTIONS[one_of(node.attribute("reduction", "none"), list(REDUCTIONS), "reduction")]


@converts("Scatter", since=9)
@converts("ScatterElements", since=11)
def _scatter(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, indices: relax.Expr, updates: relax.Expr) -> relax.Expr:
    return t.op.scatter_elements(x, indices, updates, t.axis(x, node.attribute("axis", 0)), _reduction(node))


@converts("ScatterND", since=11)
def _scatter_nd(
    t: OnnxTranslator, node: OnnxNode, x: relax.Expr, indices: relax.Expr, updates: relax.Expr
) -> relax.Expr:
    return t.op.scatter_nd(x, indices, updates, _reduction(node))


@converts("TensorScatter", since=24)
def _tensor_scatter(
    t: OnnxTranslator, node: OnnxNode, cache: relax.Expr, update: relax.Expr, begins: relax.Expr | None = None
) -> relax.Expr:
    rank, axis = t.ndim(cache), t.axis(cache, node.attribute("axis", -2))
    circular = one_of(node.attribute("mode", "linear"), ("linear", "circular"), "mode") == "circular"
    places = iota_along(t, rank, axis, t.shape(update)[axis])
    if begins is not None:
        places = t.op.add(places, t.reshape(begins, [*t.shape(begins), *[1] * (rank - 1)]))
    if circular:
        places = t.op.floor_mod(places, t.op.shape_to_tensor(t.shape_expr([t.shape(cache)[axis]])))
    return t.op.scatter_elements(cache, t.op.broadcast_to(places, t.shape_expr(t.shape(update))), update, axis)


@converts("Compress", since=9)
def _compress(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, condition: relax.Expr) -> relax.Expr:
    axis = node.attribute("axis")
    if axis is None:
        x = t.reshape(x, [product(t.shape(x))])
    return t.op.take(x, true_indices(t, condition, 1), t.axis(x, axis or 0))


@converts("NonZero", since=9)
def _nonzero(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    rank = t.ndim(x)
    if rank == 0:
        raise Unsupported("`NonZero` of a scalar is not supported")
    return t.with_stated_shape(t.op.nonzero(x), [rank, t.symbol("found")], "int64")


def true_indices(t: OnnxTranslator, condition: relax.Expr, rank: int) -> relax.Expr:
    """Return the indices of the nonzero elements of a vector."""
    places = t.with_stated_shape(t.op.nonzero(condition), [rank, t.symbol("found")], "int64")
    return t.emit(t.op.squeeze(places, [0]))


@converts("Unique", since=11)
def _unique(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> list[relax.Expr]:
    axis = node.attribute("axis")
    at = [] if axis is None else [t.axis(x, axis)]
    results = t.emit(t.op.unique(x, bool(node.attribute("sorted", 1)), True, True, True, *at))
    total = product(t.shape(x)) if axis is None else t.shape(x)[at[0]]
    count = t.symbol("different")
    shape = [count] if axis is None else [count if i == at[0] else d for i, d in enumerate(t.shape(x))]
    shapes: list[Sequence[tir.Expr]] = [shape, [count], [total], [count]]
    dtypes = (t.dtype(x), "int64", "int64", "int64")
    return [t.with_stated_shape(t.emit(results[i]), shapes[i], dtypes[i]) for i in range(4)]


@converts("OneHot", since=9)
def _one_hot(
    t: OnnxTranslator, node: OnnxNode, indices: relax.Expr, depth: relax.Expr, values: relax.Expr
) -> relax.Expr:
    (classes,) = t.extents(t.cast(t.reshape(depth, [1]), "int64"))  # the depth may be a float
    rank = t.ndim(indices)
    axis = node.attribute("axis", -1)
    if not -rank - 1 <= axis <= rank:
        raise Unsupported(f"axis {axis} of a result of {rank + 1} dimensions")
    axis %= rank + 1
    wanted = t.emit(t.op.expand_dims(t.cast(indices, "int64"), [axis]))
    length = t.op.shape_to_tensor(t.shape_expr([classes]))
    wanted = t.op.where(t.op.less(wanted, t.scalar(0, "int64")), t.op.add(wanted, length), wanted)
    off, on = (t.op.take(values, t.scalar(i, "int64"), 0) for i in range(2))
    return t.op.where(t.op.equal(wanted, iota_along(t, rank + 1, axis, classes)), on, off)


@converts("TopK")
def _topk_of_attribute(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> list[relax.Expr]:
    return topk(t, node, x, node.attribute("k"))


@converts("TopK", since=10)
def _topk(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, k: relax.Expr) -> list[relax.Expr]:
    axis = t.axis(x, node.attribute("axis", -1))
    (count,) = t.extents(k, t.shape(x)[axis])
    return topk(t, node, x, count)


def topk(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, count: int | tir.Expr) -> list[relax.Expr]:
    """Emit the greatest or least elements along an axis, and their indices."""
    axis = t.axis(x, node.attribute("axis", -1))
    most = count if isinstance(count, int) else -1  # sort all, then slice the first ones
    pair = t.emit(t.op.topk(x, most, axis, "both", bool(node.attribute("largest", 1)), "int64"))
    results = [t.emit(pair[0]), t.emit(pair[1])]
    return results if isinstance(count, int) else [slice_axis(t, part, axis, 0, count) for part in results]


@converts("CumSum", since=11)
def _cumsum(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, axis: relax.Expr) -> relax.Expr:
    return _cumulative(t, node, t.op.cumsum, x, axis)


@converts("CumProd", since=26)
def _cumprod(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, axis: relax.Expr) -> relax.Expr:
    return _cumulative(t, node, t.op.cumprod, x, axis)


def _cumulative(t: OnnxTranslator, node: OnnxNode, operator: object, x: relax.Expr, axis: relax.Expr) -> relax.Expr:
    known, backwards = t.known_integers(axis), bool(node.attribute("reverse", 0))

    def along_axis(at: int) -> relax.Expr:
        given = t.op.flip(x, at) if backwards else x
        scanned = t.emit(operator(given, at, t.dtype(x), bool(node.attribute("exclusive", 0))))  # type: ignore[operator]
        return t.emit(t.op.flip(scanned, at)) if backwards else scanned

    if known is not None:
        return along_axis(t.axis(x, int(known[0])))  # type: ignore[arg-type]
    every = t.op.stack([along_axis(at) for at in range(t.ndim(x))], 0)
    return t.op.take(every, t.reshape(axis, []), 0)  # checked at run time


@converts("ReverseSequence", since=10)
def _reverse_sequence(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, lengths: relax.Expr) -> relax.Expr:
    return t.op.reverse_sequence(x, lengths, node.attribute("time_axis", 0), node.attribute("batch_axis", 1))
