"""The kernel that a rule schedules: one function under its own schedule, and the facts of the machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any, Generic, NoReturn, TypeVar

from mlcc.errors import CompileError
from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.machine.cpu_tables import CpuFacts
from mlcc.machine.gpu_tables import GpuFacts
from mlcc.passes.auto_schedule.stage import Stage
from mlcc.passes.auto_schedule.tuning_choices import UNRATED_COST, RequestedChoices, TuningChoice
from mlcc.passes.schedule.analysis.scope import consumers, is_output, producers
from mlcc.passes.schedule.handles import BlockRV, LoopRV
from mlcc.passes.schedule.schedule import Schedule
from mlcc.passes.schedule.tree import Tree


class RuleNotApplicable(Exception):
    """Raised by a rule that does not apply to a kernel; the message is the reason."""


def not_applicable(why: str) -> NoReturn:
    """Leave the kernel to the next rule, for the given reason."""
    raise RuleNotApplicable(why)


Facts = TypeVar("Facts")
T = TypeVar("T")
Bounds = tuple[int, int | None]  # the least and the greatest value of a size, None: any


class AnyKernel(Generic[Facts]):
    """A function that a rule schedules through `sch`, with the facts of the machine.

    Stages are looked up anew after each step.
    """

    def __init__(
        self, sch: Schedule, name: str, facts: Facts, constants: frozenset[int] = frozenset(),
        sizes: Mapping[str, Bounds] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self.sch, self.name, self.facts, self._constants, self._sizes = sch, name, facts, constants, sizes
        self.notes: list[str] = []  # descriptions of the choices, for reports
        self.offers: list[TuningChoice] = []  # choices in order
        self._requested = RequestedChoices()
        self._steps = len(sch.trace)  # steps before the rule
        self._memo: dict[str, tuple[Schedule, Any]] = {}  # shared by the kernels of all rules

    @staticmethod
    def of(
        func: tir.PrimFunc, name: str, facts: Facts, constants: frozenset[int] = frozenset(),
        sizes: Mapping[str, Bounds] = MappingProxyType({}),
    ) -> AnyKernel[Facts]:  # fmt: skip
        """Return the kernel of an unscheduled function.

        `constants` are the parameters for which every caller gives constants, `sizes` the bounds of unknown sizes, by
        name, that choices may rely on.
        """
        sch = Schedule(IRModule({name: func}))
        sch.work_on(name)
        return AnyKernel(sch, name, facts, constants, sizes)

    def copy_for_rule(self, requested: RequestedChoices | None = None) -> AnyKernel[Facts]:
        """Return a copy of the kernel for another rule, with the requested choices."""
        kernel = AnyKernel(self.sch.copy(), self.name, self.facts, self._constants, self._sizes)
        kernel.notes += self.notes
        kernel._memo = self._memo
        kernel._requested = requested or self._requested
        return kernel

    def memoized(self, name: str, step: Callable[[], T]) -> T:
        """Run a first `step` that several rules share on an unscheduled kernel; memoize its schedule and result.

        Other rules reuse both. `name` identifies the step. A kernel that has steps already runs it anew.
        """
        if len(self.sch.trace) != self._steps:
            return step()
        if name in self._memo:
            sch, result = self._memo[name]
            self.sch = sch.copy()
            return result  # type: ignore[no-any-return]
        result = step()
        self._memo[name] = (self.sch.copy(), result)
        return result

    def say(self, choice: str) -> None:
        """Record a choice and its reason, for reports."""
        self.notes.append(choice)

    def choose(self, name: str, about: str, options: Mapping[int, float] | Sequence[int], group: str = "") -> int:
        """Choose one of `options`: the first, unless another is requested. A single option is not recorded as a choice.

        `options` may map each option to the expected time of the whole kernel, relative to one another. `name` is an
        identifier; a second choice of the same name, say for another stage, gets a numbered one. `group`: see
        `TuningChoice`.
        """
        costs = options if isinstance(options, Mapping) else dict.fromkeys(options, UNRATED_COST)
        numbers = tuple(costs)
        if len(numbers) == 1:
            return numbers[0]
        same_named = sum(o.name == name or o.name.startswith(f"{name}_") for o in self.offers)
        name = f"{name}_{same_named + 1}" if same_named else name
        first_cost = costs[numbers[0]] if isinstance(options, Mapping) else 1.0
        relative = (1.0, *(costs[n] / first_cost for n in numbers[1:]))
        chosen = self._requested.choices.get(name, numbers[0])
        self.offers.append(
            TuningChoice(name, numbers, relative, chosen if chosen in numbers else numbers[0], about, group)
        )
        return self.offers[-1].taken

    def choose_bool(self, name: str, about: str, guess: bool, other: float = UNRATED_COST) -> bool:
        """Choose yes (1) or no (0). `other` is the expected time, relative to the guess, if the guess is not taken."""
        return bool(self.choose(name, about, {int(guess): 1.0, int(not guess): other}))

    def prefer_next_rule(self, why: str) -> None:
        """Leave the kernel to the next rule, unless this rule was requested by name."""
        if not self._requested.named:
            not_applicable(why)

    def checkpoint(self) -> Callable[[], None]:
        """Return a function that restores the kernel's present state."""
        sch, note_count, offer_count = self.sch.copy(), len(self.notes), len(self.offers)

        def restore() -> None:
            self.sch = sch
            del self.notes[note_count:], self.offers[offer_count:]

        return restore

    # ------------------------------------------------------------ analysis

    @property
    def func(self) -> tir.PrimFunc:
        return self.sch.state.func(self.name)

    def stages(self) -> list[Stage]:
        """Return the blocks in order, as they are now."""
        tree = self.sch.state.tree(self.name)
        root = tree.root
        assert root is not None
        return [_stage(tree, r) for r in tree.child_realizes(root.body)]

    def stage(self, block: BlockRV) -> Stage:
        """Return a block as it is now."""
        tree = self.sch.state.tree(self.name)
        return _stage(tree, tree.realize(self.sch.get(block)))

    def stage_of(self, block: tir.Block) -> Stage | None:
        """Return an outermost block of the function as it is now, None for another block."""
        tree = self.sch.state.tree(self.name)
        return _stage(tree, tree.realize(block)) if tree.scope(block) is tree.root else None

    def consumers(self, stage: Stage) -> list[tir.Block]:
        """Return the blocks that read what a stage writes."""
        return consumers(self.sch.state.tree(self.name), stage.block)

    def producers(self, stage: Stage) -> list[tir.Block]:
        """Return the blocks that write what a stage reads."""
        return producers(self.sch.state.tree(self.name), stage.block)

    def is_output(self, stage: Stage) -> bool:
        """Return True if a stage writes a buffer that is visible to the caller."""
        tree = self.sch.state.tree(self.name)
        assert tree.root is not None
        return is_output(tree, stage.block, tree.root)

    def is_constant(self, buffer: tir.Buffer) -> bool:
        """Return True if a buffer is a parameter whose value is known at compile time.

        Values computed from such buffers alone cost nothing at run time.
        """
        return any(self.func.buffers[n] is buffer for n in self._constants)

    def bounds(self, extent: tir.Expr) -> Bounds:
        """Return the least and the greatest value (None: any) that an extent has in calls of the kernel."""
        known = tir.const_int(extent)
        if known is not None:
            return known, known
        return self._sizes.get(extent.name, (0, None)) if isinstance(extent, tir.Var) else (0, None)

    def bounds_of_loops(self, stage: Stage, positions: Sequence[int]) -> Bounds:
        """Return the least and the greatest number of iterations (None: any) of some loops of a stage together."""
        lows, highs = zip((1, 1), *(self.bounds(stage.loops[n].extent) for n in positions), strict=True)
        return prod(lows), None if None in highs else prod(highs)

    # ------------------------------------------------------------ handles

    def blocks(self) -> list[BlockRV]:
        """Return handles of all blocks in order, looked up by name, or by position if several share a name."""
        names = [s.block.name for s in self.stages()]
        if len(set(names)) == len(names) and "root" not in names:
            return [self.sch.get_block(name, func_name=self.name) for name in names]
        root = self.sch.get_block("root", func_name=self.name)
        return self.sch.get_child_blocks(root)

    def fused(self, loops: list[LoopRV]) -> LoopRV:
        """Fuse several loops into one."""
        return self.sch.fuse(*loops) if len(loops) > 1 else loops[0]

    def loops(self, block: BlockRV) -> list[LoopRV]:
        return self.sch.get_loops(block)

    def exists(self, handle: BlockRV | LoopRV) -> bool:
        """Return True if a block or loop still exists."""
        try:
            self.sch.get(handle)
        except CompileError:
            return False
        return True


def _stage(tree: Tree, realize: tir.BlockRealize) -> Stage:
    """Return the stage of a block; facts derived about it are cached until a step changes the block or its loops."""
    loops = tuple(tree.loops_above(realize))
    return tree.memoized(("stage", realize, *loops), lambda: Stage(realize, loops))  # type: ignore[no-any-return]


Kernel = AnyKernel[CpuFacts]
GpuKernel = AnyKernel[GpuFacts]
