"""The search for the smallest program that still fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from mlcc.errors import MlccError
from mlcc.reduce.delta import Edit, reduce_until_stable
from mlcc.reduce.functions import DropAttributes, DropFunctions, DropParameters, PublishFunctions
from mlcc.reduce.graph import ConstantsToParameters, DropBindings, TakeBranches
from mlcc.reduce.literals import PlainDtypes, ShrinkSizes
from mlcc.reduce.loops import DropMemory, DropStatements, PlainStatements, SimplifyExpressions, UnwrapStatements
from mlcc.reduce.program import Program
from mlcc.reduce.steps import DropPasses, DropScriptLines

EDITS: Sequence[Edit] = (
    DropPasses(), DropScriptLines(), DropFunctions(), DropBindings(), PublishFunctions(), DropFunctions(),
    TakeBranches(), ConstantsToParameters(), DropParameters(), DropStatements(), UnwrapStatements(), ShrinkSizes(),
    PlainStatements(), DropMemory(), SimplifyExpressions(), PlainDtypes(), DropAttributes(),
)  # fmt: skip


class OutOfTime(Exception):
    """The time for a reduction is over."""


class Reducer:
    """Reduces a program whose outcome is `wanted`, as `observe` tells; `best` is the smallest one so far.

    Candidates are valid: they pass verification, unless the wanted outcome is that they do not. Each is tried once.
    The search ends after `seconds`. `on_step` is called after each candidate with the number of those tried.
    """

    def __init__(
        self, program: Program, observe: Callable[[Program], str], wanted: str, seconds: float = 120.0,
        on_step: Callable[[int, Program], None] | None = None,
    ) -> None:  # fmt: skip
        self.best = program
        self.tried = 0
        self.is_finished = False
        self._observe = observe
        self._wanted = wanted
        self._end = time.monotonic() + seconds
        self._on_step = on_step
        self._seen: set[str] = {_text(program)}
        self._checks = [build for build in (False, True) if _verifies(program, build)]

    def run(self) -> Program:
        """Reduce until no edit applies any more, or the time is over; return the best program."""
        try:
            reduce_until_stable(EDITS, self.best, self._is_kept)
            self.is_finished = True
        except OutOfTime:
            pass
        return self.best

    def _is_kept(self, candidate: Program) -> bool:
        if time.monotonic() > self._end:
            raise OutOfTime
        text = _text(candidate)
        if text in self._seen:
            return False
        self._seen.add(text)
        if not all(_verifies(candidate, build) for build in self._checks):
            return False
        self.tried += 1
        is_kept = self._observe(candidate) == self._wanted
        if is_kept:
            self.best = candidate
        if self._on_step is not None:
            self._on_step(self.tried, self.best)
        return is_kept


def _text(program: Program) -> str:
    """Return the text of a program, without the data of large constants, whose hashes it has."""
    from mlcc.grammar.printer.printer import script

    steps = "\n".join((*(program.passes or ()), "", *(program.script or ())))
    return f"{steps}\n{script(program.module, data=False)}"


def _verifies(program: Program, build: bool) -> bool:
    """Return True if a module is well-formed, and has all that it needs to be built if `build` is set."""
    from mlcc.verify import check

    try:
        check(program.module, build)
    except MlccError:
        return False
    return True
