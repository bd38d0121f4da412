"""Random schedules of random programs, as `tests.fuzz.schedules` makes and judges them."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz import schedules
from tests.fuzz.reduction import Check


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
        check = Check("tests.fuzz.schedules:check_program", (str(number),))
        return schedules.reduce_case(found, check, here, "reduced", str(exc))[1]
    return ""
