"""The primitive `split`."""

from __future__ import annotations

import math

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.tir import Expr, ForKind, IntImm
from mlcc.passes.schedule.analysis.bindings import remember_bindings
from mlcc.passes.schedule.analysis.checks import check_loop_starts_at_zero
from mlcc.passes.schedule.primitives.loop_checks import check_plain
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.registry import primitive
from mlcc.passes.schedule.state import LoopRef, State
from mlcc.passes.schedule.substitution import Reuse, add_predicate, proves_below, simplify_bindings, substitute_vars
from mlcc.passes.schedule.tree import Rebuild


@primitive()
def split(
    state: State,
    loop: LoopRef,
    factors: list[int | None],
    preserve_unit_iters: bool = True,
    disable_predication: bool = False,
) -> list[LoopRef]:
    """Split a loop into `len(factors)` nested loops; a factor None is computed from the others.

    Where the factors do not divide the extent, the blocks inside get a predicate (`T.where`), unless
    `disable_predication` promises that they divide it. The new loops of `i` are `i_0`, `i_1`, ...

    Refused for a loop with annotations or a thread axis (E0620), one that does not start at 0 (E0639), and for factors
    that are not positive, do not reach the extent, or leave more than one to be computed (E0621).
    """
    old = loop.loop
    sizes = split_factors(old, factors)
    check_plain(old, "split")
    check_loop_starts_at_zero(old)
    dtype = DType.of(f"int{max([old.var.dtype.bits, *(size.dtype.bits for size in sizes)])}")
    variables = [tir.Var(f"{old.var.name}_{n}", dtype) for n in range(len(sizes))]
    value: Expr = IntImm(dtype, 0)
    for var, size in zip(variables, sizes, strict=True):
        value = c.add(c.mul(value, size), var)
    reuse: Reuse = {}
    body = substitute_vars(old.body, {old.var: value}, reuse)
    if not _needs_no_predicate(variables, sizes, value, old.extent):
        if not disable_predication:
            body = add_predicate(body, c.less(value, old.extent))
        elif isinstance(old.extent, IntImm) and all(isinstance(size, IntImm) for size in sizes):
            raise Refusal(
                "E0621",
                f"the factors exceed the extent {old.extent} of loop `{old.var.name}`:"
                " without a predicate the blocks inside would run for additional iterations",
                old, "remove `disable_predication`, or use factors that multiply to the extent",
            )  # fmt: skip
    zero = IntImm(dtype, 0)
    for var, size in zip(reversed(variables), reversed(sizes), strict=True):
        extent = IntImm(dtype, size.value) if isinstance(size, IntImm) else size
        body = (tir.For(var, zero, extent, ForKind.SERIAL, body, span=old.span),)
    tree = loop.tree
    edit = Rebuild(tree)
    edit.put(old, simplify_bindings(body[0], tree.loops_above(old), preserve_unit_iters, reuse))
    remember_bindings(tree, state.update(loop.func_name, edit, reuse))
    return [state.loop_ref(loop.func_name, var) for var in variables]


def _needs_no_predicate(variables: list[tir.Var], sizes: list[Expr], value: Expr, extent: Expr) -> bool:
    """Return True if all iterations of the new loops are below the old extent: no predicate is needed."""
    if isinstance(extent, IntImm) and all(isinstance(size, IntImm) for size in sizes):
        product = math.prod(size.value for size in sizes if isinstance(size, IntImm))
        if product > 0:
            return product <= extent.value
    analyzer = Analyzer()
    ranges = {}
    for var, size in zip(variables, sizes, strict=True):
        ranges[var] = tir.Range(IntImm(var.dtype, 0), c.cast(var.dtype, size))
        analyzer.bind(var, ranges[var])
    return proves_below(analyzer, value, extent, ranges)


def split_factors(loop: tir.For, factors: list[int | None]) -> list[Expr]:
    """Return the extents of the new loops. Raises Refusal E0621."""
    extent, name = loop.extent, loop.var.name
    check_factors(loop, factors)
    sizes = [None if f is None else factor_expr(f, extent) for f in factors]
    product: Expr = c.const(1)
    for size in sizes:
        if size is not None:
            product = c.mul(product, size)
    analyzer = Analyzer()
    if None in sizes:
        rest = analyzer.simplify(c.floordiv(c.sub(c.add(extent, product), 1), product))
        return [rest if size is None else size for size in sizes]
    extents = [size for size in sizes if size is not None]
    if analyzer.prove(c.greater_equal(product, extent)):
        return extents
    text = " * ".join(map(str, factors))
    total = f"{text} = {product}" if len(factors) > 1 else text
    free = ", ".join(["None", *map(str, factors[1:] or factors)])
    if isinstance(extent, IntImm):
        raise Refusal(
            "E0621", f"the factors do not reach the extent of loop `{name}`: {total}, less than {extent}", loop,
            f"let one be computed: factors=[{free}]",
        )  # fmt: skip
    raise Refusal(
        "E0621", f"it is unknown whether {total} reaches the extent `{extent}` of loop `{name}`", loop,
        f"with a symbolic extent one factor must be computed: factors=[{free}]",
    )  # fmt: skip


def check_factors(loop: tir.For, factors: list[int | None]) -> None:
    """Refuse (E0621) factors that are not positive, two to be computed, and none at all."""
    name = loop.var.name
    if not factors:
        raise Refusal("E0621", f"there are no factors for loop `{name}`", loop, "for example factors=[None, 4]")
    for at, factor in enumerate(factors):
        if factor is not None and factor <= 0:
            help = "use None for a factor to be computed from the others" if factor == -1 else None
            raise Refusal("E0621", f"factor {at} for loop `{name}` must be positive, not {factor}", loop, help)
    if factors.count(None) > 1:
        raise Refusal("E0621", f"{factors.count(None)} factors for loop `{name}` are None; at most one can be", loop)
    if math.prod(f for f in factors if f is not None) >= 1 << 31:
        raise Refusal("E0621", f"the factors for loop `{name}` multiply to more than the maximum of an index", loop)


def factor_expr(factor: int, extent: Expr) -> Expr:
    """Return a factor as a constant that is no wider than the extent."""
    constant = c.const(factor) if -(1 << 31) <= factor < 1 << 31 else IntImm(DType.of("int64"), factor)
    return c.cast(extent.dtype, constant) if constant.dtype.bits > extent.dtype.bits else constant
