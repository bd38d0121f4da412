"""The search for the smallest program that still fails."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

from mlcc.errors import MlccError
from mlcc.ir import relax
from mlcc.ir.node import replace
from mlcc.ir.visit import rewrite_bottom_up
from mlcc.reduce.delta import Edit, reduce_until_stable
from mlcc.reduce.functions import DropAttributes, DropFunctions, DropParameters, PublishFunctions, with_functions
from mlcc.reduce.graph import ConstantsToParameters, DropBindings, TakeBranches
from mlcc.reduce.literals import PlainDtypes, ShrinkSizes
from mlcc.reduce.loops import DropMemory, DropStatements, PlainStatements, SimplifyExpressions, UnwrapStatements
from mlcc.reduce.program import Program
from mlcc.reduce.steps import DropPasses, DropScriptLines

# in an order that makes programs quick to run early on: graphs shrink as far as they do before passes are left out one
# by one, which takes most candidates, and would be tried once more for every other graph
EDITS: Sequence[Edit] = (
    DropScriptLines(), DropFunctions(), DropBindings(), TakeBranches(), ConstantsToParameters(), DropParameters(),
    ShrinkSizes(graphs_only=True), DropPasses(), PublishFunctions(), DropFunctions(), DropParameters(),
    DropStatements(), UnwrapStatements(), ShrinkSizes(),
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
            reduce_until_stable(EDITS, self.best, self._accept)
            self.is_finished = True
        except OutOfTime:
            pass
        return self.best

    def _accept(self, candidate: Program) -> Program | None:
        """Return a candidate as its text reads, if it is valid and has the wanted outcome. Raises OutOfTime."""
        if time.monotonic() > self._end:
            raise OutOfTime
        text = _text(candidate)
        if text in self._seen:
            return None
        self._seen.add(text)
        if not all(_verifies(candidate, build) for build in self._checks):
            return None
        read = as_read(candidate)
        if read is None:
            return None
        self.tried += 1
        is_kept = self._observe(read) == self._wanted
        if is_kept:
            self.best = read
        if self._on_step is not None:
            self._on_step(self.tried, self.best)
        return read if is_kept else None


def _text(program: Program) -> str:
    """Return the text of a program, without the data of large constants, whose hashes it has."""
    from mlcc.grammar.printer.printer import script

    steps = "\n".join((*(program.passes or ()), "", *(program.script or ())))
    return f"{steps}\n{script(program.module, data=False)}"


def as_read(program: Program) -> Program | None:
    """Return the program with the module as its text reads; None if the text has an error.

    What the text leaves open, such as the dtype of an integer beside another one, may change.
    """
    from mlcc.grammar.parser import parse
    from mlcc.grammar.printer.printer import script_and_data

    text, tensors = script_and_data(program.module)

    def with_data(node: Any) -> Any:
        if isinstance(node, relax.Constant) and node.data.array is None and node.data.key in tensors:
            return replace(node, data=tensors[node.data.key])
        return node

    try:
        module = parse(text)
    except MlccError:
        return None
    functions = {name: rewrite_bottom_up(func, with_data) for name, func in module.functions.items()}
    return with_functions(dataclasses.replace(program, module=module), functions)


def _verifies(program: Program, build: bool) -> bool:
    """Return True if a module is well-formed, and has all that it needs to be built if `build` is set."""
    from mlcc.verify import check

    try:
        check(program.module, build)
    except MlccError:
        return False
    return True
