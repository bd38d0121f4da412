"""Calls of operators with seeds that the suite does not have, for as long as there is time."""

from __future__ import annotations

import itertools
import os
import random
import time

from tests.generate import long_axes, op_calls
from tests.ops.coverage import judge

SEED = int(os.environ.get("MLCC_FUZZ_SEED", "1"))


def test_random_calls_match_their_references(fuzz_seconds: float) -> None:
    rng = random.Random(SEED)
    names = sorted(op_calls.GENERATORS)
    end, judged, wrong = time.monotonic() + fuzz_seconds, 0, []
    for start in itertools.count(1000 * SEED, 8):
        calls = [op_calls.call(rng.choice(names), rng.choice(op_calls.DTYPES), start + i) for i in range(8)]
        for verdict in judge(calls):
            judged += 1
            wrong += [f"{verdict.mode} {verdict.call}: {text}" for text in verdict.wrong]
        if time.monotonic() > end:
            break
    print(f"\n{judged} calls of operators")
    assert not wrong, "\n".join(wrong)


def test_long_accumulations_match_float64(fuzz_seconds: float) -> None:
    """Operators that accumulate, with up to 10,000 terms, against float64."""
    rng = random.Random(SEED)
    end, judged, wrong = time.monotonic() + fuzz_seconds, 0, []
    for seed in itertools.count(1000 * SEED):
        drawn = long_axes.calls(rng.choice(("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")), seed)
        target = rng.choice(("llvm", "llvm{cpu=native}", "cuda{arch=sm_80}", "cuda{arch=sm_90a}"))
        wrong += long_axes.differences(rng.sample(drawn, 4), target, rng.randrange(4))
        judged += 4
        if time.monotonic() > end:
            break
    print(f"\n{judged} calls with long axes")
    assert not wrong, "\n".join(wrong)
