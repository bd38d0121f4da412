"""Operators without computation: shapes, slices, splits, padding, constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc.frontend.emitter import Dim
from mlcc.frontend.onnx import dynamic_axes
from mlcc.frontend.onnx.elements import dtype_of
from mlcc.frontend.onnx.extents import broadcast_shapes, cancelled_quotient
from mlcc.frontend.onnx.helpers import iota_along, one_of
from mlcc.frontend.onnx.table import converts
from mlcc.frontend.onnx.translate import OnnxNode, OnnxTranslator, weight
from mlcc.frontend.problems import Unsupported
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import INT64
from mlcc.ir.tensor_data import TensorData
from mlcc.ops.relations import provably_equal
from mlcc.ops.shapes import product

_SLICE_END = 2**31 - 1  # slice ends from here on mean the end of the axis


@converts("Identity")
def _identity(t: OnnxTranslator, node: OnnxNode, x: Any) -> Any:
    return x


@converts("Dropout")
def _dropout(
    t: OnnxTranslator,
    node: OnnxNode,
    x: relax.Expr,
    ratio: relax.Expr | None = None,
    training: relax.Expr | None = None,
) -> list[relax.Expr]:
    if training is not None and t.array(training).item() and (ratio is None or t.array(ratio).item()):
        raise Unsupported("dropout in training mode is not supported", "export the model for inference")
    if len(node.outputs) < 2:
        return [x]
    return [x, t.emit(t.op.full(t.shape_expr(t.shape(x)), t.scalar(1, "bool"), "bool"))]


# ---------------------------------------------------------------- constants


@converts("Constant")
def _constant(t: OnnxTranslator, node: OnnxNode) -> relax.Expr:
    import numpy as np

    for name in ("value", "sparse_value"):
        data = node.attribute(name)
        if isinstance(data, TensorData):
            return weight(t, data)
    for name, dtype in (("value_float", "float32"), ("value_int", "int64")):
        for given in (node.attribute(name), node.attribute(name + "s")):
            if given is not None:
                return t.constant(np.array(given, dtype))
    raise Unsupported("constants of strings are not supported")


@converts("ConstantOfShape")
def _constant_of_shape(t: OnnxTranslator, node: OnnxNode, shape: relax.Expr) -> relax.Expr:
    import numpy as np

    data: Any = node.attribute("value") or TensorData.of(np.zeros(1, "float32"))
    value = t.constant(data.array.reshape(()), str(data.dtype))
    return t.op.full(t.shape_expr(t.extents(shape)), value, str(data.dtype))


@converts("Range")
def _range(t: OnnxTranslator, node: OnnxNode, start: relax.Expr, limit: relax.Expr, delta: relax.Expr) -> relax.Expr:
    bounds = [start, limit, delta]
    dtype = t.dtype(start)
    known = [t.known_integers(b) for b in bounds]
    if all(k is not None for k in known):
        return t.op.arange(*(k[0] for k in known if k is not None), dtype)
    if all(t.constant_array(b) is not None for b in bounds):
        return t.op.arange(*(t.array(b).item() for b in bounds), dtype)
    steps = t.op.divide(t.op.subtract(t.cast(limit, "float64"), t.cast(start, "float64")), t.cast(delta, "float64"))
    count = t.op.maximum(t.op.astype(t.op.ceil(steps), "int64"), t.scalar(0, "int64"))
    (length,) = t.extents(t.emit(t.op.reshape(count, [1])))
    places = t.cast(t.emit(t.op.arange(0, length, 1, "int64")), dtype)
    return t.op.add(start, t.op.multiply(places, delta))


@converts("EyeLike")
def _eye_like(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    number = node.attribute("dtype")
    dtype = t.dtype(x) if number is None else dtype_of(number)
    rows, columns = t.shape(x)
    return t.op.eye(rows, columns, node.attribute("k", 0), dtype)


@converts("Trilu")
def _trilu(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, k: relax.Expr | None = None) -> relax.Expr:
    known = [0] if k is None else t.known_integers(k)
    if known is None:
        return _run_time_trilu(t, x, t.reshape(k, []), bool(node.attribute("upper", 1)))  # type: ignore[arg-type]
    offset = known[0]
    return t.op.triu(x, offset) if node.attribute("upper", 1) else t.op.tril(x, offset)


def _run_time_trilu(t: OnnxTranslator, x: relax.Expr, offset: relax.Expr, upper: bool) -> relax.Expr:
    """Keep the elements on one side of a diagonal, inclusive, whose offset is known at run time only; zero the rest."""
    rank, (rows, columns) = t.ndim(x), t.shape(x)[-2:]
    distance = t.op.subtract(iota_along(t, rank, rank - 1, columns), iota_along(t, rank, rank - 2, rows))
    inside = (t.op.greater_equal if upper else t.op.less_equal)(distance, t.cast(offset, "int64"))
    return t.op.where(inside, x, t.scalar(0, t.dtype(x)))


# ---------------------------------------------------------------- shapes


@converts("Shape")
def _shape(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    raise Unsupported("the shape of an operand is not known")


@converts("Size")
def _size(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    raise Unsupported("the shape of an operand is not known")


@converts("Reshape")
def _reshape(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, shape: relax.Expr | None = None) -> relax.Expr:
    zero_copies = not node.attribute("allowzero", 0)
    if shape is None:
        return t.reshape(x, _resolve_reshape(t, x, node.attribute("shape", []), zero_copies))
    wanted = t.known_integers(shape)
    if wanted is None:
        return t.reshape(x, _run_time_shape(t, x, shape, zero_copies))
    return t.reshape(x, _resolve_reshape(t, x, wanted, zero_copies))


def _resolve_reshape(t: OnnxTranslator, x: relax.Expr, wanted: Sequence[Dim], zero_copies: bool) -> list[Dim]:
    """Resolve the shape of a `Reshape`: 0 copies an extent of the operand, -1 is inferred."""
    given = t.shape(x)
    if zero_copies and any(n == 0 and i >= len(given) for i, n in enumerate(wanted)):
        raise Unsupported(f"the shape {list(wanted)} copies an axis that the operand does not have")
    extents: list[Dim] = [given[i] if n == 0 and zero_copies else n for i, n in enumerate(wanted)]
    open_at = [i for i, n in enumerate(extents) if n == -1]
    if len(open_at) > 1 or any(isinstance(n, int) and n < -1 for n in extents):
        raise Unsupported(f"{list(wanted)} is not a valid shape")
    if open_at:
        at = open_at[0]
        extents[at] = cancelled_quotient(t, given, extents[:at] + extents[at + 1 :])
    return extents


def _run_time_shape(t: OnnxTranslator, x: relax.Expr, shape: relax.Expr, zero_copies: bool) -> list[Dim]:
    """Return the extents of a shape known at run time only, with 0 and -1 resolved by emitted code."""
    given, zero, one = t.shape(x), t.scalar(0, "int64"), t.scalar(1, "int64")
    shape = t.cast(shape, "int64")
    length = t.static_shape(shape)
    if length is None:
        raise Unsupported("the length of the shape is known at run time only")
    if zero_copies:
        beyond: list[Dim] = [0] * length[0]
        copied = [*given, *beyond][: length[0]]
        shape = t.emit(t.op.where(t.op.equal(shape, zero), t.integer_tensor(copied, "int64"), shape))
    is_open = t.emit(t.op.equal(shape, t.scalar(-1, "int64")))
    others = t.op.maximum(t.op.prod(t.op.where(is_open, one, shape)), one)
    rest = t.op.floor_divide(t.integer_tensor([product(given)], "int64", ()), others)
    return t.extents(t.emit(t.op.where(is_open, rest, shape)), limit=product(given))


@converts("Flatten")
def _flatten(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    shape, axis = t.shape(x), node.attribute("axis", 1)
    if not -len(shape) <= axis <= len(shape):
        raise Unsupported(f"axis {axis} is out of range for a tensor of {len(shape)} dimensions")
    axis = axis + len(shape) if axis < 0 else axis
    return t.reshape(x, [product(shape[:axis]), product(shape[axis:])])


@converts("Squeeze")
def _squeeze(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, axes: relax.Expr | None = None) -> relax.Expr:
    if axes is not None and t.known_integers(axes) is None:
        return t.reshape(x, dynamic_axes.unreduced_extents(t, x, axes))
    given = _axes(t, node, axes)
    shape = t.shape(x)
    if given is None:
        if any(tir.const_int(n) is None for n in shape):
            raise Unsupported("the axes of extent 1 are known at run time only", "give `Squeeze` its axes")
        given = [i for i, n in enumerate(shape) if tir.const_int(n) == 1]
    removed = {t.axis(x, a) for a in given}
    if any((tir.const_int(shape[a]) or 1) != 1 for a in removed):
        raise Unsupported(f"axes {given} of {[str(n) for n in shape]} are not all of extent 1")
    return t.op.squeeze(x, sorted(removed)) if removed else x


@converts("Unsqueeze")
def _unsqueeze(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, axes: relax.Expr | None = None) -> relax.Expr:
    if axes is not None and t.known_integers(axes) is None:
        return t.reshape(x, dynamic_axes.unsqueezed_extents(t, x, axes))
    return t.op.expand_dims(x, _axes(t, node, axes) or [])


def _axes(t: OnnxTranslator, node: OnnxNode, axes: relax.Expr | None) -> list[int] | None:
    """Return the axes from the attribute of older opsets, or from an input."""
    return node.attribute("axes") if axes is None else [int(a) for a in t.array(axes).reshape(-1)]


@converts("Transpose")
def _transpose(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    return t.op.permute_dims(x, node.attribute("perm"))


@converts("Expand")
def _expand(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, shape: relax.Expr) -> relax.Expr:
    return _broadcast_to(t, x, broadcast_shapes(t.shape(x), t.extents(shape)))


def _broadcast_to(t: OnnxTranslator, x: relax.Expr, shape: Sequence[Dim]) -> relax.Expr:
    target = t.shape_expr(shape)
    known = t.shape(x)
    if len(known) == len(shape) and all(map(provably_equal, known, target.values)):
        return x
    return t.op.broadcast_to(x, target)


@converts("Tile")
def _tile(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, repeats: relax.Expr) -> relax.Expr:
    times = t.extents(repeats)
    if all(isinstance(n, int) for n in times):
        return t.op.tile(x, times)
    shape = t.shape(x)
    beside = t.reshape(x, [n for extent in shape for n in (1, extent)])
    spread = _broadcast_to(t, beside, [n for pair in zip(times, shape, strict=True) for n in pair])
    return t.reshape(t.emit(spread), [t.simplify(c.mul(n, e)) for n, e in zip(times, shape, strict=True)])


# ---------------------------------------------------------------- concatenation and splitting


@converts("Concat")
def _concat(t: OnnxTranslator, node: OnnxNode, *parts: relax.Expr) -> relax.Expr:
    axis = t.axis(parts[0], node.attribute("axis", 1 if node.version < 4 else 0))
    if len(parts) == 1:
        return parts[0]
    first = t.shape(parts[0])
    return t.op.concat([parts[0], *(_match_other_extents(t, part, first, axis) for part in parts[1:])], axis)


def _match_other_extents(t: OnnxTranslator, part: relax.Expr, first: Sequence[tir.Expr], axis: int) -> relax.Expr:
    """Give a part of a concatenation the first one's other extents, with a run-time check if they may differ."""
    shape = list(t.shape(part))
    if len(shape) != len(first):
        return part
    wanted = [own if i == axis else other for i, (own, other) in enumerate(zip(shape, first, strict=True))]
    return part if all(map(provably_equal, shape, wanted)) else t.with_shape(part, wanted)


@converts("Split")
def _split(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, sizes: relax.Expr | None = None) -> list[relax.Expr]:
    axis = t.axis(x, node.attribute("axis", 0))
    lengths = node.attribute("split") if sizes is None else t.known_integers(sizes)
    if lengths is None and sizes is not None:
        lengths = dynamic_axes.bounded_extents(t, sizes, [t.shape(x)[axis]] * dynamic_axes.vector_length(t, sizes))
    if lengths is None:
        lengths = _even_lengths(t, t.shape(x)[axis], node.attribute("num_outputs", len(node.outputs)))
    return split_axis(t, x, axis, lengths)


def _even_lengths(t: OnnxTranslator, extent: tir.Expr, count: int) -> list[Dim]:
    """Return equal lengths; the last one is smaller if there is a remainder."""
    if not 0 < count <= 1 << 16:
        raise Unsupported(f"a split into {count} parts is not supported")
    length = t.simplify(c.floordiv(c.add(extent, count - 1), count))
    return [length] * (count - 1) + [t.simplify(c.sub(extent, c.mul(length, count - 1)))]


def split_axis(t: OnnxTranslator, x: relax.Expr, axis: int, lengths: Sequence[Dim]) -> list[relax.Expr]:
    """Split an axis into parts. Raises Unsupported if the lengths do not add up to the extent."""
    extent = tir.const_int(t.shape(x)[axis])
    numbers = [n for n in lengths if isinstance(n, int)]
    if any(n < 0 for n in numbers) or (len(numbers) == len(lengths) and extent not in (None, sum(numbers))):
        raise Unsupported(f"an axis of {extent} elements cannot be split into {numbers}")
    if len(lengths) == 1:
        return [x]
    places: list[Dim] = []
    for length in lengths[:-1]:
        places.append(t.simplify(c.add(places[-1] if places else c.const(0, "int64"), length)))
    if all(isinstance(p, int) for p in places):
        whole = t.emit(t.op.split(x, places, axis))
        return [t.emit(whole[i]) for i in range(len(lengths))]
    whole_shape, end = t.shape(x), t.simplify(c.add(places[-1], lengths[-1]))
    if not provably_equal(
        c.as_expr(end, INT64), whole_shape[axis]
    ):  # checked at run time: the lengths add up to the extent
        x = t.with_shape(x, [end if i == axis else n for i, n in enumerate(whole_shape)])
    return [
        t.emit(t.op.strided_slice(x, [axis], [begin], [end], assume_inbound=True))
        for begin, end in zip([0, *places], [*places, end], strict=True)
    ]


# ---------------------------------------------------------------- slices


@converts("Slice")
def _slice_attributes(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    starts = node.attribute("starts")
    axes = node.attribute("axes") or list(range(len(starts)))
    return slice_axes(t, x, axes, starts, node.attribute("ends"), [1] * len(starts))


@converts("Slice", since=10)
def _slice(
    t: OnnxTranslator, node: OnnxNode, x: relax.Expr, starts: relax.Expr, ends: relax.Expr,
    axes: relax.Expr | None = None, steps: relax.Expr | None = None,
) -> relax.Expr:  # fmt: skip
    count = dynamic_axes.vector_length(t, starts)
    where: Sequence[Dim] | None = list(range(count)) if axes is None else t.known_integers(axes)
    begin, end = t.known_integers(starts), t.known_integers(ends)
    stride = [1] * count if steps is None else t.known_integers(steps)
    if where is None or begin is None or end is None or stride is None:
        return _run_time_slice(t, x, axes, starts, ends, steps)
    if any(not isinstance(s, int) for s in stride):
        raise Unsupported("a step known at run time only is not supported")
    return slice_axes(t, x, where, begin, end, [int(s) for s in stride])  # type: ignore[arg-type]


def slice_axes(
    t: OnnxTranslator, x: relax.Expr, axes: Sequence[int], starts: Sequence[Dim], ends: Sequence[Dim],
    steps: Sequence[int],
) -> relax.Expr:  # fmt: skip
    """Slice several axes, with the semantics of Python slices."""
    if not len(axes) == len(starts) == len(ends) == len(steps) or 0 in steps:
        raise Unsupported("starts, ends, axes and steps do not match")
    shape, kept = t.shape(x), []
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        at = t.axis(x, axis)
        last = shape[at] if step > 0 and isinstance(end, int) and end >= _SLICE_END else c.as_expr(end, shape[at].dtype)
        if step != 1 or start != 0 or not provably_equal(last, shape[at]):
            kept.append((at, start, last, step))
    if not kept:
        return x
    where, begins, lasts, strides = (list(part) for part in zip(*kept, strict=True))
    return t.op.strided_slice(x, where, begins, lasts, strides)


def _run_time_slice(
    t: OnnxTranslator, x: relax.Expr, axes: relax.Expr | None, starts: relax.Expr, ends: relax.Expr,
    steps: relax.Expr | None,
) -> relax.Expr:  # fmt: skip
    """Emit a slice whose bounds or axes are known at run time only."""
    shape, count = t.shape(x), dynamic_axes.vector_length(t, starts)
    where = t.integer_tensor(range(count), "int64") if axes is None else axes
    ones = t.integer_tensor([1] * count, "int64") if steps is None else steps
    bounds = [
        dynamic_axes.scatter_by_axis(t, where, values, otherwise, len(shape))
        for values, otherwise in ((starts, 0), (ends, shape), (ones, 1))
    ]
    sliced = t.emit(t.op.dynamic_strided_slice(x, *bounds))
    known = t.known_integers(where)
    touched = range(len(shape)) if known is None else [t.axis(x, int(a)) for a in known]  # type: ignore[arg-type]
    return t.with_shape(sliced, [t.fresh("part") if i in touched else n for i, n in enumerate(shape)])


# ---------------------------------------------------------------- padding

_PAD_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


@converts("Pad")
def _pad_attributes(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    value = t.scalar(node.attribute("value", 0.0), t.dtype(x))
    return _pad_static(t, node, x, list(node.attribute("pads", [])), value, list(range(t.ndim(x))))


@converts("Pad", since=11)
def _pad(
    t: OnnxTranslator, node: OnnxNode, x: relax.Expr, pads: relax.Expr, value: relax.Expr | None = None,
    axes: relax.Expr | None = None,
) -> relax.Expr:  # fmt: skip
    widths, places = t.known_integers(pads), range(t.ndim(x)) if axes is None else t.known_integers(axes)
    if widths is None or places is None:
        return _pad_dynamic(t, node, x, pads, value, axes)
    return _pad_static(t, node, x, widths, value, [t.axis(x, int(a)) for a in places])  # type: ignore[arg-type]


def _pad_static(
    t: OnnxTranslator, node: OnnxNode, x: relax.Expr, widths: Sequence[Dim], value: relax.Expr | None,
    axes: Sequence[int],
) -> relax.Expr:  # fmt: skip
    mode = one_of(node.attribute("mode", "constant"), tuple(_PAD_MODES), "mode")
    if len(widths) != 2 * len(axes) or len(set(axes)) != len(axes):
        raise Unsupported(f"{len(widths)} pads do not fit {len(axes)} axes")
    sides = {axis: (widths[i], widths[i + len(axes)]) for i, axis in enumerate(axes)}
    if mode == "constant":
        return _pad_constant(t, x, sides, t.scalar(0, t.dtype(x)) if value is None else value)
    flat = [_constant_width(n) for i in range(t.ndim(x)) for n in sides.get(i, (0, 0))]
    cropped = _crop(t, x, [min(n, 0) for n in flat])
    return t.op.nn.pad(cropped, [max(n, 0) for n in flat], _PAD_MODES[mode]) if max(flat, default=0) > 0 else cropped


def _pad_dynamic(
    t: OnnxTranslator, node: OnnxNode, x: relax.Expr, pads: relax.Expr, value: relax.Expr | None,
    axes: relax.Expr | None,
) -> relax.Expr:  # fmt: skip
    """Pad with widths known at run time only, by a gather: each output position reads its element of the operand."""
    mode, rank, shape = one_of(node.attribute("mode", "constant"), tuple(_PAD_MODES), "mode"), t.ndim(x), t.shape(x)
    vector = t.cast(pads, "int64")
    half = dynamic_axes.vector_length(t, vector) // 2
    before, behind = (
        dynamic_axes.scatter_by_axis(t, axes, t.emit(t.op.strided_slice(vector, [0], [at], [at + half])), 0, rank)
        for at in (0, half)
    )
    wanted = t.extents(t.emit(t.op.add(t.op.add(before, behind), t.integer_tensor(shape, "int64"))))
    filler = t.scalar(0, t.dtype(x)) if value is None else t.reshape(value, [])
    return dynamic_axes.pad_or_crop(t, x, before, wanted, mode, filler)


def _constant_width(width: Dim) -> int:
    if not isinstance(width, int):
        raise Unsupported("a width known at run time only needs `mode=constant`")
    return width


def _crop(t: OnnxTranslator, x: relax.Expr, widths: Sequence[int]) -> relax.Expr:
    """Crop by the negative widths of a pad."""
    cut = [i for i in range(t.ndim(x)) if widths[2 * i] or widths[2 * i + 1]]
    ends = [t.simplify(c.add(t.shape(x)[i], widths[2 * i + 1])) for i in cut]
    return t.emit(t.op.strided_slice(x, cut, [-widths[2 * i] for i in cut], ends)) if cut else x


def _pad_constant(t: OnnxTranslator, x: relax.Expr, sides: dict[int, tuple[Dim, Dim]], value: relax.Expr) -> relax.Expr:
    flat = [n for i in range(t.ndim(x)) for n in sides.get(i, (0, 0))]
    known = t.constant_array(value)
    if known is not None and all(isinstance(n, int) for n in flat) and _is_exact(known):
        return t.op.nn.pad(x, flat, "constant", float(known.item())) if any(flat) else x
    value = t.reshape(value, [])
    for axis, widths in sides.items():
        borders = []
        for width in widths:
            if isinstance(width, int) and width < 0:
                raise Unsupported("negative pads beside pads known at run time only are not supported")
            shape = [*t.shape(x)]
            shape[axis] = c.as_expr(width, shape[axis].dtype)
            borders.append([] if width == 0 else [t.emit(t.op.full(t.shape_expr(shape), value, t.dtype(x)))])
        if any(borders):
            x = t.emit(t.op.concat([*borders[0], x, *borders[1]], axis))
    return x


def _is_exact(array: Any) -> bool:
    """Return True if the only element of an array is exact as a float64."""
    return bool(array.dtype.kind in "fb" or abs(int(array.item())) <= 2**53)


# ---------------------------------------------------------------- blocks


@converts("DepthToSpace")
def _depth_to_space(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    size = node.attribute("blocksize")
    n, depth, height, width = t.shape(x)
    channels = cancelled_quotient(t, [depth], [size * size])
    depth_first = one_of(node.attribute("mode", "DCR"), ("DCR", "CRD"), "mode") == "DCR"
    inner: list[Dim] = [size, size, channels] if depth_first else [channels, size, size]
    order = [0, 3, 4, 1, 5, 2] if depth_first else [0, 1, 4, 2, 5, 3]
    split = t.reshape(x, [n, *inner, height, width])
    moved = t.emit(t.op.permute_dims(split, order))
    return t.reshape(moved, [n, channels, t.simplify(c.mul(height, size)), t.simplify(c.mul(width, size))])


@converts("SpaceToDepth")
def _space_to_depth(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    size = node.attribute("blocksize")
    n, depth, height, width = t.shape(x)
    high, wide = cancelled_quotient(t, [height], [size]), cancelled_quotient(t, [width], [size])
    split = t.reshape(x, [n, depth, high, size, wide, size])
    depth_first = one_of(node.attribute("mode", "DCR"), ("DCR", "CRD"), "mode") == "DCR"
    moved = t.emit(t.op.permute_dims(split, [0, 3, 5, 1, 2, 4] if depth_first else [0, 1, 3, 5, 2, 4]))
    return t.reshape(moved, [n, t.simplify(c.mul(depth, size * size)), high, wide])
