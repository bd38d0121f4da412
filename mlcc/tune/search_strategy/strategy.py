"""The base of search strategies."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

from mlcc.errors import CompileError
from mlcc.passes.schedule.random import Engine
from mlcc.passes.schedule.schedule import Schedule
from mlcc.passes.schedule.trace import Instruction
from mlcc.tune.replay import apply_postprocs, with_replayed_decisions
from mlcc.tune.runner import RunnerResult
from mlcc.tune.search_strategy.candidate import MeasureCandidate

if TYPE_CHECKING:
    from mlcc.tune.tune_context import TuneContext


class SearchStrategy:
    """Searches design spaces: proposes candidates and receives their results. TVM: `SearchStrategy`.

    `pre_tuning` starts it, `generate_measure_candidates` and `notify_runner_results` alternate, `post_tuning` ends it.
    """

    def __init__(self) -> None:
        self._context: TuneContext | None = None
        self._random = Engine(1)
        self._spaces: list[list[Instruction]] = []
        self._max_trials = self._per_iter = self._done = 0
        self._seen: set[int] = set()

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        """Take module, generator and random state from the context. Raises ValueError where one is missing."""
        if context.space_generator is None:
            raise ValueError("the TuneContext has no space_generator")
        self._context = context
        self._random = Engine(context.random.fork())
        self._spaces = []

    def pre_tuning(
        self, max_trials: int, num_trials_per_iter: int, design_spaces: Sequence[Schedule], database: Any = None,
        cost_model: Any = None,
    ) -> None:  # fmt: skip
        """Start on design spaces. Raises ValueError for none, or if the strategy is already running."""
        if not design_spaces:
            raise ValueError("there is no design space")
        if self._spaces:
            raise ValueError("pre_tuning was called twice without post_tuning")
        self._spaces = [sch.trace.simplified(remove_postproc=True).insts for sch in design_spaces]
        self._max_trials, self._per_iter, self._done = max_trials, num_trials_per_iter, 0
        self._seen = set()

    def post_tuning(self) -> None:
        """End. Raises ValueError if the strategy is not running."""
        if not self._spaces:
            raise ValueError("post_tuning was called without pre_tuning")
        self._spaces = []

    def generate_measure_candidates(self) -> list[MeasureCandidate] | None:
        """Return the candidates to measure next; None at the end."""
        if not self._spaces:
            raise ValueError("generate_measure_candidates was called without pre_tuning")
        wanted = min(self._per_iter, self._max_trials - self._done)
        return (self._propose(wanted) or None) if wanted > 0 else None

    def notify_runner_results(
        self, measure_candidates: Sequence[MeasureCandidate], results: Sequence[RunnerResult]
    ) -> None:
        """Receive the results of the last proposed candidates."""
        self._done += len(results)

    def clone(self) -> Self:
        """Return an independently initialized copy."""
        duplicate = copy.copy(self)
        duplicate._spaces = []
        return duplicate

    @staticmethod
    def create(kind: Any = "evolutionary", *args: Any, **kwargs: Any) -> SearchStrategy:
        """Create a strategy by name: `evolutionary`, `replay-trace`, `replay-func`, `local-descent`.

        Raises ValueError for other names.
        """
        from mlcc.tune.search_strategy import EvolutionarySearch, LocalDescent, ReplayFunc, ReplayTrace

        named: dict[str, Callable[..., SearchStrategy]] = {
            "evolutionary": EvolutionarySearch, "replay-trace": ReplayTrace, "replay-func": ReplayFunc,
            "local-descent": LocalDescent,
        }  # fmt: skip
        if isinstance(kind, SearchStrategy):
            return kind
        if kind not in named:
            raise ValueError(f"`strategy` must be {', '.join(named)} or a SearchStrategy, not {kind!r}")
        return named[kind](*args, **kwargs)

    # ------------------------------------------------------------ for strategies

    def _propose(self, wanted: int) -> list[MeasureCandidate]:
        """Return at most `wanted` candidates; none if the space is exhausted."""
        raise NotImplementedError

    @property
    def context(self) -> TuneContext:
        assert self._context is not None, "a strategy is initialized with a context"
        return self._context

    def _replayed(self, space: int, steps: Sequence[Instruction], repair: bool = True) -> MeasureCandidate | None:
        """Replay steps and apply the postprocessors; None if that fails. Steps without a decision, and with `repair`
        those with an illegal one, sample one."""
        generator = self.context.space_generator
        assert generator is not None
        try:
            sch, _ = self.context.replayer.replay(steps, self._random, repair)
        except CompileError:
            return None
        taken = with_replayed_decisions(steps, sch)
        if not apply_postprocs(sch, generator.postprocs):
            return None
        return MeasureCandidate(sch, steps=taken, space=space)

    def _is_new(self, candidate: MeasureCandidate) -> bool:
        """Return True for a candidate whose schedule has not been proposed before, and remember it."""
        if candidate.key in self._seen:
            return False
        self._seen.add(candidate.key)
        return True


def without_decisions(steps: Sequence[Instruction]) -> list[Instruction]:
    """Return the steps without their decisions."""
    return [inst.with_decision(None) if inst.is_sampling else inst for inst in steps]
