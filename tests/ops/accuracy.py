"""The tables of docs/accuracy.md, made of the bounds that tests hold."""

from __future__ import annotations

from pathlib import Path

from tests.generate import long_axes, op_calls
from tests.ops import coverage
from tests.targets import test_vmath

PAGE = Path(__file__).resolve().parents[2] / "docs" / "accuracy.md"


def bounds() -> str:
    """The allowed difference of each floating-point dtype, for operators that are not exact."""
    rows = [
        f"| {dtype} | {relative:.3g} | {absolute:.3g} |" for dtype, (relative, absolute) in coverage.TOLERANCE.items()
    ]
    return "\n".join(["| dtype | relative | absolute |", "| --- | --- | --- |", *rows])


def operators() -> str:
    """One line per operator that takes floats: for each dtype that it is tested with `exact`, or the relative bound."""
    claims = coverage.read_table(coverage.PAGE.read_text())
    dtypes = list(coverage.TOLERANCE)
    lines = [f"| operator | {' | '.join(dtypes)} |", f"|{' --- |' * (len(dtypes) + 1)}"]
    for name in sorted(op_calls.subjects()):
        cells = [_cell(name, dtype) if claims.get((name, dtype)) else "" for dtype in dtypes]
        if any(cells):
            lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(name: str, dtype: str) -> str:
    relative, _ = coverage.tolerance(name, dtype)
    return f"{relative:.3g}" if relative else "exact"


def long_sums() -> str:
    """The operators that are tested over long axes, and what their float32 error is relative to."""
    kinds = (
        ("the sum of the terms' magnitudes", long_axes.LINEAR), ("the greatest result", long_axes.OTHERS),
    )  # fmt: skip
    rows = []
    for kind, names in kinds:
        shown = sorted({name.partition("-")[0] for name in names})
        rows.append(f"| {', '.join(f'`{name}`' for name in shown)} | {kind} |")
    return "\n".join(["| operators | *size* is |", "| --- | --- |", *rows])


def functions() -> str:
    """The elementary functions, and their bound in units in the last place."""
    names = ", ".join(f"`{name}`" for name in sorted(test_vmath.ALL))
    head = ["| functions | dtypes | ULP |", "| --- | --- | --- |"]
    return "\n".join([*head, f"| {names} | float32, float64 | {test_vmath.LIMIT:g} |"])


TABLES = {"bounds": bounds, "operators": operators, "long sums": long_sums, "functions": functions}


def filled(text: str) -> str:
    """The page with its tables made anew, each between `<!-- NAME -->` and `<!-- end of NAME -->`."""
    for name, make in TABLES.items():
        before, begin, rest = text.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition(f"<!-- end of {name} -->")
        assert begin and end, name
        text = f"{before}{begin}\n{make()}\n\n{end}{after}"
    return text
