"""Artifacts of the target `c`: C source with a manifest of its functions."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from mlcc.backends import BuildOptions
from mlcc.errors import CompileError, Diagnostic, error, merge_repeated
from mlcc.files import Content, write_files
from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.ir.tensor_data import TensorData
from mlcc.machine.target import CTarget
from mlcc.outputs import C_SOURCE, Outputs, check_suffix
from mlcc.recursion import FRAMES_WITH_C, deep_recursion, gc_disabled
from mlcc.runtime.abi import PLACEHOLDER_PREFIX
from mlcc.targets.artifact import Artifact
from mlcc.targets.c.constants import constant_text
from mlcc.targets.c.context import FileContext, Shared
from mlcc.targets.c.entry_points import TIME_RUN, entry_points_text, error_function, packed_setters, workspace_from
from mlcc.targets.c.host_helpers import FAULT, packed_functions
from mlcc.targets.c.query import query_text
from mlcc.targets.c.reserved import is_own
from mlcc.targets.c.run import constant_name, run_text
from mlcc.targets.plan.exports import SUFFIXES, c_identifier, public_functions, symbol_of
from mlcc.targets.plan.header import c_header
from mlcc.targets.plan.manifest import fingerprint, function_facts, object_facts
from mlcc.targets.plan.memory import assign_workspace
from mlcc.targets.plan.planner import plan_relax
from mlcc.targets.plan.prim import plan_prim
from mlcc.targets.plan.steps import HostFunction

_PREAMBLE = """\
/* A product and a sum are two roundings: pass -ffp-contract=off to GCC without -std=c99, which ignores this line. */
#if !defined(__GNUC__) || defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif
#include <float.h>
#include <limits.h>
#if INT_MAX < 2147483647
#error "this code needs an int of at least 32 bits"
#endif
#if defined(FLT_EVAL_METHOD) && (FLT_EVAL_METHOD == 1 || FLT_EVAL_METHOD == 2)
#error "this code needs float arithmetic without excess precision: for 32-bit x86, pass -msse2 -mfpmath=sse"
#endif
#ifdef __cplusplus
#define restrict __restrict
#define MLCC_EXTERN extern "C"
#else
#define MLCC_EXTERN extern
#endif
/* Loops that a schedule unrolls, and those over lanes of vectors, which GCC must not unroll before it vectorizes. */
#if defined(__clang__)
#define MLCC_UNROLL _Pragma("clang loop unroll(full)")
#define MLCC_VECTORIZE
#elif defined(__GNUC__) && __GNUC__ >= 8
#define MLCC_UNROLL _Pragma("GCC unroll 64")
#define MLCC_VECTORIZE _Pragma("GCC unroll 1")
#else
#define MLCC_UNROLL
#define MLCC_VECTORIZE
#endif"""
_CPU_DEVICE = """\
#ifdef DLPACK_DLPACK_H_
#define MLCC_CPU kDLCPU
#else
#define MLCC_CPU 1
#endif"""
_HEADERS = {"stdlib.h": r"\b(?:malloc|free)\(", "string.h": r"\b(?:memcpy|memmove|strcmp)\("}


@dataclass(eq=False, repr=False)
class CArtifact(Artifact):
    """C source for CPUs. `parts` are the texts between the header's declarations and the end of the file."""

    parts: tuple[str, ...]
    facts: dict[str, Any]
    constants: list[TensorData]
    names: frozenset[str]
    prefix: str | None = None
    loadable: ClassVar[str] = C_SOURCE.name
    kernel_texts: Mapping[str, str] = field(default_factory=dict, repr=False)  # the kernels of `parts` one by one
    _plans: tuple[HostFunction, ...] = field(default=(), repr=False)

    @property
    def plans(self) -> tuple[HostFunction, ...]:
        return self._plans

    @property
    def manifest(self) -> dict[str, Any]:
        return self._facts(self._prefix(None))

    def save(self, path: str | os.PathLike[str], emit: str | None = None) -> None:
        """Write the source atomically. Raises CompileError."""
        name = os.fspath(path)
        check_suffix(name, emit or C_SOURCE.name)
        write_files(self.files(name, emit or C_SOURCE.name))

    def files(
        self, path: str, kind: str, outputs: Outputs | None = None, data: str | None = None
    ) -> dict[str, Content]:
        """Return the files that `save` writes, by path. Raises CompileError."""
        return {path: self.emit(kind, self._prefix(path))}

    def emit(self, kind: str = C_SOURCE.name, prefix: str | None = None) -> bytes:
        """Return the C source. Raises CompileError."""
        if kind != C_SOURCE.name:
            raise CompileError(error("E0755", f"cannot write `{kind}`", help=f"known is {C_SOURCE.name}"))
        return self._text(self._prefix(None) if prefix is None else c_identifier(prefix)).encode()

    def header(self, path: str | None = None) -> str:
        """Return a self-contained C99 header that declares every function. `path` is the source's."""
        return c_header(self._facts(self._prefix(path)))

    def _prefix(self, path: str | None) -> str:
        if self.prefix is not None:
            return c_identifier(self.prefix)
        return "mlcc" if path is None else c_identifier(os.path.splitext(os.path.basename(path))[0])

    def _facts(self, prefix: str) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(json.dumps(self.facts).replace(PLACEHOLDER_PREFIX, prefix))
        return facts

    def _text(self, prefix: str) -> str:
        """Return the source with its names. Raises CompileError E0750 for a symbol that is a name in it."""
        facts = self._facts(prefix)
        exported = {f"{spec['symbol']}{suffix}" for spec in facts["functions"].values() for suffix in SUFFIXES}
        for name in sorted(name for name in exported if name in self.names or is_own(name)):
            message = f"the C symbol `{name}` is also the name of a function in the file"
            raise CompileError(error("E0750", message, help="choose another prefix with --prefix"))
        helpers, kernels, host = self.parts
        named = [(constant_name(n), data) for n, data in enumerate(self.constants)]
        words = set(re.findall(r"\bconstant_\d+\b", host))
        constants = [constant_text(name, data) for name, data in named if name in words]
        code = "\n\n".join(part for part in (helpers, kernels, host) if part).replace(PLACEHOLDER_PREFIX, prefix)
        used = [name for name, functions in _HEADERS.items() if re.search(functions, code)]
        includes = [f"#include <{name}>" for name in ("math.h", "stddef.h", *used)]
        version = facts["mlcc"]["version"]
        head = f"/* {prefix}: made by mlcc {version}. Compile it with `cc -std=c99 -O2`, link with -lm. */"
        interface = c_header(facts).partition("\n")[2].rstrip()
        preamble = "\n".join([head, _PREAMBLE, *includes])
        devices = [_CPU_DEVICE] if "MLCC_CPU" in code else []
        return "\n\n".join([preamble, interface, *devices, *constants, code]) + "\n"


def make_artifact(module: IRModule, target: CTarget, options: BuildOptions) -> CArtifact:
    """Print every public function and what it calls. Raises CompileError."""
    with deep_recursion(FRAMES_WITH_C), gc_disabled():
        return _make(module, target, options)


def _make(module: IRModule, target: CTarget, options: BuildOptions) -> CArtifact:
    functions = {name: f for name, f in module.functions.items() if isinstance(f, tir.PrimFunc)}
    ctx = FileContext(functions, target.stack_bytes, frozenset(options.allow_extern), debug_lines=options.debug_lines)
    shared = Shared(module, ctx)
    plans: list[HostFunction] = []
    host: list[str] = []
    wrong: list[Diagnostic] = []
    for name, func in public_functions(shared).items():
        try:
            plan = _plan(name, func, shared)
            plans.append(plan)
            host += _host_texts(plan, shared)
        except CompileError as exc:
            wrong += [d for d in exc.diagnostics if d not in wrong]
    if wrong:
        raise CompileError(merge_repeated(wrong))
    if ctx.packed:
        ctx.helpers.add("packed_call", packed_functions(len(ctx.packed)).strip())
        host.append(packed_setters(shared))
    if ctx.has_faults:
        ctx.helpers.add("fault", FAULT.strip())
    host = [*([error_function(shared)] if plans else []), *host, TIME_RUN]
    helpers = [*ctx.prototypes.values(), *ctx.helpers.needed("\n".join((*ctx.texts, *host)))]
    parts = tuple("\n\n".join(texts) for texts in (helpers, ctx.texts, host))
    facts = object_facts(
        {
            plan.name: {
                **function_facts(plan, symbol_of(plan.name)), "workspace_from": workspace_from(plan, shared)
            } for plan in plans
        }, shared,
        {"kind": target.kind, "text": str(target), "triple": "", "arch": "any", "cpu": "", "features": []},
        {"sha256": fingerprint(parts, shared.constants), "pipeline": options.pipeline, "opt_level": options.opt_level},
    )  # fmt: skip
    return CArtifact(
        parts,
        facts,
        shared.constants,
        frozenset(ctx.names),
        options.prefix,
        dict(zip(ctx.kernels, ctx.texts, strict=True)),
        tuple(plans),
    )


def _plan(name: str, func: relax.Function | tir.PrimFunc, shared: Shared) -> HostFunction:
    plan = plan_prim(name, func, shared) if isinstance(func, tir.PrimFunc) else plan_relax(name, func, shared)
    assign_workspace(plan)
    return plan


def _host_texts(plan: HostFunction, shared: Shared) -> list[str]:
    symbol = symbol_of(plan.name)
    prototypes = (
        f"/* What `{symbol}` and its kin call: the checks of the arguments, and the steps. */\n"
        f"int32_t {symbol}_query(const void *args, int64_t *out, int32_t results_too);\n"
        f"int32_t {symbol}_run(const void *args, const int64_t *symbols, void *workspace);"
    )
    return [
        prototypes,
        query_text(plan, shared, symbol_of(plan.name, "_query")), run_text(plan, shared, symbol_of(plan.name, "_run")),
        entry_points_text(plan, shared, lambda suffix: symbol_of(plan.name, suffix)),
    ]  # fmt: skip
