"""Resizing an axis to an extent or by a scale known at run time only: coordinates and weights are tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mlcc.frontend.emitter import Dim
from mlcc.frontend.onnx.interpolation import CROP, ResizeAttributes
from mlcc.frontend.onnx.translate import OnnxTranslator
from mlcc.frontend.problems import Unsupported
from mlcc.ir import construct, relax

_WIDE = "float64"


@dataclass(frozen=True)
class DynamicResizedAxis:
    """A resized axis: its extent before and after; the scale and the bounds of the cropped region as scalars."""

    t: OnnxTranslator
    axis: int
    before: Dim
    after: Dim
    scale: relax.Expr
    begin: relax.Expr
    end: relax.Expr

    def number(self, value: float) -> relax.Constant:
        """Return a number as a scalar."""
        return self.t.scalar(value, _WIDE)

    def extent(self, extent: Dim) -> relax.Expr:
        """Return an extent as a scalar."""
        return self.t.cast(self.t.integer_tensor([extent], "int64", ()), _WIDE)

    def places(self, first: Dim, end: Dim) -> relax.Expr:
        """Return the numbers from `first` to `end`, exclusive."""
        return self.t.cast(self.t.emit(self.t.op.arange(first, end, 1, "int64")), _WIDE)

    def coordinates(self, how: ResizeAttributes) -> relax.Expr:
        """Return the source coordinate of each output position."""
        op, number = self.t.op, self.number
        at, before = self.places(0, self.after), self.extent(self.before)
        last, after = op.subtract(before, number(1)), op.multiply(self.scale, before)
        halves = op.subtract(op.divide(op.add(at, number(0.5)), self.scale), number(0.5))
        one = op.logical_or(op.equal(self.extent(self.after), number(1)), op.equal(after, number(1)))
        apart = op.where(one, number(1), op.subtract(after, number(1)))

        def unless_one(value: Any, otherwise: Any) -> Any:
            return op.where(one, otherwise, value)

        half = op.divide(before, number(2))
        ways: dict[str, Callable[[], Any]] = {
            "half_pixel": lambda: halves,
            "pytorch_half_pixel": lambda: unless_one(halves, number(0)),
            "half_pixel_symmetric": lambda: op.add(
                op.multiply(half, op.subtract(number(1), op.divide(self.extent(self.after), after))), halves
            ),
            "align_corners": lambda: unless_one(op.divide(op.multiply(at, last), apart), number(0)),
            "asymmetric": lambda: op.divide(at, self.scale),
            "tf_half_pixel_for_nn": lambda: op.divide(op.add(at, number(0.5)), self.scale),
            CROP: lambda: unless_one(
                op.add(
                    op.multiply(self.begin, last),
                    op.divide(op.multiply(op.multiply(at, op.subtract(self.end, self.begin)), last), apart),
                ),
                op.multiply(op.multiply(op.add(self.begin, self.end), number(0.5)), last),
            ),
        }
        if how.coordinates not in ways:
            raise Unsupported(f'`coordinate_transformation_mode="{how.coordinates}"` is not supported')
        return self.t.emit(ways[how.coordinates]())

    def resized(self, x: relax.Expr, how: ResizeAttributes) -> relax.Expr:
        """Resize this axis of a tensor, in wide floats except for nearest resizing."""
        at = self.coordinates(how)
        pixels = self._nearest(x, at, how) if how.mode == "nearest" else self._interpolate(x, at, how)
        if how.coordinates != CROP:
            return pixels
        op, last = self.t.op, self.extent(construct.sub(self.before, 1))
        outside = self.t.emit(op.logical_or(op.less(at, self.number(0)), op.greater(at, last)))
        shape = [self.after if i == self.axis else 1 for i in range(self.t.ndim(x))]
        filler = self.t.scalar(how.extrapolation_value, self.t.dtype(pixels))
        return self.t.emit(op.where(self.t.reshape(outside, shape), filler, pixels))

    def _nearest(self, x: relax.Expr, at: relax.Expr, how: ResizeAttributes) -> relax.Expr:
        """Gather the nearest pixel of each output position."""
        op, half = self.t.op, self.number(0.5)
        ways: dict[str, Callable[[], Any]] = {
            "round_prefer_floor": lambda: op.ceil(op.subtract(at, half)),
            "round_prefer_ceil": lambda: op.floor(op.add(at, half)),
            "floor": lambda: op.floor(at),
            "ceil": lambda: op.ceil(at),
        }
        if how.nearest not in ways:
            raise Unsupported(f'`nearest_mode="{how.nearest}"` is not supported')
        return self.t.emit(op.take(x, self._clamp(self.t.emit(ways[how.nearest]())), self.axis))

    def _clamp(self, places: relax.Expr) -> relax.Expr:
        """Clamp positions to indices of the data."""
        op, last = self.t.op, self.extent(construct.sub(self.before, 1))
        return self.t.emit(op.astype(op.maximum(op.minimum(places, last), self.number(0)), "int64"))

    def _interpolate(self, x: relax.Expr, at: relax.Expr, how: ResizeAttributes) -> relax.Expr:
        """Interpolate by a matmul with a weight matrix, with replicated edge pixels."""
        t, op = self.t, self.t.op
        reach: Dim = construct.add(construct.mul(self.before, 2), 2) if how.antialias else 2
        places = self.places(construct.sub(0, reach), construct.add(self.before, reach))
        apart = op.abs(op.subtract(op.expand_dims(at, [0]), op.expand_dims(places, [1])))
        distance = t.emit(op.multiply(apart, op.minimum(self.scale, self.number(1))) if how.antialias else apart)
        counts = self._linear(distance) if how.mode == "linear" else self._cubic(distance, how.alpha)
        if how.exclude_outside:
            inside = op.logical_and(op.greater_equal(places, self.number(0)), op.less(places, self.extent(self.before)))
            counts = t.emit(op.where(op.expand_dims(inside, [1]), counts, self.number(0)))
        if how.exclude_outside or how.antialias:
            total = t.emit(op.sum(counts, [0], True))
            counts = op.divide(counts, op.where(op.equal(total, self.number(0)), self.number(1), total))
        around, last = t.emit(op.take(x, self._clamp(places), self.axis)), t.ndim(x) - 1
        order = [*(i for i in range(last + 1) if i != self.axis), self.axis]
        rows = around if self.axis == last else t.emit(op.permute_dims(around, order))
        product = t.emit(op.matmul(rows, t.cast(t.emit(counts), t.dtype(x))))
        return (
            product
            if self.axis == last
            else t.emit(op.permute_dims(product, [order.index(i) for i in range(last + 1)]))
        )

    def _linear(self, distance: relax.Expr) -> relax.Expr:
        op = self.t.op
        return self.t.emit(op.maximum(op.subtract(self.number(1), distance), self.number(0)))

    def _cubic(self, d: relax.Expr, a: float) -> relax.Expr:
        """The cubic convolution kernel."""
        op, number = self.t.op, self.number

        def polynomial(*coefficients: float) -> Any:
            horner: Any = number(coefficients[0])
            for value in coefficients[1:]:
                horner = op.add(op.multiply(horner, d), number(value))
            return horner

        near, far = polynomial(a + 2, -(a + 3), 0, 1), polynomial(a, -5 * a, 8 * a, -4 * a)
        beyond = op.where(op.less(d, number(2)), far, number(0))
        return self.t.emit(op.where(op.less_equal(d, number(1)), near, beyond))
