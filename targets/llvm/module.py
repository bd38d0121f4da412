"""Compile a lowered module to an object artifact."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from mlcc.backends import BuildOptions
from mlcc.errors import CompileError, error
from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.ir.versions import cpu_of
from mlcc.machine.cpu import CPUS
from mlcc.machine.cpu_tables import CpuFacts
from mlcc.machine.target import LlvmTarget
from mlcc.passes.manage.stages import SANITIZED
from mlcc.progress import Announcer
from mlcc.recursion import FRAMES_WITH_C, deep_recursion, gc_disabled
from mlcc.runtime.machine import required
from mlcc.targets.llvm.artifact import ObjectArtifact
from mlcc.targets.llvm.codegen.context import EmitOptions, ModuleContext, Shared
from mlcc.targets.llvm.codegen.execution_log import event_facts
from mlcc.targets.llvm.codegen.ir_text import ModuleText
from mlcc.targets.llvm.codegen.pool import VERSION as POOL_VERSION
from mlcc.targets.llvm.codegen.pool import carries_pool
from mlcc.targets.llvm.codegen.versions import Version
from mlcc.targets.llvm.host.c_functions import workspace_from
from mlcc.targets.llvm.host.entry_points import emit_host
from mlcc.targets.llvm.host.profile_counters import profile_facts
from mlcc.targets.llvm.kernel_units import KernelUnits
from mlcc.targets.llvm.object.compile import Machine
from mlcc.targets.llvm.object.native import import_kernels
from mlcc.targets.llvm.object.passes import Code
from mlcc.targets.llvm.object.units import Unit, UnitCompiler
from mlcc.targets.plan.exports import symbol_of
from mlcc.targets.plan.manifest import fingerprint, function_facts, object_facts


def _unit_announcer() -> Callable[[Unit, int, int], None]:
    """Return a callback that announces each unit compiled by LLVM to the current listeners."""
    tell = Announcer()
    return lambda unit, at, count: tell.done("LLVM", ", ".join(unit.kernels), unit.compilation, at, count, unit.period)


def compile_module(module: IRModule, target: LlvmTarget, asked: BuildOptions) -> ObjectArtifact:
    """Emit every public function and what it calls. Raises CompileError."""
    with deep_recursion(FRAMES_WITH_C), gc_disabled():
        return _compile(module, target, asked)


def _compile(module: IRModule, target: LlvmTarget, asked: BuildOptions) -> ObjectArtifact:
    machine = Machine.of(target)
    text = ModuleText(machine.triple, debug_lines=asked.debug_lines)
    functions = {name: f for name, f in module.functions.items() if isinstance(f, tir.PrimFunc)}
    options = EmitOptions(
        allow_extern=frozenset(asked.allow_extern), num_cores=target.max_threads, fast_math=target.fast_math,
        sanitize=bool(module.attrs.get(SANITIZED)), profile=asked.profile, freestanding=target.is_freestanding,
    )  # fmt: skip
    natives = import_kernels(module, machine, options.allow_extern, asked.allow_native)
    ctx = ModuleContext(text, functions, machine.enabled, options, machine.function_attrs, natives.functions)
    ctx.least = Version(machine.cpu, machine.enabled, machine.function_attrs)
    ctx.versions = _versions(functions.values(), target)
    ctx.externs.update(dict.fromkeys(natives.externs))
    shared = Shared(module, ctx, observed=[] if asked.observe else None)
    code = b""
    with UnitCompiler(machine, asked.opt_level, _unit_announcer()) as compiler:
        units = KernelUnits(text, compiler)
        if not natives.texts:
            ctx.finished = units.finished
        host_functions = emit_host(shared)
        if natives.texts:
            compiler.units.append(Unit(tuple(ctx.kernels), text.text(), Code.LOOPS))
        else:
            units.complete()
            code = compiler.linked()
    arch = machine.triple.partition("-")[0]
    about: dict[str, Any] = {
        "kind": target.kind, "text": str(target), "triple": machine.triple, "arch": arch, "cpu": machine.cpu,
        "features": required(machine.enabled, arch),
    }  # fmt: skip
    if target.is_native:
        known = CpuFacts.of(target)
        about["native"] = {
            "l1": known.l1_bytes, "l2": known.l2_bytes, "l3": known.l3_bytes, "line": known.line_bytes,
            "cores": known.cores,
        }  # fmt: skip
    if options.freestanding:
        about["freestanding"] = True
    if ctx.versions:
        about["versions"] = [
            {"cpu": v.cpu, "features": required(v.features, arch)} for v in (ctx.least, *ctx.versions.values())
        ]
    sanitized = {"sanitize": True} if options.sanitize else {}
    source = {
        "sha256": fingerprint([unit.text for unit in compiler.units], shared.constants),
        "pipeline": asked.pipeline, "opt_level": asked.opt_level, **sanitized,
    }  # fmt: skip
    facts = object_facts(
        {
            f.name: {
                **function_facts(f, symbol_of(f.name)), "workspace_from": workspace_from(f, options.freestanding)
            } for f in host_functions
        }, shared, about, source,
        POOL_VERSION if carries_pool(text) else 0,
    )  # fmt: skip
    if shared.observed is not None:
        facts["observed"] = shared.observed
    if options.profile:
        facts |= {"profile": profile_facts(shared), "events": event_facts(ctx)}
    artifact = ObjectArtifact(
        tuple(compiler.units),
        machine,
        asked.opt_level,
        facts,
        shared.constants,
        asked.prefix,
        natives,
        code,
        tuple(host_functions),
    )
    artifact.compile()
    text.functions.clear()  # breaks a reference cycle with the module text
    return artifact


def _versions(functions: Iterable[tir.PrimFunc], target: LlvmTarget) -> dict[str, Version]:
    """Return the CPUs that functions have versions for, the best last: in the target's order, then in order of use.

    CPUs without additional features are omitted. Raises CompileError for a CPU of another architecture.
    """
    requested = {cpu: func for func in functions for cpu in [cpu_of(func)] if cpu is not None}
    for cpu, func in requested.items():
        if cpu not in CPUS.get(target.arch, ()):
            message = f"this version of a kernel is for `{cpu}`, which is not a CPU of {target.arch}"
            help = "compile for the architecture whose CPU the attribute `mlcc.cpu` names"
            raise CompileError(error("E0706", message, func.span, help=help))
    baseline = Machine.of(target).enabled
    versions = {}
    for cpu in [
        *(c for c in target.version_cpus if c in requested),
        *(c for c in requested if c not in target.version_cpus),
    ]:
        machine = Machine.of(target.for_version(cpu))
        if machine.enabled <= baseline:
            continue
        version = Version(cpu, machine.enabled, machine.function_attrs)
        versions[cpu] = replace(version, function_attrs=version.function_attrs + version.helper_attrs)
    return versions
