"""Generated programs at -O3 compute what they do at -O0, on every CPU and with any number of threads.

    python -m tests.fuzz.optimised --seconds 300 --seed 1 [--kind conv] [--cpu native] [--threads 2] [--count N]

Arrays lie against pages that must not be touched; cases run in children, so that a signal ends one of them. No rule may
break, scripts of chosen schedules replay, and compiling stays within bounds of time and memory.
"""

from __future__ import annotations

import argparse
import functools
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from tests.fuzz.children import in_children
from tests.fuzz.reduction import MOST_REDUCED, reduce_program

CPUS = ("native", "x86-64", "x86-64-v3", "x86-64-v4")
PER_CHILD = 24
MOST_SECONDS, MOST_BYTES = 8.0, 1 << 30
TOLERANCE = {"float16": 2e-2, "float32": 1e-4, "float64": 1e-9}


def cpus() -> list[str]:
    """Those that this machine has."""
    from mlcc.machine import host

    features = " ".join(host.cpu_features())
    needs = {"x86-64-v3": "avx2", "x86-64-v4": "avx512bw"}
    return [c for c in CPUS if needs.get(c, "") in features]


def _target(cpu: str) -> str:
    return "llvm{cpu=native}" if cpu == "native" else f"llvm{{triple=x86_64-linux-gnu cpu={cpu}}}"


@contextmanager
def eager_threads() -> Iterator[None]:
    """Loops run in parallel however little they do."""
    from mlcc.machine.cpu_tables import CpuFacts
    from mlcc.passes.lowering import loop_time
    from mlcc.passes.lowering import parallel as settled
    from mlcc.targets.llvm.codegen import parallel as emitted

    changed: tuple[tuple[Any, str, Any], ...] = (
        (CpuFacts, "parallel_operations", 1), (settled, "LEAST_WORK", 1), (emitted, "MIN_CHUNK_PICOSECONDS", 1),
        (loop_time, "PER_BYTE", 1_000_000),
    )  # fmt: skip
    before = [vars(owner)[name] for owner, name, _ in changed]
    for owner, name, value in changed:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for (owner, name, _), value in zip(changed, before, strict=True):
            setattr(owner, name, value)


def check(kind: str, seed: int, cpu: str) -> str:
    """What is wrong with a case, or nothing. Raises NoSubject."""
    with eager_threads() if seed // 3 % 2 else nullcontext():
        return _check(kind, seed, cpu)


def _check(kind: str, seed: int, cpu: str) -> str:
    import mlcc
    from tests.fuzz.subjects import subject

    made = subject(kind, seed)
    target = _target(cpu)
    try:
        plain = mlcc.load(mlcc.build(made.module, target=target, opt_level=0))
    except mlcc.CompileError as exc:
        first = exc.diagnostics[0].code
        try:
            mlcc.build(made.module, target=target, opt_level=3)
        except mlcc.CompileError:
            return ""
        return f"-O0 refuses it ({first}), -O3 does not" if first != "E0444" and first[:3] != "E07" else ""
    began, memory = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    artifact = mlcc.build(made.module, target=target, opt_level=3)
    took, more = time.process_time() - began, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) << 10
    found = []
    if took > MOST_SECONDS or more > MOST_BYTES:
        found.append(f"compiling took {took:.1f} s and {more >> 20} MiB")
    found += _schedules(made.module, target)
    fast = mlcc.load(artifact)
    for number, args in enumerate(made.runs):
        found += [f"run {number}: {text}" for text in _compare(plain, fast, args, made.is_kernel, seed)]
    return "; ".join(found[:3])


def _schedules(module: Any, target: str) -> list[str]:
    """Rules that broke, and a script that gives another module."""
    import mlcc
    from mlcc import backends
    from mlcc.machine.cpu_tables import CpuFacts
    from mlcc.passes.auto_schedule.apply_rules import schedule_module
    from mlcc.passes.auto_schedule.as_script import as_script

    lowered = mlcc.run_passes(
        module, backends.get("llvm").level_pipeline(3).partition(",auto-schedule")[0], target=target
    )
    facts = CpuFacts.of(target)
    chosen = schedule_module(lowered, facts)
    found = [f"{a.name}: a rule broke: {type(a.broken).__name__}: {a.broken}" for a in chosen if a.broken is not None]
    made = mlcc.run_passes(lowered, "auto-schedule", target=target)
    try:
        again = mlcc.apply_schedule(lowered, as_script(chosen, facts, target))
    except mlcc.CompileError as exc:
        return [*found, f"the script does not replay: {exc}"]
    if mlcc.script(again) != mlcc.script(made):
        found.append("the script replays to another module")
    return found


def _compare(plain: Any, fast: Any, args: list[Any], is_kernel: bool, seed: int) -> list[str]:
    import mlcc
    from tests.fuzz.fences import fenced, fenced_results
    from tests.passes.arguments import leaves

    def own(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(own(v) for v in value)
        return fenced(value, seed % 4 == 0) if isinstance(value, np.ndarray) and value.flags.c_contiguous else value

    def run(executable: Any) -> list[np.ndarray] | str:
        given = [own(a) for a in args]
        try:
            result = executable["main"](*given)
        except mlcc.CallError as exc:
            return exc.diagnostics[0].code
        return leaves([a for a in given if isinstance(a, np.ndarray)] if is_kernel else result)

    with np.errstate(all="ignore"):
        want = run(plain)
        with fenced_results():
            have = run(fast)
    if isinstance(want, str) or isinstance(have, str):
        return [] if want is have or want == have else [f"{have!r:.80} for {want!r:.80}"]
    if len(have) != len(want):
        return [f"{len(have)} results for {len(want)}"]
    return [text for h, w in zip(have, want, strict=True) for text in [differs(h, w)] if text]


def differs(have: np.ndarray, want: np.ndarray) -> str:
    if have.shape != want.shape or have.dtype != want.dtype:
        return f"{have.dtype} {have.shape} for {want.dtype} {want.shape}"
    if have.dtype == np.uint16:  # perhaps bfloat16: some are near each other if their bits are
        near = np.abs(have.astype(int) - want.astype(int)) <= 3
        wide = [np.left_shift(a.astype("uint32"), 16).view("float32").astype("float64") for a in (have, want)]
        near |= np.isclose(*wide, 3e-2, 3e-2 * _scale(wide[1]), True)
    elif have.dtype.kind != "f":
        near = have == want
    else:
        tolerance = TOLERANCE[have.dtype.name]
        with np.errstate(all="ignore"):
            near = np.isclose(have.astype("float64"), want.astype("float64"), tolerance, tolerance * _scale(want), True)
    if np.all(near):
        return ""
    at = tuple(int(n) for n in np.argwhere(~near)[0]) if near.ndim else ()
    return f"{have[at]!r} for {want[at]!r} at {at} of {have.shape}, {int(np.sum(~near))} differ"


def _scale(values: np.ndarray) -> float:
    """The largest finite magnitude, at most some thousands: sums of large terms are only so precise."""
    finite = np.abs(values.astype("float64"))
    finite = finite[np.isfinite(finite)]
    return float(np.clip(finite.max(initial=1.0), 1.0, 1e4))


# ---------------------------------------------------------------- the campaign


def _run(threads: int, case: tuple[str, int, str], note: Counter[str]) -> str:
    os.environ["MLCC_NUM_THREADS"], os.environ["MLCC_CACHE"] = str(threads), "0"
    return check(*case)


def campaign(
    seconds: float, seed: int, kinds: Sequence[str], targets: Sequence[str], threads: Sequence[int],
    count: int = 1 << 30, write: Any = print,
) -> tuple[Counter[str], list[str]]:  # fmt: skip
    """As many cases as there is time for, of all kinds alike: how many of each, and what was found."""
    import mlcc.targets.llvm.object.compile  # noqa: F401  before children are made
    import tests.fuzz.subjects  # noqa: F401

    end = time.monotonic() + seconds
    counts: Counter[str] = Counter()
    found: list[str] = []
    turn = 0
    while time.monotonic() < end and turn * PER_CHILD < count:
        first = seed * 100_000 + turn * PER_CHILD
        numbers = range(first, first + min(PER_CHILD, count - turn * PER_CHILD))
        cases = [(kinds[n % len(kinds)], n, targets[n // len(kinds) % len(targets)]) for n in numbers]
        used = threads[turn % len(threads)]
        for text in in_children(functools.partial(_run, used), cases, end, counts, f" threads={used}"):
            if len(found) < MOST_REDUCED:
                text = f"{text}\n  {reduce_case(text)}"
            found.append(text)
            write(text)
        turn += 1
    return counts, found


def reduce_case(text: str) -> str:
    """Reduce a case, with which `text` begins, to a program in which -O3 differs from the interpreter, or crashes."""
    kind, number, cpu = text.split()[:3]
    return reduce_subject(kind, int(number), _target(cpu.rstrip(":")), 3)


def reduce_subject(kind: str, number: int, target: str, level: int) -> str:
    """Write a small program whose compiled code differs from the interpreter, or crashes, as in a generated one.

    Return a line with its path. It is judged by random arrays.
    """
    from mlcc.reduce.outcomes import MACHINE_CODE, Run
    from mlcc.reduce.program import Program
    from tests.fuzz.subjects import subject

    module = subject(kind, number).module
    public = next(name for name, func in module.functions.items() if not func.is_private)
    tolerance = max(TOLERANCE["float16"], 1e-4)
    run = Run(target, level, MACHINE_CODE, public, tolerance, tolerance)
    command = ["mlcc", "bisect", "FILE", "-t", target, "-O", str(level)]
    path = reduce_program(Program(module), run.outcome, command)
    return "not reduced: random arrays do not show it" if path is None else f"a small program: {path}"


def main(argv: Sequence[str] | None = None) -> int:
    from tests.fuzz.subjects import MAKERS

    parser = argparse.ArgumentParser(prog="tests.fuzz.optimised", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1 << 30)
    parser.add_argument("--kind", choices=sorted(MAKERS), action="append")
    parser.add_argument("--cpu", choices=CPUS, action="append")
    parser.add_argument("--threads", type=int, action="append")
    parser.add_argument("--case", type=int, help="run this one here, without a child")
    asked = parser.parse_args(argv)
    if asked.case is not None:
        said = check(asked.kind[0], asked.case, (asked.cpu or ["native"])[0])
        print(said or "nothing found")
        return int(bool(said))
    kinds, targets, threads = asked.kind or [*MAKERS], asked.cpu or cpus(), asked.threads or [2, 1, 3]
    shown = functools.partial(print, flush=True)
    counts, found = campaign(asked.seconds, asked.seed, kinds, targets, threads, asked.count, shown)
    print(f"{counts.total() - counts['none']} cases ({dict(counts)}), {len(found)} findings")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
