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
    parameters for which every caller gives a constant; `calls` is how often the module calls it in one run; `sizes` are
    the values of symbolic sizes to measure with.
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
    """A way to schedule a task's function: `func` is the result, `trace` the steps that give it again.

    The steps run on `mlcc.records.workload.module_of(task.func)`, where the function is called `main`.

    `decisions` tell candidates of one space apart, in a form that JSON holds; `predicted` is the time that an analysis
    expects, relative to the default's (below 1 is faster; None: nothing is expected).
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
        """End all processes, give back all memory."""


class Space(Protocol):
    """The ways to schedule one task that a search goes through."""

    def default(self) -> Candidate | None:
        """The candidate to begin with, None if the space has no best guess."""

    def batches(self, seed: int, size: int) -> Generator[Sequence[Candidate], Sequence[float | None], None]:
        """Candidates to measure, at most `size` at a time. `batches` is a generator that is sent the measured ratios
        (None where one failed) of what it yielded last: what it proposes follows from the seed and those values only.
        """
