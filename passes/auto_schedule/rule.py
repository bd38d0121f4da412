"""A rule: its name, and where its function is defined."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mlcc.passes.auto_schedule.kernel import AnyKernel


@dataclass(frozen=True)
class Rule:
    """A rule, implemented by a function of a module of this package.

    The function looks at the kernel and schedules it, or raises RuleNotApplicable, or fails midway; the kernel is then
    restored and goes to the next rule. It returns why it took the kernel.
    """

    name: str
    place: str  # "module:function" in this package; imported when the rule is first tried

    def function(self) -> Callable[[AnyKernel[Any]], str]:
        module, _, function = self.place.partition(":")
        return getattr(importlib.import_module(f"mlcc.passes.auto_schedule.{module}"), function)  # type: ignore[no-any-return]
