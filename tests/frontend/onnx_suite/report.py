"""The result of the suite as the table of docs/onnx.md, and what the page says as a result."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.frontend.onnx_suite.cases import FROZEN, RUN_TIME
from tests.frontend.onnx_suite.verdicts import State, Verdict

PAGE = Path(__file__).parents[3] / "docs" / "onnx.md"
_BEGIN, _END = "<!-- suite -->\n", "<!-- /suite -->\n"
_INPUT = re.compile(r"^the (?:input|output) `[^`]*`(?:: | is )")
_CLAIM = re.compile(r"`([\w.]+)` (\d+)(?:/(\d+))?[,.]")
_LINE = re.compile(r"\| `([\w.]+)` \| \d+ \| (\d+) \| (\d+) \|")
_OLD = re.compile(r"uses opset \d+; ")
_PART = re.compile(r"`[^`]*`: |, \d+x: [^;]*")  # of a message: the operator that it is about, and where


@dataclass(frozen=True)
class Row:
    """What became of the cases of an operator."""

    operator: str
    cases: int
    frozen: int  # passed with shapes as initializers
    run_time: int
    reasons: tuple[str, ...]  # of those that do not pass even then


def rows(verdicts: Iterable[Verdict]) -> dict[str, Row]:
    """A row for each operator; both modes must have been judged."""
    found: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        if not _is_old(verdict):
            found[verdict.case.operator].append(verdict)
    return {operator: _row(operator, found[operator]) for operator in sorted(found, key=str.lower)}


def _row(operator: str, verdicts: Sequence[Verdict]) -> Row:
    passed = Counter(v.mode for v in verdicts if v.state is State.PASSED)
    reasons = Counter(_reason(v) for v in verdicts if v.mode == FROZEN and v.state is not State.PASSED)
    count = sum(v.mode == FROZEN for v in verdicts)
    listed = tuple(f"{reason} ({n})" for reason, n in sorted(reasons.items(), key=lambda item: (-item[1], item[0])))
    return Row(operator, count, passed[FROZEN], passed[RUN_TIME], listed)


def _is_old(verdict: Verdict) -> bool:
    """Whether a case is a model of an opset that is too old."""
    return verdict.state is State.REFUSED and bool(_OLD.search(verdict.reason))


def _reason(verdict: Verdict) -> str:
    """The first thing that is in the way, without the names of the case."""
    if verdict.state is not State.REFUSED:
        return verdict.state.value.upper()
    return _PART.sub("", _INPUT.sub("", verdict.reason.split("; ")[0]))


def summary(verdicts: Sequence[Verdict]) -> str:
    """How many cases of nodes of plain dtypes pass, and how many of all."""
    lines = []
    for mode, words in ((FROZEN, "initializers"), (RUN_TIME, "inputs")):
        mine = [v for v in verdicts if v.mode == mode]
        plain = [v for v in mine if v.case.plain and v.case.group == "node"]
        passed, all_passed = (sum(v.state is State.PASSED for v in some) for some in (plain, mine))
        share = 100 * passed / max(len(plain), 1)
        lines.append(
            f"Shapes as {words}: {passed} of {len(plain)} cases of single operators on floats of 16 to 64 bits,\n"
            f"integers and bools pass ({share:.1f} %), {all_passed} of all {len(mine)};"
            f" {sum(map(_is_old, mine))} models are of opsets before 7.\n\n"
        )
    return "".join(lines)


def table(found: Mapping[str, Row]) -> str:
    """The rows as text: operators of which every case passes, and the others with reasons."""
    whole = [r for r in found.values() if r.frozen == r.run_time == r.cases]
    shaped = [r for r in found.values() if r.frozen == r.cases != r.run_time]
    others = [r for r in found.values() if r.frozen != r.cases]
    lines = [
        "Every case passes, however shapes come:\n" + ", ".join(_whole(r) for r in whole) + ".\n",
        "\nEvery case passes with shapes as initializers; behind the stroke, how many do with shapes as inputs:\n"
        + ", ".join(_shaped(r) for r in shaped)
        + ".\n",
        "\n| operator | cases | pass | with shapes as inputs | the others |\n| --- | --- | --- | --- | --- |\n",
        *(_other(r) for r in others),
    ]
    return "".join(lines)


def _whole(row: Row) -> str:
    return f"`{row.operator}` {row.cases}"


def _shaped(row: Row) -> str:
    return f"`{row.operator}` {row.cases}/{row.run_time}"


def _other(row: Row) -> str:
    return f"| `{row.operator}` | {row.cases} | {row.frozen} | {row.run_time} | {'; '.join(row.reasons)} |\n"


def claims(page: str) -> dict[str, tuple[int, int]]:
    """How many cases of each operator pass, as the page says: with shapes as initializers, and as inputs."""
    text = page.split(_BEGIN)[1].split(_END)[0]
    made = {name: (int(count), int(less or count)) for name, count, less in _CLAIM.findall(text)}
    return made | {name: (int(frozen), int(run_time)) for name, frozen, run_time in _LINE.findall(text)}


def write(verdicts: Sequence[Verdict]) -> None:
    """Put the result into the page."""
    text = PAGE.read_text()
    before, rest = text.split(_BEGIN)
    PAGE.write_text(before + _BEGIN + summary(verdicts) + table(rows(verdicts)) + _END + rest.split(_END)[1])
