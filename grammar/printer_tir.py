"""TensorIR statements and functions as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from mlcc.grammar import printer_call  # noqa: F401  (its handlers)
from mlcc.grammar.printer_buffer import buffer_arguments, declaration, define_buffer, is_simple
from mlcc.grammar.printer_expr import dtype_call, indices, is_int, stop, var_type
from mlcc.grammar.printer_literals import quote
from mlcc.grammar.printer_tvm import function_attributes
from mlcc.grammar.printer_writer import END, START, Writer
from mlcc.ir import tir
from mlcc.ir.equal import structural_equal
from mlcc.ir.node import Attrs, children, walk
from mlcc.ir.visit import has_block

_AXES = {tir.IterKind.SPATIAL: "spatial", tir.IterKind.REDUCE: "reduce", tir.IterKind.SCAN: "scan"}
_NOTHING = "T.evaluate(0)"  # the body that has no statements
_STATEMENTS: dict[type, Callable[[Writer, Any], None]] = {}


def _statement_of(cls: type) -> Callable[[Any], Any]:
    def register(fn: Any) -> Any:
        _STATEMENTS[cls] = fn
        return fn

    return register


# ---------------------------------------------------------------- functions


def prim_func(out: Writer, func: tir.PrimFunc, name: str) -> None:
    """A function with its decorator, under the identifier `name`."""
    out.imports.add("T")
    marked = out.reach(func)
    options = [*(["private=True"] if func.is_private else []), *filter(None, [out.dialect.prim_func])]
    out.line("@T.prim_func" + (f"({', '.join(options)})" if options else ""))
    head = len(out.lines)
    out.line("")
    with out.indented():
        outer, out.prelude = out.prelude, []
        out.function_scope, outer_scope = len(out.scopes) - 1, out.function_scope
        out.names.forget()
        handles, out.thread_vars = _survey(func)
        params, matched = _params(out, func, handles)
        returns = f" -> {dtype_call(func.ret_dtype)}" if func.ret_dtype is not None else ""
        start, end = (START, END) if marked else ("", "")
        out.lines[head] = f"{'    ' * (out.depth - 1)}{start}def {name}({', '.join(params)}){returns}:{end}"
        write_attributes(out, func.attrs, name, "T.func_attr")
        top = len(out.lines)
        for param, buffer in matched:
            args = ", ".join([out.bound[param], *buffer_arguments(out, buffer)])
            out.line(f"{define_buffer(out, buffer)} = T.match_buffer({args})")
        _function_body(out, func)
        if len(out.lines) == head + 1 and not out.prelude:
            out.line(_NOTHING)
        out.lines[top:top] = ["    " * out.depth + line for line in out.prelude]
        out.prelude, out.function_scope = outer, outer_scope


def _params(
    out: Writer, func: tir.PrimFunc, handles: set[tir.Var]
) -> tuple[list[str], list[tuple[tir.Var, tir.Buffer]]]:
    """The text of the parameters, and the buffers that the body has to match."""
    made: list[str] = []
    matched: list[tuple[tir.Var, tir.Buffer]] = []
    buffers = [b for b in func.buffers if b is not None]
    data = Counter(b.data for b in buffers)
    for param, buffer in zip(func.params, func.buffers, strict=True):
        alone = buffer is not None and param not in handles and data[buffer.data] == 1
        if alone and buffer is not None and param.pointer is None and is_simple(buffer):
            args = ", ".join(buffer_arguments(out, buffer))
            made.append(f"{define_buffer(out, buffer)}: T.Buffer({args})")
            out.bind(param, out.bound[buffer])
            continue
        hint = param.name
        if buffer is not None:
            matched.append((param, buffer))
            hint = f"var_{hint}" if hint == buffer.name else hint
        made.append(f"{out.define(param, hint)}: {var_type(param)}")
    return made, matched


def write_attributes(out: Writer, attrs: Attrs, name: str, function: str) -> None:
    """The line that states a function's attributes; a `global_symbol` that is its name goes without saying."""
    shown = attrs.without("global_symbol") if attrs.get("global_symbol") == name else attrs
    if shown:
        out.line(f"{function}({out.value(function_attributes(shown) if out.dialect.is_tvm else shown)})")


def _survey(func: tir.PrimFunc) -> tuple[set[tir.Var], Counter[Any]]:
    """The handles that the body uses, and how often each thread variable is launched."""
    handles: set[tir.Var] = set()
    launched: Counter[Any] = Counter()
    seen: set[int] = set()
    stack: list[Any] = list(func.body)
    while stack:
        top = stack.pop()
        if type(top) is tir.Var:
            if top.dtype.is_handle:
                handles.add(top)
        elif id(top) not in seen:
            seen.add(id(top))
            stack += children(top)
            if type(top) is tir.AttrStmt and isinstance(top.subject, tir.IterVar):
                launched[top.subject.var] += 1
    return handles, launched


def _function_body(out: Writer, func: tir.PrimFunc) -> None:
    root = _implicit_root(func)
    if root is None:
        _statements(out, func.body)
        return
    out.reach(func.body[0])
    out.line(f'# with {out.dialect.block}("root"):')
    _allocations(out, root)
    _statements(out, root.body)


def _implicit_root(func: tir.PrimFunc) -> tir.Block | None:
    """The root block if the reader will put the same one around the body."""
    root = func.root
    if root is None or not is_int(func.body[0].predicate, 1) or root.annotations or root.match_buffers:  # type: ignore[attr-defined]
        return None
    if root.reads or root.writes or root.init is not None:
        return None
    if root.alloc_buffers:
        return root
    if len(root.body) == 1 and isinstance(root.body[0], tir.BlockRealize):
        return root if root.body[0].block.iter_vars else None
    return root if has_block(root.body) else None


# ---------------------------------------------------------------- statements


def body(out: Writer, stmts: tuple[tir.Stmt, ...]) -> None:
    """The statements of a nested block, which must not be empty in the text."""
    if stmts:
        _statements(out, stmts)
    else:
        out.line(_NOTHING)


def _statements(out: Writer, stmts: tuple[tir.Stmt, ...]) -> None:
    """Statements one after another. A scope that reaches to the end of them needs no indentation of its own."""
    while stmts:
        last = stmts[-1]
        for stmt in stmts if not isinstance(last, tir.AttrStmt) else stmts[:-1]:
            statement(out, stmt)
        if not isinstance(last, tir.AttrStmt):
            return
        marked, at = out.reach(last), len(out.lines)
        target, context = _scope(out, last)
        out.line(f"{target} = {context}" if target else context)
        _mark(out, marked, at)
        stmts = last.body


def statement(out: Writer, stmt: tir.Stmt) -> None:
    """One statement, on lines of its own."""
    write = _STATEMENTS.get(type(stmt))
    if write is None:
        out.line(out.text(stmt))
        return
    marked, at = out.reach(stmt), len(out.lines)
    write(out, stmt)
    _mark(out, marked, at)


def _mark(out: Writer, marked: bool, at: int) -> None:
    """Put the marks of an excerpt around the first line of a statement."""
    if marked and at < len(out.lines):
        text = out.lines[at].lstrip(" ")
        out.lines[at] = " " * (len(out.lines[at]) - len(text)) + START + text + END


@_statement_of(tir.Bind)
def _bind(out: Writer, stmt: tir.Bind) -> None:
    value = out.text(stmt.value)
    annotation = out.dialect.bind.format(var_type(stmt.var))
    out.line(f"{out.define(stmt.var, stmt.var.name)}: {annotation} = {value}")


@_statement_of(tir.BufferStore)
def _store(out: Writer, stmt: tir.BufferStore) -> None:
    target = out.text(stmt.buffer) + out.join(indices(stmt.indices))
    out.line(f"{target} = {out.text(stmt.value)}")


@_statement_of(tir.AllocBuffer)
def _alloc(out: Writer, stmt: tir.AllocBuffer) -> None:
    args = buffer_arguments(out, stmt.buffer)
    if stmt.annotations:
        args.append(f"annotations={out.value(stmt.annotations)}")
    out.line(f"{define_buffer(out, stmt.buffer)} = {out.dialect.alloc}({', '.join(args)})")


@_statement_of(tir.DeclBuffer)
def _decl(out: Writer, stmt: tir.DeclBuffer) -> None:
    args = buffer_arguments(out, stmt.buffer, out.text(stmt.data))
    out.line(f"{define_buffer(out, stmt.buffer)} = T.decl_buffer({', '.join(args)})")


@_statement_of(tir.Evaluate)
def _evaluate(out: Writer, stmt: tir.Evaluate) -> None:
    match stmt.value:
        case tir.Call(op=tir.Op(name="tir.ret"), args=(result,)):
            out.line(f"return {out.text(result)}")
        case tir.Call() as made:
            out.line(out.text(made))
        case value:
            out.line(f"T.evaluate({out.text(value)})")


@_statement_of(tir.AssertStmt)
def _assert(out: Writer, stmt: tir.AssertStmt) -> None:
    if stmt.kind == "RuntimeError" and len(stmt.message) == 1:
        message = quote(stmt.message[0])
    else:
        message = f"({quote(stmt.kind)}, [{', '.join([quote(m) for m in stmt.message])}])"
    out.line(f"assert {out.text(stmt.condition)}, {message}")


@_statement_of(tir.IfThenElse)
def _if(out: Writer, stmt: tir.IfThenElse) -> None:
    word = "if"
    while True:
        out.line(f"{word} {out.text(stmt.condition)}:")
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


@_statement_of(tir.While)
def _while(out: Writer, stmt: tir.While) -> None:
    out.line(f"while {out.text(stmt.condition)}:")
    with out.indented():
        body(out, stmt.body)


@_statement_of(tir.Break)
def _break(out: Writer, stmt: tir.Break) -> None:
    out.line("break")


@_statement_of(tir.Continue)
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


@_statement_of(tir.AttrStmt)
def _attr(out: Writer, stmt: tir.AttrStmt) -> None:
    out.push()
    target, context = _scope(out, stmt)
    out.line(f"with {context} as {target}:" if target else f"with {context}:")
    with out.indented():
        body(out, stmt.body)
    out.pop()


# ---------------------------------------------------------------- loops and blocks


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


@_statement_of(tir.For)
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
    """The lines that bind the axes; runs of axes that are loops as they stand become one `T.axis.remap`."""
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


def _allocations(out: Writer, block: tir.Block) -> None:
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
        _allocations(out, block)
        for match in block.match_buffers:
            made = out.text(match)
            out.line(f"{define_buffer(out, match.buffer)} = {made}")
        if block.init is not None:
            out.line("with T.init():")
            with out.indented():
                body(out, block.init)
        _statements(out, block.body)
        if not block.body:
            out.line(_NOTHING)


@_statement_of(tir.BlockRealize)
def _realize(out: Writer, stmt: tir.BlockRealize) -> None:
    _block(out, stmt.block, stmt)


@_statement_of(tir.Block)
def _bare_block(out: Writer, block: tir.Block) -> None:
    _block(out, block, None)


__all__ = ["body", "declaration", "prim_func", "statement", "write_attributes"]
