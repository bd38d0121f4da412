"""Loop partitioning (peeling): iterations in which a condition holds for the whole tile run without it.

    for i in range(0, 9):                          for i in range(0, (n - 8) // 8 + 1):
        for j in T.vectorized(8):          ->          for j in T.vectorized(8): B[i * 8 + j] = ...
            if i * 8 + j < n:                      for i in range((n - 8) // 8 + 1, 9):
                B[i * 8 + j] = ...                     for j in T.vectorized(8): if i * 8 + j < n: B[i * 8 + j] = ...

A condition counts if it compares sums of loop variables, some of them of loops inside. The least and greatest values of
those give a range of the outer variable in which it always holds. A serial loop is divided into that range and what is
before and after it; in a parallel one, each iteration asks where it is, also by the quotients and remainders of its
variable, which loops that were fused leave. Bodies that would become long are not copied, nor are those of loops with
the annotation `mlcc.partition` of 0. A loop with an annotation of 1 is the only one that conditions on its variable
divide: the loops around it are not copied on account of them.

Where a size is unknown and the inner loops are unrolled, the last iteration branches on how much of it is left, so that
a register tile with fewer rows runs without conditions, too:

    for r in T.unroll(4):                          left = n - i * 4
        if i * 4 + r < n:                ->        if left == 1: B[i * 4] = ...
            B[i * 4 + r] = ...                     elif left == 2: B[i * 4] = ...; B[i * 4 + 1] = ...
                                                   else: ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.conditions import conjuncts
from mlcc.arith.intset import Interval, eval_set, from_range
from mlcc.arith.structural_keys import same_expr
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import Node, children, holds, replace
from mlcc.ir.tir import Expr, ForKind, Stmt
from mlcc.ir.visit import substitute, used_vars
from mlcc.passes.lowering.accesses import is_pure
from mlcc.passes.lowering.folding import Folding, copy_body
from mlcc.passes.lowering.mutator import Body, TirMutator
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.lowering.symbols import symbols_of
from mlcc.passes.lowering.unroll import nested_bodies
from mlcc.passes.lowering.vector_legality import linear_form
from mlcc.passes.manage.stages import FLAT

PARTITION = "mlcc.partition"  # the annotation of a loop that is not divided, with the value 0
ALONE = 1  # its value for a loop that conditions on its variable divide instead of the loops around it
# all copies in a function, or in each of its versions for sizes, are at most so many times as long as one may be
_MAX_COPIES = 8
_MAX_TAILS = 16  # most branches on what is left of an iteration


def partition_loops(func: tir.PrimFunc, limit: int) -> tir.PrimFunc:
    """Return `func` (flat code) with loops divided; a copied body has at most `limit` statements after unrolling."""
    return replace(func, body=_Partitioner(limit, frozenset(symbols_of(func))).body(func.body)) if limit > 0 else func


@dataclass(frozen=True, slots=True)
class _Guard:
    """A comparison, with the ranges of the loops and the values of the bindings between it and the searched loop."""

    condition: tir.BinaryOp
    domains: dict[tir.Var, Interval]
    values: dict[tir.Var, Expr]
    unrolled: frozenset[tir.Var] = frozenset()
    inner: bool = True  # it mentions variables of these loops

    @property
    def excess(self) -> Expr:
        """An expression that is at most 0 where the condition holds."""
        node = self.condition
        lhs, rhs = (substitute(side, self.values) for side in (node.lhs, node.rhs))
        excess = c.sub(lhs, rhs) if isinstance(node, (tir.LT, tir.LE)) else c.sub(rhs, lhs)
        return c.add(excess, 1) if isinstance(node, (tir.LT, tir.GT)) else excess


@dataclass(slots=True)
class _Span:
    """The half-open range of a loop in which conditions always hold: [max(`starts`), min(`ends`))."""

    starts: list[Expr] = field(default_factory=list)
    ends: list[Expr] = field(default_factory=list)
    guards: set[int] = field(default_factory=set)
    tail: _Tail | None = None
    below: set[int] = field(default_factory=set)  # conditions that fail in every iteration before the span
    above: set[int] = field(default_factory=set)  # ... and in every one after it


@dataclass(slots=True)
class _Tail:
    """The conditions that hold in an iteration past the span as far as `left` reaches: `inner + offset <= left`.

    `inner` (by the id of a condition, with its offset) are sums over unrolled loops. For `left` below `low` none of the
    conditions holds, from `high` on all do.
    """

    left: Expr
    inner: dict[int, tuple[Expr, int]]
    low: int
    high: int

    def conditions(self, left: int) -> dict[int, Expr]:
        """Return what the conditions become where `left` is known."""
        return {guard: c.less_equal(inner, left - offset) for guard, (inner, offset) in self.inner.items()}


class _Partitioner(TirMutator):
    def __init__(self, limit: int, sizes: frozenset[tir.Var]) -> None:
        self._limit = limit
        self._sizes = sizes
        self._budget = limit * _MAX_COPIES
        self._analyzer = Analyzer()
        self._greatest: dict[tir.Var, Expr] = {}  # the greatest value of variables that are partitioned

    def expr(self, node: Expr) -> Expr:
        return node

    def stmt_if(self, node: tir.IfThenElse) -> Stmt | list[Stmt]:
        if node.else_body is None or not used_vars(node.condition) <= self._sizes:
            return super().stmt_if(node)
        budget = self._budget  # of each version for a range of a size
        then, then_left = self.body(node.then_body), self._budget
        self._budget = budget
        other = self.body(node.else_body)
        self._budget = min(self._budget, then_left)
        return replace(node, then_body=then, else_body=other)

    def stmt_for(self, node: tir.For) -> Stmt | list[Stmt]:
        if tir.const_int(node.step) not in (None, 1) or tir.const_int(node.annotations.get(PARTITION, 1)) == 0:
            return replace(node, body=self.body(node.body))
        self._analyzer.bind(node.var, tir.Range(node.min, node.extent))
        self._greatest[node.var] = self._analyzer.simplify(c.sub(c.add(node.min, node.extent), 1))
        partition = {ForKind.SERIAL: self._partition_serial, ForKind.PARALLEL: self._partition_parallel}.get(node.kind)
        partitioned = (
            None if partition is None or tir.const_int(node.extent) in (0, 1) or _jumps(node.body) else partition(node)
        )
        return replace(node, body=self.body(node.body)) if partitioned is None else partitioned

    def _partition_serial(self, loop: tir.For) -> list[Stmt] | None:
        """Return the loop split into parts; None if nothing is gained."""
        always, span = self._span(loop.var, loop.body, tir.const_int(loop.annotations.get(PARTITION, 0)) == ALONE)
        body = _ConditionDropper(always).body(loop.body) if always else loop.body
        whole: tir.For = replace(loop, body=body)
        if not self._affords(span, body, bool(span.starts) + bool(span.ends)):
            return None if not always else [replace(whole, body=self.body(body))]
        return self._parts(whole, span, _ConditionDropper(span.guards).body(body))

    def _affords(self, span: _Span, body: Body, copies: int) -> bool:
        """Return True if conditions go away and the budget has room for `copies` of the body; charge them to it."""
        size = _unrolled_size(body)
        if not span.guards or size > self._limit or size * copies > self._budget:
            return False
        self._budget -= size * copies
        return True

    def _span(self, var: tir.Var, body: Body, alone: bool = False) -> tuple[set[int], _Span]:
        """Return the conditions that hold for every value of a variable, and the span in which the others hold.

        With `alone`, conditions that mention no variable of a loop inside count, too.
        """
        always: set[int] = set()
        span = _Span()
        cut: list[_Guard] = []
        inner = False  # whether a condition mentions a variable of a loop inside: it may hold in parts of an iteration
        for guard in _guards(var, body, alone):
            bound = _upper_bound(guard, self._analyzer)
            if bound is None:
                continue
            if self._analyzer.prove(c.less_equal(bound, 0)):
                always.add(id(guard.condition))
                continue
            form = linear_form(bound, {var}, {})
            if form is None or var not in form.terms:
                continue
            factor, rest = form.terms[var], c.cast(var.dtype, form.rest)
            if factor > 0:  # factor * var + rest <= 0
                end = c.add(c.floordiv(c.negate(rest), factor), 1)
                span.ends.append(self._analyzer.simplify(end))
                span.above.add(id(guard.condition))
                cut.append(guard)
            else:
                start = c.floordiv(c.add(rest, -factor - 1), -factor)
                span.starts.append(self._analyzer.simplify(start))
                span.below.add(id(guard.condition))
            inner = inner or guard.inner
            span.guards.add(id(guard.condition))
        if inner or len(_distinct(span.starts)) > 1:
            span.below.clear()
        if inner or len(_distinct(span.ends)) > 1:
            span.above.clear()
        span.tail = self._tail(var, cut)
        return always, span

    def _tail(self, var: tir.Var, cut: Sequence[_Guard]) -> _Tail | None:
        """Return what is left of an iteration that conditions over unrolled loops cut off at an unknown size."""
        tail: _Tail | None = None
        factor, outer = 0, None
        for guard in cut:
            excess = self._analyzer.simplify(guard.excess)
            form = linear_form(excess, {var, *guard.domains}, {})
            if form is None or not guard.unrolled >= (form.terms.keys() - {var}) or len(form.terms) < 2:
                continue
            if form.rest.dtype.bits > var.dtype.bits:  # a loop of int32 over a size of int64
                continue
            rest = c.cast(var.dtype, form.rest)
            offset = 0 if outer is None else tir.const_int(self._analyzer.simplify(c.sub(rest, outer)))
            if tir.const_int(rest) is not None or offset is None or (outer is not None and form.terms[var] != factor):
                continue
            inner: Expr = c.const(0, var.dtype)
            for v, k in form.terms.items():
                inner = inner if v is var else c.add(inner, c.mul(c.cast(var.dtype, v), k))
            ends = eval_set(inner, guard.domains, self._analyzer)
            low, high = (
                None if end is None else tir.const_int(self._analyzer.simplify(end)) for end in (ends.low, ends.high)
            )
            if low is None or high is None:
                continue
            if tail is None:
                factor, outer = form.terms[var], rest
                left = self._analyzer.simplify(c.negate(c.add(c.mul(var, factor), rest)))
                tail = _Tail(left, {}, low, high)
            tail.inner[id(guard.condition)] = (inner, offset)
            tail.low, tail.high = min(tail.low, low + offset), max(tail.high, high + offset)
        return tail if tail is not None and tail.high - tail.low <= _MAX_TAILS else None

    def _by_what_is_left(self, var: tir.Var, span: _Span, body: Body, rewrite: Callable[[Body], Body]) -> Body:
        """Return the body of an iteration past a span, with a branch for everything that may be left of it.

        Each branch is a copy of the body that `rewrite` has rewritten.
        """
        tail = span.tail
        if tail is None or not self._affords(span, body, (tail.high - tail.low + 1) // 2):
            return rewrite(copy_body(body, {}))
        left = tir.Var(f"{var.name}_left", tail.left.dtype)
        cases = [
            (n, rewrite(copy_body(_ConditionReplacer(tail.conditions(n)).body(body), {})))
            for n in range(tail.low, tail.high)
        ]
        least = substitute(tail.left, {var: self._greatest[var]}) if var in self._greatest else tail.left
        # past an end that all conditions share, those of the tail fail somewhere: less than `high` is left
        one_end = not span.starts and len(_distinct(span.ends)) == 1
        complete = one_end or span.guards <= tail.inner.keys()
        complete = complete and self._analyzer.prove(c.greater_equal(least, tail.low))
        chain: Body = cases.pop()[1] if complete else rewrite(copy_body(body, {}))
        for n, case in reversed(cases):
            chain = (tir.IfThenElse(c.equal(left, n), case, chain),)
        return (tir.Bind(left, tail.left), *chain)

    def _partition_parallel(self, loop: tir.For) -> list[Stmt] | None:
        """Return a parallel loop whose iterations branch on their position; None if nothing is gained."""
        places = _FusedIndices(loop)
        body = places.body(loop.body)
        for var, value in places.bindings:
            self._analyzer.bind_bound(var, *self._analyzer.bound(value))
            self._greatest[var] = self._greatest_value(value, loop.var)
        left, guarded = self._budget, self._branch_on_position([loop.var, *(var for var, _ in places.bindings)], body)
        if left == self._budget and guarded == body:
            return None
        return [replace(loop, body=(*(tir.Bind(var, value) for var, value in places.bindings), *guarded))]

    def _branch_on_position(self, places: Sequence[tir.Var], body: Body) -> Body:
        """Return the body specialized by a branch on each of `places` in turn: inside the span, or at an edge."""
        if not places:
            return self.body(body)
        var, *others = places
        always, span = self._span(var, body)
        body = _ConditionDropper(always).body(body) if always else body
        edges = self._edges(var, span)
        if len(edges) == 2 and self._affords(span, body, 2):
            first, last = (
                self._branch_on_position(others, _ConditionFolder({var: at}).body(copy_body(body, {}))) for at in edges
            )
            rest: Body = (tir.IfThenElse(c.equal(var, edges[0]), first, last),)
            low, high = self._analyzer.bound(var)
            if high == low + 1:
                return rest
        elif self._affords(span, body, 1):
            if len(edges) == 1:
                last = _ConditionFolder({var: edges[0]}).body(copy_body(body, {}))
                rest = self._branch_on_position(others, last)
            else:
                rest = self._by_what_is_left(var, span, body, self.body)
        else:
            return self._branch_on_position(others, body)
        condition: Expr = tir.TRUE
        for start in _distinct(span.starts):
            condition = c.logical_and(condition, c.greater_equal(var, start))
        for end in _distinct(span.ends):
            condition = c.logical_and(condition, c.less(var, end))
        main = self._branch_on_position(others, _ConditionDropper(span.guards).body(body))
        return (tir.IfThenElse(condition, main, rest),)

    def _greatest_value(self, value: Expr, var: tir.Var) -> Expr:
        """Return the greatest value of a quotient or remainder of a loop variable."""
        if isinstance(value, tir.FloorMod):
            return c.sub(value.rhs, 1)
        return self._analyzer.simplify(substitute(value, {var: self._greatest[var]}))

    def _edges(self, var: tir.Var, span: _Span) -> list[Expr]:
        """Return the values of a variable outside a span, if there is at most one on either side; else none."""
        low, high = self._analyzer.bound(var)
        starts, ends = ([tir.const_int(value) for value in values] for values in (span.starts, span.ends))
        if any(start != low + 1 for start in starts) or any(end != high for end in ends):
            return []
        return [c.const(int(at), var.dtype) for at, there in ((low, starts), (high, ends)) if there]

    def _parts(self, loop: tir.For, span: _Span, main: Body) -> list[Stmt]:
        """Return the peeled iterations before the span, the span with body `main`, and the iterations after it."""
        low, high = loop.min, c.add(loop.min, loop.extent)
        start, end = low, high
        for value in span.starts:
            start = c.maximum(start, value)
        if span.starts:
            start = c.minimum(start, high)
        for value in span.ends:
            end = c.minimum(end, value)
        if span.ends:
            end = c.maximum(end, start)
        parts: list[Stmt] = []
        start, end = (self._bind_value(value, loop, parts) for value in (start, end))
        if span.starts:
            parts += self._part(loop, low, start, copy_body(_failing(span.below, loop.body), {}))
        parts += self._part(loop, start, end, main)
        if span.ends:
            body = _failing(span.above, loop.body)
            parts += self._part(loop, end, high, self._by_what_is_left(loop.var, span, body, lambda body: body))
        return parts

    def _bind_value(self, value: Expr, loop: tir.For, stmts: list[Stmt]) -> Expr:
        """Return a variable bound to the value in `stmts`, unless the value is simple."""
        value = self._analyzer.simplify(value)
        if isinstance(value, (tir.IntImm, tir.Var)):
            return value
        var = tir.Var(f"{loop.var.name}_at", value.dtype)
        stmts.append(tir.Bind(var, value))
        self._analyzer.bind_bound(var, *self._analyzer.bound(value))
        return var

    def _part(self, loop: tir.For, start: Expr, end: Expr, body: Body) -> list[Stmt]:
        extent = self._analyzer.simplify(c.sub(end, start))
        count = tir.const_int(extent)
        if count is not None and count <= 0:
            return []
        if count == 1:
            return list(self.body(copy_body(body, {loop.var: start})))
        var = tir.Var(loop.var.name, loop.var.dtype)
        self._analyzer.bind(var, tir.Range(start, extent))
        inner = self.body(copy_body(body, {loop.var: var}))
        return [replace(loop, var=var, min=start, extent=extent, body=inner)]


def _distinct(values: Sequence[Expr]) -> list[Expr]:
    distinct: list[Expr] = []
    for value in values:
        if not any(same_expr(value, other) for other in distinct):
            distinct.append(value)
    return distinct


def _upper_bound(guard: _Guard, analyzer: Analyzer) -> Expr | None:
    """Return an upper bound over the inner loops that proves the condition where it is at most 0; None if unknown."""
    high = eval_set(analyzer.simplify(guard.excess), guard.domains, analyzer).high
    if high is None or not is_pure(high):
        return None
    bound = analyzer.simplify(high)
    return None if used_vars(bound) & guard.domains.keys() else bound


def _guards(var: tir.Var, body: Body, alone: bool) -> list[_Guard]:
    """Return the comparisons in a body that mention a variable and, unless `alone`, one of an inner loop."""
    finder = _GuardFinder(var, alone)
    finder.body(body)
    return finder.guards


class _FusedIndices(TirMutator):
    """Bind quotients and remainders of a loop's variable to names: the indices of the loops that were fused."""

    def __init__(self, loop: tir.For) -> None:
        self._var = loop.var
        self._known = {loop.var} | used_vars(loop.extent)
        self.bindings: list[tuple[tir.Var, Expr]] = []

    def expr_binary(self, node: tir.BinaryOp) -> Expr:
        used = used_vars(node) if isinstance(node, (tir.FloorDiv, tir.FloorMod)) else set()
        if self._var in used and used <= self._known and is_pure(node):
            for var, value in self.bindings:
                if same_expr(value, node):
                    return var
            var = tir.Var(f"{self._var.name}_{len(self.bindings)}", node.dtype)
            self.bindings.append((var, node))
            return var
        return super().expr_binary(node)


class _GuardFinder:
    def __init__(self, var: tir.Var, alone: bool) -> None:
        self.guards: list[_Guard] = []
        self._var = var
        self._alone = alone
        self._domains: dict[tir.Var, Interval] = {}
        self._values: dict[tir.Var, Expr] = {}
        self._hidden: set[tir.Var] = set()  # bound inside to values without a linear form
        self._unrolled: set[tir.Var] = set()

    def body(self, body: Body) -> None:
        for stmt in body:
            self._stmt(stmt)

    def _stmt(self, stmt: Stmt) -> None:
        inner = nested_bodies(stmt)
        skip = {id(s) for nested in inner for s in nested}
        for child in children(stmt):
            if id(child) not in skip:
                self._exprs(child)
        if isinstance(stmt, tir.IfThenElse):
            self._conditions(stmt.condition)
        elif isinstance(stmt, tir.Bind):
            if is_pure(stmt.value) and not stmt.var.dtype.is_handle:
                self._values[stmt.var] = substitute(stmt.value, self._values)
            else:
                self._hidden.add(stmt.var)
        if isinstance(stmt, tir.For):
            if tir.const_int(stmt.annotations.get(PARTITION, 0)) == ALONE:
                self._hidden.add(stmt.var)
            elif tir.const_int(stmt.step) in (None, 1):
                self._domains[stmt.var] = from_range(tir.Range(stmt.min, stmt.extent))
                if stmt.kind is ForKind.UNROLLED:
                    self._unrolled.add(stmt.var)
            else:
                self._hidden.add(stmt.var)
        for nested in inner:
            self.body(nested)
        if isinstance(stmt, tir.For):
            self._domains.pop(stmt.var, None)

    def _exprs(self, root: Node) -> None:
        stack = [root] if holds(root, tir.Let, tir.Call) else []
        while stack:
            node = stack.pop()
            if isinstance(node, tir.Let):
                self._hidden.add(node.var)
            elif isinstance(node, tir.Call) and node.op == tir.Op("tir.if_then_else"):
                self._conditions(node.args[0])
            stack.extend(children(node))

    def _conditions(self, condition: Expr) -> None:
        for part in conjuncts(condition):
            if not isinstance(part, (tir.LT, tir.LE, tir.GT, tir.GE)) or not _is_index(part) or not is_pure(part):
                continue
            used = used_vars(part.lhs) | used_vars(part.rhs)
            used |= {v for var in used if var in self._values for v in used_vars(self._values[var])}
            inner = bool(used & self._domains.keys())
            if self._var in used and (inner or self._alone) and not used & self._hidden:
                unrolled = frozenset(self._unrolled & self._domains.keys())
                self.guards.append(_Guard(part, dict(self._domains), dict(self._values), unrolled, inner))


def _is_index(part: tir.BinaryOp) -> bool:
    dtype = part.lhs.dtype
    return dtype.kind == "int" and dtype.bits >= 32 and dtype.lanes == 1


class _ConditionReplacer(Folding):
    """Replace conditions, given by their ids, and fold what they decide."""

    def __init__(self, conditions: Mapping[int, Expr]) -> None:
        super().__init__({})
        self._conditions = conditions

    def expr(self, node: Expr) -> Expr:
        condition = self._conditions.get(id(node))
        return super().expr(node) if condition is None else condition

    def expr_call(self, node: tir.Call) -> Expr:
        call = super().expr_call(node)
        if isinstance(call, tir.Call) and isinstance(call.op, tir.Op):
            if call.op.name == "tir.likely" and tir.const_int(call.args[0]) is not None:
                return call.args[0]
            if call.op.name == "tir.if_then_else" and tir.const_int(call.args[0]) is not None:
                return call.args[1] if tir.const_int(call.args[0]) else call.args[2]
        return call


class _ConditionDropper(_ConditionReplacer):
    """Remove conditions that are known to hold, given by their ids."""

    def __init__(self, holds: set[int]) -> None:
        super().__init__(dict.fromkeys(holds, tir.TRUE))


def _failing(conditions: set[int], body: Body) -> Body:
    """Return a body without the code for conditions, given by their ids, that fail."""
    return _ConditionReplacer(dict.fromkeys(conditions, c.const(False))).body(body) if conditions else body


class _ConditionFolder(Folding):
    """Fold conditions with known values of variables. Indices keep the variables, which tell iterations apart."""

    def __init__(self, values: dict[tir.Var, Expr]) -> None:
        super().__init__({})
        self._known = Folding(values)

    def expr_call(self, node: tir.Call) -> Expr:
        call = super().expr_call(node)
        if isinstance(call, tir.Call) and call.op == tir.Op("tir.if_then_else"):
            condition = self._known.expr(call.args[0])
            holds = tir.const_int(condition)
            if holds is not None:
                return call.args[1 if holds else 2]
            if condition is not call.args[0]:
                return tir.Call(call.dtype, call.op, (condition, *call.args[1:]), span=call.span)
        return call

    def stmt_if(self, node: tir.IfThenElse) -> Stmt | list[Stmt]:
        return super().stmt_if(replace(node, condition=self._known.expr(node.condition)))


def _unrolled_size(body: Body) -> int:
    """Return the number of statements after unrolling."""
    total = 0
    for stmt in body:
        inner = sum(_unrolled_size(nested) for nested in nested_bodies(stmt))
        if isinstance(stmt, tir.For) and stmt.kind is ForKind.UNROLLED:
            inner *= max(tir.const_int(stmt.extent) or 1, 1)
        total += 1 + inner
    return total


def _jumps(body: Body) -> bool:
    """Return True if the body contains a `break` or `continue`, of this or an inner loop."""
    for stmt in body:
        if isinstance(stmt, (tir.Break, tir.Continue)) or any(_jumps(nested) for nested in nested_bodies(stmt)):
            return True
    return False


@dataclass(frozen=True)
class PartitionLoops(LoweringStep):
    """Divide loops where a condition holds for whole iterations, so that these run without it (TVM: LoopPartition).

    Before:  for i in range(13): for j in range(8): if i * 8 + j < 100: ...
    After:   for i in range(12): for j in range(8): ...
             for j in range(8): if 96 + j < 100: ...
    """

    name: ClassVar[str] = "partition-loops"
    takes: ClassVar[str] = FLAT
    gives: ClassVar[str] = FLAT

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return partition_loops(func, options.edge_limit)
