"""The tuning loop: chooses the kernel to search next, and ends the search.

The default schedules are measured first. Then kernels are searched a batch at a time, in the order of the expected
gain: a kernel's share of the module's time and the gain of its recent batches. The order depends on the seed and on
recorded values only, so that an interrupted search resumes where it was; only the end of the budget depends on the
clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mlcc.tune.kernel_search import BATCH_SIZE, KernelSearch
from mlcc.tune.task_scheduler import GradientBased

NEGLIGIBLE = 0.01  # share of the module's time below which a kernel is not searched
INITIAL_GAIN = 0.15  # the expected gain of a kernel's first batch, limited by the roofline
GAIN_DECAY = 0.5  # of the expected gain with each batch


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """Stopping criteria of a search: `seconds` and `trials` (candidates) for all kernels together.

    A kernel by itself ends at the share `until` of its roofline, or after `kernel_trials` candidates.
    """

    seconds: float | None = None
    trials: int | None = None
    until: float = 0.9
    kernel_trials: int | None = None


@dataclass(eq=False)
class TuningLoop:
    """A search over all kernels. `changed` is called on progress."""

    kernels: Sequence[KernelSearch]
    limits: SearchLimits = field(default_factory=SearchLimits)
    changed: Callable[[], None] = lambda: None
    clock: Callable[[], float] = time.monotonic
    floors: Callable[[KernelSearch, bool], float] = lambda kernel, again: (
        0.0
    )  # the roofline time; `again`: with a new measurement of the peak
    choose: Callable[[TuningLoop, Sequence[KernelSearch]], KernelSearch] = GradientBased().choose
    why_done: str = ""
    history: list[tuple[float, int, float]] = field(default_factory=list)  # seconds, trials, the module's relative time
    _began: float = 0.0

    @property
    def trials(self) -> int:
        return sum(kernel.trials for kernel in self.kernels)

    @property
    def elapsed(self) -> float:
        return self.clock() - self._began

    @property
    def seconds_left(self) -> float | None:
        """The remaining seconds of the budget."""
        return None if self.limits.seconds is None else max(self.limits.seconds - self.elapsed, 0.0)

    @property
    def ratio(self) -> float:
        """The module's time relative to the default's, by the kernels that were measured."""
        return 1.0 - sum(k.share * (1.0 - (k.ratio or 1.0)) for k in self.kernels if k.default_seconds is not None)

    def run(self) -> None:
        """Search until a limit is reached or no gain is expected. An exception may end it at any time: the kernels'
        states stay consistent."""
        self._began = self.clock()
        for kernel in self.kernels:
            if not self._has_time():
                kernel.why_done = kernel.why_done or "the time is up"
                continue
            kernel.measure_default()
            self.changed()
        self._update_shares()
        while self._may_continue():
            left = self._active_kernels()
            if not left:
                self.why_done = "no more gain is expected"
                break
            chosen = self.choose(self, left)
            chosen.step(self._batch_size(chosen), self._report_and_check_time)
            self.history.append((self.elapsed, self.trials, self.ratio))
            self.changed()

    def _update_shares(self) -> None:
        """Update the kernels' shares of the module's time, and their rooflines."""
        known = [k for k in self.kernels if k.default_seconds is not None]
        total = sum((k.default_seconds or 0.0) * k.task.calls for k in known)
        for kernel in known:
            kernel.share = (kernel.default_seconds or 0.0) * kernel.task.calls / total if total else 0.0
            if kernel.share < NEGLIGIBLE:
                kernel.why_done = f"less than {NEGLIGIBLE:.0%} of the time"
            elif self._has_time():
                kernel.roofline_seconds = self.floors(kernel, False)
        self.changed()

    def _active_kernels(self) -> list[KernelSearch]:
        """Update the stop reasons. Return the kernels whose search continues."""
        for kernel in self.kernels:
            if not kernel.why_done and (kernel.roofline_share or 0.0) >= self.limits.until:
                kernel.roofline_seconds = self.floors(
                    kernel, True
                )  # the measurement of the peak may have been disturbed
            if not kernel.why_done and (kernel.roofline_share or 0.0) >= self.limits.until:
                kernel.why_done = f"at {kernel.roofline_share:.0%} of the roofline"
            if not kernel.why_done and not self._batch_size(kernel):
                kernel.why_done = f"{kernel.trials} candidates were tried"
        return [k for k in self.kernels if not k.why_done and k.default_seconds is not None]

    def _batch_size(self, kernel: KernelSearch) -> int:
        """Return the size of the kernel's next batch: at most BATCH candidates, within the limits that remain."""
        allowed = ((self.limits.trials, self.trials), (self.limits.kernel_trials, kernel.trials))
        return min([BATCH_SIZE, *(most - done for most, done in allowed if most is not None)])

    def expected(self, kernel: KernelSearch) -> float:
        """Estimate the gain of another batch, as a share of the module's time.

        The gain of recent batches, or a prior that decays with each batch where that is larger.
        """
        room = 1.0 - min((kernel.roofline_share or 0.0) / self.limits.until, 1.0)
        return kernel.share * max(kernel.recent_gain(), min(INITIAL_GAIN, room) * GAIN_DECAY**kernel.batches)

    def _has_time(self) -> bool:
        return self.limits.seconds is None or self.elapsed < self.limits.seconds

    def _report_and_check_time(self) -> bool:
        self.changed()
        return self._has_time()

    def _may_continue(self) -> bool:
        if not self._has_time():
            self.why_done = "the time is up"
        elif self.limits.trials is not None and self.trials >= self.limits.trials:
            self.why_done = f"{self.trials} candidates were tried"
        return not self.why_done
