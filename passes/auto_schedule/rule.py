"""A rule: its name, and its function or where that is defined."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mlcc.passes.auto_schedule.kernel import AnyKernel


@dataclass(frozen=True)
class Rule:
    """A rule, implemented by a function of a module of this package, or by any function if it is from outside.

    The function looks at the kernel and schedules it, or raises RuleNotApplicable, or fails midway; the kernel is then
    restored and goes to the next rule. It returns why it took the kernel.

    A rule from outside is for CPUs or, with `gpu`, for GPUs. It is tried before mlcc's rule `before`, by default first.
    """

    name: str
    place: str | Callable[[AnyKernel[Any]], str]  # "module:function" in this package is imported when first tried
    before: str = ""
    gpu: bool = False

    def function(self) -> Callable[[AnyKernel[Any]], str]:
        if not isinstance(self.place, str):
            return self.place
        module, _, function = self.place.partition(":")
        return getattr(importlib.import_module(f"mlcc.passes.auto_schedule.{module}"), function)  # type: ignore[no-any-return]
