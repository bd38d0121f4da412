"""Outline long bodies into functions: some of LLVM's loop passes take quadratic time in the loops of one function.

A run of statements becomes an internal function of the values that it uses, which returns 0 or an error code.
Statements that bind or allocate for later ones are not outlined, and neither are jumps and returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcc.ir import tir
from mlcc.ir.intrinsics import called
from mlcc.ir.node import Node, children, holds
from mlcc.ir.tir import Stmt

if TYPE_CHECKING:
    from mlcc.targets.llvm.codegen.emitter import Emitter

SPLIT_ABOVE = 64  # statements with loops in one body
MAX_OUTLINED = 24  # statements in one outlined function


def needs_split(statements: tuple[Stmt, ...]) -> bool:
    """Return True if a body has more than `SPLIT_ABOVE` statements with loops or branches, so that it is split."""
    if len(statements) <= SPLIT_ABOVE:
        return False
    return sum(_has_loop(s) for s in statements) > SPLIT_ABOVE


def _has_loop(stmt: Stmt) -> bool:
    if isinstance(stmt, tir.IfThenElse):
        return any(_has_loop(s) for s in (*stmt.then_body, *(stmt.else_body or ())))
    return isinstance(stmt, (tir.For, tir.While))


def emit_split(e: Emitter, statements: tuple[Stmt, ...]) -> None:
    """Emit a body; runs of its statements are outlined into functions."""
    run: list[Stmt] = []
    used: dict[tir.Var, None] = {}
    for stmt in statements:
        if _may_precede_run(stmt):
            e.plain_body((stmt,))
            continue
        variables = _free_variables(e, stmt)
        if variables is None:
            _emit_outlined(e, run, used)
            e.plain_body((stmt,))
            run, used = [], {}
            continue
        run.append(stmt)
        used.update(variables)
        if len(run) == MAX_OUTLINED:
            _emit_outlined(e, run, used)
            run, used = [], {}
    _emit_outlined(e, run, used)


def _emit_outlined(e: Emitter, run: list[Stmt], used: dict[tir.Var, None]) -> None:
    if len(run) < 2:
        e.plain_body(tuple(run))
        return
    outer = [v for v in used if v in e.values]
    params = [(e.values[v].type, v.name) for v in outer]
    symbol = f"{e.fn.symbol}.{e.parts}"
    e.parts += 1
    params += [("ptr", "workspace"), ("ptr", "callee_workspace")]
    fn = e.ctx.module.function("i32", symbol, params, attrs=f"noinline {e.ctx.function_attrs}")
    outlined = type(e)(fn, e.ctx, e.storage)
    outlined.is_part = True
    outlined.distinct = e.distinct
    outlined.workspace, outlined.callee_workspace = fn.params[-2:]
    for var, value in zip(outer, fn.params, strict=False):
        outlined.bind(var, value)
    outlined.plain_body(tuple(run))
    outlined.finish()
    values = [*(e.values[v] for v in outer), e.workspace, e.callee_workspace]
    e.fail_if_error(e.fn.call("i32", f"@{symbol}", values))


def _may_precede_run(stmt: Stmt) -> bool:
    """Return True if a statement may move before the current run: it accesses no memory, and the run does not use
    it."""
    if isinstance(stmt, tir.Bind):
        return not holds(stmt.value, tir.BufferLoad, tir.Call)
    return isinstance(stmt, (tir.AllocBuffer, tir.DeclBuffer))


def _free_variables(e: Emitter, stmt: Stmt) -> dict[tir.Var, None] | None:
    """Return the free variables of a statement in order; None if it cannot be outlined."""
    if not isinstance(stmt, (tir.For, tir.While, tir.IfThenElse)):
        return None
    mentioned: dict[tir.Var, None] = {}
    bound: set[tir.Var] = set()
    stack: list[tuple[Node, bool]] = [(stmt, False)]  # with: inside a loop of the statement
    while stack:
        node, in_loop = stack.pop()
        if isinstance(node, tir.Var):
            mentioned.setdefault(node)
            continue
        if isinstance(node, tir.Buffer):
            mentioned.setdefault(node.data)
            continue
        if isinstance(node, tir.AllocBuffer) and not (e.storage is not None and e.storage.is_fixed(node.buffer)):
            return None
        if isinstance(node, (tir.Break, tir.Continue)) and not in_loop:
            return None
        if called(node).leaves:
            return None
        match node:
            case tir.For(var=var) | tir.Bind(var=var) | tir.Let(var=var):
                bound.add(var)
            case tir.AllocBuffer(buffer=buffer) | tir.DeclBuffer(buffer=buffer):
                bound.add(buffer.data)
        in_loop = in_loop or isinstance(node, (tir.For, tir.While))
        stack.extend((child, in_loop) for child in reversed(list(children(node))))
    return {var: None for var in mentioned if var not in bound}
