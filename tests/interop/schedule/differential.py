"""One program and one list of steps on both sides: do they agree to accept, and on the result?"""

from __future__ import annotations

import contextlib
import difflib
import json
import random
import re
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import mlcc
from mlcc.ir import tir
from mlcc.ir.equal import StructuralDifference, assert_structural_equal
from mlcc.ir.module import IRModule
from mlcc.passes.schedule.tensor_intrin import register
from tests.interop.schedule import cases, programs
from tests.interop.schedule.cases import Chooser, Step
from tests.interop.schedule.intrinsics import INTRINSICS
from tests.interop.schedule.numbers import difference
from tests.interop.schedule.view import view

ROOT = Path(__file__).resolve().parents[3]

ACCEPT, REFUSE = "agree-accept", "agree-refuse"
WE_REFUSE, THEY_REFUSE, DIFFER, CRASH = "we-refuse", "they-refuse", "differ", "crash"
THEY_DIE = "they-die"  # an abort or a hang of TVM, or a result that cannot be read: nothing to compare with
THEY_ERR = "they-err"  # TVM's result does not verify or computes something else: mlcc does well to disagree
AGREE = (ACCEPT, REFUSE)
DISAGREE = (WE_REFUSE, THEY_REFUSE, DIFFER, CRASH)


class Died(Exception):
    """TVM's process ended, or took too long."""


class Theirs:
    """TVM in a process of its own, started again when it dies."""

    def __init__(self, seconds: float = 20.0) -> None:
        self.seconds = seconds
        self.process: subprocess.Popen[bytes] | None = None
        self.rest = b""

    def __enter__(self) -> Theirs:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process.stdin.close()  # type: ignore[union-attr]
            self.process.stdout.close()  # type: ignore[union-attr]
            self.process = None

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Raises Died."""
        seconds = self.seconds
        if self.process is None:
            command = [sys.executable, "-m", "tests.interop.schedule.tvm_worker"]
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            self.rest, seconds = b"", seconds + 60
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
            while b"\n" not in self.rest:
                if not select.select([self.process.stdout], [], [], seconds)[0]:
                    raise Died(f"no answer in {seconds:.0f} s")
                got = self.process.stdout.read1(1 << 20)  # type: ignore[attr-defined]
                if not got:
                    raise Died(f"the process ended with {self.process.wait()}")
                self.rest += got
        except (Died, BrokenPipeError) as exc:
            self.stop()
            raise Died(str(exc)) from None
        line, self.rest = self.rest.split(b"\n", 1)
        return json.loads(line)  # type: ignore[no-any-return]

    def start(self, program: str) -> dict[str, Any]:
        return self.ask({"program": program})

    def step(self, step: Step) -> dict[str, Any]:
        return self.ask({"name": step.name, "args": step.args, "target": step.target})


class TooSlow(BaseException):
    """Not an Exception, so that nothing on the way takes it for a failure of its own."""


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    def ring(number: int, frame: FrameType | None) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Ours:
    """mlcc's schedule, and the names that steps gave to their results."""

    def __init__(self, program: str | IRModule) -> None:
        self.sch = mlcc.Schedule(mlcc.parse(program) if isinstance(program, str) else program)
        for name, (description, implementation) in INTRINSICS.items():
            register(self.sch, name, description, implementation)
        self.names: dict[str, Any] = {}
        for name, (description, implementation) in INTRINSICS.items():
            register(self.sch, name, description, implementation)

    def step(self, step: Step, seconds: float = 15.0) -> dict[str, Any]:
        """As TVM's side answers; `crash` is a traceback."""
        try:
            with at_most(seconds):
                result = eval(step.call, {"__builtins__": {}, **self.names, "sch": self.sch})
        except mlcc.CompileError as exc:
            return {"ok": False, "error": str(exc)}
        except TooSlow:
            return {"ok": False, "crash": f"more than {seconds:.0f} s"}
        except Exception:
            return {"ok": False, "crash": traceback.format_exc(limit=-4)}
        if step.target:
            self.names[step.target] = result
        return {"ok": True, "result": self.describe(result)}

    def describe(self, result: Any) -> Any:
        if result is None or isinstance(result, (bool, int, str)):
            return result
        if isinstance(result, (list, tuple)):
            return [self.describe(r) for r in result]
        try:
            found = self.sch.get(result)
        except mlcc.CompileError:
            return "nothing"
        if isinstance(found, tir.For):
            extent = tir.const_int(found.extent)
            return ["loop", found.var.name, "?" if extent is None else extent]
        if isinstance(found, tir.Block):
            return ["block", found.name]
        return found if isinstance(found, int) else "nothing"


@dataclass
class Outcome:
    """What a step came to. `detail` says how the sides differ."""

    status: str
    step: Step
    program: str = ""
    before: tuple[Step, ...] = ()
    detail: str = ""
    family: str = ""
    seed: int | str = 0
    is_final: bool = True

    def __str__(self) -> str:
        lines = [f"{self.step.name}: {self.status} ({self.family}, seed {self.seed})", self.program.rstrip()]
        lines += [f"    {s}" for s in (*self.before, self.step)]
        return "\n".join([*lines, self.detail.rstrip()])


def judge(step: Step, theirs: dict[str, Any], ours: dict[str, Any], mod: IRModule) -> tuple[str, str]:
    """The status of a step that both sides have done, and what there is to say about it."""
    if "crash" in ours:
        return CRASH, f"mlcc: {ours['crash']}\nTVM: {_outcome(theirs)}"
    if theirs["ok"] != ours["ok"]:
        return (WE_REFUSE if theirs["ok"] else THEY_REFUSE), f"mlcc: {_outcome(ours, mod)}\nTVM: {_outcome(theirs)}"
    if not theirs["ok"]:
        return REFUSE, f"mlcc: {_outcome(ours)}\nTVM: {_outcome(theirs)}"
    try:
        want = mlcc.parse(theirs["script"])
    except mlcc.CompileError as exc:
        return THEY_DIE, f"TVM's result cannot be read: {exc}"
    try:
        assert_structural_equal(mod, want)
    except StructuralDifference as exc:
        have, wanted = (mlcc.script(m, dialect="tvm").splitlines() for m in (mod, want))
        lines = difflib.unified_diff(have, wanted, "mlcc", "TVM", lineterm="", n=30)
        return DIFFER, "\n".join([str(exc), *lines])
    have_names, want_names = [[b.name for b in view(m).blocks] for m in (mod, want)]
    if have_names != want_names:
        return DIFFER, f"names of blocks: mlcc {have_names}, TVM {want_names}"
    if theirs["result"] != ours["result"]:
        return DIFFER, f"result: mlcc {ours['result']}, TVM {theirs['result']}"
    return ACCEPT, ""


def absolve(name: str, status: str, detail: str, before: IRModule, theirs: dict[str, Any]) -> tuple[str, str]:
    """A disagreement where TVM's result is wrong is none that counts."""
    if status not in (WE_REFUSE, DIFFER) or name in cases.UNSAFE:
        return status, detail
    try:
        with at_most(8.0):
            wrong = difference(before, mlcc.parse(theirs["script"]))
    except (TooSlow, Exception):
        return status, detail
    return (THEY_ERR, f"TVM's result is wrong: {wrong}\n{detail}") if wrong else (status, detail)


def _outcome(reply: dict[str, Any], mod: IRModule | None = None) -> str:
    if not reply["ok"]:
        lines = [x for x in reply.get("error", "").strip().splitlines() if x.strip()]
        picked = [x for x in lines if "rror" in x or "check" in x.lower()] or lines[-2:]
        return "refuses: " + (" | ".join(picked[-4:]) if "script" in reply or mod is None else " | ".join(lines[:3]))
    text = reply.get("script") or (mlcc.script(mod, dialect="tvm") if mod is not None else "")
    return f"accepts, gives {reply['result']}\n{text[text.find('    def main') :]}"


def replay(program: str, steps: Sequence[Step], theirs: Theirs) -> Outcome:
    """The first disagreement, or the outcome of the last step. Raises Died."""
    theirs.start(program)
    ours = Ours(program)
    status, detail = ACCEPT, ""
    for i, step in enumerate(steps):
        reply, before = theirs.step(step), ours.sch.mod
        mine = ours.step(step)
        status, detail = absolve(step.name, *judge(step, reply, mine, ours.sch.mod), before, reply)
        if status in (*DISAGREE, THEY_DIE, THEY_ERR) or i == len(steps) - 1:
            return Outcome(status, step, program, tuple(steps[:i]), detail)
    raise AssertionError("no steps")


def shrink(found: Outcome, theirs: Theirs) -> Outcome:
    """The same disagreement with fewer steps before it."""
    best = found
    changed = True
    while changed:
        changed = False
        for i in reversed(range(len(best.before))):
            fewer = [*best.before[:i], *best.before[i + 1 :]]
            try:
                again = replay(best.program, [*fewer, best.step], theirs)
            except Died:
                continue
            if again.status == found.status and again.step == found.step:
                again.family, again.seed, again.is_final = found.family, found.seed, found.is_final
                best, changed = again, True
                break
    return best


def run_case(
    name: str,
    seed: int | str,
    theirs: Theirs,
    skip: Callable[[str], bool] = lambda n: False,
    sizes: Sequence[int] = programs.LARGE,
) -> list[Outcome]:
    """The outcomes of a case: the steps that prepare it, then the one that it is for. A case that cannot be made
    (its preparation fails, TVM dies) is replaced by another of the same seed."""
    done: list[Outcome] = []
    for attempt in range(12):
        rng = random.Random(f"{name}/{seed}/{attempt}")
        family, program = cases.choose_program(rng, name, sizes)
        try:
            with contextlib.suppress(cases.Impossible):
                done += _attempt(Chooser(rng), name, family, program, theirs, skip, f"{seed}/{attempt}")
        except Died as exc:
            done.append(Outcome(THEY_DIE, Step(name), program, (), str(exc), family, f"{seed}/{attempt}"))
            continue
        if done and done[-1].is_final and done[-1].status != THEY_DIE:
            break
    return done


def _attempt(
    chooser: Chooser, name: str, family: str, program: str, theirs: Theirs, skip: Callable[[str], bool], seed: str
) -> list[Outcome]:
    started = theirs.start(program)
    assert started["ok"], started
    ours = Ours(program)
    chooser.view = view(ours.sch.mod)
    accepted: list[Step] = []
    done: list[Outcome] = []
    for step in cases.steps(chooser, name):
        is_final = chooser.is_final
        if not is_final and skip(step.name):
            continue
        reply = theirs.step(step)
        before = ours.sch.copy()
        mine = ours.step(step)
        status, detail = absolve(step.name, *judge(step, reply, mine, ours.sch.mod), before.mod, reply)
        done.append(Outcome(status, step, program, tuple(accepted), detail, family, seed, is_final))
        if is_final:
            return done
        if status in (WE_REFUSE, DIFFER, CRASH, THEY_DIE, THEY_ERR):
            return done
        if status == THEY_REFUSE:
            ours.sch = before
            ours.names.pop(step.target, None)
        elif status == ACCEPT:
            accepted.append(step)
            chooser.view = view(ours.sch.mod)
            result = reply["result"]
            cases.hold(chooser, step, len(result) if isinstance(result, list) else 0)
    return done


@dataclass
class Tally:
    """Counts of one primitive."""

    counts: dict[str, int] = field(default_factory=dict)

    def add(self, status: str) -> None:
        self.counts[status] = self.counts.get(status, 0) + 1

    def of(self, *statuses: str) -> int:
        return sum(self.counts.get(s, 0) for s in statuses)

    @property
    def total(self) -> int:
        return self.of(*AGREE, *DISAGREE)

    @property
    def rate(self) -> float:
        return self.of(*AGREE) / self.total if self.total else 1.0


def signature(found: Outcome) -> str:
    """Disagreements that look alike, for the report."""
    text = found.detail if found.status != DIFFER else found.detail.split("\n--- mlcc", 1)[0]
    return f"{found.status} {re.sub(r'[0-9]+|`[^`]*`', '#', text)[:160]}"
