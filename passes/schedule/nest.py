"""A function's loop nest as a few lines of text, with places marked: what errors and `--show-each` print."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from mlcc.ir import tir
from mlcc.ir.tir import ForKind

_LIMIT = 60  # lines; a longer nest is cut around the marks


def render_nest(func: tir.PrimFunc, name: str, marked: Collection[Any] = (), limit: int = _LIMIT) -> str:
    """Return loops and blocks as text, one line each, indented; lines of the nodes in `marked` carry `<--`."""
    ids = {id(m) for m in marked}
    lines: list[tuple[str, bool]] = [(f"{name}:", False)]
    _body(func.body, 1, lines, ids)
    shown = _window(lines, limit)
    width = max((len(text) for text, mark in shown if mark), default=0)
    return "\n".join(f"{text:{width}}  <--" if mark else text for text, mark in shown)


def _window(lines: list[tuple[str, bool]], limit: int) -> list[tuple[str, bool]]:
    if len(lines) <= limit:
        return lines
    at = next((i for i, (_, mark) in enumerate(lines) if mark), 0)
    start = max(0, min(at - limit // 2, len(lines) - limit))
    shown = lines[start : start + limit]
    if start:
        shown = [lines[0], ("  ...", False), *shown]
    return shown if start + limit >= len(lines) else [*shown, ("  ...", False)]


def _body(body: tuple[tir.Stmt, ...], depth: int, lines: list[tuple[str, bool]], marked: set[int]) -> None:
    pad = "  " * depth
    for stmt in body:
        match stmt:
            case tir.For():
                lines.append((pad + loop_line(stmt), id(stmt) in marked or id(stmt.var) in marked))
                _body(stmt.body, depth + 1, lines, marked)
            case tir.BlockRealize(block=block):
                lines.append((pad + block_line(stmt), id(stmt) in marked or id(block) in marked))
                _body(block.body, depth + 1, lines, marked)
            case tir.IfThenElse(condition=condition, then_body=then, else_body=other):
                lines.append((f"{pad}if {_shortened(condition)}:", id(stmt) in marked))
                _body(then, depth + 1, lines, marked)
                if other:
                    lines.append((f"{pad}else:", False))
                    _body(other, depth + 1, lines, marked)
            case tir.While(condition=condition, body=inner):
                lines.append((f"{pad}while {_shortened(condition)}:", id(stmt) in marked))
                _body(inner, depth + 1, lines, marked)
            case tir.AttrStmt(body=inner):
                _body(inner, depth, lines, marked)
            case tir.BufferStore(buffer=buffer):
                lines.append((f"{pad}{buffer.name}[...] = ...", id(stmt) in marked))


def loop_line(loop: tir.For) -> str:
    """Return the text of a loop, such as `for i in 128 (parallel)`."""
    span = (
        _shortened(loop.extent)
        if tir.const_int(loop.min) == 0
        else f"{_shortened(loop.min)} .. +{_shortened(loop.extent)}"
    )
    notes = []
    if loop.kind is ForKind.THREAD_BINDING:
        notes.append(loop.thread or "thread")
    elif loop.kind is not ForKind.SERIAL:
        notes.append({ForKind.UNROLLED: "unrolled"}.get(loop.kind, loop.kind.value))
    notes += loop.annotations
    return f"for {loop.var.name} in {span}" + (f" ({', '.join(notes)})" if notes else "")


def block_line(realize: tir.BlockRealize) -> str:
    """Return the text of a block, such as `block C(vi = i, vj = j, reduce vk = k) where ...`."""
    block = realize.block
    axes = []
    for axis, value in zip(block.iter_vars, realize.values, strict=True):
        kind = {tir.IterKind.SPATIAL: "", tir.IterKind.REDUCE: "reduce "}.get(axis.kind, f"{axis.kind.value} ")
        axes.append(f"{kind}{axis.var.name} = {_shortened(value)}")
    where = "" if tir.const_int(realize.predicate) == 1 else f" where {_shortened(realize.predicate)}"
    head = f"block {block.name}({', '.join(axes)})" if axes else f"block {block.name}"
    return head + (" with init" if block.init is not None else "") + where


def _shortened(expr: tir.Expr) -> str:
    text = str(expr)
    return text if len(text) <= 60 else text[:57] + "..."
