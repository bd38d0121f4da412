"""`T.match_buffer` inside a block: a view of a region, with its strides and offset computed from the source."""

from __future__ import annotations

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.calls import HANDLE
from mlcc.ir.equal import structural_equal
from mlcc.ir.node import replace
from mlcc.ir.tir import Expr

Stmts = list[tir.Stmt]


def compact_strides(shape: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Return the strides of a row-major layout."""
    strides: list[Expr] = []
    step: Expr | None = None
    for dim in reversed(shape):
        strides.append(c.const(1, dim.dtype) if step is None else step)
        step = dim if step is None else c.mul(step, dim)
    return tuple(reversed(strides))


def symbolic_view(view: tir.Buffer, source: tir.Buffer, region: tuple[tir.Range, ...]) -> tir.DeclBuffer:
    """Return the declaration of a view over a pointer, `match_buffer(source[first element], extents...)`.

    Its symbolic shape, strides and offset are bound later (`bind_views`), when the layout of `source` is known.
    """
    first = tir.BufferLoad(source.dtype, source, tuple(axis.min for axis in region))
    pointer = tir.Call(HANDLE, tir.Op("tir.mlcc_view"), (first, *(axis.extent for axis in region)))
    return tir.DeclBuffer(view, pointer, span=view.span)


def viewed_region(pointer: Expr) -> tuple[tir.Buffer, tuple[tir.Range, ...]] | None:
    """Return the buffer and the region of a pointer made by `unbound`; None for another one."""
    match pointer:
        case tir.Call(op=tir.Op("tir.mlcc_view"), args=(tir.BufferLoad(buffer=buffer, indices=mins), *extents)):
            return buffer, tuple(tir.Range(low, extent) for low, extent in zip(mins, extents, strict=True))
    return None


def with_strides(view: tir.Buffer, source: tir.Buffer) -> tir.Buffer:
    """Return a view with the strides of its source if it states none, unless they are the compact ones."""
    strides = (source.strides or compact_strides(source.shape))[len(source.shape) - len(view.shape) :]
    if view.strides or all(map(structural_equal, strides, compact_strides(view.shape))):
        return view
    return replace(view, strides=strides)


def match(view: tir.Buffer, source: tir.Buffer, region: tuple[tir.Range, ...], defined: set[tir.Var]) -> Stmts:
    """Return statements that bind the symbolic dimensions, strides and offset of `view` and declare it.

    The bound variables are added to `defined`, the variables that have a value. A value that `view` states must agree
    with the source: it is asserted unless that is proved.
    """
    strides = source.strides or compact_strides(source.shape)
    start: Expr = source.elem_offset if source.elem_offset is not None else c.const(0, _index_type(source))
    for axis, step in zip(region, strides, strict=True):
        start = c.add(start, c.mul(axis.min, step))
    statements: Stmts = []
    lead = len(region) - len(view.shape)
    for number, (dim, axis) in enumerate(zip(view.shape, region[lead:], strict=True)):
        _bind_or_assert(statements, defined, view, dim, axis.extent, f"dimension {number}")
    for number, (step, stated) in enumerate(zip(strides[lead:], view.strides, strict=bool(view.strides))):
        _bind_or_assert(statements, defined, view, stated, step, f"stride {number}")
    if view.elem_offset is not None:
        if isinstance(view.elem_offset, tir.Var):
            _bind_or_assert(statements, defined, view, view.elem_offset, start, "offset")
            if view.offset_factor > 1:
                rest = c.floormod(start, view.offset_factor)
                _assert(statements, view, c.equal(rest, 0), f"the offset is not a multiple of {view.offset_factor}")
        else:  # a constant offset counts from the view's own data
            start = c.sub(start, view.elem_offset)
    return [*statements, tir.DeclBuffer(view, _pointer(source, view, start), span=view.span)]


def _pointer(source: tir.Buffer, view: tir.Buffer, start: Expr) -> Expr:
    """Return the data pointer of a view: the source's if the offset is a variable or 0, else its first element's."""
    if isinstance(view.elem_offset, tir.Var) or tir.const_int(start) == 0:
        return source.data
    kind = tir.Call(source.dtype, tir.Op("tir.type_annotation"), ())
    return c.call("handle", "tvm_access_ptr", kind, source.data, start, 0, 3)


def _index_type(buffer: tir.Buffer) -> str:
    return str(buffer.shape[0].dtype) if buffer.shape else "int32"


def _bind_or_assert(
    stmts: Stmts, defined: set[tir.Var], view: tir.Buffer, stated: Expr, actual: Expr, what: str
) -> None:
    """Bind a symbolic value of the view to the source's value, or check that both agree."""
    if isinstance(stated, tir.Var) and stated not in defined:
        defined.add(stated)
        stmts.append(tir.Bind(stated, c.cast(stated.dtype, actual)))
    elif stated is not actual:
        _assert(stmts, view, c.equal(stated, actual), f"{what} does not match the source")


def _assert(stmts: Stmts, view: tir.Buffer, condition: Expr, message: str) -> None:
    if tir.const_int(condition) != 1:
        stmts.append(
            tir.AssertStmt(condition, "RuntimeError", (f"match_buffer of {view.name}: {message}",), span=view.span)
        )
