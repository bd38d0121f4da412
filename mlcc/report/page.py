"""One HTML file that shows a report: the data of docs/report-format.md with the program that draws them.

The file asks nothing of any network and runs nothing but its own script, which a content security policy holds by its
hash. All data are compressed (zlib, RFC 1950) and in base64, so that no text of a model can be read as HTML.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping
from html import escape
from importlib import resources
from string import Template
from typing import Any

from mlcc.grammar.token_rules import TOKEN_RULES
from mlcc.report.graph_picture import count_boxes, depths, svg

SCRIPTS = ("dom", "code", "diff", "graph", "passes", "kernels", "memory", "tables", "difference", "app")


def render(data: Mapping[str, Any]) -> str:
    """Return the page of a report, or of two reports and their difference, as the text of an HTML file."""
    if "diff" in data:
        title = f"{data['a']['title']} and {data['b']['title']}"
        data = {**data, "a": _with_pictures(data["a"]), "b": _with_pictures(data["b"])}
    else:
        title = data["title"]
        data = _with_pictures(data)
    style = _asset("style.css") + _asset("graph.css")
    script = "\n".join(_asset(f"{name}.js") for name in SCRIPTS)
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    packed = zlib.compress(json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode(errors="replace"), 9)
    return Template(_asset("template.html")).substitute(
        title=escape(str(title)),
        policy=policy,
        style=style,
        script=script,
        rules=json.dumps(TOKEN_RULES).replace("<", r"\u003c"),
        data=base64.b64encode(packed).decode(),
    )


def _with_pictures(report: Mapping[str, Any]) -> dict[str, Any]:
    return {**report, "pictures": [_pictures(graph) for graph in report["graphs"]]}


def _pictures(graph: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The pictures of a graph, from coarse to fine; depth 0 is the one of every operator."""
    return [
        {"depth": depth or 0, "boxes": count_boxes(graph, depth), "svg": svg(graph, depth=depth, alone=False)}
        for depth in [*depths(graph), None]
    ]


def _digest(text: str) -> str:
    """The hash of an element's text, as content security policies have them."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _asset(name: str) -> str:
    return (resources.files("mlcc.report") / "assets" / name).read_text(encoding="utf-8")
