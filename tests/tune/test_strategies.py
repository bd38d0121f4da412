"""Strategies on a landscape whose costs follow from decisions alone."""

from __future__ import annotations

import statistics

import pytest

from mlcc.tune.cost_model import CostModel, NearestModel
from mlcc.tune.search_strategy import EvolutionarySearch
from tests.tune.landscapes import best_found

SEEDS = {64: (1, 2, 3), 256: (1,)}


def found(strategy: object, trials: int) -> float:
    return statistics.mean(best_found(strategy, trials, seed) for seed in SEEDS[trials])


@pytest.mark.parametrize("trials", SEEDS)
def test_evolution_beats_chance(trials: int) -> None:
    chance = found("replay-trace", trials)
    assert found("evolutionary", trials) < 0.85 * chance
    assert found("local-descent", trials) < chance * 1.05


def test_same_seed_same_search() -> None:
    made = [best_found(EvolutionarySearch(population_size=64), 32, 5) for _ in range(2)]
    assert made[0] == made[1]


def test_models_that_look_at_schedules() -> None:
    """A model of somebody's own is given schedules."""

    class Loops(NearestModel):
        needs_schedules = True

        def predict(self, context, candidates):  # type: ignore[no-untyped-def]
            assert all(c.sch.mod["main"].body for c in candidates)
            return super().predict(context, candidates)

    assert isinstance(CostModel.create(model := Loops()), Loops) and model.needs_schedules
