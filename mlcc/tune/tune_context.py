"""The state of tuning one kernel: the module, the target, the space, the strategy, the random state."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.machine.target import Target
from mlcc.passes.schedule.handles import Handle
from mlcc.passes.schedule.random import Engine
from mlcc.passes.schedule.schedule import Schedule
from mlcc.passes.schedule.trace import Instruction
from mlcc.tune.replay import Replayer
from mlcc.tune.space_generator import SpaceGenerator
from mlcc.tune.target_facts import TargetFacts

if TYPE_CHECKING:
    from mlcc.tune.runner import RunnerResult
    from mlcc.tune.search_strategy import MeasureCandidate, SearchStrategy


def normalize_mod(mod: tir.PrimFunc | IRModule) -> IRModule:
    """Rename the function of a single-function module to `main`; other modules are unchanged.

    Raises TypeError for anything else.
    """
    if isinstance(mod, tir.PrimFunc):
        return IRModule({"main": mod.with_attr("global_symbol", "main")})
    if not isinstance(mod, IRModule):
        raise TypeError(f"`mod` must be a PrimFunc or an IRModule, not {type(mod).__name__}")
    names = list(mod.functions)
    if len(names) != 1 or names == ["main"]:
        return mod
    func = mod[names[0]]
    return IRModule({"main": func.with_attr("global_symbol", "main")})


class TuneContext:
    """A kernel to tune, with its space generator and search strategy. TVM: `TuneContext`.

    `rand_state` is the random seed; -1 seeds from the system.
    """

    def __init__(
        self, mod: IRModule | tir.PrimFunc | None = None, *, target: Target | str | None = None,
        space_generator: Any = None, search_strategy: SearchStrategy | str | None = None, task_name: str = "main",
        rand_state: int = -1, num_threads: int | str = "physical", logger: Any = None,
    ) -> None:  # fmt: skip
        from mlcc.tune.search_strategy import SearchStrategy

        self.mod = None if mod is None else normalize_mod(mod)
        self.target = None if target is None else Target.parse(target)
        self.space_generator = None if space_generator is None else SpaceGenerator.create(space_generator)
        self.search_strategy = None if search_strategy is None else SearchStrategy.create(search_strategy)
        self.task_name, self.num_threads, self.logger = task_name, num_threads, logger
        self.random = Engine(rand_state)
        self._initialize()

    def _initialize(self) -> None:
        if self.space_generator is not None:
            self.space_generator._initialize_with_tune_context(self)
        if self.search_strategy is not None:
            self.search_strategy._initialize_with_tune_context(self)

    @property
    def rand_state(self) -> int:
        """The state of the random engine."""
        return self.random.state

    @cached_property
    def facts(self) -> TargetFacts:
        """The target's properties for rules. Raises ValueError without a target."""
        if self.target is None:
            raise ValueError("the TuneContext has no target")
        return TargetFacts.of(self.target)

    @cached_property
    def replayer(self) -> Replayer:
        """The replayer of traces on the module, which caches prefixes."""
        return Replayer(self._module())

    def replayed(self, steps: Sequence[Instruction]) -> tuple[Schedule, dict[Handle, Handle]]:
        """Replay steps on the module. Return the schedule and the values of the handles. Raises CompileError."""
        return self.replayer.replay(steps)

    def clone(self) -> TuneContext:
        """Return an independent copy, with its own random state and strategy."""
        duplicate = copy.copy(self)
        duplicate.__dict__.pop("replayer", None)
        if self.space_generator is not None:
            duplicate.space_generator = self.space_generator.clone()
        if self.search_strategy is not None:
            duplicate.search_strategy = self.search_strategy.clone()
        duplicate.random = Engine(self.random.copy().fork())
        duplicate._initialize()
        return duplicate

    # ------------------------------------------------------------ steps of tuning

    def generate_design_space(self) -> list[Schedule]:
        """The design spaces of the module. Raises ValueError without a module or a generator."""
        if self.space_generator is None:
            raise ValueError("the TuneContext has no space_generator")
        return self.space_generator.generate_design_space(self._module())

    def pre_tuning(
        self, max_trials: int, num_trials_per_iter: int = 64, design_spaces: Sequence[Schedule] | None = None,
        database: Any = None, cost_model: Any = None,
    ) -> None:  # fmt: skip
        """Start the strategy on the design spaces, by default those of the generator."""
        spaces = self.generate_design_space() if design_spaces is None else design_spaces
        self._strategy().pre_tuning(max_trials, num_trials_per_iter, spaces, database, cost_model)

    def post_tuning(self) -> None:
        """End the strategy."""
        self._strategy().post_tuning()

    def generate_measure_candidates(self) -> list[MeasureCandidate] | None:
        """The candidates to measure next; None at the end."""
        return self._strategy().generate_measure_candidates()

    def notify_runner_results(
        self, measure_candidates: Sequence[MeasureCandidate], results: Sequence[RunnerResult]
    ) -> None:
        """Pass the results of candidates to the strategy."""
        self._strategy().notify_runner_results(measure_candidates, results)

    def _module(self) -> IRModule:
        if self.mod is None:
            raise ValueError("the TuneContext has no module")
        return self.mod

    def _strategy(self) -> SearchStrategy:
        if self.search_strategy is None:
            raise ValueError("the TuneContext has no search_strategy")
        return self.search_strategy
