"""Random search with a new design space for each candidate."""

from __future__ import annotations

from mlcc.tune.search_strategy.candidate import MeasureCandidate
from mlcc.tune.search_strategy.strategy import SearchStrategy

_MAX_FAILURES = 100


class ReplayFunc(SearchStrategy):
    """Random search that regenerates the design spaces; each one's own decisions are a candidate. TVM: `ReplayFunc`."""

    def _propose(self, wanted: int) -> list[MeasureCandidate]:
        candidates: list[MeasureCandidate] = []
        failures = 0
        while len(candidates) < wanted and failures < _MAX_FAILURES:
            space = self._random.below(len(self._spaces))
            spaces = self.context.generate_design_space()
            candidate = self._replayed(space, spaces[space % len(spaces)].trace.without_postproc(), repair=False)
            if candidate is not None and self._is_new(candidate):
                candidates.append(candidate)
            else:
                failures += 1
        return candidates
