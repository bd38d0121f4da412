"""Buffers as text: their names, and the arguments of the calls that make them."""

from __future__ import annotations

from mlcc.grammar.printer.expr import is_int
from mlcc.grammar.printer.literals import integer, quote
from mlcc.grammar.printer.writer import ATOM, SOURCE, Child, Parts, Writer, call, handles
from mlcc.ir import tir
from mlcc.ir.construct import index_dtype
from mlcc.ir.dtypes import DType
from mlcc.ir.node import walk


def define_buffer(out: Writer, buffer: tir.Buffer, depth: int = -1) -> str:
    """Name a buffer that the current line makes, and its data pointer with it."""
    name = out.define(buffer, buffer.name, depth)
    if buffer.data not in out.bound:
        out.bind(buffer.data, f"{name}.data", depth)
    return name


def is_scalar(stmt: tir.AllocBuffer) -> bool:
    """Return True if `T.alloc_scalar(dtype, scope)` fully describes an allocation."""
    buffer = stmt.buffer
    plain = not buffer.strides and (buffer.elem_offset is None or is_int(buffer.elem_offset, 0))
    usual = buffer.alignment == 64 and buffer.offset_factor == 1 and not buffer.axis_separators
    return plain and usual and len(buffer.shape) == 1 and is_int(buffer.shape[0], 1) and not stmt.annotations


def define_scalar(out: Writer, buffer: tir.Buffer) -> None:
    """Write the allocation of a scalar variable, whose element is then called by the variable's name."""
    name = out.fresh_name(buffer, buffer.name)
    out.scalars[name] = buffer
    out.bind(buffer, name + SOURCE)
    out.bind(buffer.data, f"{name}{SOURCE}.data")
    out.line(f"{name} = T.alloc_scalar({quote(str(buffer.dtype))}, scope={quote(buffer.scope)})")


def buffer_arguments(out: Writer, buffer: tir.Buffer, data: str | None = None) -> list[str]:
    """Return the arguments of a buffer: shape, dtype, and properties that differ from the defaults.

    Call it before the buffer is defined.
    """
    shape = [out.text(n) for n in buffer.shape]
    args = [f"({', '.join(shape)}{',' if len(shape) == 1 else ''})", quote(str(buffer.dtype))]
    if data is None and buffer.data in out.bound:
        data = out.bound[buffer.data]
    if data is not None:
        args.append(f"data={data}")
    if buffer.strides:
        strides = [out.text(n) for n in buffer.strides]
        args.append(f"strides=({', '.join(strides)}{',' if len(strides) == 1 else ''})")
    offset = buffer.elem_offset
    # an offset that a text leaves out is a variable where `offset_factor` is given
    shown = offset is not None and (not is_int(offset, 0) or buffer.offset_factor != 1)
    if offset is not None and not shown:  # a zero of another type than that of the shape is another program to TVM
        shown = out.dialect.is_tvm and offset.dtype is not index_dtype(buffer.shape)
    if shown:
        args.append(f"elem_offset={out.text(buffer.elem_offset)}")
    if buffer.scope != "global":
        args.append(f"scope={quote(buffer.scope)}")
    if buffer.alignment != 64:
        args.append(f"align={integer(buffer.alignment)}")
    if buffer.offset_factor != 1:
        args.append(f"offset_factor={integer(buffer.offset_factor)}")
    if buffer.axis_separators:
        args.append(f"axis_separators=[{', '.join([integer(n) for n in buffer.axis_separators])}]")
    return args


def is_simple(buffer: tir.Buffer) -> bool:
    """Return True if `T.Buffer(shape, dtype)` in a signature fully describes a buffer."""
    return (
        not buffer.strides
        and (buffer.elem_offset is None or is_int(buffer.elem_offset, 0))
        and buffer.scope == "global"
        and buffer.alignment == 64
        and buffer.offset_factor == 1
        and not buffer.axis_separators
        and all(isinstance(dim, tir.IntImm) or not _has_variable(dim) for dim in buffer.shape)
    )


def _has_variable(dim: tir.Expr) -> bool:
    return any(isinstance(n, tir.Var) for n in walk(dim))


def declaration(out: Writer, buffer: tir.Buffer) -> str:
    """A buffer that nothing in scope makes, as a call that makes it."""
    return f"T.Buffer({', '.join(buffer_arguments(out, buffer))})"


@handles(tir.Buffer)
def _buffer(out: Writer, buffer: tir.Buffer, like: DType | None) -> Parts:
    name = out.bound.get(buffer)
    if name is None:
        creation = declaration(out, buffer)
        name = define_buffer(out, buffer, out.function_scope)
        out.prelude.append(f"{name} = {creation}")
        out.imports.add("T")
    return ATOM, [name]


@handles(tir.MatchBufferRegion)
def _match(out: Writer, node: tir.MatchBufferRegion, like: DType | None) -> Parts:
    return call("T.match_buffer", Child(node.source), *buffer_arguments(out, node.buffer))
