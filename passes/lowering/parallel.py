"""Select the `T.parallel` loops that run on several threads: the outermost profitable ones. Others become serial.

`T.parallel` promises that iterations may run in any order. The promise is trusted unless a violation is evident: a loop
that stores one element in every iteration, or reads an element that another iteration writes, runs serially. So do
loops that leave early or call packed functions (which may be Python's).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.conditions import conjuncts
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import INT64
from mlcc.ir.intrinsics import called
from mlcc.ir.node import Node, children, find, replace
from mlcc.ir.tir import Expr, ForKind, Stmt
from mlcc.passes.lowering.aliases import Aliases, AliasMutator
from mlcc.passes.lowering.mutator import Body
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.lowering.unroll import nested_bodies
from mlcc.passes.lowering.vector_legality import LinearForm, linear_form, mentions
from mlcc.passes.lowering.work import iteration_picoseconds
from mlcc.passes.manage.stages import FLAT

LEAST_WORK = 10_000_000  # picoseconds that a loop must take; a wake of sleeping threads costs more


def select_parallel_loops(func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], threads: bool) -> tir.PrimFunc:
    """Return `func` (lowered) with only the parallel loops that run on several threads; none without `threads`.

    `functions` are the PrimFuncs that it may call.
    """
    if not any(n.kind is ForKind.PARALLEL for n in find(func.body, tir.For)):
        return func
    return replace(func, body=_LoopSelector(functions, threads).body(func.body))


class _LoopSelector(AliasMutator):
    def __init__(self, functions: Mapping[str, tir.PrimFunc], threads: bool) -> None:
        super().__init__()
        self._functions = functions
        self._threads = threads

    def stmt_for(self, node: tir.For) -> Stmt | list[Stmt]:
        if node.kind is not ForKind.PARALLEL:
            return replace(node, body=self.body(node.body))
        if not self._threads or not self._is_profitable(node):
            return replace(node, kind=ForKind.SERIAL, body=self.body(node.body))
        return replace(node, body=_LoopSelector(self._functions, False).body(node.body))

    def _is_profitable(self, loop: tir.For) -> bool:
        work = tir.const_int(c.mul(c.cast(INT64, loop.extent), iteration_picoseconds(loop)))
        if tir.const_int(loop.extent) == 1 or (work is not None and work < LEAST_WORK):
            return False
        if _may_exit_early(loop.body) or _calls_packed(loop, self._functions):
            return False
        return not _CarriedDependences(loop, self._aliases).exist()


# ---------------------------------------------------------------- jumps and packed calls


def _may_exit_early(body: Body) -> bool:
    """Return True if the body contains a jump out of its loop or a return."""
    return any(_is_exit(stmt, False) for stmt in body)


def _is_exit(stmt: Stmt, in_loop: bool) -> bool:
    if isinstance(stmt, tir.Break) and not in_loop:
        return True
    if isinstance(stmt, tir.Evaluate):
        return called(stmt.value).leaves
    inner = in_loop or isinstance(stmt, (tir.For, tir.While))
    return any(_is_exit(s, inner) for nested in nested_bodies(stmt) for s in nested)


def _calls_packed(node: Node, functions: Mapping[str, tir.PrimFunc]) -> bool:
    """Return True if a packed function may be called from here, directly or through called PrimFuncs."""
    seen: set[str] = set()
    stack: list[Node] = [node]
    while stack:
        for call in find(stack.pop(), tir.Call):
            if called(call).packed:
                return True
            name = _callee(call)
            if name in functions and name not in seen:
                seen.add(name)
                stack.append(functions[name])
    return False


def _callee(call: tir.Call) -> str:
    match call.op, call.args:
        case relax.GlobalVar(name=name), _:
            return name
        case tir.Op(), (tir.StringImm(value=name), *_) if called(call).extern:
            return name
    return ""


# ---------------------------------------------------------------- loop-carried dependences


_Iterations = tuple[float, float]  # the iterations, from the first to before the second, in which something is done


@dataclass(frozen=True, slots=True)
class _Access:
    buffer: tir.Buffer
    index: Expr
    iterations: _Iterations


class _CarriedDependences:
    """Find certain loop-carried dependences: elements that two iterations access and one of them writes."""

    def __init__(self, loop: tir.For, aliases: Aliases) -> None:
        self._loop = loop
        self._aliases = aliases
        self._own: set[tir.Var] = set()  # memory of one iteration
        self._variant = {loop.var}  # not uniform over the iterations
        self._inner: set[tir.Var] = {loop.var}
        self._binds: dict[tir.Var, Expr] = {}
        first, trips = tir.const_int(loop.min), tir.const_int(loop.extent)
        self._iterations: _Iterations = (-inf, inf) if first is None or trips is None else (first, first + trips)
        self._stores: list[_Access] = []
        self._accesses: list[_Access] = []
        self._forms: dict[int, LinearForm | None] = {}  # of indices, by identity
        self._by_memory: dict[tir.Var, list[_Access]] = {}

    def exist(self) -> bool:
        """Return True if there is a certain loop-carried dependence."""
        for stmt in self._loop.body:
            self._visit(stmt)
        for access in self._accesses:
            self._by_memory.setdefault(self._aliases.of(access.buffer.data).at, []).append(access)
        return any(self._is_invariant_store(store) or self._meets_other_iterations(store) for store in self._stores)

    def _visit(self, stmt: Stmt) -> None:
        nested = nested_bodies(stmt)
        inside = {id(s) for body in nested for s in body}
        match stmt:
            case tir.AllocBuffer(buffer=buffer):
                self._own.add(buffer.data)
            case tir.DeclBuffer(buffer=buffer, data=data):
                self._bind(buffer.data, data)
                if isinstance(data, tir.Var) and data in self._own:
                    self._own.add(buffer.data)
            case tir.Bind(var=var, value=value):
                self._bind(var, value)
                self._binds[var] = value
            case tir.For(var=var, min=low, extent=extent):
                self._inner.add(var)
                if mentions(low, self._variant) or mentions(extent, self._variant):
                    self._variant.add(var)
            case tir.BufferStore():
                self._stores.append(_Access(stmt.buffer, stmt.indices[0], self._iterations))
                self._accesses.append(self._stores[-1])
        for child in children(stmt):
            if id(child) not in inside:
                self._expr(child)
        if isinstance(stmt, tir.IfThenElse):
            self._branches(stmt)
            return
        for body in nested:
            for each in body:
                self._visit(each)

    def _branches(self, stmt: tir.IfThenElse) -> None:
        """Visit each branch under the iterations that take it; drop stores under a vector condition as uncertain."""
        stores, before = len(self._stores), self._iterations
        for body, holds in ((stmt.then_body, True), (stmt.else_body or (), False)):
            self._iterations = self._narrowed(stmt.condition, holds)
            for each in body:
                self._visit(each)
        self._iterations = before
        if stmt.condition.dtype.lanes > 1:
            uncertain = {id(store) for store in self._stores[stores:]}
            del self._stores[stores:]
            self._accesses = [a for a in self._accesses if id(a) not in uncertain]

    def _narrowed(self, condition: Expr, holds: bool) -> _Iterations:
        """Return the iterations in which a condition on the loop variable holds, or does not hold."""
        first, end = self._iterations
        parts = conjuncts(condition)
        for part in parts if holds or len(parts) == 1 else ():
            limit = tir.const_int(part.rhs) if isinstance(part, (tir.LT, tir.GE)) else None
            if limit is not None and part.lhs is self._loop.var:  # type: ignore[attr-defined]
                below = isinstance(part, tir.LT) == holds
                first, end = (first, min(end, limit)) if below else (max(first, limit), end)
        return first, end

    def _bind(self, var: tir.Var, value: Node) -> None:
        if mentions(value, self._variant):
            self._variant.add(var)

    def _expr(self, root: Node) -> None:
        for node in find(root, tir.BufferLoad, tir.Let):
            if isinstance(node, tir.BufferLoad):
                self._accesses.append(_Access(node.buffer, node.indices[0], self._iterations))
            else:
                self._bind(node.var, node.value)
                self._binds[node.var] = node.value

    def _is_invariant_store(self, store: _Access) -> bool:
        data = store.buffer.data
        return not (data in self._own or data in self._variant or mentions(store.index, self._variant))

    def _meets_other_iterations(self, store: _Access) -> bool:
        """Return True if another access meets the element of the store in a different iteration."""
        if store.buffer.data in self._own:
            return False
        form = self._form(store.index)
        stride = 0 if form is None else form.terms.get(self._loop.var, 0)
        if form is None or stride == 0:
            return False
        inner = {var: times for var, times in form.terms.items() if var is not self._loop.var}
        first, end = store.iterations
        for access in self._by_memory[self._aliases.of(store.buffer.data).at]:
            if access.buffer.dtype is not store.buffer.dtype:
                continue
            other = self._form(access.index)
            if other is None or other.rest.dtype is not form.rest.dtype:
                continue
            gap = _gap(form.rest, other.rest)
            if gap is None or gap % stride:
                continue
            distance = gap // stride
            if other.terms == form.terms:  # iterations between the two
                if distance and max(first, access.iterations[0] + distance) < min(end, access.iterations[1] + distance):
                    return True
            elif other.terms == inner and first <= distance < end:  # that iteration stores what all others access
                return True
        return False

    def _form(self, index: Expr) -> LinearForm | None:
        if id(index) not in self._forms:  # the loop keeps its indices, and with them their identities
            base = index.base if isinstance(index, tir.Ramp) else index
            self._forms[id(index)] = linear_form(base, self._inner, self._binds)
        return self._forms[id(index)]


def _gap(first: Expr, second: Expr) -> int | None:
    """Return the constant difference second - first; None if it is unknown."""
    if type(first) is type(second) is tir.IntImm:  # as a rule: the constants of offsets
        return second.value - first.value
    difference = c.sub(second, first)
    gap = tir.const_int(difference)
    return tir.const_int(Analyzer().simplify(difference)) if gap is None else gap


@dataclass(frozen=True)
class SelectParallelLoops(LoweringStep):
    """Keep `T.parallel` on the outermost loops that are worth several threads; the others become serial.

    A loop becomes serial if it is inside another parallel loop, has one iteration, or is estimated to take less than 10
    microseconds; if it may exit early or calls packed functions; or if its iterations depend on one another (one
    writes an element that another one reads or writes). So does every loop for a target that has no thread pool.

    Before:  for i in T.parallel(4): for j in T.parallel(1024): ...
    After:   for i in T.parallel(4): for j in range(1024): ...
    """

    name: ClassVar[str] = "select-parallel-loops"
    takes: ClassVar[str] = FLAT
    gives: ClassVar[str] = FLAT

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return select_parallel_loops(func, functions, options.threads)
