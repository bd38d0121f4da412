"""The transforms of Winograd's minimal filtering, F(m, r): `m` neighbouring results of a filter of `r` taps.

Results are `A^T ((G w) * (B^T d))`, with `m + r - 1` multiplications instead of `m * r`. The matrices are those of
Cook and Toom: polynomials are multiplied by their values at distinct points and at infinity (Blahut, "Fast Algorithms
for Signal Processing", chapter 5; Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from math import prod, sqrt

Matrix = tuple[tuple[Fraction, ...], ...]

# positive points, by the size of a transform; 0, their negatives and infinity belong to each
# those of size 6 halve the error of 1 and 2, see docs/measurements.md
_POINTS: dict[int, tuple[Fraction, ...]] = {4: (Fraction(1),), 6: (Fraction(3, 4), Fraction(3, 2))}
SIZES = tuple(_POINTS)


@dataclass(frozen=True)
class Transform:
    """F(outputs, taps) along one axis; F(1, 1) leaves the axis as it is."""

    outputs: int
    taps: int

    @property
    def size(self) -> int:
        """The number of data elements of a tile, and of products."""
        return self.outputs + self.taps - 1

    @property
    def is_identity(self) -> bool:
        return self.size == 1

    @property
    def data_matrix(self) -> Matrix:
        """B^T: `size` values of the data polynomial from `size` elements."""
        return _matrices(self.outputs, self.taps)[0]

    @property
    def weight_matrix(self) -> Matrix:
        """G: `size` values of the filter from `taps` weights."""
        return _matrices(self.outputs, self.taps)[1]

    @property
    def output_matrix(self) -> Matrix:
        """A^T: `outputs` results from `size` products."""
        return _matrices(self.outputs, self.taps)[2]

    @cached_property
    def worst_growth(self) -> float:
        """The largest sum of absolute products behind a result, for data of at most 1 and weights that sum to 1.

        A direct sum has 1.
        """
        data, weights, outputs = self.data_matrix, self.weight_matrix, self.output_matrix
        return float(
            max(
                sum(abs(row[e]) * abs(weights[e][tap]) * sum(map(abs, data[e])) for e in range(self.size))
                for row in outputs
                for tap in range(self.taps)
            )
        )

    @cached_property
    def expected_growth(self) -> float:
        """The mean variance of the products that add up to a result, for independent data and weights of variance 1.

        That of a direct sum is `taps`.
        """
        data, weights, outputs = self.data_matrix, self.weight_matrix, self.output_matrix
        variances = [_squares(weights[e]) * _squares(data[e]) for e in range(self.size)]
        total = sum(row[e] ** 2 * variances[e] for row in outputs for e in range(self.size))
        return float(total / self.outputs)


def _squares(row: Sequence[Fraction]) -> Fraction:
    return sum((x * x for x in row), Fraction(0))


@cache
def _matrices(outputs: int, taps: int) -> tuple[Matrix, Matrix, Matrix]:
    """Return B^T, G and A^T. Row 0 belongs to the point 0, rows 2 i - 1 and 2 i to a point and its negative, the last
    to infinity."""
    size = outputs + taps - 1
    if size == 1:
        one: Matrix = ((Fraction(1),),)
        return one, one, one
    points = [Fraction(0)]
    for point in _POINTS[size]:
        points += [point, -point]
    data = [_coefficients([q for q in points if q != p], size) for p in points]
    data.append(_coefficients(points, size))
    scales = [prod((p - q for q in points if q != p), start=Fraction(1)) for p in points]
    weights = [tuple(p**k / scale for k in range(taps)) for p, scale in zip(points, scales, strict=True)]
    weights.append((*[Fraction(0)] * (taps - 1), Fraction(1)))
    results = [(*(p**k for p in points), Fraction(k == outputs - 1)) for k in range(outputs)]
    return tuple(data), tuple(weights), tuple(results)


def _coefficients(roots: Sequence[Fraction], size: int) -> tuple[Fraction, ...]:
    """Return the `size` coefficients of the monic polynomial with these roots, that of 1 first."""
    polynomial = [Fraction(1)]
    for root in roots:
        polynomial = [
            high - root * low for high, low in zip([Fraction(0), *polynomial], [*polynomial, Fraction(0)], strict=True)
        ]
    return (*polynomial, *[Fraction(0)] * (size - len(polynomial)))


@dataclass(frozen=True)
class Variant:
    """A Winograd convolution in two dimensions: a transform for rows (down) and one for columns (across)."""

    down: Transform
    across: Transform

    @property
    def products(self) -> int:
        """The products of a tile, for each pair of channels."""
        return self.down.size * self.across.size

    @property
    def outputs(self) -> tuple[int, int]:
        """The rows and columns of results of a tile."""
        return self.down.outputs, self.across.outputs

    @property
    def taps(self) -> int:
        """The taps of the window."""
        return self.down.taps * self.across.taps

    @property
    def saving(self) -> float:
        """How many times as many products a direct convolution has."""
        return self.down.outputs * self.across.outputs * self.taps / self.products

    @property
    def relative_error(self) -> float:
        """The expected rounding error (RMS), relative to that of a direct convolution that adds in order.

        The error of n independent products of variance v, added in order, has a variance of n**2 * v / 6 (in units of
        the rounding of 1). A direct sum has `taps` times as many products as each sum of a tile.
        """
        return sqrt(self.down.expected_growth * self.across.expected_growth) / self.taps

    def error_bound(self, channels: int) -> float:
        """Return a bound of the rounding error of a result, in units of 2**-24 times the largest magnitude of the data
        times the sum of the weights' magnitudes, up to terms of second order.

        Each product passes at most `channels` additions and those of the transforms.
        """
        rounded = sum(2 * t.size for t in (self.down, self.across) if not t.is_identity) + 2
        return (channels + rounded) * self.down.worst_growth * self.across.worst_growth

    def __str__(self) -> str:
        return f"F({self.down.outputs}x{self.across.outputs}, {self.down.taps}x{self.across.taps})"


def variants(height: int, width: int) -> list[Variant]:
    """Return the variants for a window, those with fewer products per result last."""
    down, across = _transforms(height), _transforms(width)
    same_size = [Variant(d, a) for d in down for a in across if d.is_identity or a.is_identity or d.size == a.size]
    return sorted((v for v in same_size if v.products > 1), key=lambda v: v.saving)


@cache
def _transforms(taps: int) -> list[Transform]:
    if taps == 1:
        return [Transform(1, 1)]
    return [Transform(size + 1 - taps, taps) for size in SIZES if size + 1 - taps > 1]
