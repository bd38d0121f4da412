"""The decisions of a build in words: what was fused and what was not, schedules, and where memory is shared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mlcc.ir.module import IRModule
from mlcc.passes.fusion.fuse import Fuse
from mlcc.passes.fusion.why_fuse import decisions
from mlcc.passes.manage.manager import Observer, Pass


class FusionDecisions(Observer):
    """Keep what each `fuse` of a pipeline decides about each edge of the graph."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []

    def before(self, at: int, current: Pass, module: IRModule) -> None:
        if isinstance(current, Fuse):
            for name, edges in decisions(module, current.level).items():
                self.found += [_decision("fusion", subject or name, text) for subject, text in edges]


def schedule_decisions(kernels: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield how each kernel is scheduled: the rule and its reason, its choices, and why earlier rules refused."""
    for kernel in kernels:
        if kernel["why"]:
            rule = f"rule {kernel['rule']}: " if kernel["rule"] else ""
            yield _decision("schedule", kernel["name"], f"{rule}{kernel['why']}")
        yield from (_decision("schedule", kernel["name"], choice) for choice in kernel["choices"])
        yield from (_decision("schedule", kernel["name"], f"not {rule}: {why}") for rule, why in kernel["refused"])


def memory_decisions(memory: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield what sharing memory saves in each function whose buffers have constant sizes."""
    for plan in memory:
        count = len(plan["buffers"])
        if count and plan["peak"] is not None and plan["workspace"] is not None:
            total = sum(buffer["bytes"] for buffer in plan["buffers"])
            noun = "buffer" if count == 1 else "buffers"
            text = (
                f"{count} {noun} of {total} bytes share a workspace of {plan['workspace']} bytes, "
                f"of which at most {plan['peak']} are live at a step"
            )
            yield _decision("memory", plan["function"], text)


def _decision(kind: str, subject: str, text: str) -> dict[str, Any]:
    return {"kind": kind, "subject": subject, "text": text}
