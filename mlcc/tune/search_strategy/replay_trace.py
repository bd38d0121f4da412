"""Random search over the sampling decisions of design spaces."""

from __future__ import annotations

from mlcc.tune.search_strategy.candidate import MeasureCandidate
from mlcc.tune.search_strategy.strategy import SearchStrategy, without_decisions


class ReplayTrace(SearchStrategy):
    """Replay the traces of design spaces with random decisions. TVM: `ReplayTrace`.

    Give up on a candidate after `max_fail_count` draws that were rejected or had been drawn before.
    """

    def __init__(self, max_fail_count: int = 100) -> None:
        super().__init__()
        self.max_fail_count = max_fail_count

    def _propose(self, wanted: int) -> list[MeasureCandidate]:
        drawn = [self._draw() for _ in range(wanted)]
        return [candidate for candidate in drawn if candidate is not None]

    def _draw(self) -> MeasureCandidate | None:
        for _ in range(self.max_fail_count):
            space = self._random.below(len(self._spaces))
            candidate = self._replayed(space, without_decisions(self._spaces[space]))
            if candidate is not None and self._is_new(candidate):
                return candidate
        return None
