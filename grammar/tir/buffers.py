"""Buffers as the text declares them: the arguments of `T.Buffer`, `T.match_buffer`, `T.alloc_buffer` and their kin."""

from __future__ import annotations

from typing import Any

from mlcc.grammar.quoted_expressions import parse_quoted
from mlcc.grammar.syntax import tree
from mlcc.grammar.tir.arguments import signature
from mlcc.grammar.tir.evaluation_results import set_span
from mlcc.grammar.tir.operators import OperatorEvaluator
from mlcc.ir import construct, tir
from mlcc.ir.dtypes import FLOAT32, INT32, DType

_LAYOUT = "strides= elem_offset= byte_offset= scope= align= offset_factor="
_IGNORED = "layout buffer_type type span"  # what says nothing about where the elements are
BUFFER = signature("T.Buffer", f"shape dtype= data= {_LAYOUT}", f"axis_separators {_IGNORED}")
MATCH = signature(
    "T.match_buffer", "param shape= dtype= data= strides= elem_offset= scope= align= offset_factor=",
    f"axis_separators {_IGNORED}",
)  # fmt: skip
BLOCK_ALLOC = signature(
    "T.alloc_buffer", "shape dtype= data= strides= elem_offset= scope= align= offset_factor=",
    f"axis_separators {_IGNORED}",
)  # fmt: skip
ALLOC = signature("T.alloc_buffer", f"shape dtype= data= {_LAYOUT}", f"annotations axis_separators {_IGNORED}")
DECLARE = signature("T.decl_buffer", f"shape dtype= data= {_LAYOUT}", f"axis_separators {_IGNORED}")


def buffer_of(
    ev: OperatorEvaluator, arguments: dict[str, tree.Expr], name: str, cst: tree.Node, *,
    shape: tuple[tir.Expr, ...] | None = None, dtype: DType | None = None, data: tir.Var | None = None,
    scope: str | None = None,
) -> tir.Buffer:  # fmt: skip
    """Return the buffer that the bound arguments describe; keyword arguments are defaults for arguments left out."""
    if shape is None:
        shape = _shape(ev, arguments["shape"])
    if dtype is None:
        dtype = ev.dtype(arguments["dtype"]) if "dtype" in arguments else FLOAT32
        _check_dtype(ev, dtype, arguments.get("dtype", cst))
    if scope is None:
        scope = ev.string(arguments["scope"], "a storage scope") if "scope" in arguments else "global"
    factor = ev.integer(arguments["offset_factor"], "`offset_factor`") if "offset_factor" in arguments else 0
    align = ev.integer(arguments["align"], "`align`") if "align" in arguments else 0
    strides = _strides(ev, arguments, shape)
    offset = _offset(ev, arguments, dtype)
    if offset is None and factor:
        offset = tir.Var("elem_offset", shape[0].dtype if shape else INT32)
    buffer = construct.make_buffer(
        name, shape, dtype, scope or "global", data, strides, offset, align if align > 0 else 64, max(factor, 1),
        _separators(ev, arguments),
    )  # fmt: skip
    if buffer.elem_offset is not None:
        set_span(buffer.elem_offset, ev.walk.span(cst))
    return tir.Buffer(
        buffer.name, buffer.data, buffer.dtype, buffer.shape, buffer.strides, buffer.elem_offset, buffer.alignment,
        buffer.offset_factor, buffer.axis_separators, span=ev.walk.span(cst),
    )  # fmt: skip


def _shape(ev: OperatorEvaluator, cst: tree.Expr) -> tuple[tir.Expr, ...]:
    if isinstance(cst, tree.Display):
        shape = tuple(_dimension(ev, item) for item in cst.items)
    else:
        shape = (_dimension(ev, cst),) if isinstance(cst, tree.Str) else ev.exprs(cst, "a shape")
    for extent in shape:
        if not extent.dtype.is_int or extent.dtype.lanes > 1:
            ev.walk.fail("E0302", f"an extent must be an integer, not {extent.dtype}", cst)
        if isinstance(extent, tir.IntImm) and extent.value < 0:
            ev.walk.fail("E0302", "an extent cannot be negative", cst)
    return shape


def _dimension(ev: OperatorEvaluator, cst: tree.Expr) -> tir.Expr:
    """One extent; in quotes it may use names that it introduces itself."""
    return ev.expr(parse_quoted(ev.walk, cst) if isinstance(cst, tree.Str) else cst)


def _check_dtype(ev: OperatorEvaluator, dtype: DType, cst: tree.Node) -> None:
    if dtype.is_void:
        ev.walk.fail("E0302", "a buffer cannot have dtype void", cst)


def _strides(
    ev: OperatorEvaluator, arguments: dict[str, tree.Expr], shape: tuple[tir.Expr, ...]
) -> tuple[tir.Expr, ...]:
    cst = arguments.get("strides")
    if cst is None:
        return ()
    value = ev.value(cst)
    if value is None:
        return ()
    if not isinstance(value, (tuple, list)):
        ev.walk.fail("E0302", "strides must be a list with one entry for each dimension", cst)
    dtype = shape[0].dtype if shape else INT32
    strides = [_stride(ev, v, dtype, cst) for v in value]
    if strides and len(strides) != len(shape):
        ev.walk.fail("E0303", f"{len(strides)} strides for {len(shape)} dimensions", cst)
    return tuple(strides)


def _stride(ev: OperatorEvaluator, value: Any, dtype: DType, cst: tree.Expr) -> tir.Expr:
    """A stride; a string is a new variable, known in the function by that name."""
    if not isinstance(value, str):
        return ev.as_expr(value, cst)
    var = tir.Var(value or "stride", dtype, span=ev.walk.span(cst))
    if value and ev.scope.find(value) is None:
        ev.scope.define(value, var, ev.walk.span(cst))
    return var


def _offset(ev: OperatorEvaluator, arguments: dict[str, tree.Expr], dtype: DType) -> tir.Expr | None:
    at = arguments.get("elem_offset")
    if at is not None:
        value = ev.value(at)
        return None if value is None else ev.as_expr(value, at)
    at = arguments.get("byte_offset")
    value = None if at is None else ev.value(at)
    if at is None or value is None:
        return None
    size = dtype.bytes * dtype.lanes
    if isinstance(value, int):
        return ev.build(at, construct.const, value // size)  # type: ignore[no-any-return]
    return ev.build(at, construct.floordiv, ev.as_expr(value, at), size)  # type: ignore[no-any-return]


def _separators(ev: OperatorEvaluator, arguments: dict[str, tree.Expr]) -> tuple[int, ...]:
    at = arguments.get("axis_separators")
    if at is None:
        return ()
    return tuple(ev.integer(item, "an axis separator") for item in tree.items_of(at))


def data_pointer(
    ev: OperatorEvaluator, cst: tree.Expr, name: str, dtype: DType, scope: str
) -> tuple[tir.Var, tir.Expr]:
    """The data variable for a view of the memory at `cst`, and the pointer expression itself."""
    value = ev.value(cst)
    if isinstance(value, tir.Buffer):
        value = value.data
    pointer = ev.as_expr(value, cst)
    if not pointer.dtype.is_handle:
        ev.walk.fail("E0301", f"`data` must be a pointer such as `A.data`, not {pointer.dtype}", cst)
    if isinstance(pointer, tir.Var):
        return pointer, pointer
    var = tir.Var(name, DType.of("handle"), tir.PointerType(dtype.element, scope), span=ev.walk.span(cst))
    return var, pointer
