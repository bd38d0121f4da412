"""Function multiversioning: kernels in versions for several CPUs, selected at run time.

A kernel with versions is called through a dispatcher of its usual name, which jumps to the version of the object's
level. The level is 0 until the first call of any kernel, which queries the CPU (`mlcc_choose_version`); level 1 is code
for the object's own CPU, higher ones are the versions in order. There are no constructors and no function pointers;
concurrent queries store the same level. The environment variable `MLCC_CPU` selects a version other than the best.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlcc.errors import CompileError, error
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.versions import cpu_of, version_names
from mlcc.ir.visit import substitute
from mlcc.targets.llvm.codegen import cpu_features
from mlcc.targets.llvm.codegen.ir_text import Value, integer
from mlcc.targets.llvm.codegen.signature import Kernel, llvm_params

if TYPE_CHECKING:
    from mlcc.targets.llvm.codegen.context import ModuleContext

LEVEL, CHOOSE = "mlcc_version_level", "mlcc_choose_version"
VARIABLE = "MLCC_CPU"


@dataclass(frozen=True, slots=True)
class Version:
    """A CPU with versions of kernels: its features by LLVM's names, and its function attributes."""

    cpu: str = ""
    features: frozenset[str] = frozenset()
    function_attrs: str = "nounwind"

    @property
    def helper_attrs(self) -> str:
        """Return the target attributes of helper functions for the CPU."""
        return f' "target-features"="{",".join(f"+{f}" for f in sorted(self.features))}"'

    @property
    def suffix(self) -> str:
        """Return the suffix of the names of its helper functions."""
        return f".{self.cpu}"


def with_versions(name: str, func: tir.PrimFunc, baseline: Kernel, ctx: ModuleContext) -> Kernel:
    """Emit the versions of a kernel and their dispatcher; `baseline` is the code for the object's own CPU."""
    kernels: dict[str, Kernel] = {}
    workspace = baseline.workspace
    for version_name in version_names(func):
        version = ctx.functions.get(version_name)
        cpu = None if version is None else cpu_of(version)
        if version is None or cpu is None:
            raise CompileError(error("E0702", f"the module has no version `{version_name}` of `{name}`", func.span))
        if cpu not in ctx.versions:  # the baseline has the same features
            continue
        kernel = kernels[cpu] = ctx.kernel(version_name)
        if [t for t, _ in llvm_params(kernel.signature)] != [t for t, _ in llvm_params(baseline.signature)]:
            message = f"`{version_name}` is a version of `{name}`, but takes other arguments"
            raise CompileError(error("E0708", message, version.span))
        baseline_vars, version_vars = (
            [p.var for p in k.signature.params] + [*k.signature.symbols] for k in (baseline, kernel)
        )
        workspace = c.maximum(
            workspace, substitute(kernel.workspace, dict(zip(version_vars, baseline_vars, strict=True)))
        )
    if not kernels:
        return baseline
    kernel = Kernel(f"kernel.{name}", baseline.signature, workspace)
    ctx.direct[name] = baseline
    _emit_dispatcher(kernel.symbol, baseline, kernels, ctx)
    return kernel


def _emit_dispatcher(symbol: str, baseline: Kernel, kernels: Mapping[str, Kernel], ctx: ModuleContext) -> None:
    """Emit the dispatcher of a kernel: one load and a well-predicted jump, besides the call."""
    add_version_choice(ctx)
    owner, ctx.module.owner = ctx.module.owner, ""  # host code: all readers of the level are in one unit
    fn = ctx.module.function("i32", symbol, llvm_params(baseline.signature), attrs=f"noinline {ctx.function_attrs}")
    ctx.module.owner = owner
    level = fn.op("i32", f"load atomic i32, ptr @{LEVEL} monotonic, align 4")
    ask, go, refused, chosen = (fn.label(hint) for hint in ("ask", "go", "refused", "chosen"))
    entry = fn.block
    fn.cond_br(fn.icmp("ne", level, integer("i32", 0)), go, ask)
    fn.start(ask)
    answer = fn.call("i32", f"@{CHOOSE}", [])
    fn.cond_br(fn.icmp("ne", answer, integer("i32", 0)), chosen, refused)
    fn.start(chosen)
    fn.br(go)
    fn.start(go)
    chosen_level = fn.phi("i32", [(level, entry), (answer, chosen)])
    labels = {kernel.symbol: fn.label("version") for kernel in (baseline, *kernels.values())}
    cases = [
        (number, labels[_best_version(cpu, baseline, kernels, ctx).symbol])
        for number, cpu in enumerate(ctx.versions, 2)
    ]
    fn.switch(chosen_level, labels[baseline.symbol], cases)
    for callee, label in labels.items():
        fn.start(label)
        fn.ret(fn.call("i32", f"@{callee}", fn.params, tail="musttail"))
    fn.start(refused)
    fn.ret(integer("i32", ctx.error_code("RuntimeError", unusable_version_message([ctx.least.cpu, *ctx.versions]))))


def _best_version(cpu: str, baseline: Kernel, kernels: Mapping[str, Kernel], ctx: ModuleContext) -> Kernel:
    """Return the version to run on a CPU: its own, or the last earlier one whose features it has."""
    features, best = ctx.versions[cpu].features, baseline
    for other, version in ctx.versions.items():
        if other in kernels and version.features <= features:
            best = kernels[other]
        if other == cpu:
            break
    return best


def unusable_version_message(cpus: Sequence[str]) -> str:
    """Return the error message for a value of MLCC_CPU that is unknown or cannot run on this machine."""
    listed = ", ".join(cpus)
    return f"{VARIABLE} must be a CPU that the kernels have versions for ({listed}) and whose features this machine has"


def add_version_choice(ctx: ModuleContext) -> None:
    """Add the level to the module, and `i32 mlcc_choose_version()`, which sets and returns it (0 for an error)."""
    module = ctx.module
    if module.has_helper(CHOOSE):
        return
    module.global_(LEVEL, "internal global i32 0, align 4")
    getenv = module.declare("secure_getenv", "ptr", ["ptr"])  # the pool declares getenv
    strcmp = module.declare("strcmp", "i32", ["ptr", "ptr"])
    arch = module.triple.partition("-")[0]
    lines = [f"define internal i32 @{CHOOSE}() cold noinline optnone nounwind {{", "entry:"]
    lines += cpu_features.words_text(module, arch)
    best = "1"
    can = ["true"]
    for level, version in enumerate(ctx.versions.values(), 2):
        lines += cpu_features.test_text(arch, version.features - ctx.least.features, f"v{level}")
        lines.append(f"  %best.{level} = select i1 %v{level}, i32 {level}, i32 {best}")
        best = f"%best.{level}"
        can.append(f"%v{level}")
    lines += [f"  %name = call ptr {getenv}({_text(ctx, VARIABLE)})", "  %unset = icmp eq ptr %name, null"]
    lines += ["  br i1 %unset, label %known, label %look", "look:", "  %first = load i8, ptr %name"]
    lines += ["  %empty = icmp eq i8 %first, 0"]
    named_level = "0"
    for level, cpu in enumerate([ctx.least.cpu, *ctx.versions], 1):
        lines += [
            f"  %order.{level} = call i32 {strcmp}(ptr %name, {_text(ctx, cpu)})",
            f"  %named.{level} = icmp eq i32 %order.{level}, 0",
            f"  %wanted.{level} = select i1 %named.{level}, i32 {level}, i32 {named_level}",
            f"  %runs.{level} = select i1 {can[level - 1]}, i32 %wanted.{level}, i32 {named_level}",
        ]
        named_level = f"%runs.{level}"
    lines += [f"  %given = select i1 %empty, i32 {best}, i32 {named_level}", "  br label %known", "known:"]
    lines += [f"  %level = phi i32 [ {best}, %{cpu_features.LAST_BLOCK} ], [ %given, %look ]"]
    lines += [f"  store atomic i32 %level, ptr @{LEVEL} monotonic, align 4", "  ret i32 %level", "}"]
    module.helper(CHOOSE, "\n".join(lines))


def _text(ctx: ModuleContext, text: str) -> Value:
    return ctx.module.string(text.encode())
