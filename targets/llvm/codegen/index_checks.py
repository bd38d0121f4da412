"""Emit `T.checked_index`: one comparison, and an exit that reports the index and the extent."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mlcc.ir import tir
from mlcc.ir.checked_index import INDEX_ERROR, checked_index
from mlcc.targets.llvm.codegen.ir_text import Value, integer, vector
from mlcc.targets.llvm.codegen.refuse import unsupported

if TYPE_CHECKING:
    from mlcc.targets.llvm.codegen.emitter import Emitter


def emit(e: Emitter, node: tir.Call) -> Value:
    """The place of a checked index, as int64. What happens where there is none depends on the target
    (`Emitter.check_index`)."""
    parts = checked_index(node)
    if parts is None:
        raise unsupported("`T.checked_index` takes an index, an extent, a text, a dimension and a bool", node.span)
    code = e.ctx.error_code(INDEX_ERROR, parts.message)

    def check(index: Value, place: Value, inside: Value, extent: Value) -> Value:
        return e.check_index(index, place, inside, extent, code)

    return resolve_index(e, parts.index, parts.extent, parts.from_end, node.dtype.lanes, check)


def resolve_index(
    e: Emitter, index: tir.Expr, extent: tir.Expr, from_end: bool, lanes: int,
    check: Callable[[Value, Value, Value, Value], Value],
) -> Value:  # fmt: skip
    """The place of an index; `settle(index, place, whether it is inside, extent)` sees to those that are outside."""
    fn = e.fn
    given, size = _to_int64(e, index, lanes), _to_int64(e, extent, lanes)
    place = given
    if from_end and not index.dtype.is_uint:
        zero = fn.splat(integer("i64", 0), lanes)
        turned = fn.binary("add", given, size)
        place = fn.select(fn.icmp("slt", given, zero), turned, given)
    return check(given, place, fn.icmp("ult", place, size), size)


def _to_int64(e: Emitter, node: tir.Expr, lanes: int) -> Value:
    """An integer in 64 bits. It is computed in its own type first, where it wraps: the check is of what it is."""
    value = e.expr(node)
    value = e.fn.convert(
        "zext" if node.dtype.is_uint or node.dtype.is_bool else "sext", value, vector("i64", node.dtype.lanes)
    )
    return e.fn.splat(value, lanes) if node.dtype.lanes < lanes else value
