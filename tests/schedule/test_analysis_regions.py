"""Regions over loops: bounds, unions, and whether producers cover consumers."""

from __future__ import annotations

import itertools
import random

import pytest

import mlcc
from mlcc.arith.intset import Interval
from mlcc.arith.region_bound import lower_bound, union_lower_bound, union_upper_bound, upper_bound
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT32
from mlcc.ir.visit import substitute
from mlcc.passes.schedule.analysis.region_cover import (
    common_ancestor,
    is_stage_pipeline,
    region_cover,
    region_cover_violation,
)
from mlcc.passes.schedule.tree import Tree
from tests.schedule.tools import CHAIN

X, Y = tir.Var("x", INT32), tir.Var("y", INT32)


def span(low: tir.Expr | int, extent: tir.Expr | int = 1) -> tir.Range:
    return tir.Range(c.as_expr(low), c.as_expr(extent))


def bounds_text(box: list[Interval] | None) -> list[tuple[str, str]] | None:
    return None if box is None else [(str(i.low), str(i.high)) for i in box]


DOMAIN = {X: span(0, 8), Y: span(0, 4)}


@pytest.mark.parametrize(
    ("low", "extent", "found"),
    [
        (X, 1, ("0", "7")),
        (c.add(X, 3), 1, ("3", "10")),
        (c.add(c.mul(X, 4), Y), 1, ("0", "31")),
        (c.mul(X, 4), 4, ("0", "31")),
        (c.mul(X, 4), 5, ("0", "32")),
        (c.mul(X, 4), 3, None),
        (c.sub(9, X), 1, ("2", "9")),
        (c.floordiv(X, 2), 1, ("0", "3")),
        (c.mul(X, Y), 1, None),
        (c.as_expr(5), 2, ("5", "6")),
    ],
)
def test_lower_bounds_of_regions_are_exact(low: tir.Expr, extent: int, found: tuple[str, str] | None) -> None:
    assert bounds_text(lower_bound([span(low, extent)], DOMAIN)) == (None if found is None else [found])


def test_an_extent_that_runs_has_only_an_upper_bound() -> None:
    region = [span(X, c.add(Y, 1))]
    assert lower_bound(region, DOMAIN) is None
    with_constant = [span(c.mul(X, Y), 2)]
    assert lower_bound(with_constant, DOMAIN) is None
    assert bounds_text(upper_bound([*with_constant, span(X)], {Y: span(0, 4)}))[1] == ("x", "x")  # type: ignore[index]


def test_a_predicate_narrows() -> None:
    where = c.less(c.add(c.mul(X, 4), Y), 30)
    assert bounds_text(lower_bound([span(c.add(c.mul(X, 4), Y))], DOMAIN, where)) == [("0", "29")]


def interval(low: int, high: int) -> Interval:
    return Interval(c.as_expr(low), c.as_expr(high))


def test_unions_of_regions_are_exact() -> None:
    near, far = [interval(0, 3)], [interval(4, 7)]
    assert bounds_text(union_lower_bound([near, far])) == [("0", "7")]
    assert bounds_text(union_lower_bound([far, near])) == [("0", "7")]
    assert bounds_text(union_lower_bound([near, [interval(5, 7)]])) == [("0", "3")]
    assert bounds_text(union_upper_bound([near, [interval(5, 7)]])) == [("0", "7")]


def points(low: tir.Expr, extent: int, where: tir.Expr) -> set[int]:
    """What the iterations touch, one by one."""
    made: set[int] = set()
    for x, y in itertools.product(range(8), range(4)):
        values = {X: c.as_expr(x), Y: c.as_expr(y)}
        if mlcc_int(substitute(where, values)):
            first = mlcc_int(substitute(low, values))
            made |= set(range(first, first + extent))
    return made


def mlcc_int(expr: tir.Expr) -> int:
    from mlcc.arith.analyzer import simplify

    made = simplify(expr)
    assert isinstance(made, tir.IntImm)
    return made.value


def random_index(rng: random.Random, depth: int = 2) -> tir.Expr:
    if depth == 0:
        return rng.choice([X, Y, c.as_expr(rng.randrange(5))])
    a, n = random_index(rng, depth - 1), rng.choice([1, 2, 3, 4, 8])
    match rng.randrange(6):
        case 0:
            return c.add(c.mul(a, n), random_index(rng, depth - 1))
        case 1:
            return c.floordiv(a, n)
        case 2:
            return c.floormod(a, n)
        case 3:
            return c.sub(n, a)
        case _:
            return c.add(a, random_index(rng, depth - 1))


@pytest.mark.parametrize("seed", range(60))
def test_bounds_hold_for_random_indices(seed: int) -> None:
    rng = random.Random(seed)
    low, extent = random_index(rng), rng.choice([1, 1, 2, 4])
    where = rng.choice([c.const(True), c.less(random_index(rng, 1), rng.randrange(1, 9))])
    touched = points(low, extent, where)
    inner, (outer,) = lower_bound([span(low, extent)], DOMAIN, where), upper_bound([span(low, extent)], DOMAIN, where)
    if inner is not None and not inner[0].empty:
        assert set(range(mlcc_int(inner[0].low), mlcc_int(inner[0].high) + 1)) <= touched  # type: ignore[arg-type]
    if touched and outer.low is not None and outer.high is not None:
        assert mlcc_int(outer.low) <= min(touched) and max(touched) <= mlcc_int(outer.high)


# ---------------------------------------------------------------- producers and consumers


def stages(first: str, second: str) -> Tree:
    """`X` writes C over the loops x < 8, y < 4 inside t < 4, then `Y` reads it there."""
    text = f"""
@T.prim_func
def main(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    C = T.alloc_buffer((64,))
    for t in range(4):
        for x, y in T.grid(8, 4):
            with T.block("X"):
                v = T.axis.spatial(64, {first})
                C[v] = A[v]
        for x, y in T.grid(8, 4):
            with T.block("Y"):
                v = T.axis.spatial(64, {second})
                B[v] = C[v]
"""
    func = mlcc.parse(text)["main"]
    assert isinstance(func, tir.PrimFunc)
    return Tree(func)


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ("x * 4 + y", "x * 4 + y", None),
        ("x * 4 + y", "y * 8 + x", None),
        ("t * 16 + x * 2 + y // 2", "t * 16 + x", None),
        ("t * 16 + x", "t * 16 + x + 1", "`Y` reads `C[t * 16 + 1:t * 16 + 9]` in one iteration of `t`, of which `X` "
         "writes `C[t * 16:t * 16 + 8]`"),
        ("x * 2", "x * 2", "`Y` reads `C[0:15]` in one iteration of `t`, of which `X` may not write all elements"),
    ],
)  # fmt: skip
def test_what_is_read_must_have_been_written(first: str, second: str, words: str | None) -> None:
    tree = stages(first, second)
    x, y = (b for name in "XY" for b in tree.blocks_named(name))
    found = region_cover_violation(tree, y)
    assert (None if found is None else found[0]) == words
    assert region_cover(tree, y) == (words is None) and region_cover(tree, x)
    assert tree.root is not None and is_stage_pipeline(tree, tree.root) == (words is None)
    if found is not None:
        assert found[1] == (x, y)


def test_blocks_meet_at_the_innermost_loop_around_both() -> None:
    tree = stages("x", "x")
    x, y = (b for name in "XY" for b in tree.blocks_named(name))
    assert common_ancestor(tree, x, y) is tree.loops[0]
    assert common_ancestor(tree, x, x) is tree.loops_above(x)[-1]


def test_what_is_taken_over_from_before_a_step_is_what_is_found_anew() -> None:
    sch = mlcc.Schedule(mlcc.parse(CHAIN))
    steps = [
        lambda: sch.fuse(*sch.get_loops("B")),
        lambda: sch.cache_read("B", 0, "shared"),
        lambda: sch.compute_at("C", sch.get_loops("D")[0]),
        lambda: sch.split(sch.get_loops("D")[1], [None, 5]),
        lambda: sch.compute_at("A_shared", sch.get_loops("B")[0]),
        lambda: sch.annotate(sch.get_loops("D")[0], "k", 1),
        lambda: sch.bind(sch.get_loops("D")[0], "threadIdx.x"),
    ]
    for step in steps:
        step()
        known, fresh = sch.state.tree("main"), Tree(sch.mod["main"])
        for realize in known.realizes:
            found = region_cover_violation(known, realize.block)
            assert found == region_cover_violation(fresh, realize.block)


RADIX = """
@T.prim_func
def main(a: T.handle, c: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, 3, 4))
    C = T.match_buffer(c, (n * 12,))
    B = T.alloc_buffer((n * 12,))
    for i, j, k in T.grid(n, {inner}):
        with T.block("B"):
            vi, vj, vk = T.axis.remap("SSS", [i, j, k])
            B[{index}] = A[vi, vj, vk]
    for i in range(n * 12):
        with T.block("C"):
            vi = T.axis.remap("S", [i])
            C[vi] = B[vi]
"""


@pytest.mark.parametrize(
    ("index", "inner", "covered"),
    [
        ("vi * 12 + vj * 4 + vk", "T.int64(3), T.int64(4)", True),
        ("vk + vj * 4 + vi * 12", "T.int64(3), T.int64(4)", True),
        ("vi * 12 + vj * 4 + vk", "T.int64(3), T.int64(3)", False),  # gaps between the steps of j
        ("vi * 12 + vj * 4 + vk", "T.int64(2), T.int64(4)", False),  # gaps between the steps of i
        ("vi * 12 + vj * 4", "T.int64(3), T.int64(4)", False),
        ("vi * 12 + vj * 4 + vj", "T.int64(3), T.int64(4)", False),
    ],
)
def test_a_producer_over_symbolic_loops_covers_what_its_mixed_radix_reaches(
    index: str, inner: str, covered: bool
) -> None:
    module = mlcc.parse(RADIX.format(index=index, inner=inner))
    tree = Tree(module["main"])
    assert (region_cover_violation(tree, tree.blocks_named("C")[0]) is None) is covered
