"""Legality of vectorization: a dependence test that allows the iterations of a loop to run in lockstep.

Lockstep runs each statement for all lanes before the next statement. That differs from the serial order only if two
lanes access one element and at least one of them writes it. So, for each memory that the loop writes, all accesses must
have the form `stride * lane + inner + rest` with one stride. `inner` is a form over the variables of inner loops, and
`stride * lane + inner` must be injective: the mixed-radix condition below. The rests are equal, or so far apart that no
lane reaches an element of another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.intrinsics import Effect, effect_of
from mlcc.ir.node import Node, children
from mlcc.ir.tir import Expr, Stmt
from mlcc.passes.lowering.aliases import Aliases
from mlcc.passes.lowering.unroll import nested_bodies

REASSOCIATE = "reassociate"  # the annotation of a loop whose floats may be combined in another order


@dataclass(frozen=True, slots=True)
class LinearForm:
    """A linear form `sum(coefficient * variable) + rest` over chosen variables."""

    terms: dict[tir.Var, int]
    rest: Expr


def linear_form(index: Expr, over: set[tir.Var], binds: Mapping[tir.Var, Expr]) -> LinearForm | None:
    """Return an index as a linear form with constant coefficients over the variables `over`, or None.

    `binds` maps bound variables to their expressions; `rest` mentions none of them, nor any of `over`.
    """
    kind = type(index)
    if isinstance(index, tir.Var):
        if index in over:
            return LinearForm({index: 1}, c.const(0, index.dtype))
        if index in binds:
            return linear_form(binds[index], over, binds)
    if kind is tir.Add or kind is tir.Sub:
        lhs, rhs = (linear_form(side, over, binds) for side in (index.lhs, index.rhs))  # type: ignore[attr-defined]
        if lhs is None or rhs is None:
            return None
        sign = 1 if kind is tir.Add else -1
        terms = dict(lhs.terms)
        for var, coefficient in rhs.terms.items():
            terms[var] = terms.get(var, 0) + sign * coefficient
        rest = c.add(lhs.rest, rhs.rest) if sign == 1 else c.sub(lhs.rest, rhs.rest)
        return LinearForm({v: k for v, k in terms.items() if k}, rest)
    if kind is tir.Mul:
        for one, other in ((index.lhs, index.rhs), (index.rhs, index.lhs)):  # type: ignore[attr-defined]
            if isinstance(other, tir.IntImm):
                inner = linear_form(one, over, binds)
                if inner is None:
                    return None
                terms = {v: k * other.value for v, k in inner.terms.items() if other.value}
                return LinearForm(terms, c.mul(inner.rest, other))
    if isinstance(index, tir.Cast) and index.dtype.is_int and index.value.dtype.is_int:
        inner = linear_form(index.value, over, binds)
        return None if inner is None else LinearForm(inner.terms, c.cast(index.dtype, inner.rest))
    return None if mentions(index, over | binds.keys()) else LinearForm({}, index)


def mentions(node: Node, variables: set[tir.Var]) -> bool:
    """Return True if one of the variables occurs in the node."""
    stack = [node]
    while stack:
        top = stack.pop()
        if isinstance(top, tir.Var):
            if top in variables:
                return True
        elif isinstance(top, tir.Buffer):
            stack.append(top.data)
        else:
            stack.extend(children(top))
    return False


@dataclass(slots=True)
class _Access:
    buffer: tir.Buffer
    index: Expr
    writes: bool


class _Collector:
    """Collect the accesses, inner loops and bindings of a loop body; `supported`: nothing else forbids lockstep."""

    def __init__(self) -> None:
        self.accesses: list[_Access] = []
        self.loops: dict[tir.Var, tir.For] = {}
        self.binds: dict[tir.Var, Expr] = {}
        self.supported = True

    def body(self, body: tuple[Stmt, ...]) -> None:
        for stmt in body:
            self._stmt(stmt)

    def _stmt(self, stmt: Stmt) -> None:
        if isinstance(stmt, tir.BufferStore):
            self._access(stmt.buffer, stmt.indices, True)
            self._exprs(stmt.value)
            for index in stmt.indices:
                self._exprs(index)
            return
        if isinstance(stmt, (tir.AllocBuffer, tir.While, tir.Break, tir.Continue)):
            self.supported = False
        elif isinstance(stmt, tir.For):
            self.loops[stmt.var] = stmt
            self.supported = self.supported and tir.const_int(stmt.step) in (None, 1)
            self._exprs(stmt.min)
            self._exprs(stmt.extent)
        elif isinstance(stmt, tir.Bind):
            self.binds[stmt.var] = stmt.value
            self._exprs(stmt.value)
        elif isinstance(stmt, tir.AttrStmt):
            pass
        elif isinstance(stmt, tir.DeclBuffer):
            if not isinstance(stmt.data, tir.Var):
                self.supported = False
        else:
            inner = {id(s) for nested in nested_bodies(stmt) for s in nested}
            for child in children(stmt):
                if id(child) not in inner:
                    self._exprs(child)
        for nested in nested_bodies(stmt):
            self.body(nested)

    def _exprs(self, root: Node) -> None:
        stack = [root]
        while stack:
            node = stack.pop()
            if isinstance(node, tir.BufferLoad):
                self._access(node.buffer, node.indices, False)
                stack.extend(node.indices)
            elif isinstance(node, tir.Var):
                if node.dtype.is_handle:
                    self.supported = False
            else:
                if isinstance(node, tir.Let):
                    self.binds[node.var] = node.value
                elif isinstance(node, tir.Call) and effect_of(node) > Effect.READ:
                    self.supported = False
                stack.extend(children(node))

    def _access(self, buffer: tir.Buffer, indices: tuple[Expr, ...], writes: bool) -> None:
        self.accesses.append(_Access(buffer, indices[0], writes))


def is_lockstep_safe(loop: tir.For, aliases: Aliases) -> bool:
    """Return True if the iterations of `loop` (flat code, constant extent) are proved safe to run in lockstep."""
    collector = _Collector()
    collector.body(loop.body)
    if not collector.supported:
        return False
    by_root: dict[tir.Var | None, list[_Access]] = {}
    for access in collector.accesses:
        by_root.setdefault(aliases.of(access.buffer.data).root, []).append(access)
    written = {root for root, accesses in by_root.items() if any(a.writes for a in accesses)}
    if written and None in by_root:  # memory that may be any other
        return False
    changing = {a.buffer.data for root in written for a in by_root[root]}
    forms = _Forms(loop, collector, changing)
    return all(_are_disjoint(by_root[root], forms, aliases) for root in written)


def _are_disjoint(accesses: list[_Access], forms: _Forms, aliases: Aliases) -> bool:
    """Return True if the accesses of one memory are proved disjoint between lanes."""
    buffer = accesses[0].buffer
    address = aliases.of(buffer.data).at
    if any(a.buffer.dtype is not buffer.dtype or aliases.of(a.buffer.data).at is not address for a in accesses):
        return False  # views that count differently
    first, *others = (forms.of(a.index) for a in accesses)
    if first is None or not forms.injective(first):
        return False
    analyzer = Analyzer()
    offsets = {0}
    for form in others:
        if form is None or forms.shape(form) != forms.shape(first):
            return False
        if form.rest is first.rest or analyzer.prove_equal(form.rest, first.rest):
            continue
        offset = tir.const_int(analyzer.simplify(c.sub(c.cast(first.rest.dtype, form.rest), first.rest)))
        if offset is None:
            return False
        offsets.add(offset)
    return all(forms.never_meet(first, abs(a - b)) for a in offsets for b in offsets if a < b)


class _Forms:
    """Linear forms of the accesses of one loop, with inner loops counted from 0.

    `changing` are the data variables of memory that the loop writes.
    """

    def __init__(self, loop: tir.For, collector: _Collector, changing: set[tir.Var]) -> None:
        self._lane = loop.var
        self._extent = tir.const_int(loop.extent) or 0
        self._inner = collector.loops
        self._variables = {loop.var, *collector.loops}
        self._binds = collector.binds
        self._changing = changing

    def of(self, index: Expr) -> LinearForm | None:
        """Return the form; None if there is none, or if it depends on memory that the loop writes."""
        form = linear_form(index, self._variables, self._binds)
        if form is None or mentions(form.rest, self._changing):
            return None
        rest = form.rest
        for var, coefficient in form.terms.items():
            if var is not self._lane:
                start = linear_form(self._inner[var].min, self._variables, self._binds)
                if start is None or start.terms or mentions(start.rest, self._changing):
                    return None
                rest = c.add(rest, c.mul(c.cast(rest.dtype, start.rest), coefficient))
        return LinearForm(form.terms, rest)

    def shape(self, form: LinearForm) -> tuple[int, list[tuple[int, int | None]]]:
        """Return the lane stride, and coefficient and extent of each inner loop: equal for parallel access patterns."""
        inner = [(k, tir.const_int(self._inner[v].extent)) for v, k in form.terms.items() if v is not self._lane]
        return form.terms.get(self._lane, 0), sorted((k, -1 if n is None else n) for k, n in inner if n != 1)

    def never_meet(self, form: LinearForm, distance: int) -> bool:
        """Return True if no two lanes meet in accesses `distance` elements apart.

        The distance exceeds the reach of all lanes, or, without inner loops, it is no multiple of the stride.
        """
        stride, inner = self.shape(form)
        if any(count is None or count < 0 for _, count in inner):
            return False
        reach = abs(stride) * (self._extent - 1) + sum(abs(k) * ((n or 0) - 1) for k, n in inner)
        return distance > reach or (not inner and distance % stride != 0)

    def injective(self, form: LinearForm) -> bool:
        """Return True if no two lanes access one element: each coefficient exceeds the reach of the smaller ones."""
        stride, inner = self.shape(form)
        digits = sorted([(abs(k), n) for k, n in inner] + [(abs(stride), self._extent)])
        reach = 0
        for coefficient, count in digits:
            if count is None or count < 0 or coefficient <= reach:
                return False
            reach += coefficient * (count - 1)
        return True
