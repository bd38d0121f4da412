"""`mlcc run model.mlc --in x.npz --out y.npz [--expect ref.npz]`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from mlcc.cli.options import (
    env_option,
    extern_options,
    inputs_options,
    level_option,
    pipeline_option,
    records_option,
    target_option,
    threads_option,
    warnings_option,
)

if TYPE_CHECKING:
    import numpy as np


@click.command("run")
@click.argument("file", default="-")
@inputs_options
@click.option(
    "--out",
    "output",
    metavar="ARRAYS",
    help="The file for the results, named `out`, or `out0`, `out1`, ... (default: print them).",
)
@click.option("--expect", metavar="ARRAYS", help="Compare the results with these; exit 3 if they differ.")
@click.option("--rtol", default=1e-5, show_default=True)
@click.option("--atol", default=1e-6, show_default=True)
@click.option("--func", default="main", show_default=True, help="The function to run.")
@click.option(
    "--emulate", is_flag=True, help="Emulate GPU code on the CPU, and report data races and invalid accesses."
)
@click.option(
    "--sanitize", is_flag=True, help="Check every access: bounds, reads of uninitialized memory, races of T.parallel."
)
@click.option("--no-check", is_flag=True, help="Emulate without checks: faster.")
@target_option("llvm{cpu=native}")
@level_option
@pipeline_option
@records_option
@extern_options
@env_option
@threads_option
@warnings_option
def command(
    file: str, inputs: tuple[str, ...], weights: tuple[str, ...], output: str | None, expect: str | None,
    rtol: float, atol: float, func: str,
    emulate: bool, sanitize: bool, no_check: bool, target: str, level: int | None, pipeline: str | None,
    db: str | None, allow_extern: tuple[str, ...], allow_native: bool, envs: tuple[str, ...], threads: int | None,
) -> int:  # fmt: skip
    """Run a function of FILE, a text (.mlc) or an artifact (.o, .so).

    Arrays of .npz and .safetensors files are matched to parameters by name. Omitted outputs of a PrimFunc are
    allocated.
    """
    from mlcc.array_files import arrays_content
    from mlcc.cli.native_faults import report_faults
    from mlcc.cli.options import (
        load_executable,
        load_inputs,
        no_blas_threads,
        pipeline_files,
        refuse_artifacts,
        use_threads,
    )
    from mlcc.outputs import Outputs

    if not envs:
        no_blas_threads()
    refuse_artifacts(db, file)
    outputs = Outputs()
    outputs.read(file, db, *inputs, *weights, expect, *envs, *pipeline_files(pipeline, target))
    outputs.write(output, "--out", "arrays")
    outputs.check()
    arrays = load_inputs(inputs, weights)
    expected = load_inputs((expect,)) if expect else None
    if envs:
        from mlcc.runtime.env import load_env

        for path in envs:
            load_env(path)
    use_threads(threads)
    # a registered function may be part of the program, so its result is not cached
    exe = load_executable(
        file, target, level, pipeline, allow_extern, allow_native, not envs, emulate, not no_check, sanitize, db
    )
    report_faults({file: exe}, func, emulate)
    results = call_by_name(exe, func, arrays)
    if output is not None:
        outputs.save({output: arrays_content(output, results)})
    elif expected is None:
        show(results)
    return 0 if expected is None or agree(results, expected, rtol, atol) else 3


def call_by_name(exe: Any, func: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Call a function with arrays matched by name. Return the results as `out` or `out0`, ...

    Raises CompileError E0004 and E0005.
    """
    from mlcc.call_by_name import arguments_by_name

    callee = find_function(exe, func)
    result = callee.call_with_fresh_outputs(arguments_by_name(callee, arrays))
    values = flatten(result)
    if len(values) == 1:
        return {"out": values[0]}
    return {f"out{i}": v for i, v in enumerate(values)}


def find_function(exe: Any, func: str) -> Any:
    """Return a function of a loaded artifact. Raises CompileError E0005."""
    from mlcc.errors import CompileError, did_you_mean, error

    if func not in exe.functions:
        hint = did_you_mean(func, exe.functions) or f"the public functions are: {', '.join(exe.functions) or 'none'}"
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


def show(results: dict[str, np.ndarray]) -> None:
    """Print abbreviated results in NumPy's format."""
    import numpy as np

    for name, value in results.items():
        array = np.asarray(value)
        click.echo(f"{name}: {array.dtype}{list(array.shape)}")
        click.echo(np.array2string(array, threshold=64, edgeitems=4))


def agree(results: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray], rtol: float, atol: float) -> bool:
    """Compare results by name, shape and value. Print the largest differences to stderr."""
    same = True
    for name in sorted(results.keys() | expected.keys()):
        if name not in results or name not in expected:
            problem: str | None = f"only in the {'results' if name in results else 'expected file'}"
        else:
            problem = difference(results[name], expected, name, rtol, atol)
        if problem is not None:
            click.echo(f"{name}: {problem}", err=True)
            same = False
    return same


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
