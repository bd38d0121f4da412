"""What users do wrong, and the messages that they get: one golden file, each message with a grade.

The grade beside a name is that of a reviewer who read the message as the user would: A place, cause and way out;
B place and cause; C poor or misleading; D accepted in silence, or a crash. `--update-golden` keeps the grades that
are there; a new case gets `?` and fails until someone has read its message.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mistakes import calls, commands, files, graphs, kernels, schedules
from tests.mistakes.case import message

GOLDEN = Path(__file__).parent / "messages.txt"
AREAS = {
    "graph": graphs.CASES, "kernel": kernels.CASES, "command": commands.CASES, "schedule": schedules.CASES,
    "file": files.CASES, "python": calls.CASES,
}  # fmt: skip
MOST_C = 5


def test_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Callable[[Path, str], None]) -> None:
    grades = _grades()
    parts = []
    for area, cases in AREAS.items():
        for at, case in enumerate(cases):
            folder = tmp_path / f"{area}{at}"
            folder.mkdir()
            monkeypatch.chdir(folder)
            title = f"{area}: {case.name}"
            shown = "".join(f"    > {line}\n" for line in case.do.strip("\n").splitlines())
            parts.append(f"## {grades.get(title, '?')} {title}\n{shown}{message(case, folder)}")
    golden(GOLDEN, "\n".join(parts))


def test_grades() -> None:
    grades = _grades()
    counted = Counter(grades.values())
    titles = [f"{area}: {case.name}" for area, cases in AREAS.items() for case in cases]
    assert sorted(titles) == sorted(grades) and len(titles) >= 200
    assert set(counted) <= {"A", "B", "C"}, "a message is not graded, or it is a D"
    assert counted["C"] <= MOST_C


def _grades() -> dict[str, str]:
    text = GOLDEN.read_text() if GOLDEN.exists() else ""
    return {title: grade for grade, title in re.findall(r"^## (\S) (.*)$", text, re.M)}
