"""The record of soak campaigns: one entry a campaign, sums over all, and the page that shows both."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.soak.campaign import ROOT, State
from tests.soak.surfaces import SURFACES

RECORD = ROOT / "tests" / "soak" / "record.json"
PAGE = ROOT / "docs" / "soak.md"
START = "<!-- what follows is written by `make soak` -->"
END = "<!-- end of what `make soak` writes -->"

Record = dict[str, Any]


def read(path: Path = RECORD) -> Record:
    """The record of a file; an empty one if there is none."""
    return dict(json.loads(path.read_text())) if path.exists() else {"runs": []}


def next_seed(record: Record) -> str:
    """A seed that no run of the record had, so that every run brings new cases."""
    return str(1 + max((int(run["seed"]) for run in record["runs"] if str(run["seed"]).isdigit()), default=0))


def entry(state: State, date: str, machine: str) -> Record:
    """The entry of a campaign."""
    surfaces = {
        name: {"cases": p.cases, "numbers": p.next, "findings": p.findings, "seconds": round(p.seconds)}
        for name, p in state.surfaces.items()
        if p.next
    }
    return {"begun": state.begun, "ended": date, "seed": state.seed, "compiler": state.compiler, "machine": machine,
            "surfaces": surfaces}  # fmt: skip


def with_entry(record: Record, new: Record) -> Record:
    """The record with an entry added, in place of an earlier one of the same campaign."""
    kept = [run for run in record["runs"] if (run["seed"], run["begun"]) != (new["seed"], new["begun"])]
    return {"runs": sorted([*kept, new], key=lambda run: run["begun"])}


def write(record: Record, path: Path = RECORD) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(record, indent=1) + "\n")
    os.replace(temporary, path)


def sums(record: Record) -> dict[str, tuple[int, int, int]]:
    """Cases, findings and seconds of each surface over all runs."""
    made = {}
    for surface in SURFACES:
        entries = [run["surfaces"].get(surface.name, {}) for run in record["runs"]]
        cases, findings, seconds = (sum(e.get(k, 0) for e in entries) for k in ("cases", "findings", "seconds"))
        made[surface.name] = (cases, findings, seconds)
    return made


def tables(record: Record) -> str:
    """The tables of the page."""
    lines = [
        "| surface | what is counted | cases | goal | findings | hours |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    totals = sums(record)
    for surface in SURFACES:
        cases, findings, seconds = totals[surface.name]
        numbers = f"{cases:,} | {surface.goal:,} | {findings:,} | {seconds / 3600:.2f}"
        lines.append(f"| {surface.name} | {surface.counts} | {numbers} |")
    names = [surface.name for surface in SURFACES]
    lines += ["", "| begun (UTC) | ended | seed | compiler | " + " | ".join(names) + " |"]
    lines.append("| --- " * 4 + "| ---: " * len(names) + "|")
    for run in record["runs"]:
        counts = [f"{run['surfaces'].get(name, {}).get('cases', 0):,}" for name in names]
        head = [run["begun"].replace("T", " ")[:16], run["ended"].replace("T", " ")[:16], run["seed"], run["compiler"]]
        lines.append("| " + " | ".join([*head, *counts]) + " |")
    return "\n".join(lines)


def updated_page(page: str, record: Record) -> str:
    """The page with its tables written anew."""
    before, start, rest = page.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise ValueError(f"the page has no `{START}` and `{END}`")
    return f"{before}{START}\n\n{tables(record)}\n\n{END}{after}"
