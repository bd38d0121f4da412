"""Tuning of single kernels."""

from __future__ import annotations

from typing import Any

from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.machine.target import Target
from mlcc.passes.schedule.schedule import Schedule
from mlcc.tune.database import Database
from mlcc.tune.tune import TuneConfig, make_context, tune_tasks


def tune_tir(
    mod: IRModule | tir.PrimFunc, target: Target | str, work_dir: str | None = None,
    max_trials_global: int | None = None, *, config: TuneConfig | None = None, max_trials_per_task: int | None = None,
    num_trials_per_iter: int = 64, builder: Any = "local", runner: Any = "local", database: Any = "json",
    cost_model: Any = "xgb", measure_callbacks: Any = "default", task_scheduler: Any = "gradient",
    space: Any = "post-order-apply", strategy: Any = "evolutionary", num_tuning_cores: Any = "physical",
    seed: int | None = None, module_equality: str = "structural", special_space: dict[str, Any] | None = None,
    post_optimization: bool = False, budget: float | None = None, task_name: str = "main", num_threads: Any = None,
) -> Any:  # fmt: skip
    """Search for a fast schedule of a kernel. Return the database of results. TVM: `tune_tir`, with its arguments.

    `space` is "post-order-apply", a `SpaceGenerator`, a schedule function, the text of a schedule script, or the name
    of a `.mls` file. `budget` ends the search after so many seconds. With a `config` (`TuneConfig`), as in 2022, the
    best schedule is returned, None where nothing ran. `num_tuning_cores` and `num_threads` change nothing. See
    `tune_tasks` for the others. Raises CompileError, ValueError.
    """
    if config is not None:
        num_trials_per_iter, strategy = config.num_trials_per_iter, config.strategy.replace("_", "-")
        max_trials_global, max_trials_per_task = config.max_trials_global, config.max_trials_per_task
    if max_trials_global is None:
        raise ValueError("pass `max_trials_global` or a `config`: the number of candidates to measure")
    chosen = (special_space or {}).get(task_name, space)
    context = make_context(mod, target, chosen, strategy, task_name, seed)
    tuned = tune_tasks(
        tasks=[context], work_dir=work_dir, max_trials_global=max_trials_global,
        max_trials_per_task=max_trials_per_task, num_trials_per_iter=num_trials_per_iter, builder=builder,
        runner=runner, database=database, cost_model=cost_model, measure_callbacks=measure_callbacks,
        task_scheduler=task_scheduler, module_equality=module_equality, post_optimization=post_optimization,
        budget=budget,
    )  # fmt: skip
    return tuned if config is None else compile_tir(tuned, mod, target)


def compile_tir(database: Database, mod: IRModule | tir.PrimFunc, target: Target | str) -> Schedule | None:
    """Return a kernel scheduled by its fastest record, None if there is none. TVM: `compile_tir`."""
    return database.query_schedule(mod, target, workload_name="main")
