"""A record as tables: for a terminal, and for `docs/speed.md`."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bench.speed.record import Line, Record, milliseconds
from bench.speed.worker import OURS, PEERS

MARK = "<!-- what follows is written by `python -m bench speed --write` -->"

PORTABLE_GOAL = 1.1  # times of a portable build over those of a native one


def terminal(line: Line) -> list[str]:
    """Return a few lines on one workload."""
    ratio, best = line.ratio(), line.best_peer()
    head = (
        f"{line.workload}, {line.threads} thread{'s' if line.threads > 1 else ''}: floor {milliseconds(line.floor)} ms"
    )
    head += f" ({'arithmetic' if line.arithmetic >= line.bytes else 'bytes'})"
    if ratio is not None:
        head += f", mlcc is {ratio:.2f} x the best peer, {best}"
    out = [head]
    for peer, result in line.results.items():
        if result.error:
            out.append(f"  {peer:12} {result.error}")
            continue
        time = line.time(peer)
        assert time is not None
        spread = f"{milliseconds(min(result.calm))} to {milliseconds(max(result.calm))}"
        native = "" if result.native is None else f"  native {milliseconds(result.native)}"
        out.append(
            f"  {peer:12} {milliseconds(time):>9} ms  {line.floor / time:6.1%} of the floor's speed"
            f"  ({len(result.calm)} of {len(result.times)} samples, {spread}; prepared in {result.prepare:.1f} s"
            f"{', ' + result.note if result.note else ''}){native}"
        )
    return out


def page(record: Record, startup: Sequence[Sequence[str]] = ()) -> str:
    """The part of `docs/speed.md` that a run writes; `startup`: command, wall and CPU milliseconds, peak MiB."""
    level = f"All that mlcc compiles is at `-O{record.facts['level']}`." if "level" in record.facts else ""
    out = [
        MARK,
        "",
        f"Medians in milliseconds on {record.machine}; the best peer is in bold.",
        f"`mlcc / best` is how many times as fast mlcc is as that one. {level}",
        "",
    ]
    floors = {k: v for k, v in record.facts.items() if k.startswith(("floors", "load"))}
    versions = ", ".join(f"{k} {v}" for k, v in record.facts.items() if k not in floors and k not in ("date", "level"))
    out += [f"- {record.facts.get('date', '')}, {versions}", *(f"- {k}: {v}" for k, v in sorted(floors.items()))]
    for threads in sorted({line.threads for line in record.lines}):
        lines = [line for line in record.lines if line.threads == threads]
        out += ["", f"## {threads} thread{'s' if threads > 1 else ''}", ""]
        out += [*table(lines), "", *summary(lines)]
    out += preparation(record.lines)
    out += objects(record.lines)
    if startup:
        out += ["", "## From the shell to the first result", "", "The perceptron 784-128-10, a process each.", ""]
        out += ["| command | ms | ms of CPU | peak MiB |", "| --- | ---: | ---: | ---: |"]
        out += [f"| {' | '.join(row)} |" for row in startup]
    wrong = [(line, p, r) for line in record.lines for p, r in line.results.items() if r.error]
    if wrong:
        out += ["", "## What did not run", ""]
        seen = dict.fromkeys(f"- {p}, {line.workload}: {r.error}" for line, p, r in wrong)
        out += list(seen)
    return "\n".join(out) + "\n"


def summary(lines: Sequence[Line]) -> list[str]:
    """Summarize the results: the number of workloads won, and those lost, worst first."""
    ratios = sorted(((r, x) for x in lines if (r := x.ratio()) is not None), key=lambda pair: pair[0])
    behind = [(r, line) for r, line in ratios if r < 1]
    out = [f"mlcc is the fastest in {len(ratios) - len(behind)} of {len(ratios)}."]
    if behind:
        out.append(f"Behind: {', '.join(f'{x.workload} {r:.2f} x ({x.best_peer()})' for r, x in behind)}.")
    portable = sorted(((r, x) for x in lines if (r := x.portable()) is not None), key=lambda pair: -pair[0])
    if portable:
        middle = statistics.median(r for r, _ in portable)
        worst = ", ".join(f"{x.workload} {r:.2f} x" for r, x in portable if r > PORTABLE_GOAL)
        out.append(f"Portable builds take {middle:.2f} x the time of native ones (median); over {PORTABLE_GOAL} x: ")
        out[-1] += f"{worst or 'none'}."
    return out


def preparation(lines: Sequence[Line]) -> list[str]:
    """Return the table of compile times and memory with the fewest threads that were measured."""
    fewest = min((line.threads for line in lines), default=1)
    prepared = [line for line in lines if line.threads == fewest]
    peers = [p for p in PEERS if any(p in line.results and not line.results[p].error for line in prepared)]
    peers = [p for p in peers if p not in ("portable", "numpy")]  # as mlcc, and nothing to prepare
    if not peers:
        return []
    out = ["", "## Compile time and memory", ""]
    out += [
        "Seconds from the model in memory to a function, and MiB by which the process grew until its first call was"
    ]
    out += [f"over, at the peak; {fewest} thread{'s' if fewest > 1 else ''}.", ""]
    out += [f"| workload | {' | '.join(f'{p} s' for p in peers)} | {' | '.join(f'{p} MiB' for p in peers)} |"]
    out += ["| --- |" + " ---: |" * (2 * len(peers))]
    for line in prepared:
        results = [r if (r := line.results.get(p)) is not None and not r.error else None for p in peers]
        cells = [line.workload, *("-" if r is None else f"{r.prepare:.2f}" for r in results)]
        cells += ["-" if r is None else f"{r.memory / 2**20:.0f}" for r in results]
        out += [f"| {' | '.join(cells)} |"]
    return out


def objects(lines: Sequence[Line]) -> list[str]:
    """Return the table of the sizes of mlcc's objects, by workload."""
    rows = {}
    for line in lines:
        sizes = [line.results[p].size if p in line.results else 0 for p in OURS]
        if any(sizes):
            rows[line.workload] = " | ".join(f"{size / 1024:.0f}" if size else "-" for size in sizes)
    if not rows:
        return []
    head = ["", "## Objects", "", "KiB, weights inside.", "", f"| workload | {' | '.join(OURS)} |"]
    return [*head, "| --- | ---: | ---: |", *(f"| {name} | {sizes} |" for name, sizes in rows.items())]


def table(lines: Sequence[Line]) -> list[str]:
    """Return the table of median milliseconds, with the best peer in bold."""
    peers = [p for p in PEERS if p not in OURS and any(p in line.results for line in lines)]
    out = [f"| workload | arithmetic floor | byte floor | mlcc | mlcc / best | portable | {' | '.join(peers)} |"]
    out.append("| --- |" + " ---: |" * (5 + len(peers)))
    for line in lines:
        ratio, best = line.ratio(), line.best_peer()
        cells = [line.workload, milliseconds(line.arithmetic or None), milliseconds(line.bytes)]
        cells += [milliseconds(line.time("mlcc")), "-" if ratio is None else f"{ratio:.2f} x"]
        cells += [milliseconds(line.time("portable"))]
        cells += [f"**{milliseconds(line.time(p))}**" if p == best else milliseconds(line.time(p)) for p in peers]
        out.append(f"| {' | '.join(cells)} |")
    return out


def replace_tail(old: str, tail: str) -> str:
    """Return a page with everything from the marker on replaced."""
    return old.partition(MARK)[0] + tail
