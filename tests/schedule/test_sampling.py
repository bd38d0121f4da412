"""Sampling: decisions that are legal, repeatable and replaceable."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlcc
from mlcc.passes.schedule.primitives.sampling import _factorize, _tile
from mlcc.passes.schedule.random import Engine
from tests.schedule.tools import MATMUL, refused, schedule


@given(st.integers(1, 2**31 - 1))
def test_prime_factors_multiply_to_the_number(number: int) -> None:
    assert math.prod(p**n for p, n in _factorize(number)) == number


@given(st.integers(1, 5000), st.integers(1, 6), st.integers(1, 2**31 - 2))
def test_a_tile_multiplies_to_the_extent(extent: int, n: int, seed: int) -> None:
    made = _tile(Engine(seed), extent, n)
    assert len(made) == n and math.prod(made) == extent and min(made) >= 1


def test_every_tile_of_a_small_loop_is_drawn() -> None:
    random = Engine(7)
    seen = {tuple(_tile(random, 12, 3)) for _ in range(2000)}
    want = {(a, b, c) for a in range(1, 13) for b in range(1, 13) for c in range(1, 13) if a * b * c == 12}
    assert seen == want


def test_perfect_tiles_obey_the_limit_and_repeat_with_the_seed() -> None:
    def decide(seed: int) -> list[int]:
        sch = schedule(MATMUL, seed)
        return [sch.get(v) for v in sch.sample_perfect_tile(sch.get_loops("C")[0], n=3, max_innermost_factor=4)]

    for seed in range(1, 30):
        made = decide(seed)
        assert math.prod(made) == 32 and made[-1] <= 4
        assert made == decide(seed)
    assert len({tuple(decide(seed)) for seed in range(1, 30)}) > 5


def test_a_rare_partition_is_found_at_once() -> None:
    text = MATMUL.replace("32,", f"{2**20},")
    sch = schedule(text)
    made = sch.sample_partitioned_tile(sch.get_loops("C")[0], n=10, partition_pos=9, innerpart_factor=2**20)
    assert [sch.get(v) for v in made] == [1] * 9 + [2**20]


def test_partitioned_tiles_are_legal() -> None:
    for seed in range(1, 20):
        sch = schedule(MATMUL, seed)
        made = [sch.get(v) for v in sch.sample_partitioned_tile(sch.get_loops("C")[0], 4, 2, 8)]
        assert math.prod(made) == 32 and math.prod(made[2:]) % 8 == 0
    i = sch.get_loops("C")[0]
    assert [sch.get(v) for v in sch.sample_partitioned_tile(i, 3, 1, 5)] == [-1, 1, 1]


@pytest.mark.parametrize(
    ("decision", "words"), [([10, 8], r"10 \* 8 = 80.*32"), ([32], "1 factor, not 2"), ([0, 32], "does not tile")]
)
def test_decisions_that_do_not_tile(decision: list[int], words: str) -> None:
    sch = schedule(MATMUL)
    with refused("E0695", words):
        sch.sample_perfect_tile(sch.get_loops("C")[0], n=2, decision=decision)


def test_categories_follow_their_probabilities() -> None:
    seen = [0, 0, 0]
    sch = schedule(MATMUL)
    for _ in range(600):
        seen[[5, 6, 7].index(sch.get(sch.sample_categorical([5, 6, 7], [0.0, 1.0, 3.0])))] += 1
    assert seen[0] == 0 and 80 < seen[1] < 220
    with refused("E0695"):
        sch.sample_categorical([5, 6], [1, 1], decision=2)
    with refused("E0696"):
        sch.sample_categorical([5, 6], [1])
    with refused("E0696"):
        sch.sample_categorical([5, 6], [0.0, 0.0])


def test_values_stay_symbolic_and_can_be_decided_anew() -> None:
    sch = schedule(MATMUL)
    i = sch.get_loops("C")[0]
    a, b = sch.sample_perfect_tile(i, n=2, decision=[8, 4])
    assert sch.get(a * b + 1) == 33 and sch.get((a - b) // 2) == 2
    inst = sch.trace.insts[-1]
    again = schedule(MATMUL)
    sch.trace.with_decision(inst, [16, 2]).apply_to_schedule(again)
    assert again.trace.insts[-1].decision == [16, 2]
    with pytest.raises(ValueError):
        sch.trace.with_decision(sch.trace.insts[0], [1])
    with refused("E0613", "division by zero"):
        sch.sample_perfect_tile(i, n=2, decision=[a // (b - b), b])


def test_a_symbolic_loop_is_not_tiled() -> None:
    text = """
@T.prim_func
def main(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,))
    B = T.match_buffer(b, (n,))
    for i in range(n):
        with T.block("B"):
            vi = T.axis.spatial(n, i)
            B[vi] = A[vi] + T.float32(1)
"""
    sch = mlcc.Schedule(mlcc.parse(text))
    assert [sch.get(v) for v in sch.sample_perfect_tile(sch.get_loops("B")[0], n=3)] == [-1, 1, 1]


def test_arithmetic_without_end() -> None:
    sch = schedule(MATMUL)
    value, _ = sch.sample_perfect_tile(sch.get_loops("C")[0], n=2)
    with pytest.raises(ValueError, match="more than 600 operations"):
        for _ in range(40):
            value = value + value
    value, _ = sch.sample_perfect_tile(sch.get_loops("C")[0], n=2, decision=[8, 4])
    for _ in range(590):
        value = value + 1
    assert sch.get(value) == 598
    sch.annotate(sch.get_loops("C")[0], "n", value)
    assert " + 1" in str(sch.trace)
    assert value.size == 591
