"""Loops and blocks as text."""

from __future__ import annotations

from typing import Any

from mlcc.grammar.printer.buffer import buffer_arguments, define_buffer
from mlcc.grammar.printer.expr import is_int, stop
from mlcc.grammar.printer.literals import quote
from mlcc.grammar.printer.statement import NOTHING, body, statement_of, statements
from mlcc.grammar.printer.writer import Writer
from mlcc.ir import tir
from mlcc.ir.equal import structural_equal
from mlcc.ir.node import walk

_AXES = {tir.IterKind.SPATIAL: "spatial", tir.IterKind.REDUCE: "reduce", tir.IterKind.SCAN: "scan"}


def _merges(loop: tir.For, outer: set[Any]) -> bool:
    """True if the loop can be one of a `T.grid` whose variables so far are `outer`."""
    plain = loop.kind is tir.ForKind.SERIAL and not loop.annotations and loop.step is None and loop.thread is None
    return (
        plain
        and is_int(loop.min, 0)
        and loop.min.dtype is loop.var.dtype
        and loop.extent.dtype is loop.var.dtype
        and (isinstance(loop.extent, tir.IntImm) or not any(n in outer for n in walk(loop.extent)))
    )


@statement_of(tir.For)
def _for(out: Writer, stmt: tir.For) -> None:
    grid: list[tir.For] = []
    inner: tir.Stmt = stmt
    while isinstance(inner, tir.For) and _merges(inner, {g.var for g in grid}):
        grid.append(inner)
        if len(inner.body) != 1:
            break
        inner = inner.body[0]
    loops = grid if len(grid) > 1 else [stmt]
    for loop in loops[1:]:
        out.reach(loop)
    if len(loops) > 1:
        header = f"T.grid({', '.join([out.text(g.extent) for g in loops])})"
    else:
        header = _loop_header(out, stmt)
    out.push()
    names = [out.define(loop.var, loop.var.name) for loop in loops]
    out.loops.update({loop.var: loop for loop in loops})
    out.line(f"for {', '.join(names)} in {header}:")
    with out.indented():
        body(out, loops[-1].body)
    out.pop()


def _loop_header(out: Writer, loop: tir.For) -> str:
    if is_int(loop.min, 0) and loop.min.dtype is loop.extent.dtype and loop.step is None:
        args = [out.text(loop.extent)]
    else:
        args = [out.text(loop.min), out.text(stop(loop.min, loop.extent))]
    plain = loop.kind is tir.ForKind.SERIAL and not loop.annotations
    if loop.step is not None:
        args.append(out.text(loop.step) if plain else f"step={out.text(loop.step)}")
    if loop.kind is tir.ForKind.THREAD_BINDING or loop.thread is not None:
        args.append(f"thread={quote(loop.thread or '')}")
    if loop.annotations:
        args.append(f"annotations={out.value(loop.annotations)}")
    return f"{'range' if plain else 'T.' + loop.kind.value}({', '.join(args)})"


def _axes(out: Writer, block: tir.Block, values: tuple[tir.Expr, ...] | None) -> None:
    """The lines that bind the axes; consecutive axes bound to plain loop variables become one `T.axis.remap`."""
    run: list[int] = []

    def flush() -> None:
        if len(run) > 1 and values is not None:
            kinds = "".join([block.iter_vars[i].kind.value for i in run])
            loops = ", ".join([out.text(values[i]) for i in run])
            names = ", ".join([out.define(block.iter_vars[i].var, block.iter_vars[i].var.name) for i in run])
            out.line(f'{names} = T.axis.remap("{kinds}", [{loops}])')
        else:
            for i in run:
                _axis(out, block.iter_vars[i], values[i] if values is not None else None)
        run.clear()

    for i, axis in enumerate(block.iter_vars):
        if values is not None and i < len(values) and _is_loop(out, axis, values[i]):
            run.append(i)
            continue
        flush()
        _axis(out, axis, values[i] if values is not None and i < len(values) else None)
    flush()


def _is_loop(out: Writer, axis: tir.IterVar, value: tir.Expr) -> bool:
    loop = out.loops.get(value) if isinstance(value, tir.Var) and value in out.bound else None
    return (
        loop is not None
        and axis.kind in (tir.IterKind.SPATIAL, tir.IterKind.REDUCE)
        and axis.var.dtype is loop.var.dtype
        and structural_equal(loop.min, axis.dom.min)
        and structural_equal(loop.extent, axis.dom.extent)
    )


def _axis(out: Writer, axis: tir.IterVar, value: tir.Expr | None) -> None:
    extent = out.text(axis.dom.extent)
    if is_int(axis.dom.min, 0) and axis.dom.min.dtype is axis.dom.extent.dtype:
        domain = extent
    else:
        domain = f"({out.text(axis.dom.min)}, {out.text(stop(axis.dom.min, axis.dom.extent))})"
    args = domain if value is None else f"{domain}, {out.text(value)}"
    out.line(f"{out.define(axis.var, axis.var.name)} = T.axis.{_AXES.get(axis.kind, 'opaque')}({args})")


def allocations(out: Writer, block: tir.Block) -> None:
    for buffer in block.alloc_buffers:
        args = ", ".join(buffer_arguments(out, buffer))
        out.line(f"{define_buffer(out, buffer)} = {out.dialect.block_alloc}({args})")


def _block(out: Writer, block: tir.Block, realize: tir.BlockRealize | None) -> None:
    option = "" if realize is not None else ", no_realize=True"
    out.line(f"with {out.dialect.block}({quote(block.name)}{option}):")
    with out.indented():
        _axes(out, block, realize.values if realize is not None else None)
        if realize is not None and not is_int(realize.predicate, 1):
            out.line(f"T.where({out.text(realize.predicate)})")
        for what, regions in (("reads", block.reads), ("writes", block.writes)):
            if regions is not None:  # None only before the function is completed
                out.line(f"T.{what}({', '.join([out.text(r) for r in regions])})")
        if block.annotations:
            out.line(f"{out.dialect.block_attr}({out.value(block.annotations)})")
        allocations(out, block)
        for match in block.match_buffers:
            source = out.text(match)
            out.line(f"{define_buffer(out, match.buffer)} = {source}")
        if block.init is not None:
            out.line("with T.init():")
            with out.indented():
                body(out, block.init)
        statements(out, block.body)
        if not block.body:
            out.line(NOTHING)


@statement_of(tir.BlockRealize)
def _realize(out: Writer, stmt: tir.BlockRealize) -> None:
    _block(out, stmt.block, stmt)


@statement_of(tir.Block)
def _bare_block(out: Writer, block: tir.Block) -> None:
    _block(out, block, None)
