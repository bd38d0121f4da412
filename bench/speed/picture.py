"""The picture of a record: for each workload a row, where every competitor's mark shows its speed against the best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from bench.speed.record import Line
from bench.speed.worker import OURS

COLOURS = {
    "mlcc": "#d1242f", "portable": "#ff8f87", "numpy": "#6e7781", "torch": "#e16f24", "inductor": "#9a6700",
    "onnxruntime": "#0969da", "openvino": "#8250df", "jax": "#1a7f37", "tvm": "#0a7ea4", "iree": "#bf3989",
}  # fmt: skip
ROW, TOP, LEFT, WIDE, GAP = 20, 64, 210, 400, 50
LEAST, MOST = 1 / 16, 4.0  # of the best peer's speed; what lies beyond stands at the edge
GRID = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 4.0)


def picture(lines: Sequence[Line]) -> str:
    """An SVG with a panel for each number of threads."""
    threads = sorted({line.threads for line in lines})
    rows = list(dict.fromkeys(line.workload for line in lines))
    found = {(line.workload, line.threads): line for line in lines}
    width = LEFT + len(threads) * (WIDE + GAP)
    height = TOP + len(rows) * ROW + 60
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    peers = [p for p in COLOURS if any(line.time(p) is not None for line in lines)]
    for index, peer in enumerate(peers):
        x = LEFT + index * 100
        out += [_mark(peer, x, 18), f'<text x="{x + 10}" y="22">{escape(peer)}</text>']
    x = LEFT + len(peers) * 100
    out += [_floor(x, 18), f'<text x="{x + 10}" y="22">floor</text>']
    for panel, count in enumerate(threads):
        out += _panel(rows, found, count, LEFT + panel * (WIDE + GAP))
    for index, name in enumerate(rows):
        out.append(f'<text x="{LEFT - 14}" y="{_middle(index) + 4}" text-anchor="end">{escape(name)}</text>')
    out.append(
        f'<text x="{LEFT}" y="{height - 8}" fill="#57606a">speed relative to the best peer, logarithmic: '
        "right is faster; marks at the edge lie beyond it</text></svg>"
    )
    return "\n".join(out) + "\n"


def _panel(rows: Sequence[str], found: dict[tuple[str, int], Line], threads: int, left: float) -> list[str]:
    bottom = TOP + len(rows) * ROW
    title = f"{threads} thread{'s' if threads > 1 else ''}"
    out = [f'<text x="{left + WIDE / 2}" y="46" text-anchor="middle" font-weight="bold">{title}</text>']
    for value in GRID:
        x = _at(value, left)
        stroke = 'stroke="#57606a" stroke-width="1.5"' if value == 1 else 'stroke="#d0d7de"'
        label = f"{value:g}x" if value >= 1 else f"1/{1 / value:.0f}x"
        out.append(f'<line x1="{x:.1f}" y1="{TOP - 4}" x2="{x:.1f}" y2="{bottom}" {stroke}/>')
        out.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{label}</text>')
    for index, name in enumerate(rows):
        y = _middle(index)
        if index % 2:
            out.append(
                f'<rect x="{left}" y="{y - ROW / 2}" width="{WIDE}" height="{ROW}" fill="#57606a" fill-opacity="0.06"/>'
            )
        line = found.get((name, threads))
        best = None if line is None else line.best_peer()
        base = None if line is None or best is None else line.time(best)
        if line is None or base is None:
            continue
        out.append(_floor(_at(base / line.floor, left), y))
        # ours last, on top
        for peer in sorted(line.results, key=lambda p: (p in OURS, p == "mlcc")):
            time = line.time(peer)
            if time is not None:
                out.append(_mark(peer, _at(base / time, left), y))
    return out


def _middle(row: int) -> float:
    return TOP + row * ROW + ROW / 2


def _at(value: float, left: float) -> float:
    inside = min(MOST, max(LEAST, value))
    return left + WIDE * (math.log(inside / LEAST) / math.log(MOST / LEAST))


def _mark(peer: str, x: float, y: float) -> str:
    colour = COLOURS.get(peer, "black")
    if peer in OURS:
        return (
            f'<path d="M{x - 7:.1f} {y:.1f} L{x:.1f} {y - 7:.1f} L{x + 7:.1f} {y:.1f} L{x:.1f} {y + 7:.1f} Z" '
            f'fill="{colour}" stroke="white"/>'
        )
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{colour}" fill-opacity="0.8" stroke="white"/>'


def _floor(x: float, y: float) -> str:
    return f'<line x1="{x:.1f}" y1="{y - 7:.1f}" x2="{x:.1f}" y2="{y + 7:.1f}" stroke="black" stroke-width="2.5"/>'
