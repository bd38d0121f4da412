"""Origins of kernels in the source model, from the comments that importers write after bindings."""

from __future__ import annotations

import re
from collections import defaultdict
from fnmatch import fnmatchcase
from typing import Any

from mlcc.errors import Span
from mlcc.grammar.printer.writer import Style
from mlcc.ir import relax, tir
from mlcc.ir.module import Func, IRModule
from mlcc.ir.versions import version_names
from mlcc.relax.queries import all_bindings, tir_callee

_MAX_SHOWN = 2
_MAX_DISTANCE = 64  # lines from a binding to the comment that holds for it
_BINDING = re.compile(r"\s*([A-Za-z0-9]+)\w*(?:: R\..*)? = ")  # with what the names of a node's variables begin with


def origin(span: Span | None) -> str:
    """The comment at the end of the line in which a span ends, `layer1.0.conv1 (Conv2d) resnet.py:97`; of bindings that
    one node of a model became, and that follow one another, the first has it."""
    if span is None or span.end < 1:
        return ""
    last, _ = span.source.line_col(span.end - 1)
    stem = ""
    for line in range(last, max(last - _MAX_DISTANCE, 0), -1):
        text = span.source.line(line)
        match = _BINDING.match(text)
        if line < last and (match is None or match[1] != stem):
            return ""
        _, mark, comment = text.rpartition(" # ")
        if mark:
            return comment.strip()
        if match is None:
            return ""
        stem = match[1]
    return ""


def place_facts(span: Span | None) -> dict[str, Any]:
    """Return the place of a call as plain data: `file`, `line`, and `origin` if there is one; empty if it is unknown.

    Imported models have no lines: without a comment the origin is the node, `y = Log`.
    """
    if span is None:
        return {}
    line, _ = span.source.line_col(span.start)
    comment = origin(span)
    if span.source.is_model:
        return {"file": span.source.name, "origin": comment or span.source.line(line)}
    facts: dict[str, Any] = {"file": span.source.name, "line": line}
    return facts | {"origin": comment} if comment else facts


def origins_of(binding: relax.Binding) -> list[str]:
    """Return the origins of a binding. For a kernel call, that of its main operation comes first, then its result's."""
    value = getattr(binding, "value", None)
    comments = (origin(getattr(value, "span", None)), origin(binding.span))
    return [comment for comment in dict.fromkeys(comments) if comment]


def source_comment(binding: relax.Binding) -> str | None:
    """The comment that the text of a binding had, to print it again."""
    return next(iter(origins_of(binding)), None)


KEEP_COMMENTS = Style(source_comment)  # of texts that come from texts: comments behind bindings stay


def kernel_origins(module: IRModule) -> dict[str, str]:
    """Map each TensorIR function to the origins of its calls, as text; functions without commented calls are absent."""
    return {name: _listed(comments) for name, comments in _comments(module).items()}


def kernels_matching(module: IRModule, pattern: str) -> list[str]:
    """The TensorIR functions whose name, or for a pattern like `@layer1.*.conv1` whose module path in the source model,
    is as the pattern says; `*`, `?` and `[...]` are as in file names, and `*` stands for dots, too."""
    if not pattern.startswith("@"):
        return [name for name, func in module.functions.items() if _is_matching_kernel(func, name, pattern)]
    paths = {name: [comment.split(" ")[0] for comment in comments] for name, comments in _comments(module).items()}
    return [
        n
        for n, f in module.functions.items()
        if any(_is_matching_kernel(f, path, pattern[1:]) for path in paths.get(n, ()))
    ]


def _is_matching_kernel(func: Func, name: str, pattern: str) -> bool:
    return isinstance(func, tir.PrimFunc) and fnmatchcase(name, pattern)


def _comments(module: IRModule) -> dict[str, list[str]]:
    """The comments behind the calls of each TensorIR function, the main origins of all calls first."""
    calls_of: dict[str, list[list[str]]] = defaultdict(list)
    for func in module.functions.values():
        if not isinstance(func, relax.Function):
            continue
        for binding, _ in all_bindings(func.body):
            name = tir_callee(binding.value)  # type: ignore[attr-defined]
            if name and (comments := origins_of(binding)):
                calls_of[name].append(comments)
    for name, calls in list(calls_of.items()):
        if name in module.functions:
            calls_of.update(dict.fromkeys(version_names(module.functions[name]), calls))
    ranks = range(2)
    return {
        n: list(dict.fromkeys(c[at] for at in ranks for c in calls if at < len(c))) for n, calls in calls_of.items()
    }


def _listed(comments: list[str]) -> str:
    more = f" and {len(comments) - _MAX_SHOWN} more" if len(comments) > _MAX_SHOWN else ""
    return "; ".join(comments[:_MAX_SHOWN]) + more
