"""Local search: from the best decisions so far to their neighbours."""

from __future__ import annotations

from typing import Any

from mlcc.tune.search_strategy.candidate import Individual, MeasureCandidate
from mlcc.tune.search_strategy.evolutionary_search import EvolutionarySearch

_TRIES = 64  # mutations of the best before the next best is changed


class LocalDescent(EvolutionarySearch):
    """Changes the best candidate one decision at a time, and goes on from whatever is better. A quarter of what it
    proposes, and all at first, is drawn at random.

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
            for _ in range(_TRIES):
                one = self._mutated(best)
                near.setdefault(one.decisions, one)
            candidates += self._realized(list(near.values()), wanted * 3 // 4 - len(candidates))
        return candidates + self._realized(self._drawn(self.population_size), wanted - len(candidates))
