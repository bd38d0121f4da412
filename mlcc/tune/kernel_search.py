"""The search for a schedule of one kernel: race batches against the default schedule, then validate finalists."""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field

from mlcc.errors import CompileError
from mlcc.records.workload import MAIN, module_of
from mlcc.tune.contracts import Candidate, Outcome, Space, Status, Task
from mlcc.tune.ratio_statistics import median_ratio, ratio_upper_bound
from mlcc.tune.recorded_runner import RecordedRunner, candidate_key

BATCH_SIZE = 16
FIRST_SAMPLES, SECOND_SAMPLES = 3, 10  # samples of every candidate, and more of the promising ones
FINAL_SAMPLES = 40  # fresh samples for validation
MIN_FINAL_SAMPLES, FINAL_SECONDS = 15, 3.0  # fewer for slow kernels: the minimum, and a limit in seconds
NO_BASELINE = "E1142"  # raised by runners if the default cannot be built or run
ACCEPT_BOUND = 0.98  # a candidate replaces the default if its upper bound of the ratio is below
PRUNE_RATIO = 1.3  # relative to the best of the batch: slower candidates are not sampled again
FINALISTS = 2
POLL_SECONDS = 1.0  # seconds between checks of the clock
PATIENCE, MIN_GAIN = 3, 0.01  # the search ends after so many batches with less total gain


@dataclass(eq=False)
class KernelSearch:
    """The state of the search for one kernel.

    `ratio` is the time of the best validated schedule relative to the default's, None if there is none; `history` has
    (trials, ratio). `why_done` is set when the search has ended. `seeds` are measured before candidates of the space.
    """

    task: Task
    space: Space
    default: Candidate
    runner: RecordedRunner
    seed: int = 0
    seeds: Sequence[Candidate] = ()
    default_seconds: float | None = None
    roofline_seconds: float = 0.0
    share: float = 1.0
    best: Candidate | None = None
    ratio: float | None = None
    bound: float | None = None
    trials: int = 0
    batches: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    history: list[tuple[int, float]] = field(default_factory=list)
    why_done: str = ""
    _ratios: dict[str, list[float] | None] = field(default_factory=dict)  # ratios by candidate; None: it failed
    _validated: set[str] = field(default_factory=set)
    _seconds_per_candidate: float = 0.25  # of the last candidates
    _rank: tuple[float, float, str] = (math.inf, math.inf, "")  # of the best, the sort key of records
    _proposals: Generator[Sequence[Candidate], Sequence[float | None], None] | None = None
    _proposed: Sequence[Candidate] | None = None  # the last batch
    _is_measured: bool = False  # the whole last batch, so that the space can propose the next

    @property
    def name(self) -> str:
        return self.task.names[0]

    @property
    def best_seconds(self) -> float | None:
        """Seconds of a call with the best schedule."""
        return None if self.default_seconds is None else self.default_seconds * (self.ratio or 1.0)

    @property
    def roofline_share(self) -> float | None:
        """The share of the roofline that the best schedule reaches."""
        return None if not self.roofline_seconds or not self.best_seconds else self.roofline_seconds / self.best_seconds

    def measure_default(self) -> None:
        """Measure and check the default schedule, the baseline of all comparisons."""
        with self._ending_without_baseline():
            (outcome,) = self.runner.measure([self.default], FIRST_SAMPLES * 2)
            if outcome.status is not Status.OK or not outcome.seconds:
                self.why_done = f"the default schedule is {outcome.status.value}: {outcome.why}".rstrip(": ")
                return
            self.default_seconds = statistics.median(outcome.seconds)
            self._ratios[candidate_key(self.default.func)] = [1.0]

    def step(self, most: int, go_on: Callable[[], bool]) -> None:
        """Race one batch of at most `most` candidates against the default, and validate its finalists.

        `go_on` is polled; once it returns False, finalists of what was measured so far are validated, and the search
        cannot be continued. The search ends if the default does not run any more.
        """
        with self._ending_without_baseline():
            self._step(most, go_on)

    @contextlib.contextmanager
    def _ending_without_baseline(self) -> Iterator[None]:
        """End the search of this kernel only if its default cannot be built or run."""
        try:
            yield
        except CompileError as exc:
            if exc.diagnostics[0].code != NO_BASELINE:
                raise
            self.why_done = exc.diagnostics[0].message

    def _step(self, most: int, go_on: Callable[[], bool]) -> None:
        if self.seeds:
            seeds, self.seeds = self.seeds, ()
            self.batches += 1
            self._race_and_validate(self._deduplicate(seeds)[:most], go_on)
            return
        if self._proposals is None:
            self._proposals = self.space.batches(self.seed, BATCH_SIZE)
            self._proposed = next(self._proposals, None)
        elif self._is_measured and self._proposed:
            self._proposed = self._next_batch([self._estimate(c) for c in self._proposed])
        if not self._proposed:
            self.why_done = "the space is exhausted"
            return
        self.batches += 1
        fresh = self._deduplicate(self._proposed)
        chosen = fresh[:most]
        self._race_and_validate(chosen, go_on)
        self._is_measured = len(chosen) == len(fresh) and go_on()
        self._check_progress()

    def _race_and_validate(self, candidates: Sequence[Candidate], go_on: Callable[[], bool]) -> None:
        """Race candidates and validate the best of them."""
        self._race(candidates, go_on)
        self._validate_finalists(candidates)
        self.history.append((self.trials, self.ratio or 1.0))

    def _next_batch(self, values: Sequence[float | None]) -> Sequence[Candidate] | None:
        assert self._proposals is not None
        try:
            return self._proposals.send(values)
        except StopIteration:
            return None

    def _deduplicate(self, proposed: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates without duplicates and without those of earlier batches."""
        distinct: dict[str, Candidate] = {}
        for candidate in proposed:
            key = candidate_key(candidate.func)
            if key not in self._ratios and key not in distinct:
                distinct[key] = candidate
        return list(distinct.values())

    def _race(self, candidates: Sequence[Candidate], go_on: Callable[[], bool]) -> None:
        """Sample all candidates a few times, and those that may beat the default more often."""
        seen = self._sample(candidates, FIRST_SAMPLES, go_on)
        leading = min((e for c in seen if (e := self._estimate(c)) is not None), default=math.inf)
        near = [c for c in seen if (self._estimate(c) or math.inf) <= min(leading * PRUNE_RATIO, 1.05)]
        self._sample(sorted(near, key=self._sort_key)[: BATCH_SIZE // 4], SECOND_SAMPLES, go_on)

    def _sample(self, candidates: Sequence[Candidate], samples: int, go_on: Callable[[], bool]) -> list[Candidate]:
        """Sample candidates a few at a time while `go_on` allows. Return the sampled ones."""
        sampled: list[Candidate] = []
        while len(sampled) < len(candidates) and go_on():
            some = candidates[len(sampled) : len(sampled) + max(1, int(POLL_SECONDS / self._seconds_per_candidate))]
            began = time.monotonic()
            for candidate, outcome in zip(some, self.runner.measure(some, samples, batch=self.batches), strict=True):
                self._record_outcome(candidate, outcome)
            self._seconds_per_candidate = max((time.monotonic() - began) / len(some), 0.01)
            sampled += some
        return sampled

    def _record_outcome(self, candidate: Candidate, outcome: Outcome) -> None:
        key = candidate_key(candidate.func)
        self.trials += key not in self._ratios
        if outcome.status is not Status.OK or not outcome.ratios:
            self._ratios[key] = None
            self.failed[outcome.status.value] = self.failed.get(outcome.status.value, 0) + 1
        else:
            self._ratios[key] = [*(self._ratios.get(key) or []), *outcome.ratios]

    def _estimate(self, candidate: Candidate) -> float | None:
        ratios = self._ratios.get(candidate_key(candidate.func))
        return median_ratio(ratios) if ratios else None

    def _sort_key(self, candidate: Candidate) -> tuple[float, str]:
        """Return the sort key of a candidate: fastest first, ties by hash for a deterministic order."""
        return self._estimate(candidate) or math.inf, candidate_key(candidate.func)

    def _validate_finalists(self, candidates: Sequence[Candidate]) -> None:
        """Measure the best candidates again: the minimum of noisy measurements is biased (winner's curse)."""
        limit = min(ACCEPT_BOUND, self.ratio or 1.0)
        hopeful = [c for c in candidates if (self._estimate(c) or math.inf) < limit]
        for candidate in sorted(hopeful, key=self._sort_key)[:FINALISTS]:
            self.validate(candidate)

    def validate(self, candidate: Candidate) -> None:
        """Accept a candidate as the best one if fresh samples prove that it is faster."""
        key = candidate_key(candidate.func)
        if key in self._validated:
            return
        self._validated.add(key)
        why = replay_mismatch(self.task, candidate)
        if why is not None:
            self.failed["not replayed"] = self.failed.get("not replayed", 0) + 1
            return
        (outcome,) = self.runner.measure([candidate], self._final_samples(), final=True, batch=self.batches)
        if outcome.status is not Status.OK:
            return
        bound, ratio = ratio_upper_bound(outcome.ratios), median_ratio(outcome.ratios)
        if bound < ACCEPT_BOUND and (bound, ratio, key) < self._rank:
            self.best, self.ratio, self.bound, self._rank = candidate, ratio, bound, (bound, ratio, key)

    def _final_samples(self) -> int:
        seconds = max(self.default_seconds or 0.0, 1e-9)
        return max(MIN_FINAL_SAMPLES, min(FINAL_SAMPLES, int(FINAL_SECONDS / (2 * seconds))))

    def _check_progress(self) -> None:
        """End the search if the last batches gained too little."""
        if self.why_done or len(self.history) < PATIENCE:
            return
        earlier = self.history[-PATIENCE - 1][1] if len(self.history) > PATIENCE else 1.0
        if earlier - (self.ratio or 1.0) < MIN_GAIN * earlier:
            self.why_done = f"{PATIENCE} batches gained less than {MIN_GAIN:.0%}"

    def recent_gain(self) -> float:
        """The mean gain of the last batches, relative to the time of the default."""
        ratios = [1.0, *(ratio for _, ratio in self.history)][-PATIENCE - 1 :]
        return (ratios[0] - ratios[-1]) / max(len(ratios) - 1, 1)


def replay_mismatch(task: Task, candidate: Candidate) -> str | None:
    """Replay a candidate's trace from its text. Return the reason why it cannot be a record, None if it can.

    It can if the replayed steps give a function that is structurally equal to the candidate's.
    """
    from mlcc.ir.equal import structural_equal
    from mlcc.passes.schedule.mls.run import apply_schedule

    try:
        replayed = apply_schedule(module_of(task.func), str(candidate.trace))
    except CompileError as exc:
        return exc.diagnostics[0].message
    same = structural_equal(replayed[MAIN], candidate.func)
    return None if same else "its steps produce another function"
