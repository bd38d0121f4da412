"""Shape manipulation of one tensor: reshape, transpose, squeeze, repeat, tile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc import te
from mlcc.arith.proofs import is_one
from mlcc.ir import construct, relax, tir
from mlcc.ops import layout_rules, topi
from mlcc.ops.lazy import np
from mlcc.ops.registry import Cost, FusionKind, Impl, Precision
from mlcc.ops.shapes import (
    Dims,
    Tensor,
    axes,
    axis,
    fail,
    int64,
    known_different,
    product,
    prove_equal,
    result,
    result_dims,
    shape_argument,
    shape_text,
    simplify,
    tensor,
)
from mlcc.te.scalar import Scalar, to_expr

# ---------------------------------------------------------------- inference


def infer_permute_dims(call: relax.Call) -> Tensor:
    """The dimensions in the order of `axes`, reversed without them."""
    data = tensor(call, 0)
    order = call.attrs["axes"]
    if order is None:
        return result(None if data.dims is None else data.dims[::-1], data.dtype, data.ndim, data.vdevice)
    if data.ndim < 0:
        fail(call, "E0445", "the number of dimensions must be known where `axes` are given")
    if len(order) != data.ndim:
        fail(call, "E0446", f"{len(order)} axes for a tensor of {data.ndim} dimensions")
    permutation = axes(call, order, data.ndim)
    return result(
        None if data.dims is None else [data.dims[a] for a in permutation], data.dtype, data.ndim, data.vdevice
    )


def infer_reshape(call: relax.Call) -> Tensor:
    """The given shape, which must have as many elements."""
    data = tensor(call, 0)
    info = shape_argument(call, 1)
    target = call.args[1]
    if data.dims is not None and info.values is not None:
        have, want = product(data.dims), product(info.values)
        if known_different(have, want):
            text = f"{shape_text(data.dims)} has {have.value} elements, {shape_text(info.values)} has {want.value}"  # type: ignore[attr-defined]
            fail(call, "E0445", text, "both have the same number of elements; -1 stands for the size that follows")
    if info.values is not None:
        return result(info.values, data.dtype, vdevice=data.vdevice)
    return relax.TensorStructInfo(target, data.dtype, info.ndim, data.vdevice)


def normalize_reshape(call: relax.Call) -> relax.Call:
    """Replace 0 (copy the extent) and -1 (infer the extent) in the shape."""
    from mlcc.ir.node import replace
    from mlcc.ops.values import shape_expr

    target = call.args[1]
    if not isinstance(target, relax.ShapeExpr):
        return call
    numbers = [tir.const_int(v) for v in target.values]
    if all(n is None or n > 0 for n in numbers):
        return call
    info = call.args[0].struct_info
    dims = info.dims if isinstance(info, relax.TensorStructInfo) else None
    if dims is not None and 0 in numbers and _is_empty(dims) and -1 not in numbers:
        return call  # a tensor without elements: 0 is an extent here
    extents = list(target.values)
    for at, number in enumerate(numbers):
        if number == 0:
            if dims is None or at >= len(dims):
                fail(call, "E0445", f"the extent 0 stands for dimension {at}, which the tensor does not have")
            extents[at] = dims[at]
        elif number is not None and number < -1:
            fail(call, "E0445", f"the shape {shape_text(target.values)} has an extent of {number}")
    if numbers.count(-1) > 1:
        fail(call, "E0445", "only one extent may be -1")
    if -1 in numbers:
        if dims is None:
            fail(call, "E0445", "an extent of -1 needs a tensor of known shape")
        at = numbers.index(-1)
        left, target_rest = _cancel(list(dims), [v for i, v in enumerate(extents) if i != at])
        others = product(target_rest)
        if tir.const_int(others) == 0:
            fail(call, "E0445", f"-1 is ambiguous in {shape_text(target.values)}: the other extents multiply to 0")
        extents[at] = simplify(construct.floordiv(product(left), others))
    return replace(call, args=(call.args[0], shape_expr(extents, target.span)))


def _cancel(have: list[tir.Expr], target: list[tir.Expr]) -> tuple[list[tir.Expr], list[tir.Expr]]:
    """Remove the symbolic extents that both lists have."""
    rest = []
    for extent in target:
        match = None if isinstance(extent, tir.IntImm) else next((h for h in have if prove_equal(h, extent)), None)
        if match is None:
            rest.append(extent)
        else:
            have.remove(match)
    return have, rest


def _is_empty(dims: Dims) -> bool:
    return any(tir.const_int(d) == 0 for d in dims)


def infer_expand_dims(call: relax.Call) -> Tensor:
    """New dimensions of extent 1 at `axis` of the result."""
    data = tensor(call, 0)
    new = call.attrs["axis"]
    if data.ndim < 0:
        return result(None, data.dtype, -1, data.vdevice)
    ndim = data.ndim + len(new)
    places = axes(call, new, ndim)
    if data.dims is None:
        return result(None, data.dtype, ndim, data.vdevice)
    rest = iter(data.dims)
    return result([int64(1) if i in places else next(rest) for i in range(ndim)], data.dtype, vdevice=data.vdevice)


def _squeezed_axes(call: relax.Call, data: Tensor) -> tuple[int, ...] | None:
    """The axes to remove; None if unknown."""
    stated = call.attrs["axis"]
    if stated is not None:
        if data.ndim < 0:
            return None
        places = axes(call, stated, data.ndim)
        if data.dims is None:
            return places
        return tuple(a for a in places if is_one(data.dims[a]) or not isinstance(data.dims[a], tir.IntImm))
    if data.dims is None or not all(isinstance(d, tir.IntImm) for d in data.dims):
        return None
    return tuple(i for i, d in enumerate(data.dims) if is_one(d))


def infer_squeeze(call: relax.Call) -> Tensor:
    """Infer the shape without the dimensions at `axis`, or all of extent 1; dimensions known to be larger stay."""
    data = tensor(call, 0)
    removed = _squeezed_axes(call, data)
    if removed is None:
        return result(None, data.dtype, -1, data.vdevice)
    if data.dims is None:
        return result(None, data.dtype, data.ndim - len(removed), data.vdevice)
    return result([d for i, d in enumerate(data.dims) if i not in removed], data.dtype, vdevice=data.vdevice)


def infer_broadcast_to(call: relax.Call) -> Tensor:
    """The given shape, to which the tensor's must broadcast."""
    data = tensor(call, 0)
    info = shape_argument(call, 1)
    if data.ndim >= 0 and 0 <= info.ndim < data.ndim:
        fail(call, "E0445", f"a tensor of {data.ndim} dimensions does not broadcast to {info.ndim}")
    if data.dims is not None and info.values is not None:
        offset = len(info.values) - len(data.dims)
        for at, extent in enumerate(data.dims):
            if not is_one(extent) and known_different(extent, info.values[at + offset]):
                fail(call, "E0445", f"{shape_text(data.dims)} does not broadcast to {shape_text(info.values)}")
    target = call.args[1]
    if isinstance(target, relax.ShapeExpr):
        return result(target.values, data.dtype, vdevice=data.vdevice)
    return relax.TensorStructInfo(target, data.dtype, info.ndim, data.vdevice)


def unsimplified_product(dims: Dims) -> tir.Expr:
    """The number of elements as a left-to-right product; only constants are folded."""
    total: tir.Expr = int64(1)
    for extent in dims:
        total = construct.mul(total, extent)
    return total


def infer_flatten(call: relax.Call) -> Tensor:
    """One dimension."""
    data = tensor(call, 0)
    if data.ndim == 1:
        return data
    if data.dims is None:
        return result(None, data.dtype, 1, data.vdevice)
    return result((unsimplified_product(data.dims),), data.dtype, vdevice=data.vdevice)


def infer_flip(call: relax.Call) -> Tensor:
    """The tensor's own shape."""
    data = tensor(call, 0)
    if data.ndim >= 0:
        axis(call, call.attrs["axis"], data.ndim)
    return data


def infer_repeat(call: relax.Call) -> Tensor:
    """The extent at `axis` times `repeats`; without an axis the flattened tensor."""
    data = tensor(call, 0)
    repeats, at = call.attrs["repeats"], call.attrs["axis"]
    if repeats < 0:
        fail(call, "E0442", f"`repeats` must not be negative: {repeats}")
    if at is None:
        if data.dims is None:
            return result(None, data.dtype, 1, data.vdevice)
        total = simplify(construct.mul(product(data.dims), int64(repeats)))
        return result((total,), data.dtype, vdevice=data.vdevice)
    if data.ndim < 0:
        return result(None, data.dtype, -1, data.vdevice)
    place = axis(call, at, data.ndim)
    if data.dims is None:
        return data
    dims = [simplify(construct.mul(d, int64(repeats))) if i == place else d for i, d in enumerate(data.dims)]
    return result(dims, data.dtype, vdevice=data.vdevice)


def infer_tile(call: relax.Call) -> Tensor:
    """Extents times `repeats`, aligned at the last dimension."""
    data = tensor(call, 0)
    repeats = call.attrs["repeats"]
    if any(t < 0 for t in repeats):
        fail(call, "E0442", f"`repeats` must not be negative: {list(repeats)}")
    if data.ndim < 0:
        return result(None, data.dtype, -1, data.vdevice)
    ndim = max(data.ndim, len(repeats))
    if data.dims is None:
        return result(None, data.dtype, ndim, data.vdevice)
    dims = (int64(1),) * (ndim - data.ndim) + data.dims
    factors = (1,) * (ndim - len(repeats)) + repeats
    extents = [simplify(construct.mul(d, int64(t))) for d, t in zip(dims, factors, strict=True)]
    return result(extents, data.dtype, vdevice=data.vdevice)


# ---------------------------------------------------------------- lowering


def _lower_permute_dims(call: relax.Call, x: te.Tensor) -> te.Tensor:
    order = [a % x.ndim for a in call.attrs["axes"]] if call.attrs["axes"] is not None else list(range(x.ndim))[::-1]
    shape = [x.shape[a] for a in order]
    return topi.compute_ax(shape, lambda *i: x(*(i[order.index(a)] for a in range(x.ndim))), "T_transpose")


def reshape(x: te.Tensor, shape: Sequence[Any]) -> te.Tensor:
    """Reshape in row-major order."""
    dims = [to_expr(d) for d in shape]
    if any(tir.const_int(d) == 0 for d in dims):
        return topi.compute_ax(dims, lambda *i: Scalar(construct.const(0, x.dtype)), "T_reshape")
    return topi.compute_ax(dims, lambda *i: x(*_unravel(_ravel(i, dims), x.buffer.shape)), "T_reshape")


def _ravel(indices: Sequence[Any], dims: Sequence[tir.Expr]) -> tir.Expr:
    flat: tir.Expr | None = None
    for index, extent in zip(indices, dims, strict=True):
        flat = to_expr(index) if flat is None else construct.add(construct.mul(flat, extent), to_expr(index))
    return int64(0) if flat is None else flat


def _unravel(flat: tir.Expr, dims: Sequence[tir.Expr]) -> list[Scalar]:
    indices: list[Scalar] = []
    for extent in reversed(dims):
        indices.append(Scalar(construct.floormod(flat, extent)))
        flat = construct.floordiv(flat, extent)
    return indices[::-1]


def _lower_reshape(call: relax.Call, x: te.Tensor, *shape: Any) -> te.Tensor:
    return reshape(x, result_dims(call))


def _lower_expand_dims(call: relax.Call, x: te.Tensor) -> te.Tensor:
    ndim = x.ndim + len(call.attrs["axis"])
    new = {a % ndim for a in call.attrs["axis"]}
    expanded: te.Tensor = te.compute(
        result_dims(call), lambda *i: x(*(v for at, v in enumerate(i) if at not in new)), name="expand_dims"
    )
    return expanded


def _lower_squeeze(call: relax.Call, x: te.Tensor) -> te.Tensor:
    info = call.args[0].struct_info
    assert isinstance(info, relax.TensorStructInfo)
    removed = _squeezed_axes(call, info) or ()

    def element(*i: Any) -> Any:
        rest = iter(i)
        return x(*(construct.const(0, x.buffer.shape[a].dtype) if a in removed else next(rest) for a in range(x.ndim)))

    return topi.compute_ax(result_dims(call), element, "T_squeeze")


def _lower_broadcast_to(call: relax.Call, x: te.Tensor, *shape: Any) -> te.Tensor:
    dims = result_dims(call)
    return topi.compute_ax(dims, lambda *i: x(*topi.broadcast_index(x, dims, i)), "T_broadcast_to")


def _lower_flip(call: relax.Call, x: te.Tensor) -> te.Tensor:
    at = call.attrs["axis"] % x.ndim
    last = x.shape[at] - 1
    return topi.compute_ax(x.shape, lambda *i: x(*i[:at], last - i[at], *i[at + 1 :]), "T_reverse_sequence")


def _lower_repeat(call: relax.Call, x: te.Tensor) -> te.Tensor:
    repeats, at = call.attrs["repeats"], call.attrs["axis"]
    if at is None:
        x, at = reshape(x, (unsimplified_product(x.buffer.shape),)), 0
    at %= x.ndim
    dims = list(x.buffer.shape)
    dims[at] = construct.mul(int64(repeats), dims[at])

    def element(*i: Any) -> Any:
        return x(*i[:at], i[at] // repeats if repeats else i[at], *i[at + 1 :])

    return topi.compute_ax(dims, element, "T_repeat")


def _lower_tile(call: relax.Call, x: te.Tensor) -> te.Tensor:
    dims = result_dims(call)
    extra = len(dims) - x.ndim

    def element(*i: Any) -> Any:
        own = zip(i[extra:], x.shape, x.buffer.shape, strict=True)
        return x(*(v if tir.const_int(d) == 0 else v % e for v, e, d in own))

    return topi.compute_ax(dims, element, "T_tile")


# ---------------------------------------------------------------- NumPy


def _np_squeeze(call: relax.Call, x: Any) -> Any:
    stated = call.attrs["axis"]
    removed = [a % x.ndim for a in stated] if stated is not None else list(range(x.ndim))
    return x.reshape([d for a, d in enumerate(x.shape) if a not in removed or d != 1])


def _np_expand_dims(call: relax.Call, x: Any) -> Any:
    return np.expand_dims(x, tuple(call.attrs["axis"]))


OPS: dict[str, Impl] = {
    "permute_dims": Impl(
        "x, axes: ints? = None", infer_permute_dims, lambda call, x: np.transpose(x, call.attrs["axes"]),
        _lower_permute_dims, FusionKind.INJECTIVE, tir_name="transpose", aliases=("transpose",),
        precision=Precision.FOLLOW, cost=Cost.VIEW, layout=layout_rules.permute,
    ),
    "reshape": Impl(
        "x, shape: shape", infer_reshape, lambda call, x, shape: np.reshape(x, tuple(shape)), _lower_reshape,
        FusionKind.INJECTIVE, normalize=normalize_reshape, precision=Precision.FOLLOW, cost=Cost.VIEW,
    ),
    "expand_dims": Impl(
        "x, axis: ints", infer_expand_dims, _np_expand_dims, _lower_expand_dims, FusionKind.INJECTIVE,
        precision=Precision.FOLLOW, cost=Cost.VIEW, layout=layout_rules.expand_dims,
    ),
    "squeeze": Impl(
        "x, axis: ints? = None", infer_squeeze, _np_squeeze, _lower_squeeze, FusionKind.INJECTIVE,
        precision=Precision.FOLLOW, cost=Cost.VIEW, layout=layout_rules.squeeze,
    ),
    "broadcast_to": Impl(
        "x, shape: shape", infer_broadcast_to, lambda call, x, shape: np.broadcast_to(x, tuple(shape)),
        _lower_broadcast_to, FusionKind.BROADCAST, precision=Precision.FOLLOW, cost=Cost.VIEW,
    ),
    "flatten": Impl(
        "x", infer_flatten, lambda call, x: np.reshape(x, -1), _lower_reshape, FusionKind.INJECTIVE,
        tir_name="reshape", aliases=("nn.flatten",), precision=Precision.FOLLOW, cost=Cost.VIEW,
    ),
    "flip": Impl(
        "data, axis: int", infer_flip, lambda call, x: np.flip(x, call.attrs["axis"]), _lower_flip,
        FusionKind.INJECTIVE, layout=layout_rules.along_axis,
    ),
    "repeat": Impl(
        "data, repeats: int, axis: int? = None", infer_repeat,
        lambda call, x: np.repeat(x, call.attrs["repeats"], call.attrs["axis"]), _lower_repeat, FusionKind.INJECTIVE,
        cost=Cost.VIEW, layout=layout_rules.repeat,
    ),
    "tile": Impl(
        "data, repeats: ints", infer_tile, lambda call, x: np.tile(x, call.attrs["repeats"]), _lower_tile,
        FusionKind.INJECTIVE, layout=layout_rules.tile,
    ),
}  # fmt: skip
