"""Delta debugging: apply edits of one kind in ever smaller groups, as long as a program keeps its property."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from mlcc.errors import MlccError
from mlcc.reduce.program import Program

Test = Callable[[Program], bool]


class Edit(Protocol):
    """A kind of edit: the places of a program where it applies, and its application to some of them.

    `sites` lists the places in an order that stays when others are edited. `apply` returns None where the edit of these
    places gives no program; what it returns may be invalid.
    """

    def sites(self, program: Program) -> Sequence[Any]: ...

    def apply(self, program: Program, chosen: Sequence[Any]) -> Program | None: ...


def reduce_with(edit: Edit, program: Program, is_kept: Test) -> Program:
    """Apply an edit to all places at once, to halves of them, to quarters, ..., to single ones, while `is_kept` holds.

    Takes O(n log n) tests for n places if none can be edited, and about as many as edits remain otherwise.
    """
    places = edit.sites(program)
    group = len(places)
    while group >= 1:
        at = 0
        while at < len(places):
            candidate = _applied(edit, program, places[at : at + group])
            if candidate is not None and is_kept(candidate):
                program = candidate
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


def reduce_until_stable(edits: Sequence[Edit], program: Program, is_kept: Test) -> Program:
    """Apply kinds of edits in turn until none applies any more."""
    while True:
        before = program
        for edit in edits:
            program = reduce_with(edit, program, is_kept)
        if program is before:
            return program
