"""Suggest the layout in which a loop nest reads a buffer contiguously."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.iter_map import detect_iter_map
from mlcc.arith.iter_nodes import IterSplit, IterSum
from mlcc.ir import calls, tir
from mlcc.ir import construct as c


@dataclass(frozen=True, slots=True)
class _Digit:
    """`source // lower % extent`, of the loop variable `source`."""

    source: tir.Var
    lower: int
    extent: int


def suggest_index_map(
    buffer: tir.Buffer, indices: Sequence[tir.Expr], loops: Sequence[tir.For], predicate: tir.Expr, analyzer: Analyzer
) -> tir.IndexMap | None:
    """Return a layout in which the loops, outermost first, read the buffer contiguously at `indices`.

    None if the indices are not an iterator map of the loops. TVM: `SuggestIndexMap`.
    """
    ranges = {loop.var: tir.Range(loop.min, loop.extent) for loop in loops}
    shape = [tir.const_int(n) for n in buffer.shape]
    if not shape or None in shape:
        return None
    flat = analyzer.simplify(_flat(buffer, indices))
    iter_map = detect_iter_map([flat], ranges, predicate, "surjective", analyzer)
    digits = _digits(iter_map.indices[0]) if iter_map and iter_map.indices else []
    if not digits:
        return None
    depth = {loop.var: at for at, loop in enumerate(loops)}
    order = sorted(range(len(digits)), key=lambda at: (depth[digits[at].source], -digits[at].lower))
    params = tuple(tir.Var(f"i{at}", n.dtype) for at, n in enumerate(buffer.shape))
    for param, extent in zip(params, buffer.shape, strict=True):
        analyzer.bind(param, tir.Range(c.const(0, extent.dtype), extent))
    index = _flat(buffer, params)
    split: list[tir.Expr] = []
    for digit in reversed(digits):
        index = analyzer.simplify(index)
        extent = c.const(digit.extent, index.dtype)
        split.insert(0, analyzer.simplify(calls.floormod(index, extent)))
        index = calls.floordiv(index, extent)
    return tir.IndexMap(params, tuple(split[at] for at in order))


def _flat(buffer: tir.Buffer, indices: Sequence[tir.Expr]) -> tir.Expr:
    """Return the linear offset of an access, in elements."""
    offset: tir.Expr = c.const(0, buffer.shape[0].dtype)
    behind: tir.Expr = c.const(1, buffer.shape[0].dtype)
    strides = list(buffer.strides)
    if not strides:
        for size in reversed(buffer.shape):
            strides.insert(0, behind)
            behind = c.mul(behind, size)
    for stride, index in zip(strides, indices, strict=True):
        offset = c.add(offset, c.mul(stride, index))
    return offset


def _digits(sum: IterSum) -> list[_Digit]:
    """Return the digits of loop variables in an iterator sum, highest first; none if an extent is not constant."""
    digits: list[_Digit] = []
    for split in sum.args:
        inner = _of_split(split)
        if not inner:
            return []
        digits += inner
    return digits


def _of_split(split: IterSplit) -> list[_Digit]:
    source = split.source.source
    if isinstance(source, IterSum):
        return _digits(source)
    lower, extent = tir.const_int(split.lower_factor), tir.const_int(split.extent)
    if not isinstance(source, tir.Var) or lower is None or extent is None:
        return []
    return [_Digit(source, lower, extent)]
