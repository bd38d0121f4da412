"""`mlcc bench a.o b.o c.mlc --in x.npz`."""

from __future__ import annotations

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
)

if TYPE_CHECKING:
    from mlcc.runtime.function import Function

MIN_SAMPLE_SECONDS = 1e-3  # a shorter sample would measure the resolution of the clock


@click.command("bench")
@click.argument("files", nargs=-1, required=True)
@inputs_options
@click.option("--func", metavar="NAME", help="The function to time (default: main, or a file's only one).")
@click.option(
    "--number", metavar="N", type=click.IntRange(1), help="Calls per sample (default: enough for a millisecond)."
)
@click.option(
    "--repeat", metavar="N", type=click.IntRange(2), default=25, show_default=True, help="Samples per competitor."
)
@click.option("--json", "as_json", is_flag=True, help="All samples as JSON, in seconds per call.")
@target_option("llvm{cpu=native}")
@level_option
@pipeline_option
@records_option
@extern_options
@env_option
@threads_option
def command(
    files: tuple[str, ...], inputs: tuple[str, ...], weights: tuple[str, ...], is_random: bool, sizes: tuple[str, ...],
    ignore_extra: bool, func: str | None, number: int | None, repeat: int, as_json: bool,
    target: str, level: int | None, pipeline: str | None, db: str | None, allow_extern: tuple[str, ...],
    allow_native: bool, envs: tuple[str, ...], threads: int | None,
) -> int:  # fmt: skip
    """Time a function of each FILE (text or artifact) inside native code.

    The samples of several files are interleaved, so that disturbances of the machine affect all alike. Shows the
    median, the interquartile range, and the speedup over the first file. With --db each text runs twice: with the
    default schedules, and with the tuned ones.
    """
    from mlcc.cli.cmd_run import find_function
    from mlcc.cli.native_faults import report_faults
    from mlcc.cli.options import (
        apply_threads,
        choose_inputs,
        input_files,
        is_artifact,
        load_executable,
        load_inputs,
        refuse_artifacts,
        refuse_two_readers,
    )

    if all(map(is_artifact, files)):
        refuse_artifacts(db, *files)

    refuse_two_readers(*files, *input_files(inputs, weights))
    arrays = load_inputs(inputs, weights)
    if envs:
        from mlcc.runtime.env import load_env

        for path in envs:
            load_env(path)
    apply_threads(threads)
    keep = not envs
    runs = [(path, known) for path in files for known in _databases(path, db)]
    loaded = [
        load_executable(path, target, level, pipeline, allow_extern, allow_native, keep, db=known)
        for path, known in runs
    ]
    files = tuple(path if known is None else f"{path} (tuned)" for path, known in runs)
    callees = [find_function(exe, func) for exe in loaded]
    report_faults(dict(zip(files, loaded, strict=True)), callees[0].name)
    arguments = choose_inputs(callees, arrays, is_random, sizes, ignore_extra)
    samples = interleave(callees, arguments, number, repeat)
    if as_json:
        import json

        click.echo(json.dumps([{"file": f, "seconds": s} for f, s in zip(files, samples, strict=True)]))
        return 0
    for line in table(files, samples):
        click.echo(line)
    return 0


def _databases(path: str, db: str | None) -> list[str | None]:
    """Return the databases to time a file with: for a text first None, then `db`."""
    from mlcc.cli.options import is_artifact

    return [None] if db is None or is_artifact(path) else [None, db]


def interleave(
    callees: list[Function], arguments: list[list[Any]], number: int | None, repeat: int
) -> list[list[float]]:
    """Return the seconds per call of `repeat` rounds; in each round every competitor gives one sample in turn."""
    running = []
    for callee, given in zip(callees, arguments, strict=True):
        call = callee.bind(*callee.signature.with_fresh_outputs(given))
        call()
        count = number or 1
        while number is None and call.timed(count) < MIN_SAMPLE_SECONDS:
            count *= 2
        running.append((call, count))
    samples: list[list[float]] = [[] for _ in running]
    for _ in range(repeat):
        for at, (call, count) in enumerate(running):
            samples[at].append(call.timed(count) / count)
    return samples


def table(files: tuple[str, ...], samples: list[list[float]]) -> list[str]:
    """Format the samples, one line per competitor."""
    import statistics

    width = max(map(len, files))
    first = statistics.median(samples[0])
    lines = []
    for path, times in zip(files, samples, strict=True):
        low, middle, high = statistics.quantiles(times, n=4)
        ratio = f"  {first / middle:6.2f} x the first" if len(files) > 1 else ""
        lines.append(
            f"{path:{width}}  median {format_time(middle)}  "
            f"middle half {format_time(low)} to {format_time(high)}{ratio}"
        )
    return lines


def format_time(seconds: float) -> str:
    """Format seconds with a suitable unit."""
    for unit, scale in (("s ", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:8.3f} {unit}"
    return f"{seconds * 1e9:8.1f} ns"
