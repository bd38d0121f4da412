"""`Schedule`: a module transformed step by step; each step is checked, undone if refused, and recorded."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from mlcc.backends import LazyFunction
from mlcc.errors import CompileError, Diagnostic, Label, Span, did_you_mean, error
from mlcc.grammar.printer.highlight import print_highlighted
from mlcc.ir import relax, tir
from mlcc.ir.module import Func, IRModule
from mlcc.passes.schedule import registry
from mlcc.passes.schedule.handles import BlockRV, ExprRV, Handle, LoopRV
from mlcc.passes.schedule.nest import render_nest
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.registry import describe
from mlcc.passes.schedule.state import BlockRef, LoopRef, State
from mlcc.passes.schedule.step_memo import StepNode, step_key
from mlcc.passes.schedule.trace import Instruction, Trace
from mlcc.recursion import FRAMES_WITH_C, deep_recursion

if TYPE_CHECKING:
    from mlcc.machine.target import Target
    from mlcc.passes.schedule.methods import Primitives
else:
    Primitives = object  # the primitives are set below


class Schedule(Primitives):
    """A schedule of a module's TensorIR functions, to which primitives are applied. The module given is not changed.

    Every primitive is a method (`sch.split(loop, factors=[None, 4])`); a step that would change what the program
    computes, or cannot be done, raises CompileError and leaves the schedule as it was. TVM: `s_tir.Schedule`.

    >>> sch = Schedule(mod)
    >>> i, j = sch.get_loops(sch.get_block("B"))
    """

    def __init__(self, mod: IRModule | Func, *, seed: int | None = None) -> None:
        """Create a schedule. `seed` makes sampling reproducible; None, or a negative seed, does not."""
        if not isinstance(mod, (IRModule, tir.PrimFunc, relax.Function)):
            raise TypeError(f"a schedule needs a module or a function (`mlcc.parse(text)`), not {describe(mod)}")
        module = mod if isinstance(mod, IRModule) else IRModule.from_expr(mod)
        self._state = State(module, seed)
        self._trace = Trace()
        self._memo_node: StepNode | None = None  # where it shares steps with others

    def __repr__(self) -> str:
        return f"<Schedule of {', '.join(self._state.module.functions)}: {len(self._trace)} steps>"

    # ------------------------------------------------------------ what it is

    @property
    def mod(self) -> IRModule:
        """The module as transformed so far (a shallow copy)."""
        return self._state.module.copy()

    @property
    def state(self) -> State:
        return self._state

    @property
    def trace(self) -> Trace:
        """Every step so far; a script when printed."""
        return self._trace

    @property
    def func_working_on(self) -> str | None:
        """Return the function that look-ups use by default."""
        return self._state.working_on

    def copy(self) -> Schedule:
        """An independent schedule in the same state; handles are good in both. Cheap. The seed is forked."""
        clone = object.__new__(Schedule)
        clone._state = self._state.copy()
        clone._state.random.seed(self._state.random.fork())
        clone._trace = self._trace.copy()
        clone._memo_node = self._memo_node
        return clone

    __copy__ = copy

    def __deepcopy__(self, memo: object) -> Schedule:
        return self.copy()

    def share_steps(self) -> None:
        """Share steps with the copies of this schedule: equal steps from an equal state are done once.

        The results are kept as long as this schedule.
        """
        self._memo_node = StepNode()

    def seed(self, seed: int) -> None:
        """Restart the random engine."""
        self._state.random.seed(seed)

    def fork_seed(self) -> int:
        """A seed for another schedule."""
        return self._state.random.fork()

    def work_on(self, func_name: str) -> None:
        """Make look-ups without a function name mean `func_name`."""
        try:
            if func_name is None:
                raise Refusal("E0613", "`func_name` is the name of a function, not None")
            self._state.working_on = self._function_name(func_name)
        except Refusal as exc:
            raise CompileError(self._diagnostic("work_on", exc, self._state, None)) from None

    def get(self, handle: Handle | int) -> Any:
        """Return the `Block`, `For` or int that a handle names. Raises CompileError for one that no longer exists."""
        try:
            match handle:
                case BlockRV():
                    return self._state.find_block(handle).block
                case LoopRV():
                    ref = self._state.find_loop(handle)
                    return ref if isinstance(ref, str) else ref.loop
                case ExprRV() | int():
                    return self._state.value(handle)
        except Refusal as exc:
            raise CompileError(self._diagnostic("get", exc, self._state, None)) from None
        raise TypeError(f"not a handle of a schedule: {handle!r}")

    def remove_rv(self, handle: Handle) -> None:
        """Forget a handle. Raises CompileError for one that the schedule does not have."""
        try:
            self._state.forget(handle)
        except Refusal as exc:
            raise CompileError(self._diagnostic("remove_rv", exc, self._state, None)) from None

    def show(self) -> None:
        """Print the module and the trace, highlighted on a terminal."""
        self.mod.show()
        print_highlighted(f"{self.trace}\n")

    def nest(self, func_name: str | None = None) -> str:
        """The loops and blocks of a function (or of all) as a few lines of text."""
        try:
            chosen = None if func_name is None else self._function_name(func_name)
        except Refusal as exc:
            raise CompileError(self._diagnostic("nest", exc, self._state, None)) from None
        names = [n for n, f in self._state.module.functions.items() if isinstance(f, tir.PrimFunc)]
        return "\n".join(render_nest(self._state.func(n), n) for n in names if chosen in (None, n))

    def _function_name(self, name: Any) -> str:
        """Return the name of a TensorIR function. Refuse (E0613, E0616) other values."""
        if name is not None and not isinstance(name, str):
            raise Refusal("E0613", f"`func_name` is the name of a function, not {describe(name)}")
        return self._state.function_name(name)

    # ------------------------------------------------------------ steps

    def call(
        self, name: str, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None, span: Span | None = None
    ) -> Any:
        """Apply the primitive `name`. `span` is its place in a script. Raises CompileError."""
        before, trace_length = self._state, len(self._trace)
        try:
            with deep_recursion(FRAMES_WITH_C):
                if self._memo_node is None:
                    return self._call(name, args, kwargs or {})
                return self._call_memoized(self._memo_node, name, args, kwargs or {})
        except BaseException as exc:
            now, self._state = self._state, before
            del self._trace.insts[trace_length:]
            if isinstance(exc, Refusal):
                raise CompileError(self._diagnostic(name, exc, now, span)) from None
            if isinstance(exc, RecursionError):
                raise CompileError(error("E0602", f"sch.{name}: the loops are nested too deep", span)) from None
            raise

    def schedule_by_rule(
        self, rule: str | None = None, choices: Mapping[str, int | ExprRV] | None = None,
        func_name: str | None = None, *, target: Target | str,
    ) -> None:  # fmt: skip
        """Schedule a function that nobody has touched by a rule of `auto-schedule`, for a target.

        docs/auto-schedule.md lists the rules. `choices` take the place of the rule's best guesses, by name; None as
        `rule` is the first that takes the function, with its best guesses. The steps of the rule are recorded, not
        this one. Raises CompileError: E0697 for a function that somebody has scheduled, E0698 for a rule that does
        not take it, E0699 for a choice that is not offered.
        """
        if choices and rule is None:
            raise CompileError(error("E0698", "sch.schedule_by_rule: choices need a rule", help="name the rule"))
        before, trace_length, memo_node = self._state, len(self._trace), self._memo_node
        try:
            name = self._function_name(func_name)
            # rules depend on schedules, so they are imported late
            LazyFunction("mlcc.passes.auto_schedule.by_rule:schedule_by_rule")(self, name, rule, choices, target)
        except Refusal as exc:
            raise CompileError(self._diagnostic("schedule_by_rule", exc, self._state, None)) from None
        except BaseException:
            self._state, self._memo_node = before, memo_node
            del self._trace.insts[trace_length:]
            raise

    def inline_together(self, blocks: Sequence[BlockRV]) -> bool:
        """Apply `compute_inline` to blocks, each with one reader that loads one element, in one pass over the function.

        The trace has a step for each. Returns False, and changes nothing, where one is refused, or where schedules
        share the results of single steps.
        """
        if self._memo_node is not None:
            return False
        # primitives are imported when one is first used
        inline = LazyFunction("mlcc.passes.schedule.primitives.inline:inline_all_into_consumers")
        state = self._state.copy()
        state.primitive = "compute_inline"
        try:
            with deep_recursion(FRAMES_WITH_C):
                inline(state, [state.find_block(b) for b in blocks])
        except (Refusal, RecursionError):
            return False
        state.primitive = ""
        for block in blocks:
            self._trace.append(Instruction("compute_inline", {"block": block}, (), ()))
        self._state = state
        return True

    def _step(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        return self.call(name, args, kwargs)

    def _call_memoized(self, node: StepNode, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Apply a primitive, or reuse its result on another schedule in the same state."""
        step = step_key(name, args, kwargs)
        memo = None if step is None else node.find(step)
        if memo is not None:
            self._state, self._memo_node = memo.state.copy(), memo.node
            self._trace.insts += memo.insts
            outputs = memo.outputs
        else:
            before = len(self._trace)
            outputs = self._call(name, args, kwargs)
            insts = self._trace.insts[before:]
            if insts:  # else it only looked
                self._memo_node = None if step is None else node.keep(step, self._state.copy(), insts, outputs)
        return [*outputs] if isinstance(outputs, list) else outputs

    def _call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        primitive = registry.find(name)
        given = registry.bind(primitive, args, kwargs)
        given = self._blocks_by_name(primitive, given)
        state = self._state.copy()
        state.primitive = primitive.name
        rest, by_name = registry.convert(primitive, state, given)
        result = primitive.run(state, *rest, **by_name)
        if not primitive.traced:
            return result
        outputs = _outputs(state, primitive.returns, result)
        recorded = {**given, **state.recorded}
        star = [p for p, v in primitive.signature.parameters.items() if v.kind is v.VAR_POSITIONAL]
        star_values: tuple[Any, ...] = recorded.pop(star[0]) if star else ()
        if len(star_values) == 1 and isinstance(star_values[0], (list, tuple)):
            star_values = tuple(star_values[0])
        listed = tuple(outputs) if isinstance(outputs, list) else () if outputs is None else (outputs,)
        state.recorded, state.primitive = {}, ""
        self._trace.append(Instruction(primitive.name, recorded, star_values, listed, not isinstance(outputs, list)))
        self._state = state
        return outputs

    def _blocks_by_name(self, prim: registry.Primitive, given: dict[str, Any]) -> dict[str, Any]:
        """Replace block names in arguments by handles; each look-up is recorded as a `get_block`."""
        for key, value in given.items():
            annotation = prim.signature.parameters[key].annotation
            if isinstance(value, str) and annotation.startswith("BlockRef"):
                given = {**given, key: self._call("get_block", (value,), {})}
            elif isinstance(value, (list, tuple)) and annotation.startswith("list[BlockRef]"):
                blocks = [self._call("get_block", (v,), {}) if isinstance(v, str) else v for v in value]
                given = {**given, key: blocks}
        return given

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """A primitive that was registered after this class was made."""
            if name in registry.names():
                return partial(self._step, name)
            hint = None if name.startswith("_") else did_you_mean(name, registry.names())
            raise AttributeError(f"'Schedule' object has no attribute '{name}'" + (f"; {hint}" if hint else ""))

    def _diagnostic(self, name: str, exc: Refusal, state: State, span: Span | None) -> Diagnostic:
        related = []
        for func_name, func in state.module.functions.items():
            if isinstance(func, tir.PrimFunc):
                tree = state.tree(func_name)
                marked = [n for n in exc.at if n in tree]
                if marked:
                    nest = "\n    ".join(render_nest(func, func_name, marked).splitlines())
                    related.append(Label(None, f"the loop nest\n    {nest}"))
        return error(exc.code, f"sch.{name}: {exc.message}", span, related=tuple(related), help=exc.help)


def _outputs(state: State, returns: str, result: Any) -> Any:
    if result is None:
        return None
    if isinstance(result, (list, tuple)):
        return [_outputs(state, returns, r) for r in result]
    if isinstance(result, BlockRef):
        return state.new_block(result.func_name, result.block)
    if isinstance(result, LoopRef):
        return state.new_loop(result.func_name, result.loop.var)
    if isinstance(result, str):
        return state.new_loop("", result)
    if returns == "exprs" and isinstance(result, int):
        return state.new_value(result)
    raise AssertionError(f"a primitive returned {result!r}")


class _Method:
    """A primitive as a method. Its documentation and parameters are those of the primitive, read when asked for."""

    def __init__(self, name: str) -> None:
        self.__name__ = name
        self.__qualname__ = f"Schedule.{name}"

    def __get__(self, sch: Schedule | None, owner: type) -> Any:
        return self if sch is None else partial(sch._step, self.__name__)

    def __call__(self, sch: Schedule, *args: Any, **kwargs: Any) -> Any:
        return sch.call(self.__name__, args, kwargs)

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        return registry.find(self.__name__).doc

    @property
    def __signature__(self) -> inspect.Signature:
        return registry.find(self.__name__).signature


for _name in (*registry.names(), *registry.ALIASES):
    if not hasattr(Schedule, _name):
        setattr(Schedule, _name, _Method(_name))
