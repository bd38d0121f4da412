"""Plan a lowered module: its launch plan, and the kernels that it launches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlcc.errors import CompileError, Diagnostic, merge_repeated
from mlcc.grammar.printer.printer import script
from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.ir.tensor_data import TensorData
from mlcc.passes.gpu import DeviceKernel
from mlcc.recursion import FRAMES_WITH_C, deep_recursion, gc_disabled
from mlcc.runtime.abi import DETAIL_SHIFT
from mlcc.runtime.launch.plan import VERSION
from mlcc.targets.launch.program import LaunchContext, kernel_facts
from mlcc.targets.launch.steps import function_plan
from mlcc.targets.plan.context import Planning
from mlcc.targets.plan.exports import error_messages, public_functions, symbol_of
from mlcc.targets.plan.manifest import function_facts, object_facts
from mlcc.targets.plan.memory import assign_workspace
from mlcc.targets.plan.observe import add_observers
from mlcc.targets.plan.planner import plan_relax
from mlcc.targets.plan.prim import plan_prim
from mlcc.targets.plan.steps import HostFunction


@dataclass(frozen=True, slots=True)
class LaunchModule:
    """A planned module, before code generation.

    `facts` is the manifest without entries that depend on the kernels' code, such as its hash. `plan` is the launch
    plan; `constants` are in the order of their numbers in the plan, `kernels` in order of first use. `functions` are
    the host functions and the kernels, `planned` the public functions as steps."""

    facts: dict[str, Any]
    plan: dict[str, Any]
    constants: list[TensorData]
    kernels: list[DeviceKernel]
    functions: Mapping[str, tir.PrimFunc]
    planned: tuple[HostFunction, ...] = ()

    def source(self) -> str:
        """Return the functions as text, from which the kernels can be emulated."""
        return script(IRModule(dict(self.functions)))


def plan_module(
    module: IRModule, about: dict[str, Any], opt_level: int, pipeline: str, observe: bool = False
) -> LaunchModule:
    """Plan every public function and what it calls; `about` is the manifest's `target`. Raises CompileError.

    With `observe` the plans call an observer after each kernel.
    """
    with deep_recursion(FRAMES_WITH_C), gc_disabled():
        return _plan(module, about, opt_level, pipeline, observe)


def _plan(module: IRModule, about: dict[str, Any], opt_level: int, pipeline: str, observe: bool) -> LaunchModule:
    functions = {name: f for name, f in module.functions.items() if isinstance(f, tir.PrimFunc)}
    shared = Planning(module, LaunchContext(functions), observed=[] if observe else None)
    planned: list[HostFunction] = []
    findings: list[Diagnostic] = []
    for name, func in public_functions(shared).items():
        try:
            planned.append(_plan_function(name, func, shared))
        except CompileError as exc:
            findings += [d for d in exc.diagnostics if d not in findings]
    if findings:
        raise CompileError(merge_repeated(findings))
    plans = {f.name: function_plan(f, shared) for f in planned}
    ctx = shared.ctx
    kernels = {k.name: kernel_facts(k, ctx) for k in ctx.kernels()}
    plan = {
        "version": VERSION,
        "functions": plans,
        "programs": {name: p.plan for name, p in ctx.programs.items()},
        "kernels": kernels,
        "constants": [_constant_entry(c) for c in shared.constants],
        "errors": [[code, text] for code, text in error_messages(shared) if code >> DETAIL_SHIFT],
    }
    facts = object_facts(
        {f.name: function_facts(f, symbol_of(f.name)) for f in planned}, shared, about,
        {"sha256": "", "pipeline": pipeline, "opt_level": opt_level},
    )  # fmt: skip
    facts["kernels"] = kernels
    if shared.observed is not None:
        facts["observed"] = shared.observed
    used = {name: functions[name] for name in (*ctx.programs, *kernels)}
    return LaunchModule(facts, plan, shared.constants, ctx.kernels(), used, tuple(planned))


def _plan_function(name: str, func: relax.Function | tir.PrimFunc, shared: Planning[LaunchContext]) -> HostFunction:
    plan = plan_prim(name, func, shared) if isinstance(func, tir.PrimFunc) else plan_relax(name, func, shared)
    add_observers(plan, shared)
    assign_workspace(plan)
    return plan


def _constant_entry(data: TensorData) -> dict[str, Any]:
    return {
        "key": data.key, "dtype": str(data.dtype), "shape": list(data.shape), "bytes": data.nbytes,
        "sha256": data.sha256,
    }  # fmt: skip
