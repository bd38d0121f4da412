"""The pass `integer-products`: multiply dequantized tensors as integers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from mlcc import ops
from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.ir.node import replace
from mlcc.ir.tensor_data import TensorData
from mlcc.ops import values
from mlcc.ops.registry import Cost
from mlcc.passes.graph.few_rows import decodes_weight
from mlcc.passes.graph.relax_mutator import RelaxMutator, map_relax_functions
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.relax.construct import tensor_info
from mlcc.relax.queries import DefUse, is_call, is_primitive

_INT32_BOUND = 2**31  # the bound of int32 sums
_MAX_MAGNITUDE = {"int8": 128, "uint8": 255}  # the largest magnitude of an element
_LAYOUTS = {  # of the data and the weights, by convolution
    "nn.conv1d": ("NCW", "OIW"), "nn.conv2d": ("NCHW", "OIHW"), "nn.conv3d": ("NCDHW", "OIDHW"),
}  # fmt: skip


@dataclass(frozen=True)
class IntegerProducts(Pass):
    """Multiply int8 and uint8 directly, accumulate in int32, and scale the sums.

    Applies to matrix products and convolutions of two dequantized tensors: the left one, or the data, with one scale
    and a constant zero point; the right one, or the weights, with one scale or one per channel of the result, and zero
    points that are 0 or can be subtracted from the constant weights. Views in between become views of the integers.
    Sums are exact: the number of terms shows that they stay within int32. Weights of products of at most 32 rows of
    floats, or of an unknown number, get scales of groups, so that they are not decoded before (`fuse`).

    Before:  lv = R.matmul(R.dequantize(x, s, z), R.dequantize(w, t, R.const(0, "int8")))
    After:   lv = R.multiply(R.astype(R.matmul(x, w, out_dtype="int32") - z * sum(w), "float32"), s * t)
    """

    name: ClassVar[str] = "integer-products"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        def change(_: str, func: relax.Function) -> relax.Function:
            return func if is_primitive(func) else _Rewriter(module, DefUse.of(func)).visit_function(func)

        return map_relax_functions(module, change)


@dataclass(frozen=True)
class _Quantized:
    """A dequantized tensor: its integers, the views applied to them, and their scales along an axis."""

    data: relax.Expr
    scale: relax.Expr
    zero: relax.Expr
    along: int = 0  # the axis of the integers along which zero points vary
    axis: int | None = None  # the axis of the views along which scales vary; None for a single scale
    views: tuple[relax.Call, ...] = ()

    @property
    def dtype(self) -> str:
        return str(self.data.struct_info.dtype)  # type: ignore[union-attr]


class _Rewriter(RelaxMutator):
    def __init__(self, module: IRModule, uses: DefUse) -> None:
        super().__init__(module)
        self.uses = uses

    def rewrite(self, expr: relax.Expr) -> relax.Expr:
        if not isinstance(expr, relax.Call) or not isinstance(expr.op, tir.Op):
            return expr
        name = expr.op.name.removeprefix("relax.")
        product = None
        if name == "matmul":
            product = self._matmul(expr) or self._product_of_encoded(expr)
        elif name in _LAYOUTS:
            product = self._convolution(expr, name)
        return expr if product is None else product

    # ------------------------------------------------------------ products

    def _matmul(self, call: relax.Call) -> relax.Expr | None:
        operands = self._operands(call)
        if operands is None:
            return None
        left, right = operands
        (m, n) = (_dims(arg) for arg in call.args)
        if m is None or n is None or len(m) < 2 or len(n) < 2 or right.axis not in (None, len(n) - 1):
            return None
        zero = _bounded_zero(left, right, tir.const_int(m[-1]))
        if zero is None:
            return None
        a, b = self._integers(left), self._integers(right)
        total: relax.Expr = self.emit_op("matmul", a, b, out_dtype="int32")
        return self._scaled(total, self._sums(b, zero, (-2,)), left.scale, right, None)

    def _product_of_encoded(self, call: relax.Call) -> relax.Expr | None:
        """Give constant weights of a product of few rows a single group of rows; groups are decoded inside products."""
        weight = self._quantized_source(call.args[1]) if decodes_weight(call) else None
        if weight is None or weight.axis not in (None, 1):
            return None
        if not isinstance(self.uses.resolve(weight.data), relax.Constant):
            return None

        def of_group(value: relax.Expr) -> relax.Expr:
            return self.emit_op("reshape", value, values.shape_expr([1, 1 if _is_single(value) else -1]))

        integers, scale, points = self._integers(weight), of_group(weight.scale), _array(self.uses.resolve(weight.zero))
        single = points is not None and (points == points.reshape(-1)[:1]).all()
        zero = _constant(int(points.reshape(-1)[0]), _dtype(weight.zero)) if single else of_group(weight.zero)
        decoded = self.emit_op("dequantize", integers, scale, zero, axis=0, out_dtype="float32")
        return self.infer(replace(call, args=(call.args[0], decoded)))

    def _convolution(self, call: relax.Call, name: str) -> relax.Expr | None:
        operands = self._operands(call)
        if operands is None:
            return None
        data, weight = operands
        kernel = _dims(call.args[1])
        default_layouts = (call.attrs["data_layout"], call.attrs["kernel_layout"]) == _LAYOUTS[name]
        keeps_layout = call.attrs["out_layout"] == call.attrs["data_layout"]
        if kernel is None or not default_layouts or not keeps_layout or weight.axis not in (None, 0):
            return None
        terms = 1
        for extent in kernel[1:]:
            terms *= tir.const_int(extent) or _INT32_BOUND
        zero = _bounded_zero(data, weight, terms)
        if zero is None:
            return None
        attrs = {**call.attrs, "out_dtype": "int32"}
        x, w = self._integers(data), self._integers(weight)
        if zero and any(attrs["padding"]):
            x = self._padded(x, attrs["padding"], zero)
            attrs["padding"] = (0,) * len(attrs["padding"])
        total: relax.Expr = self.emit_op(name, x, w, **attrs)
        spatial = len(kernel) - 2
        return self._scaled(total, self._sums(w, zero, range(1, len(kernel))), data.scale, weight, spatial)

    def _padded(self, x: relax.Expr, padding: Sequence[int], zero: int) -> relax.Expr:
        """Pad integers with the zero point; `padding` lists the amounts before all axes, then those after them."""
        spatial = len(padding) // 2
        width = [0, 0, 0, 0]
        for axis in range(spatial):
            width += [padding[axis], padding[axis + spatial]]
        return self.emit_op("nn.pad", x, pad_width=width, pad_value=float(zero))

    def _sums(self, weight: relax.Expr, zero: int, axes: Sequence[int]) -> relax.Expr | None:
        """Return the correction: the zero point of the other operand times the sums of the weights."""
        if not zero:
            return None
        widened = self.emit_op("astype", weight, dtype="int32")
        total = self.emit_op("sum", widened, axis=list(axes), keepdims=len(axes) == 1)
        return self.emit_op("multiply", total, _constant(zero, "int32"))

    def _scaled(
        self, total: relax.Expr, correction: relax.Expr | None, scale: relax.Expr, weight: _Quantized,
        spatial: int | None,
    ) -> relax.Expr:  # fmt: skip
        """Return (total - correction) * scales as floats; channels come before `spatial` axes, or last."""

        def channels(value: relax.Expr) -> relax.Expr:
            return value if not spatial else self.emit_op("reshape", value, values.shape_expr([-1, *[1] * spatial]))

        if correction is not None:
            total = self.emit_op("subtract", total, channels(correction))
        factor: relax.Expr = self.emit_op("multiply", self._number(scale), self._scales(weight))
        float_total = self.emit_op("astype", total, dtype="float32")
        return ops.bind_call("multiply", (float_total, factor if weight.axis is None else channels(factor)))

    def _number(self, value: relax.Expr) -> relax.Expr:
        return value if _dims(value) == () else self.emit_op("reshape", value, values.shape_expr([]))

    def _scales(self, weight: _Quantized) -> relax.Expr:
        return weight.scale if weight.axis is not None else self._number(weight.scale)

    # ------------------------------------------------------------ operands

    def _operands(self, call: relax.Call) -> tuple[_Quantized, _Quantized] | None:
        """Return both operands, if both are dequantized and the left one has a single scale; else None."""
        info = call.struct_info
        if not isinstance(info, relax.TensorStructInfo) or str(info.dtype) != "float32":
            return None
        left, right = (self._quantized_source(arg) for arg in call.args)
        right = None if right is None else self._without_zero_point(right)
        if left is None or right is None or left.axis is not None or right.dtype != "int8":
            return None
        return left, right

    def _quantized_source(self, expr: relax.Expr) -> _Quantized | None:
        """Return the integers that a tensor is dequantized from, looking through views; else None."""
        value = self.uses.resolve(expr)
        if is_call(value, "relax.dequantize"):
            assert isinstance(value, relax.Call)
            data, scale, zero = (self.visit(arg) for arg in value.args)
            dims = _dims(data)
            known = dims is not None and _dtype(data) in _MAX_MAGNITUDE and _dtype(scale) == "float32"
            grouped = any(len(_dims(part) or ()) > 1 and not _is_single(part) for part in (scale, zero))
            if dims is None or not known or grouped or value.attrs["out_dtype"] != "float32":
                return None
            along = value.attrs["axis"] % max(len(dims), 1)
            return _Quantized(data, scale, zero, along, None if _is_single(scale) else along)
        if not isinstance(value, relax.Call) or not _is_view(value):
            return None
        below = self._quantized_source(value.args[0])
        if below is None:
            return None
        axis = below.axis
        if axis is not None:
            if not is_call(value, "relax.permute_dims"):
                return None
            rank = len(_dims(value) or ())
            axes = value.attrs["axes"] or tuple(reversed(range(rank)))
            axis = [at % rank for at in axes].index(axis)
        return dataclasses.replace(below, axis=axis, views=(*below.views, value))

    def _integers(self, quantized: _Quantized) -> relax.Expr:
        """Emit the integers in the shape that the product takes."""
        data = quantized.data
        for view in quantized.views:
            integer_view = replace(view, args=(data, *(self.visit(arg) for arg in view.args[1:])))
            data = self.emit(self.infer(integer_view))
        return data

    def _without_zero_point(self, weight: _Quantized) -> _Quantized | None:
        """Return weights with zero point 0: unchanged, or as other int8 constants; None if that is impossible."""
        import numpy as np

        zero = _array(self.uses.resolve(weight.zero))
        if zero is None:
            return None
        if not zero.any():
            return weight
        constant = self.uses.resolve(weight.data)
        data = _array(constant)
        if data is None or weight.views and zero.size > 1:
            return None
        broadcast_shape = [-1 if axis == weight.along else 1 for axis in range(data.ndim)]
        zero_points = zero.reshape(() if zero.size == 1 else broadcast_shape)
        shifted = data.astype(np.int64) - zero_points
        if shifted.size and (shifted.min() < -128 or shifted.max() > 127):
            return None
        centred = TensorData.of(shifted.astype(np.int8), key=constant.data.key and f"{constant.data.key}.centred")  # type: ignore[attr-defined]
        info = tensor_info(_dims(constant) or (), centred.dtype)
        return dataclasses.replace(weight, data=relax.Constant(centred, info), zero=_constant(0, "int8"))


def _bounded_zero(left: _Quantized, right: _Quantized, terms: int | None) -> int | None:
    """Return the zero point of the left operand; None if it is unknown, or sums of `terms` terms might overflow."""
    zero = _array(left.zero)
    if zero is None or zero.size != 1 or terms is None:
        return None
    point = int(zero.reshape(-1)[0])
    max_left = _MAX_MAGNITUDE[left.dtype] + abs(point)
    return point if terms * max_left * _MAX_MAGNITUDE[right.dtype] < _INT32_BOUND else None


def _is_single(value: relax.Expr) -> bool:
    """Return True if a scale or zero point has a single element."""
    return all(tir.const_int(extent) == 1 for extent in _dims(value) or ())


def _is_view(call: relax.Call) -> bool:
    """Return True for a view of the call's only tensor operand: every result element is one of its elements."""
    known = ops.get(call.op.name) if isinstance(call.op, tir.Op) else None
    tensors = [a for a in call.args if not isinstance(a.struct_info, (relax.ShapeStructInfo, relax.PrimStructInfo))]
    return known is not None and known.impl.cost is Cost.VIEW and tensors == [call.args[0]]


def _array(value: relax.Expr) -> Any:
    """Return the elements of an integer constant, or None."""
    known = isinstance(value, relax.Constant) and value.data.dtype.is_int
    return value.data.array if known else None  # type: ignore[attr-defined]


def _dims(value: relax.Expr) -> tuple[tir.Expr, ...] | None:
    info = value.struct_info
    return info.dims if isinstance(info, relax.TensorStructInfo) else None


def _dtype(value: relax.Expr) -> str:
    return str(getattr(value.struct_info, "dtype", ""))


def _constant(value: int, dtype: str) -> relax.Constant:
    import numpy as np

    data = TensorData.of(np.array(value, dtype))
    return relax.Constant(data, tensor_info((), data.dtype))
