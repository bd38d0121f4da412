"""`mlcc bench --profile`: compile a text with counters, measure, and report each kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlcc.cli.call_arguments import CallArguments
    from mlcc.runtime.native import NativeCall
    from mlcc.runtime.profile_counters import CallSite, ProfileCounters
    from mlcc.tune.kernel_profile import CompiledKernels, KernelProfile, KernelRow, Round
    from mlcc.tune.peak_rates import PeakRates

_EXPLAINED = 5  # kernels whose schedule is explained
_MAX_PLACES = 3  # lines of the text that are named for a kernel
_HEAD = ("time", "share", "GFLOP/s", "GB/s", "roofline", "threads", "rule", "kernel")


def build_with_counters(
    path: str, target: str, level: int | None, pipeline: str | None, allow_extern: tuple[str, ...],
    allow_native: bool, db: str | None, call: CallArguments,
) -> tuple[Any, CompiledKernels]:  # fmt: skip
    """Compile a text with counters, after a check of the call that will be measured. Return the artifact, and the
    kernels that it is made of. Raises CompileError."""
    from mlcc.cli.call_checks import CallCheck
    from mlcc.cli.options import is_artifact, warn
    from mlcc.cli.progress import progress_shown
    from mlcc.driver import build
    from mlcc.errors import CompileError, error
    from mlcc.frontend.source import read_module
    from mlcc.passes.manage.observers import Warnings
    from mlcc.tune.kernel_profile import CompiledKernels

    if is_artifact(path):
        text = f"{path} is compiled already, and has no counters"
        raise CompileError(error("E0876", text, help="profile the text that it was compiled from: FILE.mlc"))
    module = read_module(path)
    noted, kernels = Warnings(), CompiledKernels(target)
    with progress_shown():
        artifact = build(
            module, target, level, pipeline, allow_extern=allow_extern, allow_native=allow_native,
            observers=[CallCheck(call), noted, kernels], db=db, profile=True,
        )  # fmt: skip
    warn(module, target, noted.found)
    return artifact, kernels


def measure_kernels(
    path: str, given: CallArguments, func: str | None, number: int | None, repeat: int,
    target: str, level: int | None, pipeline: str | None, allow_extern: tuple[str, ...], allow_native: bool,
    db: str | None,
) -> tuple[str, str, KernelProfile, CompiledKernels, PeakRates, int]:  # fmt: skip
    """Compile a text with counters, and measure a function of it and the machine. Return what `as_json` and `table`
    take: path, name of the function, profile, kernels, peak rates, number of threads. Raises CompileError."""
    from mlcc.cli.cmd_bench import calls_per_sample
    from mlcc.cli.cmd_run import find_function
    from mlcc.cli.native_faults import report_faults
    from mlcc.cli.progress import progress_shown
    from mlcc.loading import load
    from mlcc.progress import working
    from mlcc.runtime.threads import get_num_threads
    from mlcc.tune.kernel_profile import make_profile
    from mlcc.tune.peak_rates import measure

    artifact, kernels = build_with_counters(path, target, level, pipeline, allow_extern, allow_native, db, given)
    exe: Any = load(artifact, allow_extern=allow_extern)
    callee = find_function(exe, func)
    report_faults({path: exe}, callee.name)
    call: Any = callee.bind(*callee.signature.with_fresh_outputs(given.of(callee)))
    counters = exe.profile_counters()
    threads = get_num_threads()
    with progress_shown():
        call()
        count = calls_per_sample(call, number)
        rounds = take_rounds(call, counters, count, repeat)
        with working("measure the machine"):
            peak = measure(threads)
    profile = make_profile(counters.sites, rounds, kernels, peak, threads)
    return path, callee.name, profile, kernels, peak, threads


def take_rounds(call: NativeCall, counters: ProfileCounters, number: int, repeat: int) -> list[Round]:
    """Run `repeat` rounds of `number` calls, with the counters of each."""
    from mlcc.progress import working
    from mlcc.tune.kernel_profile import Round

    rounds = []
    for at in range(repeat):
        counters.reset()
        with working("time", "", at, repeat):
            seconds = call.timed(number)
        rounds.append(Round(seconds / number, number, counters.read()))
    return rounds


def as_json(
    path: str, func: str, profile: KernelProfile, kernels: CompiledKernels, peak: PeakRates, threads: int
) -> dict[str, Any]:
    """Return the profile as JSON data; times are in seconds per call of the function, work is that of all calls."""
    rows = []
    for row in profile.rows:
        rule, why = kernels.rule(row.kernel)
        rows.append({
            "kernel": row.kernel, "calls": row.calls, "seconds": row.seconds, "operations": row.operations,
            "bytes": row.bytes, "roofline_share": row.roofline_share, "bound": row.bound or None,
            "threads": row.threads, "rule": rule, "why": why,
            "places": [{"file": s.file, "line": s.line, "origin": s.origin} for s in row.sites],
        })  # fmt: skip
    levels = {name: {"bytes_per_second": speed, "bytes": size} for name, speed, size in peak.levels}
    machine = {"threads": threads, "operations_per_second": peak.flops, "levels": levels}
    return {
        "file": path, "function": func, "seconds": profile.seconds, "rounds": profile.rounds, "kernels": rows,
        "rest_seconds": profile.rest, "machine": machine,
    }  # fmt: skip


def table(
    path: str, func: str, profile: KernelProfile, kernels: CompiledKernels, peak: PeakRates, threads: int
) -> list[str]:
    """Return the profile as lines of text."""
    levels = ", ".join(f"{name} {speed / 1e9:.0f} GB/s" for name, speed, _ in peak.levels)
    lines = [
        f"{func} of {path}: a call takes {_time(profile.seconds)} (the middle half of {profile.rounds} rounds)",
        f"this machine, {threads} thread{'s' if threads > 1 else ''}: {peak.flops / 1e9:.0f} GFLOP/s; {levels}",
        "",
    ]
    rules = {row.kernel: kernels.rule(row.kernel) for row in profile.rows}
    cells = [_HEAD, *(_cells(row, profile.seconds, threads, rules[row.kernel][0], path) for row in profile.rows)]
    blank = ("",) * 5
    cells.append((*_times(profile.rest, profile.seconds), *blank, "outside kernels: packed calls, checks, the clock"))
    cells.append((*_times(profile.seconds, profile.seconds), *blank, "the whole call"))
    lines += _aligned(cells)
    explained = [row.kernel for row in profile.rows if rules[row.kernel][0] != "none"][:_EXPLAINED]
    if explained:
        lines += ["", "schedules:", *(f"  {name}: {rules[name][0]}: {rules[name][1]}" for name in explained)]
    if explained and path != "-":
        lines += ["", f"steps: mlcc schedule {path} --auto --why; loops: mlcc passes {path} --dump-after=auto-schedule"]
    return lines


def _cells(row: KernelRow, total: float, threads: int, rule: str, path: str) -> tuple[str, ...]:
    share = row.roofline_share
    return (
        *_times(row.seconds, total),
        _rate(row.operations, row.seconds),
        _rate(row.bytes, row.seconds),
        "" if share is None else f"{share:.0%} {row.bound}",
        f"{row.threads} of {threads}",
        rule,
        row.kernel + (f" x {row.calls:g}" if row.calls != 1 else "") + _places(row.sites, path),
    )


def _times(seconds: float, total: float) -> tuple[str, str]:
    return _time(seconds), f"{seconds / total:.1%}" if total else ""


def _time(seconds: float) -> str:
    from mlcc.cli.cmd_bench import format_time

    return format_time(max(seconds, 0.0)).strip()


def _rate(amount: float | None, seconds: float) -> str:
    if not amount or not seconds:
        return ""
    rate = amount / seconds / 1e9
    return f"{rate:.1f}" if rate >= 0.05 else f"{rate:.1g}"


def _places(sites: Sequence[CallSite], path: str) -> str:
    """Return where a kernel is called: `  net.mlc:12 (layer1.0.conv1)`."""
    places = list(dict.fromkeys(_place(site, path) for site in sites if site.file is not None))
    more = f" and {len(places) - _MAX_PLACES} more" if len(places) > _MAX_PLACES else ""
    return f"  {', '.join(places[:_MAX_PLACES])}{more}" if places else ""


def _place(site: CallSite, path: str) -> str:
    if site.line is None:
        return site.origin
    name = "line " if site.file in (None, path) else f"{site.file}:"
    return f"{name}{site.line}" + (f" ({site.origin.split(' ')[0]})" if site.origin else "")


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Align the cells: figures right, the last two columns left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for *figures, rule, kernel in rows:
        middle = "  ".join(figure.rjust(width) for figure, width in zip(figures, widths, strict=False))
        lines.append(f"{middle}  {rule:{widths[-2]}}  {kernel}".rstrip())
    return lines
