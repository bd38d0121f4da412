"""Vectorization of one loop: the loop variable becomes a ramp of lanes, and values computed from it become vectors."""

from __future__ import annotations

import dataclasses

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.conditions import conjunct_operands
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.checked_index import CheckedIndex, checked_index
from mlcc.ir.dtypes import BOOL
from mlcc.ir.intrinsics import called
from mlcc.ir.node import Node, children, replace
from mlcc.ir.tir import Expr, ForKind, Stmt
from mlcc.passes.lowering.dot_products import match_dot_product
from mlcc.passes.lowering.folding import copy_body
from mlcc.passes.lowering.mutator import Body, TirMutator
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.vector_legality import mentions


class NotVectorizable(Exception):
    """A statement or expression that differs by lane and has no vector form."""


class LaneVectorizer(TirMutator):
    """Rewrite the body of a loop over `var` to run the `lanes` iterations from `base` on as vectors.

    `analyzer` knows the ranges of outer loops. Raises NoVectorForm if only the serial loop is possible.

    A statement or value under a condition that differs by lane goes under an `if` or `T.if_then_else` with a vector
    condition, a mask: it runs in the lanes where the condition holds, and not at all if it holds in none.
    """

    def __init__(self, var: tir.Var, base: Expr, lanes: int, analyzer: Analyzer, options: LowerOptions) -> None:
        self._options = options
        self._masked = 0  # how many conditions by lane are around
        self._analyzer = analyzer
        self._var = var
        self._base = base
        self._lanes = lanes
        ramp = tir.Ramp(var.dtype.with_lanes(lanes), base, c.const(1, var.dtype), lanes)
        self._vectors: dict[tir.Var, Expr] = {var: ramp}

    # ------------------------------------------------------------ statements

    def body(self, statements: Body) -> Body:
        rewritten: list[Stmt] = []
        local = False  # a binding that differs by lane: later statements cannot be scalarized on their own
        for stmt in statements:
            before = dict(self._vectors)
            try:
                new = self.stmt(stmt)
            except NotVectorizable:
                if local or self._masked:
                    raise
                self._vectors = before
                new = self._scalarize(stmt)
            local = local or (isinstance(stmt, tir.Bind) and stmt.var in self._vectors)
            rewritten.extend(new) if isinstance(new, list) else rewritten.append(new)
        return tuple(rewritten)

    def _scalarize(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, (tir.Bind, tir.DeclBuffer)) or self._uses_vectors(stmt):
            raise NotVectorizable
        lane = tir.Var(self._var.name, self._var.dtype)
        body = copy_body((stmt,), {self._var: lane})
        return tir.For(lane, self._base, c.const(self._lanes, lane.dtype), ForKind.SERIAL, body, span=stmt.span)

    def _uses_vectors(self, stmt: Stmt) -> bool:
        return mentions(stmt, {v for v in self._vectors if v is not self._var})

    def stmt_bind(self, node: tir.Bind) -> Stmt:
        value = self.expr(node.value)
        if value.dtype.lanes == node.value.dtype.lanes:
            return replace(node, value=value)
        var = tir.Var(node.var.name, value.dtype)
        self._vectors[node.var] = var
        return tir.Bind(var, value, span=node.span)

    def stmt_store(self, node: tir.BufferStore) -> Stmt:
        value, index = self.expr(node.value), self.index(node.indices[0])
        if index.dtype.lanes != self._lanes or node.buffer.dtype.lanes > 1:
            raise NotVectorizable
        self._check_mask(node.buffer)
        return tir.BufferStore(node.buffer, self._broadcast(value), (index,), span=node.span)

    def stmt_if(self, node: tir.IfThenElse) -> Stmt | list[Stmt]:
        condition = self._condition(node)
        if condition is None:
            return self._nested(node)
        if condition.dtype.lanes == 1:
            other = None if node.else_body is None else self.body(node.else_body)
            return replace(node, condition=condition, then_body=self.body(node.then_body), else_body=other)
        everywhere = _for_all_lanes(condition)
        masked = self._masked_branch(node, condition)
        if masked is not None and (everywhere is None or self._options.cheap_masks):
            return masked
        if everywhere is None:
            raise NotVectorizable
        rest = masked or self._scalarize(node)
        return tir.IfThenElse(everywhere, self.body(node.then_body), (rest,), span=node.span)

    def _condition(self, node: tir.IfThenElse) -> Expr | None:
        """Return the condition of a branch as a vector; None if its parts must be tested one after the other."""
        if node.else_body is not None or len(conjunct_operands(node.condition)) < 2:
            return self.expr(node.condition)
        parts = [self.expr(part) for part in conjunct_operands(node.condition)]
        if len({part.dtype.lanes for part in parts}) > 1 or not all(map(_is_speculatable, parts[1:])):
            return None
        return self.expr(node.condition)

    def _nested(self, node: tir.IfThenElse) -> Stmt | list[Stmt]:
        """Turn `if a and b` into `if a: if b`, with a uniform part first where that is safe."""
        parts = conjunct_operands(node.condition)
        wide = [self.expr(part).dtype.lanes > 1 for part in parts]
        first = next((n for n, part in enumerate(parts) if not wide[n] and (n == 0 or _is_speculatable(part))), 0)
        rest = [part for n, part in enumerate(parts) if n != first]
        inner = tir.IfThenElse(_conjunction(rest), node.then_body, span=node.span)
        return self.stmt_if(tir.IfThenElse(parts[first], (inner,), span=node.span))

    def _masked_branch(self, node: tir.IfThenElse, condition: Expr) -> tir.IfThenElse | None:
        """Return the branch under a mask; None if something in it has no masked form."""
        before = dict(self._vectors)
        self._masked += 1
        try:
            other = None if node.else_body is None else self.body(node.else_body)
            return tir.IfThenElse(condition, self.body(node.then_body), other, span=node.span)
        except NotVectorizable:
            self._vectors = before
            return None
        finally:
            self._masked -= 1

    def _check_mask(self, buffer: tir.Buffer) -> None:
        if self._masked and buffer.dtype.bits not in self._options.mask_bits:
            raise NotVectorizable

    def stmt_for(self, node: tir.For) -> Stmt:
        start, extent = self.expr(node.min), self.expr(node.extent)
        if start.dtype.lanes > 1 or extent.dtype.lanes > 1:
            raise NotVectorizable
        if self._options.dots and not self._masked:
            dot = self._dot(node)
            if dot is not None:
                return dot
        return replace(node, min=start, extent=extent, body=self.body(node.body))

    def _dot(self, node: tir.For) -> Stmt | None:
        """Return the dot instruction for a short loop of products, else None; a uniform condition goes around it."""
        match node.body:
            case (tir.IfThenElse(condition=condition, then_body=inner, else_body=None),) if not mentions(
                condition, {node.var, *self._vectors}
            ) and _is_speculatable(condition):
                dot = self._dot(replace(node, body=inner))
                return None if dot is None else tir.IfThenElse(condition, (dot,), span=node.span)
        try:
            dot = match_dot_product(node, self._var, self._base, self._lanes, self._options.dots, self._over_lanes)
        except NotVectorizable:
            return None
        return None if dot is None or mentions(dot, set(self._vectors)) else dot

    def _over_lanes(self, var: tir.Var, lanes: int, expr: Expr) -> Expr:
        """Return an expression over another variable, in `lanes` lanes from 0 on."""
        return LaneVectorizer(var, c.const(0, var.dtype), lanes, self._analyzer, self._options).expr(expr)

    def stmt_evaluate(self, node: tir.Evaluate) -> Stmt:
        if isinstance(node.value, (tir.IntImm, tir.FloatImm)):
            return node
        raise NotVectorizable

    def stmt_assert(self, node: tir.AssertStmt) -> Stmt:
        if self._masked:
            raise NotVectorizable
        condition = self.expr(node.condition)
        if condition.dtype.lanes > 1:
            raise NotVectorizable
        return replace(node, condition=condition)

    def stmt_decl(self, node: tir.DeclBuffer) -> Stmt:
        if mentions(node.data, set(self._vectors)):
            raise NotVectorizable
        return node

    def stmt_attr(self, node: tir.AttrStmt) -> Stmt:
        return replace(node, body=self.body(node.body))

    def stmt_while(self, node: tir.While) -> Stmt:
        raise NotVectorizable

    def stmt_leaf(self, node: Stmt) -> Stmt:
        raise NotVectorizable

    def stmt_alloc(self, node: tir.AllocBuffer) -> Stmt:
        raise NotVectorizable

    # ------------------------------------------------------------ expressions

    def _broadcast(self, value: Expr) -> Expr:
        if value.dtype.lanes == self._lanes:
            return value
        if value.dtype.lanes != 1:
            raise NotVectorizable
        return tir.Broadcast(value.dtype.with_lanes(self._lanes), value, self._lanes)

    def _with_equal_lanes(self, *values: Expr) -> list[Expr]:
        """Return the values broadcast to one number of lanes."""
        if all(v.dtype.lanes == 1 for v in values):
            return list(values)
        return [self._broadcast(v) for v in values]

    def var(self, node: tir.Var) -> Expr:
        return self._vectors.get(node, node)

    def index(self, node: Expr) -> Expr:
        """Return an index as a vector. Indices do not wrap, so a widened ramp has the same lanes."""
        if isinstance(node, (tir.Add, tir.Sub, tir.Mul)):
            return self._binary(node, self.index(node.lhs), self.index(node.rhs))
        if isinstance(node, tir.Cast) and node.dtype.is_int and node.value.dtype.is_int:
            value = self.index(node.value)
            return _widen_ramp(node, value) if isinstance(value, tir.Ramp) else self._cast(node, value)
        if isinstance(node, (tir.FloorDiv, tir.FloorMod)):
            value, by = self.index(node.lhs), tir.const_int(node.rhs)
            if isinstance(value, tir.Ramp) and by is not None and by > 0:
                return self._divide_ramp(node, value, by)
            return self._binary(node, value, self.expr(node.rhs))
        return self.expr(node)

    def _divide_ramp(self, node: tir.BinaryOp, ramp: tir.Ramp, by: int) -> Expr:
        """Return the quotient or remainder of a ramp by a constant.

        It is a ramp or uniform if the divisor divides the stride, or if all lanes lie between two multiples of it.
        """
        quotient = isinstance(node, tir.FloorDiv)
        first = (c.floordiv if quotient else c.floormod)(ramp.base, by)
        stride = tir.const_int(ramp.stride)
        if stride is not None and stride % by == 0:
            step = c.const(stride // by, ramp.stride.dtype)
            return tir.Ramp(ramp.dtype, first, step, ramp.lanes) if quotient else first
        if stride is not None and stride > 0:
            last = c.add(c.floormod(ramp.base, by), stride * (ramp.lanes - 1))
            if self._analyzer.prove(c.less(last, by)):
                return first if quotient else tir.Ramp(ramp.dtype, first, ramp.stride, ramp.lanes)
        return self._binary(node, ramp, node.rhs)

    def _binary(self, node: tir.BinaryOp, lhs: Expr, rhs: Expr) -> Expr:
        """Return a binary operation of vectors. Sums and multiples of ramps are ramps (modulo the width)."""
        if lhs is node.lhs and rhs is node.rhs:
            return node
        ramp = _ramp(node, lhs, rhs)
        if ramp is not None:
            return ramp
        lhs, rhs = self._with_equal_lanes(lhs, rhs)
        return type(node)(node.dtype.with_lanes(lhs.dtype.lanes), lhs, rhs, span=node.span)

    def expr_binary(self, node: tir.BinaryOp) -> Expr:
        lhs, rhs = self.expr(node.lhs), self.expr(node.rhs)
        lazy = isinstance(node, (tir.And, tir.Or)) and rhs.dtype.lanes * lhs.dtype.lanes > 1
        if lazy and not _is_speculatable(node.rhs):
            known = tir.IntImm(BOOL, int(isinstance(node, tir.Or)))
            true, false = (known, node.rhs) if isinstance(node, tir.Or) else (node.rhs, known)
            return self._if_then_else(
                tir.Call(BOOL, tir.Op("tir.if_then_else"), (node.lhs, true, false), span=node.span)
            )
        if isinstance(node, (tir.FloorDiv, tir.FloorMod)) and isinstance(lhs, tir.Ramp) and self._does_not_wrap(lhs):
            by = tir.const_int(rhs)
            return self._binary(node, lhs, rhs) if by is None or by <= 0 else self._divide_ramp(node, lhs, by)
        return self._uniform_comparison(node, lhs, rhs) or self._binary(node, lhs, rhs)

    def _uniform_comparison(self, node: tir.BinaryOp, lhs: Expr, rhs: Expr) -> Expr | None:
        """Return a comparison as a scalar if it is uniform over the lanes, else None.

        It is if the first lane and the bound are multiples of the span of all lanes.
        """
        if isinstance(node, (tir.LT, tir.GE)):
            ramp, bound = lhs, rhs
        elif isinstance(node, (tir.LE, tir.GT)):
            ramp, bound = rhs, lhs
        else:
            return None
        stride = tir.const_int(ramp.stride) if isinstance(ramp, tir.Ramp) and self._does_not_wrap(ramp) else None
        if stride is None or stride <= 0 or bound.dtype.lanes > 1:
            return None
        reach = stride * self._lanes
        if not all(self._analyzer.prove(c.equal(c.floormod(e, reach), 0)) for e in (ramp.base, bound)):  # type: ignore[attr-defined]
            return None
        first = ramp.base  # type: ignore[attr-defined]
        sides = (first, bound) if ramp is lhs else (bound, first)
        return type(node)(BOOL, *sides, span=node.span)

    def _cast(self, node: tir.Cast, value: Expr) -> Expr:
        if value is node.value:
            return node
        if isinstance(value, tir.Ramp) and node.dtype.kind == "int" and self._does_not_wrap(value):
            return _widen_ramp(node, value)
        return tir.Cast(node.dtype.with_lanes(value.dtype.lanes), value, span=node.span)

    def _does_not_wrap(self, ramp: tir.Ramp) -> bool:
        """Return True if no lane wraps."""
        last = self._analyzer.bound(c.add(ramp.base, c.mul(ramp.stride, ramp.lanes - 1)))
        most = 1 << ramp.dtype.bits - 1
        return ramp.dtype.kind == "int" and -most <= last.min <= last.max < most

    def expr_cast(self, node: tir.Cast) -> Expr:
        return self._cast(node, self.expr(node.value))

    def expr_not(self, node: tir.Not) -> Expr:
        value = self.expr(node.value)
        return node if value is node.value else tir.Not(BOOL.with_lanes(value.dtype.lanes), value, span=node.span)

    def expr_load(self, node: tir.BufferLoad) -> Expr:
        index = self.index(node.indices[0])
        if index is node.indices[0]:
            return node
        lanes = index.dtype.lanes
        if lanes > 1 and node.buffer.dtype.lanes > 1:
            raise NotVectorizable
        if lanes > 1:
            self._check_mask(node.buffer)
        return tir.BufferLoad(
            node.dtype.with_lanes(node.buffer.dtype.lanes * lanes), node.buffer, (index,), span=node.span
        )

    def expr_let(self, node: tir.Let) -> Expr:
        value = self.expr(node.value)
        if value.dtype.lanes == node.value.dtype.lanes:
            body = self.expr(node.body)
            return tir.Let(body.dtype, node.var, value, body, span=node.span)
        var = tir.Var(node.var.name, value.dtype)
        self._vectors[node.var] = var
        body = self.expr(node.body)
        return tir.Let(body.dtype, var, value, body, span=node.span)

    def expr_call(self, node: tir.Call) -> Expr:
        if isinstance(node.op, relax.GlobalVar):
            raise NotVectorizable
        if node.op.name == "tir.if_then_else":
            return self._if_then_else(node)
        check = checked_index(node)
        if check is not None:
            return self._checked(node, check)
        args = tuple(self.expr(a) for a in node.args)
        if called(node).lanewise:
            if all(a.dtype.lanes == 1 for a in args):
                return replace(node, args=args)
            wide = tuple(self._broadcast(a) for a in args)
            return tir.Call(node.dtype.with_lanes(self._lanes), node.op, wide, span=node.span)
        raise NotVectorizable

    def _checked(self, node: tir.Call, check: CheckedIndex) -> Expr:
        index, extent = self.expr(check.index), self.expr(check.extent)
        if extent.dtype.lanes > 1:
            raise NotVectorizable
        if index is check.index and extent is check.extent:
            return node
        checked = dataclasses.replace(check, index=index, extent=extent).call()
        return replace(checked, span=node.span)

    def expr_generic(self, node: Expr) -> Expr:
        if isinstance(node, tir.Select):
            sides = (node.condition, node.true_value, node.false_value)
            return self._if_then_else(tir.Call(node.dtype, tir.Op("tir.if_then_else"), sides, span=node.span))
        if mentions(node, set(self._vectors)):  # vectors inside vectors
            raise NotVectorizable
        return node

    def _if_then_else(self, node: tir.Call) -> Expr:
        """Vectorize `T.if_then_else`: a branch for all lanes, a selection if both sides are safe, else a choice by
        lane.
        """
        condition = self.expr(node.args[0])
        if condition.dtype.lanes == 1:
            true, false = self._with_equal_lanes(*(self.expr(a) for a in node.args[1:]))
            return tir.Call(true.dtype, node.op, (condition, true, false), span=node.span)
        if all(map(_is_speculatable, node.args[1:])):
            true, false = (self._broadcast(self.expr(a)) for a in node.args[1:])
            return tir.Select(true.dtype, condition, true, false, span=node.span)
        self._masked += 1
        try:
            true, false = (self._broadcast(self.expr(a)) for a in node.args[1:])
        finally:
            self._masked -= 1
        return tir.Call(true.dtype, node.op, (condition, true, false), span=node.span)


def _conjunction(parts: list[Expr]) -> Expr:
    conjunction, *rest = parts
    for part in rest:
        conjunction = c.logical_and(conjunction, part)
    return conjunction


def _widen_ramp(node: tir.Cast, ramp: tir.Ramp) -> Expr:
    """Return the cast of a ramp in which no lane wraps."""
    base, stride = c.cast(node.dtype, ramp.base), c.cast(node.dtype, ramp.stride)
    return tir.Ramp(node.dtype.with_lanes(ramp.lanes), base, stride, ramp.lanes)


def _ramp(node: tir.BinaryOp, lhs: Expr, rhs: Expr) -> Expr | None:
    """Return the result as a ramp, or as a scalar if all lanes are equal; None if it is neither."""
    if isinstance(node, tir.Mul):
        for one, other in ((lhs, rhs), (rhs, lhs)):
            if isinstance(one, tir.Ramp) and other.dtype.lanes == 1:
                return tir.Ramp(one.dtype, c.mul(one.base, other), c.mul(one.stride, other), one.lanes)
        return None
    if not isinstance(node, (tir.Add, tir.Sub)):
        return None
    op = c.add if isinstance(node, tir.Add) else c.sub
    if isinstance(lhs, tir.Ramp) and isinstance(rhs, tir.Ramp):
        stride = op(lhs.stride, rhs.stride)
        if tir.const_int(stride) == 0:
            return op(lhs.base, rhs.base)
        return tir.Ramp(lhs.dtype, op(lhs.base, rhs.base), stride, lhs.lanes)
    if isinstance(lhs, tir.Ramp) and rhs.dtype.lanes == 1:
        return tir.Ramp(lhs.dtype, op(lhs.base, rhs), lhs.stride, lhs.lanes)
    if isinstance(rhs, tir.Ramp) and lhs.dtype.lanes == 1:
        stride = rhs.stride if op is c.add else c.negate(rhs.stride)
        return tir.Ramp(rhs.dtype, op(lhs, rhs.base), stride, rhs.lanes)
    return None


def _is_speculatable(node: Expr) -> bool:
    """Return True if evaluating it for inactive lanes cannot fault: no loads, no calls but lane-wise ones."""
    stack: list[Node] = [node]
    while stack:
        top = stack.pop()
        if isinstance(top, tir.BufferLoad):
            return False
        if isinstance(top, tir.Call) and not called(top).lanewise:
            return False
        stack.extend(children(top))
    return True


def _for_all_lanes(condition: Expr) -> Expr | None:
    """Return a scalar condition under which `condition` holds in every lane, or None if none is known."""
    if condition.dtype.lanes == 1:
        return condition
    if isinstance(condition, tir.And):
        lhs, rhs = _for_all_lanes(condition.lhs), _for_all_lanes(condition.rhs)
        return None if lhs is None or rhs is None else c.logical_and(lhs, rhs)
    if isinstance(condition, tir.Call) and condition.op == tir.Op("tir.likely"):
        return _for_all_lanes(condition.args[0])
    if isinstance(condition, tir.Broadcast):
        return condition.value if condition.value.dtype.lanes == 1 else None
    if not isinstance(condition, (tir.LT, tir.LE, tir.GT, tir.GE)):
        return None
    less = isinstance(condition, (tir.LT, tir.LE))
    low, high = (condition.lhs, condition.rhs) if less else (condition.rhs, condition.lhs)
    greatest, least = _extreme_lane(low, True), _extreme_lane(high, False)
    if greatest is None or least is None:
        return None
    compare = c.less if isinstance(condition, (tir.LT, tir.GT)) else c.less_equal
    return compare(greatest, least)


def _extreme_lane(value: Expr, greatest: bool) -> Expr | None:
    """Return the greatest or least lane of a ramp (assumed not to wrap) or broadcast."""
    if not value.dtype.is_int or value.dtype.is_uint or value.dtype.bits < 32:
        return None
    if value.dtype.lanes == 1:
        return value
    if isinstance(value, tir.Broadcast):
        return value.value
    stride = tir.const_int(value.stride) if isinstance(value, tir.Ramp) else None
    if stride is None:
        return None
    assert isinstance(value, tir.Ramp)
    return c.add(value.base, stride * (value.lanes - 1)) if (stride > 0) == greatest else value.base
