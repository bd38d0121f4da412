"""The LALR parser made from mlc.lark; its tables are kept between processes in a private cache folder."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
from importlib import resources
from typing import Any

import lark
from lark.lexer import Lexer as LarkLexer


class NoLexer(LarkLexer):
    """Lark scans nothing: `syntax` feeds it tokens."""

    __future_interface__ = 2

    def __init__(self, conf: object) -> None:
        pass

    def lex(self, state: object, parser_state: object) -> Any:
        return iter(())


def grammar_text() -> str:
    """The grammar, as shipped."""
    return resources.files("mlcc.grammar").joinpath("mlc.lark").read_text("utf-8")


def build(actions: object = None, **options: Any) -> lark.Lark:
    """The parser of the grammar; `actions` has one method per rule (see `tree.Builder`)."""
    return lark.Lark(
        grammar_text(), parser="lalr", lexer=NoLexer, start=["module", "script"], keep_all_tokens=True,
        maybe_placeholders=False, transformer=actions, **options,
    )  # fmt: skip


def cached(actions: object) -> lark.Lark:
    """As `build`, from the user's cache where there is a safe one."""
    path = cache_file()
    if path is not None:
        with contextlib.suppress(Exception):  # a damaged cache must never stop a run
            return build(actions, cache=path)
    return build(actions)


def terminals(parser: lark.Lark) -> dict[str, str]:
    """Keywords and punctuation to the grammar's names for them."""
    return {t.pattern.value: t.name for t in parser.terminals if t.pattern is not None}


def cache_file() -> str | None:
    """Where the tables are kept: our file in our folder that nobody else can write; None if there is no such place.

    The cache is unpickled, so whoever can write it can run code as us.
    """
    key = hashlib.sha256(f"{lark.__version__} {sys.version_info[:2]} {grammar_text()}".encode()).hexdigest()
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = os.path.join(base, "mlcc")
    path = os.path.join(folder, f"grammar-{key[:24]}.tables")
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if not _private(folder, stat.S_ISDIR):
            return None
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        return path if _private(path, stat.S_ISREG) else None
    except OSError:
        return None


def _private(path: str, kind: Any) -> bool:
    """Of the right kind (no link), our own, not writable by group or others."""
    found = os.lstat(path)
    mine = not hasattr(os, "getuid") or found.st_uid == os.getuid()
    return bool(kind(found.st_mode)) and mine and not found.st_mode & 0o022
