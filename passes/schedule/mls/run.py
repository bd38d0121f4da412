"""Schedule scripts (`.mls`): the language that traces are printed in, run on a `Schedule`."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mlcc.errors import CompileError, Label, Source, Span
from mlcc.grammar.parser import refuse_path
from mlcc.grammar.syntax import tree
from mlcc.grammar.syntax.reader import parse_syntax
from mlcc.ir import tir
from mlcc.ir.module import Func, IRModule
from mlcc.ir.visit import used_vars
from mlcc.passes.schedule import registry
from mlcc.passes.schedule.handles import BlockRV, ExprRV, LoopRV
from mlcc.passes.schedule.mls.builtins import invoke
from mlcc.passes.schedule.mls.statements import Script
from mlcc.passes.schedule.mls.values import CALL_COST, MAX_LOOPS, ScriptError
from mlcc.passes.schedule.schedule import Schedule
from mlcc.recursion import FRAMES_WITH_C, deep_recursion

Show = Callable[[str], None]


def apply_schedule(
    mod: IRModule | Func, script_text: str, name: str = "<script>", *, seed: int | None = 0, folder: str = "."
) -> IRModule:
    """Return the module after a schedule script, or a trace printed by TVM; the given module is not changed.

    With `seed=None` sampling differs from run to run. Files that the script names are looked for in `folder`. Raises
    CompileError with the place in the script.
    """
    schedule = Schedule(mod, seed=seed)
    if not isinstance(script_text, str):
        raise TypeError(f"a schedule script must be a string, not {registry.describe(script_text)}")
    refuse_path(script_text, model=False)
    run_script(schedule, Source(name, script_text), folder=folder)
    return schedule.mod


def run_script(
    schedule: Schedule, source: Source, *, folder: str = ".", confined: bool = False,
    show: Show | None = None, after: Callable[[Span], None] | None = None,
) -> list[tuple[str, str]]:  # fmt: skip
    """Run a script on a schedule, which keeps the steps before one that fails.

    Returns the tensor intrinsics that it registered, by name and file: its trace needs them too.
    `show` is given what `sch.show()` shows; `after` the place of each statement that applied primitives, once it ran.
    A `confined` script reads no file outside `folder`. Raises CompileError.
    """
    text = parse_syntax(source, start="script")
    steps = _ScriptInterface(schedule, folder, confined, show)

    def watch(stmt: tree.Stmt) -> None:
        if after is not None:
            after(Span(source, stmt.start, stmt.end))

    with deep_recursion(FRAMES_WITH_C):
        Script(source, steps, watch if after is not None else None).run(text)
    return steps.intrinsics


class _ScriptInterface:
    """The operations on a schedule that are available to scripts: mostly primitives."""

    def __init__(self, schedule: Schedule, folder: str, confined: bool, show: Show | None) -> None:
        self._schedule, self._folder, self._confined, self._show = schedule, folder, confined, show
        self.intrinsics: list[tuple[str, str]] = []
        self._known_sizes: dict[str, tuple[tir.PrimFunc, int]] = {}  # functions, with how many loops and blocks

    def primitives(self) -> list[str]:
        return [*registry.names(), *registry.ALIASES, *METHODS]

    def call(self, name: str, args: list[Any], kwargs: dict[str, Any], span: Span) -> Any:
        method = METHODS.get(name)
        try:
            if method is None:
                result = self._schedule.call(name, tuple(args), kwargs, span)
                self._check_nesting(name)
                return result
            return invoke(f"sch.{name}", method, self, args, kwargs)
        except CompileError as exc:
            if method is None:
                raise
            raise CompileError([replace(d, primary=Label(span)) for d in exc.diagnostics]) from None

    def _check_nesting(self, name: str) -> None:
        """Raise Wrong if a step made a nest that is too deep."""
        state = self._schedule.state
        for func_name, func in state.module.functions.items():
            if not isinstance(func, tir.PrimFunc) or self._known_sizes.get(func_name, (None, 0))[0] is func:
                continue
            tree = state.tree(func_name)
            depths: dict[int, int] = {}
            for loop in tree.loops:  # outer ones first
                above = tree.parent(loop)
                while above is not None and not isinstance(above, tir.For):
                    above = tree.parent(above)
                depths[id(loop)] = 1 + (depths[id(above)] if above is not None else 0)
            if max(depths.values(), default=0) > MAX_LOOPS:
                raise ScriptError("E0602", f"sch.{name}: the loops are nested more than {MAX_LOOPS} deep")
            self._known_sizes[func_name] = (func, len(tree.loops) + len(tree.realizes))

    def cost(self) -> int:
        return CALL_COST + max((size for _, size in self._known_sizes.values()), default=0)

    def name_of(self, value: Any) -> str | None:
        if not isinstance(value, (LoopRV, BlockRV)):
            return None
        try:
            node = self._schedule.get(value)
        except CompileError:
            return None
        if isinstance(node, tir.For):
            return node.var.name
        return node.name if isinstance(node, tir.Block) else str(node)  # "inline" or "root"

    def size_named(self, name: str) -> tir.Var | None:
        state = self._schedule.state
        funcs = {n: f for n, f in state.module.functions.items() if isinstance(f, tir.PrimFunc)}
        chosen = [funcs[state.working_on]] if state.working_on in funcs else [*funcs.values()]
        sizes = {
            var
            for func in chosen
            for var in (*func.params, *used_vars(tuple(n for b in func.buffers if b is not None for n in b.shape)))
            if var.name == name and var.dtype.is_int
        }
        return sizes.pop() if len(sizes) == 1 else None

    def register_intrinsic(self, name: str, file: str, span: Span) -> None:
        from mlcc.passes.schedule.tensor_intrin import register

        path = os.path.join(self._folder, file)
        try:
            if self._confined:
                register(self._schedule, name, file=file, folder=self._folder)
            else:
                register(self._schedule, name, file=path)
        except CompileError as exc:
            placed = [d if d.primary.span is not None else replace(d, primary=Label(span)) for d in exc.diagnostics]
            raise CompileError(placed) from None
        self.intrinsics.append((name, path))

    # ------------------------------------------------------------ methods of a schedule that are not primitives

    def _get(self, handle: Any) -> Any:
        if not isinstance(handle, (BlockRV, LoopRV, ExprRV, int)):
            raise ScriptError("E0613", "sch.get takes a loop, a block or a sampled value")
        return self._schedule.get(handle)

    def _work_on(self, func_name: Any) -> None:
        if not isinstance(func_name, str):
            raise ScriptError("E0613", "sch.work_on takes the name of a function")
        self._schedule.work_on(func_name)

    def _by_rule(self, *args: Any, **kwargs: Any) -> None:
        invoke("sch.schedule_by_rule", Schedule.schedule_by_rule, self._schedule, [*args], kwargs)
        self._check_nesting("schedule_by_rule")

    def _seed(self, seed: Any) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise ScriptError("E0613", "sch.seed takes an integer")
        self._schedule.seed(seed)

    def _print(self) -> None:
        if self._show is not None:
            self._show(self._schedule.mod.script())


METHODS: dict[str, Callable[..., Any]] = {
    "get": _ScriptInterface._get, "work_on": _ScriptInterface._work_on, "seed": _ScriptInterface._seed,
    "show": _ScriptInterface._print, "schedule_by_rule": _ScriptInterface._by_rule,
}  # fmt: skip
