"""The choice of a Winograd variant for a convolution, by expected time and rounding error."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from mlcc.ir import relax, tir
from mlcc.machine.cpu_tables import CpuFacts
from mlcc.passes.auto_schedule.tiles import best_tile
from mlcc.passes.convolution.costs import USUAL_BATCH, convolution_cycles
from mlcc.passes.convolution.winograd_kernel import ConvolutionShape
from mlcc.passes.convolution.winograd_transforms import Matrix, Variant, variants

FAST_MATH_ERROR = 4.0  # times the expected rounding error of a direct convolution, with the target option `fast-math`
MAX_ERROR = 1.25  # the admitted rounding error, relative to the expected one of a direct convolution
MAX_SHARE = 0.9  # of the direct convolution's time, for a variant to be worth its larger code and weights
VECTOR_CYCLES = 0.5  # per load, addition or half a store of a vector
MEMORY_BYTES = 8  # bytes read from memory per cycle


@dataclass(frozen=True)
class Choice:
    """A variant, and its expected time relative to the direct convolution."""

    variant: Variant
    share: float
    channels: int

    def __str__(self) -> str:
        variant = self.variant
        return (
            f"{variant}: {variant.saving:.3g} times fewer products, {self.share:.2f} of the time of a direct"
            f" convolution expected; rounding error {variant.relative_error:.2f} of its expected,"
            f" at most {variant.error_bound(self.channels):.0f} * 2**-24 * max(abs(data)) * sum(abs(weights))"
        )


def choose_variant(call: relax.Call, facts: CpuFacts, max_error: float, always: bool = False) -> Choice | None:
    """Return the fastest variant for a convolution, or None if it should stay direct.

    Variants have an expected rounding error of at most `max_error` times that of a direct convolution. With `always`,
    the fastest variant is taken even if a direct convolution is expected to be faster.
    """
    shape = convolution_shape(call)
    if shape is None:
        return None
    direct = convolution_cycles(call, "C", facts)
    height, width = window(call)
    admitted = [v for v in variants(height, width) if v.relative_error <= max_error]
    choices = [Choice(v, winograd_cycles(shape, v, facts) / direct, shape.in_channels) for v in admitted]
    best = min(choices, key=lambda choice: choice.share, default=None)
    return best if best is not None and (always or best.share <= MAX_SHARE) else None


def admitted_error(max_error: float, target: Any) -> float:
    """Return the largest admitted rounding error, relative to that of a direct convolution, for a target."""
    return max(max_error, FAST_MATH_ERROR) if getattr(target, "fast_math", False) and max_error > 0 else max_error


def channels_last_cycles(call: relax.Call, facts: CpuFacts, max_error: float) -> float:
    """Estimate the cycles of a convolution with the channels last, by the pass `winograd` or direct."""
    choice = choose_variant(call, facts, max_error) if isinstance(call.args[1], relax.Constant) else None
    return convolution_cycles(call, "C", facts) * (1.0 if choice is None else choice.share)


def window(call: relax.Call) -> tuple[int, int]:
    """Return the rows and columns of the window of a convolution of known sizes."""
    info: Any = call.args[1].struct_info
    layout = call.attrs["kernel_layout"]
    return tuple(tir.const_int(info.dims[layout.index(letter)]) or 0 for letter in "HW")  # type: ignore[return-value]


def convolution_shape(call: relax.Call) -> ConvolutionShape | None:
    """Return the sizes of a convolution that Winograd's algorithm can compute; None for any other.

    That is `R.nn.conv2d` of float32, with stride and dilation 1, in one group, of known sizes but for the batch, and
    with numbers of channels that fill vectors.
    """
    attrs: Any = call.attrs
    infos: list[Any] = [*(a.struct_info for a in call.args), call.struct_info]
    layouts = [attrs[f"{name}_layout"] for name in ("data", "kernel", "out")]
    plain = all(n == 1 for n in (*attrs["strides"], *attrs["dilation"], attrs["groups"]))
    if not plain or any(sorted(x) != sorted(y) for x, y in zip(layouts, ("NCHW", "OIHW", "NCHW"), strict=True)):
        return None
    if any(not isinstance(i, relax.TensorStructInfo) or i.dims is None or str(i.dtype) != "float32" for i in infos):
        return None
    data, kernel, out = (dict(zip(layout, i.dims, strict=True)) for layout, i in zip(layouts, infos, strict=True))
    known = [tir.const_int(n) for n in (data["H"], data["W"], out["H"], out["W"], kernel["I"], kernel["O"])]
    if any(n is None or n < 1 for n in known):
        return None
    height, width, rows, columns, inputs, outputs = (n or 0 for n in known)
    if inputs % MIN_LANES or outputs % MIN_LANES or tir.const_int(data["N"]) == 0:
        return None
    top, left = attrs["padding"][:2]
    return ConvolutionShape(data["N"], (height, width), (rows, columns), inputs, outputs, (top, left))


MIN_LANES = 8  # channels are multiples of that, so that vectors are full


def winograd_cycles(shape: ConvolutionShape, variant: Variant, facts: CpuFacts) -> float:
    """Estimate the cycles of a Winograd convolution, on the scale of `convolution_cycles`.

    The estimate has the products in register tiles, the vector operations of the transforms, and what is read of
    weights beyond a direct convolution's.
    """
    lanes = facts.lanes(4)
    rows, columns = shape.tiles(variant)
    batch = tir.const_int(shape.batch) or USUAL_BATCH
    count, inputs, outputs = batch * rows * columns, shape.in_channels, shape.out_channels
    tile = best_tile(facts, count, outputs, lanes)
    products = variant.products * count * inputs * outputs / (2 * lanes * tile.efficiency(count, outputs))
    data = 3 * variant.products + _operations(variant, "data")
    results = 3 * variant.products + _operations(variant, "result") + 2 * prod(variant.outputs)
    vectors = count * (inputs * data + outputs * results) / lanes
    weight_bytes = 4 * inputs * outputs * (variant.products - variant.taps)
    return products + vectors * VECTOR_CYCLES + max(weight_bytes, 0) / MEMORY_BYTES


def _operations(variant: Variant, which: str) -> float:
    """Return the additions and multiplications of the transform of a tile, of its data or of its results."""
    down, across = variant.down, variant.across
    if which == "data":
        return across.size * _cost(down.data_matrix) + down.size * _cost(across.data_matrix)
    return across.size * _cost(down.output_matrix) + down.outputs * _cost(across.output_matrix)


def _cost(matrix: Matrix) -> float:
    """Return the operations of a product with a transform; those of opposite points share half of theirs."""
    return sum(sum(1 for x in row if x) for row in matrix) / 2 if len(matrix[0]) > 1 else 0
