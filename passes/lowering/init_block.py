"""Lower `T.init` to a condition on the reduce axes, which holds at the first point of a reduction."""

from __future__ import annotations

from collections.abc import Callable

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.tir import Expr, IterKind


def init_condition(block: tir.Block, values: tuple[Expr, ...], outer: Callable[[Expr], Expr]) -> Expr:
    """Return the condition that all reduce axes are at their start.

    `values` are the bindings of the axes. `outer` substitutes the axes of outer blocks in the starts.
    """
    condition: Expr = tir.TRUE
    for axis, value in zip(block.iter_vars, values, strict=True):
        if axis.kind is IterKind.REDUCE:
            condition = c.logical_and(condition, c.equal(value, outer(axis.dom.min)))
    return condition
