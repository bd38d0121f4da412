"""The database operations of `mlcc tune`: list, export, import, merge and prune records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from mlcc.records.database import Database


def run(
    db: str, list_records: bool, export: tuple[str, str] | None, import_dir: str | None, merge: str | None, force: bool,
    imported: bool,
) -> int:  # fmt: skip
    """Run the requested operation on the database; `--prune` if none is given. Raises CompileError."""
    from mlcc.records.database import Database

    if list_records or export is not None:
        with Database(db, reads_only=True) as database:
            if export is None:
                return _list(database)
            return _export(database, *export, force)
    with Database(db) as database:
        if merge is not None:
            click.echo(f"added {database.merge(merge)} records", err=True)
        elif import_dir is not None:
            from mlcc.tune.import_tvm import import_records

            taken, refused = import_records(database, import_dir)
            click.echo(f"imported {taken} records", err=True)
            for why in refused:
                click.echo(f"not imported: {why}", err=True)
        else:
            click.echo(f"removed {database.prune(imported)} records", err=True)
    return 0


def _list(database: Database) -> int:
    """Print a line for each workload with a proven schedule: key, time ratio, upper bound, kernel, settings, date."""
    from mlcc.records.choice import MIN_GAIN

    proven = [r for r in database.winners() if r.bound is not None and r.bound < 1 - MIN_GAIN]
    if not proven:
        click.echo(f"{database.path} has no schedule that is proven faster than the default", err=True)
    for record in proven:
        name = (database.text(record.workload) or "").partition("\n")[0].removeprefix("# ")
        setting = record.setting
        threads = f"{setting.threads} thread{'s' if setting.threads > 1 else ''}"
        click.echo(
            f"{record.workload[:12]}  {record.ratio:.3f} (at most {record.bound:.3f})  {name}: {setting.target}, "
            f"{threads}, -O{setting.level}, mlcc {setting.compiler}, {setting.device}, {record.made[:10]}"
        )
    return 0


def _export(database: Database, key: str, path: str, force: bool) -> int:
    """Write the best record of the workload whose key begins with `key`. Raises CompileError E1134."""
    from mlcc.errors import CompileError, did_you_mean, error
    from mlcc.outputs import Outputs
    from mlcc.tune.kernel_script import kernel_script

    outputs = Outputs(force)
    outputs.read(database.path)
    outputs.write(path, "--export", "script")
    outputs.check()
    fitting = [r for r in database.winners() if r.workload.startswith(key)]
    keys = {r.workload for r in fitting}
    if len(keys) != 1 or not key:
        what = "several workloads have" if keys else "no workload with a record has"
        help = did_you_mean(key, {r.workload for r in database.winners()}) or "`mlcc tune --list` shows the keys"
        raise CompileError(error("E1134", f"{what} a key that begins with `{key}`", help=help))
    best = min(fitting, key=lambda r: (r.bound or 1.0, r.candidate))
    outputs.save({path: kernel_script(best)})
    return 0
