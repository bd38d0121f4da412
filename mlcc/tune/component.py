"""The common base of rules, postprocessors and mutators."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from mlcc.tune.tune_context import TuneContext


class Component:
    """A component of a space generator, initialized for the target when tuning begins; `repr` shows its arguments."""

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        """Read the needed properties from the context, mostly of its target."""

    def clone(self) -> Self:
        """Return an independently initialized copy."""
        return copy.copy(self)

    def __repr__(self) -> str:
        given = ", ".join(f"{k}={v!r}" for k, v in vars(self).items() if not k.startswith("_"))
        return f"{type(self).__name__}({given})"
