"""Choose the database record to schedule a function by, or give the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from mlcc.machine.device import ANALYSIS, is_gpu
from mlcc.records.database import Database
from mlcc.records.record import Record, Setting

MIN_GAIN = 0.02
_WORDS = {
    "device": "another machine ({})", "target": "the target {}", "threads": "{} threads", "level": "-O{}",
    "compiler": "mlcc {}",
}  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """The `record` to apply; else the reason why there is none, and whether there are records of other settings."""

    record: Record | None
    why: str = ""
    differs: bool = False


def choose(database: Database, workload: str, setting: Setting, min_gain: float = MIN_GAIN) -> Choice:
    """Choose the best record of a workload under a setting, if its gain is certain to be at least `min_gain`.

    If kernels are scored by analysis, because there is no GPU, measurements on any GPU are used instead.
    """
    finals = database.finals(workload)
    settings = _measured(database, workload, setting) or {setting}
    matching = [record for record in finals if record.setting in settings]
    improving = [r for r in matching if r.bound is not None and r.bound < 1 - min_gain]
    if improving:
        return Choice(improving[0])
    if matching or any(record.setting in settings for record in database.records(workload)):
        return Choice(None, "nothing better was found")
    others = [r for r in finals if r.bound is not None and r.bound < 1 - min_gain]
    if others:
        return Choice(None, f"its records are for {_differences(others[0].setting, setting)}", True)
    return Choice(None, "the database has no record of it")


def _measured(database: Database, workload: str, setting: Setting) -> set[Setting]:
    """Return the settings of GPUs that measured the workload, in place of a setting without a device."""
    if setting.device != ANALYSIS:
        return set()
    settings = {record.setting for record in database.records(workload)}
    return {
        measured for measured in settings if is_gpu(measured.device) and replace(measured, device=ANALYSIS) == setting
    }


def _differences(other: Setting, setting: Setting) -> str:
    """Return a description of the other setting's values that differ from this one's."""
    names = [f.name for f in fields(Setting) if getattr(other, f.name) != getattr(setting, f.name)]
    return ", ".join(_WORDS[name].format(getattr(other, name)) for name in names).replace("1 threads", "1 thread")
