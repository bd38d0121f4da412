"""`mlcc bench a.o b.o c.mlc --in x.npz`, `--against base.o`, `--profile`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mlcc.cli.options import (
    env_option,
    extern_options,
    inputs_options,
    level_option,
    load_option,
    pipeline_option,
    records_option,
    target_option,
    threads_option,
)
from mlcc.cli.progress import progress_shown

if TYPE_CHECKING:
    from mlcc.cli.call_arguments import CallArguments
    from mlcc.runtime.function import Function
    from mlcc.tune.ratio_statistics import Comparison

MIN_SAMPLES = 11  # fewer have no 99% interval
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
@click.option(
    "--against",
    metavar="FILE",
    help="A baseline: say of every other file whether it is faster, slower, or no different, with a 99% interval.",
)
@click.option(
    "--profile", is_flag=True, help="Show each kernel of one text: its time, rates, threads, schedule and place."
)
@click.option("--json", "as_json", is_flag=True, help="All samples as JSON, in seconds per call; or the profile.")
@target_option("llvm{cpu=native}")
@level_option
@pipeline_option
@load_option
@records_option
@extern_options
@env_option
@threads_option
def command(
    files: tuple[str, ...], inputs: tuple[str, ...], weights: tuple[str, ...], is_random: bool, sizes: tuple[str, ...],
    ignore_extra: bool, func: str | None, number: int | None, repeat: int, against: str | None, profile: bool,
    as_json: bool,
    target: str, level: int | None, pipeline: str | None, db: str | None, allow_extern: tuple[str, ...],
    allow_native: bool, envs: tuple[str, ...], threads: int | None,
) -> int:  # fmt: skip
    """Time a function of each FILE (text or artifact) inside native code.

    The samples of several files are interleaved, so that disturbances of the machine affect all alike. Shows the
    median, the interquartile range, and how fast each is beside the first file, or that of --against. Files may take
    different arrays: each gets those that it has parameters for. With --db each text runs twice: with the default
    schedules, and with the tuned ones.
    """
    from mlcc.cli.call_arguments import CallArguments
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

    if profile and (against is not None or len(files) > 1):
        raise click.UsageError("--profile is of one file, without --against")
    files = files if against is None else (against, *files)
    if all(map(is_artifact, files)):
        refuse_artifacts(db, *files)
    refuse_two_readers(*files, *input_files(inputs, weights))
    arrays = load_inputs(inputs, weights)
    if envs:
        from mlcc.runtime.env import load_env

        for path in envs:
            load_env(path)
    apply_threads(threads)
    given = CallArguments(func, arrays, is_random, sizes, ignore_extra, pipeline)
    if profile:
        _profile(
            files[0], given, func, number, repeat, as_json, target, level, pipeline, allow_extern, allow_native, db
        )
        return 0
    keep = not envs
    runs = [(path, known) for path in files for known in _databases(path, db)]
    only = given if len(files) == 1 else None  # of several files, each takes some of the arrays
    loaded = [
        load_executable(path, target, level, pipeline, allow_extern, allow_native, keep, db=known, call=only)
        for path, known in runs
    ]
    files = tuple(path if known is None else f"{path} (tuned)" for path, known in runs)
    callees = [find_function(exe, func) for exe in loaded]
    report_faults(dict(zip(files, loaded, strict=True)), callees[0].name)
    arguments = choose_inputs(callees, arrays, is_random, sizes, ignore_extra, files)
    with progress_shown():
        samples = interleave(callees, arguments, number, repeat)
    compared = None if against is None else compare_all(samples)
    if as_json:
        import json

        click.echo(json.dumps(as_records(files, samples, compared)))
        return 0
    for line in table(files, samples, compared):
        click.echo(line)
    return 0


def _profile(
    path: str, given: CallArguments, func: str | None, number: int | None, repeat: int, as_json: bool, target: str,
    level: int | None, pipeline: str | None, allow_extern: tuple[str, ...], allow_native: bool, db: str | None,
) -> None:  # fmt: skip
    """Compile a text with counters, measure it and the machine, and report. Raises CompileError."""
    from mlcc.cli import profile_report

    about = profile_report.measure_kernels(
        path, given, func, number, repeat, target, level, pipeline, allow_extern, allow_native, db
    )
    if as_json:
        import json

        click.echo(json.dumps(profile_report.as_json(*about)))
        return
    for line in profile_report.table(*about):
        click.echo(line)


def _databases(path: str, db: str | None) -> list[str | None]:
    """Return the databases to time a file with: for a text first None, then `db`."""
    from mlcc.cli.options import is_artifact

    return [None] if db is None or is_artifact(path) else [None, db]


def interleave(
    callees: list[Function], arguments: list[list[Any]], number: int | None, repeat: int
) -> list[list[float]]:
    """Return the seconds per call of `repeat` rounds; in each round every competitor gives one sample in turn."""
    from mlcc.progress import working

    running: list[tuple[Any, int]] = []
    for callee, given in zip(callees, arguments, strict=True):
        call = callee.bind(*callee.signature.with_fresh_outputs(given))
        with working("warm up", callee.name, len(running), len(callees)):
            call()
            running.append((call, calls_per_sample(call, number)))
    samples: list[list[float]] = [[] for _ in running]
    for turn in range(repeat):
        with working("time", "", turn, repeat):
            for at, (call, count) in enumerate(running):
                samples[at].append(call.timed(count) / count)
    return samples


def calls_per_sample(call: Any, number: int | None) -> int:
    """Return the calls of a sample: as many as were asked for, or enough for a sample of a millisecond."""
    count = number or 1
    while number is None and call.timed(count) < MIN_SAMPLE_SECONDS:
        count *= 2
    return count


def compare_all(samples: list[list[float]]) -> list[Comparison]:
    """Compare the samples of each competitor with those of the first one, the baseline."""
    from mlcc.tune.ratio_statistics import compare

    return [compare(samples[0], times) for times in samples[1:]]


def as_records(
    files: tuple[str, ...], samples: list[list[float]], compared: list[Comparison] | None
) -> list[dict[str, Any]]:
    """Return the samples as JSON data, with the comparison of each with the baseline, if there is one."""
    records: list[dict[str, Any]] = [{"file": f, "seconds": s} for f, s in zip(files, samples, strict=True)]
    for record, result in zip(records[1:], compared or (), strict=False):
        record["against"] = {
            "file": files[0], "ratio": result.ratio, "interval": result.interval, "verdict": result.verdict,
        }  # fmt: skip
    return records


def format_ratio(ratio: float, other: str) -> str:
    """Say how fast something is that needs 1/`ratio` of the time of `other`."""
    if f"{ratio:.3g}" == "1":
        return f"as fast as {other}"
    factor, word = (ratio, "fast") if ratio > 1 else (1 / ratio, "slow")
    return f"{_digits(factor)} times as {word} as {other}"


def _digits(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 100 else f"{ratio:.3g}"


def format_comparison(result: Comparison, other: str) -> str:
    """Say the verdict on a comparison with a baseline, and the interval in which the ratio of speeds is."""
    if result.interval is None:
        return f"no difference: too few samples for a verdict, pass --repeat {MIN_SAMPLES} or more"
    low, high = result.interval
    interval = f"99% interval {low:.3g} to {high:.3g}"
    if low <= 1 <= high:
        return f"{result.verdict}: {result.ratio:.3g} times the speed of {other} ({interval})"
    return f"{result.verdict}: {format_ratio(result.ratio, other)} ({interval} times its speed)"


def table(files: tuple[str, ...], samples: list[list[float]], compared: list[Comparison] | None = None) -> list[str]:
    """Format the samples, one line per competitor; with `compared` a line more on each but the first."""
    import statistics

    width = max(map(len, files))
    first = statistics.median(samples[0])
    lines = []
    for at, (path, times) in enumerate(zip(files, samples, strict=True)):
        low, middle, high = statistics.quantiles(times, n=4)
        ratio = f"  {format_ratio(first / middle, files[0])}" if at and compared is None else ""
        lines.append(
            f"{path:{width}}  median {format_time(middle)}  "
            f"middle half {format_time(low)} to {format_time(high)}{ratio}"
        )
    for path, result in zip(files[1:], compared or (), strict=False):
        lines.append(f"{path:{width}}  {format_comparison(result, files[0])}")
    return lines


def format_time(seconds: float) -> str:
    """Format seconds with a suitable unit."""
    for unit, scale in (("s ", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:8.3f} {unit}"
    return f"{seconds * 1e9:8.1f} ns"
