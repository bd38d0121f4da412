"""`mlcc check a.mlc b.mlc`."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import click

from mlcc.cli.options import echo_stderr, load_option, warn, warnings_option

if TYPE_CHECKING:
    from mlcc.errors import Diagnostic

_POLL = 0.2  # seconds between two looks at the files


@click.command("check")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("--watch", is_flag=True, help="Check again whenever a file changes, until Ctrl-C.")
@load_option
@warnings_option
def command(files: tuple[str, ...], watch: bool) -> int:
    """Parse and verify each FILE (default: standard input), and show the findings of all files.

    For a schedule script (.mls) only the syntax is checked.
    """
    if watch:
        if not files or "-" in files:
            raise click.UsageError("--watch takes files, not standard input")
        _watch(files)
    findings = _findings(files or ("-",))
    if findings:
        from mlcc.errors import CompileError

        raise CompileError(findings)
    return 0


def _findings(files: Collection[str]) -> list[Diagnostic]:
    """The errors of all files. Warnings are shown at once."""
    from mlcc.errors import MlccError
    from mlcc.files import read_bytes
    from mlcc.frontend.source import read_module
    from mlcc.grammar.syntax.reader import parse_syntax, read_source
    from mlcc.verify import check

    findings = []
    for path in files:
        try:
            if path.endswith(".mls"):
                parse_syntax(read_source(read_bytes(path), path), start="script")
            else:
                module = read_module(path)
                check(module)
                warn(module)
        except MlccError as exc:
            findings += list(exc.diagnostics)
    return findings


def _watch(files: tuple[str, ...]) -> None:
    """Check files now and after each change of one of them, or of a file that they read. Does not return."""
    from mlcc.cli.main import report
    from mlcc.errors import CompileError
    from mlcc.files import watch_reads

    settings = click.get_current_context().find_root().obj or {}
    style = settings.get("diagnostics", "text")
    if style == "sarif":
        raise click.UsageError("--watch writes text or JSON: a SARIF document is that of one check")
    while True:
        reads = watch_reads()
        before = _state(files)
        findings = _findings(files)
        if findings:
            report(CompileError(findings), style, settings.get("color", "auto"))
        _tell(len(findings), len(files), style)
        watched = {*files, *reads}
        seen = {**_state(watched), **before}  # what changed while it was checked is checked again
        while _state(watched) == seen:
            time.sleep(_POLL)


def _state(paths: Collection[str]) -> dict[str, Any]:
    """Return a fingerprint per path, which changes when the file is written, replaced or removed."""
    found: dict[str, Any] = {}
    for path in paths:
        try:
            status = os.stat(path)
            found[path] = (status.st_mtime_ns, status.st_size, status.st_ino)
        except OSError:
            found[path] = None
    return found


def _tell(errors: int, files: int, style: str) -> None:
    """Say that a check has ended: a line for a person, or an object with the key `checked` for a program."""
    import json

    if style == "json":
        echo_stderr(json.dumps({"checked": files, "errors": errors}))
        return
    what = "no errors" if errors == 0 else f"{errors} error{'s' if errors != 1 else ''}"
    echo_stderr(f"-- {what}; watching {files} file{'s' if files != 1 else ''}, Ctrl-C ends")
