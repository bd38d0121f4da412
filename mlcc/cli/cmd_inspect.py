"""`mlcc inspect model.o`."""

from __future__ import annotations

import json

import click


@click.command("inspect")
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="The whole manifest as JSON.")
def command(file: str, as_json: bool) -> int:
    """Show what an artifact holds and needs, from its manifest. Nothing of it is loaded or run."""
    from mlcc.runtime.loader import read_manifest

    manifest = read_manifest(file)
    if as_json:
        click.echo(json.dumps(manifest, indent=2))
        return 0
    for line in summary(manifest):
        click.echo(line)
    return 0


def summary(manifest: dict) -> list[str]:  # type: ignore[type-arg]
    """The manifest as lines for a person."""
    raise NotImplementedError
