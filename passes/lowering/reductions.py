"""Vectorize loops that reduce into one element, such as `B[i] = B[i] + x(k)`.

Sums, products, minima and maxima of integers come out the same in any order: a vectorized loop over them becomes vector
code. Those of floating-point numbers do not, so that the text has to ask for it, by the annotation `reassociate` of the
loop, of whatever kind and extent. The order is then a fixed one: lane by lane over the vectors of the loop, then the
upper half of the lanes with the lower one, and so on. Other such loops stay serial.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.calls import if_then_else
from mlcc.ir.dtypes import DType
from mlcc.ir.intrinsics import Effect, effect_of
from mlcc.ir.node import walk
from mlcc.ir.tir import Expr, ForKind, Stmt
from mlcc.passes.lowering.aliases import Aliases
from mlcc.passes.lowering.folding import copy_body
from mlcc.passes.lowering.mutator import Body
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.vector_code import LaneVectorizer, NotVectorizable
from mlcc.passes.lowering.vector_legality import REASSOCIATE, mentions

_OPERATORS = (tir.Add, tir.Mul, tir.Min, tir.Max)


@dataclass(frozen=True, slots=True)
class Reduction:
    """The update `buffer[index] = buffer[index] op value`; `first` runs before it in the first iteration."""

    op: type[tir.BinaryOp]
    store: tir.BufferStore
    value: Expr
    first: Body

    @property
    def dtype(self) -> DType:
        return self.store.buffer.dtype

    def combined(self, a: Expr, b: Expr) -> Expr:
        return self.op(a.dtype, a, b)

    def into(self, value: Expr) -> Stmt:
        """Return the statement that combines a scalar into the element."""
        old = tir.BufferLoad(self.dtype, self.store.buffer, self.store.indices)
        return tir.BufferStore(self.store.buffer, self.combined(old, value), self.store.indices, span=self.store.span)


def find_reduction(loop: tir.For, aliases: Aliases, reassociate: bool = False) -> Reduction | None:
    """Return the reduction in the body of a loop over lanes if it may be reassociated, else None.

    `reassociate`: reductions of floats may be reassociated too.
    """
    reassociate = reassociate or bool(loop.annotations.get(REASSOCIATE))
    if loop.kind is not ForKind.VECTORIZED and not loop.annotations.get(REASSOCIATE):
        return None
    first, body = _first_iteration(loop)
    if first and tir.const_int(loop.extent) is None:  # there may be no first iteration
        return None
    condition: Expr | None = None
    match body:
        case (tir.IfThenElse(condition=condition, then_body=(tir.BufferStore() as store,), else_body=None),):
            pass
        case (tir.BufferStore() as store,):
            pass
        case _:
            return None
    if not isinstance(store.value, _OPERATORS) or store.buffer.dtype.lanes > 1:
        return None
    value = _reduced_value(store)
    dtype = store.buffer.dtype
    exact = dtype.is_int or dtype.is_uint
    if value is None or not (exact or (dtype.is_float and reassociate)):
        return None
    if mentions(store.indices[0], {loop.var}) or not _is_independent(store, value, condition, aliases):
        return None
    reduction = Reduction(type(store.value), store, value, first)
    if condition is not None:
        value = if_then_else(condition, value, _identity(reduction.op, dtype))
        reduction = Reduction(reduction.op, store, value, first)
    return reduction


def _first_iteration(loop: tir.For) -> tuple[Body, Body]:
    """Split the body of a loop into the statements of the first iteration only and the rest."""
    match loop.body:
        case (
            tir.IfThenElse(condition=tir.EQ(lhs=tir.Var() as var, rhs=start), then_body=first, else_body=None),
            *rest,
        ):
            known = tir.const_int(start)
            if var is loop.var and known is not None and known == tir.const_int(loop.min):
                return copy_body(first, {var: loop.min}), tuple(rest)
    return (), loop.body


def _reduced_value(store: tir.BufferStore) -> Expr | None:
    """Return x of `B[i] op x` or `x op B[i]`; None for another value."""
    assert isinstance(store.value, tir.BinaryOp)
    analyzer = Analyzer()
    for one, other in ((store.value.lhs, store.value.rhs), (store.value.rhs, store.value.lhs)):
        same = isinstance(one, tir.BufferLoad) and one.buffer is store.buffer
        if same and analyzer.prove_equal(one.indices[0], store.indices[0]):  # type: ignore[attr-defined]
            return other
    return None


def _is_independent(store: tir.BufferStore, value: Expr, condition: Expr | None, aliases: Aliases) -> bool:
    """Return True if the reduced values are loaded from memory other than the accumulator, without side effects."""
    root = aliases.of(store.buffer.data).root
    for node in (n for part in (value, condition, store.indices[0]) if part is not None for n in walk(part)):
        if isinstance(node, tir.BufferLoad) and aliases.of(node.buffer.data).root in (root, None):
            return False
        if isinstance(node, tir.Call) and effect_of(node) > Effect.READ:
            return False
    return root is not None


def _identity(op: type[tir.BinaryOp], dtype: DType) -> Expr:
    if op is tir.Add or op is tir.Mul:
        return c.const(0 if op is tir.Add else 1, dtype)
    if dtype.is_float:
        return c.const(float("-inf") if op is tir.Max else float("inf"), dtype)
    return c.min_value(dtype) if op is tir.Max else c.max_value(dtype)


def reduce_in_vectors(loop: tir.For, reduction: Reduction, analyzer: Analyzer, options: LowerOptions) -> list[Stmt]:
    """Return the loop as vector code. Raises NoVectorForm."""
    extent = tir.const_int(loop.extent)
    most = options.lanes_for(loop.body)
    width = most if extent is None else min(extent, most)
    if width < 2:
        raise NotVectorizable

    def lanes(start: Expr, count: int, value: Expr) -> Expr:
        vector = LaneVectorizer(loop.var, start, count, analyzer, options).expr(value)
        return vector if vector.dtype.lanes == count else tir.Broadcast(vector.dtype.with_lanes(count), vector, count)

    statements: list[Stmt] = list(reduction.first)
    if extent == width:
        return statements + _horizontal_reduction(reduction, lanes(loop.min, width, reduction.value))
    chunks = c.floordiv(loop.extent, width)
    statements += _accumulate_lanes(loop, reduction, width, chunks, analyzer, lanes)
    start = c.add(loop.min, c.mul(chunks, width))
    if extent is None:
        return statements + _tail(loop, reduction, width, start, lanes)
    if extent % width == 1:
        statements += copy_body((reduction.into(reduction.value),), {loop.var: start})
    elif extent % width:
        statements += _horizontal_reduction(reduction, lanes(start, extent % width, reduction.value))
    return statements


def _tail(
    loop: tir.For, reduction: Reduction, width: int, start: Expr, lanes: Callable[[Expr, int, Expr], Expr]
) -> list[Stmt]:
    """Return the tail of a loop of symbolic extent: one masked vector if possible, else a scalar loop."""
    end = c.add(loop.min, loop.extent)
    value = if_then_else(c.less(loop.var, end), reduction.value, _identity(reduction.op, reduction.dtype))
    try:
        body = tuple(_horizontal_reduction(reduction, lanes(start, width, value)))
    except NotVectorizable:
        var = tir.Var(loop.var.name, loop.var.dtype)
        one = copy_body((reduction.into(reduction.value),), {loop.var: var})
        return [tir.For(var, start, c.sub(end, start), ForKind.SERIAL, one, span=loop.span)]
    return [tir.IfThenElse(c.less(start, end), body, span=loop.span)]


def _accumulate_lanes(
    loop: tir.For, reduction: Reduction, width: int, chunks: Expr, analyzer: Analyzer,
    lanes: Callable[[Expr, int, Expr], Expr],
) -> list[Stmt]:  # fmt: skip
    """Return the loop that accumulates by lane in a vector, and the statements that reduce that vector."""
    dtype = reduction.dtype
    sums = c.make_buffer(f"{reduction.store.buffer.name}_lanes", (width,), dtype, "local")
    all_lanes = tir.Ramp(DType.of("int32").with_lanes(width), c.const(0), c.const(1), width)
    wide = dtype.with_lanes(width)
    old = tir.BufferLoad(wide, sums, (all_lanes,))
    chunk = tir.Var(f"{loop.var.name}_v", loop.var.dtype)
    zero, count = c.const(0, chunk.dtype), c.cast(chunk.dtype, chunks)
    analyzer.bind(chunk, tir.Range(zero, count))
    value = lanes(c.add(loop.min, c.mul(chunk, width)), width, reduction.value)
    start = tir.Broadcast(wide, _identity(reduction.op, dtype), width)
    update = tir.BufferStore(sums, reduction.combined(old, value), (all_lanes,), span=reduction.store.span)
    return [
        tir.AllocBuffer(sums),
        tir.BufferStore(sums, start, (all_lanes,)),
        tir.For(chunk, zero, count, ForKind.SERIAL, (update,), span=loop.span),
        *_horizontal_reduction(reduction, old),
    ]


def _horizontal_reduction(reduction: Reduction, value: Expr) -> list[Stmt]:
    """Return a horizontal reduction: upper half of the lanes with lower half, then into the element."""
    if value.dtype.element is not reduction.dtype:
        raise NotVectorizable
    statements: list[Stmt] = []
    odd: list[Expr] = []
    while (count := value.dtype.lanes) > 1:
        var = tir.Var("lanes", value.dtype)
        statements.append(tir.Bind(var, value))
        half = count // 2
        if count % 2:
            odd.append(_extract_lanes(var, count - 1, 1))
        value = reduction.combined(_extract_lanes(var, 0, half), _extract_lanes(var, half, half))
    for lane in odd:
        value = reduction.combined(value, lane)
    return [*statements, reduction.into(value)]


def _extract_lanes(vector: tir.Var, start: int, count: int) -> Expr:
    dtype = vector.dtype.element.with_lanes(count)
    return tir.Shuffle(dtype, (vector,), tuple(c.const(i) for i in range(start, start + count)))
