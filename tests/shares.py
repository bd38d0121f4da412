"""Which tests run: all, or a share that takes a bounded time, another one each day.

`make test` bounds the time of each test function: of a long parametrization a part of the cases runs. `make test-quick`
bounds that of each file. The cases come in turn: those of one seed go on where those of the seed before ended, so that
consecutive seeds run all of them. What a case takes is in `tests/durations.txt`; of a test that is not there all cases
run.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PATH = Path(__file__).parent / "durations.txt"
UNKNOWN = 0.01  # seconds of a case of a test that the file does not list
LISTED = 0.1  # seconds of all cases of a test from which on it is listed
START = 35.0  # seconds until a worker has collected the tests and loaded what they import


def function_of(test: str) -> str:
    """The test function of a case: `tests/a.py::test_b[c]` is one of `tests/a.py::test_b`."""
    return test.split("[")[0]


def file_of(test: str) -> str:
    return test.split("::")[0]


def share(tests: Sequence[str], count: int, seed: int) -> set[str]:
    """`count` of the tests, those that are next in turn; `seed` numbers the turns."""
    count = min(count, len(tests))
    order = random.Random(len(tests)).sample(tests, len(tests))  # neighbours are alike: each share has all kinds
    first = seed * count
    return {order[(first + i) % len(tests)] for i in range(count)}


@dataclass
class Durations:
    """Seconds of one case of each test function, as they were measured."""

    seconds: Mapping[str, float]

    @classmethod
    def read(cls, path: Path = PATH) -> Durations:
        rows = [line.split(maxsplit=1) for line in path.read_text().splitlines() if not line.startswith("#")]
        return cls({function: float(seconds) for seconds, function in rows})

    def of(self, test: str) -> float:
        return self.seconds.get(function_of(test), UNKNOWN)

    def total(self, tests: Iterable[str]) -> float:
        return sum(map(self.of, tests))

    def bound_functions(self, tests: Sequence[str], seconds: float, seed: int) -> set[str]:
        """Of each test function at least one case, and as many as take `seconds`."""
        return self._bound(tests, function_of, seconds, seed)

    def bound_files(self, tests: Sequence[str], seconds: float, seed: int) -> set[str]:
        """Of each file as many cases as take `seconds`, but none that takes longer."""
        return self._bound([t for t in tests if self.of(t) <= seconds], file_of, seconds, seed)

    def _bound(self, tests: Sequence[str], group_of: Callable[[str], str], seconds: float, seed: int) -> set[str]:
        groups: dict[str, list[str]] = defaultdict(list)
        for test in tests:
            groups[group_of(test)].append(test)
        chosen: set[str] = set()
        for group in groups.values():
            known = group_of is file_of or function_of(group[0]) in self.seconds
            average = self.total(group) / len(group)
            chosen |= share(group, max(1, int(seconds / average)), seed) if known else set(group)
        return chosen

    def forecast(self, tests: Sequence[str], workers: int) -> str:
        """What a run of the tests will take: `9000 tests, about 12 minutes by 2 workers`."""
        minutes = (START + self.total(tests) / workers) / 60
        return f"{len(tests)} tests, about {math.ceil(minutes)} minutes by {workers} quiet cores"

    def updated(self, measured: Mapping[str, float]) -> Durations:
        """These durations, but for the tests that were measured: seconds by case."""
        cases: dict[str, list[float]] = defaultdict(list)
        for test, spent in measured.items():
            cases[function_of(test)].append(spent)
        rows = dict(self.seconds)
        for function, spents in cases.items():
            rows.pop(function, None)
            if sum(spents) >= LISTED:
                rows[function] = sum(spents) / len(spents)
        return Durations(rows)

    def write(self, path: Path = PATH) -> None:
        head = (
            "# seconds of one case of each test that takes long, on a quiet core: `make test-durations` writes them\n"
        )
        path.write_text(head + "".join(f"{s:.3f} {function}\n" for function, s in sorted(self.seconds.items())))
