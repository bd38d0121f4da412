"""`mlcc analyze k.mlc -t cuda`: memory traffic, conflicts and a roofline of a kernel on a GPU, by emulation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import click

from mlcc.cli.options import in_option, level_option, load_option, pipeline_option, size_option, target_option

if TYPE_CHECKING:
    from mlcc.cli.call_arguments import CallArguments
    from mlcc.targets.emulate.report import Report


def _block_count(ctx: click.Context, param: click.Parameter, text: str | None) -> float | None:
    """Return a number of blocks; infinity for `all`."""
    if text is None or text == "all":
        return None if text is None else math.inf
    if not text.isdecimal() or int(text) == 0:
        raise click.BadParameter(f"{text!r} is neither a number of blocks, 1 or more, nor `all`", ctx, param)
    return int(text)


@click.command("analyze")
@click.argument("file", default="-")
@in_option("Arrays by parameter name (default: random ones)")
@size_option
@click.option("--func", metavar="NAME", help="The function to run (default: main, or the only one).")
@click.option(
    "--blocks",
    metavar="N|all",
    callback=_block_count,
    help="Run at most N representative blocks of each launch, or all (default: all of small launches, some of others, "
    "at the edges and in the middle).",
)
@click.option(
    "--ranges", is_flag=True,
    help="Instead, report the range of each tensor, and what float16, bfloat16 and int8 lose of it; on this CPU unless "
    "-t is given.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@target_option("cuda")
@level_option
@pipeline_option
@load_option
def command(
    file: str, inputs: tuple[str, ...], sizes: tuple[str, ...], func: str | None, blocks: float | None,
    ranges: bool, as_json: bool,
    target: str, level: int | None, pipeline: str | None,
) -> int:  # fmt: skip
    """Report the cost of each memory access of the kernels of FILE on a GPU: sectors of global memory, bank conflicts
    of shared memory; occupancy; and the least time that each launch needs, with the resource that bounds it.

    A run is emulated on the CPU, on random arrays where none are given, and its addresses are counted. Of large
    launches only representative blocks run, and the counts are scaled to the launch. Data races and invalid accesses
    are reported as well (exit code 1).

    With --ranges the program runs on this CPU, operator by operator unless -O or -p is given, and each of its tensors
    is looked at: least and greatest element, quantiles, and the shares that overflow, underflow, are at a limit of
    their dtype or were clamped to it.
    """
    if ranges:
        _report_ranges(file, inputs, sizes, func, blocks, as_json, target, level, pipeline)
        return 0
    from mlcc.cli.call_arguments import CallArguments
    from mlcc.cli.main import report
    from mlcc.cli.options import load_inputs, require_gpu
    from mlcc.errors import MlccError

    require_gpu(target, "E0747")
    given = CallArguments(func, load_inputs(inputs), True, sizes, pipeline=pipeline)
    found = analyze(file, target, level, pipeline, func, given, blocks)
    if as_json:
        import json

        click.echo(json.dumps(found.data(), indent=1))
    else:
        click.echo(found.text(), nl=False)
    if found.findings:
        report(MlccError(found.findings))
        return 1
    return 0


def analyze(
    file: str, target: str, level: int | None, pipeline: str | None, func: str | None, given: CallArguments,
    blocks: float | None = None,
) -> Report:  # fmt: skip
    """Emulate a call of a function of a text on a GPU; return the cost of its kernels. Raises CompileError.

    Of large launches only some blocks run, of all others at most `blocks` (infinity: all) if given.
    """
    from mlcc.cli.cmd_run import find_function
    from mlcc.cli.options import build_artifact
    from mlcc.machine.gpu_tables import GpuFacts
    from mlcc.runtime.loader import load
    from mlcc.targets.emulate.report import MeasuringDevice
    from mlcc.targets.emulate.representative_blocks import BUDGET

    artifact = build_artifact(file, target, level, pipeline, call=given)
    most = None if blocks in (None, math.inf) else int(blocks or 1)
    budget = BUDGET if blocks is None else math.inf
    device = MeasuringDevice(artifact.launch.kernels, GpuFacts.of(target), most, budget)
    callee = find_function(load(artifact, device=device), func)
    callee.call_with_fresh_outputs(given.of(callee))
    device.report.assembled(artifact.assembled())
    return device.report


def _report_ranges(
    file: str, inputs: tuple[str, ...], sizes: tuple[str, ...], func: str | None, blocks: float | None, as_json: bool,
    target: str, level: int | None, pipeline: str | None,
) -> None:  # fmt: skip
    """Run a function with an observer, and print the ranges of its tensors."""
    from click.core import ParameterSource

    from mlcc.cli.call_arguments import CallArguments
    from mlcc.cli.cmd_run import find_function
    from mlcc.cli.options import build_artifact, is_artifact, load_inputs
    from mlcc.cli.run_checks import not_measurable
    from mlcc.loading import load
    from mlcc.report.clamped import ClampingCalls
    from mlcc.report.value_ranges import ValueRanges, table
    from mlcc.report.value_ranges import as_json as ranges_as_json
    from mlcc.runtime import observer

    if blocks is not None:
        raise click.UsageError("--blocks cannot be combined with --ranges")
    if is_artifact(file):
        raise not_measurable(file, "does not show its tensors", "analyze")
    emulated = click.get_current_context().get_parameter_source("target") is not ParameterSource.DEFAULT
    if not emulated:
        target = "llvm{cpu=native}"
    asked = pipeline
    if level is None and pipeline is None and not emulated:
        pipeline = "O0,auto-schedule"
    from mlcc import backends

    given, clamping = CallArguments(func, load_inputs(inputs), True, sizes, pipeline=asked), ClampingCalls()
    artifact = build_artifact(file, target, level, pipeline, observe=True, call=given, observers=[clamping])
    exe = load(artifact, emulate=backends.of(target).emulated, check=False)
    callee = find_function(exe, func)
    found = ValueRanges(observer.sites(exe.manifest) or [], clamping)
    with observer.observing(found):
        callee.call_with_fresh_outputs(given.of(callee))
    if as_json:
        import json

        click.echo(json.dumps(ranges_as_json(file, callee.name, found.tensors), indent=1))
        return
    for line in table(file, callee.name, found.tensors):
        click.echo(line)
