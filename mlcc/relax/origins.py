"""What a kernel was in the source model: the comments that importers write after bindings."""

from __future__ import annotations

from collections import defaultdict

from mlcc.errors import Span
from mlcc.ir import relax
from mlcc.ir.module import IRModule
from mlcc.ir.versions import version_names
from mlcc.relax.queries import all_bindings, tir_callee

_SHOWN = 2


def origin(span: Span | None) -> str:
    """The comment at the end of the line in which a span ends: `layer1.0.conv1 (Conv2d) resnet.py:97`."""
    if span is None or span.end < 1:
        return ""
    line, _ = span.source.line_col(span.end - 1)
    _, mark, comment = span.source.line(line).rpartition(" # ")
    return comment.strip() if mark else ""


def kernel_origins(module: IRModule) -> dict[str, str]:
    """By TensorIR function where its calls come from, as text; a function that no commented binding calls is absent."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for func in module.functions.values():
        if not isinstance(func, relax.Function):
            continue
        for binding, _ in all_bindings(func.body):
            name = tir_callee(binding.value)  # type: ignore[attr-defined]
            comment = origin(binding.span) if name else ""
            if name and comment:
                found[name][comment] = None
    for name, comments in list(found.items()):
        if name in module.functions:
            found.update(dict.fromkeys(version_names(module.functions[name]), comments))
    return {name: _listed(list(comments)) for name, comments in found.items()}


def _listed(comments: list[str]) -> str:
    more = f" and {len(comments) - _SHOWN} more" if len(comments) > _SHOWN else ""
    return "; ".join(comments[:_SHOWN]) + more
