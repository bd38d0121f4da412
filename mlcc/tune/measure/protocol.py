"""Requests to the process that runs candidates, and its answers: plain data, that know nothing of the compiler."""

from __future__ import annotations

from dataclasses import dataclass

from mlcc.tune.measure.check import ErrorBound
from mlcc.tune.measure.kernel import Argument, Kernel


@dataclass(frozen=True, slots=True)
class Limits:
    """Resource limits of a candidate: seconds of CPU time in one step (a call, a sample), bytes beside its arguments.

    A candidate that uses no CPU time for `silence` seconds of wall time counts as hung.
    """

    seconds: float = 10.0
    memory: int = 4 << 30
    silence: float = 10.0


@dataclass(frozen=True, slots=True)
class Prepare:
    """Make `sets` sets of arguments from a seed, and the results that `reference` computes from them.

    Calls that are timed take the sets in turn: with more bytes than the caches hold, they find nothing there.
    """

    arguments: tuple[Argument, ...]
    reference: Kernel
    bound: ErrorBound
    seed: int = 0
    threads: int = 1
    sets: int = 1
    limits: Limits = Limits()


@dataclass(frozen=True, slots=True)
class Measure:
    """Check a kernel, and time it beside another: `samples` samples of each, of rounds of `least` seconds or more.

    A kernel that was more than `give_up` times slower in two rounds gets no more of them.
    """

    baseline: Kernel
    candidate: Kernel
    samples: int
    least: float = 0.0004
    give_up: float = 2.0
    limits: Limits = Limits()


@dataclass(frozen=True, slots=True)
class Answer:
    """The response to a request; `status` is the value of a `contracts.Status`."""

    status: str
    why: str = ""
    seconds: tuple[float, ...] = ()
    ratios: tuple[float, ...] = ()
