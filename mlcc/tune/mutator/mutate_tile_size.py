"""The mutator of tile sizes: moves a factor from one tile level to another."""

from __future__ import annotations

import math

from mlcc.passes.schedule.random import Engine
from mlcc.passes.schedule.trace import Instruction, Trace
from mlcc.tune.mutator.categorical import annotated_by, another_category
from mlcc.tune.mutator.mutator import Mutator

_FETCH = "meta_schedule.cooperative_fetch"


class MutateTileSize(Mutator):
    """Moves a factor between two levels of a sampled tiling, or changes a vector width of cooperative loads. TVM:
    `MutateTileSize`."""

    def mutate(self, trace: Trace, random: Engine) -> Trace | None:
        tilings = [i for i in trace.insts if i.name == "sample_perfect_tile" and _is_tiling(i)]
        widths = [i for i in annotated_by(trace, (_FETCH,)) if len(i.arguments["probs"]) > 1]
        if not tilings and not widths:
            return None
        chosen = random.below(len(tilings) + len(widths))
        if chosen < len(tilings):
            return _move_factor(trace, tilings[chosen], random)
        return another_category(trace, widths[chosen - len(tilings)], random)


def _is_tiling(inst: Instruction) -> bool:
    return inst.decision is not None and len(inst.decision) >= 2 and math.prod(inst.decision) >= 2


def _move_factor(trace: Trace, inst: Instruction, random: Engine) -> Trace | None:
    tiles = list(inst.decision)
    limit = inst.arguments["max_innermost_factor"]
    last = len(tiles) - 1
    while True:
        source = random.below(len(tiles))
        if tiles[source] <= 1:
            continue
        target = random.below(last)
        target += target >= source
        factors = _divisors(tiles[source])[1:]
        if target == last and limit != -1:
            factors = [f for f in factors if f * tiles[target] <= limit]
            if not factors:
                if last == 1:
                    return None
                continue
        factor = factors[random.below(len(factors))]
        tiles[source] //= factor
        tiles[target] *= factor
        return trace.with_decision(inst, tiles)


def _divisors(number: int) -> list[int]:
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return small + [number // n for n in reversed(small) if n * n != number]
