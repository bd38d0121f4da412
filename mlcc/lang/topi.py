"""Tensor expressions of common operators by the names of TVM's `topi`, for `bb.emit_te(topi.add, x, y)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from mlcc import te


def _elementwise(name: str, operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return the operator on two tensors, or a tensor and a number, with NumPy's broadcasting."""

    def operator(lhs: Any, rhs: Any) -> Any:
        shape = _broadcast(_shape(lhs), _shape(rhs), name)
        return te.compute(shape, lambda *i: operation(_element(lhs, i), _element(rhs, i)), name=f"T_{name}")

    operator.__name__ = name
    return operator


def _shape(value: Any) -> tuple[Any, ...]:
    return tuple(value.shape) if isinstance(value, te.Tensor) else ()


def _broadcast(one: tuple[Any, ...], two: tuple[Any, ...], name: str) -> tuple[Any, ...]:
    """Return the shape of both together. Raise ValueError for extents that differ."""
    rank = max(len(one), len(two))
    shape = []
    for a, b in zip((1,) * (rank - len(one)) + one, (1,) * (rank - len(two)) + two, strict=True):
        if not (_is_one(a) or _is_one(b)) and not bool(a == b):
            raise ValueError(f"topi.{name}: extents {a} and {b} differ")
        shape.append(b if _is_one(a) else a)
    return tuple(shape)


def _is_one(extent: Any) -> bool:
    return bool(extent == 1)


def _element(value: Any, indices: tuple[Any, ...]) -> Any:
    if not isinstance(value, te.Tensor):
        return value
    own = indices[len(indices) - len(value.shape) :]
    return value(*(0 if _is_one(extent) else i for extent, i in zip(value.shape, own, strict=True)))


add = _elementwise("add", lambda a, b: a + b)
subtract = _elementwise("subtract", lambda a, b: a - b)
multiply = _elementwise("multiply", lambda a, b: a * b)
divide = _elementwise("divide", lambda a, b: a / b)
maximum = _elementwise("maximum", te.max)
minimum = _elementwise("minimum", te.min)


def transpose(a: Any, axes: Sequence[int] | None = None) -> Any:
    """Return the tensor with its axes in another order, by default reversed."""
    rank = len(a.shape)
    order = [axis % rank for axis in (axes if axes is not None else range(rank - 1, -1, -1))]
    return te.compute(
        [a.shape[axis] for axis in order],
        lambda *i: a(*(i[order.index(axis)] for axis in range(rank))),
        name="T_transpose",
    )


def matmul(a: Any, b: Any) -> Any:
    """Return the product of two matrices."""
    k = te.reduce_axis((0, a.shape[1]), name="k")
    return te.compute((a.shape[0], b.shape[1]), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="T_matmul")


def dense(data: Any, weight: Any, bias: Any = None) -> Any:
    """Return `data @ weight.T`, plus the bias."""
    k = te.reduce_axis((0, data.shape[1]), name="k")
    product = te.compute(
        (data.shape[0], weight.shape[0]), lambda i, j: te.sum(data[i, k] * weight[j, k], axis=k), name="T_dense"
    )
    return product if bias is None else add(product, bias)


def relu(x: Any) -> Any:
    """Return the larger of each element and 0."""
    return te.compute(x.shape, lambda *i: te.max(x(*i), 0), name="T_relu")


nn = SimpleNamespace(dense=dense, matmul=matmul, relu=relu)


def __getattr__(name: str) -> Any:
    raise AttributeError(f"mlcc has no counterpart of `tvm.topi.{name}`: `relax.op` has the operators of graphs")
