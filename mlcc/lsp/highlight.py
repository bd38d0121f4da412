"""Highlighting by Pygments of modules (`.mlc`) and schedule scripts (`.mls`)."""

from __future__ import annotations

from typing import Any, ClassVar

from pygments.lexer import RegexLexer, bygroups
from pygments.token import string_to_tokentype

from mlcc.grammar.token_rules import TOKEN_RULES


def _action(kinds: str | tuple[str, ...]) -> Any:
    if isinstance(kinds, str):
        return string_to_tokentype(kinds)
    return bygroups(*map(string_to_tokentype, kinds))


class MlcLexer(RegexLexer):  # type: ignore[misc]
    """Modules: functions of TensorIR and relax."""

    name = "mlcc"
    aliases: ClassVar[tuple[str, ...]] = ("mlc", "mlcc", "tvmscript")
    filenames: ClassVar[tuple[str, ...]] = ("*.mlc",)
    url = "https://mlc.ai"
    tokens: ClassVar[dict[str, list[tuple[str, Any]]]] = {
        "root": [(expression, _action(kinds)) for expression, kinds in TOKEN_RULES]
    }


class MlsLexer(MlcLexer):
    """Schedule scripts: calls of primitives, with loops and functions around."""

    name = "mlcc schedule"
    aliases: ClassVar[tuple[str, ...]] = ("mls",)
    filenames: ClassVar[tuple[str, ...]] = ("*.mls",)
