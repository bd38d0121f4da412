"""Strategies on a landscape whose costs follow from decisions alone."""

from __future__ import annotations

import statistics

import numpy as np
import pytest

from mlcc.tune import TuneContext
from mlcc.tune.cost_model import CostModel, NearestModel
from mlcc.tune.cost_model.models import BoostedTrees
from mlcc.tune.runner import RunnerResult
from mlcc.tune.search_strategy import EvolutionarySearch
from tests.tune.landscapes import best_found, matmul, seconds

SEEDS = {64: (1, 2, 3), 256: (1,)}


def mean_best(strategy: object, trials: int) -> float:
    return statistics.mean(best_found(strategy, trials, seed) for seed in SEEDS[trials])


@pytest.mark.parametrize("trials", SEEDS)
def test_evolution_beats_chance(trials: int) -> None:
    chance = mean_best("replay-trace", trials)
    assert mean_best("evolutionary", trials) < 0.85 * chance
    assert mean_best("local-descent", trials) < chance * 1.05


def test_same_seed_gives_the_same_search() -> None:
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


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_boosted_trees_rank_what_was_not_measured(library: str) -> None:
    pytest.importorskip(library, reason=f"needs {library} (the extra `tune` brings lightgbm)")
    context = TuneContext(
        matmul(), target="llvm{num-cores=4}", space_generator="post-order-apply", search_strategy="replay-trace",
        rand_state=1,
    )  # fmt: skip
    context.pre_tuning(192, 96)
    measured, kept_back = (context.generate_measure_candidates() or () for _ in range(2))
    scores = []
    for _ in range(2):
        model = BoostedTrees(library)
        model.update(context, measured, [RunnerResult([seconds(c)]) for c in measured])
        scores.append(model.predict(context, kept_back))
    assert np.array_equal(*scores)
    ranks = [np.argsort(np.argsort(values)) for values in (scores[0], [-seconds(c) for c in kept_back])]
    assert np.corrcoef(*ranks)[0, 1] > 0.5
