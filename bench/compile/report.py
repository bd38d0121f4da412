"""The page of compile times: a table for each quantity, a row for each case, a column for each model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bench.compile.cases import Case
from bench.compile.run import Measurements, Results

MARK = "<!-- what follows is written by `python -m bench compile --write` -->"


@dataclass
class Part:
    """The compared models and cases with their results."""

    models: Sequence[str]
    cases: Sequence[Case]
    found: Results = field(default_factory=dict)

    def at(self, model: str, case: str, cores: int) -> Measurements:
        return self.found.get((model, case, cores), Measurements())


def table(part: Part, cores: int, cell: Callable[[Measurements], str]) -> list[str]:
    """Return the rows of cases with at least one cell, or nothing if there are none."""
    rows = []
    for case in part.cases:
        cells = [cell(part.at(model, case.name, cores)) for model in part.models]
        if any(c != "-" for c in cells):
            rows.append(f"| {case.name} | {' | '.join(cells)} |")
    if not rows:
        return []
    return [f"| | {' | '.join(part.models)} |", f"| --- |{' ---: |' * len(part.models)}", *rows]


def seconds(what: str) -> Callable[[Measurements], str]:
    """Format a cell: the median, and the range if there are several samples."""

    def cell(found: Measurements) -> str:
        middle, samples = found.median(what), getattr(found, what)
        if middle is None:
            return "-"
        return f"{middle:.2f}" + (f" ({min(samples):.2f}..{max(samples):.2f})" if len(samples) > 1 else "")

    return cell


def mebibytes(found: Measurements) -> str:
    middle = found.median("peak")
    return "-" if middle is None else f"{middle / (1 << 20):.0f}"


def format_kibibytes(found: Measurements) -> str:
    return f"{found.size / 1024:.0f}" if found.size and not found.error else "-"


def ratios(part: Part, mine: str, theirs: Sequence[str], cores: int, what: str) -> list[str]:
    """Return lines with the speed of a case relative to others."""
    lines = []
    for other in theirs:
        cells = []
        for model in part.models:
            a, b = (part.at(model, name, cores).median(what) for name in (mine, other))
            if a is not None and b:
                cells.append(f"{model} {a / b:.2f}")
        if cells:
            lines.append(f"- {mine} / {other}: {', '.join(cells)}")
    return lines


def page(
    facts: Sequence[str], cpu: Part, mine: str, theirs: Sequence[str], gpu: Part | None, emulated: Part | None
) -> str:
    """Return the page of results of a run."""
    two, one = (f"{n} core{'s' if n > 1 else ''}" for n in (2, 1))
    most = max((cores for _, _, cores in cpu.found), default=2)
    sections = [  # the last: what is compared with others below the table
        (f"From the text to the first result: seconds on {two}", cpu, 2, seconds("wall"), "wall"),
        (f"The same: seconds of CPU on {one}", cpu, 1, seconds("cpu"), "cpu"),
        ("Most memory of the process, MiB", cpu, most, mebibytes, ""),
        ("Objects, KiB, weights inside", cpu, most, format_kibibytes, ""),
        (f"PTX for sm_90: seconds of CPU on {one}", gpu, 1, seconds("cpu"), ""),
        (f"Emulated kernels of sm_90, to the first result: seconds of CPU on {one}", emulated, 1, seconds("cpu"), ""),
    ]
    out = [MARK, "", *(f"- {fact}" for fact in facts), ""]
    for title, part, cores, cell, compared in sections:
        lines = table(part, cores, cell) if part is not None else []
        if part is not None and lines:
            out += [f"## {title}", "", *lines, ""]
            out += [*ratios(part, mine, theirs, cores, compared), ""] if compared else []
    wrong = [
        f"- {case}, {model}: {samples.error}"
        for part in (cpu, gpu, emulated) if part is not None
        for (model, case, _), samples in part.found.items() if samples.error
    ]  # fmt: skip
    if wrong:
        out += ["## What did not run", "", *dict.fromkeys(wrong), ""]
    return "\n".join(out)
