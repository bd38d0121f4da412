"""`mlcc tune model.mlc --budget 10m -o tuned.mlc`, and the operations on its database."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from mlcc.cli.options import (
    FiniteNumber,
    data_option,
    force_option,
    level_option,
    refuse_options,
    target_option,
    threads_option,
)

if TYPE_CHECKING:
    from mlcc.files import Content
    from mlcc.outputs import Outputs
    from mlcc.tune.engine import Tuning

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_DATABASE_OPTIONS = {
    "list_records": "--list",
    "export": "--export",
    "import_dir": "--import",
    "merge": "--merge",
    "prune": "--prune",
}


def seconds(ctx: click.Context | None, param: click.Parameter | None, value: str | None) -> float | None:
    """Parse a time such as `90`, `90s`, `10m` or `1.5h` to seconds. Raises BadParameter."""
    if value is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", value)
    if match is None or match[2] not in _UNITS:
        raise click.BadParameter(f"{value!r} is not a time such as 90s, 10m or 1.5h", ctx, param)
    return float(match[1]) * _UNITS[match[2]]


@click.command("tune")
@click.argument("file", required=False)
@click.option(
    "--budget",
    metavar="TIME",
    callback=seconds,
    help="The search time, such as 90s, 10m, 1h (default: until it no longer improves).",
)
@click.option("--trials", metavar="N", type=click.IntRange(1), help="The number of candidates to try.")
@target_option("llvm{cpu=native}")
@level_option
@threads_option
@click.option(
    "--kernels", metavar="GLOB", default="*", show_default=True, help="Tune only the kernels whose names match."
)
@click.option("--size", "sizes", multiple=True, metavar="NAME=N", help="The value of a symbolic size to measure with.")
@click.option(
    "--space",
    metavar="SPACE",
    default="rules",
    show_default=True,
    help="The search space: rules, generic, or a sampling script FILE.mls.",
)
@click.option("--db", metavar="FILE", default="tune.db", show_default=True, help="The database of measurements.")
@click.option(
    "--seed",
    metavar="N",
    type=click.IntRange(0, (1 << 31) - 2),
    default=0,
    show_default=True,
    help="The seed of the choice and order of candidates.",
)
@click.option(
    "--jobs",
    metavar="N",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Processes that compile candidates.",
)
@click.option(
    "--cluster", metavar="ADDRESS", help="Measure on the workers of a Dask scheduler, such as tls://host:8786."
)
@click.option(
    "--until",
    metavar="SHARE",
    type=FiniteNumber(0, min_open=True),
    default=0.9,
    show_default=True,
    help="Stop tuning a kernel at this fraction of the machine's peak.",
)
@click.option(
    "-o", "--output", metavar="FILE", help="The module with scheduled kernels; it compiles without the database."
)
@data_option
@force_option
@click.option("--scripts", metavar="FOLDER", help="Write the schedule of each improved kernel as a script (.mls).")
@click.option("--report", metavar="FILE", help="Write a report of the search: a picture (.svg) or plain data (.json).")
@click.option("--list", "list_records", is_flag=True, help="List the best records of the database.")
@click.option("--export", nargs=2, metavar="KEY FILE", help="Write the best record of a workload as a script (.mls).")
@click.option(
    "--import", "import_dir", metavar="FOLDER", help="Import the records of TVM's MetaSchedule from a folder."
)
@click.option("--merge", metavar="FILE", help="Add the records of another database.")
@click.option("--prune", is_flag=True, help="Keep the best record of each workload, and those of --import.")
@click.option("--imported", is_flag=True, help="With --prune: also remove the records of --import.")
def command(
    file: str | None, budget: float | None, trials: int | None, target: str, level: int | None, threads: int | None,
    kernels: str, sizes: tuple[str, ...], space: str, db: str, seed: int, jobs: int, cluster: str | None, until: float,
    output: str | None, data: str | None, force: bool, scripts: str | None, report: str | None, list_records: bool,
    export: tuple[str, str] | None, import_dir: str | None, merge: str | None, prune: bool,
    imported: bool,
) -> int:  # fmt: skip
    """Search by measurement for faster schedules of the kernels of FILE than the default ones.

    A schedule replaces the default one only if fresh samples prove that it is at least 2 % faster. Every measurement is
    stored in the database at once: an interrupted search continues from it, and `--db` of compile, run and bench uses
    it. Code compiled from FILE is run.
    """
    ctx = click.get_current_context()
    asked = [option for name, option in _DATABASE_OPTIONS.items() if ctx.params[name]]
    if len(asked) + (file is not None) != 1:
        raise click.UsageError("give either FILE, or one of " + ", ".join(_DATABASE_OPTIONS.values()))
    if imported and not prune:
        raise click.UsageError("--imported needs --prune")
    if asked:
        from mlcc.cli import tune_records

        shared = (*_DATABASE_OPTIONS, "db", "force", "imported")
        refuse_options(asked[0], {p.name: p.opts[-1] for p in ctx.command.params if p.name and p.name not in shared})
        return tune_records.run(db, list_records, export, import_dir, merge, force, imported)
    assert file is not None
    from mlcc.cli.options import apply_threads, check_data_option, parse_symbol_sizes
    from mlcc.files import make_folder
    from mlcc.frontend.source import read_module
    from mlcc.outputs import Outputs
    from mlcc.tune.engine import tuning

    outputs = Outputs(force, watch=True)
    outputs.read(file, space if space.endswith(".mls") else None)
    outputs.write(db, "--db", "records")
    check_data_option(data, output or "-", "mlcc")
    if output is not None:
        outputs.write_module(output, "-o", "mlcc", data)
    outputs.write(report, "--report", "report")
    outputs.check()
    if scripts is not None:
        make_folder(scripts)
    apply_threads(threads)
    module = read_module(file)
    shown = _progress()
    if cluster is None:
        _warn_if_busy(target)
    with tuning(
        module, target, level=level, threads=threads, kernels=kernels, sizes=parse_symbol_sizes(sizes), database=db,
        space=space, cluster=cluster, jobs=jobs, seed=seed, budget=budget, trials=trials, until=until,
        changed=shown.changed,
    ) as session:  # fmt: skip
        return _run(session, shown, lambda: _write(session, outputs, output, data, scripts, report), output == "-")


def _run(tuning: Tuning, shown: Any, write: Callable[[], None], quiet: bool) -> int:
    """Search, and write the results even if the search is interrupted or fails."""
    from mlcc.cli import signals
    from mlcc.cli.tune_table import table
    from mlcc.errors import CompileError

    stopped: BaseException | None = None
    with signals.graceful_first_signal():
        try:
            tuning.loop.run()
        except (signals.Stopped, KeyboardInterrupt, CompileError) as exc:
            stopped = exc
        finally:
            shown.close()
            tuning.end_processes()
        write()
        for line in table(tuning, final=True):
            click.echo(line, err=quiet)
    if stopped is not None:
        raise stopped
    return 0


def _warn_if_busy(target: str) -> None:
    """Warn if other processes disturb measurements, or if candidates cannot be measured."""
    from mlcc.cli.options import echo_stderr
    from mlcc.machine.device import ANALYSIS, measured_on
    from mlcc.machine.target import Target
    from mlcc.runtime.cores import num_cores

    where = Target.parse(target)
    if measured_on(where) == ANALYSIS:
        echo_stderr(f"no GPU here runs code for {where}: the times of candidates are estimated by analysis")
        return
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load > num_cores():
        echo_stderr(
            f"the machine is busy (load {load:.1f}, {num_cores()} cores): the search is slower and less reliable"
        )


def _progress() -> Any:
    """Return the progress display of a search: a table on a terminal, else a line a minute."""
    import sys

    from mlcc.cli.terminal import QUIET, is_terminal, verbosity
    from mlcc.cli.tune_table import LineAMinute, LiveTable

    if verbosity() == QUIET:
        return LineAMinute(lambda text: None)
    return LiveTable(sys.stderr) if is_terminal(sys.stderr) else LineAMinute(lambda text: click.echo(text, err=True))


def _write(
    tuning: Tuning, outputs: Outputs, output: str | None, data: str | None, scripts: str | None, report: str | None
) -> None:
    """Write the module, the scripts and the report of a tuning. Raises CompileError."""
    from mlcc.driver import write_module
    from mlcc.tune.kernel_script import HEADER, kernel_script
    from mlcc.tune.report import report_text

    more: dict[str, Content] = {} if report is None else {report: report_text(tuning, report)}
    if scripts is not None:
        for kernel in tuning.kernels:
            record = tuning.winner(kernel)
            if record is not None:
                path = os.path.join(scripts, re.sub(r"\W", "_", kernel.name) + ".mls")
                outputs.save_unnamed(path, kernel_script(record, kernel.name, kernel.task.calls), HEADER, "script")
    if output is not None:
        write_module(tuning.scheduled(), output, data=data, outputs=outputs, more=more)
    elif more:
        outputs.save(more)
