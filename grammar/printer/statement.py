"""TensorIR statements as text, apart from loops and blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc.grammar.printer.buffer import buffer_arguments, define_buffer, define_scalar, is_scalar
from mlcc.grammar.printer.expr import indices, scalar_name, var_type
from mlcc.grammar.printer.literals import quote
from mlcc.grammar.printer.writer import Writer
from mlcc.ir import tir

NOTHING = "T.evaluate(0)"  # the body that has no statements
_STATEMENTS: dict[type, Callable[[Writer, Any], None]] = {}


def statement_of(cls: type) -> Callable[[Any], Any]:
    """Register the handler of a class of statements."""

    def register(fn: Any) -> Any:
        _STATEMENTS[cls] = fn
        return fn

    return register


def body(out: Writer, stmts: tuple[tir.Stmt, ...]) -> None:
    """The statements of a nested block, which must not be empty in the text."""
    if stmts:
        statements(out, stmts)
    else:
        out.line(NOTHING)


def statements(out: Writer, stmts: tuple[tir.Stmt, ...]) -> None:
    """Write consecutive statements. A scope that extends to the end of them is not indented."""
    while stmts:
        last = stmts[-1]
        for stmt in stmts if not isinstance(last, tir.AttrStmt) else stmts[:-1]:
            statement(out, stmt)
        if not isinstance(last, tir.AttrStmt):
            return
        marked, at = out.reach(last), len(out.lines)
        target, context = _scope(out, last)
        out.line(f"{target} = {context}" if target else context)
        out.mark(marked, at)
        stmts = last.body


def statement(out: Writer, stmt: tir.Stmt) -> None:
    """Write one statement."""
    write = _STATEMENTS.get(type(stmt))
    if write is None:
        out.line(out.text(stmt))
        return
    marked, at = out.reach(stmt), len(out.lines)
    write(out, stmt)
    out.mark(marked, at)


@statement_of(tir.Bind)
def _bind(out: Writer, stmt: tir.Bind) -> None:
    value = out.text(stmt.value)
    annotation = out.dialect.bind.format(var_type(stmt.var))
    out.line(f"{out.define(stmt.var, stmt.var.name)}: {annotation} = {value}")


@statement_of(tir.BufferStore)
def _store(out: Writer, stmt: tir.BufferStore) -> None:
    target = scalar_name(out, stmt) or out.text(stmt.buffer) + out.join(indices(stmt.indices))
    out.line(f"{target} = {out.text(stmt.value)}")


@statement_of(tir.AllocBuffer)
def _alloc(out: Writer, stmt: tir.AllocBuffer) -> None:
    if stmt.scalar and is_scalar(stmt):
        define_scalar(out, stmt.buffer)
        return
    args = buffer_arguments(out, stmt.buffer)
    if stmt.annotations:
        args.append(f"annotations={out.value(stmt.annotations)}")
    out.line(f"{define_buffer(out, stmt.buffer)} = {out.dialect.alloc}({', '.join(args)})")


@statement_of(tir.DeclBuffer)
def _decl(out: Writer, stmt: tir.DeclBuffer) -> None:
    args = buffer_arguments(out, stmt.buffer, out.text(stmt.data))
    out.line(f"{define_buffer(out, stmt.buffer)} = T.decl_buffer({', '.join(args)})")


@statement_of(tir.Evaluate)
def _evaluate(out: Writer, stmt: tir.Evaluate) -> None:
    match stmt.value:
        case tir.Call(op=tir.Op(name="tir.ret"), args=(result,)):
            out.line(f"return {out.text(result)}")
        case tir.Call() as call:
            out.line(out.text(call))
        case value:
            out.line(f"T.evaluate({out.text(value)})")


@statement_of(tir.AssertStmt)
def _assert(out: Writer, stmt: tir.AssertStmt) -> None:
    if stmt.kind == "RuntimeError" and len(stmt.message) == 1:
        message = quote(stmt.message[0])
    else:
        message = f"({quote(stmt.kind)}, [{', '.join([quote(m) for m in stmt.message])}])"
    out.line(f"assert {out.text(stmt.condition)}, {message}")


def _condition(out: Writer, condition: tir.Expr) -> str:
    """A condition; an integer that is cast to one stands for itself."""
    match condition:
        case tir.Cast(value=value) if value.dtype.is_int and value.dtype.lanes == 1 and tir.const_int(value) is None:
            return out.text(value)
    return out.text(condition)


@statement_of(tir.IfThenElse)
def _if(out: Writer, stmt: tir.IfThenElse) -> None:
    word = "if"
    while True:
        out.line(f"{word} {_condition(out, stmt.condition)}:")
        with out.indented():
            body(out, stmt.then_body)
        if stmt.else_body is None:
            return
        match stmt.else_body:
            case (tir.IfThenElse() as nested,):
                stmt, word = nested, "elif"
                out.reach(nested)
            case other:
                out.line("else:")
                with out.indented():
                    body(out, other)
                return


@statement_of(tir.While)
def _while(out: Writer, stmt: tir.While) -> None:
    out.line(f"while {_condition(out, stmt.condition)}:")
    with out.indented():
        body(out, stmt.body)


@statement_of(tir.Break)
def _break(out: Writer, stmt: tir.Break) -> None:
    out.line("break")


@statement_of(tir.Continue)
def _continue(out: Writer, stmt: tir.Continue) -> None:
    out.line("continue")


def _scope(out: Writer, stmt: tir.AttrStmt) -> tuple[str, str]:
    """The variable that an annotated scope introduces, if any, and the call that opens it."""
    subject = stmt.subject
    if isinstance(subject, tir.IterVar) and stmt.key in ("thread_extent", "virtual_thread"):
        value = out.value(stmt.value)
        if subject.var in out.bound:
            return "", f"T.launch_thread({out.text(subject.var)}, {value})"
        if out.thread_vars.get(subject.var, 0) <= 1:
            return out.define(subject.var, subject.var.name), f"T.launch_thread({quote(subject.thread_tag)}, {value})"
        name = out.define(subject.var, subject.var.name, out.function_scope)
        dtype = "" if str(subject.var.dtype) == "int32" else f", {quote(str(subject.var.dtype))}"
        out.prelude.append(f"{name} = T.env_thread({quote(subject.thread_tag)}{dtype})")
        return "", f"T.launch_thread({name}, {value})"
    return "", f"T.attr({out.value(subject)}, {quote(stmt.key)}, {out.value(stmt.value)})"


@statement_of(tir.AttrStmt)
def _attr(out: Writer, stmt: tir.AttrStmt) -> None:
    out.push()
    target, context = _scope(out, stmt)
    out.line(f"with {context} as {target}:" if target else f"with {context}:")
    with out.indented():
        body(out, stmt.body)
    out.pop()
