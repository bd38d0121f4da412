"""Shares of the tests: bounded in time, and all cases run in turn."""

from __future__ import annotations

from pathlib import Path

from tests.shares import LISTED, UNKNOWN, Durations, function_of, share

ROOT = Path(__file__).resolve().parents[2]

LONG = [f"tests/a.py::test_long[{i}]" for i in range(10)]
SHORT = [f"tests/a.py::test_short[{i}]" for i in range(10)]
DURATIONS = Durations({"tests/a.py::test_long": 0.5, "tests/b.py::test_one": 4.0})


def test_consecutive_seeds_run_every_case() -> None:
    for seed in (0, 7, 739000):
        run = set().union(*(share(LONG, 3, seed + day) for day in range(4)))
        assert run == set(LONG)


def test_a_share_has_no_more_than_there_is() -> None:
    assert share(LONG, 12, 5) == set(LONG)


def test_of_a_long_function_some_cases_run() -> None:
    chosen = DURATIONS.bound_functions([*LONG, *SHORT], 2.0, 1)
    assert len(chosen & set(LONG)) == 4
    assert set(SHORT) <= chosen, "all of a test of unknown time"


def test_of_every_function_a_case_runs() -> None:
    assert DURATIONS.bound_functions(["tests/b.py::test_one"], 2.0, 1) == {"tests/b.py::test_one"}


def test_a_file_takes_no_longer_than_asked() -> None:
    for seed in range(5):
        chosen = DURATIONS.bound_files([*LONG, *SHORT, "tests/b.py::test_one"], 1.0, seed)
        assert chosen and "tests/b.py::test_one" not in chosen
        assert DURATIONS.total(chosen) <= 2.0


def test_a_forecast_says_the_time() -> None:
    assert DURATIONS.forecast(LONG * 50, 2) == "500 tests, about 3 minutes by 2 quiet cores"


def test_measured_times_replace_those_of_before() -> None:
    after = DURATIONS.updated({"tests/b.py::test_one": LISTED / 2, SHORT[0]: 1.0, SHORT[1]: 2.0})
    assert after.seconds == {"tests/a.py::test_long": 0.5, "tests/a.py::test_short": 1.5}
    assert after.of("tests/b.py::test_one") == UNKNOWN


def test_durations_are_written_as_they_are_read(tmp_path: Path) -> None:
    DURATIONS.write(tmp_path / "durations.txt")
    assert Durations.read(tmp_path / "durations.txt") == DURATIONS


def test_listed_files_exist() -> None:
    missing = {f for f in Durations.read().seconds if not (ROOT / function_of(f).split("::")[0]).exists()}
    assert not missing, "run `make test-durations`"
