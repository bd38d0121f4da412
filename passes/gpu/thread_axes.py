"""Find thread axes, and the loops and launch scopes that bind them."""

from __future__ import annotations

from mlcc.errors import CompileError, Label, error
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.tir import ForKind, Stmt
from mlcc.passes.gpu.device import BLOCK, GRID

AXES = (*GRID, *BLOCK)


def thread_axis(stmt: Stmt) -> tuple[str, tir.Var, tir.Expr] | None:
    """Return the axis that a loop or launch scope binds, its variable and its extent; None for other statements and
    virtual threads. Raises CompileError for unknown axes."""
    match stmt:
        case tir.For(kind=ForKind.THREAD_BINDING, thread=str(tag)):
            axis = tag, stmt.var, stmt.extent
        case tir.AttrStmt(key="thread_extent", subject=tir.IterVar(thread_tag=tag, var=var)):
            axis = tag, var, c.cast(var.dtype, c.as_expr(stmt.value))
        case _:
            return None
    if is_virtual(tag):
        return None
    if tag not in AXES:
        text = f"`{tag}` is not an axis of a launch"
        raise CompileError(error("E0721", text, stmt.span, help=f"the axes are {', '.join(AXES)}"))
    return axis


def loop_label(loop: Stmt, text: str) -> Label:
    """Return a label at a bound loop. A loop without a source span, made by a pass, is quoted by its first line."""
    return Label(loop.span, text if loop.span is not None else f"{text}: `{str(loop).strip().splitlines()[0].strip()}`")


def is_virtual(tag: str) -> bool:
    """Return True if a tag names virtual threads, which one thread runs."""
    return tag.startswith(("vthread", "cthread"))
