"""The report of a tuning: the gain of each kernel, as JSON or as an SVG chart of the best ratio over time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from mlcc.tune.engine import Tuning
from mlcc.tune.kernel_search import KernelSearch
from mlcc.tune.svg import GREY, circle, curve, line, svg_document, text

COLOURS = ("#d1242f", "#0969da", "#1a7f37", "#8250df", "#e16f24", "#0a7ea4", "#bf3989", "#9a6700")
LEFT, TOP, WIDE, HIGH = 60, 40, 520, 260
ROW = 18


def report_text(tuning: Tuning, path: str) -> str:
    """Format the report as JSON or SVG, by the suffix of the file."""
    return json.dumps(report_data(tuning), indent=1) + "\n" if path.endswith(".json") else report_svg(tuning)


def report_data(tuning: Tuning) -> dict[str, Any]:
    """Return the report as data. Seconds are per call; `history` has (elapsed seconds, trials, relative time)."""
    return {
        "why_done": tuning.loop.why_done,
        "trials": tuning.loop.trials,
        "ratio": tuning.ratio,
        "history": [list(point) for point in tuning.loop.history],
        "kernels": [_kernel(tuning, kernel) for kernel in tuning.kernels],
    }


def _kernel(tuning: Tuning, kernel: KernelSearch) -> dict[str, Any]:
    record = tuning.winner(kernel)
    return {
        "names": list(kernel.task.names), "workload": kernel.task.key, "calls": kernel.task.calls,
        "share": kernel.share, "default_seconds": kernel.default_seconds, "floor_seconds": kernel.roofline_seconds,
        "trials": kernel.trials, "failed": kernel.failed, "why_done": kernel.why_done,
        "ratio": record.ratio if record is not None else None, "bound": record.bound if record is not None else None,
        "history": [list(point) for point in kernel.history],
    }  # fmt: skip


def report_svg(tuning: Tuning) -> str:
    """Draw the relative time of the module over seconds, and that of its kernels over trials, as an SVG."""
    kernels = sorted((k for k in tuning.kernels if k.history), key=lambda k: -k.share)[: len(COLOURS)]
    module = [(0.0, 1.0), *((seconds, ratio) for seconds, _, ratio in tuning.loop.history)]
    curves = [[(0.0, 1.0), *((float(trials), ratio) for trials, ratio in k.history)] for k in kernels]
    low = min((ratio for points in (module, *curves) for _, ratio in points), default=1.0)
    floor = max(0.0, min(0.9, low - 0.05))
    body = _panel(0, "the module", "seconds", [module], floor)
    body += _panel(LEFT + WIDE, "its kernels", "candidates tried", curves, floor)
    for index, kernel in enumerate(kernels):
        y = TOP + HIGH + 60 + index * ROW
        words = f"{kernel.name}: {kernel.share:.0%} of the time, {kernel.ratio or 1.0:.2f} of the default's"
        body += [circle(2 * LEFT + WIDE, y - 4, COLOURS[index]), text(2 * LEFT + WIDE + 12, y, words)]
    return svg_document(2 * (LEFT + WIDE) + 20, TOP + HIGH + 60 + max(len(kernels), 1) * ROW, body)


def _panel(
    left: float, title: str, axis: str, curves: Sequence[Sequence[tuple[float, float]]], floor: float
) -> list[str]:
    """Draw descending step curves between `floor` and 1."""
    longest = max((points[-1][0] for points in curves), default=0.0) or 1.0

    def place(x: float, ratio: float) -> tuple[float, float]:
        return left + LEFT + x / longest * WIDE, TOP + (1.0 - ratio) / (1.0 - floor) * HIGH

    out = [text(left + LEFT + WIDE / 2, TOP - 16, title, 'text-anchor="middle" font-weight="bold"')]
    for number in range(5):
        ratio = 1.0 - (1.0 - floor) * number / 4
        x, y = place(0.0, ratio)
        out += [line(x, y, x + WIDE, y), text(x - 8, y + 4, f"{ratio:.2f}", 'text-anchor="end"')]
        x, y = place(longest * number / 4, floor)
        out.append(text(x, y + 18, f"{longest * number / 4:.3g}", 'text-anchor="middle"'))
    out.append(text(left + LEFT + WIDE / 2, TOP + HIGH + 34, axis, f'text-anchor="middle" fill="{GREY}"'))
    for colour, points in zip(COLOURS, curves, strict=False):
        corners = [(x, before) for (x, _), (_, before) in zip(points[1:], points, strict=False)]
        steps = [points[0], *(p for corner, point in zip(corners, points[1:], strict=True) for p in (corner, point))]
        out.append(curve([place(*point) for point in steps], colour))
    return out
