"""Places to offer when a stage cannot go where it was asked to: loops, as they could be pasted."""

from __future__ import annotations

from mlcc.passes.schedule.state import BlockRef, State


def legal_places(state: State, ref: BlockRef) -> str | None:
    return None
