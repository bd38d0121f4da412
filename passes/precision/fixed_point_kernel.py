"""Products of floats with weights of few bits as a TIR function: data in fixed point, exact sums of integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlcc import te
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.calls import reinterpret
from mlcc.ops.registry import FusionKind
from mlcc.passes.auto_schedule.fixed_point import FIXED_POINT
from mlcc.passes.fusion.op_pattern import ATTRIBUTE

DIGITS = 3  # bytes of a number in fixed point
WORD = 4  # bytes of neighbouring rows that one instruction multiplies and adds up
_FRACTION = 21  # a unit is 2**-21 of the power of two at or below the greatest number of a chunk: 22 bits and a sign
_LIFT = 64  # small data are multiplied by 2**64 before they are divided by units, which are divided by it at last
_MANTISSA = 23  # bits of float32
_BIAS = 127  # of its exponents
_INFINITY = 0x7F800000  # its exponent bits, which are also those of NaN
_HALVES = 0x8080  # half of the place above each digit, so that digits are from -128 to 127


@dataclass(frozen=True)
class FewBitProduct:
    """The sizes and dtypes of a product of (..., depth) by (depth, columns).

    Weights of `bits` bits, which `weight_dtype` holds, are packed into panels of columns (panels, depth / rows of a
    word, panel, 4): a word has 4 rows for each of its fields. `group` rows of a column share a scale and a zero point,
    which is one number for all if it is not None; `chunk` elements of the data share an exponent.
    """

    lead: tuple[tir.Expr, ...]
    depth: int
    columns: int
    bits: int
    group: int
    chunk: int
    panel: int
    dtype: str
    weight_dtype: str
    scale_dtype: str
    zero: int | None
    zero_dtype: str = ""

    @property
    def fields(self) -> int:
        """The weights in a byte."""
        return 8 // self.bits

    @property
    def rows_of_word(self) -> int:
        return WORD * self.fields

    @property
    def panels(self) -> int:
        return -(-self.columns // self.panel)


def fixed_point_function(product: FewBitProduct) -> tir.PrimFunc:
    """Return a function of data (..., K), packed weights, scales (panels, groups, panel), perhaps zero points of the
    same shape, and the result (..., N).

    Its blocks: the greatest magnitude of each chunk of the data, as the bits of a float; the unit of a chunk, a power
    of two, or NaN where the data are not finite; the data in units; their three signed digits of 8 bits, and the sums
    of these; sums of products of digits and weights; and the products, which add up the chunks in float32.
    """
    p, lead = product, product.lead
    chunks, words = p.depth // p.chunk, p.chunk // p.rows_of_word
    x = te.placeholder(_shape(*lead, p.depth), p.dtype, "data")
    weight = te.placeholder(_shape(p.panels, p.depth // p.rows_of_word, p.panel, WORD), p.weight_dtype, "weight")
    parameters = _shape(p.panels, p.depth // p.group, p.panel)
    scale = te.placeholder(parameters, p.scale_dtype, "scale")
    zero = te.placeholder(parameters, p.zero_dtype, "zero") if p.zero is None else None

    def real(*i: Any) -> Any:
        return x(*i).astype("float32")

    def bits_of_magnitude(*i: Any) -> Any:
        return te.Scalar(reinterpret("int32", real(*i).expr)) & 0x7FFFFFFF

    k = _reduce_axis(p.chunk, "k")
    greatest = te.compute(
        _shape(*lead, chunks), lambda *i: te.max(bits_of_magnitude(*i[:-1], i[-1] * p.chunk + k), axis=k), "greatest"
    )

    def if_small(i: Any, small: Any, otherwise: Any) -> Any:  # data whose unit may be less than a normal number
        return te.Select(greatest(*i) < (_FRACTION + 1) << _MANTISSA, small, otherwise)

    def bits_of_unit(*i: Any) -> Any:  # of a small chunk: of the unit times 2**_LIFT
        below, lift = (te.const(n << _MANTISSA, "int32") for n in (_FRACTION, _LIFT))
        return (greatest(*i) & _INFINITY) - below + if_small(i, lift, te.const(0, "int32"))

    def unit_of(*i: Any) -> Any:
        power = te.Scalar(reinterpret("float32", bits_of_unit(*i).expr))
        factor = if_small(i, te.const(2.0**-_LIFT, "float32"), te.const(1.0, "float32"))
        return te.Select(greatest(*i) < _INFINITY, power * factor, te.const(float("nan"), "float32"))

    unit = te.compute(_shape(*lead, chunks), unit_of, "unit")

    def units_of(*i: Any) -> Any:
        of_chunk = (*i[:-1], i[-1] // p.chunk)
        reciprocal = (2 * _BIAS << _MANTISSA) - bits_of_unit(*of_chunk)
        lifted = real(*i) * if_small(of_chunk, te.const(2.0**_LIFT, "float32"), te.const(1.0, "float32"))
        return te.round(lifted * te.Scalar(reinterpret("float32", reciprocal.expr))).astype("int32")

    in_units = te.compute(_shape(*lead, p.depth), units_of, "in_units")

    def digit(*i: Any) -> Any:
        *outer, place, row = i
        below = (place * 8).astype("int32")
        halves = te.const(_HALVES, "int32") >> (16 - below)
        return ((in_units(*outer, row) + halves) >> below).astype("int8")

    digits = te.compute(_shape(*lead, DIGITS, p.depth), digit, "digits")
    moved = None if p.zero == 0 else _digit_sums(p, digits)
    q, f, j = (_reduce_axis(n, name) for n, name in ((words, "q"), (p.fields, "f"), (WORD, "j")))

    def word_product(*i: Any) -> Any:
        *outer, panel, chunk, place, column = i
        word = chunk * words + q
        byte = weight(panel, word, column, j)
        if p.fields > 1:
            byte = (byte >> (f * p.bits).astype(p.weight_dtype)) & ((1 << p.bits) - 1)
        row = (word * p.fields + f) * WORD + j
        return te.sum(byte.astype("int32") * digits(*outer, place, row).astype("int32"), axis=[q, f, j])

    sums_shape = _shape(*lead, p.panels, chunks, DIGITS, p.panel)
    sums = te.compute(sums_shape, word_product, "chunk_sums", attrs={FIXED_POINT: p.panel})
    chunk = _reduce_axis(chunks, "c")

    def scaled(*i: Any) -> Any:
        *outer, panel, column = i
        group = chunk * p.chunk // p.group if p.group != p.chunk else chunk

        def moved_sum(place: int) -> Any:
            total = sums(*outer, panel, chunk, place, column)
            if moved is None:
                return total.astype("float32")
            point = p.zero if zero is None else zero(panel, group, column).astype("int32")
            return (total - moved(*outer, place, chunk) * point).astype("float32")

        value = moved_sum(DIGITS - 1)
        for place in range(DIGITS - 2, -1, -1):
            value = value * te.const(256.0, "float32") + moved_sum(place)
        return te.sum(value * scale(panel, group, column).astype("float32") * unit(*outer, chunk), axis=chunk)

    products = te.compute(_shape(*lead, p.panels, p.panel), scaled, "panel_products")
    result = te.compute(
        _shape(*lead, p.columns),
        lambda *i: products(*i[:-1], i[-1] // p.panel, i[-1] % p.panel).astype(p.dtype),
        "fixed_point_product",
    )
    arguments: Sequence[Any] = [x, weight, scale, *([] if zero is None else [zero]), result]
    func = te.create_prim_func(arguments, "int64").without_attr("global_symbol")
    fusable: tir.PrimFunc = func.with_attr(ATTRIBUTE, int(FusionKind.OUT_EWISE_FUSABLE))
    return fusable


def _digit_sums(p: FewBitProduct, digits: Any) -> Any:
    """Return the sums of the digits of each chunk, which zero points multiply."""
    k = _reduce_axis(p.chunk, "k")

    def total(*i: Any) -> Any:
        return te.sum(digits(*i[:-1], i[-1] * p.chunk + k).astype("int32"), axis=k)

    return te.compute(_shape(*p.lead, DIGITS, p.depth // p.chunk), total, "digit_sums")


def _shape(*extents: Any) -> tuple[tir.Expr, ...]:
    return tuple(c.const(n, "int64") if isinstance(n, int) else n for n in extents)


def _reduce_axis(extent: int, name: str) -> Any:
    return te.reduce_axis((c.const(0, "int64"), c.const(extent, "int64")), name)
