"""The pass `quantize-weights`: quantize the weights of products to few bits, with a scale for each group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from mlcc import ops
from mlcc.errors import CompileError, error
from mlcc.ir import construct as c
from mlcc.ir import relax
from mlcc.ir.dtypes import DType
from mlcc.ir.module import IRModule
from mlcc.ir.narrow_floats import decode
from mlcc.ir.tensor_data import TensorData
from mlcc.ops.lazy import np
from mlcc.passes.graph.clean_up import clean_up_rewritten
from mlcc.passes.graph.relax_mutator import RelaxMutator, map_relax_functions
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.relax.construct import tensor_info
from mlcc.relax.queries import DefUse, is_call, is_primitive

MIN_ELEMENTS = 4096  # least elements of a quantized weight
CHUNK_ELEMENTS = 1 << 22  # elements quantized at a time


@dataclass(frozen=True)
class QuantizeWeights(Pass):
    """Quantize the constant weights of matrix products to 4 or 8 bits, with a scale for each group of rows.

    A weight (k, n), or the transpose of one (n, k), becomes integers (k, n), two of 4 bits in a byte, and scales (k /
    group, n); its elements are integer * scale. `group=0` makes one group of each column. With `zero_points` the
    integers are unsigned, and each group has a zero point: (integer - zero point) * scale. Products are computed in
    float32; from -O2 on the weights are decoded inside them. Lookups (`R.take`) in a table that is such a weight read
    the integers, too. Weights of fewer than 4096 elements, and those whose rows are not a multiple of `group`, stay.

    Before:  y = R.matmul(x, R.const(...))                                       # (2048, 512) float32
    After:   q = R.unpack_bits(R.const(...), axis=0, bits=4, out_dtype="int8")   # of (1024, 512) uint8
             w = R.dequantize(q, R.const(...), R.const(0, "int8"), axis=0)       # scales (64, 512) float16
             y = R.matmul(x, w)
    """

    name: ClassVar[str] = "quantize-weights"
    bits: Literal[4, 8] = 4
    group: int = 32
    scale: Literal["float16", "float32"] = "float16"
    zero_points: bool = False

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        if self.group < 0 or self.group % 2:
            raise CompileError(
                error("E0548", f"`group` is {self.group}: it must be an even number of rows, or 0 for all")
            )

        def change(_: str, func: relax.Function) -> relax.Function:
            if is_primitive(func):
                return func
            return clean_up_rewritten(_Quantizer(module, func, self).visit_function(func), func, module)

        return map_relax_functions(module, change)


@dataclass(frozen=True)
class _QuantizedWeight:
    """A quantized weight as constants: integers, scales and zero points, all with the columns last."""

    integers: relax.Constant
    scales: relax.Constant
    zeros: relax.Constant


class _Quantizer(RelaxMutator):
    def __init__(self, module: IRModule, func: relax.Function, options: QuantizeWeights) -> None:
        super().__init__(module)
        self.uses, self.options = DefUse.of(func), options
        self._cache: dict[tuple[str | int, bool], _QuantizedWeight] = {}
        self._tables = {
            _weight_key(weight[0]): weight
            for value in self.uses.value.values()
            if is_call(value, "relax.matmul") and (weight := self.weight(value.args[1])) is not None  # type: ignore[attr-defined]
        }

    def rewrite(self, expr: relax.Expr) -> relax.Expr:
        if is_call(expr, "relax.matmul"):
            weight = self.weight(expr.args[1])  # type: ignore[attr-defined]
            return expr if weight is None else self.product(expr, self.quantized(*weight))
        if is_call(expr, "relax.take"):
            return self.lookup(expr)
        return expr

    # ------------------------------------------------------------ selection of weights

    def weight(self, operand: relax.Expr) -> tuple[relax.Constant, bool] | None:
        """Return the constant right operand of a product, and True if it is transposed; None if it is not quantized."""
        value: Any = self.uses.resolve(operand)
        transposed = is_call(value, "relax.permute_dims") and value.attrs["axes"] in (None, (1, 0), (-1, -2))
        constant = self.uses.resolve(value.args[0]) if transposed else value
        if not isinstance(constant, relax.Constant) or constant.data.array is None:
            return None
        data = constant.data
        if (
            str(data.dtype) not in ("float32", "float16", "bfloat16")
            or len(data.shape) != 2
            or data.size < MIN_ELEMENTS
        ):
            return None
        depth = data.shape[1 if transposed else 0]
        return None if depth % (self.options.group or 2) else (constant, transposed)

    # ------------------------------------------------------------ rewriting

    def product(self, call: Any, coded: _QuantizedWeight) -> relax.Expr:
        """Emit the product in float32, its result in the original dtype."""
        decoded = self.dequantized(coded.integers, coded.scales, coded.zeros)
        dtype = str(call.struct_info.dtype)
        if str(call.args[0].struct_info.dtype) == dtype == "float32":
            return ops.bind_call("matmul", (call.args[0], decoded), {"out_dtype": None})
        left = self.emit_op("astype", call.args[0], dtype="float32")
        return ops.bind_call("astype", (self.emit_op("matmul", left, decoded, out_dtype=None),), {"dtype": dtype})

    def dequantized(self, integers: relax.Expr, scales: relax.Expr, zeros: relax.Expr) -> relax.Var:
        """Emit the dequantized weight (k, ...) of integers, scales and zero points, groups along the first axis."""
        if self.options.bits == 4:
            kind = str(zeros.struct_info.dtype)  # type: ignore[union-attr]
            integers = self.emit_op("unpack_bits", integers, axis=0, bits=4, out_dtype=kind)
        return self.emit_op("dequantize", integers, scales, zeros, axis=0, out_dtype="float32")

    def lookup(self, call: Any) -> relax.Expr:
        """Rewrite a lookup of rows in a table as a lookup of columns of the integers.

        The table is the transpose of a quantized weight.
        """
        table: Any = self.uses.resolve(call.args[0])
        weight = self._tables.get(_weight_key(table)) if isinstance(table, relax.Constant) else None
        if weight is None or call.attrs["axis"] not in (0, -2) or not weight[1]:
            return call  # type: ignore[no-any-return]
        coded, indices = self.quantized(*weight), call.args[1]
        columns = [
            part if part.data.shape == () else self.emit_op("take", part, indices, axis=1, mode=call.attrs["mode"])
            for part in (coded.integers, coded.scales, coded.zeros)
        ]
        rows = self.dequantized(*columns)
        ndim = rows.struct_info.ndim  # type: ignore[union-attr]
        transposed = self.emit_op("permute_dims", rows, axes=[*range(1, ndim), 0])
        return ops.bind_call("astype", (transposed,), {"dtype": str(call.struct_info.dtype)})

    def quantized(self, weight: relax.Constant, transposed: bool) -> _QuantizedWeight:
        key = (_weight_key(weight), transposed)
        if key not in self._cache:
            self._cache[key] = _quantize(weight.data, transposed, self.options)
        return self._cache[key]


def _weight_key(constant: relax.Constant) -> str | int:
    """Return a key that is equal for constants of the same weight."""
    return constant.data.sha256 or id(constant.data)


# ---------------------------------------------------------------- quantization


def _quantize(data: TensorData, transposed: bool, options: QuantizeWeights) -> _QuantizedWeight:
    """Quantize a weight, some columns at a time.

    Raise CompileError (E0548) for weights that are not finite, or too large for the scales.
    """
    array = data.array
    assert array is not None
    matrix = array.T if transposed else array
    depth, columns = matrix.shape
    group = options.group or depth
    integers = np.empty((depth * options.bits // 8, columns), "uint8")
    scales = np.empty((depth // group, columns), options.scale)
    zeros = np.zeros(scales.shape, "uint8")
    step = max(CHUNK_ELEMENTS // depth, 1)
    for at in range(0, columns, step):
        part = slice(at, at + step)
        chunk = decode(np.ascontiguousarray(matrix[:, part]), data.dtype).astype("float32")
        if not np.isfinite(chunk).all():
            raise CompileError(error("E0548", f"the weight `{data.key}` has elements that are not finite"))
        values, scales[:, part], zeros[:, part] = _quantize_groups(chunk.reshape(-1, group, chunk.shape[1]), options)
        if not np.isfinite(scales[:, part]).all():
            help = "use `scale=float32`"
            raise CompileError(
                error("E0548", f"a scale of the weight `{data.key}` is too large for float16", help=help)
            )
        values = values.reshape(depth, -1).astype("uint8")
        integers[:, part] = values if options.bits == 8 else (values[::2] & 15) | (values[1::2] << 4)
    data.release()
    kind = "uint8" if options.zero_points else "int8"
    packed = integers if options.bits == 4 or options.zero_points else integers.view("int8")
    zero = _constant(zeros, f"{data.key}.zero_point") if options.zero_points else _constant(np.zeros((), kind), "")
    return _QuantizedWeight(
        _constant(packed, f"{data.key}.int{options.bits}"), _constant(scales, f"{data.key}.scale"), zero
    )


def _quantize_groups(weights: Any, options: QuantizeWeights) -> tuple[Any, Any, Any]:
    """Quantize groups (groups, group, columns); return integers, scales and zero points.

    Integers are in two's complement, or unsigned with zero points.
    """
    low, high = (
        (np.minimum(weights.min(1), 0), np.maximum(weights.max(1), 0))
        if options.zero_points
        else (0, abs(weights).max(1))
    )
    max_value = (1 << options.bits) - 1 if options.zero_points else (1 << options.bits - 1) - 1
    with np.errstate(over="ignore"):
        scale = ((high - low) / max_value).astype(options.scale)
    divisors = scale.astype("float32")
    divisors[divisors == 0] = 1  # groups of zeros, or too small for a float16 scale
    zero = (
        np.clip(np.round(-low / divisors), 0, max_value).astype("uint8")
        if options.zero_points
        else np.zeros(scale.shape, "uint8")
    )
    rounded = np.round(weights / divisors[:, None]) + zero[:, None]
    return np.clip(rounded, 0 if options.zero_points else -max_value, max_value).astype("int32"), scale, zero


def _constant(array: Any, key: str) -> relax.Constant:
    data = TensorData(DType.of(str(array.dtype)), array.shape, array, key)
    shape = tuple(c.const(n, "int64") for n in array.shape)
    return relax.Constant(data, tensor_info(shape, data.dtype))
