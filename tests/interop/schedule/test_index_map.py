"""Index maps do what TVM's do: images of indices and shapes, inverses and padding."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from typing import Any

import pytest

tvm = pytest.importorskip("tvm")

from mlcc.arith import index_map as maps  # noqa: E402
from mlcc.arith.region_bound import strict_bound, upper_bound  # noqa: E402
from mlcc.ir import construct as c  # noqa: E402
from mlcc.ir import tir  # noqa: E402
from mlcc.te.scalar import Scalar  # noqa: E402
from tests.interop.schedule.iter_cases import Case, digits, plain, scheduled, spelled  # noqa: E402

MAPS: list[tuple[Callable[..., Any], tuple[int, ...]]] = [
    (lambda i: (i,), (16,)),
    (lambda i: [i // 4, i % 4], (16,)),
    (lambda i: [i // 4, i % 4], (14,)),
    (lambda i, j: (j, i), (3, 5)),
    (lambda i, j: (i * 5 + j,), (3, 5)),
    (lambda i, j: (i // 4, j // 4, i % 4, j % 4), (16, 8)),
    (lambda i, j: (i // 4, j // 4, i % 4, j % 4), (15, 9)),
    (lambda i, j: (i // 16, j // 16, i % 16 % 8 * 2 + j % 16 // 8, i % 16 // 8, j % 8), (32, 64)),
    (lambda i, j: (i, j // 32, j % 32), (8, 64)),
    (lambda n, h, w, k: (n, h, w, k // 4, k % 4), (1, 8, 8, 16)),
    (lambda n, h, w, k: (n * 64 + h * 8 + w, k), (1, 8, 8, 16)),
    (lambda i: (i + 1,), (8,)),
    (lambda i: ((i + 2) // 4, (i + 2) % 4), (14,)),
    (lambda i, j: (i + j,), (4, 4)),
    (lambda i, j: (0, i * 4 + j), (4, 4)),
    (lambda i: (i * 2,), (8,)),
    (lambda i: (7 - i,), (8,)),
    (lambda *a: (a[1], a[0]), (8, 4)),
]  # fmt: skip


def both(function: Callable[..., Any], ndim: int) -> tuple[tir.IndexMap, Any]:
    def theirs(*args: Any) -> Any:
        return [tvm.tirx.const(v, "int32") if isinstance(v, int) else v for v in function(*args)]

    theirs.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    mine = maps.from_func(function, ndim, dtype="int32", wrap=Scalar)
    return mine, tvm.tirx.IndexMap.from_func(theirs, ndim, index_dtype="int32")


def text(index_map: Any) -> str:
    mine = isinstance(index_map, tir.IndexMap)
    parameters = index_map.indices if mine else index_map.initial_indices
    results = index_map.result if mine else index_map.final_indices
    return f"{[p.name for p in parameters]}: {[spelled(r) for r in results]}"


@pytest.mark.parametrize(("function", "shape"), MAPS, ids=range(len(MAPS)))
def test_images_and_shapes_agree(function: Callable[..., Any], shape: tuple[int, ...]) -> None:
    mine, theirs = both(function, len(shape))
    assert text(mine) == text(theirs)
    my_shape, their_shape = [c.const(n) for n in shape], [tvm.tirx.const(n, "int32") for n in shape]
    named = [tir.Var(f"v{k}", my_shape[0].dtype) for k in range(len(shape))]
    image = maps.map_indices(mine, named)
    assert [*map(spelled, image)] == [*map(spelled, theirs.map_indices([tvm.tirx.Var(v.name, "int32") for v in named]))]
    try:
        expected = [*map(spelled, theirs.map_shape(their_shape))]
    except tvm.error.InternalError:  # TVM takes no map that counts backwards; these are their own way back
        try:
            made = maps.map_shape(mine, my_shape)
        except maps.IndexMapError as exc:
            assert "not at 0" in str(exc)
        else:
            assert [spelled(n) for n in made] == [str(n) for n in shape]
    else:
        assert [*map(spelled, maps.map_shape(mine, my_shape))] == expected


@pytest.mark.parametrize(("function", "shape"), MAPS, ids=range(len(MAPS)))
def test_inverses_agree(function: Callable[..., Any], shape: tuple[int, ...]) -> None:
    mine, theirs = both(function, len(shape))
    my_ranges = [tir.Range(c.const(0), c.const(n)) for n in shape]
    their_ranges = [tvm.ir.Range(0, n) for n in shape]
    try:
        expected = text(theirs.inverse(their_ranges))
    except tvm.error.InternalError:
        with pytest.raises(maps.IndexMapError):
            maps.inverse(mine, my_ranges)
    else:
        assert text(maps.inverse(mine, my_ranges)) == expected
    try:
        back, padding = theirs.non_surjective_inverse(their_ranges)
    except tvm.error.InternalError:
        with pytest.raises(maps.IndexMapError):
            maps.non_surjective_inverse(mine, my_ranges)
        return
    my_back, my_padding = maps.non_surjective_inverse(mine, my_ranges)
    assert (text(my_back), spelled(my_padding)) == (text(back), spelled(padding))


def test_symbolic_shapes_agree() -> None:
    mine, theirs = both(lambda i, j: (i // 4, j, i % 4), 2)
    n, m = tvm.tirx.Var("n", "int32"), tvm.tirx.Var("m", "int32")
    my_n, my_m = tir.Var("n", c.const(0).dtype), tir.Var("m", c.const(0).dtype)
    assert [*map(spelled, maps.map_shape(mine, [c.mul(my_n, 4), my_m]))] == [
        *map(spelled, theirs.map_shape([n * 4, m]))
    ]


def interval(found: Any) -> str:
    mine = hasattr(found, "low")
    low, high = (found.low, found.high) if mine else (found.min_value, found.max_value)
    return "open" if low is None or "Inf" in str(low) else f"{spelled(low)}..{spelled(high)}"


def touched(case: Case, extents: list[int]) -> list[str]:
    """The least and the greatest index in each dimension, by running the loops."""
    found: list[set[int]] = [set() for _ in extents]
    for values in itertools.product(*(range(start, start + size) for start, size in case.loops.values())):
        at = dict(zip(case.loops, values, strict=True))
        if case.predicate is True or plain(case.predicate, at):
            for seen, binding, extent in zip(found, case.bindings, extents, strict=True):
                first = plain(binding, at)
                seen.update((first, first + extent - 1))
    return [f"{min(seen)}..{max(seen)}" if seen else "" for seen in found]


@pytest.mark.parametrize("cases", [scheduled, digits])
def test_bounds_of_regions_agree(cases: Callable[[int], Case], all_cases: bool) -> None:
    count, different = 3000 if all_cases else 200, []
    for seed in range(count):
        case = cases(seed)
        extents = [(seed + k) % 3 + 1 for k in range(len(case.bindings))]
        mine = [tir.Range(case.mine(b), c.const(e)) for b, e in zip(case.bindings, extents, strict=True)]
        theirs = [tvm.ir.Range.from_min_extent(case.theirs(b), e) for b, e in zip(case.bindings, extents, strict=True)]
        for my_estimate, their_estimate in (
            (strict_bound, tvm.sym.estimate_region_strict_bound),
            (upper_bound, tvm.sym.estimate_region_upper_bound),
        ):
            one: Any = my_estimate(mine, case.my_iters, case.mine(case.predicate))
            try:
                two = their_estimate(theirs, case.their_iters, case.theirs(case.predicate))
            except tvm.error.InternalError:
                continue
            text_one = None if one is None else [interval(i) for i in one]
            text_two = None if two is None else [interval(i) for i in two]
            if text_one != text_two and not (cases is digits and text_two != touched(case, extents)):
                different.append(f"{seed} {case} {extents}\n  {text_one}\n  {text_two}")
    assert len(different) <= count * 0.02, f"{len(different)}\n" + "\n".join(different)
