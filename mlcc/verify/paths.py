"""Every access of a function with the path to it: the enclosing loops, bindings and conditions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.intrinsics import Effect, called, effect_of, name_of
from mlcc.ir.node import children
from mlcc.ir.tir import Expr, IterKind

Body = tuple[tir.Stmt, ...]

_LOOP_JUMPS = ("break_loop", "continue_loop")


class PathStep:
    """One step of a path; `outer` is the one before it."""

    __slots__ = ("outer",)

    def __init__(self, outer: PathStep | None) -> None:
        self.outer = outer

    def steps(self) -> list[PathStep]:
        """The path to here, outermost first."""
        path: list[PathStep] = []
        step: PathStep | None = self
        while step is not None:
            path.append(step)
            step = step.outer
        path.reverse()
        return path


class Start(PathStep):
    """The start of the function."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(None)


class Loop(PathStep):
    """A loop, or a launch over threads: `var` runs from `low` over `extent` values, `step` apart."""

    __slots__ = ("extent", "low", "node", "step", "var")

    def __init__(
        self, outer: PathStep, var: tir.Var, low: Expr, extent: Expr, step: Expr | None, node: tir.Stmt
    ) -> None:
        super().__init__(outer)
        self.var, self.low, self.extent, self.step, self.node = var, low, extent, step, node


class Let(PathStep):
    """A step into the scope of a variable with a value."""

    __slots__ = ("value", "var")

    def __init__(self, outer: PathStep, var: tir.Var, value: Expr) -> None:
        super().__init__(outer)
        self.var, self.value = var, value


class Guard(PathStep):
    """A step into code that runs if the condition holds (or if not, without `holds`)."""

    __slots__ = ("condition", "holds")

    def __init__(self, outer: PathStep, condition: Expr, holds: bool = True) -> None:
        super().__init__(outer)
        self.condition, self.holds = condition, holds


class MaybeExecuted(PathStep):
    """A step into code that may not run."""

    __slots__ = ()


class PathVisitor:
    """Walks a function in the order in which it runs; `access` is called for each load and store, `step` for each step.

    Loads by reference (`T.address_of`) are not accesses. Behind a jump or a return that may happen, and in loops that
    have one, nothing is certain.
    """

    def function(self, func: tir.PrimFunc) -> None:
        """Walk a whole function."""
        self._seen: set[int] = set()
        self._jumps = any(map(_is_jump, _statements(func.body)))
        self._body(func.body, Start())

    def access(self, node: tir.BufferLoad | tir.BufferStore, path: PathStep) -> None:
        """Handle an access; a store comes after the loads of its value and indices."""

    def step(self, step: PathStep) -> None:
        """Handle the entry of a step."""

    def leave(self, loop: Loop) -> None:
        """Handle the end of a loop's body."""

    def allocate(self, buffer: tir.Buffer, path: PathStep) -> None:
        """Handle an allocation."""

    def alias(self, data: tir.Var, value: Expr) -> None:
        """Handle the pointer of a declared or matched buffer, which points into other memory."""

    def escape(self, call: tir.Call) -> None:
        """Handle a call that may access more memory than its loads show."""

    # ------------------------------------------------------------ statements

    def _enter(self, step: PathStep) -> PathStep:
        self.step(step)
        return step

    def _body(self, body: Body, path: PathStep) -> None:
        for stmt in body:
            self._seen.clear()
            path = self._stmt(stmt, path)
            if self._jumps and _may_exit((stmt,)):
                path = self._enter(MaybeExecuted(path))

    def _stmt(self, stmt: tir.Stmt, path: PathStep) -> PathStep:
        """Visit a statement; the path of those after it in the same body."""
        match stmt:
            case tir.BufferStore():
                self._expr(stmt.value, path)
                for index in stmt.indices:
                    self._expr(index, path)
                self.access(stmt, path)
            case tir.For():
                self._for(stmt, path)
            case tir.BlockRealize():
                self._realize(stmt, path)
            case tir.IfThenElse():
                self._expr(stmt.condition, path)
                self._body(stmt.then_body, self._enter(Guard(path, stmt.condition)))
                if stmt.else_body:
                    self._body(stmt.else_body, self._enter(Guard(path, stmt.condition, False)))
            case tir.While():
                self._expr(stmt.condition, path)
                self._body(stmt.body, self._enter(MaybeExecuted(path)))
            case tir.Bind():
                self._expr(stmt.value, path)
                if stmt.var.dtype.is_handle:
                    self.alias(stmt.var, stmt.value)
                return self._enter(Let(path, stmt.var, stmt.value))
            case tir.AssertStmt():
                self._expr(stmt.condition, path)
                return self._enter(Guard(path, stmt.condition))
            case tir.Evaluate():
                self._expr(stmt.value, path)
            case tir.AttrStmt():
                self._attr(stmt, path)
            case tir.AllocBuffer():
                self.allocate(stmt.buffer, path)
            case tir.DeclBuffer():
                self._expr(stmt.data, path)
                if stmt.data is not stmt.buffer.data:
                    self.alias(stmt.buffer.data, stmt.data)
        return path

    def _for(self, stmt: tir.For, path: PathStep) -> None:
        for bound in (stmt.min, stmt.extent):
            self._expr(bound, path)
        if self._jumps and _may_exit(stmt.body):
            path = self._enter(MaybeExecuted(path))
        loop = Loop(path, stmt.var, stmt.min, stmt.extent, stmt.step, stmt)
        self._body(stmt.body, self._enter(loop))
        self.leave(loop)

    def _attr(self, stmt: tir.AttrStmt, path: PathStep) -> None:
        subject = stmt.subject
        if (
            isinstance(subject, tir.IterVar)
            and isinstance(stmt.value, Expr)
            and stmt.key.endswith(("extent", "thread"))
        ):
            loop = Loop(path, subject.var, c.const(0, subject.var.dtype), stmt.value, None, stmt)
            self._body(stmt.body, self._enter(loop))
            self.leave(loop)
        else:
            self._body(stmt.body, path)

    def _realize(self, stmt: tir.BlockRealize, path: PathStep) -> None:
        block = stmt.block
        for axis, value in zip(block.iter_vars, stmt.values, strict=False):
            self._expr(value, path)
            path = self._enter(Let(path, axis.var, value))
        if tir.const_int(stmt.predicate) != 1:
            self._expr(stmt.predicate, path)
            path = self._enter(Guard(path, stmt.predicate))
        for buffer in block.alloc_buffers:
            self.allocate(buffer, path)
        for match in block.match_buffers:
            self.alias(match.buffer.data, match.source.buffer.data)
        if block.init is not None:
            first = path
            for axis in block.iter_vars:
                if axis.kind is IterKind.REDUCE:
                    first = self._enter(Guard(first, c.equal(axis.var, axis.dom.min)))
            self._body(block.init, first)
        self._body(block.body, path)

    # ------------------------------------------------------------ expressions

    def _expr(self, node: Any, path: PathStep) -> None:
        """The accesses below an expression; a node that a statement has at several places counts at the first."""
        if isinstance(node, (tir.Var, tir.IntImm, tir.FloatImm)) or id(node) in self._seen:
            return
        self._seen.add(id(node))
        match node:
            case tir.BufferLoad():
                for index in node.indices:
                    self._expr(index, path)
                self.access(node, path)
            case tir.And(lhs=a, rhs=b) | tir.Or(lhs=a, rhs=b):
                self._expr(a, path)
                self._guarded(b, a, isinstance(node, tir.And), path)
            case (
                tir.Select(condition=test, true_value=a, false_value=b)
                | tir.Call(op=tir.Op("tir.if_then_else"), args=(test, a, b))
            ):
                self._expr(test, path)
                self._guarded(a, test, True, path)
                self._guarded(b, test, False, path)
            case tir.Let():
                self._expr(node.value, path)
                self._expr(node.body, self._enter(Let(path, node.var, node.value)))
            case tir.Call():
                self._call(node, path)
            case tir.StringImm() | tir.Buffer():
                pass
            case _:
                for child in children(node):
                    self._expr(child, path)

    def _guarded(self, node: Expr, test: Expr, holds: bool, path: PathStep) -> None:
        if _has_access(node):
            self._expr(node, self._enter(Guard(path, test, holds)))

    def _call(self, node: tir.Call, path: PathStep) -> None:
        by_reference = called(node).place
        for arg in node.args:
            if by_reference and isinstance(arg, tir.BufferLoad):
                for index in arg.indices:
                    self._expr(index, path)
            else:
                self._expr(arg, path)
        if by_reference or not isinstance(node.op, tir.Op) or effect_of(node) > Effect.READ or _has_handle(node):
            self.escape(node)


def _has_access(root: Expr) -> bool:
    return any(isinstance(n, (tir.BufferLoad, tir.Call)) for n in unique_nodes(root))


def _has_handle(node: tir.Call) -> bool:
    return any(isinstance(a, tir.Var) and a.dtype.is_handle for a in node.args)


def _nested(stmt: tir.Stmt) -> Iterator[tir.Stmt]:
    """The statements directly inside one."""
    match stmt:
        case tir.For(body=body) | tir.While(body=body) | tir.AttrStmt(body=body):
            yield from body
        case tir.IfThenElse(then_body=then, else_body=other):
            yield from (*then, *(other or ()))
        case tir.BlockRealize(block=block):
            yield from (*(block.init or ()), *block.body)


def _statements(body: Body) -> Iterator[tir.Stmt]:
    stack = [*body]
    while stack:
        stmt = stack.pop()
        yield stmt
        stack += _nested(stmt)


def _may_exit(body: Body) -> bool:
    """True if statements may end the enclosing iteration, loop or function."""
    stack = [(stmt, False) for stmt in body]
    while stack:
        stmt, in_loop = stack.pop()
        if _is_jump(stmt) and not (in_loop and isinstance(stmt, (tir.Break, tir.Continue))):
            return True
        in_loop = in_loop or isinstance(stmt, (tir.For, tir.While))
        stack += [(inner, in_loop) for inner in _nested(stmt)]
    return False


def _is_jump(stmt: tir.Stmt) -> bool:
    """A jump out of a loop, or a return."""
    if isinstance(stmt, tir.Evaluate) and isinstance(stmt.value, tir.Call):
        return called(stmt.value).leaves or name_of(stmt.value) in _LOOP_JUMPS
    return isinstance(stmt, (tir.Break, tir.Continue))


def unique_nodes(root: Any) -> Iterator[Any]:
    """Every node below and including `root` (a node or a tuple of nodes), shared ones once."""
    stack = [*root] if isinstance(root, tuple) else [root]
    seen: set[int] = set()
    while stack:
        top = stack.pop()
        if id(top) in seen:
            continue
        seen.add(id(top))
        yield top
        stack += children(top)


def pointers(root: Any) -> Iterator[tir.Var]:
    """The handle variables below a node, those of buffers among them."""
    for node in unique_nodes(root):
        if isinstance(node, tir.Buffer):
            yield node.data
        elif isinstance(node, tir.Var) and node.dtype.is_handle:
            yield node
