"""From the syntax tree of a `@T.prim_func` to a `PrimFunc`: parameters, bodies, assignments, simple statements.

Loops are in `loops`, blocks in `blocks`, `with` in `with_statements`, and other statements that call `T.*` in
`statements`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc.arith.complete import complete
from mlcc.errors import CompileError
from mlcc.grammar.context import Skip, TypeVar, Walk
from mlcc.grammar.syntax import tree
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
from mlcc.grammar.tir.evaluation_results import Scalar, describe, is_number, set_span
from mlcc.grammar.tir.scope import FunctionWalk
from mlcc.ir import construct, tir
from mlcc.ir.dtypes import BOOL, VOID, DType
from mlcc.ir.node import Attrs
from mlcc.ir.relax import GlobalVar


def walk_prim_func(walk: Walk, cst: tree.Def) -> tir.PrimFunc:
    """Return the completed function of a `def` under `@T.prim_func`. Errors are recorded; then Skip is raised."""
    return _Walker(walk, cst).function()


class _Walker(FunctionWalk):
    """Walks one function; `function()` returns the result."""

    def __init__(self, walk: Walk, cst: tree.Def) -> None:
        super().__init__(walk, cst)
        self.cst = cst

    # ------------------------------------------------------------ the function

    def function(self) -> tir.PrimFunc:
        """Walk the whole function."""
        name, body = self.cst.name, self.cst.body
        for symbol, binding in self.walk.prelude.bindings():
            if isinstance(binding.value, TypeVar):
                self.scope.define(symbol, tir.Var(symbol, binding.value.dtype, span=binding.span), binding.span)
        errors = len(self.walk.diagnostics)
        with self.scope.frame(f" in `{name}`"):
            signature = self.signature = tir_types.Signature(self.ev, self._declarations(body))
            signature.read(self.cst.parameters)
            ret_dtype = tir_types.result_annotation(self.ev, self.cst.returns)
            with self.scope.frame(f" in `{name}`"):
                statements = self.body(body)
        if len(self.walk.diagnostics) > errors:
            raise Skip
        buffers = tuple(b or self.matched.get(p) for p, b in zip(signature.params, signature.buffers, strict=True))
        attrs = self.attrs if self.private else {"global_symbol": name, **self.attrs}
        span = self.walk.span(self.cst.place)
        statements = statements or (self.nothing(self.cst.place),)
        func = tir.PrimFunc(tuple(signature.params), buffers, Attrs(attrs), statements, ret_dtype, span=span)
        return self._completed(func)

    def _completed(self, func: tir.PrimFunc) -> tir.PrimFunc:
        try:
            return complete(func, tuple(self.root_allocs))
        except CompileError as bad:
            self.walk.diagnostics.extend(bad.diagnostics)
            raise Skip from None

    def _declarations(self, body: tree.Body) -> dict[str, DType]:
        """Names that the body declares at its top, as in `n = T.int64()`, which quoted dimensions then mean."""
        dtypes: dict[str, DType] = {}
        for stmt in body:
            if isinstance(stmt, tree.Assign) and stmt.value is not None:
                for target, value in _paired_targets(stmt.target, stmt.value):
                    if isinstance(target, tree.Name):
                        dtype = tir_calls.declared_dtype(self.ev, value)
                        if dtype is not None:
                            dtypes[target.id] = dtype
        return dtypes

    # ------------------------------------------------------------ statements of the grammar

    def statement(self, stmt: tree.Stmt) -> None:
        _STATEMENT[type(stmt)](self, stmt)

    def _expression(self, cst: tree.Expression) -> None:
        value = cst.value
        if isinstance(value, tree.Const) and value.value is Ellipsis:
            help = "write the body; `pass` stands for one that does nothing"
            self.walk.fail("E0206", "the function is unfinished: `...` stands for a missing body", cst, help=help)
        if isinstance(value, tree.Str):
            return  # a docstring
        if isinstance(value, tree.Call) and tir_statements.call_statement(self, value):
            return
        evaluated = self.ev.value(value)
        if isinstance(evaluated, (tir.Var, tir.Buffer)) or evaluated is None:
            return
        self.out.add(tir.Evaluate(self.ev.as_expr(evaluated, value), span=self.walk.span(cst)))

    def _assign(self, cst: tree.Assign) -> None:
        target, annotation, value = cst.target, cst.annotation, cst.value
        if annotation is not None:
            self._annotated(target, annotation, value, cst)
            return
        assert value is not None  # only an annotation stands without one
        if isinstance(target, tree.Index):
            self._store(target, self.ev.operand(value), cst)
        elif isinstance(target, tree.Display):
            self._assign_tuple(target, value, cst)
        elif isinstance(target, tree.Name):
            self.assign_name(target, value, cst)
        else:
            self.walk.fail("E0302", "this cannot be assigned to", target)

    def _assign_tuple(self, target: tree.Display, value: tree.Expr, cst: tree.Stmt) -> None:
        if isinstance(value, tree.Display) and not _starred(target) and not _starred(value):
            pairs = _paired_targets(target, value)
            if len(target.items) != len(value.items):
                self._count_mismatch(target, len(value.items))
            for one, item in pairs:
                self._assign(tree.Assign(one.start, item.end, one, None, item))
            return
        if isinstance(value, tree.Call) and tir_blocks.axes(self, target, value):
            return
        values = self.ev.value(value)
        if not isinstance(values, (tuple, list)):
            self.walk.fail("E0302", f"{describe(values)} cannot be unpacked", value)
        self.unpack(target, list(values))

    def unpack(self, target: tree.Display, values: list[Any]) -> None:
        """Bind the names of a tuple target; a starred name takes the remaining values."""
        targets = target.items
        star = next((i for i, t in enumerate(targets) if isinstance(t, tree.Star)), None)
        if star is not None and len(values) >= len(targets) - 1:
            width = len(values) - len(targets) + 1
            values = [*values[:star], values[star : star + width], *values[star + width :]]
        if len(values) != len(targets):
            self._count_mismatch(target, len(values))
        for one, value in zip(targets, values, strict=True):
            self._bind_value(one.value if isinstance(one, tree.Star) else one, value)

    def _count_mismatch(self, target: tree.Display, count: int) -> None:
        self.walk.fail("E0302", f"cannot unpack {count} values into {len(target.items)} names", target)

    def _bind_value(self, target: tree.Expr, value: Any) -> None:
        if isinstance(target, tree.Display):
            if not isinstance(value, (tuple, list)):
                self.walk.fail("E0302", f"{describe(value)} cannot be unpacked", target)
            self.unpack(target, list(value))
        elif isinstance(target, tree.Name):
            self.define(target, value)
        else:
            self.walk.fail("E0302", "only names can be bound here", target)

    def assign_name(self, target: tree.Name, value: tree.Expr, cst: tree.Stmt) -> None:
        """Walk `x = value`: a declaration, a buffer, an axis, a store into a scalar, or a binding."""
        name = target.id
        declared = tir_calls.declared_dtype(self.ev, value)
        if declared is not None:
            self._declare(target, declared, value)
            return
        if isinstance(value, tree.Call) and (
            tir_statements.call_binding(self, target, value) or tir_blocks.axes(self, target, value)
        ):
            return
        known = self.scope.find(name)
        if known is not None and isinstance(known.value, Scalar):
            self.store(known.value.buffer, self.ev.operand(value), (construct.const(0),), cst)
            return
        evaluated = self.ev.value(value)
        if isinstance(evaluated, (tir.Buffer, tir.IterVar, tuple, list, dict, str, DType, GlobalVar)):
            self.define(target, evaluated)
            return
        expr = self.ev.as_expr(evaluated, value)
        if self.s_tir and not expr.dtype.is_handle:
            self.scalar(target, expr.dtype, evaluated, cst)
        else:
            self.bind(target, expr, None, cst)

    def _declare(self, target: tree.Name, dtype: DType, value: tree.Expr) -> None:
        """`n = T.int64()`: a new variable, or the one that a quoted dimension of the signature introduced."""
        name, span = target.id, self.walk.span(target)
        matched = self.signature.matched.get(name)
        if matched is not None and self.scope.get(name) is matched:
            if matched.dtype is not dtype:
                self.walk.fail("E0301", f"`{name}` is {matched.dtype} in the signature", value, f"{dtype} here")
            return
        evaluated = self.ev.value(value)
        var = tir.Var(name, dtype, evaluated.pointer if isinstance(evaluated, tir.Var) else None, span=span)
        self.define(target, var)

    def _annotated(self, target: tree.Expr, annotation: tree.Expr, value: tree.Expr | None, cst: tree.Stmt) -> None:
        if not isinstance(target, tree.Name):
            self.walk.fail("E0302", "only a name can be annotated", target)
        buffer = tir_statements.vector_annotation(self, annotation)
        if buffer is not None and value is None:
            element, shape = buffer
            scratch = set_span(construct.make_buffer(target.id, shape, element, "local"), self.walk.span(target))
            self.define(target, scratch)
            self.out.add(tir.AllocBuffer(scratch, span=self.walk.span(cst)))
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
            self.walk.fail("E0302", f"`{target.id}` needs a value", cst)
        evaluated = self.ev.value(value)
        if isinstance(evaluated, str):
            evaluated = tir.StringImm(evaluated, span=self.walk.span(value))
        if dtype is not None and is_number(evaluated):
            evaluated = self.ev.build(value, construct.const, evaluated, dtype)
        expr = self.ev.as_expr(evaluated, value)
        if dtype is not None and dtype is not expr.dtype:
            if dtype.is_handle or expr.dtype.is_handle or let:
                self.walk.fail("E0301", f"`{target.id}` is {dtype}, but its value is {expr.dtype}", value)
            expr = self.ev.build(value, construct.cast, dtype, expr)
        var = tir.Var(target.id, expr.dtype, pointer, span=self.walk.span(target)) if pointer is not None else None
        self.bind(target, expr, var, cst)

    def _store(self, target: tree.Index, value: Any, cst: tree.Stmt) -> None:
        base = self.ev.value(target.base)
        if isinstance(base, Scalar):
            base = base.buffer
        if not isinstance(base, tir.Buffer):
            help = "only elements of buffers can be assigned to"
            self.walk.fail("E0302", f"{describe(base)} has no elements", target.base, help=help)
        self.store(base, value, tuple(self.ev.indices(base, target)), cst)

    def _augmented(self, cst: tree.AugAssign) -> None:
        target = cst.target
        result = self.ev.value(tree.Binary(cst.start, cst.end, cst.op, target, cst.value))
        if isinstance(target, tree.Index):
            self._store(target, result, cst)
            return
        known = self.scope.find(target.id) if isinstance(target, tree.Name) else None
        if known is None or not isinstance(known.value, Scalar):
            help = "values do not change; use an element of a buffer"
            self.walk.fail("E0205", "only elements of buffers can be changed", target, help=help)
        self.store(known.value.buffer, result, (construct.const(0),), cst)

    def _if(self, cst: tree.If) -> None:
        condition, then, other = cst.condition, cst.then, cst.other
        value = self.ev.value(condition)
        if isinstance(value, bool):  # decided now; the names of the branch taken stay visible
            for stmt in then if value else other:
                try:
                    self.statement(stmt)
                except Skip:
                    self._bind_unknown(stmt)
            return
        test = self._condition(self.ev.as_expr(value, condition), condition)
        where = " inside an `if`"
        then_body = self.inner(then, where, cst)
        else_body = self.inner(other, where, cst) if other else None
        self.out.add(tir.IfThenElse(test, then_body, else_body, span=self.walk.span(cst)))

    def _condition(self, value: tir.Expr, cst: tree.Node) -> tir.Expr:
        """A condition. An integer stands for `T.Cast("bool", value)`, which is printed as it is written: `if i:`."""
        if value.dtype.is_int and value.dtype.lanes == 1 and tir.const_int(value) is None:
            return tir.Cast(BOOL, value, span=self.walk.span(cst))
        return value if value.dtype.is_bool else self.ev.build(cst, construct.as_bool, value)

    def _while(self, cst: tree.While) -> None:
        condition = self._condition(self.ev.expr(cst.condition), cst.condition)
        self.loops += 1
        body = self.inner(cst.body, " inside a `while`", cst)
        self.loops -= 1
        self.out.add(tir.While(condition, body, span=self.walk.span(cst)))

    def _assert(self, cst: tree.Assert) -> None:
        condition = self.ev.bool(cst.condition)
        kind, parts = "RuntimeError", tuple[str, ...]()
        if cst.message is not None:
            kind, parts = attribute_values.assert_message(self.ev, cst.message)
        self.out.add(tir.AssertStmt(condition, kind, parts, span=self.walk.span(cst)))

    def _return(self, cst: tree.Return) -> None:
        value = tree.unless_none(cst.value)
        args = () if value is None else (self.ev.expr(value),)
        call = tir.Call(args[0].dtype if args else VOID, tir.Op("tir.ret"), args, span=self.walk.span(cst))
        self.out.add(tir.Evaluate(call, span=self.walk.span(cst)))

    def _nested(self, cst: tree.Stmt) -> None:
        what = {"def": "function"}.get(cst.kind, cst.kind)
        self.walk.fail("E0305", f"a {what} is not allowed inside a PrimFunc", cst)

    def _pass(self, cst: tree.Stmt) -> None:
        pass


_STATEMENT: dict[type[tree.Stmt], Callable[[_Walker, Any], None]] = {
    tree.Expression: _Walker._expression, tree.Assign: _Walker._assign,
    tree.AugAssign: _Walker._augmented, tree.For: tir_loops.walk_for, tree.While: _Walker._while,
    tree.If: _Walker._if, tree.With: tir_with.walk_with, tree.Return: _Walker._return,
    tree.Pass: _Walker._pass,
    tree.Break: lambda fw, cst: fw.jump(cst, tir.Break, "break"),
    tree.Continue: lambda fw, cst: fw.jump(cst, tir.Continue, "continue"),
    tree.Assert: _Walker._assert, tree.Def: _Walker._nested, tree.Class: _Walker._nested,
    tree.Import: _Walker._nested,
}  # fmt: skip


def _starred(cst: tree.Display) -> bool:
    return any(isinstance(item, tree.Star) for item in cst.items)


def _paired_targets(target: tree.Expr, value: tree.Expr) -> list[tuple[tree.Expr, tree.Expr]]:
    """Pair the targets and values at the same positions of two tuples or lists."""
    if isinstance(target, tree.Display) and isinstance(value, tree.Display):
        return list(zip(target.items, value.items, strict=False))
    return [(target, value)]
