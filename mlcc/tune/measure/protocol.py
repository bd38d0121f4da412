"""Requests to the measuring process and its answers: plain data, independent of the compiler."""

from __future__ import annotations

from dataclasses import dataclass

from mlcc.tune.measure.check import ErrorBound
from mlcc.tune.measure.kernel import Argument, Kernel


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """Resource limits of a candidate: seconds of CPU time in one step (a call, a sample), bytes beside its arguments.

    A candidate that uses no CPU time for `silence` seconds of wall time counts as hung.
    """

    seconds: float = 10.0
    memory: int = 4 << 30
    silence: float = 10.0


@dataclass(frozen=True, slots=True)
class PrepareRequest:
    """Create `sets` sets of arguments from a seed, and the reference results by `reference`.

    Timed calls rotate through the sets: if these exceed the caches, every call starts with cold caches.
    """

    arguments: tuple[Argument, ...]
    reference: Kernel
    bound: ErrorBound
    seed: int = 0
    threads: int = 1
    sets: int = 1
    limits: ResourceLimits = ResourceLimits()


@dataclass(frozen=True, slots=True)
class MeasureRequest:
    """Check a kernel and time it beside a baseline: `samples` samples of each, in rounds of at least `least` seconds.

    Sampling stops if the kernel was more than `give_up` times slower in two rounds.
    """

    baseline: Kernel
    candidate: Kernel
    samples: int
    least: float = 0.0004
    give_up: float = 2.0
    limits: ResourceLimits = ResourceLimits()


@dataclass(frozen=True, slots=True)
class Answer:
    """The response to a request; `status` is the value of a `contracts.Status`."""

    status: str
    why: str = ""
    seconds: tuple[float, ...] = ()
    ratios: tuple[float, ...] = ()
