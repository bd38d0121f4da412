"""Judges of a module at a stage of compilation: its results, its races, its machine code; in processes of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mlcc
from mlcc import backends
from mlcc.errors import CompileError, MlccError, error
from mlcc.interp.graph import GraphInterpreter
from mlcc.interp.graph_values import Tensor
from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.ir.node import find
from mlcc.machine.target import Target
from mlcc.passes.check_each import CheckEach
from mlcc.passes.manage.stages import STEP
from mlcc.reduce.outcomes import OK, describe_crash, run_apart

if TYPE_CHECKING:
    import numpy as np

RACES = ("E0741", "E0742", "E0873")  # the codes of data races
Judgement = str  # OK, or what is wrong in words


@dataclass(frozen=True)
class KernelCall:
    """A call of a kernel: arrays and sizes that it was given, and those arrays after the call."""

    name: str
    arguments: tuple[Any, ...]
    results: tuple[Any, ...]


class Judge:
    """Runs a function of modules on the same arrays, and compares the results with those of the original module.

    The interpreter runs modules that take at most `limit` operations; others are compiled without optimization, with
    checked accesses. Code of GPU kernels is emulated. `seconds` bounds each run. Raises CompileError E0512 for arrays
    that are missing.
    """

    def __init__(
        self, original: IRModule, arrays: Mapping[str, np.ndarray], target: Target, level: int, func: str = "main",
        rtol: float = 1e-4, atol: float = 1e-5, limit: int = 10_000_000, seconds: float = 600.0,
        tell: Callable[[str], None] | None = None,
    ) -> None:  # fmt: skip
        from functools import partial

        from mlcc.driver import run_compiled, run_emulated

        self.arrays, self.func, self.target, self.level = arrays, func, target, level
        self.is_emulated = backends.of(target).emulated
        emulated = partial(run_emulated, target) if self.is_emulated else None
        self._check = CheckEach(arrays, func, rtol, atol, limit, None, run_compiled, emulated)
        self._seconds = seconds
        why_compiled = self._check.choose_runner(original)
        if tell is not None and why_compiled is not None:
            tell(f"`{func}` is compiled without optimization, since {why_compiled}")
        expected = run_apart(lambda: self._expected(original), seconds)
        if isinstance(expected, str):
            raise CompileError(error("E0517", f"`{func}` cannot be run before the first pass: {expected}"))
        if isinstance(expected, MlccError):
            raise expected
        self._check.expected = expected

    def _expected(self, original: IRModule) -> list[np.ndarray] | MlccError:
        try:
            return self._check.results(original)
        except MlccError as exc:
            return exc

    def results(self, module: IRModule) -> Judgement:
        """Judge what a module computes."""
        return self._apart(lambda: self._check.compare(self._check.results(module)) or OK)

    def race(self, module: IRModule) -> Judgement:
        """Judge whether parallel iterations or threads of a module race, by checked code or by emulation.

        A module that cannot be run in this way is taken to have none.
        """
        from mlcc.driver import run_compiled, run_emulated

        def run() -> Judgement:
            arrays, _ = self._check.arguments(module)
            try:
                if self.is_emulated:
                    run_emulated(self.target, module, self.func, arrays)
                else:
                    run_compiled(module, self.func, arrays)
            except MlccError as exc:
                if exc.diagnostics[0].code in RACES:
                    raise
            return OK

        if not self.is_emulated and not any(loop.kind is tir.ForKind.PARALLEL for loop in _loops(module)):
            return OK
        outcome = self._apart(run)
        return outcome if outcome.startswith(RACES) else OK

    def machine_code(self, lowered: IRModule) -> Judgement:
        """Judge the code that is compiled from a lowered module. Raises CompileError if there can be none."""

        def run() -> Judgement | CompileError:
            arguments, written = self._check.arguments(lowered)
            try:
                compiled = self._compiled(lowered)
            except CompileError as refusal:
                return refusal
            returned = compiled[self.func](*arguments)
            return self._check.compare(written or returned) or OK

        return self._apart(run)

    def require_code(self, lowered: IRModule) -> None:
        """Raise CompileError if no code can be generated from a module."""

        def run() -> Judgement | CompileError:
            try:
                mlcc.build(lowered, self.target, self.level, "")
            except CompileError as refusal:
                return refusal
            return OK

        self._apart(run)

    def kernel_code(self, lowered: IRModule, call: KernelCall) -> Judgement:
        """Judge the code of one kernel by a call that the interpreter recorded; OK if it cannot be compiled alone."""

        def run() -> Judgement:
            arguments = [a.copy() if hasattr(a, "copy") else a for a in call.arguments]
            try:
                compiled = self._compiled(alone(lowered, call.name))
            except CompileError:
                return OK
            compiled[call.name](*arguments)
            return self._check.difference(arguments, call.results) or OK

        return self._apart(run)

    def kernel_calls(self, lowered: IRModule) -> list[KernelCall]:
        """Return the first call of each kernel of a lowered module, in the order of the interpreter."""
        recorded = run_apart(lambda: self._record(lowered), self._seconds)
        return recorded if isinstance(recorded, list) else []

    # ------------------------------------------------------------ helpers

    def _apart(self, job: Callable[[], Judgement | CompileError]) -> Judgement:
        """Run a job in a process of its own; raise the CompileError that it returns."""

        def judged() -> Judgement | CompileError:
            try:
                return job()
            except MlccError as exc:
                first = exc.diagnostics[0]
                return f"{first.code}: {first.message}"
            except Exception as exc:  # noqa: BLE001 - what is looked for
                return describe_crash(exc)

        outcome = run_apart(judged, self._seconds)
        if isinstance(outcome, CompileError):
            raise outcome
        return str(outcome)

    def _compiled(self, lowered: IRModule) -> Any:
        from mlcc.loading import load

        return load(mlcc.build(lowered, self.target, self.level, ""), emulate=self.is_emulated)

    def _record(self, lowered: IRModule) -> list[KernelCall]:
        from mlcc.interp.graph_values import from_python
        from mlcc.interp.prim_func import interpreter_context
        from mlcc.passes.lowering.narrow_floats import promote_module

        func = lowered[self.func]
        arguments, _ = self._check.arguments(lowered)
        if isinstance(func, tir.PrimFunc):
            from mlcc.interp import run_function

            before = tuple(a.copy() if hasattr(a, "copy") else a for a in arguments)
            run_function(promote_module(lowered), self.func, arguments)
            return [KernelCall(self.func, before, tuple(arguments))]
        with interpreter_context():
            recorder = _Recorder(promote_module(lowered))
            values = [from_python(a, p.struct_info) for a, p in zip(arguments, func.params, strict=True)]
            recorder.call(func, values, {}, {})
        return list(recorder.calls.values())


class _Recorder(GraphInterpreter):
    """Runs a module and records the first call of each kernel."""

    def __init__(self, module: IRModule) -> None:
        super().__init__(module, {})
        self.calls: dict[str, KernelCall] = {}
        self._names = {func: name for name, func in module.functions.items() if isinstance(func, tir.PrimFunc)}

    def run_kernel(self, func: tir.PrimFunc, args: list[Any], outputs: Sequence[Any], call: relax.Call) -> Any:
        name = self._names.get(func)
        if name is None or name in self.calls:
            return super().run_kernel(func, args, outputs, call)
        before = _copied([*args, *outputs])
        returned = super().run_kernel(func, args, outputs, call)
        self.calls[name] = KernelCall(name, before, _copied([*args, *outputs]))
        return returned


def _copied(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(v.stored().copy() if isinstance(v, Tensor) else v for v in values)


def alone(module: IRModule, name: str) -> IRModule:
    """Return a module of one function, which is public there, and those that it refers to."""
    from mlcc.relax.queries import callees

    kept = {name: module[name].with_attr("global_symbol", name)}
    worklist = [module[name]]
    while worklist:
        for other in callees(worklist.pop()):
            if other in module.functions and other not in kept:
                kept[other] = module[other]
                worklist.append(module[other])
    return IRModule(kept, module.attrs, module.name, module.global_infos)


def is_lowered(module: IRModule) -> bool:
    """Return True if steps of lowering have run on a module."""
    return STEP in module.attrs


def _loops(module: IRModule) -> list[tir.For]:
    functions = [f for f in module.functions.values() if isinstance(f, tir.PrimFunc)]
    return [loop for func in functions for loop in find(func, tir.For) if isinstance(loop, tir.For)]
