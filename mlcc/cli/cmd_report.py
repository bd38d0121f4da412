"""`mlcc report model.mlc -o report.html`."""

from __future__ import annotations

import json
from typing import Any

import click

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


@click.command("report")
@click.argument("files", nargs=-1, required=True, metavar="FILE [OTHER]")
@click.option(
    "-o", "--output", metavar="FILE", default="-", help="The page (.html), or data with --json (default: stdout)."
)
@click.option("--json", "as_json", is_flag=True, help="Write the data of the report as JSON (docs/report-format.md).")
@inputs_options
@click.option("--func", metavar="NAME", help="The function to measure (default: main, or the only one).")
@click.option("--profile", is_flag=True, help="Measure each kernel, on the arrays of --in or on --random ones.")
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
    if measured and any(artifacts):
        raise click.UsageError("kernels of artifacts cannot be measured one by one: name the text")
    outputs = Outputs(watch=True)
    outputs.read(*files, db, *input_files(inputs, weights), *pipeline_files(pipeline, target))
    outputs.write(output, "-o", "json" if as_json else "page")
    outputs.check()
    apply_threads(threads)
    arrays = load_inputs(inputs, weights)

    def arguments_of(callee: Any) -> list[Any]:
        from mlcc.cli.options import choose_inputs

        return choose_inputs([callee], arrays, is_random, sizes, ignore_extra)[0]

    reports = []
    for path in files:
        if is_artifact(path):
            reports.append(_of_artifact(path))
            continue
        options = target, level, pipeline, allow_extern, allow_native
        data = _of_text(path, *options, db, parse_symbol_sizes(sizes))
        if measured:
            _measure(data, path, arguments_of, func, repeat, *options, db)
        reports.append(data)
    whole = reports[0] if len(reports) == 1 else compare_reports(*reports)
    outputs.save({output: dump(whole) if as_json else render(whole)})
    return 0


def _of_text(
    path: str, target: str, level: int | None, pipeline: str | None, allow_extern: tuple[str, ...], allow_native: bool,
    db: str | None, sizes: dict[str, int],
) -> dict[str, Any]:  # fmt: skip
    """Compile a text or a model, show its warnings, and return the data of its report."""
    from mlcc.cli.options import warn
    from mlcc.cli.progress import progress_shown
    from mlcc.frontend.source import read_module
    from mlcc.passes.manage.observers import Warnings
    from mlcc.report.collect import Request, collect

    module = read_module(path)
    noted = Warnings()
    request = Request(path, module, target, level, pipeline, allow_extern, allow_native, db, sizes, (noted,))
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
    data: dict[str, Any], path: str, arguments_of: Any, func: str | None, repeat: int, target: str, level: int | None,
    pipeline: str | None, allow_extern: tuple[str, ...], allow_native: bool, db: str | None,
) -> None:  # fmt: skip
    """Add measured times to the data of a report, or for a GPU the estimates of an emulated run. Raises CompileError,
    E0876 for other targets."""
    from mlcc import backends
    from mlcc.report.measured import add_estimates, add_profile

    if backends.of(target).emulated:
        from mlcc.cli.cmd_analyze import analyze

        add_estimates(data, analyze(path, target, level, pipeline, func, arguments_of).data())
        return
    from mlcc.cli import profile_report

    about = profile_report.measure_kernels(
        path, arguments_of, func, None, repeat, target, level, pipeline, allow_extern, allow_native, db
    )
    add_profile(data, profile_report.as_json(*about))


def dump(data: dict[str, Any]) -> str:
    """Return data as JSON text, with a line for each entry of the top."""
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in data.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"
