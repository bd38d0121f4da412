"""Stages of lowering, and the base of its passes.

A module says in its attributes how far its PrimFuncs are lowered: `mlcc.stage` is the form that they have, `mlcc.step`
the last step that made it, `mlcc.target` for what. A step runs once, and right behind the one before it in the list:
what it is given tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from mlcc import backends
from mlcc.errors import CompileError, Diagnostic, Label, Severity, did_you_mean, error
from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.ir.node import Attrs
from mlcc.ir.versions import cpu_of
from mlcc.machine.target import Target
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.versions import version_options
from mlcc.passes.manage.manager import Pass, PassContext, Pipeline, all_findings, pass_class
from mlcc.passes.manage.stages import BLOCKS, SANITIZED, STAGE, STEP, TARGET, stage_of
from mlcc.recursion import deep_recursion


def remaining_steps(module: IRModule, kind: str, sanitize: bool = False) -> tuple[str, ...]:
    """Return the lowering steps of a kind of target that a module has still to go through.

    With `sanitize` the steps are those of code with checked accesses, which start from any stage. Raises CompileError
    E0546 if the module was lowered for another kind, E0545 if its attributes contradict one another.
    """
    last = module.attrs.get(STEP)
    backend = backends.get(kind)
    steps = _steps_of(module, kind)
    _check_attributes(module, last)
    before = lowered_for(module)
    if last is not None and (last not in steps or (before is not None and before.kind != kind)):
        what = f"`{last}` is not a step for {kind}" if before is None else f"for {before}, not for {kind}"
        message = f"the module was lowered for another target: {what}"
        raise CompileError(error("E0546", message, help=f"lower the original module with -t {kind}"))
    if sanitize and not module.attrs.get(SANITIZED):
        return backend.sanitizing
    return steps if last is None else steps[steps.index(str(last)) + 1 :]


def _steps_of(module: IRModule, kind: str) -> tuple[str, ...]:
    """Return the steps of a kind of target that the module follows: with checked accesses, or the usual ones."""
    backend = backends.get(kind)
    return backend.sanitizing if module.attrs.get(SANITIZED) else backend.lowering


def _all_steps(backend: backends.Backend[Any]) -> tuple[str, ...]:
    return (*backend.lowering, *backend.sanitizing)


def _check_attributes(module: IRModule, last: object) -> None:
    """Raise CompileError E0545 unless `last` is a lowering step whose result has the stage of the module."""
    stage = stage_of(module)
    names = {name: None for backend in backends.registered_backends() for name in _all_steps(backend)}
    if last is not None and last not in names:
        help = did_you_mean(str(last), names)
        raise CompileError(error("E0545", f"`{STEP}` is `{last}`, which is not a lowering step", help=help))
    step = None if last is None else pass_class(str(last))
    gives = step.gives if step is not None and issubclass(step, LoweringStep) else BLOCKS
    if stage != gives:
        steps = "no lowering step" if last is None else f"`{last}`"
        message = f"`{STAGE}` is `{stage}`, but after {steps} (`{STEP}`) it must be `{gives}`"
        raise CompileError(error("E0545", message))
    if module.attrs.get(SANITIZED) and not any(
        last in backend.sanitizing for backend in backends.registered_backends()
    ):
        steps = "no lowering step" if last is None else f"`{last}`"
        message = f"`{SANITIZED}` is set, but after {steps} (`{STEP}`) no accesses are checked"
        raise CompileError(error("E0545", message))


def lowered_for(module: IRModule) -> Target | None:
    """Return the target that a module has been lowered for so far, or None. Raises CompileError (E0790 to E0793)."""
    text = module.attrs.get(TARGET)
    return None if text is None else Target.parse(str(text))


def lowering_option_mismatch(module: IRModule, target: Target) -> list[Diagnostic]:
    """Return the warning (W0304) if the module was lowered with options that differ from those of `target`."""
    before = lowered_for(module)
    if before is None or before.kind != target.kind or module.attrs.get(SANITIZED):
        return []
    options = backends.of(target).lower_options
    if options(before) == options(target):
        return []
    message = f"the module was lowered for {before}, but code is generated for {target}"
    return [replace(error("W0304", message, help=f"pass -t '{before}'"), severity=Severity.WARNING)]


def reached(module: IRModule, stage: str, step: str, target: Target | None = None) -> IRModule:
    """Return the module with `step` and `stage` in its attributes, and the target unless it already names one."""
    result = module.copy()
    known = {} if target is None else {TARGET: str(target)}
    result.attrs = Attrs({**known, **module.attrs, STAGE: stage, STEP: step})
    return result


def with_lowering(pipeline: Pipeline, module: IRModule, kind: str, sanitize: bool = False) -> Pipeline:
    """Return a pipeline completed with the lowering steps that it leaves out at its end.

    If its text starts from blocks, the passes that come before lowering are added too. `sanitize`: lower to code with
    checked accesses; implied if the pipeline has the first step of that. Raises CompileError E0546.
    """
    passes = pipeline.passes
    backend = backends.get(kind)
    enters = [at for at, one in enumerate(passes) if one.name in backend.sanitizing[:1]]
    left = remaining_steps(module, kind, sanitize or bool(enters))
    all_left = bool(left) and left in (backend.lowering, backend.sanitizing)
    start = 0
    if all_left and left == backend.sanitizing:  # steps that other code goes through as well count from there
        start = enters[0] if enters else len(passes)
    run = [at for at, one in enumerate(passes) if at >= start and one.name in left]
    whole = Pipeline.parse(backend.pipeline_of_steps(left)).passes if all_left else ()
    if not run:
        return Pipeline((*passes, *(whole or Pipeline.parse(",".join(left)).passes)))
    named = {one.name for one in passes}
    first = (one for one in whole if one.name not in left and one.name not in named)
    last = max(left.index(passes[at].name) for at in run)
    rest = Pipeline.parse(",".join(left[last + 1 :])).passes
    return Pipeline((*passes[: run[0]], *first, *passes[run[0] :], *rest))


def placed(diagnostic: Diagnostic, func: tir.PrimFunc) -> Diagnostic:
    """Return the diagnostic, located at the function if it has no location."""
    return (
        diagnostic
        if diagnostic.primary.span
        else replace(diagnostic, primary=Label(func.span, diagnostic.primary.text))
    )


@dataclass(frozen=True)
class LoweringStep(Pass):
    """A lowering step from TensorIR towards the form from which code is generated. It takes PrimFuncs at the stage
    `takes` and returns PrimFuncs at the stage `gives`.
    """

    takes: ClassVar[str] = BLOCKS
    gives: ClassVar[str] = BLOCKS

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        self._check(module, ctx)
        functions = {name: f for name, f in module.functions.items() if isinstance(f, tir.PrimFunc)}
        result = reached(module, self.gives, self.name, ctx.target)
        result.functions = {}
        diagnostics: dict[str, list[Diagnostic]] = {}
        options = {cpu: version_options(ctx.target, cpu) for cpu in map(cpu_of, functions.values())}
        with deep_recursion():
            for name, func in module.functions.items():
                result.functions[name] = func
                if not isinstance(func, tir.PrimFunc) or name in ctx.failed:
                    continue
                try:
                    result.functions |= self.lower_named(name, func, functions, options[cpu_of(func)], module)
                except CompileError as exc:
                    diagnostics[name] = [placed(diagnostic, func) for diagnostic in exc.diagnostics]
        if diagnostics and not ctx.builds:
            raise CompileError(all_findings(diagnostics))
        ctx.failed.update(diagnostics)
        return result

    def lower_named(
        self, name: str, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions,
        module: IRModule,
    ) -> Mapping[str, tir.PrimFunc]:  # fmt: skip
        """Return a PrimFunc of the module in the next stage, by name, with functions added for it.

        Raises CompileError.
        """
        return {name: self.lower(func, functions, options)}

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        """Return a PrimFunc at the next stage; `functions` are those of the module. Raises CompileError."""
        raise NotImplementedError

    def _check(self, module: IRModule, ctx: PassContext) -> None:
        """Raise CompileError if this step was already run on the module, or a step before it was not."""
        kind = ctx.target.kind
        backend = backends.get(kind)
        if self.name not in _all_steps(backend):
            other = next(b.kind for b in backends.registered_backends() if self.name in _all_steps(b))
            message = f"`{self.name}` is a step for {other}, but the target is {kind}"
            raise CompileError(error("E0546", message, help=f"pass -t {other}"))
        enters = self.name in backend.sanitizing[:1]
        left = remaining_steps(module, kind, sanitize=enters)
        if not enters and self.name not in _steps_of(module, kind):
            if module.attrs.get(SANITIZED):
                message, help = f"`{self.name}` is not a step for code with checked accesses", "run sanitize"
            else:
                first = backend.sanitizing[0]
                message = f"`{self.name}` must come after `{first}`, which was not run on the module"
                help = f"run {','.join(backend.sanitizing[: backend.sanitizing.index(self.name)])} first"
            raise CompileError(error("E0545", message, help=help))
        if self.name not in left:
            message = f"`{self.name}` must come before `{module.attrs.get(STEP)}`, which was already run on the module"
            rest = f"the remaining steps are {','.join(left)}" if left else "no steps remain"
            raise CompileError(error("E0545", message, help=rest))
        before = left[: left.index(self.name)]
        if before:
            stage = stage_of(module)
            message = f"`{self.name}` must come after `{before[-1]}`, which was not run on the module"
            if stage != self.takes:
                message = f"`{self.name}` takes a module at stage `{self.takes}`, but this one is at stage `{stage}`"
            raise CompileError(error("E0545", message, help=f"run {','.join(before)} first"))
