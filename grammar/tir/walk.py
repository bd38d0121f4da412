"""From the syntax tree of a `@T.prim_func` to a `PrimFunc`: parameters, bodies, assignments, simple statements.

Loops are in `loops`, blocks in `blocks`, `with` in `with_statements`, and other statements that call `T.*` in
`statements`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc.arith.complete import complete
from mlcc.errors import CompileError, Label, Span
from mlcc.grammar.context import UNKNOWN, Scope, Skip, TypeVar, Walk
from mlcc.grammar.syntax.tree import Cst
from mlcc.grammar.tir import (
    attribute_values,
)
from mlcc.grammar.tir import (
    blocks as tir_blocks,
)
from mlcc.grammar.tir import (
    calls as tir_calls,
)
from mlcc.grammar.tir import (
    loops as tir_loops,
)
from mlcc.grammar.tir import (
    statements as tir_statements,
)
from mlcc.grammar.tir import (
    types as tir_types,
)
from mlcc.grammar.tir import (
    with_statements as tir_with,
)
from mlcc.grammar.tir.blocks import BlockFrame
from mlcc.grammar.tir.evaluated import Scalar, describe, is_number, mark
from mlcc.grammar.tir.values import Evaluator
from mlcc.ir import construct, tir
from mlcc.ir.dtypes import BOOL, VOID, DType
from mlcc.ir.node import Attrs
from mlcc.ir.relax import GlobalVar

Body = tuple[tir.Stmt, ...]


def walk_prim_func(walk: Walk, cst: Cst) -> tir.PrimFunc:
    """The function that a `def` under `@T.prim_func` means, completed. What is wrong is noted; raises Skip."""
    return FunctionWalk(walk, cst).function()


class Statements:
    """The statements of one body while it is read; annotated scopes nest what follows them."""

    def __init__(self) -> None:
        self._open: list[tuple[list[tir.Stmt], Callable[[Body], tir.Stmt] | None]] = [([], None)]

    def add(self, stmt: tir.Stmt) -> None:
        self._open[-1][0].append(stmt)

    def enter(self, make: Callable[[Body], tir.Stmt]) -> None:
        """From here to the end of the body, statements go into what `make` gives."""
        self._open.append(([], make))

    def close(self) -> Body:
        while len(self._open) > 1:
            inner, make = self._open.pop()
            assert make is not None
            self._open[-1][0].append(make(tuple(inner) or (_nothing(None),)))
        return tuple(self._open[0][0])


def _nothing(span: Span | None) -> tir.Stmt:
    return tir.Evaluate(construct.const(0), span=span)


class FunctionWalk:
    """The walk over one function. `out` takes the statements of the body being read."""

    def __init__(self, walk: Walk, cst: Cst) -> None:
        self.walk = walk
        self.cst = cst
        self.scope = Scope(walk.prelude)
        self.ev = Evaluator(walk, self.scope)
        self.out = Statements()
        self.ranges: dict[tir.Var, tir.Range] = {}  # of the loops that are open
        self.frames: list[BlockFrame | None] = [None]  # what statements stand directly in: a block, or not (None)
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

    # ------------------------------------------------------------ the function

    def function(self) -> tir.PrimFunc:
        """All of it."""
        _, start, end, name, at, parameters, returns, _, body = self.cst
        for symbol, binding in self.walk.prelude.bindings():
            if isinstance(binding.value, TypeVar):
                self.scope.define(symbol, tir.Var(symbol, binding.value.dtype, span=binding.span), binding.span)
        errors = len(self.walk.diagnostics)
        with self.scope.frame(f" in `{name}`"):
            signature = tir_types.Signature(self.ev, self._declarations(body))
            signature.read(parameters)
            self.signature = signature
            ret_dtype = tir_types.result_annotation(self.ev, returns)
            with self.scope.frame(f" in `{name}`"):
                made = self.body(body)
        if len(self.walk.diagnostics) > errors:
            raise Skip
        buffers = tuple(b or self.matched.get(p) for p, b in zip(signature.params, signature.buffers, strict=True))
        attrs = self.attrs if self.private else {"global_symbol": name, **self.attrs}
        span = Span(self.walk.source, at[0], at[1])
        made = made or (_nothing(span),)
        func = tir.PrimFunc(tuple(signature.params), buffers, Attrs(attrs), made, ret_dtype, span=span)
        return self._completed(func)

    def _completed(self, func: tir.PrimFunc) -> tir.PrimFunc:
        try:
            return complete(func, tuple(self.root_allocs))
        except CompileError as bad:
            self.walk.diagnostics.extend(bad.diagnostics)
            raise Skip from None

    def _declarations(self, body: tuple[Cst, ...]) -> dict[str, DType]:
        """Names that the body declares at its top, as in `n = T.int64()`, which quoted dimensions then mean."""
        found: dict[str, DType] = {}
        for stmt in body:
            if stmt[0] == "assign" and stmt[5] is not None:
                for target, value in _pairs(stmt[3], stmt[5]):
                    dtype = tir_calls.declared_dtype(self.ev, value) if target[0] == "name" else None
                    if dtype is not None:
                        found[target[3]] = dtype
        return found

    # ------------------------------------------------------------ bodies

    def body(self, statements: tuple[Cst, ...]) -> Body:
        """The statements of a body. Each that is wrong is noted and left out."""
        outer, self.out = self.out, Statements()
        for stmt in statements:
            try:
                _STATEMENT[stmt[0]](self, stmt)
            except Skip:
                self._forget(stmt)
        made, self.out = self.out.close(), outer
        return made

    def inner(self, statements: tuple[Cst, ...], where: str, at: Cst) -> Body:
        """A nested body, in a scope of its own; one without effect does nothing."""
        self.frames.append(None)
        try:
            with self.scope.frame(where):
                return self.body(statements) or (self.nothing(at),)
        finally:
            self.frames.pop()

    def nothing(self, at: Cst) -> tir.Stmt:
        """What stands for an empty body."""
        return _nothing(self.walk.span(at))

    def _forget(self, stmt: Cst) -> None:
        """Names that a wrong statement would have bound stand for an unknown value: no second error from them."""
        targets = []
        if stmt[0] == "assign":
            targets.append(stmt[3])
        elif stmt[0] == "with":
            targets += [t for _, t in stmt[3] if t is not None]
        while targets:
            target = targets.pop()
            if target[0] in ("tuple", "list"):
                targets.extend(target[3])
            elif target[0] == "name" and self.scope.find(target[3]) is None:
                self.scope.define(target[3], UNKNOWN, self.walk.span(target))

    def define(self, target: Cst, value: Any) -> None:
        """Bind a name. In one body a name is bound once; only loops and blocks may use it again."""
        name, span = target[3], self.walk.span(target)
        known = self.scope.find_here(name)
        if known is not None and known.value is not UNKNOWN and known.value is not value:
            self.walk.fail(
                "E0205", f"`{name}` is bound already", target,
                related=(Label(known.span, "it is bound here"),) if known.span is not None else (),
                help=f'values do not change; use another name, or a buffer: `{name} = T.alloc_buffer((1,), "int32")`',
            )  # fmt: skip
        self.scope.define(name, value, span)

    # ------------------------------------------------------------ statements of the grammar

    def _expression(self, cst: Cst) -> None:
        value = cst[3]
        if value[0] == "const" and value[3] is Ellipsis:
            help = "write the body; `pass` stands for one that does nothing"
            self.walk.fail("E0206", "the function is unfinished: `...` stands for a missing body", cst, help=help)
        if value[0] == "str":
            return  # a docstring
        if value[0] == "call" and tir_statements.expression(self, value):
            return
        made = self.ev.value(value)
        if isinstance(made, (tir.Var, tir.Buffer)) or made is None:
            return
        self.out.add(tir.Evaluate(self.ev.as_expr(made, value), span=self.walk.span(cst)))

    def _assign(self, cst: Cst) -> None:
        _, _, _, target, annotation, value = cst
        if annotation is not None:
            self._annotated(target, annotation, value, cst)
            return
        if target[0] == "index":
            self._store(target, self.ev.operand(value), cst)
        elif target[0] in ("tuple", "list"):
            self._assign_tuple(target, value, cst)
        elif target[0] == "name":
            self.assign_name(target, value, cst)
        else:
            self.walk.fail("E0302", "this cannot be assigned to", target)

    def _assign_tuple(self, target: Cst, value: Cst, cst: Cst) -> None:
        if value[0] in ("tuple", "list") and not _starred(target) and not _starred(value):
            pairs = _pairs(target, value)
            if len(target[3]) != len(value[3]):
                self._count_mismatch(target, len(value[3]))
            for one, item in pairs:
                self._assign(("assign", one[1], item[2], one, None, item))
            return
        if value[0] == "call" and tir_blocks.axes(self, target, value):
            return
        values = self.ev.value(value)
        if not isinstance(values, (tuple, list)):
            self.walk.fail("E0302", f"{describe(values)} cannot be taken apart", value)
        self.unpack(target, list(values))

    def unpack(self, target: Cst, values: list[Any]) -> None:
        """Bind the names of a tuple target; a starred one takes what is left over."""
        targets = target[3]
        star = next((i for i, t in enumerate(targets) if t[0] == "star"), None)
        if star is not None and len(values) >= len(targets) - 1:
            width = len(values) - len(targets) + 1
            values = [*values[:star], values[star : star + width], *values[star + width :]]
        if len(values) != len(targets):
            self._count_mismatch(target, len(values))
        for one, value in zip(targets, values, strict=True):
            self._bind_value(one[3] if one[0] == "star" else one, value)

    def _count_mismatch(self, target: Cst, count: int) -> None:
        self.walk.fail("E0302", f"{len(target[3])} names for {count} values", target)

    def _bind_value(self, target: Cst, value: Any) -> None:
        if target[0] in ("tuple", "list"):
            if not isinstance(value, (tuple, list)):
                self.walk.fail("E0302", f"{describe(value)} cannot be taken apart", target)
            self.unpack(target, list(value))
        elif target[0] == "name":
            self.define(target, value)
        else:
            self.walk.fail("E0302", "only names can be bound here", target)

    def assign_name(self, target: Cst, value: Cst, cst: Cst) -> None:
        """`x = value`: a declaration, a buffer, an axis, a store into a scalar, or a binding."""
        name = target[3]
        declared = tir_calls.declared_dtype(self.ev, value)
        if declared is not None:
            self._declare(target, declared, value)
            return
        if value[0] == "call" and (tir_statements.binding(self, target, value) or tir_blocks.axes(self, target, value)):
            return
        known = self.scope.find(name)
        if known is not None and isinstance(known.value, Scalar):
            self.store(known.value.buffer, self.ev.operand(value), (construct.const(0),), cst)
            return
        made = self.ev.value(value)
        if isinstance(made, (tir.Buffer, tir.IterVar, tuple, list, dict, str, DType, GlobalVar)):
            self.define(target, made)
            return
        expr = self.ev.as_expr(made, value)
        if self.s_tir and not expr.dtype.is_handle:
            self.scalar(target, expr.dtype, made, cst)
        else:
            self.bind(target, expr, None, cst)

    def _declare(self, target: Cst, dtype: DType, value: Cst) -> None:
        """`n = T.int64()`: a new variable, or the one that a quoted dimension of the signature introduced."""
        name, span = target[3], self.walk.span(target)
        matched = self.signature.matched.get(name)
        if matched is not None and self.scope.get(name) is matched:
            if matched.dtype is not dtype:
                self.walk.fail("E0301", f"`{name}` is {matched.dtype} in the signature", value, f"{dtype} here")
            return
        made = self.ev.value(value)
        var = tir.Var(name, dtype, made.pointer if isinstance(made, tir.Var) else None, span=span)
        self.define(target, var)

    def bind(self, target: Cst, value: tir.Expr, var: tir.Var | None, cst: Cst) -> None:
        """`target` stands for `value` from here on."""
        pointer = value.pointer if isinstance(value, tir.Var) else tir_statements.pointer_of(value)
        span = self.walk.span(target)
        var = var or tir.Var(target[3], value.dtype, pointer, span=span)
        self.define(target, var)
        self.out.add(tir.Bind(var, value, span=self.walk.span(cst)))

    def scalar(self, target: Cst, dtype: DType, value: Any, cst: Cst) -> None:
        """A variable that can be assigned to again: a buffer of one element."""
        span = self.walk.span(target)
        buffer = mark(construct.make_buffer(target[3], (1,), dtype, "local"), span)
        self.define(target, Scalar(buffer))
        self.out.add(tir.AllocBuffer(buffer, scalar=True, span=self.walk.span(cst)))
        if value is not None:
            self.store(buffer, value, (construct.const(0),), cst)

    def _annotated(self, target: Cst, annotation: Cst, value: Cst | None, cst: Cst) -> None:
        if target[0] != "name":
            self.walk.fail("E0302", "only a name can be annotated", target)
        buffer = tir_statements.vector_annotation(self, annotation)
        if buffer is not None and value is None:
            element, shape = buffer
            made = mark(construct.make_buffer(target[3], shape, element, "local"), self.walk.span(target))
            self.define(target, made)
            self.out.add(tir.AllocBuffer(made, span=self.walk.span(cst)))
            return
        kind = tir_types.bound_type(self.ev, annotation)
        if kind is None:
            if value is not None and tir_types.buffer_call(self.ev, annotation) is not None:
                self.assign_name(target, value, cst)
                return
            self.walk.fail("E0302", "this is not the type of a value", annotation, help="`x: T.int32 = ...`")
        dtype, pointer, let = kind
        if dtype is not None and not let and (value is None or self.s_tir) and not dtype.is_handle:
            self.scalar(target, dtype, None if value is None else self.ev.operand(value), cst)
            return
        if value is None:
            self.walk.fail("E0302", f"`{target[3]}` needs a value", cst)
        made_value = self.ev.value(value)
        if isinstance(made_value, str):
            made_value = tir.StringImm(made_value, span=self.walk.span(value))
        if dtype is not None and is_number(made_value):
            made_value = self.ev.build(value, construct.const, made_value, dtype)
        expr = self.ev.as_expr(made_value, value)
        if dtype is not None and dtype is not expr.dtype:
            if dtype.is_handle or expr.dtype.is_handle or let:
                self.walk.fail("E0301", f"`{target[3]}` is {dtype}, its value is {expr.dtype}", value)
            expr = self.ev.build(value, construct.cast, dtype, expr)
        var = tir.Var(target[3], expr.dtype, pointer, span=self.walk.span(target)) if pointer is not None else None
        self.bind(target, expr, var, cst)

    def _store(self, target: Cst, value: Any, cst: Cst) -> None:
        base = self.ev.value(target[3])
        if isinstance(base, Scalar):
            base = base.buffer
        if not isinstance(base, tir.Buffer):
            help = "only elements of buffers can be assigned to"
            self.walk.fail("E0302", f"{describe(base)} has no elements", target[3], help=help)
        self.store(base, value, tuple(self.ev.indices(base, target)), cst)

    def store(self, buffer: tir.Buffer, value: Any, indices: tuple[tir.Expr, ...], cst: Cst) -> None:
        """`buffer[indices] = value`, the value brought to the dtype of the buffer."""
        lanes = indices[-1].dtype.lanes if indices else 1
        dtype = buffer.dtype.with_lanes(buffer.dtype.lanes * lanes)
        at = cst[5] if cst[0] in ("assign", "augassign") else cst
        if isinstance(value, bool) or (isinstance(value, int) and not dtype.is_float):
            value = self.ev.build(at, construct.const, value, dtype)
        value = self.ev.as_expr(value, at)
        given = value.dtype
        if given.is_handle != dtype.is_handle or given.is_void or given.lanes not in (1, dtype.lanes):
            message = f"cannot store {given} in `{buffer.name}`"
            place = f"an element is {dtype}" if lanes == 1 else f"the place is {dtype}"
            self.walk.fail("E0301", message, at, place)
        value = self.ev.build(at, construct.cast, dtype, value)
        self.out.add(tir.BufferStore(buffer, value, indices, span=self.walk.span(cst)))

    def _augmented(self, cst: Cst) -> None:
        _, start, end, target, op, value = cst
        made = self.ev.value(("binary", start, end, op, target, value))
        if target[0] == "index":
            self._store(target, made, cst)
            return
        known = self.scope.find(target[3]) if target[0] == "name" else None
        if known is None or not isinstance(known.value, Scalar):
            help = "values do not change; use an element of a buffer"
            self.walk.fail("E0205", "only elements of buffers can be changed", target, help=help)
        self.store(known.value.buffer, made, (construct.const(0),), cst)

    def _if(self, cst: Cst) -> None:
        _, _, _, condition, then, other = cst
        value = self.ev.value(condition)
        if isinstance(value, bool):  # decided now; the names of the branch taken stay visible
            for stmt in then if value else other:
                try:
                    _STATEMENT[stmt[0]](self, stmt)
                except Skip:
                    self._forget(stmt)
            return
        made = self._truth(self.ev.as_expr(value, condition), condition)
        where = " inside an `if`"
        then_body = self.inner(then, where, cst)
        else_body = self.inner(other, where, cst) if other else None
        self.out.add(tir.IfThenElse(made, then_body, else_body, span=self.walk.span(cst)))

    def _truth(self, value: tir.Expr, cst: Cst) -> tir.Expr:
        """A condition. An integer stands for `T.Cast("bool", value)`, which is printed as it is written: `if i:`."""
        if value.dtype.is_int and value.dtype.lanes == 1 and tir.const_int(value) is None:
            return tir.Cast(BOOL, value, span=self.walk.span(cst))
        return value if value.dtype.is_bool else self.ev.build(cst, construct.as_bool, value)

    def _while(self, cst: Cst) -> None:
        condition = self._truth(self.ev.expr(cst[3]), cst[3])
        self.loops += 1
        body = self.inner(cst[4], " inside a `while`", cst)
        self.loops -= 1
        self.out.add(tir.While(condition, body, span=self.walk.span(cst)))

    def jump(self, cst: Cst, made: type[tir.Stmt], word: str) -> None:
        """`break` or `continue`."""
        if not self.loops:
            self.walk.fail("E0305", f"`{word}` outside a loop", cst)
        self.out.add(made(span=self.walk.span(cst)))

    def _assert(self, cst: Cst) -> None:
        condition = self.ev.bool(cst[3])
        kind, parts = "RuntimeError", tuple[str, ...]()
        if cst[4] is not None:
            kind, parts = attribute_values.assert_message(self.ev, cst[4])
        self.out.add(tir.AssertStmt(condition, kind, parts, span=self.walk.span(cst)))

    def _return(self, cst: Cst) -> None:
        nothing = cst[3] is None or (cst[3][0] == "const" and cst[3][3] is None)
        args = () if nothing else (self.ev.expr(cst[3]),)
        made = tir.Call(args[0].dtype if args else VOID, tir.Op("tir.ret"), args, span=self.walk.span(cst))
        self.out.add(tir.Evaluate(made, span=self.walk.span(cst)))

    def _nested(self, cst: Cst) -> None:
        what = {"def": "function", "class": "class", "import": "import"}[cst[0]]
        self.walk.fail("E0305", f"a {what} cannot stand inside a PrimFunc", cst)

    def _pass(self, cst: Cst) -> None:
        pass


_STATEMENT: dict[str, Callable[[FunctionWalk, Cst], None]] = {
    "expr": FunctionWalk._expression, "assign": FunctionWalk._assign, "augassign": FunctionWalk._augmented,
    "for": lambda fw, cst: tir_loops.walk_for(fw, cst), "while": FunctionWalk._while, "if": FunctionWalk._if,
    "with": lambda fw, cst: tir_with.walk_with(fw, cst), "return": FunctionWalk._return,
    "pass": FunctionWalk._pass,
    "break": lambda fw, cst: fw.jump(cst, tir.Break, "break"),
    "continue": lambda fw, cst: fw.jump(cst, tir.Continue, "continue"),
    "assert": FunctionWalk._assert, "def": FunctionWalk._nested, "class": FunctionWalk._nested,
    "import": FunctionWalk._nested,
}  # fmt: skip


def _starred(cst: Cst) -> bool:
    return any(item[0] == "star" for item in cst[3])


def _pairs(target: Cst, value: Cst) -> list[tuple[Cst, Cst]]:
    """Targets and values that stand at the same places of two displays."""
    if target[0] in ("tuple", "list") and value[0] in ("tuple", "list"):
        return list(zip(target[3], value[3], strict=False))
    return [(target, value)]
