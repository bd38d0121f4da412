"""The findings of a text, as `mlcc check` has them, and the module that it means."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass, field, replace

from mlcc.errors import CompileError, Diagnostic, Label, MlccError, Severity, Source, Span
from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.recursion import deep_recursion


@dataclass(eq=False)
class Checked:
    """A text, its findings, and its module if it can be parsed. `path` is the file of the text."""

    text: str
    path: str
    diagnostics: list[Diagnostic] = field(default_factory=list)
    module: IRModule | None = None

    @functools.cached_property
    def nodes(self) -> dict[int, list[tir.Buffer | tir.Var | relax.Var | tir.Block | tir.For | tir.IterVar]]:
        """The nodes that define names, by the offset at which their text starts."""
        from mlcc.verify.paths import unique_nodes

        found: dict[int, list[tir.Buffer | tir.Var | relax.Var | tir.Block | tir.For | tir.IterVar]] = {}
        wanted = (tir.Buffer, tir.Var, relax.Var, tir.Block, tir.For, tir.IterVar)
        with deep_recursion():
            for function in () if self.module is None else self.module.functions.values():
                for node in unique_nodes(function):
                    if isinstance(node, wanted):
                        span = node.var.span if isinstance(node, (tir.For, tir.IterVar)) else node.span
                        if span is not None:
                            found.setdefault(span.start, []).append(node)
        return found


def check_text(text: str, path: str) -> Checked:
    """Parse and verify a text, a schedule script if the path ends in `.mls`. Warnings are found where no error is."""
    checked = Checked(text, path)
    try:
        _check(checked)
    except MlccError as exc:
        checked.diagnostics += exc.diagnostics
    return checked


def _check(checked: Checked) -> None:
    from mlcc.driver import parse_text
    from mlcc.grammar.syntax.reader import parse_syntax
    from mlcc.verify import lint, verify

    if checked.path.endswith(".mls"):
        parse_syntax(Source(checked.path, checked.text), start="script")
        return
    if not checked.text.strip():
        return  # an empty file, about to be written
    checked.diagnostics += _pipeline_findings(checked.text, checked.path)
    checked.module = parse_text(checked.text, checked.path, os.path.dirname(checked.path) or ".")
    errors = [d for d in verify(checked.module) if d.severity is Severity.ERROR]
    checked.diagnostics += errors or lint(checked.module)


def _pipeline_findings(text: str, path: str) -> list[Diagnostic]:
    """What is wrong with the pipeline in a `# PASSES:` line, at its place in the text."""
    from mlcc.passes.manage.manager import Pipeline
    from mlcc.passes.manage.reproducer import directive

    asked = directive(text)
    if asked is None:
        return []
    try:
        Pipeline.parse(asked)
    except CompileError as exc:
        source, start = Source(path, text), text.find(asked)
        return [replace(d, primary=_moved(d.primary, source, start, asked), related=()) for d in exc.diagnostics]
    return []


def _moved(label: Label, source: Source, start: int, asked: str) -> Label:
    span = label.span or Span(source, 0, len(asked))
    return Label(Span(source, start + span.start, start + span.end), label.text)
