"""Records of measurements: a workload, a setting, a candidate and its result."""

from __future__ import annotations

from dataclasses import dataclass

SEARCH, FINAL = 0, 1 << 20  # stages: the rounds of a search count up from SEARCH; fresh samples for a verdict are FINAL
TVM = "TVM"  # in the place of the device and of mlcc's version, in records of what TVM measured


@dataclass(frozen=True, slots=True)
class Setting:
    """The conditions of a measurement. A record says something about builds under the same ones only.

    device    which machine, by its parts (`mlcc.machine.device`), never by its name; "analysis" of what none measured
    target    the text of the target
    threads   how many ran; 1 for GPUs
    level     of `-O`
    compiler  the version of mlcc
    """

    device: str
    target: str
    threads: int
    level: int
    compiler: str


@dataclass(frozen=True, slots=True)
class Record:
    """One measurement of one candidate.

    `workload`, `baseline` and `candidate` are structural hashes: of the unscheduled function, of the schedule that the
    rules choose, and of the scheduled function. `ratios` are the times of the candidate over those of the baseline,
    sampled in turns; `seconds` the times of a call. `bound` is the upper end of the confidence interval of the ratio,
    known of final measurements only, and `ratio` its median. `status` is a value of `mlcc.tune.contracts.Status`.
    `digest` is that of the machine code; candidates of the same one are the same to a machine.
    """

    workload: str
    setting: Setting
    baseline: str
    candidate: str
    stage: int
    status: str
    decisions: str = "[]"
    trace: str = ""
    ratios: tuple[float, ...] = ()
    seconds: tuple[float, ...] = ()
    ratio: float | None = None
    bound: float | None = None
    why: str = ""
    seed: int = 0
    batch: int = 0
    made: str = ""
    digest: str = ""
