"""The picture of a record: a row per workload, where each competitor's mark shows its speed relative to the best."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bench.speed.record import Line
from bench.speed.worker import OURS
from mlcc.tune.svg import GREY, PALE, circle, line, svg_document, text

COLOURS = {
    "mlcc": "#d1242f", "portable": "#ff8f87", "numpy": "#6e7781", "torch": "#e16f24", "inductor": "#9a6700",
    "onnxruntime": "#0969da", "openvino": "#8250df", "jax": "#1a7f37", "tvm": "#0a7ea4", "iree": "#bf3989",
}  # fmt: skip
ROW, TOP, LEFT, WIDE, GAP = 20, 64, 210, 400, 50
LEAST, MOST = 1 / 16, 4.0  # of the best peer's speed; what lies beyond stands at the edge
GRID = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 4.0)


def picture(lines: Sequence[Line]) -> str:
    """Return an SVG with a panel for each number of threads."""
    threads = sorted({one.threads for one in lines})
    rows = list(dict.fromkeys(one.workload for one in lines))
    line_of = {(one.workload, one.threads): one for one in lines}
    width = LEFT + len(threads) * (WIDE + GAP)
    height = TOP + len(rows) * ROW + 60
    out: list[str] = []
    peers = [p for p in COLOURS if any(one.time(p) is not None for one in lines)]
    for index, peer in enumerate(peers):
        x = LEFT + index * 100
        out += [_mark(peer, x, 18), text(x + 10, 22, peer)]
    x = LEFT + len(peers) * 100
    out += [_floor(x, 18), text(x + 10, 22, "floor")]
    for panel, count in enumerate(threads):
        out += _panel(rows, line_of, count, LEFT + panel * (WIDE + GAP))
    for index, name in enumerate(rows):
        out.append(text(LEFT - 14, _middle(index) + 4, name, 'text-anchor="end"'))
    words = "speed relative to the best peer, logarithmic: right is faster; marks at the edge lie beyond it"
    return svg_document(width, height, [*out, text(LEFT, height - 8, words, f'fill="{GREY}"')])


def _panel(rows: Sequence[str], found: dict[tuple[str, int], Line], threads: int, left: float) -> list[str]:
    bottom = TOP + len(rows) * ROW
    title = f"{threads} thread{'s' if threads > 1 else ''}"
    out = [text(left + WIDE / 2, 46, title, 'text-anchor="middle" font-weight="bold"')]
    for value in GRID:
        x = _at(value, left)
        stroke, thick = (GREY, 1.5) if value == 1 else (PALE, 1)
        label = f"{value:g}x" if value >= 1 else f"1/{1 / value:.0f}x"
        out.append(line(x, TOP - 4, x, bottom, stroke, thick))
        out.append(text(x, bottom + 16, label, 'text-anchor="middle"'))
    for index, name in enumerate(rows):
        y = _middle(index)
        if index % 2:
            out.append(
                f'<rect x="{left}" y="{y - ROW / 2}" width="{WIDE}" height="{ROW}" fill="{GREY}" fill-opacity="0.06"/>'
            )
        shown = found.get((name, threads))
        best = None if shown is None else shown.best_peer()
        base = None if shown is None or best is None else shown.time(best)
        if shown is None or base is None:
            continue
        out.append(_floor(_at(base / shown.floor, left), y))
        # ours last, on top
        for peer in sorted(shown.results, key=lambda p: (p in OURS, p == "mlcc")):
            time = shown.time(peer)
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
    return circle(x, y, colour)


def _floor(x: float, y: float) -> str:
    return line(x, y - 7, x, y + 7, "black", 2.5)
