"""Sampling primitives: tilings, one of several values, the location of a block.

Given the same seed they choose what TVM's schedule chooses. A choice is recorded as the step's decision, and a step
that is given a decision takes it.
"""

from __future__ import annotations

import math

from mlcc.ir import tir
from mlcc.passes.schedule.random import Engine
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.registry import primitive
from mlcc.passes.schedule.state import INLINE, ROOT, BlockRef, LoopRef, State

_MAX_EXTENT = 2**31 - 1  # of a loop that is tiled
_MAX_FACTORS = 64


@primitive("exprs")
def sample_perfect_tile(
    state: State, loop: LoopRef, n: int, max_innermost_factor: int = 16, decision: list[int] | None = None
) -> list[int]:
    """Sample `n` factors whose product is the loop's extent, the last at most `max_innermost_factor` (-1: any).

    A loop of symbolic extent gives -1, 1, ..., 1 for `None, 1, ...`. A decision that does not tile the loop perfectly
    is refused (E0695), as are fewer than two factors (E0696). TVM: `sample_perfect_tile`, which repairs such
    decisions silently.
    """
    extent = tir.const_int(loop.loop.extent)
    if not (1 if max_innermost_factor == -1 else 2) <= n <= _MAX_FACTORS:
        raise Refusal("E0696", f"a loop cannot be sampled into {n} factors under a limit", loop.loop)
    if max_innermost_factor != -1 and max_innermost_factor < 1:
        raise Refusal(
            "E0696", f"max_innermost_factor is {max_innermost_factor}; it must be at least 1, or -1 for no limit"
        )
    if extent is None:
        chosen = [-1] + [1] * (n - 1)
    elif decision is not None:
        chosen = _check_decision(loop, extent, n, decision)
    else:
        _check_tileable(loop, extent)
        chosen = draw_tile(state.random, extent, n, max_innermost_factor)
    state.recorded["decision"] = chosen
    return chosen


@primitive("exprs")
def sample_partitioned_tile(
    state: State, loop: LoopRef, n: int, partition_pos: int = 0, innerpart_factor: int = 1,
    decision: list[int] | None = None,
) -> list[int]:  # fmt: skip
    """Sample `n` factors of the loop's extent; the product of those from `partition_pos` on is a multiple of
    `innerpart_factor`.

    A loop of symbolic extent, or of one that `innerpart_factor` does not divide, gives -1, 1, ..., 1. Refused: a
    decision that does not tile the loop so (E0695), a position outside 0..n (E0696). TVM: `sample_partitioned_tile`.
    """
    extent = tir.const_int(loop.loop.extent)
    if n < 1 or not 0 <= partition_pos <= n or innerpart_factor < 1:
        message = (
            f"{n} factors, partition_pos {partition_pos} and innerpart_factor {innerpart_factor} do not fit together"
        )
        raise Refusal("E0696", message, loop.loop, "n >= 1, 0 <= partition_pos <= n and innerpart_factor >= 1")
    plain = partition_pos == 0 and innerpart_factor == 1
    if (n < 2 and not plain) or n > _MAX_FACTORS:
        raise Refusal("E0696", f"a loop cannot be partitioned into {n} factors", loop.loop)
    if extent is None or extent % innerpart_factor:
        chosen = [-1] + [1] * (n - 1)
    elif decision is not None:
        chosen = _check_decision(loop, extent, n, decision)
        inner = math.prod(chosen[partition_pos:])
        if inner % innerpart_factor:
            message = (
                f"the inner factors of {chosen} multiply to {inner}, which is not a multiple of {innerpart_factor}"
            )
            raise Refusal("E0695", message, loop.loop)
    else:
        _check_tileable(loop, extent)
        if partition_pos == n and innerpart_factor > 1:
            raise Refusal("E0696", f"there is no factor after position {partition_pos}", loop.loop)
        chosen = _sample_partitioned(state.random, extent, n, partition_pos, innerpart_factor)
    state.recorded["decision"] = chosen
    return chosen


@primitive("exprs")
def sample_categorical(state: State, candidates: list[int], probs: list[float], decision: int | None = None) -> int:
    """Sample one of `candidates` with the weights `probs` (not negative). The decision is its index.

    Refused: lists of different length or without weight (E0696), a decision that is no index (E0695).
    TVM: `sample_categorical`.
    """
    if len(candidates) != len(probs) or not candidates:
        raise Refusal("E0696", f"{len(candidates)} candidates and {len(probs)} probabilities do not match")
    if any(not (0 <= p < math.inf) for p in probs) or sum(probs) <= 0:
        raise Refusal(
            "E0696",
            f"the probabilities {probs} are not valid weights: they must not be negative, and one must be positive",
        )
    if decision is None:
        decision = state.random.pick(probs)
    elif not 0 <= decision < len(candidates):
        raise Refusal("E0695", f"decision {decision} is not an index of {len(candidates)} candidates")
    state.recorded["decision"] = decision
    return candidates[decision]


@primitive()
def sample_compute_location(state: State, block: BlockRef, decision: int | None = None) -> LoopRef | str:
    """Sample a loop for `compute_at` of the block, or a mark for inlining it (decision -2) or for leaving it where it
    is (-1); other decisions are the index of the loop among those of the block's first consumer.

    A decision that is no legal place is moved to the next one before it. TVM: `sample_compute_location`.
    """
    from mlcc.passes.schedule.primitives.compute_location import compute_locations, location_at

    if decision is None:
        places = compute_locations(block)
        index, loop = places[state.random.below(len(places)) if len(places) > 1 else 0]
    else:
        index, loop = location_at(block, decision)
    state.recorded["decision"] = index
    if loop is None:
        return ROOT if index == -1 else INLINE
    return LoopRef(state, block.func_name, loop)


def _check_decision(loop: LoopRef, extent: int, n: int, decision: list[int]) -> list[int]:
    name = loop.var.name
    if len(decision) != n:
        count = f"{len(decision)} factor{'s' * (len(decision) != 1)}"
        raise Refusal("E0695", f"the decision {decision} has {count}, not {n}", loop.loop)
    if any(f < 1 for f in decision) or math.prod(decision) != extent:
        message = f"the decision {decision} does not tile loop `{name}`: "
        message += f"{' * '.join(map(str, decision))} = {math.prod(decision)}, and the loop runs over {extent}"
        last = math.gcd(extent, decision[-1]) if decision[-1] > 0 else 1
        legal = [extent // last, *[1] * (n - 2), last] if n > 1 else [extent]
        raise Refusal("E0695", message, loop.loop, f"a legal value is decision={legal}")
    return list(decision)


def draw_tile(random: Engine, extent: int, n: int, max_innermost_factor: int) -> list[int]:
    """Return `n` factors of `extent`, the last within a limit (-1: none), as `sample_perfect_tile` draws them."""
    chosen = _tile(random, extent, n)
    while max_innermost_factor != -1 and chosen[-1] > max_innermost_factor:
        chosen = _tile(random, extent, n)
    return chosen


def _check_tileable(loop: LoopRef, extent: int) -> None:
    if not 1 <= extent <= _MAX_EXTENT:
        raise Refusal("E0696", f"loop `{loop.var.name}` of {extent} iterations cannot be tiled", loop.loop)


def _tile(random: Engine, extent: int, n: int) -> list[int]:
    """Return `n` factors of `extent`, with every distribution of the prime factors equally likely."""
    factors = [1] * n
    if n == 1 or extent == 1:
        return [extent, *factors[1:]]
    for prime, power in _factorize(extent):
        if prime >= 65536:  # beyond the sieve: a prime of power one
            factors[random.below(n)] *= prime
        elif n == 2:
            first = random.below(power + 1)
            factors[0] *= prime**first
            factors[1] *= prime ** (power - first)
        elif power == 1:
            factors[random.below(n)] *= prime
        else:
            # bars between stars: n - 1 of power + n - 1 places
            bars = sorted(_distinct(random, power + n - 1, n - 1)) + [power + n - 1]
            last = -1
            for i, bar in enumerate(bars):
                factors[i] *= prime ** (bar - last - 1)
                last = bar
    return factors


def _sample_partitioned(random: Engine, extent: int, n: int, position: int, factor: int) -> list[int]:
    """Draw a partition by rejection sampling; after too many rejections the inner factors get `factor` first."""
    for _ in range(1000):
        chosen = _tile(random, extent, n)
        if math.prod(chosen[position:]) % factor == 0:
            return chosen
    chosen = _tile(random, extent // factor, n)
    inner = _tile(random, factor, n - position)
    return chosen[:position] + [a * b for a, b in zip(chosen[position:], inner, strict=True)]


def _factorize(number: int) -> list[tuple[int, int]]:
    powers, p = [], 2
    while p * p <= number:
        power = 0
        while number % p == 0:
            number //= p
            power += 1
        if power:
            powers.append((p, power))
        p += 1
    return [*powers, (number, 1)] if number > 1 else powers


def _distinct(random: Engine, bound: int, count: int) -> list[int]:
    """Return `count` different integers below `bound`."""
    if count == 1:
        return [random.below(bound)]
    if count == 2:
        first, second = random.below(bound), random.below(bound - 1)
        return [first, second + (second >= first)]
    order = list(range(bound))
    for i in range(count):
        j = i + random.below(bound - i)
        order[i], order[j] = order[j], order[i]
    return order[:count]
