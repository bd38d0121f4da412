"""The state of walking one PrimFunc: its names, the body and the blocks that are open, and what its statements add."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mlcc.errors import Label, Span
from mlcc.grammar.context import UNKNOWN, Scope, Skip, Walk
from mlcc.grammar.syntax import tree
from mlcc.grammar.tir import attribute_values
from mlcc.grammar.tir import types as tir_types
from mlcc.grammar.tir.evaluation_results import Scalar, set_span
from mlcc.grammar.tir.evaluator import Evaluator
from mlcc.ir import construct, tir
from mlcc.ir.dtypes import DType

Body = tuple[tir.Stmt, ...]


@dataclass(eq=False)
class BlockFrame:
    """Properties of a block, collected from the statements directly inside it."""

    axes: list[tir.IterVar] = field(default_factory=list)
    values: list[tir.Expr] = field(default_factory=list)
    reads: tuple[tir.BufferRegion, ...] | None = None
    writes: tuple[tir.BufferRegion, ...] | None = None
    predicate: tir.Expr | None = None
    init: tuple[tir.Stmt, ...] | None = None
    allocs: list[tir.Buffer] = field(default_factory=list)
    matches: list[tir.MatchBufferRegion] = field(default_factory=list)
    annotations: dict[str, Any] = field(default_factory=dict)
    places: dict[str, Span] = field(default_factory=dict)  # the places of statements that may appear only once


class BodyBuilder:
    """The statements of one body while it is read; an annotated scope encloses the statements that follow it."""

    def __init__(self) -> None:
        self._open: list[tuple[list[tir.Stmt], Callable[[Body], tir.Stmt] | None]] = [([], None)]

    def add(self, stmt: tir.Stmt) -> None:
        self._open[-1][0].append(stmt)

    def enter(self, make: Callable[[Body], tir.Stmt]) -> None:
        """Nest the remaining statements of the body in the statement that `make` builds."""
        self._open.append(([], make))

    def close(self) -> Body:
        while len(self._open) > 1:
            inner, make = self._open.pop()
            assert make is not None
            self._open[-1][0].append(make(tuple(inner) or (_empty_statement(None),)))
        return tuple(self._open[0][0])


def _empty_statement(span: Span | None) -> tir.Stmt:
    return tir.Evaluate(construct.const(0), span=span)


class FunctionWalk:
    """The walk over one function. `out` takes the statements of the body being read."""

    def __init__(self, walk: Walk, cst: tree.Def) -> None:
        self.walk = walk
        self.scope = Scope(walk.prelude)
        self.ev = Evaluator(walk, self.scope)
        self.out = BodyBuilder()
        self.signature = tir_types.Signature(self.ev, {})
        self.ranges: dict[tir.Var, tir.Range] = {}  # of the loops that are open
        self.frames: list[BlockFrame | None] = [None]  # the enclosing block of each open body, or None
        self.root_allocs: list[tir.Buffer] = []
        self.attrs: dict[str, Any] = {}
        self.matched: dict[tir.Var, tir.Buffer] = {}
        self.loops = 0  # open loops, for break and continue
        options = attribute_values.decorator_options(walk, cst)
        self.private = bool(options.get("private", False))
        # TVM 0.27 writes mutable scalars as `x: T.int32 = e` and allocation statements as `T.alloc_buffer`
        self.s_tir = bool(options.get("s_tir", False)) or walk.tirx
        if not options.get("s_tir", not walk.tirx):
            self.attrs["s_tir"] = False

    # ------------------------------------------------------------ bodies

    def body(self, statements: tree.Body) -> Body:
        """Walk the statements of a body; one with an error is reported and left out."""
        outer, self.out = self.out, BodyBuilder()
        for stmt in statements:
            try:
                self.statement(stmt)
            except Skip:
                self._bind_unknown(stmt)
        stmts, self.out = self.out.close(), outer
        return stmts

    def statement(self, stmt: tree.Stmt) -> None:
        """Walk one statement of any kind."""
        raise NotImplementedError

    def inner(self, statements: tree.Body, where: str, at: tree.Node) -> Body:
        """Walk a nested body in a new scope; a body without statements becomes an empty statement."""
        self.frames.append(None)
        try:
            with self.scope.frame(where):
                return self.body(statements) or (self.nothing(at),)
        finally:
            self.frames.pop()

    def nothing(self, at: tree.Node) -> tir.Stmt:
        """Return the statement that represents an empty body."""
        return _empty_statement(self.walk.span(at))

    def _bind_unknown(self, stmt: tree.Stmt) -> None:
        """Bind the names of a wrong statement to an unknown value, so that their uses give no further errors."""
        targets = []
        if isinstance(stmt, tree.Assign):
            targets.append(stmt.target)
        elif isinstance(stmt, tree.With):
            targets += [t for _, t in stmt.items if t is not None]
        while targets:
            target = targets.pop()
            if isinstance(target, tree.Display):
                targets.extend(target.items)
            elif isinstance(target, tree.Name) and self.scope.find(target.id) is None:
                self.scope.define(target.id, UNKNOWN, self.walk.span(target))

    def define(self, target: tree.Name, value: Any) -> None:
        """Bind a name, once in a body; nested loops and blocks may bind it again."""
        name, span = target.id, self.walk.span(target)
        known = self.scope.find_innermost(name)
        if known is not None and known.value is not UNKNOWN and known.value is not value:
            self.walk.fail(
                "E0205", f"`{name}` is already bound", target,
                related=(Label(known.span, "it is bound here"),) if known.span is not None else (),
                help=f'values do not change; use another name, or a buffer: `{name} = T.alloc_buffer((1,), "int32")`',
            )  # fmt: skip
        self.scope.define(name, value, span)

    # ------------------------------------------------------------ what statements add

    def bind(self, target: tree.Name, value: tir.Expr, var: tir.Var | None, cst: tree.Node) -> None:
        """Bind `target` to `value` for the rest of the body."""
        pointer = value.pointer if isinstance(value, tir.Var) else pointer_of(value)
        span = self.walk.span(target)
        var = var or tir.Var(target.id, value.dtype, pointer, span=span)
        self.define(target, var)
        self.out.add(tir.Bind(var, value, span=self.walk.span(cst)))

    def scalar(self, target: tree.Name, dtype: DType, value: Any, cst: tree.Node) -> None:
        """Create a variable that can be assigned to again: a buffer with one element."""
        span = self.walk.span(target)
        buffer = set_span(construct.make_buffer(target.id, (1,), dtype, "local"), span)
        self.define(target, Scalar(buffer))
        self.out.add(tir.AllocBuffer(buffer, scalar=True, span=self.walk.span(cst)))
        if value is not None:
            self.store(buffer, value, (construct.const(0),), cst)

    def store(self, buffer: tir.Buffer, value: Any, indices: tuple[tir.Expr, ...], cst: tree.Node) -> None:
        """Add `buffer[indices] = value`, the value converted to the dtype of the buffer."""
        lanes = indices[-1].dtype.lanes if indices else 1
        dtype = buffer.dtype.with_lanes(buffer.dtype.lanes * lanes)
        at = cst
        if isinstance(cst, (tree.Assign, tree.AugAssign)) and cst.value is not None:
            at = cst.value
        if isinstance(value, bool) or (isinstance(value, int) and not dtype.is_float):
            value = self.ev.build(at, construct.const, value, dtype)
        value = self.ev.as_expr(value, at)
        value_dtype = value.dtype
        if value_dtype.is_handle != dtype.is_handle or value_dtype.is_void or value_dtype.lanes not in (1, dtype.lanes):
            message = f"cannot store {value_dtype} in `{buffer.name}`"
            place = f"an element is {dtype}" if lanes == 1 else f"the place is {dtype}"
            self.walk.fail("E0301", message, at, place)
        value = self.ev.build(at, construct.cast, dtype, value)
        self.out.add(tir.BufferStore(buffer, value, indices, span=self.walk.span(cst)))

    def jump(self, cst: tree.Node, statement: type[tir.Stmt], word: str) -> None:
        """Add a `break` or `continue`."""
        if not self.loops:
            self.walk.fail("E0305", f"`{word}` outside a loop", cst)
        self.out.add(statement(span=self.walk.span(cst)))


def pointer_of(value: tir.Expr) -> tir.PointerType | None:
    """Return the type of a pointer expression, or None if its element type is unknown."""
    if isinstance(value, tir.Var):
        return value.pointer
    if isinstance(value, tir.Call) and isinstance(value.op, tir.Op) and value.op.name == "tir.address_of":
        load = value.args[0]
        if isinstance(load, tir.BufferLoad):
            return tir.PointerType(load.buffer.dtype.element, load.buffer.scope)
    return None
