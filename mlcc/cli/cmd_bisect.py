"""`mlcc bisect model.mlc --in x.npz`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from mlcc import plugins
from mlcc.cli.options import (
    SECONDS,
    TOLERANCE,
    echo_stderr,
    force_option,
    in_option,
    level_option,
    load_option,
    pipeline_option,
    size_option,
    target_option,
)

EXIT_DIFFERENT = 3

if TYPE_CHECKING:
    from mlcc.bisect.search import Finding
    from mlcc.ir.module import IRModule
    from mlcc.passes.manage.manager import Pipeline


class Given(NamedTuple):
    """What the command line says of the passes."""

    pipeline: str | None
    level: int | None
    script: str | None


@click.command("bisect")
@click.argument("file", metavar="FILE")
@in_option("Arrays by parameter name (others are random)")
@size_option
@click.option("--script", "script_path", metavar="FILE", help="A schedule script to apply first.")
@load_option
@pipeline_option
@level_option
@target_option("llvm{cpu=native}")
@click.option("--func", default="main", show_default=True, metavar="NAME", help="The function to run.")
@click.option("--rtol", type=TOLERANCE, metavar="NUMBER", default=1e-4, show_default=True)
@click.option("--atol", type=TOLERANCE, metavar="NUMBER", default=1e-5, show_default=True)
@click.option(
    "--work",
    metavar="N",
    type=click.IntRange(0),
    default=10_000_000,
    show_default=True,
    help="Modules of up to this many operations are interpreted, others compiled with --sanitize.",
)
@click.option("--reduce", "output", metavar="FILE", help="Also write a small program to FILE in which the same fails; "
              "what is left of the script goes beside it as .mls, arrays that it needs as .in.npz.")  # fmt: skip
@click.option("--time", "seconds", type=SECONDS, default=120.0, show_default=True, metavar="SECONDS",
              help="With --reduce: the time after which the smallest program so far is the result.")  # fmt: skip
@force_option
def command(
    file: str, inputs: tuple[str, ...], sizes: tuple[str, ...], script_path: str | None, pipeline: str | None,
    level: int | None, target: str, func: str, rtol: float, atol: float, work: int, output: str | None,
    seconds: float, force: bool,
) -> int:  # fmt: skip
    """Find what makes FILE compute something else than the interpreter: a pass, a change that it makes, a kernel.

    The passes are run one by one. By binary search, the first one is found whose result differs, crashes or races; then
    the changes of that pass without which the result would be right, and the kernel that they are in. If all passes
    agree, the machine code of each kernel is compared with its interpretation. Code for a GPU is emulated. The exit
    code is 3 if something is found, and 0 if nothing is.
    """
    from mlcc.bisect.judge import Judge
    from mlcc.bisect.search import bisect
    from mlcc.cli.bisect_reduction import ReducedFiles, reduce_finding
    from mlcc.cli.options import input_files, parse_symbol_sizes
    from mlcc.driver import build_pipeline, parse_with_passes
    from mlcc.frontend.source import is_model, read_module
    from mlcc.machine.target import Target
    from mlcc.outputs import Outputs
    from mlcc.passes.manage.levels import level_of
    from mlcc.passes.manage.manager import PassContext, Pipeline
    from mlcc.passes.schedule.schedule_pass import ApplyScript
    from mlcc.reduce.outcomes import Run

    outputs = Outputs(force, watch=True)
    outputs.read(file, script_path, *(input_files(inputs, ())))
    saved = None if output is None else ReducedFiles(output, outputs, script_path is not None, bool(inputs))
    outputs.check()
    where, chosen = Target.parse(target), level_of(level)
    module, asked = (read_module(file), None) if is_model(file) else parse_with_passes(file)
    ctx = PassContext(where)
    if pipeline is None and asked is not None:
        pipeline = asked
        if script_path is None:
            ctx = PassContext(where, folder=os.path.dirname(file) or ".", confined=True)
    arrays, given, known_sizes = _arrays(module, func, inputs, parse_symbol_sizes(sizes))
    passes = build_pipeline(module, where, chosen, pipeline)
    if script_path is not None:
        passes = Pipeline((ApplyScript(script_path), *passes.passes))
    judge = Judge(module, arrays, where, chosen, func, rtol, atol, work, tell=_tell)
    finding = bisect(module, passes, ctx, judge, _tell)
    if finding is None:
        code = "emulated kernels" if judge.is_emulated else "machine code"
        click.echo(f"{file}: all {len(passes.passes)} passes and the {code} agree with the interpreter")
        return 0
    for line in _report(finding, passes):
        click.echo(line)
    see = _to_see(finding, file, passes, target, Given(pipeline, level, script_path))
    click.echo(f"to see it: {shlex.join(see)}")
    if saved is not None:
        script_folder = None if script_path is None else os.path.dirname(script_path) or "."
        run = Run(target, chosen, None, func, rtol, atol, known_sizes, ctx.folder, given, script_folder)
        reduce_finding(finding, module, passes, pipeline is None, run, seconds, saved)
    return EXIT_DIFFERENT


def _arrays(
    module: IRModule, func: str, inputs: tuple[str, ...], sizes: dict[str, int]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, int]]:
    """Return the arrays of files and random ones for the other parameters, those of files, and the values of symbols.

    Arrays are by the names of the parameters; those of files give values to symbols that `sizes` does not have.

    Raises CompileError: E0004 for an array that no parameter takes, E0017 for a size that no shape has.
    """
    from mlcc.call_by_name import assign
    from mlcc.cli.options import load_inputs
    from mlcc.errors import CompileError, did_you_mean, error
    from mlcc.reduce.arguments import parameter_names, random_arguments, sizes_of, symbol_names

    if func not in module:
        help = did_you_mean(func, module)
        raise CompileError(error("E0801", f"the module has no function `{func}`", help=help))
    called = module[func]
    given = load_inputs(inputs)
    names, symbols = parameter_names(called), symbol_names(called)
    assigned = assign(given, names)
    taken = {array for arrays in assigned.values() for array in arrays}

    shapes = f"its shapes have {', '.join(symbols) or 'no symbols'}"
    findings = [
        error(
            "E0004",
            f"`{func}` has no parameter `{name}`",
            help=did_you_mean(name, names) or f"its parameters are {', '.join(names)}",
        )
        for name in given
        if name not in taken
    ]
    findings += [
        error("E0017", f"no shape of `{func}` has `{name}`", help=did_you_mean(name, symbols) or shapes)
        for name in sizes
        if name not in symbols
    ]
    if findings:
        raise CompileError(findings)
    known = {name: given[arrays[0]] for name, arrays in assigned.items() if arrays}
    sizes = {**sizes_of(called, known), **sizes}
    values, _ = random_arguments(called, sizes) if len(known) < len(names) else ([None] * len(names), [])
    return {name: known.get(name, value) for name, value in zip(names, values, strict=True)}, known, sizes


def _to_see(finding: Finding, file: str, passes: Pipeline, target: str, given: Given) -> list[str]:
    """Return the command that shows what the culprit does, or the code before it is generated."""
    from mlcc.machine.target import Target
    from mlcc.passes.manage.manager import Pipeline

    loads = [word for path in plugins.loaded_paths() for word in ("--load", path)]
    words = ["mlcc", "passes", file, *loads, "-t", target]
    at = len(passes.passes) if finding.at is None else finding.at
    own = 0 if given.pipeline is None else len(Pipeline.parse(given.pipeline, "-p", Target.parse(target).kind).passes)
    if given.script is None and given.pipeline is None:
        words += [] if given.level is None else ["-O", str(given.level)]
        words += ["--stop-after", str(at)] if at < len(passes.passes) else []
    elif given.script is None and given.pipeline is not None and at <= own:
        words += ["-p", given.pipeline, *(["--stop-after", str(at)] if at < own else [])]
    else:
        words += ["-p", ",".join(map(str, passes.passes[:at]))]
    return [*words, *([] if finding.culprit is None else [f"--diff={finding.culprit.name}"]), "-o", "/dev/null"]


def _report(finding: Finding, passes: Pipeline) -> Iterator[str]:
    from mlcc.bisect.search import CODE, CRASH, RACE
    from mlcc.report.module_diff import compare_modules

    what = {CRASH: "crash", RACE: "race", CODE: "results of the machine code"}.get(finding.kind, "results")
    yield f"{what}: {finding.problem}"
    if finding.culprit is not None:
        yield f"pass: `{finding.culprit}`, number {finding.at} of {len(passes.passes)}"
    elif finding.kind == CODE:
        yield f"pass: none: all {len(passes.passes)} agree with the interpreter"
    else:
        yield "pass: none: the program itself, before the first pass"
    step = finding.step
    if step is not None:
        if step.statement:
            yield f"step: statement {step.number} of {step.statements} of the schedule: {step.statement}"
        else:
            all_of_them = "it" if step.needed == 1 else "them"
            yield f"step: {step.needed} of its {step.total} changes; without {all_of_them} the result is right"
    if finding.kernels:
        yield f"kernel: {', '.join(f'`{name}`' for name in finding.kernels)}"
    if step is not None:
        for difference in (d for d in compare_modules(step.good, step.wrong, 1) if d.lines):
            yield f"{'the first one, in' if step.needed > 1 else 'in'} `{difference.name}`:"
            yield from (f"  {line}" for line in difference.lines)


def _tell(line: str) -> None:
    """Show progress on a terminal."""
    from mlcc.cli.terminal import QUIET, is_terminal, verbosity

    if is_terminal(sys.stderr) and verbosity() != QUIET:
        echo_stderr(line)
