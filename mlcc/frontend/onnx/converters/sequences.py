"""Sequences and optional values, resolved at import; a sequence is a Python list of its elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc.frontend.onnx.converters.structure import split_axis
from mlcc.frontend.onnx.table import converts
from mlcc.frontend.onnx.translate import EMPTY_OPTIONAL, OnnxNode, OnnxTranslator
from mlcc.frontend.problems import Unsupported
from mlcc.ir import relax, tir

# A converter returns the list of a node's outputs, so that a sequence is an element of such a list.


@converts("SequenceEmpty")
def _empty(t: OnnxTranslator, node: OnnxNode) -> list[Any]:
    return [[]]


@converts("SequenceConstruct")
def _construct(t: OnnxTranslator, node: OnnxNode, *elements: Any) -> list[Any]:
    return [list(elements)]


@converts("SequenceAt")
def _at(t: OnnxTranslator, node: OnnxNode, sequence: Any, position: relax.Expr) -> list[Any]:
    return [_as_list(sequence)[_sequence_index(t, position, len(_as_list(sequence)))]]


@converts("SequenceInsert")
def _insert(
    t: OnnxTranslator, node: OnnxNode, sequence: Any, element: Any, position: relax.Expr | None = None
) -> list[Any]:
    elements = list(_as_list(sequence))
    at = len(elements) if position is None else _sequence_index(t, position, len(elements), 1)
    return [[*elements[:at], element, *elements[at:]]]


@converts("SequenceErase")
def _erase(t: OnnxTranslator, node: OnnxNode, sequence: Any, position: relax.Expr | None = None) -> list[Any]:
    elements = list(_as_list(sequence))
    at = len(elements) - 1 if position is None else _sequence_index(t, position, len(elements))
    if not elements:
        raise Unsupported("the sequence is empty")
    return [[*elements[:at], *elements[at + 1 :]]]


@converts("SequenceLength")
def _length(t: OnnxTranslator, node: OnnxNode, sequence: Any) -> relax.Expr:
    return t.scalar(len(_as_list(sequence)), "int64")


@converts("ConcatFromSequence")
def _concat(t: OnnxTranslator, node: OnnxNode, sequence: Any) -> relax.Expr:
    elements, axis = _as_list(sequence), node.attribute("axis")
    if not elements:
        raise Unsupported("the sequence is empty")
    if node.attribute("new_axis", 0):
        return t.op.stack(elements, axis)
    return elements[0] if len(elements) == 1 else t.op.concat(elements, t.axis(elements[0], axis))


@converts("SplitToSequence")
def _split(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, split: relax.Expr | None = None) -> list[Any]:
    axis = t.axis(x, node.attribute("axis", 0))
    extent = tir.const_int(t.shape(x)[axis])
    keep = bool(node.attribute("keepdims", 1)) or split is not None
    if split is not None and t.ndim(split):
        return [split_axis(t, x, axis, t.integers(split))]
    if extent is None:
        raise Unsupported("the length of the sequence is known at run time only")
    size = 1 if split is None else int(t.array(split).item())
    if size < 1:
        raise Unsupported(f"cannot split into parts of {size} elements")
    pieces = split_axis(t, x, axis, [min(size, extent - at) for at in range(0, extent, size)]) if extent else []
    return [pieces if keep else [t.emit(t.op.squeeze(part, [axis])) for part in pieces]]


def _as_list(sequence: Any) -> Sequence[Any]:
    if not isinstance(sequence, list):
        raise Unsupported("the sequence is not known at import")
    return sequence


def _sequence_index(t: OnnxTranslator, position: relax.Expr, length: int, more: int = 0) -> int:
    """Return a non-negative position in a sequence."""
    at = int(t.array(position).item())
    if not -length <= at < length + more:
        raise Unsupported(f"position {at} is out of range for a sequence of {length}")
    return at + length if at < 0 else at


# ---------------------------------------------------------------- optional values


@converts("Optional")
def _optional(t: OnnxTranslator, node: OnnxNode, value: Any = None) -> list[Any]:
    return [EMPTY_OPTIONAL if value is None else value]


@converts("OptionalHasElement")
def _has_element(t: OnnxTranslator, node: OnnxNode, value: Any = None) -> relax.Expr:
    return t.scalar(value is not None and value is not EMPTY_OPTIONAL, "bool")


@converts("OptionalGetElement")
def _get_element(t: OnnxTranslator, node: OnnxNode, value: Any) -> list[Any]:
    if value is EMPTY_OPTIONAL or value is None:
        raise Unsupported("the optional value is empty")
    return [value]
