"""`mlcc explain E0312`."""

from __future__ import annotations

import click


@click.command("explain")
@click.argument("code", required=False)
def command(code: str | None) -> None:
    """Say what a diagnostic CODE means and what to do; without one, list all codes."""
    from mlcc.codes import codes
    from mlcc.errors import CompileError, did_you_mean, error

    if code is None:
        for name, (title, _) in sorted(codes().items()):
            click.echo(f"{name}  {title}")
        return
    wanted = code.strip("[]").upper()
    entry = codes().get(wanted)
    if entry is None:
        raise CompileError(
            error("E0006", f"there is no code {code}", help=did_you_mean(wanted, codes()) or "`mlcc explain` lists all")
        )
    title, text = entry
    click.echo(f"{wanted}: {title}\n")
    click.echo(click.wrap_text(text, width=100))
