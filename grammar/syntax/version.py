"""The version of texts, in a comment at their top: `# mlc 1`.

It grows only when an older mlcc would misunderstand a text, so texts without one, and older ones, are read for ever;
newer ones are refused. docs/compatibility.md has the promise.
"""

from __future__ import annotations

import re

from mlcc.errors import CompileError, Source, Span, error

VERSION = 1
# blank lines and comments at the top of a text, up to the version
_HEAD = re.compile(
    r"""\ufeff?(?:[ \t]*(?:\#(?![ \t]*mlc[ \t]+\d)[^\r\n]*)?(?:\r\n|\n|\r))*
    [ \t]*(\#[ \t]*mlc[ \t]+(\d{1,9})[ \t]*)(?=[\r\n]|\Z)""",
    re.VERBOSE,
)


def version_line(version: int = VERSION) -> str:
    """Return the comment that states a version."""
    return f"# mlc {version}\n"


def with_version(text: str) -> str:
    """Return a text of this version for a file: with the comment on its first line."""
    return text if version_of(text) else version_line() + text


def version_of(text: str) -> tuple[int, int, int] | None:
    """Return the version of a text, and the start and the end of its comment; None for a text without one."""
    found = _HEAD.match(text)
    return (int(found[2]), found.start(1), found.end(1)) if found else None


def check_version(source: Source) -> None:
    """Raise CompileError E0111 for a text of a newer version."""
    found = version_of(source.text)
    if found is not None and found[0] > VERSION:
        version, start, end = found
        message = f"this text is of version {version}, and this mlcc reads versions up to {VERSION}"
        help = "install the mlcc that wrote it, or a newer one: `pip install --upgrade mlcc`"
        raise CompileError(error("E0111", message, Span(source, start, end), help=help))
