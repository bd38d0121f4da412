"""`mlcc report model.mlc -o report.html`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from mlcc.cli.options import (
    extern_options,
    inputs_options,
    level_option,
    load_option,
    pipeline_option,
    records_option,
    target_option,
    threads_option,
)

if TYPE_CHECKING:
    from mlcc.cli.call_arguments import CallArguments
    from mlcc.ir.module import IRModule


@click.command("report")
@click.argument("files", nargs=-1, required=True, metavar="FILE [OTHER]")
@click.option(
    "-o", "--output", metavar="FILE", default="-", help="The page (.html), or data with --json (default: stdout)."
)
@click.option("--json", "as_json", is_flag=True, help="Write the data of the report as JSON (docs/report-format.md).")
@inputs_options
@click.option("--func", metavar="NAME", help="The function to measure (default: main, or the only one).")
@click.option("--profile", is_flag=True, help="Measure each kernel, on the arrays of --in or --random, which imply it.")
@click.option("--repeat", metavar="N", type=click.IntRange(2), default=25, show_default=True,
              help="Samples of a measurement.")  # fmt: skip
@target_option("llvm{cpu=native}")
@level_option
@pipeline_option
@load_option
@records_option
@extern_options
@threads_option
def command(
    files: tuple[str, ...], output: str, as_json: bool, inputs: tuple[str, ...], weights: tuple[str, ...],
    is_random: bool, sizes: tuple[str, ...], ignore_extra: bool, func: str | None, profile: bool, repeat: int,
    target: str, level: int | None, pipeline: str | None, db: str | None, allow_extern: tuple[str, ...],
    allow_native: bool, threads: int | None,
) -> int:  # fmt: skip
    """Report how FILE is compiled: its graph before and after passes, every kernel with its schedule, loops and code,
    decisions in words, the memory plan, sizes, and the manifest.

    FILE is a text, a model (.onnx, .pt2), or an artifact, of which less is known. With arrays, from --in or --random,
    kernels are measured; those for a GPU are emulated, and their times estimated. Of two files, the report also has
    the differences.
    """
    from mlcc.cli.call_arguments import CallArguments
    from mlcc.cli.options import (
        apply_threads,
        input_files,
        is_artifact,
        load_inputs,
        parse_symbol_sizes,
        pipeline_files,
        refuse_artifacts,
        refuse_two_readers,
    )
    from mlcc.frontend.source import read_module
    from mlcc.outputs import Outputs
    from mlcc.report.compare import compare_reports
    from mlcc.report.page import render

    if len(files) > 2:
        raise click.UsageError("a report is of one file or of two")
    refuse_two_readers(*files, *input_files(inputs, weights))
    artifacts = [is_artifact(path) for path in files]
    if len({*artifacts}) > 1:
        raise click.UsageError(f"{files[artifacts.index(False)]} is a text and the other file an artifact: "
                               "compile the text first")  # fmt: skip
    refuse_artifacts(db, *files)
    measured = profile or is_random or bool(inputs)
    if not measured:
        _refuse_unmeasured(
            {"func": "--func", "repeat": "--repeat", "weights": "--params", "ignore_extra": "--ignore-extra"}
        )
    if measured and any(artifacts):
        raise click.UsageError("kernels of artifacts cannot be measured one by one: name the text")
    outputs = Outputs(watch=True)
    outputs.read(*files, db, *input_files(inputs, weights), *pipeline_files(pipeline, target))
    outputs.write(output, "-o", "json" if as_json else "page")
    outputs.check()
    apply_threads(threads)
    arrays = load_inputs(inputs, weights)
    modules = {path: read_module(path) for path in files if not is_artifact(path)}
    symbols = {path: _symbols(module) for path, module in modules.items()}
    known_sizes = parse_symbol_sizes(sizes)
    _check_sizes(known_sizes, symbols)

    reports = []
    for path in files:
        if is_artifact(path):
            reports.append(_of_artifact(path))
            continue
        own = [f"{name}={size}" for name, size in known_sizes.items() if name in symbols[path]]
        given = CallArguments(func, arrays, is_random, own, ignore_extra, pipeline) if measured else None
        options = target, level, pipeline, allow_extern, allow_native
        data = _of_text(path, modules[path], *options, db, known_sizes, given)
        if given is not None:
            _measure(data, path, given, func, repeat, *options, db)
        reports.append(data)
    whole = reports[0] if len(reports) == 1 else compare_reports(*reports)
    outputs.save({output: dump(whole) if as_json else render(whole)})
    return 0


def _refuse_unmeasured(options: Mapping[str, str]) -> None:
    """Raise UsageError for an option that only a measurement uses. `options` maps parameter names to options."""
    ctx = click.get_current_context()
    for name, option in options.items():
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{option} is for a measurement: pass --in, --random or --profile, too")


def _symbols(module: IRModule) -> list[str]:
    """Return the names of the symbols in the shapes of parameters."""
    from mlcc.ir import tir
    from mlcc.ir.node import find

    shapes: list[Any] = []
    for func in module.functions.values():
        if isinstance(func, tir.PrimFunc):
            shapes += [buffer.shape for buffer in func.buffers if buffer is not None]
        else:
            shapes += [param.struct_info for param in func.params if param.struct_info is not None]
    return list(dict.fromkeys(var.name for shape in shapes for var in find(shape, tir.Var)))


def _check_sizes(sizes: Mapping[str, int], symbols: Mapping[str, Sequence[str]]) -> None:
    """Raise CompileError E0017 for a size that no shape has. `symbols` are those of each file."""
    from mlcc.errors import CompileError, did_you_mean, error

    known = list(dict.fromkeys(name for names in symbols.values() for name in names))
    files = " and ".join(symbols)
    hint = f"the shapes have {', '.join(known)}" if known else "the shapes have no symbols"
    wrong = [n for n in sizes if n not in known]
    if wrong:
        raise CompileError(
            [error("E0017", f"no shape in {files} has `{n}`", help=did_you_mean(n, known) or hint) for n in wrong]
        )


def _of_text(
    path: str, module: IRModule, target: str, level: int | None, pipeline: str | None, allow_extern: tuple[str, ...],
    allow_native: bool, db: str | None, sizes: dict[str, int], given: CallArguments | None,
) -> dict[str, Any]:  # fmt: skip
    """Compile a text or a model, show its warnings, and return the data of its report."""
    from mlcc.cli.call_checks import CallCheck
    from mlcc.cli.options import warn
    from mlcc.cli.progress import progress_shown
    from mlcc.passes.manage.observers import Warnings
    from mlcc.report.collect import Request, collect

    noted = Warnings()
    observers = (noted,) if given is None else (CallCheck(given), noted)
    request = Request(path, module, target, level, pipeline, allow_extern, allow_native, db, sizes, observers)
    with progress_shown():
        data = collect(request)
    warn(module, target, noted.found)
    return data


def _of_artifact(path: str) -> dict[str, Any]:
    from mlcc.cli.cmd_inspect import complete_manifest
    from mlcc.cli.options import artifact_source
    from mlcc.files import read_bytes
    from mlcc.report.of_artifact import artifact_report

    source = artifact_source(path)
    manifest = complete_manifest(source)
    content = source if isinstance(source, bytes) else read_bytes(source)
    ptx = None
    if "kernels" in manifest:
        from mlcc.runtime.launch.files import read_contents

        ptx = bytes(read_contents(content, None, with_constants=False).code).decode()
    return artifact_report(path, manifest, len(content), ptx)


def _measure(
    data: dict[str, Any], path: str, given: CallArguments, func: str | None, repeat: int, target: str,
    level: int | None, pipeline: str | None, allow_extern: tuple[str, ...], allow_native: bool, db: str | None,
) -> None:  # fmt: skip
    """Add measured times to the data of a report, or for a GPU the estimates of an emulated run. Raises CompileError,
    E0876 for other targets."""
    from mlcc import backends
    from mlcc.report.measured import add_estimates, add_profile

    if backends.of(target).emulated:
        from mlcc.cli.cmd_analyze import analyze

        add_estimates(data, analyze(path, target, level, pipeline, func, given).data())
        return
    from mlcc.cli import profile_report

    about = profile_report.measure_kernels(
        path, given, func, None, repeat, target, level, pipeline, allow_extern, allow_native, db
    )
    add_profile(data, profile_report.as_json(*about))


def dump(data: dict[str, Any]) -> str:
    """Return data as JSON text, with a line for each entry of the top."""
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in data.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"
