"""`mlcc compile model.mlc -t llvm -o model.o --header model.h`."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from mlcc import backends
from mlcc.cli.options import (
    CommandWithDumps,
    build_artifact,
    build_object,
    data_option,
    dump_observers,
    dump_options,
    echo_stderr,
    extern_options,
    force_option,
    level_option,
    load_option,
    pipeline_files,
    pipeline_option,
    records_option,
    target_option,
    trace_option,
    warnings_option,
)  # fmt: skip

if TYPE_CHECKING:
    from mlcc.backends import Backend
    from mlcc.files import Content
    from mlcc.outputs import Kind, Outputs
    from mlcc.passes.manage.compile_times import CompileTimes


@click.command("compile", cls=CommandWithDumps)
@click.argument("file", default="-")
@target_option("llvm")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="The file to write (default: FILE with the suffix of what is emitted, or standard output).",
)
@click.option(
    "--emit", metavar="KIND",
    help="What to write (default: by the output's suffix). Kinds: "
    + "; ".join(f"for {b.kind} {', '.join(k.name for k in b.outputs)}" for b in backends.registered_backends()) + ".",
)  # fmt: skip
@click.option("--header", metavar="FILE", help="Also write a C header for the object.")
@click.option(
    "--prefix", metavar="NAME", help="Prefix of the exported C symbols (default: the output's name without suffix)."
)
@data_option
@force_option
@click.option("--sanitize", is_flag=True, help="Check every memory access at run time (docs/sanitize.md); slower.")
@level_option
@pipeline_option
@load_option
@records_option
@dump_options
@trace_option("Write a trace of the compilation: passes, lowering by function, LLVM by thread, linking, writing.")
@extern_options
@warnings_option
def command(
    file: str, target: str, output: str | None, emit: str | None, header: str | None, prefix: str | None,
    data: str | None, force: bool, sanitize: bool, level: int | None, pipeline: str | None,
    db: str | None, allow_extern: tuple[str, ...], allow_native: bool, dump_after: str | None, dump_dir: str | None,
    timing: bool, trace_path: str | None,
) -> int:  # fmt: skip
    """Compile FILE (default: standard input) for a target.

    Code for a GPU (-t cuda) is a .ptx file with constants in an .npz beside it, or an .mlca archive of both. Kernels
    can also be written as readable source text: .cu (CUDA C) and .metal. A .c file (-t c, or --emit c) is portable C99
    with the functions of the object.
    """
    from mlcc.outputs import Outputs, symbol_prefix
    from mlcc.progress import listening, working

    target = _target_of(target, emit)
    backend = backends.of(target)
    if header is not None and backend.header is None:
        able = " or ".join(b.kind for b in backends.registered_backends() if b.header is not None)
        message = f"--header is for the target {able}: C programs cannot call an artifact for {backend.kind}"
        raise click.UsageError(message)
    output, kind = _output(file, output, emit, backend)
    if data is not None and not kind.has_data_beside:
        able = " or ".join(k.suffix for b in backends.registered_backends() for k in b.outputs if k.has_data_beside)
        raise click.UsageError(f"--data is for the constants of a {able} file; other artifacts contain theirs")
    outputs = Outputs(force, watch=True)
    outputs.read(file, db, *pipeline_files(pipeline, target))
    outputs.write(output, "-o", kind.name)
    outputs.write(header, "--header", "header")
    outputs.write(data, "--data", "npz")
    outputs.write(trace_path, "--trace", "trace")
    outputs.check()
    if prefix is None:
        stem = symbol_prefix(output if output != "-" else file)
        prefix = stem if stem != "-" else "mlcc"
    observers = dump_observers(None, dump_after, dump_dir, False, outputs.save_unnamed)
    times, tracing = _recorder(file, target, trace_path, outputs)
    if timing or trace_path is not None:
        observers.append(times)
    with tracing, listening(*([times] if times in observers else [])):
        contents: dict[str, Content]
        if kind == backend.loadable and (header is None or kind.runs) and not observers:
            from mlcc.runtime.manifest import extract_from

            code = build_object(
                file, target, level, pipeline, allow_extern, allow_native, prefix, sanitize=sanitize, db=db
            )
            contents, facts = {output: code}, None if header is None else extract_from(code)
        else:
            artifact = build_artifact(
                file, target, level, pipeline, allow_extern, allow_native, prefix, sanitize, observers=observers, db=db
            )
            with working("write"):
                contents = artifact.files(output, kind.name, outputs, data)
            facts = None if header is None else artifact.manifest
        if header is not None and facts is not None and backend.header is not None:
            contents = {**contents, header: backend.header(facts)}
        with working("write"):
            outputs.save(contents)
        if timing:
            times.report()
    return 0


def _recorder(
    file: str, target: str, trace_path: str | None, outputs: Outputs
) -> tuple[CompileTimes, AbstractContextManager[None]]:
    """Return what records the times of the compilation, and the context in which its trace is written."""
    from mlcc.passes.manage.compile_times import CompileTimes

    if trace_path is None:
        return CompileTimes(echo_stderr), nullcontext()
    from time import perf_counter_ns

    from mlcc.cli.tracing import traced
    from mlcc.report.compile_trace import CompileTrace
    from mlcc.report.trace_events import Trace

    trace = Trace(f"mlcc compile {file}", perf_counter_ns)
    return CompileTrace(trace, target, echo_stderr), traced(trace, trace_path, outputs)


def _target_of(target: str, emit: str | None) -> str:
    """Return the target; if -t was not given, that for CPUs which writes what is asked for: `c` for --emit c."""
    from click.core import ParameterSource

    if click.get_current_context().get_parameter_source("target") is not ParameterSource.DEFAULT:
        return target
    for backend in backends.registered_backends():
        if backend.header is not None and backend.kind != target and any(k.name == emit for k in backend.outputs):
            return backend.kind
    return target


def _output(file: str, output: str | None, emit: str | None, backend: Backend[Any]) -> tuple[str, Kind]:
    """Return the output path and its kind, from options, suffix and target. Raises CompileError E0012, UsageError."""
    from mlcc.errors import CompileError, did_you_mean, error
    from mlcc.outputs import kind_of

    known = {kind.name: kind for b in (backend, *backends.registered_backends()) for kind in b.outputs}
    if emit is None:
        kind = backend.outputs[0] if output is None else kind_of(output, known.values(), backend.outputs[0])
    elif emit in known:
        kind = known[emit]
    else:
        hint = did_you_mean(emit, known) or f"known are {', '.join(known)}"
        raise click.UsageError(f"Invalid value for '--emit': {emit!r}: {hint}")
    if kind not in backend.outputs:
        names = ", ".join(k.name for k in backend.outputs)
        other = next(b.kind for b in backends.registered_backends() if kind in b.outputs)
        help = f"known are {names}; `{kind.name}` is for -t {other}"
        raise CompileError(error("E0755", f"cannot write `{kind.name}` for {backend.kind}", help=help))
    if output is None:
        output = "-" if file == "-" else os.path.splitext(file)[0] + kind.suffix
    return output, kind
