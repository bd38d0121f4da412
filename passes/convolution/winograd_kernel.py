"""Winograd convolutions as TIR functions, with the channels last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from mlcc import te
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT64
from mlcc.ops.pad import pad
from mlcc.ops.registry import FusionKind
from mlcc.passes.auto_schedule.winograd import WINOGRAD, WINOGRAD_NOTE
from mlcc.passes.convolution.winograd_transforms import Matrix, Variant
from mlcc.passes.fusion.op_pattern import ATTRIBUTE

REGISTER_ROWS = range(6, 15)  # the rows of efficient register tiles


@dataclass(frozen=True)
class ConvolutionShape:
    """The sizes of a convolution of stride 1, with the channels last.

    `data` and `result` are rows and columns of an image; `before` is the padding above and left of the data.
    """

    batch: tir.Expr
    data: tuple[int, int]
    result: tuple[int, int]
    in_channels: int
    out_channels: int
    before: tuple[int, int]

    def tiles(self, variant: Variant) -> tuple[int, int]:
        """Return the rows and columns of tiles of an image.

        Columns are rounded up, by some percent at most, to a number that register tiles divide.
        """
        (height, width), (down, across) = self.result, variant.outputs
        columns = -(-width // across)
        while columns >= min(REGISTER_ROWS) and all(columns % n for n in REGISTER_ROWS):
            columns += 1
        return -(-height // down), columns


def winograd_function(shape: ConvolutionShape, variant: Variant, note: str) -> tir.PrimFunc:
    """Return a function of data (N, H, W, C), transformed weights (rows, columns, C, O) and the result (N, Y, X, O).

    Its blocks are the padded data, their transforms tile by tile along one axis and along the other, the products for
    each place of a tile, and the transforms of the results. `note` says which variant this is, and why.
    """
    down, across = variant.down, variant.across
    batch = shape.batch if tir.const_int(shape.batch) is not None else tir.Var("n", INT64)
    channels = shape.in_channels
    (rows, columns), (down_step, across_step) = shape.tiles(variant), variant.outputs
    tiles = c.mul(batch, c.const(rows * columns, "int64"))
    both = not (down.is_identity or across.is_identity)
    x = te.placeholder((batch, *shape.data, channels), "float32", "data")
    u = te.placeholder((down.size, across.size, channels, shape.out_channels), "float32", "weight")
    padded = _padded(x, shape, (rows * down_step + down.taps - 1, columns * across_step + across.taps - 1))

    def element(tile: Any, i: Any, j: Any, ci: Any) -> Any:
        row, column = tile // columns % rows * down_step, tile % columns * across_step
        return padded(tile // (rows * columns), row + i, column + j, ci)

    def data_row(tile: Any, e: Any, j: Any, ci: Any) -> Any:
        return _selected(e, _data_values(down.data_matrix, lambda i: element(tile, i, j, ci)))

    data_rows = te.compute((tiles, down.size, across.size, channels), data_row, "data_rows") if both else element

    def data_value(e: Any, f: Any, tile: Any, ci: Any) -> Any:
        if across.is_identity:
            return data_row(tile, e, f, ci)
        return _selected(f, _data_values(across.data_matrix, lambda j: data_rows(tile, e, j, ci)))

    transformed = te.compute((down.size, across.size, tiles, channels), data_value, "data_transform")
    k = te.reduce_axis((0, channels), "k")

    def product(e: Any, f: Any, tile: Any, co: Any) -> Any:
        return te.sum(transformed(e, f, tile, k) * u(e, f, k, co), axis=k)

    notes = {WINOGRAD: (*variant.outputs, rows, columns), WINOGRAD_NOTE: note}
    product_shape = (down.size, across.size, tiles, shape.out_channels)
    products = te.compute(product_shape, product, "tile_products", attrs=notes)

    def product_at(n: Any, th: Any, tw: Any, e: Any, f: Any, co: Any) -> Any:
        return products(e, f, (n * rows + th) * columns + tw, co)

    def result_row(n: Any, th: Any, tw: Any, y: Any, f: Any, co: Any) -> Any:
        return _selected(y, _result_values(down.output_matrix, lambda e: product_at(n, th, tw, e, f, co)))

    row_shape = (batch, rows, columns, down_step, across.size, shape.out_channels)
    result_rows = te.compute(row_shape, result_row, "result_rows") if both else None

    def result_value(n: Any, y: Any, x: Any, co: Any) -> Any:
        th, tw = y // down_step, x // across_step
        if across.is_identity:
            return result_row(n, th, x, y % down_step, 0, co)
        if result_rows is None:
            values = _result_values(across.output_matrix, lambda f: product_at(n, y, tw, 0, f, co))
        else:
            values = _result_values(across.output_matrix, lambda f: result_rows(n, th, tw, y % down_step, f, co))
        return _selected(x % across_step, values)

    result = te.compute((batch, *shape.result, shape.out_channels), result_value, "conv2d_winograd")
    func = te.create_prim_func([x, u, result], "int64").without_attr("global_symbol")
    fusable: tir.PrimFunc = func.with_attr(ATTRIBUTE, int(FusionKind.OUT_EWISE_FUSABLE))
    return fusable


def _padded(x: te.Tensor, shape: ConvolutionShape, extents: tuple[int, int]) -> te.Tensor:
    """Return the data with zeros around them (or cropped), as images of some extents."""
    after = [whole - size - before for whole, size, before in zip(extents, shape.data, shape.before, strict=True)]
    if not any((*after, *shape.before)):
        return x
    return pad(x, (0, *shape.before, 0), (0, *after, 0), te.const(0, "float32"), "data_pad")


def _selected(index: Any, values: Sequence[Any]) -> Any:
    """Return the value with a number among several; the selection is decided when loops over `index` are unrolled."""
    selected = values[-1]
    for number in range(len(values) - 2, -1, -1):
        selected = te.Select(index == number, values[number], selected)
    return selected


def _data_values(matrix: Matrix, element: Callable[[int], Any]) -> list[Any]:
    """Return the rows of B^T times the elements of a tile.

    The rows of a point and its negative are the sum and the difference of an even and an odd part, which are computed
    once.
    """
    elements = [element(i) for i in range(len(matrix))]
    values = [_combination(matrix[0], elements)]
    for row in matrix[1:-1:2]:
        even = _combination([x * (i % 2 == 0) for i, x in enumerate(row)], elements)
        odd = _combination([x * (i % 2) for i, x in enumerate(row)], elements)
        values += [even + odd, even - odd]
    return [*values, _combination(matrix[-1], elements)]


def _result_values(matrix: Matrix, product: Callable[[int], Any]) -> list[Any]:
    """Return the rows of A^T times the products of a tile, by sums and differences of those of opposite points."""
    size = len(matrix[0])
    products = [product(i) for i in range(size)]
    pairs = range(1, size - 1, 2)
    sums = [products[i] + products[i + 1] for i in pairs]
    differences = [products[i] - products[i + 1] for i in pairs]
    return [
        _combination(
            [row[0], *(row[i] for i in pairs), row[-1]],
            [products[0], *(differences if power % 2 else sums), products[-1]],
        )
        for power, row in enumerate(matrix)
    ]


def _combination(factors: Sequence[Fraction | int], elements: Sequence[Any]) -> Any:
    """Return a sum of products by constants, those with positive ones first."""
    terms = sorted(((f, x) for f, x in zip(factors, elements, strict=True) if f), key=lambda term: term[0] < 0)
    total: Any = None
    for factor, x in terms:
        product = x if abs(factor) == 1 else te.const(float(abs(factor)), "float32") * x
        if total is None:
            total = product if factor > 0 else te.const(0, "float32") - product
        else:
            total = total + product if factor > 0 else total - product
    return total
