"""Helpers shared by the converters of several operator families."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from mlcc.frontend.emitter import Dim
from mlcc.frontend.onnx.table import converter
from mlcc.frontend.onnx.translate import OnnxNode, OnnxTranslator
from mlcc.frontend.problems import Unsupported
from mlcc.ir import construct, relax, tir
from mlcc.ir.dtypes import DType

MICROSOFT = "com.microsoft"  # the domain of onnxruntime's operators


def scalar_maker(t: OnnxTranslator, like: relax.Expr) -> Callable[[bool | int | float], relax.Constant]:
    """Return a function that creates scalars of a tensor's dtype."""
    return functools.partial(t.scalar, dtype=t.dtype(like))


def is_float(t: OnnxTranslator, value: relax.Expr) -> bool:
    """Return True if a tensor has a floating-point dtype."""
    return DType.of(t.dtype(value)).is_float


def iota_along(t: OnnxTranslator, rank: int, axis: int, extent: Dim, dtype: str = "int64") -> relax.Expr:
    """Emit 0, 1, 2, ... along one axis; all other extents of the `rank` dimensions are 1."""
    line = t.op.arange(0, extent, 1, dtype)
    return t.reshape(line, [extent if i == axis else 1 for i in range(rank)])


def split_axis(t: OnnxTranslator, value: relax.Expr, axis: int, extents: Sequence[Dim]) -> relax.Expr:
    """Split an axis into several axes."""
    shape = t.shape(value)
    return t.reshape(value, [*shape[:axis], *extents, *shape[axis + 1 :]])


def slice_axis(t: OnnxTranslator, value: relax.Expr, axis: int, begin: Dim, end: Dim) -> relax.Expr:
    """Slice one axis from `begin` to `end`."""
    return t.emit(t.op.strided_slice(value, [axis], [begin], [end], assume_inbound=True))


def swap_axes(t: OnnxTranslator, value: relax.Expr, one: int, other: int) -> relax.Expr:
    """Swap two axes."""
    order = list(range(t.ndim(value)))
    order[one], order[other] = order[other], order[one]
    return t.emit(t.op.permute_dims(value, order))


def constant_extent(extent: Dim, what: str) -> int:
    """Return a constant extent as a number. Raises Unsupported for a symbolic one."""
    number = extent if isinstance(extent, int) else tir.const_int(extent)
    if number is None:
        raise Unsupported(f"{what} must be constant, not `{extent}`")
    return number


def floor_quotient(extent: Dim, parts: int) -> Dim:
    """Return `extent // parts`, folded if the extent is constant."""
    number = extent if isinstance(extent, int) else tir.const_int(extent)
    return construct.floordiv(extent, parts) if number is None else number // parts


def one_of(node_value: str, allowed: Sequence[str], what: str) -> str:
    """Return an attribute if it is one of the allowed values. Raises Unsupported otherwise."""
    if node_value not in allowed:
        raise Unsupported(f'`{what}="{node_value}"` is not supported')
    return node_value


def convert_standard(
    t: OnnxTranslator, node: OnnxNode, operator: str, version: int, *inputs: relax.Expr | None
) -> relax.Expr:
    """Apply a version of a standard ONNX operator to a node's attributes and these inputs; return the first output."""
    convert = converter("", operator, version)
    if convert is None:
        raise Unsupported(f"there is no converter for `{operator}`")
    outputs = convert(t, node, *inputs)
    return t.emit(outputs if isinstance(outputs, relax.Expr) else outputs[0])
