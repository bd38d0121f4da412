"""Sums of products by Einstein's convention."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlcc import te
from mlcc.arith.proofs import is_one
from mlcc.ir import construct, relax, tir
from mlcc.ops.lazy import np
from mlcc.ops.registry import FusionKind, Impl
from mlcc.ops.shapes import (
    Tensor,
    device_of,
    extent_text,
    fail,
    int64,
    known_different,
    result,
    same_dtype,
    tensors,
)
from mlcc.te.scalar import Scalar, to_expr

Labels = tuple[str, ...]  # letters; the dimensions of an ellipsis are "0", "1", ... counted from the last


@dataclass(frozen=True)
class _Subscripts:
    """Parsed subscripts: the labels of the operands' and the result's dimensions, and the extent of each label."""

    inputs: tuple[Labels, ...]
    output: Labels
    extents: dict[str, tir.Expr]

    @property
    def summed(self) -> list[str]:
        """The contracted labels, those that the result lacks, in alphabetical order."""
        return sorted({label for labels in self.inputs for label in labels} - {*self.output})


def _parse_subscripts(call: relax.Call, infos: Sequence[Tensor]) -> _Subscripts:
    """Parse the subscripts of a call whose operands have known shapes."""
    text = call.attrs["subscripts"].replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(infos):
        fail(call, "E0442", f"`{text}` has subscripts for {len(terms)} operands, there are {len(infos)}")
    inputs = tuple(_labels(call, t, i.ndim, n) for n, (t, i) in enumerate(zip(terms, infos, strict=True), 1))
    ellipsis_rank = max((int(label) + 1 for labels in inputs for label in labels if label.isdigit()), default=0)
    ellipsis = tuple(str(i) for i in reversed(range(ellipsis_rank)))
    if arrow:
        output = _output(call, right, ellipsis, inputs)
    else:
        times = Counter(label for labels in inputs for label in labels)
        output = ellipsis + tuple(sorted(c for c, n in times.items() if n == 1 and not c.isdigit()))
    extents: dict[str, tir.Expr] = {}
    for labels, info in zip(inputs, infos, strict=True):
        for label, extent in zip(labels, info.dims or (), strict=True):
            extents[label] = _merge_extent(call, label, extents.get(label), extent)
    return _Subscripts(inputs, output, extents)


def _labels(call: relax.Call, term: str, ndim: int, number: int) -> Labels:
    """One label per dimension."""
    before, dots, after = term.partition("...")
    letters = before + after
    if not all(c.isalpha() for c in letters) or "." in letters:
        fail(call, "E0442", f"`{term}` is not a subscript: it may have letters and one `...`")
    rest = ndim - len(letters)
    if rest < 0 or (rest and not dots):
        fail(call, "E0445", f"`{term}` names {len(letters)} dimensions, operand {number} has {ndim}")
    return (*before, *(str(i) for i in reversed(range(rest))), *after)


def _output(call: relax.Call, term: str, ellipsis: Labels, inputs: tuple[Labels, ...]) -> Labels:
    before, dots, after = term.partition("...")
    known = {label for labels in inputs for label in labels}
    for label in before + after:
        if label not in known or not label.isalpha():
            fail(call, "E0442", f"`{label}` of the result `{term}` does not occur in an operand")
    if len({*before, *after}) != len(before + after):
        fail(call, "E0442", f"a letter occurs twice in the result `{term}`")
    return (*before, *(ellipsis if dots else ()), *after)


def _merge_extent(call: relax.Call, label: str, known: tir.Expr | None, extent: tir.Expr) -> tir.Expr:
    """Return the extent of a label; an extent of 1 broadcasts."""
    if known is None or is_one(known):
        return extent
    if not is_one(extent) and known_different(known, extent):
        what = f"`{label}`" if label.isalpha() else "a dimension of `...`"
        fail(call, "E0445", f"{what} has the extents {extent_text(known)} and {extent_text(extent)}")
    return known


def infer_einsum(call: relax.Call) -> Tensor:
    """The extents of the result's labels."""
    infos = tensors(call)
    if infos is None:
        return result(None, None)
    if not infos:
        fail(call, "E0443", "needs at least one tensor")
    dtype, device = same_dtype(call, infos), device_of(infos)
    if any(i.dims is None for i in infos):
        return result(None, dtype, next(i for i in infos if i.dims is None).ndim, device)
    subscripts = _parse_subscripts(call, infos)
    return result([subscripts.extents[label] for label in subscripts.output], dtype, vdevice=device)


def _lower_einsum(call: relax.Call, operands: Sequence[te.Tensor]) -> te.Tensor:
    infos = call.args[0].struct_info
    assert isinstance(infos, relax.TupleStructInfo)
    subscripts = _parse_subscripts(call, infos.fields)  # type: ignore[arg-type]
    shape = [subscripts.extents[label] for label in subscripts.output]
    names = [f"ax{i}" for i in range(len(shape))]

    def element(*i: Any) -> Any:
        at = dict(zip(subscripts.output, i, strict=True))
        sums = {label: te.reduce_axis((0, Scalar(subscripts.extents[label])), label) for label in subscripts.summed}
        product: Any = None
        for operand, labels in zip(operands, subscripts.inputs, strict=True):
            pairs = zip(labels, operand.buffer.shape, strict=True)
            factor = operand(*(_operand_index(subscripts, label, {**at, **sums}, extent) for label, extent in pairs))
            product = factor if product is None else product * factor
        if not sums:
            return product
        if product.dtype.is_bool:
            return _ANY_REDUCER(product, axis=list(sums.values()))
        return te.sum(product, axis=list(sums.values()))

    products: te.Tensor = te.compute(shape, element, name="T_einsum", varargs_names=names or None)
    return products


_ANY_REDUCER = te.comm_reducer(lambda x, y: te.any(x, y), lambda t: te.const(False, t), name="any")


def _operand_index(subscripts: _Subscripts, label: str, at: dict[str, Any], extent: tir.Expr) -> Any:
    if is_one(extent) and not is_one(subscripts.extents[label]):
        return Scalar(int64(0))
    return Scalar(construct.cast("int64", to_expr(at[label])))


def _np_einsum(call: relax.Call, operands: Any) -> Any:
    infos = call.args[0].struct_info
    assert isinstance(infos, relax.TupleStructInfo)
    subscripts = _parse_subscripts(call, infos.fields)  # type: ignore[arg-type]
    number = {label: i for i, label in enumerate(subscripts.extents)}
    parts = [
        part for x, labels in zip(operands, subscripts.inputs, strict=True) for part in (x, [number[c] for c in labels])
    ]
    product = np.einsum(*parts, [number[label] for label in subscripts.output])
    return np.asarray(product, operands[0].dtype)


OPS: dict[str, Impl] = {
    "einsum": Impl(
        "operands: exprs, subscripts: str", infer_einsum, _np_einsum, _lower_einsum, FusionKind.OUT_EWISE_FUSABLE,
    ),
}  # fmt: skip
