"""Building blocks of lowerings: elementwise and broadcasting computes in the form that TVM's operators have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mlcc import te
from mlcc.arith.proofs import is_one
from mlcc.ir import calls, construct, tir
from mlcc.ir.dtypes import FLOAT64, DType
from mlcc.ops.shapes import prove_equal
from mlcc.te.scalar import Scalar, operand, to_expr
from mlcc.te.tensor import Tensor

ROUNDS = "mlcc.rounds"  # block attribute: the store rounds, as the program requests

Operand = Tensor | Scalar | tir.Expr | float


UINT64 = DType.of("uint64")


def saturate_to_int64(value: tir.Expr) -> tir.Expr:
    """Convert a uint64 to int64 with saturation; other dtypes are unchanged."""
    if value.dtype != UINT64:
        return value
    return construct.cast("int64", construct.minimum(value, construct.const(2**63 - 1, UINT64)))


def float_constant(value: float, dtype: DType) -> Scalar:
    """A constant. If a 16- or 8-bit float would round it, it is a cast of a float64 constant, so that a computation in
    float32 can use it unrounded."""
    rounded = construct.const(value, dtype)
    if not dtype.is_float or dtype.bits >= 32 or rounded.value == value or value != value:  # type: ignore[attr-defined]
        return Scalar(rounded)
    return Scalar(tir.Cast(dtype, construct.const(value, FLOAT64)))


def convert_integer(value: Any, dtype: DType) -> Scalar:
    """An integer as `dtype`; a known one as `number` makes it."""
    known = tir.const_int(to_expr(value))
    return Scalar(construct.cast(dtype, to_expr(value))) if known is None else float_constant(known, dtype)


def is_exact_constant(node: Any) -> bool:
    """Return True if an expression is a constant that `number` has not rounded."""
    return (
        isinstance(node, tir.Cast)
        and isinstance(node.value, tir.FloatImm)
        and (node.value.dtype is FLOAT64 and node.dtype.is_float and node.dtype.bits < 32)
    )


def elementwise(x: Tensor, fn: Callable[[Scalar], Any], name: str = "compute") -> Tensor:
    """Map `fn` over the elements; axes are i0, i1, ..."""
    mapped: Tensor = te.compute(x.shape, lambda *i: fn(x(*i)), name=name)
    return mapped


def elementwise_ax(x: Tensor, fn: Callable[[Scalar], Any], name: str) -> Tensor:
    """Map `fn` over the elements; axes are ax0, ax1, ..."""
    return compute_ax(x.shape, lambda *i: fn(x(*i)), name)


def compute_ax(shape: Sequence[Any], fn: Callable[..., Any], name: str) -> Tensor:
    """A compute whose axes are ax0, ax1, ..."""
    names = [f"ax{i}" for i in range(len(shape))]
    tensor: Tensor = te.compute(tuple(shape), fn, name=name, varargs_names=names) if names else te.compute((), fn, name)
    return tensor


def cast(x: Tensor, dtype: DType | str) -> Tensor:
    """Every element converted."""
    return elementwise(x, lambda v: v.astype(dtype))


def broadcast_shape(*shapes: Sequence[Any]) -> tuple[tir.Expr, ...]:
    """The broadcast shape by NumPy's rule; two symbolic extents are assumed equal."""
    rank = max(len(s) for s in shapes)
    dims: list[tir.Expr] = []
    for at in range(rank):
        extents = [to_expr(s[at - rank + len(s)]) for s in shapes if at - rank + len(s) >= 0]
        common = extents[0]
        for extent in extents[1:]:
            if is_one(common) or not is_one(extent) and isinstance(extent, tir.IntImm):
                common = extent
        dims.append(common)
    return tuple(dims)


def broadcast_index(
    x: Tensor, shape: Sequence[tir.Expr], at: Sequence[Any], equal: bool = True
) -> list[Any]:  # fmt: skip
    """Return the index in `x` of element `at` of the broadcast result.

    Symbolic extents are assumed equal where that is not provable; unless `equal`, that of `x` may also be 1.
    """
    offset = len(shape) - x.ndim
    indices: list[Any] = []
    for position, extent in enumerate(x.buffer.shape):
        out, index = shape[position + offset], at[position + offset]
        first = construct.const(0, extent.dtype)
        if is_one(out) or prove_equal(extent, out):
            indices.append(index)
        elif is_one(extent):
            indices.append(first)
        else:
            indices.append(index if equal else calls.if_then_else(construct.equal(extent, 1), first, to_expr(index)))
    return indices


def broadcast(fn: Callable[..., Any], *operands: Operand, name: str) -> Tensor:
    """Map `fn` over the elements of tensors and scalars, broadcast together."""
    shapes = [x.buffer.shape for x in operands if isinstance(x, Tensor)]
    shape = broadcast_shape(*shapes)

    def element(x: Operand, at: Sequence[Any]) -> Any:
        return x(*broadcast_index(x, shape, at)) if isinstance(x, Tensor) else x

    return compute_ax(shape, lambda *at: fn(*(element(x, at) for x in operands)), name)


def add(a: Operand, b: Operand) -> Tensor:
    return broadcast(lambda x, y: Scalar(construct.add(operand(x), operand(y))), a, b, name="T_add")


def subtract(a: Operand, b: Operand) -> Tensor:
    return broadcast(lambda x, y: Scalar(construct.sub(operand(x), operand(y))), a, b, name="T_subtract")


def multiply(a: Operand, b: Operand) -> Tensor:
    return broadcast(lambda x, y: Scalar(construct.mul(operand(x), operand(y))), a, b, name="T_multiply")


def divide(a: Operand, b: Operand) -> Tensor:
    return broadcast(te.div, a, b, name="T_divide")


def maximum(a: Operand, b: Operand) -> Tensor:
    return broadcast(lambda x, y: Scalar(construct.maximum(operand(x), operand(y))), a, b, name="T_maximum")


def minimum(a: Operand, b: Operand) -> Tensor:
    return broadcast(lambda x, y: Scalar(construct.minimum(operand(x), operand(y))), a, b, name="T_minimum")
