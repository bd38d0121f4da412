"""Multiply by the reciprocal of a divisor that stays the same in a loop, where the divisor allows it.

A correctly rounded division takes about ten instructions of a GPU, of which one is MUFU.RCP. `T.allow_reciprocal`
marks divisors of quotients that may have an error of up to 1.5 units in the last place: those that lowering of
operators makes, whose own bounds are wider (`docs/accuracy.md`).

    a / b = a * scale * (1 / (b * scale))

`scale`, a power of two, keeps b * scale and its reciprocal among the normal numbers, so that the product with a is
exact, or the quotient overflows or underflows anyway. The reciprocal is correctly rounded, an error of at most 2**-24,
and the last product adds half a unit. Zeros, infinities and NaN give what the division gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import FLOAT32, FLOAT64, DType
from mlcc.ir.equal import structural_equal
from mlcc.ir.intrinsics import Effect, effect_of
from mlcc.ir.node import Node, children, find, replace, walk
from mlcc.ir.tir import Expr, ForKind, Stmt
from mlcc.passes.lowering.aliases import Aliases
from mlcc.passes.lowering.effects import memory_accesses
from mlcc.passes.lowering.mutator import Body, TirMutator
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.manage.stages import FLAT

_MARK = tir.Op("tir.allow_reciprocal")
# dtype: exponents of the smallest and the largest divisor whose reciprocal is normal, and the scale below the smallest
_RANGES: Mapping[DType, tuple[int, int, float]] = {FLOAT32: (-126, 126, 2.0**24), FLOAT64: (-1022, 1022, 2.0**53)}
_LARGE_SCALE = 0.25
_MANY = 2  # quotients from which on a reciprocal pays


def share_reciprocals(func: tir.PrimFunc) -> tir.PrimFunc:
    """Share the reciprocals of divisors in the loops of `func`, flat loop code without barriers of its own making."""
    if not any(n.op == _MARK for s in func.body for n in find(s, tir.Call)):
        return func
    return replace(func, body=_Sharing(func.body).body(func.body))


@dataclass(frozen=True, slots=True, eq=False)
class _Reciprocal:
    """A divisor, and the variables of its scale and of the reciprocal of their product."""

    divisor: Expr
    scale: tir.Var
    inverse: tir.Var


@dataclass(frozen=True, slots=True, eq=False)
class _Quotient:
    """A division in a loop: its divisor, how often it is computed at least, and whether it certainly is."""

    divisor: Expr
    count: int
    certain: bool


class _Sharing(TirMutator):
    def __init__(self, body: Body) -> None:
        self._aliases = Aliases()
        for node in find(body, tir.DeclBuffer):
            self._aliases.bind(node.buffer.data, node.data)
        self._shared: list[_Reciprocal] = []

    def expr_binary(self, node: tir.BinaryOp) -> Expr:
        node = super().expr_binary(node)  # type: ignore[assignment]
        divisor = _marked_divisor(node)
        shared = None if divisor is None else self._find(divisor)
        return node if shared is None else c.mul(c.mul(node.lhs, shared.scale), shared.inverse)

    def stmt_for(self, node: tir.For) -> Stmt | list[Stmt]:
        if node.kind is ForKind.THREAD_BINDING:
            return super().stmt_for(node)
        before: list[Stmt] = []
        outer = len(self._shared)
        counts: list[tuple[Expr, int, bool]] = []
        for quotient in _quotients((node,), 1, True):
            same = next((n for n, one in enumerate(counts) if structural_equal(one[0], quotient.divisor)), None)
            if same is None:
                counts.append((quotient.divisor, quotient.count, quotient.certain))
            else:
                _, count, certain = counts[same]
                counts[same] = (quotient.divisor, count + quotient.count, certain or quotient.certain)
        for divisor, count, certain in counts:
            if count >= _MANY and self._find(divisor) is None and self._is_invariant(divisor, node, certain):
                before += self._share(divisor)
        loop = super().stmt_for(node)
        del self._shared[outer:]
        return [*before, *(loop if isinstance(loop, list) else [loop])]

    def _find(self, divisor: Expr) -> _Reciprocal | None:
        return next((one for one in self._shared if structural_equal(one.divisor, divisor)), None)

    def _share(self, divisor: Expr) -> list[Stmt]:
        """Return the statements that compute a reciprocal, for the divisions that follow."""
        dtype = divisor.dtype
        least, most, small_scale = _RANGES[dtype]
        size = c.call(dtype, "fabs", divisor)
        scale = tir.Select(
            dtype, c.less(c.const(2.0**most, dtype), size), c.const(_LARGE_SCALE, dtype),
            tir.Select(
                dtype, c.less(size, c.const(2.0**least, dtype)), c.const(small_scale, dtype), c.const(1.0, dtype)
            ),
        )  # fmt: skip
        made = _Reciprocal(divisor, tir.Var("scale", dtype), tir.Var("reciprocal", dtype))
        self._shared.append(made)
        inverse = c.div(c.const(1.0, dtype), c.mul(divisor, made.scale))
        return [tir.Bind(made.scale, scale), tir.Bind(made.inverse, inverse)]

    def _is_invariant(self, divisor: Expr, loop: tir.For, certain: bool) -> bool:
        """Return True if a divisor has one value in all iterations, and may be computed before the first.

        It may be if it is `certain` to be computed, or is read from fixed places of a thread's own memory.
        """
        bound = {loop.var, *(n.var for n in find(loop.body, tir.For, tir.Bind, tir.Let))}
        loads = [n for n in walk(divisor) if isinstance(n, tir.BufferLoad)]
        if any(n in bound for n in walk(divisor)) or any(
            effect_of(n) is not Effect.PURE for n in walk(divisor) if isinstance(n, tir.Call)
        ):
            return False
        roots = {self._aliases.of(n.buffer.data).root for n in loads}
        written = {self._aliases.of(a.data).root for a in memory_accesses(loop.body) if a.writes}
        if None in roots or None in written or roots & written:
            return False
        allocated = {n.buffer.data for n in find(loop.body, tir.AllocBuffer)}
        private = all(
            n.buffer.scope == "local" and n.buffer.data not in allocated and all(map(_is_constant, n.indices))
            for n in loads
        )
        return private or (certain and not roots & allocated and not _synchronizes(loop.body))


def _marked_divisor(node: Expr) -> Expr | None:
    """Return the divisor of a scalar division that may become a product."""
    match node:
        case tir.Div(dtype=dtype, rhs=tir.Call(op=op, args=(divisor,))) if op == _MARK and dtype in _RANGES:
            return divisor
    return None


def _quotients(root: tuple[Node, ...], count: int, certain: bool) -> Iterator[_Quotient]:
    """Yield the divisions below nodes that are computed `count` times, in order."""
    for node in root:
        inner, is_certain = count, certain
        match node:
            case tir.For(extent=extent):
                trips = tir.const_int(extent)
                inner, is_certain = count * (_MANY if trips is None else trips), certain and bool(trips and trips > 0)
            case tir.IfThenElse() | tir.While() | tir.Select() | tir.And() | tir.Or():
                is_certain = False
            case tir.Call(op=tir.Op(name="tir.if_then_else")):
                is_certain = False
            case tir.Div():
                divisor = _marked_divisor(node)
                if divisor is not None:
                    yield _Quotient(divisor, count, certain)
        yield from _quotients(tuple(children(node)), inner, is_certain)


def _is_constant(index: Expr) -> bool:
    return tir.const_int(index) is not None


def _synchronizes(body: Body) -> bool:
    """Return True if statements have effects beyond their stores, such as barriers."""
    return any(effect_of(n) >= Effect.UPDATE for n in find(body, tir.Call))


@dataclass(frozen=True)
class ShareReciprocals(LoweringStep):
    """Quotients by a divisor that allows it, and stays the same in a loop, become products with its reciprocal.

    Before:  for i in range(4): B[i] = A[i] / T.allow_reciprocal(S[0])
    After:   scale: T.float32 = ... (1 for divisors that are neither tiny nor huge)
             reciprocal: T.float32 = T.float32(1) / (S[0] * scale)
             for i in range(4): B[i] = A[i] * scale * reciprocal
    """

    name: ClassVar[str] = "share-reciprocals"
    takes: ClassVar[str] = FLAT
    gives: ClassVar[str] = FLAT

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return share_reciprocals(func)
