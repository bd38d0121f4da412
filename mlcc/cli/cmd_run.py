"""`mlcc run model.mlc --in x.npz --out y.npz [--expect ref.npz]`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from mlcc.cli.options import (
    TOLERANCE,
    env_option,
    extern_options,
    inputs_options,
    level_option,
    load_option,
    pipeline_option,
    records_option,
    target_option,
    threads_option,
    trace_option,
    warnings_option,
)

if TYPE_CHECKING:
    import numpy as np

    from mlcc.cli.run_checks import Call, Comparison

    Span = Callable[[str], AbstractContextManager[None]]  # of a stage of the command


@click.command("run")
@click.argument("file", default="-")
@inputs_options
@click.option(
    "--out", "output", metavar="FILE",
    help="Where results go: `out`, or `out0`, `out1`, ...; those of a PrimFunc by their names (default: shown).",
)  # fmt: skip
@click.option("--expect", metavar="FILE", help="Compare the results with these; exit 3 if they differ.")
@click.option(
    "--compare-with", metavar="torch|onnx|interp|MODEL",
    help="Compare the results with those of PyTorch (.pt2) or ONNX Runtime (.onnx), which run FILE or the MODEL it was "
    "imported from, with your rights, or of the interpreter; exit 3 if they differ.",
)  # fmt: skip
@click.option("--rtol", type=TOLERANCE, metavar="NUMBER", default=1e-5, show_default=True)
@click.option("--atol", type=TOLERANCE, metavar="NUMBER", default=1e-6, show_default=True)
@click.option("--func", metavar="NAME", help="The function to run (default: main, or the only one).")
@click.option(
    "--emulate", is_flag=True, help="Emulate GPU code on the CPU, and report data races and invalid accesses."
)
@click.option(
    "--sanitize", is_flag=True, help="Check every access: bounds, reads of uninitialized memory, races of T.parallel."
)
@trace_option("Write a trace of the run: kernels, each thread's share of parallel loops, packed calls, waiting.")
@click.option(
    "--check-nan",
    is_flag=True,
    help="Name the first kernel that makes a NaN or an infinity out of inputs without; exit 3.",
)
@click.option("--allow-inf", is_flag=True, help="Let --check-nan look for NaNs alone.")
@click.option("--no-check", is_flag=True, help="Emulate without checks: faster.")
@target_option("llvm{cpu=native}")
@level_option
@pipeline_option
@load_option
@records_option
@extern_options
@env_option
@threads_option
@warnings_option
def command(
    file: str, inputs: tuple[str, ...], weights: tuple[str, ...], is_random: bool, sizes: tuple[str, ...],
    ignore_extra: bool, output: str | None, expect: str | None, compare_with: str | None, rtol: float, atol: float,
    func: str | None, emulate: bool, sanitize: bool, trace_path: str | None, check_nan: bool, allow_inf: bool,
    no_check: bool, target: str, level: int | None, pipeline: str | None, db: str | None,
    allow_extern: tuple[str, ...], allow_native: bool, envs: tuple[str, ...], threads: int | None,
) -> int:  # fmt: skip
    """Run a function of FILE, a text (.mlc) or an artifact (.o, .so).

    Arrays of .npz and .safetensors files are matched to parameters by name. A .npy without NAME= is for the parameter
    of the file's name, or the only one. A PrimFunc's outputs may be left out: they are made.
    """
    from mlcc.array_files import arrays_content
    from mlcc.cli.call_arguments import CallArguments, check_one_result, result_count
    from mlcc.cli.native_faults import report_faults
    from mlcc.cli.options import (
        apply_threads,
        input_files,
        is_artifact,
        load_executable,
        load_inputs,
        no_blas_threads,
        pipeline_files,
        refuse_artifacts,
        refuse_two_readers,
    )
    from mlcc.outputs import Outputs

    if not envs and compare_with is None:
        no_blas_threads()
    refuse_artifacts(db, file)
    arrays_read = input_files(inputs, weights, [expect])
    refuse_two_readers(file, *arrays_read)
    outputs = Outputs()
    outputs.read(file, db, _model_file(compare_with), *arrays_read, *envs, *pipeline_files(pipeline, target))
    outputs.write(output, "--out", "results")
    outputs.write(trace_path, "--trace", "trace")
    outputs.check()
    arrays = load_inputs(inputs, weights)
    expected = load_inputs((expect,)) if expect else None
    if envs:
        from mlcc.runtime.env import load_env

        for path in envs:
            load_env(path)
    apply_threads(threads)
    comparison: Comparison | None = None
    if compare_with is not None:
        from mlcc.cli.run_checks import Comparison

        comparison = Comparison(compare_with, file)
    given = CallArguments(func, arrays, is_random, sizes, ignore_extra, pipeline, output)

    def run(span: Span, call: Call) -> tuple[str, Mapping[str, np.ndarray]]:
        with span("compile and load"):
            # a registered function may be part of the program, so its result is not cached
            exe = load_executable(
                file, target, level, pipeline, allow_extern, allow_native, not envs, emulate, not no_check, sanitize,
                db, trace_path is not None, check_nan, given,
            )  # fmt: skip
            callee = find_function(exe, func)
            report_faults({file: exe}, callee.name, emulate)
        check_one_result(callee.name, result_count(callee), output)
        with span("read arguments"):
            arguments = given.of(callee)
        results = by_name(callee, call(exe, callee, arguments))
        if output is not None:
            with span("write results"):
                outputs.save({output: arrays_content(output, results)})
        return callee.name, results

    call: Call = lambda exe, callee, given: callee.call_with_fresh_outputs(given)  # noqa: E731
    if check_nan:
        from mlcc.cli.run_checks import checking_nan

        call = checking_nan(call, file, allow_inf)
    if comparison is not None:
        call = comparison.keeping_arguments(call)
    if trace_path is None:
        name, results = run(lambda name: nullcontext(), call)
    else:
        from mlcc.cli.run_checks import logging
        from mlcc.cli.tracing import traced
        from mlcc.report.trace_events import Trace

        trace = Trace(f"mlcc run {file}")
        with traced(trace, trace_path, outputs):
            name, results = run(trace.span, logging(call, file, trace))
    if output is None and expected is None and comparison is None:
        print_results(results)
    good = expected is None or compare_results(results, expected, rtol, atol)
    if comparison is not None:
        good = comparison.show(rtol, atol, output) and good
    if good:
        return 0
    if not is_artifact(file) and file != "-" and not sanitize and db is None:
        _reduce_wrong_code(file, target, level, pipeline, name)
    return 3


def _model_file(compare_with: str | None) -> str | None:
    """Return the file that --compare-with names, if it is not a word."""
    return compare_with if compare_with is not None and os.path.splitext(compare_with)[1] else None


def _reduce_wrong_code(file: str, target: str, level: int | None, pipeline: str | None, func: str) -> None:
    """Write a small program whose code computes something else than the interpreter, if that is what is wrong."""
    from mlcc.cli.auto_reduce import reduce_difference, seconds_allowed
    from mlcc.frontend.source import read_module
    from mlcc.machine.target import Target
    from mlcc.passes.manage.manager import Pipeline

    if seconds_allowed() <= 0:
        return
    passes = None if pipeline is None else Pipeline.parse(pipeline, "-p", Target.parse(target).kind).passes
    reduce_difference(read_module(file), passes, target, func, 1e-4, 1e-5, level, is_compiled=True)


def by_name(callee: Any, result: Any) -> dict[str, np.ndarray]:
    """Name the results of a call: arrays that a PrimFunc writes by its parameters, results of a relax function
    as `out`, or `out0`, `out1`, ..."""
    values = flatten(result)
    return dict(zip(result_names(callee, len(values)), values, strict=True))


def result_names(callee: Any, count: int) -> list[str]:
    """The names of a function's results in files of arrays."""
    return list(callee.written_names) or unnamed_results(count)


def unnamed_results(count: int) -> list[str]:
    """The names of results that the text does not name."""
    return ["out"] if count == 1 else [f"out{i}" for i in range(count)]


def find_function(exe: Any, func: str | None) -> Any:
    """The function of that name in a loaded artifact; by default `main`, or the only one. Raises CompileError E0005."""
    from mlcc.errors import CompileError, did_you_mean, error

    names = list(exe.functions)
    if func is None:
        func = names[0] if len(names) == 1 else "main"
        if func not in names and names:
            text = f"there are {len(names)} public functions, and none is `main`"
            raise CompileError(error("E0005", text, help=f"name one with --func: {', '.join(names)}"))
    if func not in names:
        hint = did_you_mean(func, names) or f"it has {', '.join(names) or 'none'}"
        raise CompileError(error("E0005", f"there is no public function `{func}`", help=hint))
    return exe[func]


def flatten(result: Any) -> list[np.ndarray]:
    """Return the results as a flat list of arrays; a shape is an int64 array."""
    import numpy as np

    if result is None:
        return []
    if isinstance(result, tuple) and not all(isinstance(v, int) for v in result):
        return [a for part in result for a in flatten(part)]
    return [np.asarray(result)]


def print_results(results: Mapping[str, np.ndarray]) -> None:
    """Print abbreviated results in NumPy's format."""
    import numpy as np

    for name, value in results.items():
        array = np.asarray(value)
        click.echo(f"{name}: {array.dtype}{list(array.shape)}")
        click.echo(np.array2string(array, threshold=64, edgeitems=4))


def compare_results(
    results: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray], rtol: float, atol: float
) -> bool:
    """Compare results by name, shape and value; prints the largest difference to stderr.

    What a PrimFunc writes may be called `out`, `out0`, ... as well, and one result may be in a .npy of any name.
    """
    same = True
    results = {_expected_name(name, at, results, expected): a for at, (name, a) in enumerate(results.items())}
    for name in sorted(results.keys() | expected.keys()):
        if name not in results or name not in expected:
            problem: str | None = f"only in the {'results' if name in results else 'expected file'}"
        else:
            problem = difference(results[name], expected, name, rtol, atol)
        if problem is not None:
            click.echo(f"{name}: {problem}", err=True)
            same = False
    return same


def _expected_name(name: str, index: int, results: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """The name of a result among the expected arrays; its own if they lack it."""
    if name in expected:
        return name
    if len(results) == len(expected) == len(getattr(expected, "unnamed", ())) == 1:
        return next(iter(expected))
    other = unnamed_results(len(results))[index]
    return other if other in expected else name


class _Incomparable(Exception):
    """Raised with the reason why two arrays cannot be compared."""


def difference(
    result: np.ndarray, expected: Mapping[str, np.ndarray], name: str, rtol: float, atol: float
) -> str | None:
    """Compare a result with the expected array of that name. Return a description of the mismatch, None if they agree.

    The array is read only if its shape and dtype match.
    """
    import numpy as np

    from mlcc.array_files import read_array

    got = np.asarray(result)

    def judge(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
        if shape != got.shape:
            raise _Incomparable(f"shape {list(got.shape)}, expected {list(shape)}")
        if dtype.kind not in "biufc" and dtype.itemsize != got.dtype.itemsize:
            raise _Incomparable(f"dtype {got.dtype}, expected {dtype}")
        return True

    try:
        want = read_array(expected, name, judge)
    except _Incomparable as exc:
        return str(exc)
    if want.dtype.kind not in "biufc":  # stored as bits, because NumPy lacks the dtype
        want = np.ascontiguousarray(want).view(got.dtype)
    if np.allclose(got, want, rtol=rtol, atol=atol, equal_nan=True):
        return None
    a, b = got.astype(np.float64), want.astype(np.float64)
    off = ~np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True)
    gap = np.where(off, np.nan_to_num(np.abs(a - b), nan=np.inf), -1)
    worst = np.unravel_index(int(gap.argmax()), gap.shape)
    place = ", ".join(map(str, worst))
    return (
        f"{int(off.sum())} of {off.size} elements differ (rtol {rtol:g}, atol {atol:g}); "
        f"worst at [{place}]: {got[worst]!s}, expected {want[worst]!s}"
    )
