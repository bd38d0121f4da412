"""`mlcc passes model.mlc -p 'fuse,lower-to-tir,fuse-tir' --dump-after`."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import click

from mlcc.cli.options import (
    TOLERANCE,
    CommandWithDumps,
    data_option,
    dump_observers,
    dump_options,
    echo_stderr,
    force_option,
    level_option,
    load_option,
    records_option,
    target_option,
    warn,
    warnings_option,
)
from mlcc.passes.manage.levels import MEANING, level_of


@click.command("passes", cls=CommandWithDumps)
@click.argument("file", default="-")
@click.option(
    "-p",
    "--passes",
    "pipeline",
    metavar="PIPELINE",
    help="The pipeline, such as 'bind-params{params=w.npz},fuse' (default: -O2).",
)
@load_option
@level_option
@records_option
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
@click.option("--list", "list_passes", is_flag=True, help="List the passes and the named pipelines.")
@click.option("--help-pass", metavar="NAME", help="Describe a pass and its options.")
@click.option("--print-pipeline", is_flag=True, help="Print the pipeline without running it.")
@click.option("--dump-before", metavar="[=PASS,..]", help="Show the module before these passes (bare: before each).")
@dump_options
@click.option("--diff", metavar="[=PASS,..]", help="Show the changes made by these passes, on stderr (bare: by each).")
@click.option(
    "--stop-after", metavar="PASS", help="Stop after the first pass of this name, or after this number of passes."
)
@click.option(
    "--why-fuse", is_flag=True, help="Explain on stderr, for each edge of each function, why `fuse` fuses it or not."
)
@click.option(
    "--why-schedule", is_flag=True, help="Show on stderr which rule of `auto-schedule` applies to each function."
)
@click.option(
    "--verify-each/--no-verify-each", default=True, show_default=True, help="Verify the module after each pass."
)
@click.option(
    "--check-each",
    metavar="ARRAYS",
    help="Run the module after each pass on these inputs; exit 3 if the results change.",
)
@click.option("--check-work", metavar="N", type=click.IntRange(0), default=10_000_000, show_default=True,
              help="--check-each interprets up to this many operations, else compiles with --sanitize.")  # fmt: skip
@click.option("--func", metavar="NAME", default="main", show_default=True, help="The function that --check-each runs.")
@click.option("--rtol", type=TOLERANCE, metavar="NUMBER", default=1e-4, show_default=True)
@click.option("--atol", type=TOLERANCE, metavar="NUMBER", default=1e-5, show_default=True)
@target_option("llvm")
@warnings_option
def command(
    file: str, pipeline: str | None, level: int | None, db: str | None, output: str, data: str | None, force: bool,
    dialect: str, list_passes: bool, help_pass: str | None,
    print_pipeline: bool, dump_before: str | None, dump_after: str | None, dump_dir: str | None,
    diff: str | None, stop_after: str | None, timing: bool, why_fuse: bool, why_schedule: bool, verify_each: bool,
    check_each: str | None, check_work: int, func: str, rtol: float, atol: float, target: str,
) -> int:  # fmt: skip
    """Run passes over FILE (default: standard input) and print the resulting module.

    Without -p, the pipeline is that of a first comment `# PASSES: ...` in FILE, or else that of -O.
    """
    if list_passes:
        return _list(target)
    if pipeline is not None and level is not None and db is None:
        raise click.UsageError("-O chooses a pipeline, and -p gives one: leave one of them out")
    from mlcc import backends
    from mlcc.machine.target import Target
    from mlcc.passes.manage.manager import PassContext, Pipeline, help_text, no_pass_help, pass_names, run_pipeline

    if help_pass is not None:
        from mlcc.errors import CompileError, error
        from mlcc.options.typed import kebab
        from mlcc.passes import is_pass

        asked_pass, help_pass = help_pass, kebab(help_pass)
        groups = {
            name: b.groups[name] for b in (*backends.registered_backends(), backends.of(target)) for name in b.groups
        }
        group = groups.get(help_pass)
        if group is not None:
            click.echo(f"{help_pass}: {group}")
            return 0
        if not is_pass(help_pass):
            raise CompileError(error("E0501", f"there is no pass `{asked_pass}`", help=no_pass_help(asked_pass)))
        click.echo(help_text(help_pass))
        return 0
    from mlcc.driver import build_pipeline, insert_apply_tuned, parse_text

    where = Target.parse(target)
    if print_pipeline:
        usual = backends.of(where).full_pipeline(level_of(level))
        printed = Pipeline.parse(usual if pipeline is None else pipeline, target=where.kind)
        printed = printed if db is None else insert_apply_tuned(printed, db, level_of(level))
        click.echo(str(_stopped(printed, stop_after)))
        return 0
    from mlcc.files import read_bytes
    from mlcc.frontend.source import is_model, read_module
    from mlcc.grammar.syntax.reader import decode
    from mlcc.passes.manage.reproducer import directive

    chosen = None if pipeline is None else Pipeline.parse(pipeline, "-p", where.kind)
    text = "" if is_model(file) else decode(read_bytes(file), file)
    folder = "." if file == "-" else os.path.dirname(file) or "."
    asked = directive(text)
    confined = chosen is None and asked is not None
    if chosen is None and asked is not None:
        chosen = Pipeline.parse(asked, f"{file}: PASSES", where.kind)
    from mlcc.cli.options import check_data_option
    from mlcc.outputs import Outputs

    check_data_option(data, output, dialect)
    outputs = Outputs(force, watch=True)
    ctx = PassContext(target=where, folder=folder if confined else ".", confined=confined)
    outputs.read(file, db, check_each, *map(ctx.path, () if chosen is None else chosen.files()))
    outputs.write_module(output, "-o", dialect, data)
    outputs.check()
    module = read_module(file) if is_model(file) else parse_text(text, file, folder)
    given = pipeline if pipeline is not None else asked
    if chosen is None:
        chosen = build_pipeline(module, where, level_of(level), None)
    if db is not None:
        chosen = insert_apply_tuned(chosen, db, level_of(level))
    chosen = _stopped(chosen, stop_after)

    from mlcc.passes.manage import observers as looking
    from mlcc.passes.manage.idle import Idle

    observers: list[Any] = dump_observers(dump_before, dump_after, dump_dir, timing, outputs.save_unnamed)
    if diff is not None:
        observers.append(looking.Diff(echo_stderr, looking.parse_names(diff)))
    if why_fuse:
        from mlcc.passes.fusion.why_fuse import WhyFuse

        observers.append(WhyFuse(echo_stderr))
        if not any(p.name == "fuse" for p in chosen.passes):
            echo_stderr("# the pipeline has no pass `fuse`: --why-fuse has no effect")
    if why_schedule:
        from mlcc.passes.auto_schedule.auto_pass import WhySchedule

        observers.append(WhySchedule(echo_stderr, where))
        if not any(p.name == "auto-schedule" for p in chosen.passes):
            echo_stderr("# the pipeline has no pass `auto-schedule`: --why-schedule has no effect")
    if verify_each:
        observers.append(looking.VerifyEach())
    check = None
    if check_each is not None:
        from mlcc.cli.native_faults import report_faults
        from mlcc.cli.options import load_inputs
        from mlcc.driver import run_compiled, run_emulated
        from mlcc.passes.check_each import CheckEach

        report_faults({file: {}}, func)  # it may run compiled code
        check = CheckEach(
            load_inputs((check_each,)), func=func, rtol=rtol, atol=atol, limit=check_work, write=echo_stderr,
            compiled=run_compiled, emulated=partial(run_emulated, where) if backends.of(where).emulated else None,
        )  # fmt: skip
        observers.append(check)
    noted, idle = looking.Warnings(), Idle(frozenset(pass_names(given or "")))
    result = run_pipeline(chosen, module, ctx, [*observers, noted, idle])
    found = [*noted.found, *idle.found, *_never_dumped(chosen, dump_before, dump_after, diff)]
    if verify_each or found:
        warn(module, more=found)
    if check is not None and check.culprit is not None:
        from mlcc.cli.auto_reduce import reduce_difference

        reduce_difference(module, chosen.passes[: check.culprit_at + 1], str(where), func, rtol, atol)
        return 3
    from mlcc.driver import write_module
    from mlcc.relax.origins import KEEP_COMMENTS

    write_module(result, output, dialect, data=data, outputs=outputs, style=KEEP_COMMENTS)
    return 0


def _stopped(pipeline: Any, stop_after: str | None) -> Any:
    """Return the first passes of a pipeline, up to a pass by name or number. Raises CompileError E0501."""
    if stop_after is None:
        return pipeline
    from mlcc.errors import CompileError, error
    from mlcc.options.typed import kebab
    from mlcc.passes import ALIASES
    from mlcc.passes.manage.manager import Pipeline

    if stop_after.isascii() and stop_after.isdigit():
        return Pipeline(pipeline.passes[: int(stop_after)])
    name = ALIASES.get(kebab(stop_after), kebab(stop_after))
    for at, current in enumerate(pipeline.passes):
        if current.name == name:
            return Pipeline(pipeline.passes[: at + 1])
    raise CompileError(
        error("E0501", f"the pipeline has no pass `{stop_after}` to stop after", help=f"it is {pipeline}")
    )


def _never_dumped(pipeline: Any, *asked: str | None) -> list[Any]:
    """Warnings (W0502) for the passes to dump that the pipeline does not have."""
    from dataclasses import replace

    from mlcc.errors import Severity, error
    from mlcc.passes import ALIASES
    from mlcc.passes.manage.observers import parse_names

    run = {one.name for one in pipeline.passes}
    names = [name for text in asked if text is not None for name in parse_names(text) or ()]
    return [
        replace(
            error("W0502", f"`{name}` is not dumped: the pipeline has no such pass", help=f"it is {pipeline}"),
            severity=Severity.WARNING,
        )
        for name in names
        if ALIASES.get(name, name) not in run
    ]


def _list(target: str) -> int:
    from mlcc import backends
    from mlcc.errors import CompileError
    from mlcc.passes import ALIASES, names
    from mlcc.passes.manage.manager import clashing_packages, summary

    backend = backends.of(target)

    width = max(map(len, [*names(), *ALIASES]))
    for name in names():
        try:
            text = summary(name)
        except CompileError as exc:  # a pass of an installed package
            text = exc.diagnostics[0].message
        click.echo(f"{name:{width}}  {text}")
    for name, package in clashing_packages():
        click.echo(f"{name:{width}}  of the package {package} is not available: mlcc has a pass of that name")
    for alias, name in ALIASES.items():
        click.echo(f"{alias:{width}}  alias of {name}")
    click.echo()
    for name, text in backend.levels.items():
        click.echo(f"{name}     {text}")
    click.echo(f"lower  {backend.lowering_pipeline}")
    if backend.sanitizing:
        click.echo(f"sanitize  {backend.pipeline_of_steps(backend.sanitizing)}")
    click.echo(f"-O0 to -O3 are the pipelines O0 to O3 followed by `lower`: {MEANING}")
    return 0
