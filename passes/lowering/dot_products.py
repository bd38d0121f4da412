"""Recognize short dot products inside a vectorized loop, `for j in range(4): C[i] += A[j] * B[i * 4 + j]` of bytes.

They become `T.dp4a`, or `T.dp2a` for two words of 16 bits, for which a CPU may have one instruction
(`mlcc.machine.dot_products`). Pairs of bfloat16 do where the loop over them may be reassociated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mlcc.arith.structural_keys import same_expr
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.calls import if_then_else
from mlcc.ir.dtypes import DType
from mlcc.ir.node import Node, children
from mlcc.ir.tir import Expr
from mlcc.ir.visit import substitute
from mlcc.machine.dot_products import Pair, group_of, sum_of
from mlcc.passes.lowering.vector_legality import REASSOCIATE, linear_form

_WORD = DType.of("int16")
InLanes = Callable[[tir.Var, int, Expr], Expr]  # an expression for each of so many values of a variable, from 0 on


@dataclass(frozen=True, slots=True)
class _Loop:
    """The loop over `step` inside `lanes` iterations of the loop over `lane`, from `base` on."""

    step: tir.Var
    lane: tir.Var
    base: Expr
    lanes: int


def match_dot_product(
    node: tir.For, lane: tir.Var, base: Expr, lanes: int, pairs: frozenset[Pair], in_lanes: InLanes
) -> tir.BufferStore | None:  # fmt: skip
    """Return the vector store that replaces a reduction loop inside a loop over `lanes` lanes from `base` on.

    The loop must sum products of dtypes in `pairs`, and each operand must be uniform over the lanes or contiguous from
    one lane to the next. Floats are summed in another order, which the annotation `reassociate` of the loop has to
    permit. None for another loop.
    """
    match node.body:
        case (tir.BufferStore(buffer=buffer, indices=(index,), value=tir.Add(lhs=lhs, rhs=rhs)) as store,):
            pass
        case _:
            return None
    size = tir.const_int(node.extent)
    if size not in (2, 4) or tir.const_int(node.min) != 0:
        return None
    if buffer.dtype.is_float and not node.annotations.get(REASSOCIATE):
        return None
    form = linear_form(index, {lane, node.var}, {})
    if form is None or form.terms != {lane: 1}:
        return None
    for old, product in ((lhs, rhs), (rhs, lhs)):
        own = isinstance(old, tir.BufferLoad) and old.buffer is buffer and same_expr(old.indices[0], index)
        factors = _factors(product, size, buffer.dtype, pairs) if own else None
        if factors is None:
            continue
        loop = _Loop(node.var, lane, base, lanes)
        wide = [_vector_operand(f, loop, size, in_lanes) for f in factors]
        if wide[0] is None or wide[1] is None or max(w.dtype.lanes for w in wide if w is not None) != size * lanes:
            return None
        start = substitute(index, {lane: base})
        ramp = tir.Ramp(index.dtype.with_lanes(lanes), start, c.const(1, index.dtype), lanes)
        sums = tir.BufferLoad(buffer.dtype.with_lanes(lanes), buffer, (ramp,))
        name = "tir.dp4a" if size == 4 else "tir.dp2a"
        dot = tir.Call(sums.dtype, tir.Op(name), (wide[0], wide[1], sums), span=store.span)
        return tir.BufferStore(buffer, dot, (ramp,), span=store.span)
    return None


def _factors(product: Expr, size: int, sums: DType, pairs: frozenset[Pair]) -> tuple[Expr, Expr] | None:
    """Return x and y of `cast(x, sums) * cast(y, sums)` if `size` such products fit a dot instruction, else None.

    Pairs of bytes are widened to words. Of `if_then_else(condition, x * y, 0)`, each factor becomes 0 where the
    condition fails. A plain `cast(x, int32)` is a product with 1.
    """
    condition: Expr | None = None
    match product:
        case tir.Call(op=tir.Op("tir.if_then_else"), args=(_, _, (tir.IntImm() | tir.FloatImm()) as rest)) if (
            rest.value == 0
        ):
            condition, product = product.args[:2]
    x: Expr
    y: Expr
    match product:
        case tir.Mul(lhs=tir.Cast(dtype=one) as lhs, rhs=tir.Cast(dtype=other) as rhs) if one is other is sums:
            x, y = lhs.value, rhs.value
        case tir.Cast(dtype=one) if one is sums and sums.is_int:
            x = product.value
            y = c.const(1, next((b for a, b in sorted(pairs) if a == str(x.dtype)), "int8"))
        case _:
            return None
    if condition is not None:
        x, y = (if_then_else(condition, v, c.const(0, v.dtype)) for v in (x, y))
    if size == 2 and x.dtype.is_int and y.dtype.is_int and x.dtype.bits == y.dtype.bits == 8:
        x, y = c.cast(_WORD, x), c.cast(_WORD, y)
    fits = (str(x.dtype), str(y.dtype)) in pairs and group_of(x.dtype) == group_of(y.dtype) == size
    fits = fits and sum_of(x.dtype) is sums
    return (x, y) if fits else None


def _vector_operand(expr: Expr, loop: _Loop, size: int, in_lanes: InLanes) -> Expr | None:
    """Return one operand of the dot product as a vector: a group for each lane, or one group if it is uniform."""
    if isinstance(expr, tir.IntImm):
        return tir.Broadcast(expr.dtype.with_lanes(size), expr, size)
    same = _is_uniform(expr, loop, size)
    if same is None:
        return None
    count = size if same else size * loop.lanes
    at = tir.Var(loop.step.name, loop.step.dtype)
    vector = in_lanes(at, count, substitute(expr, {loop.lane: loop.base, loop.step: at}))
    return vector if vector.dtype.lanes == count else None


def _is_uniform(root: Expr, loop: _Loop, size: int) -> bool | None:
    """Return True if uniform over lanes, False if a function of `size * lane + step` alone, else None."""
    lane_strides: set[int] = set()
    stack: list[Node] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, tir.BufferLoad):
            places: tuple[Expr, ...] = node.indices
        elif isinstance(node, (tir.LT, tir.LE, tir.GT, tir.GE)):
            places = (node.lhs, node.rhs)
        elif isinstance(node, tir.Var) and node not in (loop.lane, loop.step):
            continue
        elif isinstance(node, (tir.Var, tir.BufferStore)):
            return None
        else:
            stack.extend(children(node))
            continue
        for place in places:
            form = linear_form(place, {loop.lane, loop.step}, {})
            if form is None:
                return None
            by_lane, by_step = form.terms.get(loop.lane, 0), form.terms.get(loop.step, 0)
            if by_lane not in (0, size * by_step):
                return None
            if by_lane or by_step:
                lane_strides.add(by_lane)
    if len({bool(f) for f in lane_strides}) != 1:
        return None
    return 0 in lane_strides
