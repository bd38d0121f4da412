"""Random schedules of random programs: every step is refused and changes nothing, or keeps what the program computes.

    python -m tests.fuzz.schedules --seconds 300 --seed 1 [--folder DIR] [--only PRIMITIVE]

The final program of a script verifies, reads back from its text, computes in the reference interpreter and compiled
what the first one did, and its trace replays. Findings go to DIR as NAME.mlc and NAME.mls, reduced as far as time
allows (`tests.fuzz.reduction`); the case that runs is always there as `case.mlc` and `case.mls`, so that a crash leaves
its input.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import re
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import mlcc
from mlcc.errors import Source
from mlcc.interp import run_prim_func
from mlcc.ir.module import IRModule
from mlcc.ir.tir import BlockRealize, For, ForKind, const_int
from mlcc.passes.schedule.mls.run import run_script
from mlcc.passes.schedule.tensor_intrin import register
from mlcc.reduce.outcomes import run_apart
from mlcc.reduce.program import Program
from tests.fuzz.fences import fenced
from tests.fuzz.reduction import MOST_REDUCED, Check, beginning, read_program, seconds_allowed, smallest
from tests.interop.schedule import cases, programs
from tests.interop.schedule.cases import Chooser, Step
from tests.interop.schedule.intrinsics import INTRINSICS
from tests.interop.schedule.numbers import has_threads, inputs, main_of, on_host, problems
from tests.interop.schedule.view import view
from tests.targets.arguments import assert_alike, duplicate

TARGETS = ("llvm{cpu=native}", "llvm", "llvm{triple=x86_64-linux-gnu}")  # a baseline: masks by other means
UNSAFE_WORDS = re.compile(r"disable_predication=True|assume_injective_transform=True|_4x4(x4)?\"")  # or foreign code


MOST_ITERATIONS = 1 << 24  # of all statements together: padding twice may make thousands of each
VECTORS = 0.5  # of the schedules end with loops becoming vectors, unrolled and parallel
SIZES = ((programs.SMALL, 3), ((1, 3, 5, 8, 9, 13, 16, 17), 1))


class Finding(Exception):
    """What is wrong; the message says it."""


@dataclass
class Case:
    """A program and the steps to take. `accepted` are those that were taken when it was made."""

    program: str
    steps: list[Step] = field(default_factory=list)
    seed: str = ""


@dataclass
class Counts:
    scripts: int = 0
    compiled: int = 0
    interpreted: int = 0
    accepted: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    def table(self) -> str:
        lines = [f"{'primitive':26}{'accepted':>10}{'refused':>10}"]
        for name in sorted({*self.accepted, *self.refused}):
            lines.append(f"{name:26}{self.accepted[name]:10}{self.refused[name]:10}")
        total = f"{'all':26}{self.accepted.total():10}{self.refused.total():10}"
        head = (
            f"{self.scripts} scripts of {self.accepted.total() + self.refused.total()} steps, {self.interpreted} run "
            f"by the interpreter, {self.compiled} compiled and run, {len(self.findings)} findings"
        )
        return "\n".join([head, *lines, total])


def _register(sch: mlcc.Schedule) -> None:
    for name, (description, implementation) in INTRINSICS.items():
        register(sch, name, description, implementation)


def _of_arguments(exc: Exception) -> bool:
    """Is there no such loop or result, since an earlier step was refused? The schedule had no part in it."""
    last = traceback.extract_tb(exc.__traceback__)[-1]
    return isinstance(exc, (IndexError, NameError)) and last.filename == "<string>"


class Player:
    """A schedule under test: runs steps and checks what must hold after each."""

    def __init__(self, program: str) -> None:
        self.module = mlcc.parse(program)
        self.sch = mlcc.Schedule(self.module, seed=1)
        _register(self.sch)
        self.names: dict[str, Any] = {}
        self.copies: list[tuple[Any, IRModule, int]] = []

    def step(self, step: Step) -> bool:
        """Whether it was accepted. Raises Finding."""
        return not self.try_step(step)

    def try_step(self, step: Step) -> str:
        """Nothing if it was accepted, else the code of the refusal. Raises Finding."""
        before, length = self.sch.mod.functions, self._count(step.name)
        try:
            result = eval(step.call, {"__builtins__": {}, **self.names, "sch": self.sch})
        except mlcc.CompileError as exc:
            after = self.sch.mod.functions
            if after.keys() != before.keys() or any(after[n] is not f for n, f in before.items()):
                raise Finding(f"`{step}` was refused, but the module changed") from None
            if self._count(step.name) != length:
                raise Finding(f"`{step}` was refused, but the trace changed") from None
            if not str(exc).strip() or "[E" not in str(exc):
                raise Finding(f"`{step}` was refused without a diagnostic") from None
            return exc.diagnostics[0].code
        except RecursionError:
            raise Finding(f"`{step}`: recursion too deep") from None
        except Exception as exc:
            if _of_arguments(exc):
                return "no such place"
            raise Finding(f"`{step}` crashed:\n{traceback.format_exc(limit=-5)}") from None
        if step.target:
            self.names[step.target] = result
        found = problems(self.sch.mod)
        if found:
            raise Finding(f"after `{step}` the module does not verify: {found[0]}")
        return ""

    def _count(self, name: str) -> int:
        """How often the trace has that primitive (looking up its arguments is traced too)."""
        return sum(inst.name == name for inst in self.sch.trace.insts)

    def fork(self) -> None:
        """A copy that must not see what happens from here on."""
        made = self.sch.copy()
        self.copies.append((made, made.mod, len(made.trace)))

    def check_copies(self) -> None:
        for made, module, length in self.copies:
            if any(made.mod[n] is not f for n, f in module.functions.items()) or len(made.trace) != length:
                raise Finding("a copy changed with the schedule that it was copied from")
            here = self.sch.mod
            with contextlib.suppress(mlcc.CompileError):
                block = next((b for b in view(made.mod).named() if b.loops), None)
                if block is not None:
                    made.annotate(made.get_block(block.name), "copy", 1)
            if any(self.sch.mod[n] is not f for n, f in here.functions.items()):
                raise Finding("a schedule changed with its copy")


# ---------------------------------------------------------------- making and running a case


@cases.primitive("matmul reduction reduction argmax softmax layer_norm pooling conv2d symbolic")
def pad_reduction(c: Chooser) -> str:
    """TVM has no such primitive: its cases are made here alone."""
    block = c.pick(lambda b: "R" in b.kinds and bool(b.loops))
    if not block.loops:
        raise cases.Impossible
    at = block.kinds.index("R") if "R" in block.kinds and c.well() else c.rng.randrange(len(block.loops))
    multiple = c.rng.choice((2, 3, 4, 8, 16) if c.well() else (0, 1))
    return f"{c.loop_of(block, min(at, len(block.loops) - 1))}, {multiple}"


def play(number: int, seed: str, counts: Counts, only: str | None, on_case: Any) -> Case:
    """Make and run one case. Raises Finding with `case` set."""
    rng = random.Random(f"{seed}/{number}")
    names = [n for n in cases.PRIMITIVES if n not in cases.UNSAFE and cases.implemented(n)]
    target = only or rng.choice(names)
    sizes = rng.choices(*zip(*SIZES, strict=True))[0]
    _, program = cases.choose_program(rng, target, sizes)
    case = Case(program, seed=f"{seed}/{number}")
    player = Player(program)
    chooser = Chooser(rng, view(player.module), legal=0.85)
    if cases.PRIMITIVES[target].setups and rng.random() < 0.5:
        source = _setup(chooser, target)
    else:
        source = iter(())
    count = rng.randint(1, 12)
    weights = [0.4 + cases.PRIMITIVES[n].common for n in names]
    try:
        for i in range(count):
            step = next(source, None)
            if step is None:
                name = target if i == count // 2 else rng.choices(names, weights)[0]
                try:
                    step = cases.final(chooser, name)
                except cases.Impossible:
                    continue
            if UNSAFE_WORDS.search(step.args) or step.name not in names:
                continue
            case.steps.append(step)
            on_case(case)
            before = player.sch
            if rng.random() < 0.1:
                player.fork()
            parameters = _parameters(player.sch.mod)
            kept = before.copy()
            if not player.step(step):
                counts.refused[step.name] += 1
                case.steps.pop()
                continue
            other_parameters = _parameters(player.sch.mod) != parameters  # its callers would have to know
            if other_parameters or _iterations(main_of(player.sch.mod).body) > MOST_ITERATIONS:
                player.sch = kept
                player.names.pop(step.target, None)
                case.steps.pop()
                continue
            counts.accepted[step.name] += 1
            chooser.view = view(player.sch.mod)
            result = player.names.get(step.target)
            cases.hold(chooser, step, len(result) if isinstance(result, list) else 0)
        if rng.random() < VECTORS:
            for step in _into_vectors(rng, player):
                on_case(Case(program, [*case.steps, step], case.seed))
                took = player.step(step)
                (counts.accepted if took else counts.refused)[step.name] += 1
                case.steps += [step] * took
        finish(player, case, number, counts)
    except Finding as exc:
        exc.case = case  # type: ignore[attr-defined]
        raise
    return case


def _setup(chooser: Chooser, name: str) -> Iterator[Step]:
    with contextlib.suppress(cases.Impossible):
        yield from chooser.rng.choice(cases.PRIMITIVES[name].setups)(chooser)


def _into_vectors(rng: random.Random, player: Player) -> Iterator[Step]:
    """Kinds for the loops that are still plain: what code generation makes more of than loops."""
    for block in view(player.sch.mod).named():
        for at, loop in enumerate(block.loops):
            last = at == len(block.loops) - 1
            kinds = ["vectorize"] * 6 if last else ["parallel", "parallel", "unroll"] if at == 0 else ["unroll"]
            kind = rng.choice([*kinds, ""])
            if kind and loop.kind is ForKind.SERIAL and (kind != "unroll" or (loop.extent or 99) <= 8):
                yield Step(kind, f'sch.get_loops("{block.name}")[{at}]')


def _parameters(module: IRModule) -> list[Any]:
    return [*main_of(module).buffers]


def _iterations(body: Sequence[Any]) -> int:
    """Return how many statements run that contain no loops and blocks; a loop of unknown extent counts once."""
    total = 0
    for stmt in body:
        match stmt:
            case For(extent=extent, body=inner):
                count = const_int(extent)
                total += (1 if count is None else count) * _iterations(inner)
            case BlockRealize(block=block):
                total += _iterations((*(block.init or ()), *block.body))
            case _:
                total += 1
    return total


def again(case: Case, number: int) -> None:
    """Run the case as it stands; refused steps are left out. Raises Finding."""
    player = Player(case.program)
    taken = [step for step in case.steps if player.step(step)]
    finish(player, Case(case.program, taken, case.seed), number, Counts())


def check_program(program: Program, number: str) -> None:
    """Run the lines of a script as steps on a program, as case NUMBER. Raises Finding."""
    again(as_case(program), int(number))


def as_case(program: Program, seed: str = "") -> Case:
    """Return the case whose steps are the lines of a program's script."""
    found = [re.fullmatch(r"(?:(\w+) = )?sch\.(\w+)\((.*)\)", line) for line in program.script or ()]
    return Case(mlcc.script(program.module), [Step(m[2], m[3], m[1] or "") for m in found if m], seed)


def as_program(case: Case) -> Program:
    """Return a program with the steps of a case as the lines of its script."""
    return Program(mlcc.parse(case.program), None, tuple(map(str, case.steps)))


def reduce_case(case: Case, check: Check, folder: Path, name: str, message: str) -> tuple[Case, str]:
    """Write a small case for which a check fails likewise to FOLDER/NAME.mlc and .mls.

    Return it, and what the check says of it; the case itself if it does not fail in a process of its own.
    """
    best, _ = smallest(as_program(case), check.outcome)
    smaller = as_case(best, case.seed)
    said = run_apart(lambda: _said(check, best), seconds_allowed() or 60.0)
    message = said if isinstance(said, str) and said else message
    command = " ".join(f"{folder / name}.mlc" if word == "FILE" else word for word in check.command)
    write(folder, name, smaller, f"{message}\n{command}")
    return smaller, message


def _said(check: Check, program: Program) -> str:
    try:
        check(program)
    except Exception as exc:
        return str(exc)
    return ""


def left_behind(folder: Path) -> tuple[Program, Check]:
    """Return the case that ended its process, and the check that did."""
    program = read_program(folder / "case.mlc")
    seed = next(line for line in program.script or () if line.startswith("# seed "))
    return as_program(as_case(program)), Check("tests.fuzz.schedules:check_program", (seed.rpartition("/")[2],))


# ---------------------------------------------------------------- what must hold in the end


def finish(player: Player, case: Case, number: int, counts: Counts) -> None:
    player.check_copies()
    consistent(player)
    numbers(player.module, player.sch.mod, number, counts)


def consistent(player: Player) -> None:
    """The result verifies, reads back, and its trace replays, from its text too. Raises Finding."""
    module = player.sch.mod
    found = problems(module)
    if found:
        raise Finding(f"the result does not verify: {found[0]}")
    text = mlcc.script(module)
    try:
        back = mlcc.parse(text)
    except mlcc.CompileError as exc:
        raise Finding(f"the result's text does not read back: {exc}") from None
    if not mlcc.structural_equal(back, module):
        raise Finding("the result's text reads back as another program")
    replayed = mlcc.Schedule(player.module, seed=2)
    _register(replayed)
    try:
        player.sch.trace.apply_to_schedule(replayed)
    except Exception as exc:
        raise Finding(f"the trace does not replay: {type(exc).__name__}: {exc}") from None
    if not mlcc.structural_equal(replayed.mod, module):
        raise Finding("the trace replays to another program")
    scripted = mlcc.Schedule(player.module, seed=3)
    _register(scripted)
    try:
        run_script(scripted, Source("trace", str(player.sch.trace)))
    except mlcc.CompileError as exc:
        raise Finding(f"the trace's text does not run as a script: {exc}") from None
    if not mlcc.structural_equal(scripted.mod, module):
        raise Finding("the trace's text gives another program")


def numbers(first: IRModule, last: IRModule, seed: int, counts: Counts) -> None:
    """Both compute the same: in the interpreter, and compiled unless loops are bound to threads."""
    before, after = main_of(first), main_of(last)
    given = inputs(before, seed)
    want = duplicate(given)
    run_prim_func(before, want)
    counts.interpreted += 1
    if before is after:
        return
    have = duplicate(given)
    try:
        run_prim_func(on_host(after), have)
        assert_alike(before, have, want, "interpreted")
    except AssertionError as exc:
        raise Finding(f"the interpreter gives other numbers: {exc}") from None
    except Exception as exc:
        raise Finding(f"the interpreter fails: {type(exc).__name__}: {exc}") from None
    if has_threads(after):
        return
    have = [fenced(a, seed % 4 == 0) if isinstance(a, np.ndarray) and a.flags.c_contiguous else a for a in given]
    try:
        mlcc.load(mlcc.build(last, TARGETS[seed % len(TARGETS)], opt_level=1))["main"](*have)
        assert_alike(before, have, want, "compiled")
    except AssertionError as exc:
        raise Finding(f"compiled code gives other numbers: {exc}") from None
    except Exception as exc:
        raise Finding(f"compiling or running fails: {type(exc).__name__}: {exc}") from None
    counts.compiled += 1


# ---------------------------------------------------------------- the campaign


def write(folder: Path, name: str, case: Case, message: str = "") -> None:
    """The case as files that `mlcc schedule NAME.mlc --script NAME.mls` takes."""
    said = "".join(f"# {line}\n" for line in message.splitlines())
    (folder / f"{name}.mlc").write_text(case.program)
    steps = "".join(f"{s}\n" for s in case.steps)
    (folder / f"{name}.mls").write_text(f"{said}# seed {case.seed}\n{steps}")


def campaign(seconds: float, seed: str, folder: Path, only: str | None = None, scripts: int = 1 << 60) -> Counts:
    counts = Counts()
    limit = time.monotonic() + seconds
    kinds: Counter[str] = Counter()

    def started(case: Case) -> None:
        write(folder, "case", case)

    number = 0
    while time.monotonic() < limit and counts.scripts < scripts:
        number += 1
        try:
            play(number, seed, counts, only, started)
        except Finding as exc:
            case, message = exc.case, str(exc)  # type: ignore[attr-defined]
            kind = beginning(message)
            kinds[kind] += 1
            if kinds[kind] <= MOST_REDUCED:
                check = Check("tests.fuzz.schedules:check_program", (str(number),))
                name = f"found-{seed}-{number}"
                smaller, message = reduce_case(case, check, folder, name, message)
                steps = "".join(f"\n    {s}" for s in smaller.steps)
                counts.findings.append(f"{folder / name}.mlc: {message}\n{smaller.program}{steps}\n")
            else:
                counts.findings.append(f"{seed}-{number}: {message.splitlines()[0]}")
        counts.scripts += 1
    return counts


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.fuzz.schedules")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--scripts", type=int, default=1 << 60)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--only", choices=sorted(cases.PRIMITIVES))
    asked = parser.parse_args(argv)
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="mlcc-fuzz-"))
    folder.mkdir(parents=True, exist_ok=True)
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    counts = campaign(asked.seconds, asked.seed, folder, asked.only, asked.scripts)
    for finding in counts.findings:
        print(finding)
    print(counts.table())
    return int(bool(counts.findings))


if __name__ == "__main__":
    sys.exit(main())
