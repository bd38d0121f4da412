"""Index maps: the way back undoes the way there, shapes hold every image."""

from __future__ import annotations

import pytest

from mlcc.arith import index_map as maps
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.tir import Range
from mlcc.te.scalar import Scalar
from tests.arith.exprs import value
from tests.arith.iter_maps import points

BIJECTIVE = [
    (lambda i, j: (j, i), (3, 5)),
    (lambda i: (i // 4, i % 4), (16,)),
    (lambda i, j: (i * 5 + j,), (3, 5)),
    (lambda i, j: (i // 4, j // 2, i % 4, j % 2), (8, 6)),
    (lambda i, j: ((i * 6 + j) // 4, (i * 6 + j) % 4), (4, 6)),
]


@pytest.mark.parametrize(("function", "shape"), BIJECTIVE, ids=range(len(BIJECTIVE)))
def test_inverse_undoes_the_map(function: object, shape: tuple[int, ...]) -> None:
    made = maps.from_func(function, dtype="int32", wrap=Scalar)  # type: ignore[arg-type]
    ranges = [Range(c.const(0), c.const(n)) for n in shape]
    back = maps.inverse(made, ranges)
    sizes = [n.value for n in maps.map_shape(made, [c.const(n) for n in shape])]  # type: ignore[attr-defined]
    for at in points(dict(zip(made.indices, ranges, strict=True))):
        image = [value(r, at) for r in made.result]
        assert all(0 <= v < n for v, n in zip(image, sizes, strict=True))
        there = dict(zip(back.indices, image, strict=True))
        assert [value(r, there) for r in back.result] == list(at.values())


def test_inverse_reports_the_padding() -> None:
    """14 elements in blocks of 4: the last two are padding."""
    made = maps.from_func(lambda i: (i // 4, i % 4), dtype="int32", wrap=Scalar)
    back, padding = maps.non_surjective_inverse(made, [Range(c.const(0), c.const(14))])
    outer, inner = back.indices
    assert [o * 4 + i for o in range(4) for i in range(4) if value(padding, {outer: o, inner: i})] == [14, 15]
    with pytest.raises(maps.IndexMapError, match="cannot be inverted"):
        maps.inverse(made, [Range(c.const(0), c.const(14))])


def test_equivalent_maps_are_recognised() -> None:
    one = maps.from_func(lambda i, j: (i * 8 + j,), wrap=Scalar)
    assert maps.equivalent(one, maps.from_func(lambda a, b: (b + 8 * a,), wrap=Scalar))
    assert not maps.equivalent(one, maps.from_func(lambda a, b: (a + 8 * b,), wrap=Scalar))


def test_maps_are_built_from_functions() -> None:
    made, separators = maps.from_func_separated(lambda *a: (a[0], maps.AXIS_SEPARATOR, a[1]), 2, wrap=Scalar)
    assert [v.name for v in made.indices] == ["a_0", "a_1"] and separators == (1,)
    assert isinstance(made.result[0], tir.Var)
    with pytest.raises(maps.IndexMapError, match="takes 1 indices, but there are 2"):
        maps.from_func(lambda i: (i,), 2)
    with pytest.raises(maps.IndexMapError, match="integers"):
        maps.from_func(lambda i: ("x",), 1)
