"""Task extraction: the distinct kernels of a module, with the number of calls in a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from mlcc.errors import CompileError, error
from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.ir.versions import cpu_of
from mlcc.ir.visit import used_vars
from mlcc.machine.target import Target
from mlcc.passes.auto_schedule.apply_rules import constant_parameters
from mlcc.passes.auto_schedule.eligibility import why_ineligible
from mlcc.passes.manage.levels import SCHEDULING
from mlcc.passes.manage.manager import Pipeline
from mlcc.records.workload import key_of, without_module_attrs
from mlcc.relax.origins import kernel_origins
from mlcc.relax.queries import all_bindings, tir_callee
from mlcc.tune.contracts import Task


@dataclass(frozen=True, eq=False)
class ExtractedModule:
    """A module before scheduling, the remaining passes (`left`), and its tasks."""

    module: IRModule
    left: Pipeline
    tasks: tuple[Task, ...]


def extract(
    module: IRModule, target: Target, *, level: int = 2, threads: int = 1, kernels: str = "*",
    sizes: Mapping[str, int] | None = None,
) -> ExtractedModule:  # fmt: skip
    """Run the passes of a level up to where it schedules, and gather the kernels.

    `kernels` is a glob over the names of kernels and over what they were in the source model; `sizes` gives symbolic
    sizes values by their names. Scheduled functions are excluded, and so are versions of kernels for other CPUs than
    the target's. Raises CompileError: E1130 for a level that schedules nothing, E1131 if no kernel is left, E1132 for
    unknown sizes.
    """
    from mlcc.driver import build_pipeline, run_passes
    from mlcc.verify import check

    check(module, build=True)
    passes = build_pipeline(module, target, level, None).passes
    at = next((n for n, one in enumerate(passes) if one.name in SCHEDULING), None)
    if at is None:
        raise CompileError(error("E1130", f"-O{level} schedules nothing for {target.kind}", help="tune for -O2 or -O3"))
    ready = run_passes(module, Pipeline(passes[:at]), target=target, verify_each=False, builds=True)
    chosen = _select_kernels(ready, kernels)
    known = constant_parameters(ready)
    calls = _count_calls(ready)
    groups: dict[str, list[str]] = {}
    for name in chosen:
        func = ready.functions[name]
        assert isinstance(func, tir.PrimFunc)
        groups.setdefault(key_of(func, known.get(name, frozenset())), []).append(name)
    tasks = []
    for key, names in groups.items():
        first = ready.functions[names[0]]
        assert isinstance(first, tir.PrimFunc)
        constants = known.get(names[0], frozenset())
        bound = _bound_sizes(first, sizes or {})
        count = max(sum(calls[n] for n in names), 1)
        tasks.append(
            Task(key, tuple(names), without_module_attrs(first), target, threads, level, constants, count, bound)
        )
    return ExtractedModule(ready, Pipeline(passes[at:]), tuple(tasks))


def _select_kernels(module: IRModule, kernels: str) -> list[str]:
    """Select the functions to tune. Raises CompileError E1131 if there is none."""
    candidates = {n: f for n, f in module.functions.items() if isinstance(f, tir.PrimFunc) and cpu_of(f) is None}
    untouched = [name for name, func in candidates.items() if why_ineligible(func) is None]
    if not untouched:
        reasons = {name: why_ineligible(func) for name, func in candidates.items()}
        help = "; ".join(f"{name}: {why}" for name, why in [*reasons.items()][:3]) or "it has no kernels"
        raise CompileError(error("E1131", "there is no kernel to tune", help=help))
    origins = kernel_origins(module)
    chosen = [n for n in untouched if fnmatchcase(n, kernels) or fnmatchcase(origins.get(n, ""), kernels)]
    if not chosen:
        names = ", ".join(untouched[:8]) + (", ..." if len(untouched) > 8 else "")
        raise CompileError(error("E1131", f"no kernel's name matches `{kernels}`", help=f"there are {names}"))
    return chosen


def _bound_sizes(func: tir.PrimFunc, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes of a function's symbols. Raises CompileError E1132 if one is unknown."""
    shapes = tuple(n for b in func.buffers if b is not None for n in b.shape)
    symbols = dict.fromkeys(v.name for v in used_vars(shapes))
    missing = [name for name in symbols if name not in sizes]
    if missing:
        text = f"the size of {', '.join(f'`{name}`' for name in missing)} is not known"
        help = "pass " + " ".join(f"--size {name}=1024" for name in missing)
        raise CompileError(error("E1132", text, help=f"{help}: kernels are measured at these sizes"))
    return {name: sizes[name] for name in symbols}


def _count_calls(module: IRModule) -> Counter[str]:
    """Count the calls of each kernel in one run of every public function; a loop or a branch counts once."""
    counts: Counter[str] = Counter()
    callees: dict[str, list[str]] = {}
    for name, func in module.functions.items():
        if isinstance(func, relax.Function):
            callees[name] = [c for b, _ in all_bindings(func.body) if (c := _callee(b.value)) is not None]  # type: ignore[attr-defined]

    def visit(name: str, active: tuple[str, ...], count: Callable[[str], None]) -> None:
        for callee in callees[name]:
            if callee not in callees:
                count(callee)
            elif callee not in active:
                visit(callee, (*active, callee), count)

    for name in callees:
        if not module.functions[name].is_private:
            visit(name, (name,), lambda callee: counts.update((callee,)))
    return counts


def _callee(value: relax.Expr) -> str | None:
    """The kernel or function of the module that an expression calls."""
    name = tir_callee(value)
    if name is None and isinstance(value, relax.Call) and isinstance(value.op, relax.GlobalVar):
        return value.op.name
    return name
