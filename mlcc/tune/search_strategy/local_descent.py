"""Local search: from the best decisions so far to their neighbours."""

from __future__ import annotations

from typing import Any

from mlcc.tune.search_strategy.candidate import Individual, MeasureCandidate
from mlcc.tune.search_strategy.evolutionary_search import EvolutionarySearch

_MUTATIONS_PER_PARENT = 64  # per parent, before the next best is mutated


class LocalDescent(EvolutionarySearch):
    """Mutates single decisions of the best candidates. A quarter of the proposals, and the first batch, are random.

    The arguments are those of `EvolutionarySearch`.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**{"population_size": 64, "genetic_mutate_prob": 1.0, **arguments})

    def _propose(self, wanted: int) -> list[MeasureCandidate]:
        candidates: list[MeasureCandidate] = []
        for _, best in self._measured:
            if len(candidates) >= wanted * 3 // 4:
                break
            near: dict[tuple[Any, ...], Individual] = {}
            for _ in range(_MUTATIONS_PER_PARENT):
                one = self._mutate(best)
                near.setdefault(one.decisions, one)
            candidates += self._realize(list(near.values()), wanted * 3 // 4 - len(candidates))
        return candidates + self._realize(self._draw_population(self.population_size), wanted - len(candidates))
