"""Where mlcc and TVM disagree on purpose. docs/schedules.md lists the same reasons."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tests.interop.schedule.differential import WE_REFUSE, Outcome


@dataclass(frozen=True)
class Known:
    """A disagreement on purpose: outcomes of those primitives and that status for which `applies` holds."""

    primitives: str
    status: str
    reason: str
    applies: Callable[[Outcome], bool]


def _code(code: str, words: str = "") -> Callable[[Outcome], bool]:
    """mlcc refuses with that code, and says the words."""
    pattern = rf"mlcc: refuses: error\[{code}\].*(?:{words})"
    return lambda outcome: re.search(pattern, outcome.detail) is not None


KNOWN: tuple[Known, ...] = (
    Known("bind", WE_REFUSE, "a thread axis that no target has is refused", _code("E0628")),
    Known(
        "bind", WE_REFUSE, "a loop inside one that is bound to the same thread axis is refused: they have one index",
        _code("E0634"),
    ),
    Known(
        "vectorize", WE_REFUSE, "a loop whose extent is not constant is refused; TVM fails when it is built",
        _code("E0635"),
    ),
    Known(
        "reorder merge", WE_REFUSE, "an order in which an iteration would come before one whose result it needs is refused",
        _code("E0633"),
    ),
    Known(
        "sample_perfect_tile sample_partitioned_tile", WE_REFUSE,
        "a decision that does not tile the loop is refused; TVM takes another one without a word",
        _code("E0695", "the decision|the inner factors"),
    ),
    Known(
        "sample_partitioned_tile", WE_REFUSE, "a partition position that is no position between factors is refused",
        _code("E0696"),
    ),
)  # fmt: skip


def reason(outcome: Outcome) -> str | None:
    """Why the sides disagree, where that is meant to be."""
    for entry in KNOWN:
        if outcome.step.name in entry.primitives.split() and entry.status == outcome.status and entry.applies(outcome):
            return entry.reason
    return None
