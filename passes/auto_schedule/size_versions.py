"""Versions of a kernel for ranges of a size that is unknown at compile time.

    for i in range(n): ...          ->          if n == 1: ...        # scheduled as if compiled for this size
                                                elif n < 24: ...      # by rules that know the range
                                                else: ...

A call takes the branch of its size. The pass `version-sizes` schedules each branch by the rules, as a function of its
own in which the size is a number or has bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import replace
from mlcc.ir.visit import renew_vars, substitute
from mlcc.passes.auto_schedule.dot_groups import MIN_REUSE, multiplies_pairs
from mlcc.passes.auto_schedule.kernel import AnyKernel, Kernel, RuleNotApplicable
from mlcc.passes.auto_schedule.matmul import MIN_PANEL_REUSE
from mlcc.passes.auto_schedule.products import only_product
from mlcc.passes.auto_schedule.rows import ACCUMULATORS
from mlcc.passes.auto_schedule.stage import Stage
from mlcc.passes.lowering.symbols import symbols_of

MAX_VERSIONS = 4  # of a function
FEW_ROWS = 3  # rows whose tiles are wide, for a matrix that is read row by row


@dataclass(frozen=True)
class SizeRange:
    """The values from `low` to `high` (None: any) of the size `var`."""

    var: tir.Var
    low: int
    high: int | None

    @property
    def single(self) -> bool:
        """True for a single value, which is then known."""
        return self.low == self.high

    @property
    def condition(self) -> tir.Expr:
        """The condition of the branch, behind those of the smaller sizes."""
        if self.single:
            return c.equal(self.var, self.low)
        return tir.TRUE if self.high is None else c.less(self.var, self.high + 1)

    def __str__(self) -> str:
        if self.single:
            return f"{self.var.name} == {self.low}"
        return f"{self.var.name} >= {self.low}" if self.high is None else f"{self.var.name} <= {self.high}"


def size_ranges(kernel: AnyKernel[Any]) -> list[SizeRange]:
    """Return the ranges of an unknown size that deserve schedules of their own, smallest first; none for one schedule.

    The sizes are those of a product whose operands both vary, and of the rows that a kernel reduces.
    """
    cuts = _cuts_of_product(kernel) or _cuts_of_rows(kernel)
    if cuts is None:
        return []
    var, ends = cuts
    if var not in symbols_of(kernel.func):
        return []
    starts = [1, *(end + 1 for end in ends)]
    ranges = [SizeRange(var, low, high) for low, high in zip(starts, [*ends, None], strict=True)]
    return ranges if len(ranges) <= MAX_VERSIONS else []


def specialized(func: tir.PrimFunc, span: SizeRange) -> tir.PrimFunc:
    """Return a copy of a function for sizes of a range: over fresh variables, with a single size as a number."""
    if span.single:
        func = substitute(func, {span.var: c.const(span.low, span.var.dtype)})
    return renew_vars(func)


def joined(func: tir.PrimFunc, versions: Sequence[tuple[SizeRange, tir.PrimFunc]]) -> tir.PrimFunc:
    """Return `func` with the bodies of its scheduled versions as branches on the size, each a block named `sizes`."""
    branches: tuple[tir.Stmt, ...] | None = None
    for number, (span, version) in reversed([*enumerate(versions)]):
        root = version.root
        assert root is not None
        block = replace(_over_parameters_of(func, version, root), name=f"size_{number}")
        body: tuple[tir.Stmt, ...] = (tir.BlockRealize((), tir.TRUE, block),)
        branches = body if branches is None else (tir.IfThenElse(span.condition, body, branches),)
    assert func.root is not None and branches is not None
    root = replace(func.root, body=branches, alloc_buffers=())
    return replace(func, body=(tir.BlockRealize((), tir.TRUE, root),))


def _over_parameters_of(func: tir.PrimFunc, version: tir.PrimFunc, root: tir.Block) -> tir.Block:
    """Return the root block of a version over the parameters and sizes of the function."""
    replacements: dict[object, object] = dict(zip(version.params, func.params, strict=True))
    for own, buffer in zip(version.buffers, func.buffers, strict=True):
        if own is None or buffer is None:
            continue
        replacements[own] = buffer
        replacements[own.data] = buffer.data
        for a, b in zip((*own.shape, *own.strides), (*buffer.shape, *buffer.strides), strict=True):
            if isinstance(a, tir.Var):
                replacements[a] = b
    return substitute(root, replacements)


# ---------------------------------------------------------------- where to cut


def _cuts_of_product(kernel: Kernel) -> tuple[tir.Var, list[int]] | None:
    """Return the size of a product of two operands that vary, and the last values of all ranges but the last."""
    kernel = kernel.copy_for_rule()
    try:
        product = only_product(kernel)[1]
    except RuleNotApplicable:
        return None
    if any(_is_known(kernel, operand.buffer) for operand in (product.lhs, product.rhs)):
        return None  # packed at compile time, in one way for all sizes
    var = _size(product.stage, product.m) or _size(product.stage, product.n)
    if var is None:
        return None
    if product.contiguous_axis(product.rhs) != product.n:
        return var, [1, MIN_PANEL_REUSE - 1]
    return var, [1, MIN_REUSE - 1 if multiplies_pairs(kernel, product) else FEW_ROWS]


def _cuts_of_rows(kernel: Kernel) -> tuple[tir.Var, list[int]] | None:
    """Return the unknown length of the rows that a kernel reduces, and the last values of all ranges but the last."""
    for stage in kernel.stages():
        if stage.reduced and stage.reduced[-1] == len(stage.loops) - 1:
            var = _size(stage, stage.reduced[-1])
            if var is not None:
                lanes = kernel.facts.lanes(stage.element_bytes)
                return var, [1, lanes - 1, 2 * ACCUMULATORS * lanes - 1]
    return None


def _is_known(kernel: Kernel, buffer: tir.Buffer) -> bool:
    """Return True for a constant, or for what a kernel computes of constants alone, as decoded weights."""
    if kernel.is_constant(buffer):
        return True
    writers = [stage for stage in kernel.stages() if any(a.stored and a.buffer is buffer for a in stage.accesses)]
    loads = [a.buffer for stage in writers for a in stage.accesses if not a.stored]
    return bool(loads) and buffer not in loads and all(_is_known(kernel, source) for source in loads)


def _size(stage: Stage, position: int | None) -> tir.Var | None:
    """Return the variable that is the extent of a loop; None for a number or another expression."""
    extent = None if position is None else stage.loops[position].extent
    return extent if isinstance(extent, tir.Var) else None
