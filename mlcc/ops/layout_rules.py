"""Layout rules: operators on tensors with permuted or split axes. The values of `layout` in registry entries.

The layout of a tensor is a permutation: the original axis at each position, perhaps with inner parts of split axes,
see `split_layouts`. The layout of a tuple is `Fields`; that of any other value, or of unknown rank, is None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mlcc.ir import relax, tir
from mlcc.ir.node import Attrs
from mlcc.ops.split_layouts import (
    InnerAxis,
    can_split,
    entry_axis,
    is_blocked,
    is_split,
    layout_entries,
    num_outer_axes,
    shift_entry,
)
from mlcc.ops.values import scalar, tuple_expr

Layout = tuple[Any, ...]  # axes, and `Inner` parts of them


@dataclass(frozen=True)
class TupleLayout:
    """The layouts of a tuple's fields."""

    parts: tuple[Any, ...]


NestedLayout = Layout | TupleLayout | None
DesiredLayouts = Mapping[str, Sequence[str]]  # by operator: the layouts of data, weight and, perhaps, result


@dataclass(frozen=True)
class LayoutDecision:
    """The layouts of a call's first arguments and result, and its new attributes and arguments."""

    inputs: tuple[NestedLayout, ...]
    output: NestedLayout
    attrs: Attrs
    args: Mapping[int, relax.Expr] = field(default_factory=dict)


Rule = Callable[[relax.Call, tuple[Any, ...], DesiredLayouts], "LayoutDecision | None"]


def identity_layout(info: relax.StructInfo | None) -> NestedLayout:
    """The identity layout of a value."""
    match info:
        case relax.TensorStructInfo(ndim=ndim) if ndim >= 0:
            return tuple(range(ndim))
        case relax.TupleStructInfo(fields=fields):
            return TupleLayout(tuple(map(identity_layout, fields)))
    return None


def is_known(layout: NestedLayout) -> bool:
    return all(map(is_known, layout.parts)) if isinstance(layout, TupleLayout) else layout is not None


def permutation_between(source: Layout, target: Layout) -> Layout:
    """The axes of the `permute_dims` that converts a tensor from one layout to another."""
    return tuple(source.index(axis) for axis in target)


def follow(layout: Layout, ndim: int) -> Layout:
    """The layout of a tensor of `ndim` axes to which a tensor of this layout is broadcast."""
    more = ndim - len(layout)
    return (*range(more), *(shift_entry(axis, more) for axis in layout))


def layout_string(letters: str, layout: Layout) -> str:
    """Return the layout string for `layout`, relative to a tensor in the layout `letters`."""
    return "".join(f"{a.factor}{letters[a.axis].lower()}" if isinstance(a, InnerAxis) else letters[a] for a in layout)


# ---------------------------------------------------------------- rules


def _position(layout: Layout, axis: int) -> int:
    return layout.index(axis % num_outer_axes(layout))


def _without_split(given: NestedLayout, arg: relax.Expr) -> NestedLayout:
    """The layout of an operand, or the identity layout if it splits axes."""
    parts = given.parts if isinstance(given, TupleLayout) else (given,)
    return identity_layout(arg.struct_info) if any(map(is_split, parts)) else given


def without_split_axes(rule: Rule) -> Rule:
    """Restrict a rule to layouts without split axes: operands with split axes are converted back first."""

    def unsplit_rule(call: relax.Call, given: tuple[Any, ...], desired: DesiredLayouts) -> LayoutDecision | None:
        return rule(call, tuple(_without_split(g, a) for g, a in zip(given, call.args, strict=True)), desired)

    return unsplit_rule


def _drop_axes(layout: Layout, dropped: Iterable[int]) -> Layout:
    """Return the layout without some axes; the axes behind them are renumbered."""
    removed = set(dropped)
    kept = sorted({entry_axis(entry) for entry in layout} - removed)
    left = [entry for entry in layout if entry_axis(entry) not in removed]
    return tuple(shift_entry(entry, kept.index(entry_axis(entry)) - entry_axis(entry)) for entry in left)


def _rank(expr: relax.Expr) -> int:
    """The number of axes of a tensor, 0 for a scalar value."""
    return expr.struct_info.ndim if isinstance(expr.struct_info, relax.TensorStructInfo) else 0


def elementwise(call: relax.Call, given: tuple[Any, ...], desired: DesiredLayouts) -> LayoutDecision:
    (layout,) = given
    return LayoutDecision((layout,), layout, call.attrs)


def first_operand(call: relax.Call, given: tuple[Any, ...], desired: DesiredLayouts) -> LayoutDecision:
    """The first operand determines the layout; the others are scalars."""
    return elementwise(call, given[:1], desired)


def dropout(call: relax.Call, given: tuple[Any, ...], desired: DesiredLayouts) -> LayoutDecision:
    (layout,) = given
    return LayoutDecision((layout,), TupleLayout((layout, layout)), call.attrs)


def broadcast(call: relax.Call, given: tuple[Any, ...], desired: DesiredLayouts) -> LayoutDecision:
    """The operand of lower rank, else the first, determines the layout; split axes need divisible extents in both."""
    first, second = map(_rank, call.args)
    if any(map(is_split, given)) and first == second:
        leader = 0 if len(given[0]) >= len(given[1]) else 1
        if can_split(call.args[1 - leader].struct_info, given[leader]):
            return LayoutDecision((given[leader],) * 2, given[leader], call.attrs)
    if any(map(is_split, given)) and 0 not in (first, second):
        given = tuple(_without_split(g, a) for g, a in zip(given, call.args, strict=True))
    keep = [layout if layout is not None else () for layout in given]
    if 0 in (first, second):
        return LayoutDecision(given, keep[0] if second == 0 else keep[1], call.attrs)
    if first <= second:
        out = follow(keep[0], second)
        return LayoutDecision((keep[0], out), out, call.attrs)
    out = follow(keep[1], first)
    return LayoutDecision((out, keep[1]), out, call.attrs)


def fma(call: relax.Call, given: tuple[Any, ...], desired: DesiredLayouts) -> LayoutDecision:
    layout = given[1] if given[1] == given[2] else given[0]
    if is_split(layout) and not all(can_split(a.struct_info, layout) for a in call.args):
        layout = identity_layout(call.args[0].struct_info)
    return LayoutDecision((layout,) * 3, layout, call.attrs)


def _along_axis(call: relax.Call, given: tuple[Any, ...], desired: DesiredLayouts) -> LayoutDecision:
    """The rule of operators that change at most the extent of the axis named by an attribute."""
    (layout,) = given
    return LayoutDecision((layout,), layout, call.attrs.with_item("axis", _position(layout, call.attrs["axis"])))


along_axis = without_split_axes(_along_axis)


@without_split_axes
def repeat(call: relax.Call, given: tuple[Any, ...], desired: DesiredLayouts) -> LayoutDecision | None:
    return None if call.attrs["axis"] is None else _along_axis(call, given, desired)


@without_split_axes
def scatter(call: relax.Call, given: tuple[Any, ...], desired: DesiredLayouts) -> LayoutDecision:
    """Data, indices and updates in one layout: that of indices and updates if they agree, else that of the data."""
    layout = given[1] if given[1] == given[2] else given[0]
    attrs = call.attrs.with_item("axis", _position(layout, call.attrs["axis"]))
    return LayoutDecision((layout,) * 3, layout, attrs)


@without_split_axes
def scatter_nd(call: relax.Call, given: tuple[Any, ...], desired: DesiredLayouts) -> LayoutDecision:
    """Data and updates of one rank share the data's layout if it leaves the indexed leading axes in place."""
    layout, indices, _ = given
    info = call.args[1].struct_info
    depth = tir.const_int(info.dims[-1]) if isinstance(info, relax.TensorStructInfo) and info.dims else None
    same_rank = _rank(call.args[0]) == _rank(call.args[2])
    if not same_rank or depth is None or layout[:depth] != tuple(range(depth)):
        layout = identity_layout(call.args[0].struct_info)
    return LayoutDecision(
        (layout, indices, layout if same_rank else identity_layout(call.args[2].struct_info)), layout, call.attrs
    )


@without_split_axes
def prelu(call: relax.Call, given: tuple[Any, ...], desired: DesiredLayouts) -> LayoutDecision:
    layout, slope = given
    return LayoutDecision((layout, slope), layout, call.attrs.with_item("axis", _position(layout, call.attrs["axis"])))


@without_split_axes
def quantization(call: relax.Call, given: tuple[Any, ...], desired: DesiredLayouts) -> LayoutDecision:
    """The data determine the layout; scales and zero points for groups of neighbours, of the data's rank, follow it."""
    layout, *parameters = given
    inputs = (layout, *(layout if len(p) == len(layout) else p for p in parameters))
    return LayoutDecision(inputs, layout, call.attrs.with_item("axis", _position(layout, call.attrs["axis"])))


def _channel(attrs: Attrs) -> tuple[int, ...]:
    return (attrs["channel_axis"],) if "channel_axis" in attrs else ()


def norm(call: relax.Call, given: tuple[Any, ...], desired: DesiredLayouts) -> LayoutDecision:
    """Scale and shift keep the identity layout; axis attributes follow the layout of the data."""
    layout, attrs = given[0], call.attrs
    ndim = _rank(call.args[0])
    used = {axis % ndim for axis in (*attrs.get("axes", ()), *_channel(attrs))}
    if any(isinstance(entry, InnerAxis) and entry.axis in used for entry in layout):
        layout = identity_layout(call.args[0].struct_info)
    if "axes" in attrs:
        attrs = attrs.with_item("axes", [_position(layout, axis) for axis in attrs["axes"]])
    if "channel_axis" in attrs:
        attrs = attrs.with_item("channel_axis", _position(layout, attrs["channel_axis"]))
    return LayoutDecision((layout, *(identity_layout(a.struct_info) for a in call.args[1:])), layout, attrs)


@without_split_axes
def batch_norm(call: relax.Call, given: tuple[Any, ...], desired: DesiredLayouts) -> LayoutDecision:
    layout, rest = given[0], tuple(identity_layout(a.struct_info) for a in call.args[1:])
    attrs = call.attrs.with_item("axis", _position(layout, call.attrs["axis"]))
    return LayoutDecision((layout, *rest), TupleLayout((layout, *rest[2:])), attrs)


def reduce(call: relax.Call, given: tuple[Any, ...], desired: DesiredLayouts) -> LayoutDecision:
    (layout,) = given
    axes = call.attrs["axis"]
    ndim = num_outer_axes(layout)
    removed = range(ndim) if axes is None else [axis % ndim for axis in axes]
    if call.attrs["keepdims"] and any(isinstance(entry, InnerAxis) and entry.axis in removed for entry in layout):
        layout = tuple(range(ndim))  # both parts are reduced to extent 1, which no layout expresses
    attrs = call.attrs.with_item("axis", [at for at, entry in enumerate(layout) if entry_axis(entry) in removed])
    return LayoutDecision((layout,), layout if attrs["keepdims"] else _drop_axes(layout, removed), attrs)


def concat(call: relax.Call, given: tuple[Any, ...], desired: DesiredLayouts) -> LayoutDecision | None:
    """All operands take the layout of the first, or of the first with split axes if all extents divide."""
    parts, info = given[0].parts, call.args[0].struct_info
    if not parts or not isinstance(info, relax.TupleStructInfo):
        return None
    layout: Layout = parts[0]
    split = next(filter(is_split, parts), None)
    if split is not None:
        if all(can_split(field, split) for field in info.fields):
            layout = split
        else:
            layout = next((p for p in parts if not is_split(p)), tuple(range(num_outer_axes(layout))))
    attrs = call.attrs.with_item("axis", _position(layout, call.attrs["axis"] or 0))
    return LayoutDecision((TupleLayout((layout,) * len(parts)),), layout, attrs)


def concat_as_permuted(call: relax.Call, given: tuple[Any, ...], desired: DesiredLayouts) -> LayoutDecision | None:
    """All operands take the first layout that is not the identity."""
    parts: tuple[Layout, ...] = given[0].parts
    permuted = [part for part in parts if part != tuple(range(len(part)))]
    return concat(call, (TupleLayout((*permuted, *parts)[:1] * len(parts)),), desired)


@without_split_axes
def pad(call: relax.Call, given: tuple[Any, ...], desired: DesiredLayouts) -> LayoutDecision:
    layout, widths = given[0], call.attrs["pad_width"]
    sides = [widths[2 * axis + side] for axis in layout for side in (0, 1)]
    return LayoutDecision((layout,), layout, call.attrs.with_item("pad_width", sides))


def split_axis(call: relax.Call, given: tuple[Any, ...], desired: DesiredLayouts) -> LayoutDecision:
    fields = call.struct_info.fields if isinstance(call.struct_info, relax.TupleStructInfo) else ()
    if is_split(given[0]) and not all(can_split(field, given[0]) for field in fields):
        given = (identity_layout(call.args[0].struct_info),)
    decision = _along_axis(call, given, desired)
    count = len(call.struct_info.fields) if isinstance(call.struct_info, relax.TupleStructInfo) else 0
    return LayoutDecision(
        decision.inputs, TupleLayout(decision.inputs * count) if count else decision.output, decision.attrs
    )


@without_split_axes
def expand_dims(call: relax.Call, given: tuple[Any, ...], desired: DesiredLayouts) -> LayoutDecision:
    """New axes keep their positions; the others follow the operand's layout between them."""
    (layout,) = given
    total = len(layout) + len(call.attrs["axis"])
    new = {axis % total for axis in call.attrs["axis"]}
    old = [at for at in range(total) if at not in new]
    rest = iter([old[axis] for axis in layout])
    return LayoutDecision((layout,), tuple(at if at in new else next(rest) for at in range(total)), call.attrs)


@without_split_axes
def squeeze(call: relax.Call, given: tuple[Any, ...], desired: DesiredLayouts) -> LayoutDecision | None:
    (layout,) = given
    info, axes = call.args[0].struct_info, call.attrs["axis"]
    if not isinstance(info, relax.TensorStructInfo) or info.dims is None or identity_layout(call.struct_info) is None:
        return None
    if axes is None:
        axes = [at for at, dim in enumerate(info.dims) if tir.const_int(dim) == 1]
    removed = {axis % len(layout) for axis in axes}
    attrs = call.attrs.with_item("axis", [at for at, axis in enumerate(layout) if axis in removed])
    return LayoutDecision((layout,), _drop_axes(layout, removed), attrs)


@without_split_axes
def permute(call: relax.Call, given: tuple[Any, ...], desired: DesiredLayouts) -> LayoutDecision:
    """Absorb the operand's layout into the permutation; the result has the identity layout."""
    (layout,) = given
    order = call.attrs["axes"]
    if order is None:
        order = range(len(layout) - 1, -1, -1)
    attrs = call.attrs.with_item("axes", [_position(layout, axis) for axis in order])
    return LayoutDecision((layout,), tuple(range(len(layout))), attrs)


@without_split_axes
def strided_slice(call: relax.Call, given: tuple[Any, ...], desired: DesiredLayouts) -> LayoutDecision | None:
    layout, axes = given[0], call.args[1]
    if not isinstance(axes, relax.Tuple):
        return None
    numbers = [tir.const_int(a.value) if isinstance(a, relax.PrimValue) else None for a in axes.fields]
    if None in numbers:
        return None
    places = tuple_expr([scalar(_position(layout, n)) for n in numbers if n is not None])
    return LayoutDecision((layout,), layout, call.attrs, {1: places})


@without_split_axes
def tile(call: relax.Call, given: tuple[Any, ...], desired: DesiredLayouts) -> LayoutDecision:
    (layout,) = given
    ndim = len(layout)
    repeats = [1] * (ndim - len(call.attrs["repeats"])) + list(call.attrs["repeats"])
    new = len(repeats) - ndim
    attrs = call.attrs.with_item("repeats", repeats[:new] + [repeats[new + axis] for axis in layout])
    return LayoutDecision((layout,), follow(layout, ndim + new), attrs)


@without_split_axes
def gather(call: relax.Call, given: tuple[Any, ...], desired: DesiredLayouts) -> LayoutDecision:
    """Data and indices share a layout: the data's, unless that is the identity."""
    layout, indices = given
    if layout == tuple(range(len(layout))):
        layout = indices
    return LayoutDecision((layout, layout), layout, call.attrs.with_item("axis", _position(layout, call.attrs["axis"])))


def pool(call: relax.Call, given: tuple[Any, ...], desired: DesiredLayouts) -> LayoutDecision | None:
    (layout,) = given
    attrs = call.attrs
    if is_blocked(attrs["layout"]) or is_blocked(attrs["out_layout"]):
        return None
    if is_split(layout) and not can_split(call.args[0].struct_info, layout):
        layout = identity_layout(call.args[0].struct_info)
    for name in ("layout", "out_layout"):
        attrs = attrs.with_item(name, layout_string(attrs[name], layout))
    return LayoutDecision((layout,), layout, attrs)


@without_split_axes
def resize(call: relax.Call, given: tuple[Any, ...], desired: DesiredLayouts) -> LayoutDecision:
    layout, now = given[0], call.attrs["layout"]
    if call.op.name in desired:
        layout = permutation_between(now, desired[call.op.name][0])  # type: ignore[arg-type]
    return LayoutDecision((layout,), layout, call.attrs.with_item("layout", layout_string(now, layout)))


def conv(call: relax.Call, given: tuple[Any, ...], desired: DesiredLayouts) -> LayoutDecision | None:
    """Use the desired layouts; without them, the result keeps the layout of the data."""
    names = LAYOUT_ATTRS[conv]
    if any(is_blocked(call.attrs[name]) for name in names):
        return None
    data, weight = (_without_split(g, a) for g, a in zip(given, call.args, strict=True))
    layouts: tuple[Any, ...] = (data, weight, data)
    if call.op.name in desired:
        asked = (*desired[call.op.name], desired[call.op.name][0])[:3]
        layouts = tuple(layout_entries(a, call.attrs[n]) for n, a in zip(names, asked, strict=True))
        if not all(can_split(a.struct_info, layout) for a, layout in zip((*call.args, call), layouts, strict=True)):
            data, weight = (identity_layout(a.struct_info) for a in call.args)
            layouts = (data, weight, data)
    attrs = call.attrs
    for name, layout in zip(names, layouts, strict=True):
        attrs = attrs.with_item(name, layout_string(attrs[name], layout))
    return LayoutDecision(layouts[:2], layouts[2], attrs)


# For rules with desired layouts: the attributes for the layouts of data, weight and result, as far as they exist.
LAYOUT_ATTRS: dict[Rule, tuple[str, ...]] = {conv: ("data_layout", "kernel_layout", "out_layout"), resize: ("layout",)}
