"""A runner with a cache: measurements found in the database under the same conditions are not repeated."""

from __future__ import annotations

import datetime
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from mlcc.passes.auto_schedule.apply_tuned import setting_for
from mlcc.records.database import Database
from mlcc.records.record import FINAL, Record, Setting
from mlcc.records.workload import candidate_key as candidate_key
from mlcc.records.workload import module_of
from mlcc.tune.contracts import Candidate, Outcome, Runner, Status, Task
from mlcc.tune.ratio_statistics import median_ratio, ratio_upper_bound


def task_setting(task: Task, device: str | None = None) -> Setting:
    """The conditions under which a task is measured on a device, by default this one."""
    setting = setting_for(task.target, task.threads, task.level)
    return setting if device is None else replace(setting, device=device)


class RecordedRunner:
    """Measures candidates of one task, and records each outcome at once.

    The key of a measurement is the candidate and its stage, the number of earlier requests for it, so that a resumed
    search replays its course from the records. Records take precedence over the runner's outcomes: another process may
    have recorded the measurement first. `setting` is the records' setting.
    """

    def __init__(self, runner: Runner, database: Database, task: Task, baseline: Candidate, seed: int = 0,
                 device: str | None = None) -> None:  # fmt: skip
        self._runner, self._database, self._task, self._seed = runner, database, task, seed
        self._baseline = baseline
        self._base = candidate_key(baseline.func)
        self.setting = task_setting(task, device)
        self._stages: Counter[str] = Counter()
        self._text = f"# {task.names[0]}\n{module_of(task.func).script()}"

    def measure(
        self, candidates: Sequence[Candidate], samples: int, *, final: bool = False, batch: int = 0
    ) -> list[Outcome]:
        """The outcomes of candidates in order, from the records or the runner. `final` samples are for validation."""
        keys = [candidate_key(c.func) for c in candidates]
        stages = [FINAL if final else self._stages[key] for key in keys]
        if not final:
            self._stages.update(keys)
        known = [*map(self._find, keys, stages)]
        missing = [at for at, record in enumerate(known) if record is None]
        if missing:
            chosen = [candidates[at] for at in missing]
            outcomes = self._runner.measure(self._task, self._baseline.func, [c.func for c in chosen], samples)
            by_code: dict[tuple[str, int], Outcome] = {}
            records = []
            for at, outcome in zip(missing, outcomes, strict=True):
                if outcome.digest:
                    code = outcome.digest, stages[at]
                    outcome = by_code.setdefault(code, self._reuse_equal_code(outcome, stages[at]))
                records.append(self._record(keys[at], stages[at], candidates[at], outcome, batch))
            self._database.add(records, [(self._task.key, self._text)])
            for at, record in zip(missing, records, strict=True):
                known[at] = self._find(keys[at], stages[at]) or record
        return [_outcome(record) for record in known if record is not None]

    def _reuse_equal_code(self, outcome: Outcome, stage: int) -> Outcome:
        """Return the earlier outcome of the same machine code at this stage, if any, else the given one.

        Candidates with equal code thus get equal results, whatever the noise of measurements.
        """
        known = self._database.find_same_code(self._task.key, self.setting, self._base, outcome.digest, stage)
        return outcome if known is None else _outcome(known)

    def _find(self, key: str, stage: int) -> Record | None:
        return self._database.find(self._task.key, self.setting, self._base, key, stage)

    def _record(self, key: str, stage: int, candidate: Candidate, outcome: Outcome, batch: int) -> Record:
        is_ok = outcome.status is Status.OK
        return Record(
            self._task.key, self.setting, self._base, key, stage, outcome.status.value,
            decisions=json.dumps(candidate.decisions, default=str),
            trace=str(candidate.trace),
            ratios=tuple(outcome.ratios),
            seconds=tuple(outcome.seconds),
            ratio=median_ratio(outcome.ratios) if is_ok and outcome.ratios else None,
            bound=_finite_or_none(ratio_upper_bound(outcome.ratios)) if is_ok and stage == FINAL else None,
            why=outcome.why,
            seed=self._seed,
            batch=batch,
            made=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            digest=outcome.digest,
        )  # fmt: skip


def _finite_or_none(value: float) -> float | None:
    return value if value < float("inf") else None


def _outcome(record: Record) -> Outcome:
    return Outcome(Status(record.status), record.seconds, record.ratios, record.why, record.digest)
