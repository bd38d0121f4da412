"""`mlcc ops`, `mlcc ops conv`."""

from __future__ import annotations

import click

from mlcc.cli.options import load_option


@click.command("ops")
@click.argument("part", required=False, metavar="[PART]")
@load_option
def command(part: str | None) -> None:
    """List the operators with their parameters: those with PART in their names, or all."""
    from mlcc.errors import CompileError, did_you_mean, error
    from mlcc.ops.signature import names, short_name, signature_text
    from mlcc.reference.pages import reference_doc
    from mlcc.reference.sections import operator_section

    wanted = short_name(part or "")
    known = [name.removeprefix("relax.") for name in names()]
    found = [name for name in known if wanted in name]
    if not found:
        raise CompileError(error("E0440", f"no operator has `{part}` in its name", help=did_you_mean(wanted, known)))
    for name in found:
        click.echo(f"R.{signature_text(name)}")
        section = operator_section(name)
        if section is not None:
            click.echo("    " + " ".join(section.meaning.split("\n\n")[0].split()))
        elif reference_doc(name):
            click.echo(f"    {reference_doc(name).splitlines()[0]}")
