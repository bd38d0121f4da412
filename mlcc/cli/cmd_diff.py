"""`mlcc diff a.mlc b.mlc`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from mlcc.cli.options import is_artifact, load_option, refuse_two_readers

if TYPE_CHECKING:
    from mlcc.ir.module import IRModule
    from mlcc.report.module_diff import Difference


@click.command("diff")
@click.argument("left", metavar="FILE")
@click.argument("right", metavar="FILE")
@click.option("--func", "names", multiple=True, metavar="NAME", help="Compare only these functions. Repeatable.")
@click.option("--context", type=click.IntRange(0), default=3, show_default=True, metavar="N",
              help="Equal lines to show around those that differ.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the differences as one JSON list.")
@load_option
def command(left: str, right: str, names: tuple[str, ...], context: int, as_json: bool) -> int:
    """Compare two modules by structure, or two artifacts by their manifests, and show what differs.

    Two texts are equal if they mean the same program: names of variables, buffers and blocks, comments, layout and
    dialect do not count. Models (.onnx, .pt2) are imported first. Of a function that differs, the first place that does
    is named, and its texts are compared line by line. The exit code is 0 if both are equal, and 3 if they differ.
    """
    refuse_two_readers(left, right)
    artifacts = [is_artifact(path) for path in (left, right)]
    if artifacts[0] != artifacts[1]:
        text = left if artifacts[1] else right
        raise click.UsageError(f"{text} is a text and the other file an artifact: compile the text first")
    if all(artifacts) and names:
        raise click.UsageError("--func is for texts")
    return _artifacts(left, right, as_json) if all(artifacts) else _modules(left, right, names, context, as_json)


def _modules(left: str, right: str, names: tuple[str, ...], context: int, as_json: bool) -> int:
    from mlcc.frontend.source import read_module
    from mlcc.report.module_diff import compare_modules

    before, after = read_module(left), read_module(right)
    if names:
        before, after = _keep_named(before, after, names)
    differences = compare_modules(before, after, context)
    if as_json:
        keys = ("name", "kind", "path", "reason")
        entries = [{**{key: getattr(d, key) for key in keys}, "lines": list(d.lines)} for d in differences]
        click.echo(json.dumps(entries, indent=2))
    else:
        for difference in differences:
            _echo_lines(_description(difference, left, right))
    return _exit_code(differences)


def _artifacts(left: str, right: str, as_json: bool) -> int:
    from mlcc.cli.cmd_inspect import complete_manifest
    from mlcc.cli.options import artifact_source
    from mlcc.report.manifest_diff import ABSENT, compare_manifests

    before, after = (complete_manifest(artifact_source(path)) for path in (left, right))
    differences = compare_manifests(before, after)
    if as_json:
        entries = [
            {"path": d.path, **{k: v for k, v in (("left", d.left), ("right", d.right)) if v is not ABSENT}}
            for d in differences
        ]
        click.echo(json.dumps(entries, indent=2))
    else:
        for difference in differences:
            click.echo(str(difference))
    return _exit_code(differences)


def _keep_named(left: IRModule, right: IRModule, names: tuple[str, ...]) -> tuple[IRModule, IRModule]:
    """Return the modules with only the functions of these names. Raises CompileError E0801 if neither has one."""
    from mlcc.errors import CompileError, did_you_mean, error

    known = dict.fromkeys([*left, *right])
    for name in names:
        if name not in known:
            raise CompileError(
                error("E0801", f"neither module has a function `{name}`", help=did_you_mean(name, known))
            )
    return _only(left, names), _only(right, names)


def _only(module: IRModule, names: tuple[str, ...]) -> IRModule:
    from mlcc.ir.module import IRModule

    return IRModule({name: module[name] for name in names if name in module}, module.attrs)


def _description(difference: Difference, left: str, right: str) -> Iterable[str]:
    if difference.kind == "only left":
        yield f"- {difference.name}: only in {left}"
    elif difference.kind == "only right":
        yield f"+ {difference.name}: only in {right}"
    else:
        yield f"{difference.name}{difference.path}: {difference.reason}"
        yield from difference.lines


_COLORS = {"-": "red", "+": "green", "@": "cyan"}


def _echo_lines(lines: Iterable[str]) -> None:
    from mlcc.cli.terminal import has_color

    settings = click.get_current_context().find_root().obj or {}
    paint = has_color(settings.get("color", "auto"), sys.stdout)
    for line in lines:
        color = _COLORS.get(line[:1])
        click.echo(click.style(line, fg=color) if paint and color else line, color=paint)


def _exit_code(differences: list[Any]) -> int:
    from mlcc.cli.main import EXIT_DIFFERENT

    return EXIT_DIFFERENT if differences else 0
