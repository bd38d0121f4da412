"""unsafe_compute_in: the arithmetic of a block on narrow floats in wider ones."""

from __future__ import annotations

from typing import Any

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.node import map_children, replace, walk
from mlcc.ir.visit import has_block
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.registry import primitive
from mlcc.passes.schedule.state import BlockRef, State
from mlcc.passes.schedule.tree import Rebuild


@primitive()
def unsafe_compute_in(state: State, block: BlockRef, dtype: str) -> None:
    """Compute what a block computes in float16, bfloat16 or 8-bit floats in a wider float: elements are cast as they
    are loaded, and results rounded once, as they are stored, in the place of every operation: they may be more exact.

    Before:  C[vi] = A[vi] * B[vi] + A[vi]                                                       # float16
    After:   C[vi] = T.Cast("float16", T.Cast("float32", A[vi]) * T.Cast("float32", B[vi]) + T.Cast("float32", A[vi]))

    Refused for what is no float of 32 or 64 bits (E0683), for a block with blocks in it (E0643), and where such a
    number becomes an integer, which less rounding may make another one (E0691). TVM has no such primitive.
    """
    old = block.block
    to = DType.of(dtype) if dtype in ("float32", "float64") else None
    if to is None:
        raise Refusal("E0683", f"{dtype!r} is no wide float", help='"float32" or "float64"')
    if has_block(old.body) or has_block(old.init or ()):
        raise Refusal("E0643", f"block `{old.name}` holds other blocks, and only the innermost ones compute", old)
    for node in walk((*old.body, *(old.init or ()))):
        if isinstance(node, tir.Cast) and is_narrow(node.value.dtype) and not node.dtype.is_float:
            raise Refusal("E0691", f"block `{old.name}` makes {node.dtype} of {node.value.dtype}: `{node}`", old)
    wide = _Wide(to)
    body, init = wide.body(old.body), None if old.init is None else wide.body(old.init)
    edit = Rebuild(block.tree)
    edit.put_block(old, replace(old, body=body, init=init))
    state.update(block.func_name, edit)


def is_narrow(dtype: DType) -> bool:
    """A float of less than 32 bits."""
    return dtype.is_float and dtype.bits < 32


class _Wide:
    """Statements with narrow floats computed in `to`."""

    def __init__(self, to: DType) -> None:
        self._to = to
        self._values: dict[tir.Var, tir.Var] = {}

    def body(self, body: tuple[tir.Stmt, ...]) -> tuple[tir.Stmt, ...]:
        return tuple(map(self._stmt, body))

    def _stmt(self, stmt: Any) -> Any:
        match stmt:
            case tir.BufferStore(value=value):
                return replace(stmt, value=self._narrow(value), indices=tuple(map(self._expr, stmt.indices)))
            case tir.Bind(var=var, value=value) if is_narrow(var.dtype):
                wide = self._values[var] = tir.Var(var.name, self._as(var.dtype))
                return replace(stmt, var=wide, value=self._wide(value))
            case tir.Stmt():
                return map_children(stmt, lambda n: self._stmt(n) if isinstance(n, tir.Stmt) else self._expr(n))
        return stmt

    def _as(self, dtype: DType) -> DType:
        return self._to.with_lanes(dtype.lanes)

    def _narrow(self, node: tir.Expr) -> tir.Expr:
        """A value of its own type, with what it is made of computed in the wide one."""
        if not is_narrow(node.dtype):
            return self._expr(node)  # type: ignore[no-any-return]
        if isinstance(node, (tir.BufferLoad, tir.FloatImm)) or (isinstance(node, tir.Var) and node not in self._values):
            return self._expr(node)  # type: ignore[no-any-return]
        return tir.Cast(node.dtype, self._wide(node))

    def _expr(self, node: Any) -> Any:
        """An expression of another type than a narrow float, or one that is left as it is."""
        match node:
            case tir.Cast(dtype=dtype, value=value) if is_narrow(value.dtype):
                inner = self._wide(value)
                return inner if inner.dtype is dtype else replace(node, value=inner)
            case tir.CompareOp(lhs=lhs, rhs=rhs) if is_narrow(lhs.dtype):
                return replace(node, lhs=self._wide(lhs), rhs=self._wide(rhs))
            case tir.Call(args=args) if any(isinstance(a, tir.Expr) and is_narrow(a.dtype) for a in args) and (
                not is_narrow(node.dtype)
            ):
                keep = isinstance(node.op, tir.Op) and node.op.name in _TESTS
                return replace(node, args=tuple(self._wide(a) if keep else self._narrow(a) for a in args))
            case tir.Var() | tir.Buffer() | tir.Op():
                return node
        return map_children(node, lambda n: self._narrow(n) if isinstance(n, tir.Expr) else n)

    def _wide(self, node: tir.Expr) -> tir.Expr:
        """The value of a narrow expression, in the wide type and without the roundings on the way."""
        to = self._as(node.dtype)
        if not is_narrow(node.dtype):
            return self._expr(node)  # type: ignore[no-any-return]
        match node:
            case tir.FloatImm(value=value):
                return c.const(value, to)
            case tir.Var() if node in self._values:
                return self._values[node]
            case tir.Cast(value=value):
                inner = self._expr(value) if not is_narrow(value.dtype) else self._wide(value)
                return inner if inner.dtype is to else tir.Cast(to, inner)
            case tir.BinaryOp(lhs=lhs, rhs=rhs):
                return replace(node, dtype=to, lhs=self._wide(lhs), rhs=self._wide(rhs))  # type: ignore[no-any-return]
            case tir.Select(condition=condition, true_value=one, false_value=other):
                return tir.Select(to, self._expr(condition), self._wide(one), self._wide(other))
            case tir.Broadcast(value=value, lanes=lanes):
                return tir.Broadcast(to, self._wide(value), lanes)
            case tir.Let(var=var, value=value, body=body) if is_narrow(var.dtype):
                wide = self._values[var] = tir.Var(var.name, self._as(var.dtype))
                return tir.Let(to, wide, self._wide(value), self._wide(body))
            case tir.Call(op=tir.Op(name="tir.if_then_else"), args=(condition, one, other)):
                return replace(node, dtype=to, args=(self._expr(condition), self._wide(one), self._wide(other)))  # type: ignore[no-any-return]
            case tir.Call(op=tir.Op(name=name), args=args) if name in _MATH:
                return replace(node, dtype=to, args=tuple(self._wide(a) for a in args))  # type: ignore[no-any-return]
        return tir.Cast(to, self._expr(node))


_TESTS = frozenset(("tir.isnan", "tir.isinf", "tir.isfinite"))
_MATH = frozenset(
    f"tir.{name}"
    for name in (
        "exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan", "asin", "acos",
        "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "sigmoid", "floor", "ceil", "trunc", "round",
        "nearbyint", "fabs", "abs", "pow", "atan2", "hypot", "copysign", "fmod", "fma",
    )
)  # fmt: skip
