"""TensorIR functions as text."""

from __future__ import annotations

from collections import Counter
from typing import Any

from mlcc.grammar.printer import call as printer_call  # noqa: F401  (its handlers)
from mlcc.grammar.printer.block import allocations
from mlcc.grammar.printer.buffer import buffer_arguments, define_buffer, is_simple
from mlcc.grammar.printer.expr import dtype_call, is_int, var_type
from mlcc.grammar.printer.statement import NOTHING, statements
from mlcc.grammar.printer.tvm import function_attributes, without_kind
from mlcc.grammar.printer.writer import END, START, Writer
from mlcc.ir import tir
from mlcc.ir.node import Attrs, children
from mlcc.ir.visit import has_block


def prim_func(out: Writer, func: tir.PrimFunc, name: str) -> None:
    """A function with its decorator, under the identifier `name`."""
    out.imports.add("T")
    marked = out.reach(func)
    kind = out.dialect.prim_func if func.attrs.get("s_tir") is not False else out.dialect.plain_prim_func
    options = [*(["private=True"] if func.is_private else []), *filter(None, [kind])]
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
        write_attributes(out, without_kind(func.attrs), name, "T.func_attr")
        top = len(out.lines)
        for param, buffer in matched:
            args = ", ".join([out.bound[param], *buffer_arguments(out, buffer)])
            out.line(f"{define_buffer(out, buffer)} = T.match_buffer({args})")
        _function_body(out, func)
        if len(out.lines) == head + 1 and not out.prelude:
            out.line(NOTHING)
        out.lines[top:top] = ["    " * out.depth + line for line in out.prelude]
        out.prelude, out.function_scope = outer, outer_scope


def _params(
    out: Writer, func: tir.PrimFunc, handles: set[tir.Var]
) -> tuple[list[str], list[tuple[tir.Var, tir.Buffer]]]:
    """The text of the parameters, and the buffers that the body has to match."""
    texts: list[str] = []
    matched: list[tuple[tir.Var, tir.Buffer]] = []
    buffers = [b for b in func.buffers if b is not None]
    data = Counter(b.data for b in buffers)
    for param, buffer in zip(func.params, func.buffers, strict=True):
        alone = buffer is not None and param not in handles and data[buffer.data] == 1
        if alone and buffer is not None and param.pointer is None and is_simple(buffer):
            args = ", ".join(buffer_arguments(out, buffer))
            texts.append(f"{define_buffer(out, buffer)}: T.Buffer({args})")
            out.bind(param, out.bound[buffer])
            continue
        hint = param.name
        if buffer is not None:
            matched.append((param, buffer))
            hint = f"var_{hint}" if hint == buffer.name else hint
        texts.append(f"{out.define(param, hint)}: {var_type(param)}")
    return texts, matched


def write_attributes(out: Writer, attrs: Attrs, name: str, function: str) -> None:
    """Write the line with a function's attributes; a `global_symbol` equal to its name is left out."""
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
        statements(out, func.body)
        return
    out.reach(func.body[0])
    out.line(f'# with {out.dialect.block}("root"):')
    allocations(out, root)
    statements(out, root.body)


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
