"""Operators between one tensor and several: concat, stack, split, meshgrid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc import te
from mlcc.arith.analyzer import Analyzer
from mlcc.ir import construct, relax, tir
from mlcc.ops import layout_rules, topi
from mlcc.ops.lazy import np
from mlcc.ops.registry import Cost, FusionKind, Impl, Precision
from mlcc.ops.shapes import (
    Dims,
    Tensor,
    axis,
    describe,
    device_of,
    extent_analyzer,
    fail,
    int64,
    known_different,
    known_larger,
    prove_equal,
    result,
    result_dims,
    same_dtype,
    shape_text,
    simplify,
    tensor,
    tensors,
)
from mlcc.te.scalar import Scalar, to_expr

# ---------------------------------------------------------------- inference


def infer_concat(call: relax.Call) -> Tensor:
    """Infer the sum of the extents at `axis`; the other extents must be equal."""
    infos = tensors(call)
    if infos is None:
        return result(None, None)
    if not infos:
        fail(call, "E0443", "needs at least one tensor")
    dtype = same_dtype(call, infos)
    ndim = _same_ndim(call, infos)
    at = call.attrs["axis"]
    if at is None:
        if ndim not in (-1, 1):
            fail(call, "E0446", f"`axis` must be given for tensors of {ndim} dimensions")
        at = 0
    device = device_of(infos)
    if ndim < 0:
        return result(None, dtype, -1, device)
    at = axis(call, at, ndim)
    shapes = [i.dims for i in infos if i.dims is not None]
    all_equal = _equal_extents(call, shapes, at)
    if not all_equal or len(shapes) != len(infos):
        return result(None, dtype, ndim, device)
    dims = list(shapes[0])
    dims[at] = _sum([s[at] for s in shapes])
    return result(dims, dtype, vdevice=device)


def _sum(extents: list[tir.Expr]) -> tir.Expr:
    if all(prove_equal(extents[0], e) for e in extents[1:]):
        return construct.mul(extents[0], int64(len(extents)))
    total = extents[0]
    for extent in extents[1:]:
        total = construct.add(total, extent)
    return total


def _same_ndim(call: relax.Call, infos: Sequence[Tensor]) -> int:
    known = [i for i in infos if i.ndim >= 0]
    for info in known[1:]:
        if info.ndim != known[0].ndim:
            a, b = shape_text(known[0].dims, known[0].ndim), shape_text(info.dims, info.ndim)
            fail(call, "E0445", f"the tensors differ in their number of dimensions: {a} and {b}")
    return known[0].ndim if known else -1


def _equal_extents(call: relax.Call, shapes: Sequence[Dims], skip: int | None) -> bool:
    """Return True if all extents but those at `skip` are provably equal. Raises CompileError for provably unequal."""
    all_equal = True
    for shape in shapes[1:]:
        for at, (a, b) in enumerate(zip(shapes[0], shape, strict=True)):
            if at == skip or prove_equal(a, b):
                continue
            if known_different(a, b):
                fail(call, "E0445", f"{shape_text(shapes[0])} and {shape_text(shape)} differ in dimension {at}")
            all_equal = False
    return all_equal


def infer_stack(call: relax.Call) -> Tensor:
    """Insert a dimension whose extent is the number of tensors."""
    infos = tensors(call)
    if infos is None:
        return result(None, None)
    if not infos:
        fail(call, "E0443", "needs at least one tensor")
    dtype = same_dtype(call, infos)
    ndim = _same_ndim(call, infos)
    device = device_of(infos)
    if ndim < 0:
        return result(None, dtype, -1, device)
    at = axis(call, call.attrs["axis"] or 0, ndim, 1)
    shapes = [i.dims for i in infos if i.dims is not None]
    if not _equal_extents(call, shapes, None) or len(shapes) != len(infos):
        return result(None, dtype, ndim + 1, device)
    dims = list(shapes[0])
    dims.insert(at, int64(len(infos)))
    return result(dims, dtype, vdevice=device)


def infer_split(call: relax.Call) -> relax.StructInfo:
    """Infer a tuple of the parts; a single part is the tensor itself."""
    data = tensor(call, 0)
    parts = call.attrs["indices_or_sections"]
    number = parts if isinstance(parts, int) else len(parts) + 1
    if number <= 0:
        fail(call, "E0442", f"the number of sections must be positive, not {number}")
    if number > 1_000_000:
        fail(call, "E0442", f"{number} sections are too many")
    if number == 1:
        return data
    if data.ndim < 0 or data.dims is None:
        if data.ndim >= 0:
            axis(call, call.attrs["axis"], data.ndim)
        return relax.TupleStructInfo((result(None, data.dtype, data.ndim, data.vdevice),) * number)
    at = axis(call, call.attrs["axis"], data.ndim)
    extents = [extent for _, extent in split_parts(call, data.dims[at], parts)]
    fields = (result((*data.dims[:at], e, *data.dims[at + 1 :]), data.dtype, vdevice=data.vdevice) for e in extents)
    return relax.TupleStructInfo(tuple(fields))


def split_parts(call: relax.Call, extent: tir.Expr, parts: Any) -> list[tuple[tir.Expr, tir.Expr]]:
    """Begin and extent of every part."""
    if isinstance(parts, int):
        each = simplify(construct.floordiv(construct.add(extent, int64(parts - 1)), int64(parts)))
        last = simplify(construct.sub(extent, construct.mul(each, int64(parts - 1))))
        if known_larger(simplify(construct.mul(each, int64(parts - 1))), extent):
            fail(call, "E0445", f"an extent of {extent.value} cannot be split into {parts} parts")  # type: ignore[attr-defined]
        begins = [simplify(construct.mul(each, int64(i))) for i in range(parts)]
        return [(b, each) for b in begins[:-1]] + [(begins[-1], last)]
    edges: list[tir.Expr] = [int64(0), *(int64(p) if isinstance(p, int) else p for p in parts), extent]
    known = extent_analyzer(call)
    return [(low, _section_extent(low, high, extent, known)) for low, high in zip(edges[:-1], edges[1:], strict=True)]


def _section_extent(low: tir.Expr, high: tir.Expr, extent: tir.Expr, known: Analyzer) -> tir.Expr:
    """max(0, min(high, extent) - min(low, extent)), each clamped at 0."""
    if isinstance(low, tir.IntImm) and isinstance(high, tir.IntImm) and low.value == high.value:
        return int64(0)
    if high is extent and not isinstance(extent, tir.IntImm):
        span = construct.sub(extent, low)
    else:
        span = construct.sub(_clamp(high, extent), _clamp(low, extent))
    return simplify(construct.maximum(span, int64(0)), known)


def _clamp(value: tir.Expr, extent: tir.Expr) -> tir.Expr:
    if isinstance(value, tir.IntImm) and value.value < 0:
        value = int64(0)
    return construct.minimum(value, extent)


def infer_meshgrid(call: relax.Call) -> relax.StructInfo:
    """Infer one grid per vector, all of one shape; indexing `xy` swaps the first two dimensions."""
    infos = tensors(call)
    if infos is None:
        return relax.ObjectStructInfo()
    indexing = call.attrs["indexing"] or "ij"
    if indexing not in ("ij", "xy"):
        fail(call, "E0442", f"`indexing` must be ij or xy, it is `{indexing}`")
    if not infos:
        fail(call, "E0443", "needs at least one tensor")
    for number, info in enumerate(infos):
        if info.ndim != 1:
            fail(call, "E0445", f"tensor {number} must be a vector, it is {describe(info)}")
    dtype, device = same_dtype(call, infos), device_of(infos)
    if any(i.dims is None for i in infos):
        return relax.TupleStructInfo((result(None, dtype, len(infos), device),) * len(infos))
    dims = [i.dims[0] for i in infos if i.dims is not None]
    if indexing == "xy":
        dims[:2] = reversed(dims[:2])
    return relax.TupleStructInfo((result(dims, dtype, vdevice=device),) * len(infos))


# ---------------------------------------------------------------- lowering

_MAX_LINEAR = 16  # tensors up to which the select chain is linear; beyond, it is a binary search


def concat(parts: Sequence[te.Tensor], at: int) -> te.Tensor:
    """Concatenate tensors along an axis."""
    dims = list(parts[0].buffer.shape)
    for part in parts[1:]:
        dims[at] = construct.add(dims[at], part.buffer.shape[at])
    dims[at] = simplify(dims[at])

    starts: list[tir.Expr] = [to_expr(parts[0].shape[at])]  # of all parts but the first
    for part in parts[1:-1]:
        starts.append(construct.add(starts[-1], to_expr(part.shape[at])))

    def element(*i: Any) -> Any:
        index = to_expr(i[at])

        def select_part(first: int, last: int) -> Any:
            """Select the element from the parts `first` to `last` - 1, by comparisons with their starts."""
            if last - first == 1:
                moved = i[at] if first == 0 else Scalar(construct.sub(index, starts[first - 1]))
                return parts[first](*i[:at], moved, *i[at + 1 :])
            # a linear chain, or a binary search over many parts
            split = last - 1 if last - first <= _MAX_LINEAR else (first + last) // 2
            moved = Scalar(construct.sub(index, starts[split - 1]))
            return te.if_then_else(moved >= 0, select_part(split, last), select_part(first, split))

        return select_part(0, len(parts))

    return topi.compute_ax(dims, element, "T_concat")


def _lower_concat(call: relax.Call, parts: Sequence[te.Tensor]) -> te.Tensor:
    return concat(parts, (call.attrs["axis"] or 0) % parts[0].ndim)


def _lower_stack(call: relax.Call, parts: Sequence[te.Tensor]) -> te.Tensor:
    at = (call.attrs["axis"] or 0) % (parts[0].ndim + 1)

    def element(*i: Any) -> Any:
        rest = (*i[:at], *i[at + 1 :])
        value = parts[0](*rest)
        for number, part in enumerate(parts[1:], 1):
            value = te.if_then_else(i[at] == number, part(*rest), value)
        return value

    return topi.compute_ax(result_dims(call), element, "T_stack")


def _lower_split(call: relax.Call, x: te.Tensor) -> Any:
    parts = call.attrs["indices_or_sections"]
    at = call.attrs["axis"] % x.ndim
    name = "T_split_sections" if isinstance(parts, int) else "T_split"
    pieces = []
    for begin, extent in split_parts(call, x.buffer.shape[at], parts):
        shape = [*x.buffer.shape[:at], extent, *x.buffer.shape[at + 1 :]]
        pieces.append(topi.compute_ax(shape, _offset_by(x, at, begin), name))
    return pieces[0] if len(pieces) == 1 else tuple(pieces)


def _offset_by(x: te.Tensor, at: int, begin: tir.Expr) -> Any:
    return lambda *i: x(*i[:at], Scalar(construct.add(to_expr(i[at]), begin)), *i[at + 1 :])


def _lower_meshgrid(call: relax.Call, parts: Sequence[te.Tensor]) -> Any:
    first_two = [1, 0] if call.attrs["indexing"] == "xy" and len(parts) > 1 else [0, 1]
    order = [*first_two, *range(2, len(parts))][: len(parts)]
    shape = [parts[a].buffer.shape[0] for a in order]
    return tuple(
        topi.compute_ax(shape, _grid_element(part, a), "T_meshgrid") for part, a in zip(parts, order, strict=True)
    )


def _grid_element(x: te.Tensor, at: int) -> Any:
    return lambda *i: x(i[at])


# ---------------------------------------------------------------- NumPy


def _np_split(call: relax.Call, x: Any) -> Any:
    parts, at = call.attrs["indices_or_sections"], call.attrs["axis"]
    if isinstance(parts, int):
        each = -(-x.shape[at] // parts)
        parts = [each * i for i in range(1, parts)]
    pieces = np.split(x, [max(0, tir.const_int(p) or 0) for p in parts], at)
    return pieces[0] if len(pieces) == 1 else tuple(pieces)


OPS: dict[str, Impl] = {
    "concat": Impl(
        "tensors: exprs, axis: int? = 0", infer_concat,
        lambda call, parts: np.concatenate(parts, call.attrs["axis"] or 0), _lower_concat, FusionKind.INJECTIVE,
        tir_name="concatenate", aliases=("concatenate",), precision=Precision.FOLLOW, layout=layout_rules.concat,
        free_layout=layout_rules.concat_as_permuted,
    ),
    "stack": Impl(
        "tensors: exprs, axis: int? = 0", infer_stack, lambda call, parts: np.stack(parts, call.attrs["axis"] or 0),
        _lower_stack, FusionKind.INJECTIVE, precision=Precision.FOLLOW,
    ),
    "meshgrid": Impl(
        'tensors: exprs, indexing: str? = "ij"', infer_meshgrid,
        lambda call, parts: tuple(np.meshgrid(*parts, indexing=call.attrs["indexing"] or "ij")), _lower_meshgrid,
        FusionKind.INJECTIVE, precision=Precision.FOLLOW,
    ),
    "split": Impl(
        "x, indices_or_sections: sections, axis: int = 0", infer_split, _np_split, _lower_split, FusionKind.INJECTIVE,
        precision=Precision.FOLLOW, cost=Cost.VIEW, layout=layout_rules.split_axis,
    ),
}  # fmt: skip
