"""The command `mlcc fmt`."""

from __future__ import annotations

import click


@click.command("fmt")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("-i", "--in-place", is_flag=True, help="Rewrite the files instead of printing.")
@click.option(
    "--check", "only_check", is_flag=True, help="Change nothing; exit 1 and name the files that would change."
)
def command(files: tuple[str, ...], in_place: bool, only_check: bool) -> int:
    """Format each FILE (default: standard input) in the canonical layout, with its meaning and comments unchanged."""
    from mlcc.files import read_bytes, write_atomic
    from mlcc.grammar.fmt.canonical import format_text
    from mlcc.grammar.syntax.reader import decode

    changed = []
    for path in files or ("-",):
        text = decode(read_bytes(path), path)
        formatted = format_text(text, path)
        if formatted != text:
            changed.append(path)
        if in_place and path != "-":
            if formatted != text:
                write_atomic(path, formatted)
        elif not only_check:
            click.echo(formatted, nl=False)
    if only_check and changed:
        for path in changed:
            click.echo(f"{path} would be reformatted", err=True)
        return 1
    return 0
