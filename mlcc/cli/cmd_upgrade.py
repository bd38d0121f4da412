"""The command `mlcc upgrade`."""

from __future__ import annotations

import click

from mlcc.cli.options import force_option


@click.command("upgrade")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--check", "only_check", is_flag=True, help="Change nothing; exit 1 and name the files that are older.")
@click.option("-o", "--output", metavar="FILE", help="Write the upgraded file here, and leave FILE as it is.")
@force_option
def command(files: tuple[str, ...], only_check: bool, output: str | None, force: bool) -> int:
    """Rewrite each FILE of an older mlcc, or an older dialect, in today's form, in place.

    Texts (.mlc) and schedule scripts (.mls) get today's spellings and the version at their top; their meaning, their
    layout and their comments stay. Databases of records (.db) get today's tables. Nothing has to be upgraded: older
    files are read as they are.
    """
    from mlcc.errors import CompileError, Diagnostic
    from mlcc.outputs import Outputs
    from mlcc.upgrade.files import upgrade

    if output is not None and len(files) != 1:
        raise click.UsageError("-o takes one FILE")
    if "-" in files:
        raise click.UsageError("upgrade rewrites files: name one")
    outputs = Outputs(force, watch=True)
    outputs.read(*(files if output is not None else ()))
    outputs.write(output, "-o", _kind(files[0]))
    outputs.check()
    older: list[str] = []
    problems: list[Diagnostic] = []
    for path in files:
        try:
            if upgrade(path, output, only_check):
                older.append(path)
        except CompileError as exc:
            problems += exc.diagnostics
    for path in older:
        click.echo(f"{path} {'is older' if only_check else 'is upgraded'}", err=True)
    if problems:
        raise CompileError(problems)
    return int(only_check and bool(older))


def _kind(path: str) -> str:
    from mlcc.outputs import KINDS, suffix_of

    return next((kind for kind in ("script", "records") if suffix_of(path) in KINDS[kind].suffixes), "module")
