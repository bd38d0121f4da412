"""Tuning of the kernels of a graph: extraction, tuning, and builds with the tuned schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mlcc.ir import relax, tir
from mlcc.ir.module import Func, IRModule
from mlcc.machine.target import Target
from mlcc.passes.auto_schedule.eligibility import MADE_BY, SCHEDULED, why_ineligible
from mlcc.records.workload import MAIN, module_of, with_module_attrs_of
from mlcc.tune.database import Database
from mlcc.tune.tasks import ExtractedModule, extract
from mlcc.tune.tune import make_context, tune_tasks
from mlcc.tune.tune_context import TuneContext

if TYPE_CHECKING:
    import numpy as np

    from mlcc.targets.artifact import Artifact

    Params = Mapping[str, np.ndarray] | None

_LEVEL = 2


@dataclass(frozen=True, eq=False)
class ExtractedTask:
    """A kernel of a graph: `dispatched` is the module to tune, `weight` how often a run calls it. TVM:
    `ExtractedTask`."""

    task_name: str
    mod: IRModule
    target: Target
    dispatched: list[IRModule]
    weight: int


def extract_tasks(
    mod: IRModule | Func, target: Target | str, params: Params = None, module_equality: str = "structural"
) -> list[ExtractedTask]:
    """Extract the distinct kernels of a graph, after fusion and before scheduling. TVM: `extract_tasks`.

    `params` are constants for parameters of `main`, by their names. Raises CompileError.
    """
    where = Target.parse(target)
    extracted = _extracted(mod, where, params)
    tasks = []
    for task in extracted.tasks:
        alone = module_of(task.func)
        tasks.append(ExtractedTask(task.names[0], alone, where, [alone], task.calls))
    return tasks


def extracted_tasks_to_tune_contexts(
    extracted_tasks: Sequence[ExtractedTask], work_dir: str | None = None, space: Any = "post-order-apply",
    strategy: Any = "evolutionary", num_threads: Any = "physical", seed: int | None = None,
) -> tuple[list[TuneContext], list[float]]:  # fmt: skip
    """Convert tasks to contexts and weights."""
    contexts = [
        make_context(task.dispatched[0], task.target, space, strategy, task.task_name, seed) for task in extracted_tasks
    ]
    return contexts, [float(task.weight) for task in extracted_tasks]


def tune_relax(
    mod: IRModule | relax.Function, params: Params, target: Target | str, work_dir: str | None,
    max_trials_global: int, max_trials_per_task: int | None = None, op_names: Sequence[str] | None = None, *,
    num_trials_per_iter: int = 64, builder: Any = "local", runner: Any = "local", database: Any = "json",
    cost_model: Any = "xgb", measure_callbacks: Any = "default", task_scheduler: Any = "gradient",
    space: Any = "post-order-apply", strategy: Any = "evolutionary", seed: int | None = None,
    module_equality: str = "structural", budget: float | None = None,
) -> Database:  # fmt: skip
    """Tune the kernels of a graph; those only whose names contain one of `op_names`, if it is given. TVM: `tune_relax`.

    The arguments are those of `extract_tasks` and `tune_tasks`. Raises CompileError, ValueError.
    """
    tasks = extract_tasks(mod, target, params, module_equality)
    chosen = [t for t in tasks if not op_names or any(name in t.task_name for name in op_names)]
    contexts, weights = extracted_tasks_to_tune_contexts(chosen, work_dir, space, strategy, seed=seed)
    return tune_tasks(
        tasks=contexts, task_weights=weights, work_dir=work_dir, max_trials_global=max_trials_global,
        max_trials_per_task=max_trials_per_task, num_trials_per_iter=num_trials_per_iter, builder=builder,
        runner=runner, database=database, cost_model=cost_model, measure_callbacks=measure_callbacks,
        task_scheduler=task_scheduler, module_equality=module_equality, budget=budget,
    )  # fmt: skip


def apply_database(
    mod: IRModule | Func, target: Target | str, database: Database, params: Params = None
) -> ExtractedModule:
    """Schedule the kernels of a graph by the records of a database; kernels without a record are unchanged. Return the
    module with the remaining passes. TVM: the pass `MetaScheduleApplyDatabase`. Raises CompileError."""
    where = Target.parse(target)
    extracted = _extracted(mod, where, params)
    scheduled_module = extracted.module.copy()
    for name, func in extracted.module.functions.items():
        if not isinstance(func, tir.PrimFunc) or why_ineligible(func) is not None:
            continue
        sch = database.query_schedule(module_of(func), where)
        if sch is not None:
            scheduled = sch.mod[MAIN]
            assert isinstance(scheduled, tir.PrimFunc)
            marks = {SCHEDULED: True, MADE_BY: "a record of a tuning database"}
            scheduled_module.update_func(name, with_module_attrs_of(scheduled, func).with_attr(marks))
    return ExtractedModule(scheduled_module, extracted.left, extracted.tasks)


def compile_relax(
    database: Database, mod: IRModule | Func, target: Target | str, params: Params = None, enable_warning: bool = False
) -> Artifact:
    """Build a graph with the schedules of a database, and those of the rules where it has none; `mlcc.load` runs what
    comes out. TVM: `compile_relax`. `enable_warning` changes nothing. Raises CompileError."""
    from mlcc.driver import build

    extracted = apply_database(mod, target, database, params)
    return build(extracted.module, target, pipeline=extracted.left)


def _extracted(mod: IRModule | Func, target: Target, params: Params) -> ExtractedModule:
    from mlcc.passes.graph.bind_params import bind, relax_function

    module = (mod if isinstance(mod, IRModule) else IRModule.from_expr(mod)).copy()
    if params:
        func = relax_function(module, MAIN, "tune_relax")
        module.functions[MAIN] = bind(func, params, MAIN, module)
    return extract(module, target, level=_LEVEL)
