"""Options of the test run, and the golden-file helper."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mlcc import driver

os.environ["MLCC_CACHE"] = "0"  # what is tested is compiling, not finding what was compiled before
driver.VERIFY_EACH = True


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files with what was produced")
    parser.addoption("--all-cases", action="store_true", help="run whole differential campaigns, not the seeded share")
    parser.addoption("--fuzz-seconds", type=float, default=20.0, help="seconds for each fuzz campaign")


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
