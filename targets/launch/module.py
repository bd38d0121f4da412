"""From a lowered module to a launch plan and the kernels that it launches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlcc.errors import CompileError, Diagnostic, together
from mlcc.grammar.printer.printer import script
from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.ir.node import walk
from mlcc.ir.tensor_data import TensorData
from mlcc.passes.gpu import DeviceKernel, device_program
from mlcc.recursion import deep, uncollected
from mlcc.runtime.abi import DETAIL_SHIFT
from mlcc.runtime.launch.plan import VERSION
from mlcc.targets.launch.program import LaunchContext, kernel_facts
from mlcc.targets.launch.steps import function_plan
from mlcc.targets.plan.context import Planning
from mlcc.targets.plan.exports import messages, public_functions, symbol_of
from mlcc.targets.plan.manifest import fingerprint, function_facts, object_facts
from mlcc.targets.plan.memory import lay_out
from mlcc.targets.plan.planner import plan_relax
from mlcc.targets.plan.prim import plan_prim
from mlcc.targets.plan.steps import HostFunction


@dataclass(frozen=True, slots=True)
class LaunchModule:
    """What a module comes to: the manifest without what only the code of the kernels tells, the launch plan, constants
    in the order in which the plan numbers them, the kernels in order of first use, and the functions they are of."""

    facts: dict[str, Any]
    plan: dict[str, Any]
    constants: list[TensorData]
    kernels: list[DeviceKernel]
    functions: Mapping[str, tir.PrimFunc]

    def source(self) -> str:
        """The text of the functions: what an emulator makes of it are these kernels."""
        return script(IRModule(dict(self.functions)))

    def rolled_kernels(self) -> list[DeviceKernel]:
        """The kernels with the loops that are marked to be unrolled as they were written: to read, and for a CPU, whose
        code is as fast by them and compiled many times faster."""
        return rolled_kernels(self.functions)


def rolled_kernels(functions: Mapping[str, tir.PrimFunc]) -> list[DeviceKernel]:
    """The kernels of lowered functions before loops are unrolled. One that takes other arguments then (loops that turn
    out to be empty may use some) is as it is launched."""
    made: list[DeviceKernel] = []
    with deep():
        for name, func in functions.items():
            launched = device_program(name, func).kernels
            if not _has_unrolled(func):
                made += launched
                continue
            rolled = {k.name: k for k in device_program(name, func, unroll=False).kernels}
            made += [rolled[k.name] if _given(rolled[k.name]) == _given(k) else k for k in launched]
    return made


def _has_unrolled(func: tir.PrimFunc) -> bool:
    return any(isinstance(n, tir.For) and n.kind is tir.ForKind.UNROLLED for n in walk(func))


def _given(kernel: DeviceKernel) -> list[tuple[str, str]]:
    return [(p.name, str(p.dtype)) for p in kernel.params]


def plan_module(module: IRModule, about: dict[str, Any], opt_level: int, pipeline: str) -> LaunchModule:
    """Plan every public function and what it calls; `about` is the manifest's `target`. Raises CompileError."""
    with deep(), uncollected():
        return _plan(module, about, opt_level, pipeline)


def _plan(module: IRModule, about: dict[str, Any], opt_level: int, pipeline: str) -> LaunchModule:
    functions = {name: f for name, f in module.functions.items() if isinstance(f, tir.PrimFunc)}
    shared = Planning(module, LaunchContext(functions))
    made: list[HostFunction] = []
    wrong: list[Diagnostic] = []
    for name, func in public_functions(shared).items():
        try:
            made.append(_function(name, func, shared))
        except CompileError as exc:
            wrong += [d for d in exc.diagnostics if d not in wrong]
    if wrong:
        raise CompileError(together(wrong))
    plans = {f.name: function_plan(f, shared) for f in made}
    ctx = shared.ctx
    kernels = {k.name: kernel_facts(k, ctx) for k in ctx.kernels()}
    plan = {
        "version": VERSION,
        "functions": plans,
        "programs": {name: p.plan for name, p in ctx.programs.items()},
        "kernels": kernels,
        "constants": [_constant(c) for c in shared.constants],
        "errors": [[code, text] for code, text in messages(shared) if code >> DETAIL_SHIFT],
    }
    facts = object_facts(
        {f.name: function_facts(f, symbol_of(f.name)) for f in made}, shared, about,
        {"sha256": fingerprint(module), "pipeline": pipeline, "opt_level": opt_level},
    )  # fmt: skip
    facts["kernels"] = kernels
    return LaunchModule(facts, plan, shared.constants, ctx.kernels(), {n: functions[n] for n in ctx.programs})


def _function(name: str, func: relax.Function | tir.PrimFunc, shared: Planning[LaunchContext]) -> HostFunction:
    plan = plan_prim(name, func, shared) if isinstance(func, tir.PrimFunc) else plan_relax(name, func, shared)
    lay_out(plan)
    return plan


def _constant(data: TensorData) -> dict[str, Any]:
    return {
        "key": data.key, "dtype": str(data.dtype), "shape": list(data.shape), "bytes": data.nbytes,
        "sha256": data.sha256,
    }  # fmt: skip
