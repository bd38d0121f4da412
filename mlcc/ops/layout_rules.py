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
from mlcc.ops.split_layouts import Inner, axis_of, can_split, entries_of, is_blocked, is_split, outer_axes, shifted
from mlcc.ops.values import scalar, tuple_expr

Layout = tuple[Any, ...]  # axes, and `Inner` parts of them


@dataclass(frozen=True)
class Fields:
    """The layouts of a tuple's fields."""

    parts: tuple[Any, ...]


Nested = Layout | Fields | None
Wanted = Mapping[str, Sequence[str]]  # by operator: the layouts of data, weight and, perhaps, result


@dataclass(frozen=True)
class Decision:
    """In which layouts a call takes its first arguments and gives its result, and what else of it changes."""

    inputs: tuple[Nested, ...]
    output: Nested
    attrs: Attrs
    args: Mapping[int, relax.Expr] = field(default_factory=dict)


Rule = Callable[[relax.Call, tuple[Any, ...], Wanted], "Decision | None"]


def initial(info: relax.StructInfo | None) -> Nested:
    """The layout of a value as it is given."""
    match info:
        case relax.TensorStructInfo(ndim=ndim) if ndim >= 0:
            return tuple(range(ndim))
        case relax.TupleStructInfo(fields=fields):
            return Fields(tuple(map(initial, fields)))
    return None


def is_known(layout: Nested) -> bool:
    return all(map(is_known, layout.parts)) if isinstance(layout, Fields) else layout is not None


def transposed(source: Layout, target: Layout) -> Layout:
    """The axes by which `permute_dims` turns a tensor from one layout to the other."""
    return tuple(source.index(axis) for axis in target)


def follow(layout: Layout, ndim: int) -> Layout:
    """The layout of a tensor of `ndim` axes that one of this layout is broadcast to."""
    more = ndim - len(layout)
    return (*range(more), *(shifted(axis, more) for axis in layout))


def spelled(letters: str, layout: Layout) -> str:
    """The attribute that names the layout, for a tensor so far in the layout that `letters` names."""
    return "".join(f"{a.factor}{letters[a.axis].lower()}" if isinstance(a, Inner) else letters[a] for a in layout)


# ---------------------------------------------------------------- rules


def _place(layout: Layout, axis: int) -> int:
    return layout.index(axis % outer_axes(layout))


def _whole(given: Nested, arg: relax.Expr) -> Nested:
    """The layout of an operand, or that which it has in the program if it splits axes."""
    parts = given.parts if isinstance(given, Fields) else (given,)
    return initial(arg.struct_info) if any(map(is_split, parts)) else given


def unsplit(rule: Rule) -> Rule:
    """A rule for operators that do not follow where axes are split: their operands are turned back first."""

    def follow_whole(call: relax.Call, given: tuple[Any, ...], wanted: Wanted) -> Decision | None:
        return rule(call, tuple(_whole(g, a) for g, a in zip(given, call.args, strict=True)), wanted)

    return follow_whole


def _without(layout: Layout, dropped: Iterable[int]) -> Layout:
    """Return the layout without some axes; the axes behind them are renumbered."""
    gone = set(dropped)
    kept = sorted({axis_of(entry) for entry in layout} - gone)
    left = [entry for entry in layout if axis_of(entry) not in gone]
    return tuple(shifted(entry, kept.index(axis_of(entry)) - axis_of(entry)) for entry in left)


def _rank(expr: relax.Expr) -> int:
    """The number of axes; scalars that are no tensors have none."""
    return expr.struct_info.ndim if isinstance(expr.struct_info, relax.TensorStructInfo) else 0


def elementwise(call: relax.Call, given: tuple[Any, ...], wanted: Wanted) -> Decision:
    (layout,) = given
    return Decision((layout,), layout, call.attrs)


def first(call: relax.Call, given: tuple[Any, ...], wanted: Wanted) -> Decision:
    """The first operand says the layout; the others are scalars."""
    return elementwise(call, given[:1], wanted)


def dropout(call: relax.Call, given: tuple[Any, ...], wanted: Wanted) -> Decision:
    (layout,) = given
    return Decision((layout,), Fields((layout, layout)), call.attrs)


def broadcast(call: relax.Call, given: tuple[Any, ...], wanted: Wanted) -> Decision:
    """The operand of fewer axes, else the first one, says the layout; one that splits axes, if the other can, too."""
    first, second = map(_rank, call.args)
    if any(map(is_split, given)) and first == second:
        leads = 0 if len(given[0]) >= len(given[1]) else 1
        if can_split(call.args[1 - leads].struct_info, given[leads]):
            return Decision((given[leads],) * 2, given[leads], call.attrs)
    if any(map(is_split, given)) and 0 not in (first, second):
        given = tuple(_whole(g, a) for g, a in zip(given, call.args, strict=True))
    keep = [layout if layout is not None else () for layout in given]
    if 0 in (first, second):
        return Decision(given, keep[0] if second == 0 else keep[1], call.attrs)
    if first <= second:
        out = follow(keep[0], second)
        return Decision((keep[0], out), out, call.attrs)
    out = follow(keep[1], first)
    return Decision((out, keep[1]), out, call.attrs)


def fma(call: relax.Call, given: tuple[Any, ...], wanted: Wanted) -> Decision:
    layout = given[1] if given[1] == given[2] else given[0]
    if is_split(layout) and not all(can_split(a.struct_info, layout) for a in call.args):
        layout = initial(call.args[0].struct_info)
    return Decision((layout,) * 3, layout, call.attrs)


def _along_axis(call: relax.Call, given: tuple[Any, ...], wanted: Wanted) -> Decision:
    """One tensor that keeps its shape but for the extent of the axis that an attribute names."""
    (layout,) = given
    return Decision((layout,), layout, call.attrs.with_item("axis", _place(layout, call.attrs["axis"])))


along_axis = unsplit(_along_axis)


@unsplit
def repeat(call: relax.Call, given: tuple[Any, ...], wanted: Wanted) -> Decision | None:
    return None if call.attrs["axis"] is None else _along_axis(call, given, wanted)


@unsplit
def scatter(call: relax.Call, given: tuple[Any, ...], wanted: Wanted) -> Decision:
    """Data, indices and updates in one layout: that of indices and updates if they agree, else that of the data."""
    layout = given[1] if given[1] == given[2] else given[0]
    attrs = call.attrs.with_item("axis", _place(layout, call.attrs["axis"]))
    return Decision((layout,) * 3, layout, attrs)


@unsplit
def scatter_nd(call: relax.Call, given: tuple[Any, ...], wanted: Wanted) -> Decision:
    """Data and updates of one rank in the data's layout, if that leaves the axes that are indexed where they are."""
    layout, indices, _ = given
    info = call.args[1].struct_info
    depth = tir.const_int(info.dims[-1]) if isinstance(info, relax.TensorStructInfo) and info.dims else None
    same_rank = _rank(call.args[0]) == _rank(call.args[2])
    if not same_rank or depth is None or layout[:depth] != tuple(range(depth)):
        layout = initial(call.args[0].struct_info)
    return Decision((layout, indices, layout if same_rank else initial(call.args[2].struct_info)), layout, call.attrs)


@unsplit
def prelu(call: relax.Call, given: tuple[Any, ...], wanted: Wanted) -> Decision:
    layout, slope = given
    return Decision((layout, slope), layout, call.attrs.with_item("axis", _place(layout, call.attrs["axis"])))


def _channel(attrs: Attrs) -> tuple[int, ...]:
    return (attrs["channel_axis"],) if "channel_axis" in attrs else ()


def norm(call: relax.Call, given: tuple[Any, ...], wanted: Wanted) -> Decision:
    """Scale and shift stay as they are; the axes are those of the data."""
    layout, attrs = given[0], call.attrs
    ndim = _rank(call.args[0])
    used = {axis % ndim for axis in (*attrs.get("axes", ()), *_channel(attrs))}
    if any(isinstance(entry, Inner) and entry.axis in used for entry in layout):
        layout = initial(call.args[0].struct_info)
    if "axes" in attrs:
        attrs = attrs.with_item("axes", [_place(layout, axis) for axis in attrs["axes"]])
    if "channel_axis" in attrs:
        attrs = attrs.with_item("channel_axis", _place(layout, attrs["channel_axis"]))
    return Decision((layout, *(initial(a.struct_info) for a in call.args[1:])), layout, attrs)


@unsplit
def batch_norm(call: relax.Call, given: tuple[Any, ...], wanted: Wanted) -> Decision:
    layout, rest = given[0], tuple(initial(a.struct_info) for a in call.args[1:])
    attrs = call.attrs.with_item("axis", _place(layout, call.attrs["axis"]))
    return Decision((layout, *rest), Fields((layout, *rest[2:])), attrs)


def reduce(call: relax.Call, given: tuple[Any, ...], wanted: Wanted) -> Decision:
    (layout,) = given
    axes = call.attrs["axis"]
    ndim = outer_axes(layout)
    gone = range(ndim) if axes is None else [axis % ndim for axis in axes]
    if call.attrs["keepdims"] and any(isinstance(entry, Inner) and entry.axis in gone for entry in layout):
        layout = tuple(range(ndim))  # what is left of both parts is 1: no layout says that
    attrs = call.attrs.with_item("axis", [at for at, entry in enumerate(layout) if axis_of(entry) in gone])
    return Decision((layout,), layout if attrs["keepdims"] else _without(layout, gone), attrs)


def concat(call: relax.Call, given: tuple[Any, ...], wanted: Wanted) -> Decision | None:
    """All in the layout of the first, or of the first that splits axes if all can."""
    parts, info = given[0].parts, call.args[0].struct_info
    if not parts or not isinstance(info, relax.TupleStructInfo):
        return None
    layout: Layout = parts[0]
    split = next(filter(is_split, parts), None)
    if split is not None:
        if all(can_split(field, split) for field in info.fields):
            layout = split
        else:
            layout = next((p for p in parts if not is_split(p)), tuple(range(outer_axes(layout))))
    attrs = call.attrs.with_item("axis", _place(layout, call.attrs["axis"] or 0))
    return Decision((Fields((layout,) * len(parts)),), layout, attrs)


def concat_as_turned(call: relax.Call, given: tuple[Any, ...], wanted: Wanted) -> Decision | None:
    """All in the layout of the first that is not as the program has it."""
    parts: tuple[Layout, ...] = given[0].parts
    turned = [part for part in parts if part != tuple(range(len(part)))]
    return concat(call, (Fields((*turned, *parts)[:1] * len(parts)),), wanted)


@unsplit
def pad(call: relax.Call, given: tuple[Any, ...], wanted: Wanted) -> Decision:
    layout, widths = given[0], call.attrs["pad_width"]
    sides = [widths[2 * axis + side] for axis in layout for side in (0, 1)]
    return Decision((layout,), layout, call.attrs.with_item("pad_width", sides))


def split_axis(call: relax.Call, given: tuple[Any, ...], wanted: Wanted) -> Decision:
    fields = call.struct_info.fields if isinstance(call.struct_info, relax.TupleStructInfo) else ()
    if is_split(given[0]) and not all(can_split(field, given[0]) for field in fields):
        given = (initial(call.args[0].struct_info),)
    decision = _along_axis(call, given, wanted)
    count = len(call.struct_info.fields) if isinstance(call.struct_info, relax.TupleStructInfo) else 0
    return Decision(decision.inputs, Fields(decision.inputs * count) if count else decision.output, decision.attrs)


@unsplit
def expand_dims(call: relax.Call, given: tuple[Any, ...], wanted: Wanted) -> Decision:
    """New axes stay where they are; the others take the places between them in their order."""
    (layout,) = given
    total = len(layout) + len(call.attrs["axis"])
    new = {axis % total for axis in call.attrs["axis"]}
    old = [at for at in range(total) if at not in new]
    rest = iter([old[axis] for axis in layout])
    return Decision((layout,), tuple(at if at in new else next(rest) for at in range(total)), call.attrs)


@unsplit
def squeeze(call: relax.Call, given: tuple[Any, ...], wanted: Wanted) -> Decision | None:
    (layout,) = given
    info, axes = call.args[0].struct_info, call.attrs["axis"]
    if not isinstance(info, relax.TensorStructInfo) or info.dims is None or initial(call.struct_info) is None:
        return None
    if axes is None:
        axes = [at for at, dim in enumerate(info.dims) if tir.const_int(dim) == 1]
    gone = {axis % len(layout) for axis in axes}
    attrs = call.attrs.with_item("axis", [at for at, axis in enumerate(layout) if axis in gone])
    return Decision((layout,), _without(layout, gone), attrs)


@unsplit
def permute(call: relax.Call, given: tuple[Any, ...], wanted: Wanted) -> Decision:
    """The result is as it was: only the order of reading changes."""
    (layout,) = given
    order = call.attrs["axes"]
    if order is None:
        order = range(len(layout) - 1, -1, -1)
    attrs = call.attrs.with_item("axes", [_place(layout, axis) for axis in order])
    return Decision((layout,), tuple(range(len(layout))), attrs)


@unsplit
def strided_slice(call: relax.Call, given: tuple[Any, ...], wanted: Wanted) -> Decision | None:
    layout, axes = given[0], call.args[1]
    if not isinstance(axes, relax.Tuple):
        return None
    numbers = [tir.const_int(a.value) if isinstance(a, relax.PrimValue) else None for a in axes.fields]
    if None in numbers:
        return None
    places = tuple_expr([scalar(_place(layout, n)) for n in numbers if n is not None])
    return Decision((layout,), layout, call.attrs, {1: places})


@unsplit
def tile(call: relax.Call, given: tuple[Any, ...], wanted: Wanted) -> Decision:
    (layout,) = given
    ndim = len(layout)
    repeats = [1] * (ndim - len(call.attrs["repeats"])) + list(call.attrs["repeats"])
    new = len(repeats) - ndim
    attrs = call.attrs.with_item("repeats", repeats[:new] + [repeats[new + axis] for axis in layout])
    return Decision((layout,), follow(layout, ndim + new), attrs)


@unsplit
def gather(call: relax.Call, given: tuple[Any, ...], wanted: Wanted) -> Decision:
    """Data and indices in one layout: the data's, unless only the indices have been turned."""
    layout, indices = given
    if layout == tuple(range(len(layout))):
        layout = indices
    return Decision((layout, layout), layout, call.attrs.with_item("axis", _place(layout, call.attrs["axis"])))


def pool(call: relax.Call, given: tuple[Any, ...], wanted: Wanted) -> Decision | None:
    (layout,) = given
    attrs = call.attrs
    if is_blocked(attrs["layout"]) or is_blocked(attrs["out_layout"]):
        return None
    if is_split(layout) and not can_split(call.args[0].struct_info, layout):
        layout = initial(call.args[0].struct_info)
    for name in ("layout", "out_layout"):
        attrs = attrs.with_item(name, spelled(attrs[name], layout))
    return Decision((layout,), layout, attrs)


@unsplit
def resize(call: relax.Call, given: tuple[Any, ...], wanted: Wanted) -> Decision:
    layout, now = given[0], call.attrs["layout"]
    if call.op.name in wanted:
        layout = transposed(now, wanted[call.op.name][0])  # type: ignore[arg-type]
    return Decision((layout,), layout, call.attrs.with_item("layout", spelled(now, layout)))


def conv(call: relax.Call, given: tuple[Any, ...], wanted: Wanted) -> Decision | None:
    """As wanted; without a wish, the result has the layout that the data come in."""
    names = WISHES[conv]
    if any(is_blocked(call.attrs[name]) for name in names):
        return None
    data, weight = (_whole(g, a) for g, a in zip(given, call.args, strict=True))
    layouts: tuple[Any, ...] = (data, weight, data)
    if call.op.name in wanted:
        asked = (*wanted[call.op.name], wanted[call.op.name][0])[:3]
        layouts = tuple(entries_of(a, call.attrs[n]) for n, a in zip(names, asked, strict=True))
        if not all(can_split(a.struct_info, layout) for a, layout in zip((*call.args, call), layouts, strict=True)):
            data, weight = (initial(a.struct_info) for a in call.args)
            layouts = (data, weight, data)
    attrs = call.attrs
    for name, layout in zip(names, layouts, strict=True):
        attrs = attrs.with_item(name, spelled(attrs[name], layout))
    return Decision(layouts[:2], layouts[2], attrs)


# By rule that takes a wish: the attributes that name the layouts of data, weight and result, as far as there are such.
WISHES: dict[Rule, tuple[str, ...]] = {conv: ("data_layout", "kernel_layout", "out_layout"), resize: ("layout",)}
