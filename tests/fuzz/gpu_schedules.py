"""Random schedules for GPUs: each is refused with a reason, or its kernels compute what the program did.

    python -m tests.fuzz.gpu_schedules --seconds 300 --seed 1 [--way guided] [--count N] [--case 17] [--folder DIR]

Findings go to DIR as NAME.mlc and NAME.mls, reduced as far as time allows. Cases run in children; the one that ended a
child is there as `case.mlc` and `case.mls`.
"""

from __future__ import annotations

import argparse
import functools
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from mlcc.reduce.outcomes import run_apart
from mlcc.reduce.program import Program
from tests.fuzz import gpu_scripts, gpu_tensor
from tests.fuzz.children import in_children
from tests.fuzz.gpu_judge import judge
from tests.fuzz.reduction import Check, beginning, note
from tests.fuzz.schedules import Case, Finding, Player, as_case, as_program, consistent, reduce_case, write
from tests.interop.schedule import programs
from tests.interop.schedule.cases import Step

PER_CHILD = 20
SMALL, LARGE = (1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 32, 33), (1, 4, 16, 31, 32, 33, 48, 64, 65, 96)
WAYS: dict[str, Callable[[gpu_scripts.Taken], None]] = {
    "guided": gpu_scripts.guided, "wild": gpu_scripts.only_wild, "tensor": gpu_tensor.tensor,
}  # fmt: skip
SHARES = {"guided": 7, "wild": 2, "tensor": 1}


def program(rng: random.Random, way: str) -> str:
    if way == "tensor":
        return gpu_tensor.program(rng)
    family = rng.choice([*programs.FAMILIES])
    sizes = rng.choice((SMALL, SMALL, LARGE)) if family in _FLAT else SMALL
    return programs.program(family, rng.randrange(1 << 30), sizes)


_FLAT = {"elementwise", "diamond", "matmul", "matmul_chain", "softmax", "layer_norm", "argmax", "reduction",
         "transpose", "padded_matmul", "updates", "separate", "gather"}  # fmt: skip


def play(way: str, number: int, folder: Path, counts: Counter[str]) -> str:
    """What is wrong with a case, or nothing."""
    rng = random.Random(f"{way}/{number}")
    case = Case(program(rng, way), seed=f"{way}/{number}")
    try:
        _made(case, way, rng, counts)
        write(folder, "case", case)
        _judged(case, number, counts)
    except Finding as exc:
        name = f"found-{way}-{number}"
        smaller, message = reduce_case(case, _check(number), folder, name, str(exc))
        counts[f"= finding: {beginning(str(exc))}"] += 1
        steps = "".join(f"\n    {s}" for s in smaller.steps)
        return f"{message}\n{smaller.program}{steps}\n{folder / name}.mlc\n"
    return ""


def _made(case: Case, way: str, rng: random.Random, counts: Counter[str]) -> None:
    def note(step: Step, code: str) -> None:
        counts[f"= refused by a primitive {code}" if code else "= steps accepted"] += 1
        counts[f"primitive {step.name} {'refused' if code else 'accepted'}"] += 1
        case.steps[:] = [*taken.steps] if code else [*taken.steps, step]

    taken = gpu_scripts.Taken(Player(case.program), rng, note)
    try:
        WAYS[way](taken)
    finally:
        case.steps[:] = taken.steps


def _check(number: int) -> Check:
    return Check("tests.fuzz.gpu_schedules:check_program", (str(number),))


def check_program(program: Program, number: str) -> None:
    """Run the lines of a script as steps on a program, as case NUMBER. Raises Finding."""
    _judged(as_case(program), int(number), Counter())


def _judged(case: Case, number: int, counts: Counter[str]) -> None:
    player = Player(case.program)
    for step in case.steps:
        player.step(step)
    consistent(player)
    found: Counter[str] = Counter()
    judge(player.module, player.sch.mod, number, found)
    counts.update({f"= {name}": n for name, n in found.items()})


# ---------------------------------------------------------------- the campaign


def _run(folder: Path, case: tuple[str, int], counts: Counter[str]) -> str:
    os.environ["MLCC_NUM_THREADS"], os.environ["MLCC_CACHE"] = "1", "0"
    return play(*case, folder, counts)


def campaign(
    seconds: float, seed: int, folder: Path, ways: Sequence[str], count: int = 1 << 30,
    shown: Callable[[str], None] = print,
) -> tuple[Counter[str], list[str]]:  # fmt: skip
    """As many cases as there is time for: what became of them, and the findings."""
    end = time.monotonic() + seconds
    counts: Counter[str] = Counter()
    found: list[str] = []
    turns = [way for way in ways for _ in range(SHARES[way])]
    for first in range(0, count, PER_CHILD):
        if time.monotonic() >= end:
            break
        numbers = range(seed * 100_000 + first, seed * 100_000 + min(first + PER_CHILD, count))
        cases = [(turns[n % len(turns)], n) for n in numbers]
        for text in in_children(functools.partial(_run, folder), cases, end, counts):
            found.append(f"{text}\n{reduce_ended(text)}" if " ended with " in text else text)
            shown(found[-1])
    return counts, found


def reduce_ended(text: str) -> str:
    """Reduce a case that ended its process, by what was said of it: `WAY NUMBER: ended with -11`."""
    way, number = text.partition(":")[0].split()
    case = run_apart(lambda: _steps(way, int(number)), 60.0)
    return note(as_program(case), _check(int(number))) if isinstance(case, Case) else f"not reduced: {case}"


def _steps(way: str, number: int) -> Case:
    rng = random.Random(f"{way}/{number}")
    case = Case(program(rng, way), seed=f"{way}/{number}")
    _made(case, way, rng, Counter())
    return case


def table(counts: Counter[str]) -> str:
    """What became of steps and modules, and how often each primitive was taken."""
    lines = [f"{counts[name]:8} {name[2:]}" for name in sorted(counts) if name.startswith("= ")]
    names = sorted({name.split()[1] for name in counts if name.startswith("primitive ")})
    lines += [f"{'primitive':26}{'accepted':>10}{'refused':>10}"]
    lines += [f"{n:26}{counts[f'primitive {n} accepted']:10}{counts[f'primitive {n} refused']:10}" for n in names]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.fuzz.gpu_schedules", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1 << 30)
    parser.add_argument("--way", choices=[*WAYS], action="append")
    parser.add_argument("--case", type=int, help="run this one here, without a child")
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args(argv)
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="mlcc-fuzz-"))
    folder.mkdir(parents=True, exist_ok=True)
    ways = asked.way or [*WAYS]
    if asked.case is not None:
        said = play(ways[0], asked.case, folder, Counter())
        print(said or "nothing found")
        return int(bool(said))
    counts, found = campaign(asked.seconds, asked.seed, folder, ways, asked.count, functools.partial(print, flush=True))
    print(table(counts))
    print(
        f"{sum(counts[w] for w in ways)} scripts ({ {w: counts[w] for w in ways} }), {len(found)} findings in {folder}"
    )
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
