"""Elements of SVG charts: document, text, lines, curves and marks. Coordinates are pixels from the top left."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

GREY, PALE = "#57606a", "#d0d7de"


def svg_document(width: float, height: float, body: Iterable[str]) -> str:
    """Return an SVG document with a white background."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" font-family="sans-serif" font-size="12">'
    )
    return "\n".join([head, f'<rect width="{width:g}" height="{height:g}" fill="white"/>', *body]) + "</svg>\n"


def text(x: float, y: float, words: str, more: str = "") -> str:
    """Text whose baseline begins at (x, y); `more` are further attributes."""
    return f'<text x="{x:g}" y="{y:g}"{" " * bool(more)}{more}>{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, stroke: str = PALE, width: float = 1) -> str:
    place = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {place} stroke="{stroke}" stroke-width="{width:g}"/>'


def curve(points: Sequence[tuple[float, float]], stroke: str, title: str = "") -> str:
    """A polyline through points, with a tooltip."""
    listed = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    inside = f"<title>{escape(title)}</title>" if title else ""
    return f'<polyline points="{listed}" fill="none" stroke="{stroke}" stroke-width="2">{inside}</polyline>'


def circle(x: float, y: float, fill: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{fill}" fill-opacity="0.8" stroke="white"/>'
