"""An adapter for user-defined builders and runners of TVM's API."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from mlcc.ir import tir
from mlcc.tune.arg_info import ArgInfo
from mlcc.tune.builder import Builder, BuilderInput, BuilderResult
from mlcc.tune.contracts import Outcome, Status, Task
from mlcc.tune.measure.closeable import Closeable
from mlcc.tune.runner import Runner, RunnerInput, RunnerResult
from mlcc.tune.tune_context import normalize_mod


class UserRunner(Closeable):
    """Builds by a `Builder` and runs by a `Runner`; see `contracts.Runner`.

    Their times of the baseline and the candidates of a batch are compared as given, and results are not checked.
    `device`, in records, is the name of the runner's class.
    """

    def __init__(self, builder: Builder, runner: Runner) -> None:
        self._builder, self._runner = builder, runner
        self.device = f"by {type(runner).__name__}"

    def measure(
        self, task: Task, baseline: tir.PrimFunc, candidates: Sequence[tir.PrimFunc], samples: int
    ) -> list[Outcome]:
        """The outcomes of `candidates` in order; fewer times than `samples` are repeated cyclically."""
        funcs = [baseline, *candidates]
        built = self._builder.build([BuilderInput(normalize_mod(func), task.target) for func in funcs])
        kind = "cuda" if task.target.kind == "cuda" else "cpu"
        ready = [
            RunnerInput(one.artifact_path, kind, ArgInfo.from_prim_func(func))
            for one, func in zip(built, funcs, strict=True)
            if one.artifact_path is not None
        ]
        results_of_ready = iter([future.result() for future in self._runner.run(ready)])
        results = [next(results_of_ready) if one.artifact_path is not None else None for one in built]
        baseline_secs = results[0].run_secs if results[0] is not None else None
        return [
            _outcome(built_one, result, baseline_secs, samples)
            for built_one, result in zip(built[1:], results[1:], strict=True)
        ]

    def close(self) -> None:
        """Do nothing: the runner holds no resources."""


def _outcome(
    built: BuilderResult, result: RunnerResult | None, baseline_secs: Sequence[float] | None, samples: int
) -> Outcome:
    if result is None:
        return Outcome(Status.REFUSED, why=built.error_msg or "it could not be built")
    if not result.run_secs or not baseline_secs:
        return Outcome(Status.CRASH, why=result.error_msg or "it, or the default, did not run")
    count = max(samples, len(result.run_secs))
    pairs = [*zip(itertools.cycle(result.run_secs), itertools.cycle(baseline_secs), range(count), strict=False)]
    return Outcome(Status.OK, tuple(s for s, _, _ in pairs), tuple(s / u for s, u, _ in pairs))
