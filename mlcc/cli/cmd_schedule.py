"""`mlcc schedule kernel.mlc --script mm.mls`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from mlcc.cli.options import data_option, force_option, load_option, refuse_options, target_option

if TYPE_CHECKING:
    from mlcc.files import Content

_SCRIPT_OPTIONS = {
    "seed": "--seed", "func": "--func", "show_each": "--show-each", "trace_path": "--trace", "data": "--data",
    "force": "--force", "dialect": "--dialect",
}  # fmt: skip
_AUTO_OPTIONS = {"why": "--why", "plans": "--plans"}


@click.command("schedule")
@click.argument("file", default="-")
@click.option("--script", metavar="FILE", help="The schedule script (.mls) or trace; - is standard input.")
@click.option(
    "--auto", is_flag=True, help="Print the schedule script that the rules of `auto-schedule` choose for the target."
)
@click.option("--why", is_flag=True, help="With --auto: show on stderr which rule applies to each function, and why.")
@click.option(
    "--plans",
    type=click.IntRange(min=1),
    metavar="N",
    help="With --auto: print the N best plans of each function, as choices to edit.",
)
@load_option
@target_option("llvm{cpu=native}")
@click.option(
    "--seed", metavar="N", default=0, show_default=True, help="The seed of sampling; -1 draws a new one for each run."
)
@click.option("--func", metavar="NAME", help="The function that the script schedules when it names none.")
@click.option("--show-each", is_flag=True, help="Show the loops after every line of the script, on stderr.")
@click.option("--trace", "trace_path", metavar="FILE", help="Write the trace, with sampling decisions, as a script.")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    default="-",
    help="The file for the result; large constants go into FILE.npz beside it (default: stdout).",
)
@data_option
@force_option
@click.option("--dialect", type=click.Choice(["mlcc", "tvm"]), default="mlcc", show_default=True)
def command(
    file: str, script: str | None, auto: bool, why: bool, plans: int | None, target: str, seed: int,
    func: str | None, show_each: bool, trace_path: str | None, output: str, data: str | None, force: bool, dialect: str,
) -> int:  # fmt: skip
    """Apply a schedule script to FILE (default: standard input) and print the resulting module.

    The last function of the script is called with the schedule, or its statements use `sch`. A step that would change
    the results of the program is an error at its line, and nothing is written. With --auto, the equivalent script of
    `auto-schedule` is printed instead: applied with --script it gives the same module. With --plans as well, the script
    has the rules' choices rather than their steps.
    """
    if auto == (script is not None):
        raise click.UsageError("give either --script FILE or --auto")
    if auto:
        refuse_options("--auto", _SCRIPT_OPTIONS)
        return _write_chosen_script(file, target, why, plans, output)
    refuse_options("--script", _AUTO_OPTIONS)
    assert script is not None
    if file == "-" and script == "-":
        raise click.UsageError("only one of FILE and --script can be standard input")
    from mlcc.cli.options import check_data_option
    from mlcc.driver import write_module
    from mlcc.files import read_bytes
    from mlcc.frontend.source import read_module
    from mlcc.grammar.printer.literals import quote
    from mlcc.grammar.syntax.reader import read_source
    from mlcc.grammar.syntax.version import with_version
    from mlcc.outputs import Outputs
    from mlcc.passes.schedule.mls.run import run_script
    from mlcc.passes.schedule.mls.show import ShowEach
    from mlcc.passes.schedule.schedule import Schedule
    from mlcc.relax.origins import KEEP_COMMENTS
    from mlcc.verify import check

    check_data_option(data, output, dialect)
    outputs = Outputs(force, watch=True)
    outputs.read(file, script)
    outputs.write(trace_path, "--trace", "script")
    outputs.write_module(output, "-o", dialect, data)
    outputs.check()
    source = read_source(read_bytes(script), "<stdin>" if script == "-" else script)
    module = read_module(file)
    check(module)
    schedule = Schedule(module, seed=seed)
    if func is not None:
        schedule.work_on(func)

    shown = []

    def write(text: str) -> None:
        shown.append(text)
        click.echo(text, err=True, nl=not text.endswith("\n"))

    after = ShowEach(schedule, write) if show_each else None
    folder = "." if script == "-" else os.path.dirname(script) or "."
    intrinsics = run_script(schedule, source, folder=folder, show=write, after=after)
    if not schedule.trace.insts and not shown:
        _warn_of_nothing(script)
    more: dict[str, Content] = {}
    if trace_path is not None:
        beside = os.path.dirname(trace_path) or "."
        lines = [f"register_tensor_intrin({quote(n)}, {quote(os.path.relpath(f, beside))})\n" for n, f in intrinsics]
        more[trace_path] = with_version("".join(lines) + str(schedule.trace))
    write_module(schedule.mod, output, dialect, data=data, outputs=outputs, more=more, style=KEEP_COMMENTS)
    return 0


def _warn_of_nothing(script: str) -> None:
    """Show a warning (W0601) for a script that applied no primitive."""
    from dataclasses import replace

    from mlcc.cli.main import report
    from mlcc.errors import CompileError, Severity, error

    help = 'a script calls primitives, such as `sch.parallel(sch.get_loops("C")[0])`, or its last function does'
    warning = error("W0601", f"{script} has no steps: the module stays as it is", help=help)
    settings = click.get_current_context().find_root().obj or {}
    problem = CompileError(replace(warning, severity=Severity.WARNING))
    report(problem, settings.get("diagnostics", "text"), settings.get("color", "auto"))


def _write_chosen_script(file: str, target: str, why: bool, plans: int | None, output: str) -> int:
    """Write the script that the schedule rules choose for the TIR functions of a file, or `plans` plans for each."""
    from mlcc.backends import facts_of
    from mlcc.frontend.source import read_module
    from mlcc.grammar.syntax.version import with_version
    from mlcc.outputs import Outputs, is_stream
    from mlcc.passes.auto_schedule.apply_rules import report, schedule_module
    from mlcc.passes.auto_schedule.as_script import as_script, plans_as_script
    from mlcc.passes.auto_schedule.plans import best_plans
    from mlcc.verify import check

    outputs = Outputs(watch=True)
    outputs.read(file)
    outputs.write(output, "-o", "script")
    outputs.check()
    module = read_module(file)
    check(module)
    facts = facts_of(target)
    chosen = schedule_module(module, facts)
    if why:
        click.echo(report(chosen), err=True, nl=False)
    text = (
        as_script(chosen, facts, target) if plans is None else plans_as_script(best_plans(module, facts, plans), target)
    )
    outputs.save({output: text if is_stream(output) else with_version(text)})
    return 0
