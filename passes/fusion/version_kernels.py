"""The pass `version-kernels`."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from mlcc.backends import cpu_facts
from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.ir.node import Attrs, find, replace, walk
from mlcc.ir.versions import CPU, PANEL_BYTES, VERSIONS, cpu_of, version_names
from mlcc.ir.visit import renew_vars
from mlcc.machine.target import LlvmTarget
from mlcc.passes.lowering.unroll import nested_bodies
from mlcc.passes.lowering.versions import version_options
from mlcc.passes.manage.manager import Pass, PassContext

_NATIVE = "pragma_import_llvm"
_BYTES = frozenset(("int8", "uint8"))


@dataclass(frozen=True)
class VersionKernels(Pass):
    """Clone TIR functions into versions for further CPUs of the target, one of which is selected at run time.

    A target without a specific CPU, such as `llvm`, has a usual set of versions, others those of their option
    `versions`. Later passes schedule each version for its CPU; all read the same panels of weights. Functions of fewer
    than `least` steps have one version. A usual CPU that differs from the previous one only in dot products gets a
    version only of functions that have such products: of bytes, or of bfloat16.

    Before:  def dense(x, w, out): ...                 # llvm{versions=["x86-64-v3"]}
    After:   def dense(x, w, out): ...                 # mlcc.versions = ["dense_x86_64_v3"]
             def dense_x86_64_v3(x, w, out): ...       # mlcc.cpu = "x86-64-v3"
    """

    name: ClassVar[str] = "version-kernels"
    needs_blocks: ClassVar[bool] = True
    least: int = 1024

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        if not isinstance(ctx.target, LlvmTarget) or not ctx.target.version_cpus:
            return module
        cpus = ctx.target.version_cpus
        targets = [ctx.target, *map(ctx.target.for_version, cpus)]
        panel = max(facts.vector_bytes for facts in map(cpu_facts, targets) if facts is not None)
        new_module = module.copy()
        for name, func in module.functions.items():
            if isinstance(func, tir.PrimFunc) and _needs_versions(func, self.least):
                distinct_cpus = cpus if ctx.target.versions else _distinct_cpus(ctx.target, _multiplied_types(func))
                _add_versions(new_module, name, func, distinct_cpus, panel)
        return new_module


@functools.lru_cache(maxsize=64)  # functions of a module ask again and again
def _distinct_cpus(target: LlvmTarget, multiplied: frozenset[str]) -> tuple[str, ...]:
    """Return the CPUs of a target that differ from the previous one for functions that multiply the given dtypes."""
    distinct = []
    before = _abilities(target, multiplied)
    for cpu in target.version_cpus:
        abilities = _abilities(target.for_version(cpu), multiplied)
        if abilities != before:
            distinct.append(cpu)
            before = abilities
    return tuple(distinct)


def _abilities(target: LlvmTarget, multiplied: frozenset[str]) -> tuple[object, ...]:
    """Return the features of a CPU that a kernel profits from: vectors, registers, FMA, masks, dot products."""
    facts, options = cpu_facts(target), version_options(target, None)
    assert facts is not None
    dots = frozenset(pair for pair in facts.dots if multiplied.issuperset(pair))
    return facts.vector_bytes, facts.vector_registers, facts.fma, options.mask_bits, options.cheap_masks, dots


def _add_versions(module: IRModule, name: str, func: tir.PrimFunc, cpus: Sequence[str], panel: int) -> None:
    """Add versions of a function for some CPUs at the end of a module."""
    names: list[str] = []
    for cpu in cpus:
        names.append(module.unique_name(re.sub(r"\W", "_", f"{name}_{cpu}")))
        attrs = Attrs({**func.attrs.without("global_symbol"), CPU: cpu, PANEL_BYTES: panel})
        module.functions[names[-1]] = replace(renew_vars(func), attrs=attrs)
    if names:
        module.functions[name] = func.with_attr({VERSIONS: tuple(names), PANEL_BYTES: panel})


def _needs_versions(func: tir.PrimFunc, min_steps: int) -> bool:
    """Return True for a function with enough work that has no versions and is not a version itself.

    Functions with native code of their own run on any CPU.
    """
    if version_names(func) or cpu_of(func) is not None or _steps(func.body) < min_steps:
        return False
    blocks = (n for n in walk(func) if isinstance(n, (tir.Block, tir.For)))
    return not any(_NATIVE in n.annotations for n in blocks)


def _steps(body: Sequence[tir.Stmt]) -> float:
    """Return the trip count of a body's innermost statements, infinite if unknown (`while`, calls of functions)."""
    if any(isinstance(node.op, relax.GlobalVar) for stmt in body for node in find(stmt, tir.Call)):
        return float("inf")
    total = 0.0
    for stmt in body:
        match stmt:
            case tir.For(extent=extent, body=inside):
                times = tir.const_int(extent)
                total += _steps(inside) * (float("inf") if times is None else times)
            case tir.BlockRealize(block=block):
                total += _steps(block.body)
            case tir.While():
                return float("inf")
            case _:
                total += max(1.0, sum(_steps(inside) for inside in nested_bodies(stmt)))
    return total


def _multiplied_types(func: tir.PrimFunc) -> frozenset[str]:
    """Return the dtypes with products in a function for which CPUs may have dot products: of bytes, and of bfloat16."""
    types: set[str] = set()
    for node in walk(func):
        if isinstance(node, tir.Mul):
            dtypes = {str((f.value if isinstance(f, tir.Cast) else f).dtype) for f in (node.lhs, node.rhs)}
            if dtypes <= _BYTES:
                types |= _BYTES
            elif dtypes == {"bfloat16"}:
                types |= dtypes
    return frozenset(types)
