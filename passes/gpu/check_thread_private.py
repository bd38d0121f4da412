"""Reject kernels in which threads exchange values through thread-private (`local`) memory.

    B: local, allocated here
    for t in T.thread_binding(32, thread="threadIdx.x"):
        B[t] = A[t]                         # thread t has element t
    for t in T.thread_binding(32, thread="threadIdx.x"):
        C[t] = B[31 - t]                    # and reads another, which it never wrote

As serial loops this is well defined; as threads it reads registers that were never written. Only certain errors are
rejected: some threads of a block are executed symbolically, and one of them reads an element that another one writes
and it does not write itself. Unknown sizes are replaced by round numbers, for which the kernel has to be correct too.
Code that cannot be evaluated (contents of memory, long loops) is assumed to be correct.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from mlcc.errors import CompileError, Diagnostic, Label, Span, error
from mlcc.ir import tir
from mlcc.ir.node import Node, children, walk
from mlcc.ir.tir import Expr, Stmt
from mlcc.passes.gpu.device import BLOCK
from mlcc.passes.gpu.launch import Launch
from mlcc.passes.gpu.thread_axes import thread_axis
from mlcc.passes.lowering.unroll import nested_bodies

MAX_STEPS = 40_000  # statements executed, over all threads
ASSUMED_MULTIPLE = 64  # unknown sizes are assumed to be multiples of it: few programs require more

Env = dict[tir.Var, int | None]
Value = Callable[[Env], int | None]


def check_thread_private(kernel: Stmt, launch: Launch, host: Mapping[tir.Var, int | None]) -> None:
    """Raise CompileError E0727 for a kernel whose threads read elements of local memory that other threads wrote.
    `host` has the known values of the host's variables.
    """
    suspects = _suspects(kernel)
    if not suspects:
        return
    host = {**_sizes(kernel), **host}
    shared = _SharedState(suspects)
    sizes = {tag: shared.value(extent, dict(host)) for tag, extent in launch.extents.items() if tag in BLOCK}
    places = [range(size or 2) for size in sizes.values()]
    few = [sorted({0, 1, len(span) - 1} & set(span)) for span in places]
    threads: dict[tuple[int, ...], _Thread] = {}
    try:
        for some in (few, places):  # elements missing in the first may be written in the second
            for place in product(*some):
                if place not in threads:
                    threads[place] = thread = _Thread(dict(zip(sizes, place, strict=True)), shared, dict(host))
                    thread.body((kernel,))
            _check_missing(list(threads.values()), shared.unknown)
            if not any(buffer not in shared.unknown for t in threads.values() for buffer, _ in t.missing):
                return
    except _StepLimitReached:
        return


def _sizes(kernel: Stmt) -> dict[tir.Var, int]:
    """Return an assumed value for each integer that the kernel takes."""
    nodes = list(walk(kernel))
    own = {n.var for n in nodes if isinstance(n, (tir.For, tir.Bind, tir.Let))}
    own |= {axis[1] for n in nodes if isinstance(n, Stmt) and (axis := thread_axis(n)) is not None}
    given = dict.fromkeys(n for n in nodes if isinstance(n, tir.Var) and n.dtype.is_int and n not in own)
    return {var: ASSUMED_MULTIPLE * (n + 1) for n, var in enumerate(given)}


def _check_missing(threads: list[_Thread], unknown: set[tir.Buffer]) -> None:
    writers: dict[tuple[tir.Buffer, tuple[int, ...]], _Thread] = {}
    for thread in threads:
        writers.update(dict.fromkeys(((b, e) for b, elements in thread.written.items() for e in elements), thread))
    for thread in threads:
        for (buffer, element), span in thread.missing.items():
            if buffer in unknown or element in thread.written.get(buffer, {}):
                continue
            other = writers.get((buffer, element))
            if other is not None:
                raise CompileError(_refusal(buffer, element, thread, other, span))


def _refusal(
    buffer: tir.Buffer, element: tuple[int, ...], thread: _Thread, other: _Thread, span: Span | None
) -> Diagnostic:
    at = ", ".join(map(str, element))
    text = f"`{buffer.name}[{at}]` of scope `local` is read by {thread.name} and written by {other.name}"
    places = (Label(other.written[buffer][element], "written here"),)
    help = "each thread has its own `local` memory; all threads of a block share memory of scope `shared`"
    return error("E0727", text, span, "read here", related=places, help=help)


def _suspects(kernel: Stmt) -> set[tir.Buffer]:
    """Return the local memory that is accessed in several loops over threads of one axis, or both inside and outside of
    one.
    """
    uses: dict[tir.Buffer, dict[str, set[int]]] = {}
    raw: set[tir.Var] = set()

    def visit(stmt: Stmt, around: Mapping[str, int]) -> None:
        nested = nested_bodies(stmt)
        inside = {id(s) for body in nested for s in body}
        for part in (
            stmt,
            *(n for child in children(stmt) if id(child) not in inside for n in _without_buffers(child)),
        ):
            if isinstance(part, (tir.BufferStore, tir.BufferLoad)) and part.buffer.scope == "local":
                by_axis = uses.setdefault(part.buffer, {tag: set() for tag in BLOCK})
                for tag in BLOCK:
                    by_axis[tag].add(around.get(tag, 0))
            elif isinstance(part, tir.Var) and part.dtype.is_handle:
                raw.add(part)
        axis = thread_axis(stmt)
        if axis is not None and axis[0] in BLOCK:
            around = {**around, axis[0]: id(stmt)}
        for body in nested:
            for each in body:
                visit(each, around)

    visit(kernel, {})
    several = {b for b, by_axis in uses.items() if any(len(loops) > 1 for loops in by_axis.values())}
    return {b for b in several if b.data not in raw}


def _without_buffers(node: Node) -> Iterator[Node]:
    """Yield a node and all nodes below it, except for the parts of buffers."""
    if isinstance(node, tir.Buffer):
        return
    yield node
    for child in children(node):
        yield from _without_buffers(child)


class _StepLimitReached(Exception):
    pass


@dataclass(slots=True)
class _SharedState:
    """State shared by the threads that are executed. `unknown` are the buffers with writes at unknown indices."""

    suspects: set[tir.Buffer]
    unknown: set[tir.Buffer] = field(default_factory=set)
    steps: int = 0
    values: dict[int, Value] = field(default_factory=dict)
    loads: dict[int, list[tuple[tir.BufferLoad, list[tuple[Expr, bool]]]]] = field(default_factory=dict)
    uses: dict[int, bool] = field(default_factory=dict)

    def is_relevant(self, stmt: Stmt) -> bool:
        """Return True if a statement uses a suspect buffer or binds a value."""
        relevant = self.uses.get(id(stmt))
        if relevant is None:
            relevant = any(
                n in self.suspects or isinstance(n, tir.Bind) for n in walk(stmt) if not isinstance(n, tir.Var)
            )
            self.uses[id(stmt)] = relevant
        return relevant

    def value(self, node: Expr, env: Env) -> int | None:
        evaluate = self.values.get(id(node))
        if evaluate is None:
            evaluate = self.values[id(node)] = _compile(node)
        return evaluate(env)

    def loads_of(self, node: Expr) -> list[tuple[tir.BufferLoad, list[tuple[Expr, bool]]]]:
        loads = self.loads.get(id(node))
        if loads is None:
            loads = self.loads[id(node)] = [x for x in _loads(node, []) if x[0].buffer in self.suspects]
        return loads


class _Thread:
    """The symbolic execution of one thread of the first block: `written` has the elements that it wrote, `missing`
    those that it read before writing them.
    """

    def __init__(self, place: dict[str, int], known: _SharedState, env: Env) -> None:
        self._place, self._known, self._env = place, known, env
        self._certain = True
        self.written: dict[tir.Buffer, dict[tuple[int, ...], Span | None]] = {}
        self.missing: dict[tuple[tir.Buffer, tuple[int, ...]], Span | None] = {}

    @property
    def name(self) -> str:
        return f"thread ({', '.join(str(self._place.get(tag, 0)) for tag in BLOCK)})"

    def body(self, body: tuple[Stmt, ...]) -> None:
        for stmt in body:
            if not self._known.is_relevant(stmt):
                continue
            self._known.steps += 1
            if self._known.steps > MAX_STEPS:
                raise _StepLimitReached
            self._stmt(stmt)

    def _stmt(self, stmt: Stmt) -> None:
        axis = thread_axis(stmt)
        match stmt:
            case tir.For() | tir.AttrStmt() if axis is not None:
                tag, var, extent = axis
                at, size = self._place.get(tag, 0), self._known.value(extent, self._env)
                low = self._known.value(stmt.min, self._env) if isinstance(stmt, tir.For) else 0
                if size is None or at < size:
                    self._env[var] = None if low is None else low + at
                    self.body(stmt.body)
            case tir.For(var=var, min=low, extent=extent, body=body):
                start, count = self._known.value(low, self._env), self._known.value(extent, self._env)
                if start is None or count is None:
                    self._env[var] = None
                    self._run_uncertain(body)
                    return
                for number in range(start, start + count):
                    self._env[var] = number
                    self.body(body)
            case tir.IfThenElse(condition=condition, then_body=then, else_body=other):
                self._reads(condition)
                holds = self._known.value(condition, self._env)
                if holds is None:
                    self._run_uncertain(then)
                    self._run_uncertain(other or ())
                else:
                    self.body(then if holds else other or ())
            case tir.While(body=body):
                self._run_uncertain(body)
            case tir.Bind(var=var, value=value):
                self._reads(value)
                self._env[var] = self._known.value(value, self._env)
            case tir.BufferStore(buffer=buffer, indices=indices, value=value):
                for part in (*indices, value):
                    self._reads(part)
                if buffer in self._known.suspects:
                    element = self._element(indices)
                    if element is None:
                        self._known.unknown.add(buffer)
                    else:
                        self.written.setdefault(buffer, {}).setdefault(element, stmt.span)
            case _:
                for child in children(stmt):
                    if isinstance(child, Expr):
                        self._reads(child)
                for inner in nested_bodies(stmt):
                    self.body(inner)

    def _run_uncertain(self, body: tuple[Stmt, ...]) -> None:
        before, self._certain = self._certain, False
        self.body(body)
        self._certain = before

    def _element(self, indices: tuple[Expr, ...]) -> tuple[int, ...] | None:
        element = tuple(self._known.value(i, self._env) for i in indices)
        return None if None in element else element  # type: ignore[return-value]

    def _reads(self, node: Expr) -> None:
        for load, conditions in self._known.loads_of(node) if self._certain else ():
            if any(self._known.value(c, self._env) != wanted for c, wanted in conditions):
                continue
            element = self._element(load.indices)
            if element is not None and element not in self.written.get(load.buffer, {}):
                self.missing.setdefault((load.buffer, element), load.span)


def _loads(node: Any, under: list[tuple[Expr, bool]]) -> Iterator[tuple[tir.BufferLoad, list[tuple[Expr, bool]]]]:
    """Yield the loads in an expression, each with the conditions (and their required values) under which it is
    evaluated.
    """
    match node:
        case (
            tir.Select(condition=condition, true_value=yes, false_value=no)
            | tir.Call(op=tir.Op("tir.if_then_else"), args=(condition, yes, no))
        ):
            yield from _loads(condition, under)
            yield from _loads(yes, [*under, (condition, True)])
            yield from _loads(no, [*under, (condition, False)])
            return
        case tir.And(lhs=one, rhs=two) | tir.Or(lhs=one, rhs=two):
            yield from _loads(one, under)
            yield from _loads(two, [*under, (one, isinstance(node, tir.And))])
            return
        case tir.BufferLoad():
            yield node, under
    for child in children(node):
        if isinstance(child, Expr):
            yield from _loads(child, under)


_BINARY: dict[type, Callable[[int, int], Any]] = {
    tir.Add: operator.add, tir.Sub: operator.sub, tir.Mul: operator.mul, tir.FloorDiv: operator.floordiv,
    tir.FloorMod: operator.mod, tir.Min: min, tir.Max: max, tir.EQ: operator.eq, tir.NE: operator.ne,
    tir.LT: operator.lt, tir.LE: operator.le, tir.GT: operator.gt, tir.GE: operator.ge,
}  # fmt: skip


def _compile(node: Expr) -> Value:
    """Compile an integer expression to a function of the values of its variables; it returns None where the value is
    unknown.
    """
    match node:
        case tir.IntImm(value=value):
            return lambda env: value
        case tir.Var():
            return lambda env: env.get(node)
        case tir.Cast(value=inner) if node.dtype.is_int and inner.dtype.is_int and node.dtype.lanes == 1:
            return _compile(inner)
        case tir.Call(op=tir.Op("tir.likely"), args=(inner,)):
            return _compile(inner)
        case tir.Not(value=inner):
            inner_value = _compile(inner)
            return lambda env: None if (x := inner_value(env)) is None else not x
        case tir.And(lhs=lhs, rhs=rhs) | tir.Or(lhs=lhs, rhs=rhs):
            return _logical(_compile(lhs), _compile(rhs), isinstance(node, tir.Or))
        case (
            tir.Select(condition=condition, true_value=yes, false_value=no)
            | tir.Call(op=tir.Op("tir.if_then_else"), args=(condition, yes, no))
        ):
            chosen, one, two = _compile(condition), _compile(yes), _compile(no)
            return lambda env: None if (x := chosen(env)) is None else one(env) if x else two(env)
        case tir.BinaryOp(lhs=lhs, rhs=rhs) if type(node) in _BINARY and lhs.dtype.lanes == 1:
            return _arithmetic(_BINARY[type(node)], _compile(lhs), _compile(rhs))
    return lambda env: None


def _logical(one: Value, two: Value, decides: bool) -> Value:
    def value(env: Env) -> int | None:
        a, b = one(env), two(env)
        if (a is not None and bool(a) is decides) or (b is not None and bool(b) is decides):
            return decides
        return None if a is None or b is None else not decides

    return value


def _arithmetic(compute: Callable[[int, int], Any], one: Value, two: Value) -> Value:
    def value(env: Env) -> int | None:
        a, b = one(env), two(env)
        if a is None or b is None or (b == 0 and compute in (operator.floordiv, operator.mod)):
            return None
        return compute(a, b)  # type: ignore[no-any-return]

    return value
