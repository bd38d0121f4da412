"""Options of the test run, and the golden-file helper."""

from __future__ import annotations

import datetime
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from mlcc import driver
from tests.shares import Durations

os.environ["MLCC_REDUCE"] = "0"  # programs that fail as they are to take no time to reduce
os.environ["MLCC_CACHE"] = "0"  # what is tested is compiling, not finding what was compiled before
driver.VERIFY_EACH = True


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files with what was produced")
    parser.addoption("--all-cases", action="store_true", help="run whole differential campaigns, not the seeded share")
    parser.addoption("--fuzz-seconds", type=float, default=20.0, help="seconds for each fuzz campaign")
    parser.addoption("--strict-skips", action="store_true", help="fail on a skip that tests/expected_skips.txt lacks")
    parser.addoption("--function-seconds", type=float, help="of each test function the cases that take as long")
    parser.addoption("--file-seconds", type=float, help="of each file the tests that take as long")
    today = datetime.date.today().toordinal()
    seed_help = "which share these two draw, and what Hypothesis draws (each day another)"
    parser.addoption("--share-seed", type=int, default=today, help=seed_help)
    parser.addoption("--write-durations", action="store_true", help="write tests/durations.txt")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Let what Hypothesis draws follow the seed of the share, so that a run can be repeated; no test is timed."""
    settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("untimed")
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(config.option.share_seed)


def _bounded(config: pytest.Config) -> bool:
    return config.option.function_seconds is not None or config.option.file_seconds is not None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the share of the tests that was asked for."""
    if not _bounded(config):
        return
    durations, seed = Durations.read(), config.option.share_seed
    chosen = {item.nodeid for item in items}
    if config.option.function_seconds is not None:
        chosen &= durations.bound_functions([i.nodeid for i in items], config.option.function_seconds, seed)
    if config.option.file_seconds is not None:
        chosen &= durations.bound_files([i.nodeid for i in items], config.option.file_seconds, seed)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
    items[:] = [item for item in items if item.nodeid in chosen]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any, ids: list[str]) -> None:
    """Say once, before the first test, what the run will take."""
    if node.gateway.id == "gw0":
        config = node.config
        line = Durations.read().forecast(ids, len(config.option.tx))
        drawn = f" (a share of all: --share-seed {config.option.share_seed})" if _bounded(config) else ""
        config.pluginmanager.get_plugin("terminalreporter").write_line(line + drawn)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """With `--strict-skips`, name the skips that nobody expects; `pytest_sessionfinish` has made them a failure.

    With `--write-durations`, write them.
    """
    if config.option.write_durations:
        Durations.read().updated(_durations(terminalreporter)).write()
    for line in sorted(set(_unexpected_skips(terminalreporter))):
        terminalreporter.write_line(f"unexpected skip: {line}", red=True)


def _durations(reporter: Any) -> Counter[str]:
    spent: Counter[str] = Counter()
    for report in (r for reports in reporter.stats.values() for r in reports if hasattr(r, "duration")):
        spent[report.nodeid] += report.duration
    return spent


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """With `--strict-skips`, fail a run that skipped what it should have run."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and session.exitstatus == 0 and _unexpected_skips(reporter):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _unexpected_skips(reporter: Any) -> list[str]:
    if not reporter.config.getoption("--strict-skips"):
        return []
    lines = (Path(__file__).parent / "expected_skips.txt").read_text().splitlines()
    expected = [re.compile(line) for line in lines if line and not line.startswith("#")]
    skips = [(r.nodeid, str(r.longrepr[2]).removeprefix("Skipped: ")) for r in reporter.stats.get("skipped", ())]
    return [f"{test}: {why}" for test, why in skips if not any(e.search(why) for e in expected)]


@pytest.fixture(autouse=True)
def packed_functions_of_one_test() -> Iterator[None]:
    """What a test registers, a command in its process included, is gone after it."""
    from mlcc.runtime import registry

    before = dict(registry._functions)
    yield
    registry._functions.clear()
    registry._functions.update(before)
    registry._version += 1  # calls that were bound look again


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """golden(path, text): `text` must be the content of `path`. A missing file fails, unless files are updated."""

    def compare(path: Path, text: str) -> None:
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            return
        assert path.exists(), f"{path} is missing: look at the output, then run `make golden`"
        assert text == path.read_text()

    return compare


@pytest.fixture
def all_cases(request: pytest.FixtureRequest) -> bool:
    """Whether the whole campaign was asked for (`make diff`)."""
    return bool(request.config.getoption("--all-cases"))


@pytest.fixture
def fuzz_seconds(request: pytest.FixtureRequest) -> float:
    """How long a fuzz campaign may take."""
    return float(request.config.getoption("--fuzz-seconds"))
