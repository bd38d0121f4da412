"""The kernel that a rule schedules: one function under its own schedule, and the facts of the machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NoReturn, TypeVar

from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.machine.cpu_tables import CpuFacts
from mlcc.machine.gpu_tables import GpuFacts
from mlcc.passes.auto_schedule.offers import OTHER, Offer, Wanted
from mlcc.passes.auto_schedule.stage import Stage
from mlcc.passes.schedule.analysis.scope import consumers, is_output, producers
from mlcc.passes.schedule.handles import BlockRV, LoopRV
from mlcc.passes.schedule.schedule import Schedule
from mlcc.passes.schedule.tree import Tree


class NotThis(Exception):
    """Raised by a rule that has nothing to say on a kernel; the message is why."""


def not_this(why: str) -> NoReturn:
    """Leave the kernel to the next rule."""
    raise NotThis(why)


Facts = TypeVar("Facts")
T = TypeVar("T")


class AnyKernel(Generic[Facts]):
    """A function that a rule schedules through `sch`; `facts` are the machine's. Stages are looked up anew after
    steps."""

    def __init__(self, sch: Schedule, name: str, facts: Facts, constants: frozenset[int] = frozenset()) -> None:
        self.sch, self.name, self.facts, self._constants = sch, name, facts, constants
        self.used: list[str] = []  # what was done, for whoever asks why
        self.offers: list[Offer] = []  # choices, in the order in which they were made
        self._wanted = Wanted()
        self._steps = len(sch.trace)  # before the rule began
        self._begun: dict[str, tuple[Schedule, Any]] = {}  # shared by the kernels of all rules

    @staticmethod
    def of(func: tir.PrimFunc, name: str, facts: Facts, constants: frozenset[int] = frozenset()) -> AnyKernel[Facts]:
        """Return the kernel of an unscheduled function.

        `constants` are the parameters for which every caller gives constants.
        """
        sch = Schedule(IRModule({name: func}))
        sch.work_on(name)
        return AnyKernel(sch, name, facts, constants)

    def fresh(self, wanted: Wanted | None = None) -> AnyKernel[Facts]:
        """Return a copy of the kernel for another rule, with the choices `wanted` of it."""
        kernel = AnyKernel(self.sch.copy(), self.name, self.facts, self._constants)
        kernel.used += self.used
        kernel._begun = self._begun
        kernel._wanted = wanted or self._wanted
        return kernel

    def begin(self, name: str, step: Callable[[], T]) -> T:
        """Run `step`, with which several rules begin, on an untouched kernel; memoize its schedule and result.

        Other rules take these over. `name` identifies the step. A kernel that has steps already runs it anew.
        """
        if len(self.sch.trace) != self._steps:
            return step()
        if name in self._begun:
            sch, result = self._begun[name]
            self.sch = sch.copy()
            return result  # type: ignore[no-any-return]
        result = step()
        self._begun[name] = (self.sch.copy(), result)
        return result

    def say(self, choice: str) -> None:
        """Note a choice and what it was made from."""
        self.used.append(choice)

    def choose(self, name: str, about: str, options: Mapping[int, float] | Sequence[int], group: str = "") -> int:
        """Choose one of `options`: the first, unless another one is wanted. A single option is no choice.

        `options` may map each option to the expected time of the whole, relative to one another. `name` is an
        identifier; a second choice of that name, for another stage perhaps, gets a number. `group`: see `Offer`.
        """
        costs = options if isinstance(options, Mapping) else dict.fromkeys(options, OTHER)
        numbers = tuple(costs)
        if len(numbers) == 1:
            return numbers[0]
        same = sum(o.name == name or o.name.startswith(f"{name}_") for o in self.offers)
        name = f"{name}_{same + 1}" if same else name
        first = costs[numbers[0]] if isinstance(options, Mapping) else 1.0
        relative = (1.0, *(costs[n] / first for n in numbers[1:]))
        taken = self._wanted.choices.get(name, numbers[0])
        self.offers.append(Offer(name, numbers, relative, taken if taken in numbers else numbers[0], about, group))
        return self.offers[-1].taken

    def either(self, name: str, about: str, guess: bool, other: float = OTHER) -> bool:
        """A choice of yes or no: 1 or 0. `other`: what is expected to become of the time if the guess is not taken."""
        return bool(self.choose(name, about, {int(guess): 1.0, int(not guess): other}))

    def rather_not(self, why: str) -> None:
        """Leave the kernel to the next rule, unless it is this one that somebody wants."""
        if not self._wanted.named:
            not_this(why)

    def checkpoint(self) -> Callable[[], None]:
        """Return a function that restores the kernel's present state."""
        sch, used, offers = self.sch.copy(), len(self.used), len(self.offers)

        def back() -> None:
            self.sch = sch
            del self.used[used:], self.offers[offers:]

        return back

    # ------------------------------------------------------------ looking

    @property
    def func(self) -> tir.PrimFunc:
        return self.sch.state.func(self.name)

    def stages(self) -> list[Stage]:
        """The blocks as they stand, in order."""
        tree = self.sch.state.tree(self.name)
        root = tree.root
        assert root is not None
        return [_stage(tree, r) for r in tree.child_realizes(root.body)]

    def stage(self, block: BlockRV) -> Stage:
        """A block as it stands now."""
        tree = self.sch.state.tree(self.name)
        return _stage(tree, tree.realize(self.sch.get(block)))

    def consumers(self, stage: Stage) -> list[tir.Block]:
        """The blocks that read what a stage writes."""
        return consumers(self.sch.state.tree(self.name), stage.block)

    def producers(self, stage: Stage) -> list[tir.Block]:
        """The blocks that write what a stage reads."""
        return producers(self.sch.state.tree(self.name), stage.block)

    def is_output(self, stage: Stage) -> bool:
        """Return True if a stage writes a buffer that the caller sees."""
        tree = self.sch.state.tree(self.name)
        assert tree.root is not None
        return is_output(tree, stage.block, tree.root)

    def is_constant(self, buffer: tir.Buffer) -> bool:
        """Return True if a buffer is a parameter with a value known at compile time.

        Whatever is computed from such buffers alone costs nothing at run time.
        """
        return any(self.func.buffers[n] is buffer for n in self._constants)

    # ------------------------------------------------------------ handles

    def blocks(self) -> list[BlockRV]:
        """Handles of all blocks in order: by their names, or by their places where several share a name."""
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


def _stage(tree: Tree, realize: tir.BlockRealize) -> Stage:
    """A block as rules look at it. What was found out about it holds until a step changes the block or its loops."""
    loops = tuple(tree.loops_above(realize))
    return tree.fact(("stage", realize, *loops), lambda: Stage(realize, loops))  # type: ignore[no-any-return]


Kernel = AnyKernel[CpuFacts]
GpuKernel = AnyKernel[GpuFacts]
