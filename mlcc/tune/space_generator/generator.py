"""The base of space generators."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from mlcc.ir.module import IRModule
from mlcc.passes.schedule.random import Engine
from mlcc.passes.schedule.schedule import Schedule
from mlcc.tune.component import Component
from mlcc.tune.mutator import Mutator
from mlcc.tune.postproc import Postproc
from mlcc.tune.schedule_rule import ScheduleRule

if TYPE_CHECKING:
    from mlcc.tune.tune_context import TuneContext

FROM_TARGET = "from-target"
Rules = Sequence[ScheduleRule] | str | None
Postprocs = Sequence[Postproc] | str | None
MutatorProbs = Mapping[Mutator, float] | str | None


class SpaceGenerator:
    """Generates the design spaces of a module: schedules with sampling steps. TVM: `meta_schedule.SpaceGenerator`.

    Rules, postprocessors and mutators may be listed, named by a kind of target (`"llvm"`, `"cuda"`), or be those of the
    tuning target (`"from-target"`); None means none.
    """

    def __init__(
        self, sch_rules: Rules = FROM_TARGET, postprocs: Postprocs = FROM_TARGET,
        mutator_probs: MutatorProbs = FROM_TARGET,
    ) -> None:  # fmt: skip
        self._specs = (sch_rules, postprocs, mutator_probs)
        self.sch_rules: list[ScheduleRule] = []
        self.postprocs: list[Postproc] = []
        self.mutator_probs: dict[Mutator, float] = {}
        self._random = Engine(1)

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        rules, postprocs, mutators = self._specs
        kind = context.facts.kind
        self.sch_rules = _create_components(ScheduleRule.create, rules, kind)
        self.postprocs = _create_components(Postproc.create, postprocs, kind)
        if isinstance(mutators, str):
            mutators = Mutator.create(kind if mutators == FROM_TARGET else mutators)
        self.mutator_probs = {mutator.clone(): p for mutator, p in (mutators or {}).items()}
        parts: list[Component] = [*self.sch_rules, *self.postprocs, *self.mutator_probs]
        for part in parts:
            part._initialize_with_tune_context(context)
        self._random = Engine(context.random.fork())

    def generate_design_space(self, mod: IRModule) -> list[Schedule]:
        """The design spaces of a module."""
        raise NotImplementedError

    def clone(self) -> Self:
        """Return an independently initialized copy."""
        return copy.copy(self)

    @staticmethod
    def create(kind: Any = "post-order-apply", *args: Any, **kwargs: Any) -> SpaceGenerator:
        """Create a generator by name (`post-order-apply`, `union`), or one of a schedule function or script.

        Raises ValueError for other names.
        """
        from mlcc.tune.space_generator import PostOrderApply, ScheduleFn, SpaceGeneratorUnion

        named: dict[str, Callable[..., SpaceGenerator]] = {
            "post-order-apply": PostOrderApply, "union": SpaceGeneratorUnion,
        }  # fmt: skip
        if isinstance(kind, SpaceGenerator):
            return kind
        if isinstance(kind, str) and kind in named:
            return named[kind](*args, **kwargs)
        if callable(kind) or (isinstance(kind, str) and is_script(kind)):
            return ScheduleFn(kind, *args, **kwargs)
        raise ValueError(f"`space` must be {', '.join(named)}, a function or a schedule script, not {kind!r}")


def is_script(text: str) -> bool:
    """Return True if the text is a schedule script or the name of a file of one, rather than a single word."""
    return text.endswith(".mls") or "\n" in text or "sch" in text


def _create_components(create: Callable[[str], list[Any]], spec: Any, kind: str) -> list[Any]:
    if isinstance(spec, str):
        return create(kind if spec == FROM_TARGET else spec)
    return [part.clone() for part in spec or ()]
