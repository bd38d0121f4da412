"""Mappings of a block's axes to those of a tensor intrinsic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.visit import used_vars
from mlcc.passes.schedule.state import BlockRef
from mlcc.passes.schedule.tensor_intrin import TensorIntrin
from mlcc.tune.schedule_rule.intrin_tiles import Accesses, inner_block, match_intrin_accesses


@dataclass(frozen=True, eq=False)
class IntrinAxes:
    """`fused` maps each axis of an intrinsic to the fused expression of its axes of the block; `outer` are the other
    axes of the block. TVM: `AutoTensorizeMappingInfo`."""

    axes: tuple[tir.Var, ...]
    outer: tuple[tir.Var, ...]
    fused: dict[tir.Var, tir.Expr]
    accesses: tuple[Accesses, ...]

    def whole(self) -> tir.IndexMap:
        """Return the map from the block's axes to the outer ones followed by the intrinsic's."""
        return tir.IndexMap(self.axes, (*self.outer, *self.fused.values()))

    def of_buffer(self, buffer: tir.Buffer, axes: Sequence[tir.Expr]) -> tir.IndexMap:
        """Return the same map for a buffer that some of the axes index, in this order."""
        own = tuple(axis for axis in axes if isinstance(axis, tir.Var))
        (access,) = (one for one in self.accesses if one.buffer is buffer)
        described = [self.fused[index] for index in access.described if isinstance(index, tir.Var)]
        return tir.IndexMap(own, (*(axis for axis in own if axis in self.outer), *described))


def intrin_axes(ref: BlockRef, intrin: TensorIntrin) -> IntrinAxes | None:
    """Map a block to an intrinsic: axes of one kind that index the same buffers as an axis of the intrinsic are fused.

    None if the block computes something else, an axis of the intrinsic has no match, or one of the block has several.
    """
    accesses = match_intrin_accesses(ref, intrin)
    if accesses is None:
        return None
    described = inner_block(intrin).iter_vars
    places = [(axis, _used_by(axis.var, [one.described for one in accesses])) for axis in described]
    outer: list[tir.Var] = []
    fused: dict[tir.Var, tir.Expr] = {}
    for axis in ref.block.iter_vars:
        used = _used_by(axis.var, [one.indices for one in accesses])
        matching = [other.var for other, place in places if place == used and other.kind is axis.kind]
        if len(matching) > 1:
            return None
        if not matching:
            outer.append(axis.var)
        elif matching[0] in fused:
            fused[matching[0]] = c.add(c.mul(fused[matching[0]], axis.dom.extent), axis.var)
        else:
            fused[matching[0]] = axis.var
    if len(fused) < len(described):
        return None
    analyzer = Analyzer()
    ordered = {axis.var: analyzer.simplify(fused[axis.var]) for axis in described}
    return IntrinAxes(tuple(axis.var for axis in ref.block.iter_vars), tuple(outer), ordered, tuple(accesses))


def _used_by(var: tir.Var, indices: Sequence[tuple[tir.Expr, ...]]) -> tuple[bool, ...]:
    return tuple(var in used_vars(one) for one in indices)
