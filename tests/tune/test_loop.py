"""The tuning loop over a runner whose times are known: what it finds, when it ends, and that it resumes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import mlcc
from mlcc.errors import CompileError, error
from mlcc.ir.equal import structural_equal
from mlcc.passes.auto_schedule.eligibility import SCHEDULED
from mlcc.records.database import Database
from mlcc.tune import engine
from mlcc.tune.engine import Tuning, _PeakRateHistory, tune, tuning
from mlcc.tune.kernel_search import KernelSearch, replay_mismatch
from mlcc.tune.ratio_statistics import median_ratio, ratio_upper_bound
from mlcc.tune.tuning_loop import SearchLimits
from tests.tune.fakes import FakeRunner, FakeSpace, module

ROOT = Path(__file__).resolve().parents[2]


def tuned(runner: FakeRunner | None = None, sizes: tuple[int, ...] = (32,), **options: Any) -> Tuning:
    options = {"threads": 1, "space": FakeSpace, **options}
    return tune(module(*sizes), runner=runner or FakeRunner(), **options)


def winners(made: Tuning) -> list[tuple[str, float | None]]:
    return [(r.candidate, r.ratio) if (r := made.winner(k)) else ("", None) for k in made.kernels]


def test_estimates_and_bounds_are_right() -> None:
    assert median_ratio([3.0, 1.0, 2.0]) == 2.0
    assert ratio_upper_bound([1.0] * 5) == float("inf")
    assert ratio_upper_bound([0.9] * 40) == 0.9
    spread = [0.5 + n / 40 for n in range(40)]
    assert median_ratio(spread) < ratio_upper_bound(spread) < 1.3


def test_finds_the_best_of_a_space() -> None:
    made = tuned(until=2.0)
    (kernel,) = made.kernels
    assert len(FakeSpace(kernel.task).left) == 40 and kernel.trials <= 40
    record = made.winner(kernel)
    assert record is not None and record.bound is not None and record.bound < 0.98
    best = min(r.ratio for r in made.database.records() if r.status == "ok" and r.ratio is not None)
    assert record.ratio == pytest.approx(best, abs=0.01)
    assert kernel.ratio == record.ratio and kernel.failed
    assert made.loop.why_done == "no more gain is expected"
    assert 0 < made.loop.ratio < 1


def test_the_default_stays_where_nothing_is_better() -> None:
    class Slow(FakeRunner):
        def ratio(self, number: int) -> float:
            return 0.985 + number % 100 / 100

    made = tuned(Slow())
    assert winners(made) == [("", None)] and made.kernels[0].ratio is None
    assert made.loop.ratio == 1.0


def test_lucky_candidates_are_measured_afresh() -> None:
    """What looks fast in the search and is not replaces nothing."""

    class Lucky(FakeRunner):
        def outcome(self, baseline: str, key: str, samples: int) -> Any:
            self.bias = 0.8 if samples < 15 else 1.0
            return super().outcome(baseline, key, samples)

        def ratio(self, number: int) -> float:
            return self.bias * (1 + number % 7 / 100)

    made = tuned(Lucky())
    assert winners(made) == [("", None)]


def test_a_default_that_fails_is_left_alone() -> None:
    class Broken(FakeRunner):
        def outcome(self, baseline: str, key: str, samples: int) -> Any:
            from mlcc.tune.contracts import Outcome, Status

            return (
                Outcome(Status.CRASH, why="signal 11") if key == baseline else super().outcome(baseline, key, samples)
            )

    made = tuned(Broken())
    assert made.kernels[0].why_done == "the default schedule is crash: signal 11" and not made.kernels[0].trials


def test_a_kernel_whose_default_fails_in_the_midst_ends_alone() -> None:
    class Fading(FakeRunner):
        def measure(self, task: Any, baseline: Any, candidates: Any, samples: int) -> Any:
            if task.names[0] == "mm32" and len(self.measured) > 12:
                raise CompileError(error("E1142", "the unscheduled function cannot be run: no memory"))
            return super().measure(task, baseline, candidates, samples)

    made = tuned(Fading(), sizes=(32, 48), until=2.0)
    fading, other = made.kernels
    assert "no memory" in fading.why_done and other.trials > 16 and made.winner(other) is not None


def test_trials_and_time_are_limits() -> None:
    made = tuned(trials=10)
    assert made.loop.trials == 10 and made.loop.why_done == "10 candidates were tried"
    clock = iter(range(10_000))
    with tuning(module(32, 48), threads=1, space=FakeSpace, runner=FakeRunner(), budget=12, until=2.0) as found:
        found.loop.clock = lambda: float(next(clock))
        found.loop.run()
        assert found.loop.why_done == "the time is up" and found.loop.trials < 80


def test_a_batch_is_proposed_when_it_is_measured() -> None:
    asked: list[int] = []

    class Counted(FakeSpace):
        def batches(self, seed: int, size: int) -> Any:
            search = super().batches(seed, size)
            batch = next(search)
            while True:
                asked.append(len(batch))
                ratios = yield batch
                try:
                    batch = search.send(ratios)
                except StopIteration:
                    return

    made = tuned(space=Counted, trials=15, until=2.0)
    assert made.loop.trials == 15 and made.kernels[0].batches == len(asked) == 1


def test_a_limit_for_each_kernel() -> None:
    with tuning(module(32, 48), threads=1, space=FakeSpace, runner=FakeRunner(), until=2.0) as found:
        found.loop.limits = SearchLimits(until=2.0, kernel_trials=6)
        found.loop.run()
        assert [(k.trials, k.why_done) for k in found.kernels] == [(6, "6 candidates were tried")] * 2


def test_small_kernels_are_skipped_and_shares_are_weighed() -> None:
    class Sized(FakeRunner):
        def measure(self, task: Any, baseline: Any, candidates: Any, samples: int) -> Any:
            from dataclasses import replace

            scale = {"mm32": 1.0, "mm48": 300.0, "mm64": 100.0}[task.names[0]]
            found = super().measure(task, baseline, candidates, samples)
            return [replace(o, seconds=tuple(s * scale for s in o.seconds)) for o in found]

    made = tuned(Sized(), sizes=(32, 48, 64), trials=16)
    small, large, middle = made.kernels
    assert small.why_done.startswith("less than 1%") and not small.trials
    assert large.trials == 16 and not middle.trials
    assert large.share == pytest.approx(0.748, abs=0.01)


def test_the_roofline_ends_a_search() -> None:
    with tuning(module(32), threads=1, space=FakeSpace, runner=FakeRunner(), until=0.9) as found:
        found.loop.floors = lambda kernel, again: 0.95e-4
        found.loop.run()
        assert found.kernels[0].why_done == "at 95% of the roofline" and not found.kernels[0].trials


def test_what_the_machine_can_do_is_the_same_when_a_search_is_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    from mlcc.tune import peak_rates

    speeds = iter((1.0, 3.0, 2.0))
    monkeypatch.setattr(peak_rates, "measure", lambda threads: peak_rates.PeakRates(next(speeds) * 1e9, ()))
    monkeypatch.setattr("mlcc.tune.roofline.least_seconds", lambda task, found: found.flops)
    with Database(":memory:") as records, tuning(module(32), threads=1, space=FakeSpace, runner=FakeRunner()) as found:
        task = found.kernels[0].task
        seen = [[_PeakRateHistory(records).roofline(task, False)], []]
        for one in seen:
            machine = _PeakRateHistory(records)
            one[:] = [machine.roofline(task, again) for again in (False, True, False, True, True)]
        assert seen[0] == seen[1] == [1e9, 3e9, 3e9, 3e9, 3e9]


def test_equal_code_is_one_measurement() -> None:
    """Of candidates that come to the same code none is luckier."""

    class Alike(FakeRunner):
        def outcome(self, baseline: str, key: str, samples: int) -> Any:
            found = super().outcome(baseline, key, samples)
            return replace(found, digest="same") if found.ratios and key != baseline else found

    made = tuned(Alike(), trials=20)
    ratios = {r.ratio for r in made.database.records() if r.stage == 0 and r.digest}
    assert len(ratios) == 1


def test_what_comes_out_needs_no_database(tmp_path: Path) -> None:
    made = tuned(sizes=(32, 48))
    whole = made.scheduled()
    texts = [whole[f"mm{n}"] for n in (32, 48)]
    assert all(f.attrs.get(SCHEDULED) for f in texts)
    again = mlcc.parse(whole.script())
    assert structural_equal(again, whole)
    mlcc.build(again, "llvm{cpu=native}")


def test_steps_that_give_another_function_are_no_record() -> None:
    made = tuned(trials=1)
    space = FakeSpace(made.kernels[0].task)
    one, other = space.made((2, 2, False)), space.made((2, 4, True))
    from dataclasses import replace

    assert replay_mismatch(made.kernels[0].task, one) is None
    assert (
        replay_mismatch(made.kernels[0].task, replace(one, trace=other.trace)) == "its steps produce another function"
    )


def test_resumes_from_records(tmp_path: Path) -> None:
    path = str(tmp_path / "t.db")
    first = FakeRunner()
    made = tuned(first, database=path, until=2.0, trials=16)
    expected = winners(made)
    made.close()
    second = FakeRunner()
    again = tuned(second, database=path, until=2.0, trials=16)
    assert not second.measured and winners(again) == expected and len(first.measured) > 12
    assert again.loop.trials == made.loop.trials
    again.close()
    other = FakeRunner()
    tuned(other, database=path, threads=2, trials=2).close()
    assert other.measured, "records are for one number of threads"


def test_resumes_from_records_of_another_machine(tmp_path: Path) -> None:
    """What a cluster measured is not taken for schedules from elsewhere, which are tried first."""

    class Remote(FakeRunner):
        device = "a machine far away"

    path = str(tmp_path / "t.db")
    made = tuned(Remote(), database=path, until=2.0, trials=16)
    expected = winners(made)
    made.close()
    second = Remote()
    again = tuned(second, database=path, until=2.0, trials=16)
    assert not second.measured and not again.kernels[0].seeds and winners(again) == expected
    assert again.loop.history[-1][1:] == made.loop.history[-1][1:]
    again.close()


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.tune.fakes import FakeRunner
from tests.tune.test_loop import tuned, winners

path, at = sys.argv[1], int(sys.argv[2])
count = 0
def each():
    global count
    count += 1
    if count == at:
        os.kill(os.getpid(), signal.SIGKILL)

made = tuned(FakeRunner(each), sizes=(32, 48), database=path, until=2.0, trials=32)
print(winners(made), made.loop.trials)
"""


def run_killed(path: Path, at: int) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    return subprocess.run([sys.executable, "-c", KILLED, str(path), str(at)], capture_output=True, text=True, env=env)


def test_killed_at_any_moment_it_finds_the_same(tmp_path: Path) -> None:
    """SIGKILL while a candidate is measured, again and again: each time it gets a bit further, to the same end."""
    whole = run_killed(tmp_path / "whole.db", 0)
    assert whole.returncode == 0, whole.stderr
    path = tmp_path / "t.db"
    for at in (2, 9, 17):
        done = run_killed(path, at)
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
    last = run_killed(path, 0)
    assert last.stdout == whole.stdout
    with Database(str(path)) as db, Database(str(tmp_path / "whole.db")) as other:
        assert [r.candidate for r in db.winners()] == [r.candidate for r in other.winners()]


def test_killed_by_an_exception_at_each_record(tmp_path: Path) -> None:
    """The same in one process, at each of the measurements of a run."""
    whole = FakeRunner()
    made = tuned(whole, until=2.0, trials=12)
    expected = winners(made)

    class Killed(BaseException):
        pass

    for at in range(1, len(whole.measured) + 1, 2):
        path = str(tmp_path / f"{at}.db")
        left = [at]

        def each(left: list[int] = left) -> None:
            left[0] -= 1
            if not left[0]:
                raise Killed

        with pytest.raises(Killed), tuning(
            module(32), threads=1, space=FakeSpace, runner=FakeRunner(each), database=path, until=2.0, trials=12
        ) as found:  # fmt: skip
            found.loop.run()
        rest = FakeRunner()
        again = tuned(rest, database=path, until=2.0, trials=12)
        assert winners(again) == expected
        again.close()


def test_what_is_refused_leaves_no_process_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(task: Any) -> Any:
        raise CompileError(error("E1133", "there is no such space"))

    made: list[FakeRunner] = []
    monkeypatch.setattr(engine, "runner_for", lambda *_: made.append(FakeRunner()) or made[0])
    with pytest.raises(CompileError, match="E1133"):
        tuning(module(32), threads=1, space=refused)
    assert made[0].closed


def test_kernels_show_what_they_are_at() -> None:
    seen: list[int] = []

    def changed(made: Tuning) -> None:
        seen.append(made.loop.trials)

    with tuning(module(32), threads=1, space=FakeSpace, runner=FakeRunner(), changed=changed) as found:
        found.loop.run()
        (kernel,) = found.kernels
        assert isinstance(kernel, KernelSearch) and kernel.best_seconds is not None
        assert seen == sorted(seen) and seen[-1] == kernel.trials
