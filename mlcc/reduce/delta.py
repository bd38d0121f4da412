"""Delta debugging: apply edits of one kind in ever smaller groups, as long as a program keeps its property."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from mlcc.errors import MlccError
from mlcc.reduce.program import Program

Accept = Callable[[Program], Program | None]  # returns a candidate in the form to go on with, None to drop it


class Edit(Protocol):
    """A kind of edit: the places of a program where it applies, and its application to some of them.

    `sites` lists the places in an order that stays when others are edited. `apply` returns None where the edit of these
    places gives no program; what it returns may be invalid.
    """

    def sites(self, program: Program) -> Sequence[Any]: ...

    def apply(self, program: Program, chosen: Sequence[Any]) -> Program | None: ...


def reduce_with(edit: Edit, program: Program, accept: Accept) -> Program:
    """Apply an edit to all places at once, to halves of them, to quarters, ..., to single ones, where it is accepted.

    Takes O(n log n) tests for n places if none can be edited, and about as many as edits remain otherwise.
    """
    places = edit.sites(program)
    group = len(places)
    while group >= 1:
        at = 0
        while at < len(places):
            candidate = _applied(edit, program, places[at : at + group])
            accepted = None if candidate is None else accept(candidate)
            if accepted is not None:
                program = accepted
                places = edit.sites(program)
            else:
                at += group
        group = min(group, len(places)) // 2 if group > 1 else 0
    return program


def _applied(edit: Edit, program: Program, chosen: Sequence[Any]) -> Program | None:
    """Apply an edit; None if it gives no program, or one whose operators refuse their operands."""
    try:
        return edit.apply(program, chosen)
    except MlccError:
        return None


def reduce_until_stable(edits: Sequence[Edit], program: Program, accept: Accept) -> Program:
    """Apply kinds of edits in turn until none applies any more."""
    while True:
        before = program
        for edit in edits:
            program = reduce_with(edit, program, accept)
        if program is before:
            return program
