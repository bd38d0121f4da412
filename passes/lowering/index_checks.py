"""Insert `T.checked_index` around indices that depend on the contents of a TensorIR function's arguments.

An index is checked if it depends on contents (`data_flow`), unless interval analysis under the conditions around it
proves that it is in bounds. `T.Select(i < 0, i + n, i)` around the index becomes part of the check, so that the error
shows `i` as it is in the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.complete import complete
from mlcc.arith.structural_keys import StructuralKeys
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.checked_index import CheckedIndex
from mlcc.ir.node import Node, children, find, map_children, replace, walk
from mlcc.passes.lowering.data_flow import DataFlow
from mlcc.recursion import deep_recursion

Body = tuple[tir.Stmt, ...]


@dataclass(frozen=True)
class IndexRule:
    """How to check the data-dependent indices of an operator, which error messages call `where`.

    `from_end`: negative indices count from the end. `wraps`: the code wraps the index around (`i % n`), so its operand
    `i` is checked. `inputs` are the data variables of buffers whose contents are known only at the call, `known` has
    the least and greatest elements of constant buffers. `scalars`: scalar parameters that are not extents count as
    contents. Without `checked`, negative indices are normalized, and nothing is checked.
    """

    where: str
    inputs: frozenset[tir.Var]
    from_end: bool = False
    wraps: bool = False
    known: Mapping[tir.Var, tuple[int, int]] | None = None
    scalars: bool = True
    checked: bool = True


def with_index_checks(func: tir.PrimFunc, rule: IndexRule) -> tir.PrimFunc:
    """Return `func` with the bounds checks it needs; `func` itself if it needs none."""
    with deep_recursion():
        checker = _CheckInserter(rule, DataFlow(func, rule.inputs, rule.scalars))
        if not any(checker.has_checked_access(stmt) for stmt in func.body):
            return func
        body = checker.body(func.body)
        if not checker.inserted:
            return func
        return complete(replace(func, body=body))


class _CheckInserter:
    def __init__(self, rule: IndexRule, flow: DataFlow) -> None:
        self.inserted = False
        self._rule = rule
        self._flow = flow
        self._analyzer = Analyzer()
        self._has_access: dict[int, tuple[Node, bool]] = {}

    def has_checked_access(self, node: Node) -> bool:
        """Return True if the node contains an access with a data-dependent index."""
        cached = self._has_access.get(id(node))
        if cached is None:
            found = isinstance(node, (tir.BufferLoad, tir.BufferStore)) and any(map(self._flow.depends, node.indices))
            cached = self._has_access[id(node)] = (node, found or any(map(self.has_checked_access, children(node))))
        return cached[1]

    # ------------------------------------------------------------ statements

    def body(self, body: Body) -> Body:
        return tuple(map(self._stmt, body))

    def _stmt(self, stmt: tir.Stmt) -> tir.Stmt:
        if isinstance(stmt, tir.Bind):
            bound = self._analyzer.bound(stmt.value) if stmt.value.dtype.is_int else None
            binding = replace(stmt, value=self._expr(stmt.value))
            if bound is not None:
                self._analyzer.bind_bound(stmt.var, *bound)
            return binding
        if not self.has_checked_access(stmt):
            return stmt
        match stmt:
            case tir.For(var=var, min=low, extent=extent):
                start, count = self._expr(low), self._expr(extent)
                if stmt.step is None:
                    self._analyzer.bind(var, tir.Range(low, extent))
                return replace(stmt, min=start, extent=count, body=self.body(stmt.body))
            case tir.IfThenElse(condition=condition, then_body=then, else_body=other):
                new_condition = self._expr(condition)
                then = self._visit_under(condition, then, self.body)
                if other is not None:
                    other = self._visit_under(negated(condition), other, self.body)
                return replace(stmt, condition=new_condition, then_body=then, else_body=other)
            case tir.While(condition=condition, body=inner):
                return replace(
                    stmt, condition=self._expr(condition), body=self._visit_under(condition, inner, self.body)
                )
            case tir.BlockRealize():
                return self._realize(stmt)
            case tir.BufferStore(buffer=buffer, value=value, indices=indices):
                checked_indices = self._checked_indices(buffer, indices)
                return replace(stmt, value=self._expr(value), indices=checked_indices)
            case tir.AttrStmt() | tir.Evaluate() | tir.AssertStmt():
                return map_children(stmt, lambda n: self._stmt(n) if isinstance(n, tir.Stmt) else self._any(n))
        return stmt

    def _realize(self, stmt: tir.BlockRealize) -> tir.Stmt:
        block = stmt.block
        for axis in block.iter_vars:
            self._analyzer.bind(axis.var, axis.dom)
        body = self._visit_under(stmt.predicate, block.body, self.body)
        init = None if block.init is None else self.body(block.init)
        regions = (*(block.reads or ()), *(block.writes or ()))
        depends_on_data = any(isinstance(n, tir.BufferLoad) for r in regions for span in r.region for n in walk(span))
        inferred = {"reads": None, "writes": None} if depends_on_data else {}
        return replace(stmt, block=replace(block, body=body, init=init, **inferred))

    # ------------------------------------------------------------ expressions

    def _any(self, node: Node) -> Node:
        return self._expr(node) if isinstance(node, tir.Expr) else node

    def _expr(self, node: tir.Expr) -> tir.Expr:
        if not self.has_checked_access(node):
            return node
        match node:
            case tir.BufferLoad(buffer=buffer, indices=indices):
                return replace(node, indices=self._checked_indices(buffer, indices))
            case tir.Call(op=tir.Op(name="tir.if_then_else"), args=(condition, yes, no)):
                return replace(node, args=self._choice(condition, yes, no))
            case tir.Select(condition=condition, true_value=yes, false_value=no):
                condition, yes, no = self._choice(condition, yes, no)
                return replace(node, condition=condition, true_value=yes, false_value=no)
            case tir.And(lhs=lhs, rhs=rhs):
                return replace(node, lhs=self._expr(lhs), rhs=self._visit_under(lhs, rhs, self._expr))
            case tir.Or(lhs=lhs, rhs=rhs):
                return replace(node, lhs=self._expr(lhs), rhs=self._visit_under(negated(lhs), rhs, self._expr))
            case tir.Call(op=tir.Op(name="tir.checked_index")):
                return node
        return map_children(node, self._any)

    def _choice(self, condition: tir.Expr, yes: tir.Expr, no: tir.Expr) -> tuple[tir.Expr, tir.Expr, tir.Expr]:
        new_condition = self._expr(condition)
        return (
            new_condition,
            self._visit_under(condition, yes, self._expr),
            self._visit_under(negated(condition), no, self._expr),
        )

    def _visit_under(self, condition: tir.Expr, subtree, visit):  # type: ignore[no-untyped-def]
        """Visit a subtree assuming a condition, unless the condition loads memory that the subtree writes."""
        if tir.const_int(condition) is not None or self._may_change(condition, subtree):
            return visit(subtree)
        with self._analyzer.constraint(condition):
            return visit(subtree)

    def _may_change(self, condition: tir.Expr, subtree: Node | Body) -> bool:
        loaded = {n.buffer.data for n in find(condition, tir.BufferLoad)}
        return bool(loaded) and any(isinstance(n, tir.BufferStore) and n.buffer.data in loaded for n in walk(subtree))

    # ------------------------------------------------------------ indices

    def _checked_indices(self, buffer: tir.Buffer, indices: tuple[tir.Expr, ...]) -> tuple[tir.Expr, ...]:
        pairs = zip(indices, buffer.shape, strict=True)
        return tuple(self._checked_index(dim, index, extent) for dim, (index, extent) in enumerate(pairs))

    def _checked_index(self, dim: int, index: tir.Expr, extent: tir.Expr) -> tir.Expr:
        if not self._flow.depends(index):
            return self._expr(index)
        rule, from_end, base = self._rule, self._rule.from_end, index
        if not rule.checked:
            return self._unchecked(dim, index, extent)
        from_end_index = _from_end(index, extent)
        if from_end_index is not None:
            base, from_end = from_end_index, True
        elif rule.wraps and isinstance(index, tir.FloorMod):
            base = index.lhs
        base = _unsigned(base)
        if base is index and not from_end and self._is_in_bounds(index, extent):
            return self._expr(index)
        if from_end and self._is_in_bounds(base, extent):
            return self._expr(base)
        self.inserted = True
        return CheckedIndex(self._expr(base), extent, rule.where, dim, from_end).call()

    def _unchecked(self, dim: int, index: tir.Expr, extent: tir.Expr) -> tir.Expr:
        rewritten = self._expr(index)
        if not self._rule.from_end or _from_end(index, extent) is not None or isinstance(index, tir.FloorMod):
            return rewritten
        if self._is_in_bounds(index, extent):
            return rewritten
        self.inserted = True
        return CheckedIndex(rewritten, extent, "", dim, True).unchecked()

    def _is_in_bounds(self, index: tir.Expr, extent: tir.Expr) -> bool:
        """Return True if 0 <= index < extent is proved."""
        with ExitStack() as stack:
            for load in _loads(index, self._rule.known or {}):
                least, most = (self._rule.known or {})[load.buffer.data]
                stack.enter_context(self._analyzer.constraint(c.greater_equal(load, c.const(least, load.dtype))))
                stack.enter_context(self._analyzer.constraint(c.less_equal(load, c.const(most, load.dtype))))
            if not self._analyzer.prove_at_least(index, 0):
                return False
            return self._analyzer.prove(c.less(*c.match_types(index, extent)))


def _loads(index: tir.Expr, of: Mapping[tir.Var, object]) -> Iterable[tir.BufferLoad]:
    return [n for n in find(index, tir.BufferLoad) if n.buffer.data in of] if of else []


def _from_end(index: tir.Expr, extent: tir.Expr) -> tir.Expr | None:
    """Return `i` if an index is `T.Select(i < 0, i + extent, i)`, else None."""
    match index:
        case tir.Select(
            condition=tir.LT(lhs=tested, rhs=zero), true_value=tir.Add(lhs=base, rhs=by), false_value=plain
        ) if tir.const_int(zero) == 0:
            keys = StructuralKeys()
            same = keys.same(tested, plain) and keys.same(base, plain)
            return _uncast(plain) if same and keys.same(*c.match_types(by, extent)) else None
    return None


def _uncast(index: tir.Expr) -> tir.Expr:
    """Return the index without widening casts, as it is in the data."""
    while isinstance(index, tir.Cast) and index.value.dtype.is_int and index.value.dtype.bits <= index.dtype.bits:
        index = index.value
    return index


def _unsigned(index: tir.Expr) -> tir.Expr:
    """Return the index without a cast to the signed type of equal width, which would make large values negative."""
    match index:
        case tir.Cast(value=value) if (
            index.dtype.is_int and value.dtype.is_uint and value.dtype.bits == index.dtype.bits
        ):
            return value
    return index


def negated(condition: tir.Expr) -> tir.Expr:
    """Return the negation of a condition, pushed down to the comparisons."""
    match condition:
        case tir.Not(value=value):
            return value
        case tir.Or(lhs=lhs, rhs=rhs):
            return c.logical_and(negated(lhs), negated(rhs))
        case tir.And(lhs=lhs, rhs=rhs):
            return c.logical_or(negated(lhs), negated(rhs))
        case tir.Call(op=tir.Op(name="tir.likely"), args=(value,)):
            return negated(value)
        case tir.CompareOp(lhs=lhs, rhs=rhs) if type(condition) in _OPPOSITE and not lhs.dtype.is_float:
            return _OPPOSITE[type(condition)](condition.dtype, lhs, rhs)
    return c.logical_not(condition)


_OPPOSITE: dict[type[tir.CompareOp], type[tir.CompareOp]] = {
    tir.LT: tir.GE, tir.GE: tir.LT, tir.GT: tir.LE, tir.LE: tir.GT, tir.EQ: tir.NE, tir.NE: tir.EQ,
}  # fmt: skip
