"""Generated programs for a GPU, with the schedules that rules choose, compute what they do on a CPU at -O0.

    python -m tests.fuzz.emulated --seconds 300 --seed 1 [--kind conv] [--count N] [--case 17]

Kernels run by emulation, with all checks; no rule may break, scripts of chosen schedules replay, what a CPU compiles a
GPU refuses only by a diagnostic (counted by code), and ptxas takes the PTX, where there is one.
"""

from __future__ import annotations

import argparse
import functools
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.fuzz.children import in_children
from tests.fuzz.optimised import MOST_SECONDS, differs, reduce_subject
from tests.fuzz.reduction import MOST_REDUCED

ARCHS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_120")
PER_CHILD = 12
ASSEMBLED = 0.25  # of the cases are assembled


def check(kind: str, seed: int, counts: Counter[str] | None = None) -> str:
    """What is wrong with a case, or nothing; what became of it is counted. Raises NoSubject."""
    import mlcc
    from tests.fuzz.subjects import subject

    rng, arch, level = _drawn(kind, seed)
    target = f"cuda{{arch={arch}}}"
    counts = Counter() if counts is None else counts
    made = subject(kind, seed)
    try:
        plain = mlcc.load(mlcc.build(made.module, target="llvm{cpu=native}", opt_level=0))
    except mlcc.CompileError:
        counts["= refused by the CPU"] += 1
        return ""
    began = time.process_time()
    try:
        artifact = mlcc.build(made.module, target=target, opt_level=level)
        took = time.process_time() - began
        emulated = mlcc.load(artifact, emulate=True)
    except mlcc.CompileError as exc:
        first = exc.diagnostics[0]
        counts[f"= refused {first.code}: {first.message:.70}"] += 1
        return ""
    found = [f"compiling took {took:.1f} s"] if took > MOST_SECONDS else []
    found += _schedules(made.module, target, level)
    for number, args in enumerate(made.runs):
        wrong = _compare(plain, emulated, args, made.is_kernel)
        if wrong and made.is_narrow:  # sums in narrow floats, as written, are worth little: rules make better ones
            better = mlcc.load(mlcc.build(made.module, target="llvm{cpu=native}", opt_level=3))
            wrong = _compare(better, emulated, args, made.is_kernel)
        found += [f"run {number}: {text}" for text in wrong]
    if rng.random() < ASSEMBLED:
        found += _assembled(artifact, arch, counts)
    counts["= wrong" if found else "= equal"] += 1
    return f"{target} -O{level}: {'; '.join(found[:3])}" if found else ""


def _drawn(kind: str, seed: int) -> tuple[random.Random, str, int]:
    """The generator of a case, after the architecture and the level that it drew."""
    rng = random.Random(f"{kind}/{seed}/gpu")
    return rng, rng.choice(ARCHS), rng.choice((2, 2, 2, 3))


def reduce_case(text: str) -> str:
    """Reduce a case, with which `text` begins, to a program whose emulated code differs, or crashes."""
    kind, number = text.partition(":")[0].split()
    _, arch, level = _drawn(kind, int(number))
    return reduce_subject(kind, int(number), f"cuda{{arch={arch}}}", level)


def _schedules(module: Any, target: str, level: int) -> list[str]:
    """Rules that broke, and a script that gives another module."""
    import mlcc
    from mlcc import backends
    from mlcc.backends import facts_of
    from mlcc.passes.auto_schedule.apply_rules import schedule_module
    from mlcc.passes.auto_schedule.as_script import as_script

    lowered = mlcc.run_passes(
        module, backends.get("cuda").level_pipeline(level).partition(",auto-schedule")[0], target=target
    )
    facts = facts_of(target)
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


def _compare(plain: Any, emulated: Any, args: list[Any], is_kernel: bool) -> list[str]:
    import mlcc
    from tests.passes.arguments import leaves

    def own(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(own(v) for v in value)
        return value.copy() if isinstance(value, np.ndarray) else value

    def run(executable: Any) -> list[np.ndarray] | str:
        given = [own(a) for a in args]
        try:
            result = executable["main"](*given)
        except mlcc.CallError as exc:
            first = exc.diagnostics[0]
            return f"{first.code}: {first.message}"
        return leaves([a for a in given if isinstance(a, np.ndarray)] if is_kernel else result)

    with np.errstate(all="ignore"):
        want, have = run(plain), run(emulated)
    if isinstance(want, str) or isinstance(have, str):
        return [] if isinstance(want, str) and isinstance(have, str) else [f"{have!r:.200} for {want!r:.200}"]
    if len(have) != len(want):
        return [f"{len(have)} results for {len(want)}"]
    return [text for h, w in zip(have, want, strict=True) for text in [differs(h, w)] if text]


def _assembled(artifact: Any, arch: str, counts: Counter[str]) -> list[str]:
    from mlcc.targets.cuda.ptxas import PtxasError, assemble, find_ptxas, version

    program = find_ptxas()
    if program is None or version(program) < (13, 0):
        return []
    try:
        made = assemble(artifact.code.text, arch)
    except PtxasError as exc:
        return [f"ptxas: {exc}"]
    counts["= assembled"] += 1
    counts["= with spills"] += any(k.spill_stores or k.spill_loads for k in made.values())
    return []


# ---------------------------------------------------------------- the campaign


def _run(case: tuple[str, int], counts: Counter[str]) -> str:
    os.environ["MLCC_NUM_THREADS"], os.environ["MLCC_CACHE"] = "1", "0"
    return check(*case, counts)


def campaign(
    seconds: float, seed: int, kinds: Sequence[str], count: int = 1 << 30, write: Any = print
) -> tuple[Counter[str], list[str]]:
    """As many cases as there is time for, of all kinds alike: how many of each, what became of them, and findings."""
    import mlcc.targets.llvm.object.compile  # noqa: F401  before children are made
    import tests.fuzz.subjects  # noqa: F401

    end = time.monotonic() + seconds
    counts: Counter[str] = Counter()
    found: list[str] = []
    for first in range(0, count, PER_CHILD):
        if time.monotonic() >= end:
            break
        numbers = range(seed * 100_000 + first, seed * 100_000 + min(first + PER_CHILD, count))
        cases = [(kinds[n % len(kinds)], n) for n in numbers]
        for text in in_children(_run, cases, end, counts):
            if len(found) < MOST_REDUCED:
                text = f"{text}\n  {reduce_case(text)}"
            found.append(text)
            write(text)
    return counts, found


def main(argv: Sequence[str] | None = None) -> int:
    from tests.fuzz.subjects import MAKERS

    parser = argparse.ArgumentParser(prog="tests.fuzz.emulated", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1 << 30)
    parser.add_argument("--kind", choices=sorted(MAKERS), action="append")
    parser.add_argument("--case", type=int, help="run this one here, without a child")
    asked = parser.parse_args(argv)
    kinds = asked.kind or [*MAKERS]
    if asked.case is not None:
        said = check(kinds[0], asked.case)
        print(said or "nothing found")
        return int(bool(said))
    counts, found = campaign(asked.seconds, asked.seed, kinds, asked.count, functools.partial(print, flush=True))
    for name in sorted(n for n in counts if n.startswith("=")):
        print(f"{counts[name]:8} {name[2:]}")
    print(f"{sum(counts[k] for k in kinds)} cases ({ {k: counts[k] for k in kinds} }), {len(found)} findings")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
