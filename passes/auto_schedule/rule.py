"""A rule by its name and place."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mlcc.passes.auto_schedule.kernel import AnyKernel


@dataclass(frozen=True)
class Rule:
    """A rule is a function of a file of this package. It looks at the kernel and schedules it, or raises NotThis, or
    fails midway: then the kernel, as it was, goes to the next one. What it returns says why it took the kernel."""

    name: str
    place: str  # "module:function" in this package; imported when the rule is first asked

    def function(self) -> Callable[[AnyKernel[Any]], str]:
        module, _, function = self.place.partition(":")
        return getattr(importlib.import_module(f"mlcc.passes.auto_schedule.{module}"), function)  # type: ignore[no-any-return]
