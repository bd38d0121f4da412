"""The differential campaign: python -m tests.interop.schedule.run [--primitive NAME]... [--count N] [--seed S].

Prints, for each primitive, how often mlcc and TVM agree, and with --show-disagreements a reproducer of each
disagreement. Ends with 1 if the whole agreement is under 97 %, or something crashed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from tests.interop.schedule import cases, known
from tests.interop.schedule.differential import (
    ACCEPT,
    CRASH,
    DIFFER,
    DISAGREE,
    REFUSE,
    THEY_DIE,
    THEY_ERR,
    THEY_REFUSE,
    WE_REFUSE,
    Died,
    Outcome,
    Tally,
    Theirs,
    run_case,
    shrink,
    signature,
)

WANTED = 0.97
KNOWN = "known"
COLUMNS = (ACCEPT, REFUSE, WE_REFUSE, THEY_REFUSE, DIFFER, CRASH, KNOWN, THEY_ERR, THEY_DIE)


@dataclass
class Result:
    """The cases of one primitive: those that it was for, and the disagreements found while preparing any."""

    name: str
    tally: Tally = field(default_factory=Tally)
    disagreements: list[Outcome] = field(default_factory=list)
    prepared: dict[str, Tally] = field(default_factory=dict)  # by the primitive that prepared
    seconds: float = 0.0


def run_primitive(name: str, count: int, seed: int, until: float = float("inf")) -> Result:
    """`count` cases, or as many as there is time for."""
    result = Result(name)
    began = time.monotonic()
    absent = {n for n in cases.PRIMITIVES if not cases.implemented(n)}
    with Theirs() as theirs:
        for number in range(count):
            if time.monotonic() > until:
                break
            for outcome in run_case(name, f"{seed}.{number}", theirs, absent.__contains__):
                reason = known.reason(outcome) if outcome.status in DISAGREE else None
                tally = result.tally if outcome.is_final else result.prepared.setdefault(outcome.step.name, Tally())
                tally.add(KNOWN if reason else outcome.status)
                if outcome.status in DISAGREE and not reason:
                    result.disagreements.append(outcome)
    result.seconds = time.monotonic() - began
    return result


def run_all(names: Sequence[str], count: int, seed: int, jobs: int, until: float = float("inf")) -> list[Result]:
    todo = [n for n in names if cases.implemented(n)]
    if jobs == 1:
        return [run_primitive(n, count, seed, until) for n in todo]
    with ProcessPoolExecutor(jobs) as pool:
        return list(pool.map(run_primitive, todo, [count] * len(todo), [seed] * len(todo), [until] * len(todo)))


def table(results: Iterable[Result]) -> str:
    lines = [
        f"{'primitive':26}" + "".join(f"{c.replace('agree-', ''):>12}" for c in COLUMNS) + f"{'agreement':>11}{'s':>7}"
    ]
    whole, prepared, seconds = Tally(), Tally(), 0.0
    for result in results:
        lines.append(_row(result.name, result.tally, result.seconds))
        for status, n in result.tally.counts.items():
            whole.counts[status] = whole.counts.get(status, 0) + n
        for tally in result.prepared.values():
            for status, n in tally.counts.items():
                prepared.counts[status] = prepared.counts.get(status, 0) + n
        seconds += result.seconds
    return "\n".join([*lines, _row("all", whole, seconds), _row("steps before", prepared, 0.0)])


def _row(name: str, tally: Tally, seconds: float) -> str:
    numbers = "".join(f"{tally.of(c):12}" for c in COLUMNS)
    return f"{name:26}{numbers}{100 * tally.rate:10.1f}%{seconds:7.1f}"


def total(results: Iterable[Result]) -> Tally:
    whole = Tally()
    for result in results:
        for status, n in result.tally.counts.items():
            whole.counts[status] = whole.counts.get(status, 0) + n
    return whole


def reproducers(results: Sequence[Result], each: int = 1, limit: int = 8) -> str:
    """Disagreements, `each` of a kind and `limit` of a primitive at most, with as few steps as possible."""
    groups: dict[str, dict[str, list[Outcome]]] = {}
    for result in results:
        for outcome in result.disagreements:
            groups.setdefault(outcome.step.name, {}).setdefault(signature(outcome), []).append(outcome)
    lines = []
    with Theirs() as theirs:
        for name, kinds in groups.items():
            lines.append(f"######## {name}: {sum(map(len, kinds.values()))} disagreements of {len(kinds)} kinds")
            for outcomes in sorted(kinds.values(), key=len, reverse=True)[:limit]:
                for outcome in sorted(outcomes, key=lambda o: (len(o.before), len(o.program)))[:each]:
                    try:
                        lines.append(f"---- {len(outcomes)} like this\n{shrink(outcome, theirs)}\n")
                    except Died as exc:
                        lines.append(f"---- {outcome}\n(TVM died while this was made smaller: {exc})\n")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.interop.schedule.run", description=__doc__)
    parser.add_argument("--primitive", action="append", choices=sorted(cases.PRIMITIVES), help="all if not given")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--show-disagreements", action="store_true")
    parser.add_argument("--kinds", type=int, default=8, help="how many kinds of disagreements a primitive to show")
    asked = parser.parse_args(argv)
    results = run_all(asked.primitive or list(cases.PRIMITIVES), asked.count, asked.seed, asked.jobs)
    if asked.show_disagreements:
        print(reproducers(results, limit=asked.kinds))
    print(table(results))
    missing = [n for n in asked.primitive or cases.PRIMITIVES if not cases.implemented(n)]
    if missing:
        print(f"not there yet: {', '.join(missing)}")
    whole = total(results)
    return int(whole.rate < WANTED or whole.of(CRASH) > 0)


if __name__ == "__main__":
    sys.exit(main())
