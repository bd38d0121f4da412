"""TensorIR expressions as Python closures over a `State`.

Inside a region a value has one leading axis per vectorized loop, or is a NumPy scalar if it does not depend on them.
A vector value has one more axis at the end, for its lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mlcc.errors import CallError, error
from mlcc.interp import arithmetic
from mlcc.interp.arithmetic import Value
from mlcc.interp.memory import Pointer
from mlcc.interp.state import State
from mlcc.interp.strided_views import forms_of
from mlcc.ir import relax, tir
from mlcc.ir.tir import Expr

CompiledExpr = Callable[[State], Any]


def unsupported(what: str, node: Any) -> CallError:
    """Return an error for code that only runs on another machine, or that is unknown."""
    return CallError(error("E0872", f"the interpreter cannot run {what}", getattr(node, "span", None)))


class ExprCompiler:
    """Turns expressions into closures; each node once."""

    def __init__(self) -> None:
        self._memo: dict[int, tuple[Any, CompiledExpr]] = {}
        self._rules: dict[type, Callable[[Any], CompiledExpr]] = {
            tir.Var: self._var, tir.IntImm: self._number, tir.FloatImm: self._number, tir.StringImm: self._string,
            tir.Cast: self._cast, tir.And: self._and, tir.Or: self._or, tir.Not: self._not, tir.Select: self._select,
            tir.Ramp: self._ramp, tir.Broadcast: self._broadcast, tir.Shuffle: self._shuffle, tir.Let: self._let,
            tir.BufferLoad: self._load, tir.Call: self._call,
        }  # fmt: skip

    def expr(self, node: Expr) -> CompiledExpr:
        """The closure of an expression."""
        memoized = self._memo.get(id(node))
        if memoized is not None:
            return memoized[1]
        rule = self._rules.get(type(node))
        if rule is not None:
            closure = rule(node)
        elif isinstance(node, tir.BinaryOp):
            closure = self._binary(node)
        else:
            raise unsupported(f"`{type(node).__name__}`", node)
        self._memo[id(node)] = (node, closure)
        return closure

    def exprs(self, nodes: tuple[Expr, ...]) -> list[CompiledExpr]:
        return [self.expr(n) for n in nodes]

    # ------------------------------------------------------------ leaves

    def _var(self, node: tir.Var) -> CompiledExpr:
        def value(s: State) -> Value:
            try:
                return s.values[node]
            except KeyError:
                s.fault("E0872", f"`{node.name}` has no value", node)

        return value

    def _number(self, node: tir.IntImm | tir.FloatImm) -> CompiledExpr:
        constant = arithmetic.constant(node.value, node.dtype)
        return lambda s: constant

    def _string(self, node: tir.StringImm) -> CompiledExpr:
        return lambda s: node.value

    # ------------------------------------------------------------ operators

    def _binary(self, node: tir.BinaryOp) -> CompiledExpr:
        a, b = self.expr(node.lhs), self.expr(node.rhs)
        rule = arithmetic.binary(type(node), node.lhs.dtype)
        return lambda s: rule(a(s), b(s))

    def _cast(self, node: tir.Cast) -> CompiledExpr:
        value = self.expr(node.value)
        rule = arithmetic.cast(node.dtype, node.value.dtype)
        return lambda s: rule(value(s))

    def _not(self, node: tir.Not) -> CompiledExpr:
        value = self.expr(node.value)
        return lambda s: np.logical_not(value(s))

    def _and(self, node: tir.And) -> CompiledExpr:
        a, b = self.expr(node.lhs), self.expr(node.rhs)
        wide = node.dtype.lanes > 1

        def value(s: State) -> Value:
            left = a(s)
            if not isinstance(left, np.ndarray):
                return b(s) if left else left
            if wide:
                return np.logical_and(left, b(s))
            with s.masked(left) as some:
                return np.logical_and(left, b(s)) if some else np.zeros_like(left)

        return value

    def _or(self, node: tir.Or) -> CompiledExpr:
        a, b = self.expr(node.lhs), self.expr(node.rhs)
        wide = node.dtype.lanes > 1

        def value(s: State) -> Value:
            left = a(s)
            if not isinstance(left, np.ndarray):
                return left if left else b(s)
            if wide:
                return np.logical_or(left, b(s))
            with s.masked(~left) as some:
                return np.logical_or(left, b(s)) if some else left

        return value

    def choice(self, condition: Expr, yes: Expr, no: Expr) -> CompiledExpr:
        """Select between two values, for each vectorized iteration and lane by its own condition."""
        if condition.dtype.lanes > 1:
            return self._choice_by_lane(condition, yes, no)
        test, a, b = self.expr(condition), self.expr(yes), self.expr(no)
        wide = yes.dtype.lanes > 1

        def value(s: State) -> Value:
            chosen = test(s)
            if not isinstance(chosen, np.ndarray):
                return a(s) if chosen else b(s)
            with s.masked(chosen) as some:
                left = a(s) if some else None
            if left is None:  # outside of that mask, under which nothing is active
                return b(s)
            with s.masked(~chosen) as some:
                if not some:
                    return left
                right = b(s)
            return np.where(chosen[..., None] if wide else chosen, left, right)

        return value

    def _choice_by_lane(self, condition: Expr, yes: Expr, no: Expr) -> CompiledExpr:
        test, a, b = self.expr(condition), self.expr(yes), self.expr(no)

        def value(s: State) -> Value:
            chosen = np.asarray(test(s))
            with s.lane_masked(chosen) as some:
                left = a(s) if some else None
            with s.lane_masked(~chosen) as some:
                right = b(s) if some else left
            return np.where(chosen, right if left is None else left, right)

        return value

    def _select(self, node: tir.Select) -> CompiledExpr:
        if node.condition.dtype.lanes == 1:
            return self.choice(node.condition, node.true_value, node.false_value)
        test, a, b = self.expr(node.condition), self.expr(node.true_value), self.expr(node.false_value)
        return lambda s: np.where(test(s), a(s), b(s))

    def _let(self, node: tir.Let) -> CompiledExpr:
        value, body, var = self.expr(node.value), self.expr(node.body), node.var

        def run(s: State) -> Value:
            s.values[var] = copy_if_view(value(s))
            return body(s)

        return run

    # ------------------------------------------------------------ vectors

    def _ramp(self, node: tir.Ramp) -> CompiledExpr:
        base, stride = self.expr(node.base), self.expr(node.stride)
        steps = np.arange(node.lanes).astype(arithmetic.carrier(node.dtype))
        return lambda s: np.asarray(base(s))[..., None] + np.asarray(stride(s))[..., None] * steps

    def _broadcast(self, node: tir.Broadcast) -> CompiledExpr:
        value, lanes = self.expr(node.value), node.lanes

        def run(s: State) -> Value:
            column = np.asarray(value(s))[..., None]
            return np.broadcast_to(column, (*column.shape[:-1], lanes))

        return run

    def _shuffle(self, node: tir.Shuffle) -> CompiledExpr:
        vectors = self.exprs(node.vectors)
        single = [v.dtype.lanes == 1 for v in node.vectors]
        indices = [n for i in node.indices if (n := tir.const_int(i)) is not None]
        if len(indices) != len(node.indices):
            raise unsupported("a `Shuffle` with indices that are not constants", node)

        def run(s: State) -> Value:
            parts = [
                np.asarray(v(s))[..., None] if one else np.asarray(v(s)) for v, one in zip(vectors, single, strict=True)
            ]
            shape = np.broadcast_shapes(*(p.shape[:-1] for p in parts))
            concatenated = np.concatenate([np.broadcast_to(p, (*shape, p.shape[-1])) for p in parts], axis=-1)
            lanes = concatenated[..., indices]
            return lanes[..., 0] if len(indices) == 1 else lanes

        return run

    # ------------------------------------------------------------ memory

    def _load(self, node: tir.BufferLoad) -> CompiledExpr:
        buffer = node.buffer
        indices, vector = self.indices(node.indices)
        if vector or buffer.dtype.lanes > 1:
            return lambda s: s.load(s.view(buffer, node), indices(s), vector, node)
        closures = self.exprs(node.indices)
        forms = forms_of(node.indices)

        def run(s: State) -> Value:
            view = s.view(buffer, node)
            if s.dims or len(closures) != len(view.shape):
                loaded = s.load_strided(view, forms) if forms is not None and s.dims else None
                return s.load(view, [c(s) for c in closures], False, node) if loaded is None else loaded
            at = view.offset
            for closure, extent, stride in zip(closures, view.shape, view.strides, strict=True):
                index = int(closure(s))
                if not 0 <= index < extent:
                    return s.load(view, [c(s) for c in closures], False, node)  # says what is wrong
                at += index * stride
            storage = view.storage
            if storage.defined is not None and not storage.defined[at]:
                s.fault("E0871", f"`{view.name}` is read where it was never written", node)
            value = view.data[at]
            return arithmetic.from_memory(value, view.dtype)[()] if view.narrow else value

        return run

    def indices(self, nodes: tuple[Expr, ...]) -> tuple[Callable[[State], list[Value]], bool]:
        """The values of indices; with a vector among them, all have the axis of its lanes."""
        closures = self.exprs(nodes)
        wide = [n.dtype.lanes > 1 for n in nodes]
        if not any(wide):
            return (lambda s: [c(s) for c in closures]), False

        def run(s: State) -> list[Value]:
            values = []
            for closure, lanes in zip(closures, wide, strict=True):
                value = closure(s)
                values.append(value[..., None] if not lanes and isinstance(value, np.ndarray) else value)
            return values

        return run, True

    # ------------------------------------------------------------ calls

    def _call(self, node: tir.Call) -> CompiledExpr:
        from mlcc.interp.calls import compile_call

        if isinstance(node.op, relax.GlobalVar):
            return self._function(node)
        if node.op.name == "tir.if_then_else":
            return self.choice(*node.args)
        return compile_call(self, node)

    def _function(self, node: tir.Call) -> CompiledExpr:
        args = self.exprs(node.args)
        name = node.op.name

        def run(s: State) -> Value:
            func = s.functions.get(name)
            if not isinstance(func, tir.PrimFunc):
                s.fault("E0811", f"the module has no TensorIR function `{name}`", node)
            from mlcc.interp.prim_func import call_in_place

            return call_in_place(func, [a(s) for a in args], s, node)

        return run


def copy_if_view(value: Any) -> Any:
    """Copy a value that is used later if it is a window of memory, which may change until then."""
    return value.copy() if isinstance(value, np.ndarray) and value.base is not None else value


def pointer_of(value: Any, s: State, node: Any) -> Pointer:
    """A value of handle type as a place in memory."""
    if not isinstance(value, Pointer):
        s.fault("E0872", "this is not a pointer to a buffer", node)
    return value
