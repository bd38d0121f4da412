"""What became of candidates, by TVM's names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class RunnerResult:
    """Seconds of the runs of a candidate; None with the reason where it did not run. TVM: `RunnerResult`."""

    run_secs: Sequence[float] | None
    error_msg: str | None = None


class EvaluatorConfig(NamedTuple):
    """How often TVM's runners run a candidate. Runners here sample in rounds beside the default instead."""

    number: int = 3
    repeat: int = 1
    min_repeat_ms: int = 100
    enable_cpu_cache_flush: bool = False
