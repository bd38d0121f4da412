"""The rules' own space: what it proposes follows from the seed and the ratios alone, and leads to the best plan."""

from __future__ import annotations

from collections.abc import Callable

import mlcc
from mlcc.ir import tir
from mlcc.machine.target import Target
from mlcc.passes.schedule.schedule import Schedule
from mlcc.tune.contracts import Candidate, Space, Task
from mlcc.tune.option_effects import OptionEffects
from mlcc.tune.rule_space import RuleSpace
from tests.auto_schedule.products import Product

WIDE = "llvm{triple=x86_64-linux-gnu cpu=x86-64-v4 num-cores=2}"
Landscape = Callable[[Candidate], float | None]


def space(threads: int = 1, **sizes: int) -> RuleSpace:
    func = mlcc.parse(Product("mk,kn->mn", sizes or {"m": 64, "k": 48, "n": 96}).text())["main"]
    assert isinstance(func, tir.PrimFunc)
    return RuleSpace(Task("", ("main",), func, Target.parse(WIDE), threads))


def search(found: RuleSpace, landscape: Landscape, trials: int, seed: int = 0) -> list[tuple[Candidate, float | None]]:
    """What a search measures, at most so many candidates, with what it measures."""
    measured: list[tuple[Candidate, float | None]] = []
    batches = found.batches(seed, 8)
    batch = next(batches, ())
    while batch and len(measured) < trials:
        ratios = [landscape(candidate) for candidate in batch]
        measured += zip(batch, ratios, strict=True)
        try:
            batch = batches.send(ratios)
        except StopIteration:
            break
    return measured


def uneven(candidate: Candidate) -> float | None:
    """A landscape: panels are worth 10 %, three vectors 8 %, and two steps at a time 5 % with them."""
    choices = dict(candidate.decisions)
    if choices["rule"] != "matmul":
        return None if choices["rule"] == "fallback" else 4.0
    ratio = 1.0 if choices.get("panels") else 1.1
    ratio *= 0.92 if choices.get("vectors") == 3 else 1.0
    return ratio * (0.95 if choices.get("unrolled") == 2 and choices.get("vectors") == 3 else 1.0)


def test_it_is_a_space() -> None:
    made: Space = space()
    default = made.default()
    assert default is not None and default.decisions[0] == ("rule", "matmul") and default.predicted == 1.0


def test_candidates_replay_from_their_traces_and_decisions() -> None:
    found = space()
    for candidate, _ in search(found, uneven, 24):
        sch = Schedule(mlcc.parse(Product("mk,kn->mn", {"m": 64, "k": 48, "n": 96}).text()))
        candidate.trace.apply_to_schedule(sch)
        mlcc.assert_structural_equal(sch.mod["main"], candidate.func)
        again = found.candidate(candidate.decisions)
        mlcc.assert_structural_equal(again.func, candidate.func)
        assert again.decisions == candidate.decisions


def test_the_best_is_found_soon() -> None:
    measured = search(space(), uneven, 48)
    best = min(ratio for _, ratio in measured if ratio is not None)
    assert best == min(1.0, 1.1) * 0.92 * 0.95
    keys = [candidate.decisions for candidate, _ in measured]
    assert len(set(keys)) == len(keys)


def test_the_same_seed_and_ratios_give_the_same_candidates() -> None:
    runs = [[c.decisions for c, _ in search(space(), uneven, 40, seed)] for seed in (0, 0, 1)]
    assert runs[0] == runs[1] != runs[2]


def test_the_space_ends() -> None:
    measured = search(space(m=4, k=4, n=8), lambda _: 1.0, 10_000)
    assert 5 < len(measured) < 2000
    assert {dict(candidate.decisions)["rule"] for candidate, _ in measured} >= {"matmul", "columns", "fallback"}


def test_effects_of_options_add_up() -> None:
    effects = OptionEffects({"a": 0, "b": 0})
    for a, b, value in ((1, 0, 0.2), (0, 1, -0.1), (1, 1, 0.1), (1, 0, 0.2), (0, 1, -0.1), (1, 1, 0.1)):
        effects.add({"a": a, "b": b}, value)
    effects.fit()
    assert 0.1 < effects.sum({"a": 1, "b": 0}) < 0.2 and -0.1 < effects.sum({"a": 0, "b": 1}) < -0.05
    assert effects.sum({"a": 0, "b": 0}) == effects.sum({"a": 2}) == 0
