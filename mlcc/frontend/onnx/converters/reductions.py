"""Reductions, argmax and argmin, and softmax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from mlcc.frontend.onnx.dynamic_axes import DynamicReduction
from mlcc.frontend.onnx.helpers import is_float, scalar_maker
from mlcc.frontend.onnx.table import converts
from mlcc.frontend.onnx.translate import OnnxNode, OnnxTranslator
from mlcc.ir import construct, relax, tir
from mlcc.ops.shapes import product


class StaticReduction:
    """Reductions of a tensor over constant axes."""

    def __init__(self, t: OnnxTranslator, axes: Sequence[int], keep: bool) -> None:
        self.t, self.axes, self.keep = t, list(axes), keep

    def reduce(self, name: str, value: relax.Expr, keep: bool | None = None) -> relax.Expr:
        """Emit the reduction of that name."""
        return self.t.emit(getattr(self.t.op, name)(value, self.axes, self.keep if keep is None else keep))

    def squeeze_reduced(self, value: relax.Expr) -> relax.Expr:
        """Squeeze the reduced axes, which a reduction kept, unless the result keeps them."""
        return value if self.keep else self.t.emit(self.t.op.squeeze(value, self.axes))


Over: TypeAlias = StaticReduction | DynamicReduction
Reduce: TypeAlias = Callable[[OnnxTranslator, relax.Expr, Over], relax.Expr]


def _direct(name: str) -> Reduce:
    return lambda t, x, over: over.reduce(name, x)


def _via_float(t: OnnxTranslator, x: relax.Expr, of: Callable[[relax.Expr], relax.Expr]) -> relax.Expr:
    """Apply a function of floats; integers are cast to float64 and the result is cast back."""
    dtype = t.dtype(x)
    return of(x) if is_float(t, x) else t.cast(t.emit(of(t.cast(x, "float64"))), dtype)


def _l1(t: OnnxTranslator, x: relax.Expr, over: Over) -> relax.Expr:
    return over.reduce("sum", t.emit(t.op.abs(x)))


def _sum_square(t: OnnxTranslator, x: relax.Expr, over: Over) -> relax.Expr:
    return over.reduce("sum", t.emit(t.op.multiply(x, x)))


def _l2(t: OnnxTranslator, x: relax.Expr, over: Over) -> relax.Expr:
    return _via_float(t, x, lambda v: t.op.sqrt(_sum_square(t, v, over)))


def _log_sum(t: OnnxTranslator, x: relax.Expr, over: Over) -> relax.Expr:
    return _via_float(t, x, lambda v: t.op.log(over.reduce("sum", v)))


def _log_sum_exp(t: OnnxTranslator, x: relax.Expr, over: Over) -> relax.Expr:
    """Emit log-sum-exp, shifted by the maximum so that no exponential overflows."""

    def of(v: relax.Expr) -> relax.Expr:
        greatest = over.reduce("max", v, keep=True)
        shift = t.emit(t.op.where(t.op.isfinite(greatest), greatest, scalar_maker(t, v)(0)))
        total = over.reduce("sum", t.emit(t.op.exp(t.op.subtract(v, shift))))
        return t.op.add(t.op.log(total), over.squeeze_reduced(shift))

    return _via_float(t, x, of)


_REDUCTIONS: dict[str, tuple[Reduce, int]] = {  # the reduction, and the first opset in which `axes` is an input
    "ReduceSum": (_direct("sum"), 13), "ReduceMean": (_direct("mean"), 18), "ReduceProd": (_direct("prod"), 18),
    "ReduceMax": (_direct("max"), 18), "ReduceMin": (_direct("min"), 18), "ReduceL1": (_l1, 18),
    "ReduceL2": (_l2, 18), "ReduceSumSquare": (_sum_square, 18), "ReduceLogSum": (_log_sum, 18),
    "ReduceLogSumExp": (_log_sum_exp, 18),
}  # fmt: skip


def _with_axes_attribute(reduce: Reduce) -> Callable[..., relax.Expr]:
    def convert(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
        return reduce(
            t, x, StaticReduction(t, _axes(t, x, node.attribute("axes")), bool(node.attribute("keepdims", 1)))
        )

    return convert


def _with_axes_input(reduce: Reduce) -> Callable[..., relax.Expr]:
    def convert(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, axes: relax.Expr | None = None) -> relax.Expr:
        keep = bool(node.attribute("keepdims", 1))
        none = axes is None or t.static_shape(axes) == (0,)
        if none and node.attribute("noop_with_empty_axes", 0):  # each element is reduced by itself
            return reduce(t, t.emit(t.op.expand_dims(x, [0])), StaticReduction(t, [0], False))
        if not none and axes is not None and t.known_integers(axes) is None:
            return reduce(t, x, DynamicReduction(t, x, axes, keep))
        given = None if none or axes is None else [int(a) for a in t.array(axes).reshape(-1)]
        return reduce(t, x, StaticReduction(t, _axes(t, x, given), keep))

    return convert


def _axes(t: OnnxTranslator, x: relax.Expr, given: Sequence[int] | None) -> list[int]:
    """Return the axes of a reduction; all if none are given."""
    return sorted({t.axis(x, a) for a in given}) if given else list(range(t.ndim(x)))


for _name, (_reduce, _version) in _REDUCTIONS.items():
    converts(_name)(_with_axes_attribute(_reduce))
    converts(_name, since=_version)(_with_axes_input(_reduce))


@converts("ArgMax", "ArgMin")
def _arg(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    axis, keep = t.axis(x, node.attribute("axis", 0)), bool(node.attribute("keepdims", 1))
    place = t.op.argmax if node.operator == "ArgMax" else t.op.argmin
    if not node.attribute("select_last_index", 0):
        return place(x, axis, keep)
    from_end = t.emit(place(t.op.flip(x, axis), axis, keep))
    last = construct.sub(t.shape(x)[axis], 1)
    return t.op.subtract(t.integer_tensor([last], "int64", ()), from_end)


# ---------------------------------------------------------------- softmax


@converts("Softmax", since=13)
def _softmax(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    return t.op.nn.softmax(x, t.axis(x, node.attribute("axis", -1)))


@converts("LogSoftmax", since=13)
def _log_softmax(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    return t.op.nn.log_softmax(x, t.axis(x, node.attribute("axis", -1)))


@converts("Softmax", "LogSoftmax")
def _flat_softmax(t: OnnxTranslator, node: OnnxNode, x: relax.Expr) -> relax.Expr:
    """Convert the softmax before opset 13: over all axes from `axis` on, flattened."""
    of: Any = t.op.nn.softmax if node.operator == "Softmax" else t.op.nn.log_softmax
    axis, shape = t.axis(x, node.attribute("axis", 1)), t.shape(x)
    if axis == len(shape) - 1 or all(tir.const_int(n) == 1 for n in shape[axis + 1 :]):
        return of(x, axis)
    matrix = t.reshape(x, [product(shape[:axis]), product(shape[axis:])])
    return t.reshape(t.emit(of(matrix, -1)), shape)
