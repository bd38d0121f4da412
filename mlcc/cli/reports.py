"""Diagnostics as the command line writes them: text, JSON lines, or one SARIF document when the command ends."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

import mlcc
from mlcc.cli.terminal import has_color
from mlcc.errors import Diagnostic, Label, render

STYLES = ("text", "json", "sarif")
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_pending: list[Diagnostic] = []  # what a SARIF document will have


def write(diagnostics: Sequence[Diagnostic], style: str = "text", color: str = "auto") -> None:
    """Write diagnostics to stderr; for SARIF they are kept until `finish`."""
    if style == "sarif":
        _pending.extend(diagnostics)
        return
    if style == "json":
        for diagnostic in diagnostics:
            click.echo(json.dumps(as_json(diagnostic)), err=True)
        return
    paint = has_color(color, sys.stderr)
    for diagnostic in diagnostics:
        click.echo(render(diagnostic, color=paint), err=True, color=paint)


def finish(style: str) -> None:
    """Write the SARIF document of everything that was reported, which is valid without a finding too."""
    if style == "sarif":
        click.echo(json.dumps(as_sarif(_pending), indent=2), err=True)
    _pending.clear()


def as_json(diagnostic: Diagnostic) -> dict[str, Any]:
    """One diagnostic as plain data; lines and columns count from 1. `rendered` is the text that people get."""
    primary = _place(diagnostic.primary)
    return {
        "code": diagnostic.code, "severity": diagnostic.severity.value, "message": diagnostic.message,
        "file": primary.get("file", diagnostic.file), "primary": primary,
        "related": [_place(r) for r in diagnostic.related],
        "help": diagnostic.help, "rendered": render(diagnostic),
    }  # fmt: skip


def _place(label: Label) -> dict[str, Any]:
    if label.span is None:
        return {"text": label.text}
    line, column = label.span.source.line_col(label.span.start)
    end_line, end_column = label.span.source.line_col(label.span.end)
    return {
        "file": label.span.source.name, "line": line, "column": column,
        "end_line": end_line, "end_column": end_column, "text": label.text,
    }  # fmt: skip


# ---------------------------------------------------------------- SARIF


def as_sarif(diagnostics: Sequence[Diagnostic]) -> dict[str, Any]:
    """All diagnostics as one SARIF 2.1.0 document, with the explanations of their codes as rules."""
    from mlcc.codes import codes

    used = sorted({d.code for d in diagnostics})
    known = {code: codes(code).get(code, ("", "")) for code in used}
    rules = [
        {"id": code, "shortDescription": {"text": title or code}, "fullDescription": {"text": text or code}}
        for code, (title, text) in known.items()
    ]
    driver = {"name": "mlcc", "version": mlcc.__version__, "rules": rules}
    results = [_result(d, used.index(d.code)) for d in diagnostics]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _result(diagnostic: Diagnostic, rule: int) -> dict[str, Any]:
    text = diagnostic.message
    if diagnostic.primary.text:
        text += f": {diagnostic.primary.text}"
    if diagnostic.help:
        text += f"\nhelp: {diagnostic.help}"
    result: dict[str, Any] = {
        "ruleId": diagnostic.code, "ruleIndex": rule, "level": diagnostic.severity.value, "message": {"text": text},
    }  # fmt: skip
    if diagnostic.primary.span is not None:
        result["locations"] = [_location(diagnostic.primary)]
    elif diagnostic.file not in (None, "-"):
        result["locations"] = [{"physicalLocation": {"artifactLocation": {"uri": _uri(str(diagnostic.file))}}}]
    related = [{**_location(r), "message": {"text": r.text}} for r in diagnostic.related if r.span is not None]
    if related:
        result["relatedLocations"] = related
    return result


def _location(label: Label) -> dict[str, Any]:
    place = _place(label)
    region = {
        "startLine": place["line"], "startColumn": place["column"],
        "endLine": place["end_line"], "endColumn": place["end_column"],
    }  # fmt: skip
    return {"physicalLocation": {"artifactLocation": {"uri": _uri(place["file"])}, "region": region}}


def _uri(path: str) -> str:
    from urllib.parse import quote

    return quote(path.replace(os.sep, "/"))
