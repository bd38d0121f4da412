"""`mlcc doctor`."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from mlcc.report.doctor import Check

_COLORS = {"ok": "green", "missing": "yellow", "fault": "red"}


@click.command("doctor")
@click.argument("artifacts", nargs=-1, metavar="[FILE]...")
@click.option("--json", "as_json", is_flag=True, help="Print the checks as one JSON list.")
def command(artifacts: tuple[str, ...], as_json: bool) -> int:
    """Check the installation, the machine and artifacts, and say how to mend faults.

    Lists versions, optional packages, the CPU, threads, environment variables, caches, tools and GPUs; compiles a small
    graph and compares what it computes with NumPy. Each FILE is an artifact that is loaded, not run. The output is
    meant for reports of bugs: it has no names of hosts, and of paths those that mlcc uses. The exit code is 0, 1 if
    there is a fault, and 6 if the only fault is an artifact that does not fit this machine.
    """
    from mlcc.cli.main import EXIT_INPUT, EXIT_MACHINE
    from mlcc.report.doctor import FAULT, run_checks

    checks = []
    section = ""
    for check in run_checks(artifacts):
        checks.append(check)
        if not as_json:
            if check.section != section:
                section = check.section
                click.echo(section)
            _show(check)
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(check) for check in checks], indent=2))
    faults = [check for check in checks if check.state == FAULT]
    if not faults:
        return 0
    return EXIT_MACHINE if all(check.misfit for check in faults) else EXIT_INPUT


def _show(check: Check) -> None:
    from mlcc.cli.terminal import has_color

    settings = click.get_current_context().find_root().obj or {}
    paint = has_color(settings.get("color", "auto"), sys.stdout)
    state = f"{check.state:8}"
    click.echo(f"  {click.style(state, fg=_COLORS[check.state]) if paint else state}{check.name}: {check.value}")
    if check.help is not None:
        click.echo(f"          help: {check.help}")
