"""`mlcc check a.mlc b.mlc`."""

from __future__ import annotations

import click

from mlcc.cli.options import warn, warnings_option


@click.command("check")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@warnings_option
def command(files: tuple[str, ...]) -> int:
    """Parse and verify each FILE (default: standard input), and show the findings of all files.

    For a schedule script (.mls) only the syntax is checked.
    """
    from mlcc.errors import MlccError
    from mlcc.files import read_bytes
    from mlcc.frontend.source import read_module
    from mlcc.grammar.syntax.reader import parse_syntax, read_source
    from mlcc.verify import check

    findings = []
    for path in files or ("-",):
        try:
            if path.endswith(".mls"):
                parse_syntax(read_source(read_bytes(path), path), start="script")
            else:
                module = read_module(path)
                check(module)
                warn(module)
        except MlccError as exc:
            findings += list(exc.diagnostics)
    if findings:
        from mlcc.errors import CompileError

        raise CompileError(findings)
    return 0
