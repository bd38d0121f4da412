"""The rules, in the order in which they are asked; the first that takes a function schedules it."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

from mlcc.passes.auto_schedule.kernel import Kernel


@dataclass(frozen=True)
class Rule:
    """A rule is a function of a file of this package. It looks at the kernel and schedules it, or raises NotThis, or
    fails midway: then the kernel, as it was, goes to the next one. What it returns says why it took the kernel."""

    name: str
    place: str  # "module:function" in this package; imported when the rule is first asked

    def function(self) -> Callable[[Kernel], str]:
        module, _, function = self.place.partition(":")
        return getattr(importlib.import_module(f"mlcc.passes.auto_schedule.{module}"), function)  # type: ignore[no-any-return]


RULES: tuple[Rule, ...] = (
    Rule("matvec", "matvec:matvec"),
    Rule("matmul", "matmul:matmul"),
    Rule("dots", "dots:dots"),
    Rule("conv", "conv:conv"),
    Rule("transposes", "transposes:transposes"),
    Rule("elementwise", "elementwise:elementwise"),
    Rule("rows", "rows:rows"),
    Rule("columns", "columns:columns"),
    Rule("fallback", "fallback:fallback"),
)
