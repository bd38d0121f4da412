"""The tuner's interfaces: data types of tasks, candidates and outcomes, and protocols of spaces and runners."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from mlcc.ir import tir
from mlcc.machine.target import Target
from mlcc.passes.schedule.trace import Trace


@dataclass(frozen=True, eq=False)
class Task:
    """One kernel to tune: `func`, the unscheduled function that `names` of the module share, for a target.

    `key` is the structural hash (32 hexadecimal digits) of the function without its name and of `constants`, the
    parameters for which every caller passes a constant; `calls` is the number of calls in one run of the module;
    `sizes` are the values of symbolic sizes for measurements.
    """

    key: str
    names: tuple[str, ...]
    func: tir.PrimFunc
    target: Target
    threads: int = 1
    level: int = 2
    constants: frozenset[int] = frozenset()
    calls: int = 1
    sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Candidate:
    """A schedule of a task's function: `func` is the scheduled function, `trace` the steps that reproduce it.

    The steps run on `mlcc.records.workload.module_of(task.func)`, where the function is called `main`.

    `decisions` identify a candidate within its space, as JSON data; `predicted` is the time predicted by analysis,
    relative to the default schedule's (below 1 is faster; None: no prediction).
    """

    func: tir.PrimFunc
    trace: Trace
    decisions: tuple[tuple[str, object], ...] = ()
    predicted: float | None = None


class Status(Enum):
    """The result of building, checking and measuring a candidate. Databases store the values."""

    OK = "ok"
    WRONG = "wrong"  # its results are not those of the unscheduled function, or it writes outside its arguments
    REFUSED = "refused"  # the compiler refuses it
    TIMEOUT = "timeout"
    CRASH = "crash"


@dataclass(frozen=True)
class Outcome:
    """A runner's result for a candidate: seconds of calls, and their `ratios` to the baseline of the same round.

    `digest` is a hash of the machine code: candidates with equal digests are the same program.
    """

    status: Status
    seconds: tuple[float, ...] = ()
    ratios: tuple[float, ...] = ()
    why: str = ""
    digest: str = ""


class Runner(Protocol):
    """Builds scheduled functions of a task, checks their results and measures them, beside a baseline."""

    def measure(
        self, task: Task, baseline: tir.PrimFunc, candidates: Sequence[tir.PrimFunc], samples: int
    ) -> list[Outcome]:
        """The outcomes of `candidates` in order, `samples` rounds each; every round samples `baseline` as well."""

    def close(self) -> None:
        """End all processes and free all memory."""


class Space(Protocol):
    """A search space: the candidate schedules of one task."""

    def default(self) -> Candidate | None:
        """The candidate to start from, None if the space has none."""

    def batches(self, seed: int, size: int) -> Generator[Sequence[Candidate], Sequence[float | None], None]:
        """Yield batches of at most `size` candidates to measure.

        The generator is sent the measured ratios of the last batch (None for a failure). Its proposals depend on the
        seed and these values only.
        """
