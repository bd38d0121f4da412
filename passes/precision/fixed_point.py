"""The pass `fixed-point-products`: floats times weights of few bits, by dot-product instructions of bytes."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

from mlcc.backends import cpu_facts
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import INT64
from mlcc.ir.module import IRModule
from mlcc.ir.node import replace
from mlcc.ir.tensor_data import TensorData
from mlcc.machine.cpu_tables import CpuFacts
from mlcc.ops.lazy import np
from mlcc.passes.graph.clean_up import clean_up_rewritten
from mlcc.passes.graph.few_rows import decodes_weight
from mlcc.passes.graph.fold_constants import fold_call
from mlcc.passes.graph.relax_mutator import RelaxMutator, map_with_added_functions
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.passes.precision.fixed_point_kernel import WORD, FewBitProduct, fixed_point_function
from mlcc.relax.construct import call_tir, tensor_info
from mlcc.relax.module_builder import ModuleBuilder
from mlcc.relax.queries import DefUse, is_call

MAX_CHUNK = 128  # most elements of the data that share an exponent
MAX_VECTORS = 4  # most vectors of columns of a panel
MAX_PADDING = 1.05  # of the columns, by which wider panels may exceed narrower ones
MAX_POINTS = 1 << 26  # zero points of a weight
MAX_SCALE = 2.0**64  # of a weight: the sum of a chunk is less than 2**47 units
FLOAT16_MAX = 65504.0
BLOCK_BYTES = 1 << 24  # of the weights that are packed at a time


@dataclass(frozen=True)
class FixedPointProducts(Pass):
    """Multiply floats by constant weights of few bits in fixed point, where the CPU has dot products of bytes.

    The weights are dequantized, of 1, 2, 4 or 8 bits, with scales and zero points for groups of rows; the products
    have at most 32 rows, or an unknown number. Each chunk of the data, a group or a part of one, gets a power of two
    as unit; its elements become integers of 22 bits and a sign, in three signed digits of 8 bits (compare the Ozaki
    scheme: Ootomo, Ozaki and Yokota, "DGEMM on Integer Matrix Multiplication Unit", 2024). Digits are multiplied by
    weights and added up exactly; the sums of a chunk are scaled and added up in float32. The weights are repacked at
    compile time.

    An element is off by at most 2**-22 of the greatest one of its chunk, or by 2**-149 if that is more. A row with an
    infinity or NaN in it makes NaNs of all its results. Weights are left alone if integers minus zero points may exceed
    what sums in int32 hold, if scales exceed 2**64, or if decoded weights exceed the range of float16 and are clipped.

    Before:  q = R.unpack_bits(R.const(...), axis=0, bits=4)
             y = R.matmul(x, R.dequantize(q, R.const(...), R.const(8, "uint8"), axis=0))
    After:   y = R.call_tir(cls.matmul_fixed_point, (x, R.const(...), R.const(...)), ...)
    """

    name: ClassVar[str] = "fixed-point-products"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        facts = cpu_facts(ctx.target)
        if facts is None or not facts.dots & {("uint8", "int8"), ("int8", "int8")}:
            return module
        builder = ModuleBuilder(module)

        def change(_: str, func: relax.Function) -> relax.Function:
            rewriter = _Rewriter(builder, DefUse.of(func), facts)
            return clean_up_rewritten(rewriter.visit_function(func), func, builder.module)

        return map_with_added_functions(module, builder, change)


@dataclass(frozen=True)
class _Weights:
    """Decoded weights (integer - zero) * scale: `data` as they are stored, scales and zero points as (groups, columns).

    The integers are XORed with `flip` to make them unsigned; `zeros` are the zero points of the unsigned ones.
    """

    data: TensorData
    bits: int
    flip: int
    scales: Any
    zeros: Any

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.data.shape
        return rows * (8 // self.bits), columns


class _Rewriter(RelaxMutator):
    def __init__(self, builder: ModuleBuilder, uses: DefUse, facts: CpuFacts) -> None:
        super().__init__(builder.module)
        self.builder, self.uses, self.facts = builder, uses, facts
        self._functions: dict[Any, tuple[str, tir.PrimFunc]] = {}

    def rewrite(self, expr: relax.Expr) -> relax.Expr:
        if not isinstance(expr, relax.Call) or not decodes_weight(expr, multiple=1):
            return expr
        dtype = str(expr.struct_info.dtype)  # type: ignore[union-attr]
        weights = self.match_weights(self.uses.resolve(expr.args[1]), dtype)
        product = None if weights is None else self.plan_product(expr, weights)
        return expr if weights is None or product is None else self.rewrite_product(expr, weights, product)

    # ------------------------------------------------------------ matching

    def match_weights(self, value: relax.Expr, dtype: str) -> _Weights | None:
        """Return the constants that a weight is dequantized from, or None for any other value."""
        if not is_call(value, "relax.dequantize") or value.attrs["out_dtype"] != dtype:  # type: ignore[attr-defined]
            return None
        integers, scale = (self.uses.resolve(arg) for arg in value.args[:2])  # type: ignore[attr-defined]
        bits, signed_field = 8, False
        if is_call(integers, "relax.unpack_bits") and integers.attrs["axis"] in (0, -2):  # type: ignore[attr-defined]
            bits, signed_field = integers.attrs["bits"], integers.attrs["out_dtype"] == "int8"  # type: ignore[attr-defined]
            integers = self.uses.resolve(integers.args[0])  # type: ignore[attr-defined]
        if value.attrs["axis"] not in (0, -2) or not _is_known(integers) or not _is_known(scale):  # type: ignore[attr-defined]
            return None
        data: TensorData = integers.data  # type: ignore[attr-defined]
        if str(data.dtype) not in ("int8", "uint8") or len(data.shape) != 2:
            return None
        points = self.known_points(value.args[2])  # type: ignore[attr-defined]
        if points is None:
            return None
        signed = signed_field or str(data.dtype) == "int8"
        rows, columns = data.shape[0] * (8 // bits), data.shape[1]
        scales, zeros = (_by_group(part, rows, columns) for part in (scale.data.array, points))  # type: ignore[attr-defined]
        if scales is None or zeros is None or len(zeros) not in (1, len(scales)):
            return None
        half = 1 << (bits - 1) if signed else 0
        return _Weights(data, bits, half, scales, zeros.astype("int64") + half)

    def known_points(self, zero: relax.Expr) -> Any:
        """Return integer zero points as an array, also if they are unpacked or sliced; None if they are not known."""
        value = self.evaluated(zero, {})
        known = isinstance(value, relax.Constant) and value.data.array is not None and value.data.dtype.is_int
        return value.data.array if known else None  # type: ignore[union-attr]

    def evaluated(self, expr: relax.Expr, done: dict[relax.Expr, relax.Expr | None]) -> relax.Expr | None:
        """Return the value of an expression, computed if operators make it from constants; else None.

        `done` has the values of the calls that were visited before.
        """
        value = self.uses.resolve(expr)
        if not isinstance(value, relax.Call):
            return None if isinstance(value, relax.Var) else value
        if value not in done:
            done[value] = None
            args: list[relax.Expr] = []
            for arg in value.args:
                known = self.evaluated(arg, done)
                if known is None:
                    return None
                args.append(known)
            done[value] = fold_call(replace(value, args=tuple(args)), MAX_POINTS, MAX_POINTS)
        return done[value]

    def plan_product(self, call: relax.Call, weights: _Weights) -> FewBitProduct | None:
        """Plan the function that computes a product; return None if there is none, or it does not pay."""
        x, info = call.args[0].struct_info, call.struct_info
        if not all(isinstance(i, relax.TensorStructInfo) and i.dims is not None for i in (x, info)):
            return None
        depth, columns = weights.shape
        dtype = str(info.dtype)  # type: ignore[union-attr]
        if dtype not in ("float32", "float16") or str(x.dtype) != dtype or tir.const_int(x.dims[-1]) != depth:  # type: ignore[union-attr]
            return None
        group = depth // len(weights.scales)
        word = WORD * (8 // weights.bits)
        chunk = next((n for n in range(min(group, MAX_CHUNK), 0, -1) if group % n == 0 and n % word == 0), None)
        if chunk is None or columns < self.facts.lanes(4):
            return None
        unsigned = ("uint8", "int8") in self.facts.dots
        zeros = weights.zeros if unsigned or weights.bits < 8 else weights.zeros - 128
        if chunk * 128 * (int(np.abs(zeros).max()) + 255) >= 1 << 31 or not _scales_fit(weights, dtype):
            return None
        single = int(zeros.flat[0]) if (zeros == zeros.flat[0]).all() else None
        return FewBitProduct(
            lead=x.dims[:-1], depth=depth, columns=columns, bits=weights.bits, group=group, chunk=chunk,  # type: ignore[union-attr]
            panel=self._panel(columns), dtype=dtype, weight_dtype="uint8" if unsigned else "int8",
            scale_dtype=str(weights.scales.dtype), zero=single,
            zero_dtype="" if single is not None else "uint8" if 0 <= zeros.min() <= zeros.max() <= 255 else "int32",
        )  # fmt: skip

    def _panel(self, columns: int) -> int:
        """Choose the columns of a panel: several vectors, if the last panel does not become much longer by that."""
        lanes = self.facts.lanes(4)
        few_registers = self.facts.vector_registers < 32
        widths = [n * lanes for n in (MAX_VECTORS, 2, 1) if not (few_registers and n == MAX_VECTORS)]
        padded = {width: -(-columns // width) * width for width in widths}
        return next(width for width in widths if padded[width] <= MAX_PADDING * padded[widths[-1]])

    # ------------------------------------------------------------ rewriting

    def rewrite_product(self, call: relax.Call, weights: _Weights, product: FewBitProduct) -> relax.Expr:
        """Return the call of a function that computes a product in fixed point."""
        function_lead = tuple(
            n if tir.const_int(n) is not None else tir.Var(f"n{at}", INT64) for at, n in enumerate(product.lead)
        )
        key = dataclasses.replace(product, lead=()), tuple(tir.const_int(n) for n in product.lead)
        if key not in self._functions:
            function = fixed_point_function(dataclasses.replace(product, lead=function_lead))
            self._functions[key] = self.builder.add(function, "matmul_fixed_point"), function
        name, function = self._functions[key]
        arrays = [packed_weights(weights, product), packed_parameters(weights.scales, product, product.scale_dtype)]
        if product.zero is None:
            zeros = weights.zeros - (128 if weights.bits == 8 and product.weight_dtype == "int8" else 0)
            arrays.append(packed_parameters(zeros, product, product.zero_dtype))
        weights.data.release()
        made = call_tir(name, function, [call.args[0], *map(_constant, arrays)], call.struct_info)  # type: ignore[arg-type]
        return replace(made, span=call.span)


def packed_weights(weights: _Weights, product: FewBitProduct) -> Any:
    """Return the weights in panels of columns and words of rows: (panels, depth / rows of a word, panel, 4).

    Byte j of a word has row 4 * f + j of its rows in field f. Columns beyond the last one are zeros.
    """
    bits, fields, panel = product.bits, product.fields, product.panel
    source: Any = weights.data.array
    words = product.depth // product.rows_of_word
    packed = np.zeros((product.panels, words, panel, WORD), "uint8")
    step = max(BLOCK_BYTES // (product.depth * panel), 1)
    flip = weights.flip ^ (128 if bits == 8 and product.weight_dtype == "int8" else 0)
    for first in range(0, product.panels, step):
        part = np.asarray(source[:, first * panel : (first + step) * panel]).view("uint8")
        shifts = np.arange(0, 8, bits, dtype="uint8")[None, :, None]
        codes = ((part[:, None] >> shifts) & ((1 << bits) - 1)).reshape(words, fields, WORD, -1) ^ flip
        word = np.zeros((words, WORD, codes.shape[-1]), "uint8")
        for field in range(fields):
            word |= codes[:, field] << np.uint8(bits * field)
        padding = -word.shape[-1] % panel
        word = np.pad(word, ((0, 0), (0, 0), (0, padding))).reshape(words, WORD, -1, panel)
        packed[first : first + step] = word.transpose(2, 0, 3, 1)
    return packed.view(product.weight_dtype)


def packed_parameters(values: Any, product: FewBitProduct, dtype: str) -> Any:
    """Return scales or zero points, (groups, columns), in panels of columns: (panels, groups, panel)."""
    groups = product.depth // product.group
    whole = np.zeros((groups, product.panels * product.panel), dtype)
    whole[:, : product.columns] = values
    return np.ascontiguousarray(whole.reshape(groups, product.panels, product.panel).transpose(1, 0, 2))


def _scales_fit(weights: _Weights, dtype: str) -> bool:
    """Return True if no decoded weight is clipped to the range of float16, and no scaled sum of a chunk overflows."""
    points, scales = weights.zeros, np.abs(weights.scales.astype("float64"))
    if dtype == "float16":
        most = np.maximum(np.abs(points), np.abs((1 << weights.bits) - 1 - points))
        return bool((most * scales <= FLOAT16_MAX).all())
    return bool((scales <= MAX_SCALE).all())


def _by_group(array: Any, rows: int, columns: int) -> Any:
    """Return scales or zero points as (groups, columns); None if they are of another shape."""
    if array.size == 1:
        return np.broadcast_to(array.reshape(1, 1), (1, columns))
    if array.ndim == 2 and array.shape[1] == columns and rows % len(array) == 0:
        return array
    return None


def _is_known(value: relax.Expr) -> bool:
    return isinstance(value, relax.Constant) and value.data.array is not None


def _constant(array: Any) -> relax.Constant:
    data = TensorData.of(array)
    return relax.Constant(data, tensor_info((c.const(n, "int64") for n in data.shape), data.dtype))
