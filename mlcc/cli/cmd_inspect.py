"""`mlcc inspect model.o`."""

from __future__ import annotations

import json
from typing import Any

import click


@click.command("inspect")
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="The whole manifest as JSON.")
def command(file: str, as_json: bool) -> int:
    """Show what an artifact holds and needs, from its manifest. Nothing of it is loaded or run."""
    from mlcc.runtime.loader import read_manifest

    manifest = read_manifest(file)
    if as_json:
        click.echo(json.dumps(manifest, indent=2, sort_keys=True))
        return 0
    for line in summary(manifest):
        click.echo(line)
    return 0


def summary(manifest: dict[str, Any]) -> list[str]:
    """The manifest as lines for a person: functions first, then everything else by name."""
    from mlcc.runtime.manifest import read

    facts = read(manifest)
    lines = []
    for function in facts.functions.values():
        params = ", ".join(f"{p.name}: {show_value(p)}" for p in function.params)
        result = f" -> {show_value(function.results)}" if function.results is not None else ""
        lines.append(f"{function.name}({params}){result}")
        lines.append(f"    C symbol {function.symbol}, {function.kind} function")
    if facts.packed:
        lines.append(f"packed functions: {', '.join(p.name for p in facts.packed)}")
    if facts.externs:
        lines.append(f"extern symbols: {', '.join(facts.externs)}")
    for key, value in manifest.items():
        if key not in ("functions", "packed", "externs"):
            text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
            lines.append(f"{key}: {text}")
    return lines


def show_value(value: Any) -> str:
    """A parameter or result as a type."""
    from mlcc.runtime.manifest import show_shape

    if value.kind == "tuple":
        return f"({', '.join(map(show_value, value.fields))})"
    if value.kind == "tensor":
        role = "" if value.role == "in" else f" {value.role}"
        return f"{value.dtype}{show_shape(value.dims)}{role}"
    if value.kind == "shape":
        return f"shape{show_shape(value.dims)}"
    return value.dtype or str(value.kind)
