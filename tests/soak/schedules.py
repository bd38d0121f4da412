"""Random schedules of random programs, as `tests.fuzz.schedules` makes and judges them."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz import schedules


def prepare(folder: Path) -> None:
    """Nothing is shared."""


def case(folder: Path, seed: str, number: int) -> str:
    here = Path.cwd()

    def started(case: schedules.Case) -> None:
        schedules.write(here, "case", case)

    try:
        schedules.play(number, f"soak/{seed}", schedules.Counts(), None, started)
    except schedules.Finding as exc:
        found: schedules.Case = exc.case  # type: ignore[attr-defined]
        smaller, said = schedules.shrink(found, number, schedules.kind_of(str(exc)))
        schedules.write(here, "reduced", smaller, said or str(exc))
        return said or str(exc)
    return ""
