"""Evolutionary search: mutate good decisions, and measure the mutants that a cost model ranks highest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mlcc.passes.schedule.schedule import Schedule
from mlcc.passes.schedule.trace import Instruction
from mlcc.tune.mutator import MutateComputeLocation
from mlcc.tune.runner import RunnerResult
from mlcc.tune.search_strategy.candidate import Individual, MeasureCandidate
from mlcc.tune.search_strategy.decision_sampler import DecisionSampler
from mlcc.tune.search_strategy.strategy import SearchStrategy

if TYPE_CHECKING:
    from mlcc.tune.cost_model import CostModel

_MAX_DRAWS = 20  # attempts to sample decisions that may be legal
_Scored = dict[tuple[Any, ...], tuple[float, Individual]]


class EvolutionarySearch(SearchStrategy):
    """Evolves decisions by the mutators of the space. TVM: `EvolutionarySearch`, with its arguments.

    Decisions are mutated and scored without a replay if the cost model uses decisions only; proposed candidates are
    replayed, and illegal decisions repaired. For a model that reads schedules, every individual is replayed.
    """

    def __init__(
        self, *, population_size: int = 512, init_measured_ratio: float = 0.2, init_min_unmeasured: int = 50,
        max_fail_count: int = 5, genetic_num_iters: int = 4, genetic_mutate_prob: float = 0.85,
        genetic_max_fail_count: int = 10, eps_greedy: float = 0.05,
    ) -> None:  # fmt: skip
        super().__init__()
        for name, share in (
            ("init_measured_ratio", init_measured_ratio), ("genetic_mutate_prob", genetic_mutate_prob),
            ("eps_greedy", eps_greedy),
        ):  # fmt: skip
            if not 0.0 <= share <= 1.0:
                raise ValueError(f"`{name}` must be from 0 to 1, not {share}")
        self.population_size = population_size
        self.init_measured_ratio, self.init_min_unmeasured = init_measured_ratio, init_min_unmeasured
        self.max_fail_count = max_fail_count
        self.genetic_num_iters, self.genetic_mutate_prob = genetic_num_iters, genetic_mutate_prob
        self.genetic_max_fail_count, self.eps_greedy = genetic_max_fail_count, eps_greedy
        self._model: CostModel | None = None
        self._draws = DecisionSampler()
        self._measured: list[tuple[float, Individual]] = []
        self._proposed: set[tuple[Any, ...]] = set()

    def pre_tuning(
        self, max_trials: int, num_trials_per_iter: int, design_spaces: Sequence[Schedule], database: Any = None,
        cost_model: Any = None,
    ) -> None:  # fmt: skip
        """See `SearchStrategy.pre_tuning`; `cost_model` is a CostModel or a name of one."""
        from mlcc.tune.cost_model import CostModel, NearestModel

        super().pre_tuning(max_trials, num_trials_per_iter, design_spaces, database, cost_model)
        self._model = NearestModel() if cost_model is None else CostModel.create(cost_model)
        self._draws, self._measured, self._proposed = DecisionSampler(), [], set()
        for steps in self._spaces:
            self._draws.note(steps)

    def notify_runner_results(
        self, measure_candidates: Sequence[MeasureCandidate], results: Sequence[RunnerResult]
    ) -> None:
        super().notify_runner_results(measure_candidates, results)
        assert self._model is not None
        self._model.update(self.context, measure_candidates, results)
        for candidate, result in zip(measure_candidates, results, strict=True):
            if result.run_secs:
                self._measured.append((float(np.median(result.run_secs)), Individual(candidate.space, candidate.steps)))
        self._measured.sort(key=lambda pair: pair[0])

    def _propose(self, wanted: int) -> list[MeasureCandidate]:
        known = [one for _, one in self._measured[: int(self.population_size * self.init_measured_ratio)]]
        fresh = self._draw_population(max(self.population_size - len(known), self.init_min_unmeasured))
        ranked = self._evolve([*known, *fresh]) if known else fresh
        random_share = int(wanted * self.eps_greedy + 0.5)
        candidates = self._realize(ranked, wanted - random_share)
        candidates += self._realize(fresh, wanted - len(candidates))
        return candidates + self._realize(ranked, wanted - len(candidates))

    def _draw_population(self, count: int) -> list[Individual]:
        """Sample random individuals; those that are certainly illegal are sampled again, up to a limit.

        Spaces are drawn first: a draw before each individual makes the linear congruential generator repeat itself,
        which worsens the search.
        """
        individuals: list[Individual] = []
        for space in [self._random.below(len(self._spaces)) for _ in range(count)]:
            for _ in range(_MAX_DRAWS):
                steps = self._draws.draw(self._spaces[space], self._random)
                if self._may_pass(steps):
                    individuals.append(Individual(space, steps))
                    break
        return individuals

    def _may_pass(self, steps: Sequence[Instruction]) -> bool:
        generator = self.context.space_generator
        assert generator is not None
        return all(postproc.may_pass(steps) for postproc in generator.postprocs)

    def _evolve(self, population: list[Individual]) -> list[Individual]:
        """Run the generations. Return all individuals, best score first, without those proposed before."""
        scored: _Scored = {}
        for generation in range(self.genetic_num_iters + 1):
            scores = self._scores(population)
            for score, one in zip(scores, population, strict=True):
                scored.setdefault(one.decisions, (float(score), one))
            if generation < self.genetic_num_iters:
                population = self._next_generation(population, scores)
        ranked = sorted(scored.values(), key=lambda pair: -pair[0])
        return [one for _, one in ranked if one.decisions not in self._proposed]

    def _scores(self, population: Sequence[Individual]) -> np.ndarray:
        assert self._model is not None
        if not self._model.needs_schedules:
            return np.maximum(self._model.predict(self.context, population), 0.0)  # type: ignore[no-any-return]
        replayed = [self._replayed(one.space, one.steps) for one in population]
        scores = np.zeros(len(population))
        legal = [at for at, candidate in enumerate(replayed) if candidate is not None]
        scores[legal] = np.maximum(self._model.predict(self.context, [replayed[at] for at in legal]), 0.0)
        return scores

    def _next_generation(self, population: Sequence[Individual], scores: np.ndarray) -> list[Individual]:
        weights = [float(s) ** 2 + 1e-12 for s in scores]
        total = sum(weights)
        ends = np.cumsum(weights) / total
        children = []
        for _ in range(self.population_size):
            parent = population[min(int(np.searchsorted(ends, self._random.uniform())), len(population) - 1)]
            children.append(self._mutate(parent))
        return children

    def _mutate(self, parent: Individual) -> Individual:
        if self._random.uniform() >= self.genetic_mutate_prob:
            return parent
        generator = self.context.space_generator
        assert generator is not None
        mutators = list(generator.mutator_probs)
        if not mutators:
            return parent
        for _ in range(self.genetic_max_fail_count):
            mutator = mutators[self._random.pick(list(generator.mutator_probs.values()))]
            if isinstance(mutator, MutateComputeLocation):
                mutant = self._draws.moved(parent.trace, self._random)
            else:
                mutant = mutator.mutate(parent.trace, self._random)
            if mutant is not None and self._may_pass(mutant.insts):
                return Individual(parent.space, mutant.insts)
        return parent

    def _realize(self, ranked: list[Individual], wanted: int) -> list[MeasureCandidate]:
        """Return candidates of the first individuals that replay and are new; pops those tried off the list."""
        candidates: list[MeasureCandidate] = []
        failures = 0
        while ranked and len(candidates) < wanted and failures < self.max_fail_count * 100:
            one = ranked.pop(0)
            if one.decisions in self._proposed:
                continue
            self._proposed.add(one.decisions)
            candidate = self._replayed(one.space, one.steps)
            if candidate is None or not self._is_new(candidate):
                failures += 1
                continue
            self._draws.note(candidate.steps)
            candidates.append(candidate)
        return candidates
