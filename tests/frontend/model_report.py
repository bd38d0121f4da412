"""What a record of campaigns says, as docs/models.md: `python -m tests.frontend.model_report RECORD`."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.frontend.campaign import read

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
BEGIN, END = "<!-- record -->\n", "<!-- /record -->\n"
DEFAULT = "default"  # the level that counts
_Line = Mapping[str, Any]

WAYS = {
    "`.pt2`": ("pt2", False, False),
    "`.pt2`, sizes vary": ("pt2", True, False),
    "`.onnx`": ("onnx", False, False),
    "`.onnx`, sizes vary": ("onnx", True, False),
    "`torch.fx`": ("fx", False, False),
    "emulated CUDA": ("pt2", False, True),
}


def _way(line: _Line) -> str:
    """The column of a line."""
    known = {key: title for title, key in WAYS.items()}
    return known.get((line["via"], line["dynamic"], line["cuda"]), "")


def _exported(line: _Line) -> bool:
    """Whether PyTorch gave the model at all."""
    return not line["wrong"].startswith("export:")


def render(lines: Sequence[_Line]) -> str:
    """The tables: how many models are right each way, what becomes of each, and of each operator."""
    merged: dict[tuple[str, str], _Line] = {}
    for line in lines:
        at = (line["model"], _way(line))
        other = merged.get(at, line)
        levels = {*line["levels"], *other["levels"]}
        merged[at] = {**(other if other["wrong"] else line), "levels": levels}  # of several levels, one that is wrong
    found = [line for line in merged.values() if DEFAULT in line["levels"]]
    return "\n\n".join([_totals(found), _models(found), _wrong(found), _operators(found)]) + "\n"


def _totals(lines: Iterable[_Line]) -> str:
    rows = ["| way | models that PyTorch exports | right | right at `-O0`, too |", "| --- | --- | --- | --- |"]
    for way in WAYS:
        tried = [line for line in lines if _way(line) == way and _exported(line)]
        right = [line for line in tried if not line["wrong"]]
        share = f" ({100 * len(right) / len(tried):.1f} %)" if tried else ""
        rows.append(f"| {way} | {len(tried)} | {len(right)}{share} | {sum(map(_unoptimized, right))} |")
    return "\n".join(rows)


def _unoptimized(line: _Line) -> bool:
    """Whether the model was tried at -O0, too."""
    return "0" in line["levels"]


def _models(lines: Iterable[_Line]) -> str:
    """A row for each model: right (and at which levels), wrong, not exported by PyTorch, or not tried."""
    signs: dict[str, dict[str, str]] = defaultdict(dict)
    for line in lines:
        right = "yes, `-O0` too" if _unoptimized(line) else "yes"
        signs[line["model"]][_way(line)] = right if not line["wrong"] else "no" if _exported(line) else "not exported"
    rows = [f"| model | {' | '.join(WAYS)} |", "| --- |" + " --- |" * len(WAYS)]
    rows += [f"| {name} | {' | '.join(signs[name].get(way, '') for way in WAYS)} |" for name in sorted(signs)]
    return "## Models\n\n" + "\n".join(rows)


def _wrong(lines: Iterable[_Line]) -> str:
    wrong = [line for line in lines if line["wrong"] and _exported(line)]
    rows = [f"- {line['model']}, {_way(line)}: {_plain(line['wrong'])}" for line in wrong]
    return "## What is not right\n\n" + ("\n".join(sorted(rows)) or "Nothing.")


def _plain(text: str) -> str:
    return text.replace("|", "/")[:200]


def _operators(lines: Iterable[_Line]) -> str:
    """Operators, and how many models have them; of those that not all models are right with, how many are."""
    have: dict[str, set[str]] = defaultdict(set)
    right: dict[str, set[str]] = defaultdict(set)
    for line in lines:
        for operator in line["operators"] if line["via"] in ("pt2", "onnx") and _exported(line) else ():
            name = operator if line["via"] == "pt2" else f"onnx.{operator}"
            have[name].add(line["model"])
            if not line["wrong"]:
                right[name].add(line["model"])
    parts = []
    for title, of_onnx in (("PyTorch", False), ("ONNX", True)):
        names = [n for n in have if n.startswith("onnx.") == of_onnx]
        names.sort(key=lambda n: (-len(have[n]), n))
        counts = [f"`{n.removeprefix('onnx.')}` {_count(len(right[n]), len(have[n]))}" for n in names]
        parts.append(f"## Operators of {title}\n\n" + ", ".join(counts))
    return "\n\n".join(parts)


def _count(right: int, models: int) -> str:
    return str(models) if right == models else f"{right} of {models}"


def write(record: Path, page: Path = PAGE) -> None:
    """Put the tables of a record into the page."""
    text = page.read_text()
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    page.write_text(text[:begin] + "\n" + render(read(record)) + "\n" + text[end:])


if __name__ == "__main__":
    write(Path(sys.argv[1]))
