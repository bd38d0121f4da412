"""The workspace: no two temporaries that are in use together overlap, and it is hardly larger than what is in use."""

from __future__ import annotations

import random

from mlcc.ir import tir
from mlcc.ir.dtypes import INT64
from mlcc.targets.plan.memory import pack_fixed
from mlcc.targets.plan.steps import Memory, MemoryKind


def drawn(seed: int, chain: bool) -> list[Memory]:
    """Temporaries as graphs have them: each in use from its step to one a few later; a chain's to the next."""
    source = random.Random(seed)
    made = []
    for step in range(60):
        memory = Memory(MemoryKind.TEMPORARY, tir.IntImm(INT64, 64 * source.choice((1, 3, 16, 64, 100, 256))))
        memory.first, memory.last = step, step + (1 if chain else source.choice((1, 1, 1, 2, 5, 20)))
        made.append(memory)
    return made


def peak(memories: list[Memory]) -> int:
    return max(sum(m.size.value for m in memories if m.first <= at <= m.last) for at in range(100))  # type: ignore[union-attr]


def test_temporaries_in_use_together_lie_apart() -> None:
    for seed in range(40):
        memories = drawn(seed, chain=False)
        top = pack_fixed(memories)
        spans = [(m, m.offset.value, m.offset.value + m.size.value) for m in memories]  # type: ignore[union-attr]
        assert top == max(end for _, _, end in spans) and all(start % 64 == 0 for _, start, _ in spans)
        for at, (one, start, end) in enumerate(spans):
            for other, low, high in spans[at + 1 :]:
                apart = end <= low or high <= start
                assert apart or one.last < other.first or other.last < one.first


def test_the_workspace_is_near_the_peak() -> None:
    ratios = [pack_fixed(m) / peak(m) for m in (drawn(seed, chain=False) for seed in range(40))]
    assert min(ratios) >= 1 and max(ratios) < 1.3 and sum(ratios) / len(ratios) < 1.1
    chains = [pack_fixed(m) / peak(m) for m in (drawn(seed, chain=True) for seed in range(40))]
    assert max(chains) < 1.2
