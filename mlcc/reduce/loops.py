"""Edits of TensorIR functions: statements are removed or unwrapped, expressions simplified."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from mlcc.arith.complete import complete
from mlcc.errors import CompileError, Span
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.node import EMPTY, replace, walk
from mlcc.ir.visit import has_block, rewrite_bottom_up, substitute
from mlcc.reduce.functions import with_function
from mlcc.reduce.program import Program

Body = tuple[tir.Stmt, ...]
Action = Callable[[tir.Stmt], Body]
_NESTED = (tir.For, tir.While, tir.AttrStmt)


def loop_functions(program: Program) -> Iterator[tuple[str, tir.PrimFunc]]:
    """Yield the TensorIR functions of a program with their names."""
    for name, func in program.module.functions.items():
        if isinstance(func, tir.PrimFunc):
            yield name, func


class _StatementEdit:
    """Edits statements: `is_site` picks them, and `edited` gives what stands in the place of one.

    The root block is put back around what needs one.
    """

    def is_site(self, stmt: tir.Stmt) -> bool:
        raise NotImplementedError

    def edited(self, stmt: tir.Stmt) -> Body:
        raise NotImplementedError

    def sites(self, program: Program) -> Sequence[tuple[str, tir.Stmt]]:
        return [
            (name, stmt)
            for name, func in loop_functions(program)
            for stmt in _statements(func.body)
            if self.is_site(stmt)
        ]

    def apply(self, program: Program, chosen: Sequence[tuple[str, tir.Stmt]]) -> Program | None:
        for name in dict.fromkeys(name for name, _ in chosen):
            func = program.module.functions[name]
            if not isinstance(func, tir.PrimFunc):
                return None
            actions = {stmt: self.edited for other, stmt in chosen if other == name}
            program = with_function(program, name, _completed(replace(func, body=_edit(func.body, actions))))
        return program


class DropStatements(_StatementEdit):
    """Remove statements."""

    def is_site(self, stmt: tir.Stmt) -> bool:
        return True

    def edited(self, stmt: tir.Stmt) -> Body:
        return ()


class UnwrapStatements(_StatementEdit):
    """Replace loops, blocks, branches and annotated scopes by their bodies, at the first value of loops."""

    def is_site(self, stmt: tir.Stmt) -> bool:
        if isinstance(stmt, tir.BlockRealize) and not stmt.block.iter_vars:
            return not has_block(stmt.block.body)  # a root block, or one like it
        return isinstance(stmt, (*_NESTED, tir.IfThenElse, tir.BlockRealize))

    def edited(self, stmt: tir.Stmt) -> Body:
        match stmt:
            case tir.For():
                return substitute(stmt.body, {stmt.var: replace(stmt.min, span=stmt.min.span or stmt.span)})
            case tir.While() | tir.AttrStmt():
                return stmt.body
            case tir.IfThenElse():
                return stmt.then_body
            case tir.BlockRealize(block=block, values=values) if not block.match_buffers:
                axes = {axis.var: value for axis, value in zip(block.iter_vars, values, strict=True)}
                memory = tuple(tir.AllocBuffer(buffer) for buffer in block.alloc_buffers)
                return (*memory, *substitute((*(block.init or ()), *block.body), axes))
        return (stmt,)


class PlainStatements(_StatementEdit):
    """Make loops serial, and remove annotations, predicates and initial values."""

    def is_site(self, stmt: tir.Stmt) -> bool:
        match stmt:
            case tir.For():
                return bool(stmt.annotations) or stmt.kind is not tir.ForKind.SERIAL
            case tir.BlockRealize(block=block):
                return bool(block.annotations) or block.init is not None or stmt.predicate is not tir.TRUE
        return False

    def edited(self, stmt: tir.Stmt) -> Body:
        match stmt:
            case tir.For():
                return (replace(stmt, kind=tir.ForKind.SERIAL, thread=None, annotations=EMPTY),)
            case tir.BlockRealize(block=block):
                return (replace(stmt, predicate=tir.TRUE, block=replace(block, annotations=EMPTY, init=None)),)
        return (stmt,)


class DropMemory:
    """Remove buffers that blocks allocate."""

    def sites(self, program: Program) -> Sequence[tuple[str, tir.Buffer]]:
        return [
            (name, buffer)
            for name, func in loop_functions(program)
            for node in walk(func)
            if isinstance(node, tir.Block)
            for buffer in node.alloc_buffers
        ]

    def apply(self, program: Program, chosen: Sequence[tuple[str, tir.Buffer]]) -> Program | None:
        dropped = {buffer for _, buffer in chosen}

        def without(node: Any) -> Any:
            if not isinstance(node, tir.Block):
                return node
            return replace(node, alloc_buffers=tuple(b for b in node.alloc_buffers if b not in dropped))

        for name in dict.fromkeys(name for name, _ in chosen):
            program = with_function(program, name, rewrite_bottom_up(program.module.functions[name], without))
        return program


class SimplifyExpressions:
    """Replace a value by one of its operands, or by a constant."""

    def sites(self, program: Program) -> Sequence[tuple[str, tir.Expr, tir.Expr]]:
        places: dict[tuple[tir.Expr, tir.Expr], str] = {}
        for name, func in loop_functions(program):
            for stmt in _statements(func.body):
                for root in _values(stmt):
                    for node in walk(root):
                        if isinstance(node, tir.Expr):
                            places.update(dict.fromkeys(((node, simpler) for simpler in _simpler(node)), name))
        return [(name, old, new) for (old, new), name in places.items()]

    def apply(self, program: Program, chosen: Sequence[tuple[str, tir.Expr, tir.Expr]]) -> Program | None:
        if len(chosen) > 1:
            return None  # alternatives for one place
        ((name, old, new),) = chosen
        func = program.module.functions[name]
        edited = replace(func, body=substitute(func.body, {old: new}))
        return with_function(program, name, _completed(edited)) if isinstance(edited, tir.PrimFunc) else None


def _simpler(expr: tir.Expr) -> Iterator[tir.Expr]:
    """Yield what may stand in the place of an expression: operands of its dtype, and 1 or 0."""
    if isinstance(expr, (tir.Var, tir.IntImm, tir.FloatImm, tir.StringImm)) or expr.dtype.lanes != 1:
        return
    operands: list[Any] = []
    match expr:
        case tir.BinaryOp(lhs=lhs, rhs=rhs):
            operands = [lhs, rhs]
        case tir.Cast(value=value) | tir.Not(value=value):
            operands = [value]
        case tir.Select(true_value=then, false_value=other):
            operands = [then, other]
        case tir.Let(body=body):
            operands = [body]
        case tir.Call(args=args):
            operands = list(args)
    yield from (e for e in operands if isinstance(e, tir.Expr) and e.dtype is expr.dtype)
    if expr.dtype.is_float:
        yield tir.FloatImm(expr.dtype, 1.0, span=expr.span)
    elif expr.dtype.is_int or expr.dtype.is_uint or expr.dtype.is_bool:
        yield tir.IntImm(expr.dtype, 1, span=expr.span)
        yield tir.IntImm(expr.dtype, 0, span=expr.span)


def _values(stmt: tir.Stmt) -> tuple[tir.Expr, ...]:
    """The expressions of a statement itself."""
    match stmt:
        case tir.BufferStore():
            return (stmt.value, *stmt.indices)
        case tir.Evaluate() | tir.Bind():
            return (stmt.value,)
        case tir.IfThenElse() | tir.While():
            return (stmt.condition,)
        case tir.For():
            return (stmt.min, stmt.extent)
        case tir.BlockRealize():
            return (stmt.predicate, *stmt.values)
    return ()


def _bodies(stmt: tir.Stmt) -> dict[str, Body]:
    """The lists of statements in a statement, by the names of its fields (of its block's)."""
    match stmt:
        case tir.For(body=body) | tir.While(body=body) | tir.AttrStmt(body=body):
            return {"body": body}
        case tir.IfThenElse(then_body=then, else_body=other):
            return {"then_body": then} | ({} if other is None else {"else_body": other})
        case tir.BlockRealize(block=block):
            return {"body": block.body} | ({} if block.init is None else {"init": block.init})
    return {}


def _statements(body: Body) -> Iterator[tir.Stmt]:
    """Yield the statements of a body, those inside of others too, outer ones first, later ones first."""
    stack = list(body)
    while stack:
        stmt = stack.pop()
        yield stmt
        for inner in _bodies(stmt).values():
            stack += inner


def _edit(body: Body, actions: Mapping[tir.Stmt, Action]) -> Body:
    """Return a body with some statements edited, those inside of others first."""
    edited: list[tir.Stmt] = []
    for stmt in body:
        action = actions.get(stmt)
        inner = {name: _edit(stmts, actions) for name, stmts in _bodies(stmt).items()}
        if any(inner[name] is not old for name, old in _bodies(stmt).items()):
            if isinstance(stmt, tir.BlockRealize):
                stmt = replace(stmt, block=replace(stmt.block, **inner))
            else:
                stmt = replace(stmt, **inner)
        edited += (stmt,) if action is None else action(stmt)
    if len(edited) == len(body) and all(a is b for a, b in zip(edited, body, strict=True)):
        return body
    return tuple(edited) or (_nothing(body[0].span),)


def _nothing(span: Span | None) -> tir.Stmt:
    """Return a statement that does nothing, in the place of others."""
    return tir.Evaluate(tir.IntImm(DType.of("int32"), 0, span=span), span=span)


def _completed(func: tir.PrimFunc) -> tir.PrimFunc:
    """Return a function with the regions of its blocks inferred anew, or as they were where they cannot be."""

    def without_regions(node: Any) -> Any:
        if isinstance(node, tir.Block) and node is not func.root:
            return replace(node, reads=None, writes=None)
        return node

    try:
        return complete(rewrite_bottom_up(func, without_regions))
    except CompileError:
        return complete(func)
