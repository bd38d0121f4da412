"""Text to syntax tree: `parse_syntax`. The nodes are described in `tree`.

The fast path feeds the tokens to the LALR automaton once. Only if something is wrong are they fed again, line by
line and without building anything, to name every independent error: a line that does not parse is replaced by a
harmless one of the same shape, and the parse goes on behind it.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass

from mlcc.errors import CompileError, Diagnostic, Source, Span, error
from mlcc.grammar.syntax import errors as syntax_errors
from mlcc.grammar.syntax import tables, tree
from mlcc.grammar.syntax.automaton import Automaton, UnexpectedToken
from mlcc.grammar.syntax.lexer import Lexer, StopLexing
from mlcc.grammar.syntax.tree_builder import Builder
from mlcc.grammar.syntax.version import check_version
from mlcc.recursion import gc_disabled

MAX_DEPTH = 400  # of an expression or a chain of elifs, counted in nodes

_local = threading.local()


@dataclass(frozen=True, slots=True)
class Tree:
    """A parsed text: its top-level statements, and its comments as (start, end, text), `#` included."""

    body: tree.Body
    comments: tuple[tuple[int, int, str], ...]


def parse_syntax(source: Source, start: str = "module") -> Tree:
    """The syntax tree of a module (`start="module"`) or a schedule script (`"script"`).

    Raises CompileError, also for a text of a newer version.
    """
    binary = source.text.find("\0")
    if binary >= 0:
        span = Span(source, binary, binary + 1)
        raise CompileError(_binary(source, span, source.text[:8].encode("utf-8", "replace"), "a NUL byte"))
    check_version(source)
    automaton, builder = _parser()
    builder.problems = []
    lexer = Lexer(source, automaton.terminals)
    try:
        with gc_disabled():
            body = automaton.parse(lexer.tokens(), start)
    except StopLexing:
        raise CompileError(lexer.problems) from None
    except UnexpectedToken:
        raise CompileError(syntax_errors.find_errors(source, automaton, start)) from None
    if lexer.problems:
        raise CompileError(syntax_errors.find_errors(source, automaton, start))
    problems = [
        error("E0109", message, Span(source, at, end), help=help) for at, end, message, help in builder.problems
    ] or _too_deep(source, body)
    if problems:
        raise CompileError(problems)
    return Tree(body, tuple(lexer.comments))


def read_source(text: str | bytes | os.PathLike[str], name: str | None = None) -> Source:
    """A source from a path, or from the bytes or the text of one. Raises CompileError for what is not UTF-8 text."""
    if isinstance(text, os.PathLike):
        path = os.fspath(text)
        name = name or path
        try:
            with open(path, "rb") as file:
                text = file.read()
        except OSError as failed:
            message = f"cannot read `{path}`: {failed.strerror or failed}"
            raise CompileError(error("E0001", message, file=path)) from None
    if isinstance(text, str):
        return Source(name or "<text>", text)
    try:
        return Source(name or "<text>", text.decode("utf-8"))
    except UnicodeDecodeError as bad:
        raise CompileError(_not_utf8(text, bad, name or "<text>")) from None


def decode(raw: bytes, name: str) -> str:
    """Decode UTF-8. Raises CompileError for invalid bytes."""
    return read_source(raw, name).text.removeprefix("\ufeff")


def _not_utf8(text: bytes, bad: UnicodeDecodeError, name: str) -> Diagnostic:
    source = Source(name, text.decode("utf-8", "replace"))
    at = len(text[: bad.start].decode("utf-8", "replace"))
    if b"\0" in text[:4096]:
        return _binary(source, Span(source, at, at + 1), text[:8], "a byte that is not UTF-8")
    message = f"byte 0x{text[bad.start]:02x} at offset {bad.start} is not UTF-8"
    return error("E0108", message, Span(source, at, at + 1), help="save the text as UTF-8")


_KINDS = {  # by the first bytes
    b"\x7fELF": ("an object or a library", "`mlcc inspect` and `mlcc run` take those"),
    b"PK\x03\x04": ("a zip archive", "arrays (.npz) are given with --in; models are .onnx and .pt2"),
    b"\xff\xfe": ("written in UTF-16", "save it as UTF-8"),
    b"\xfe\xff": ("written in UTF-16", "save it as UTF-8"),
    b"\x93NUMPY": ("an array", "arrays are given with --in"),
    b"\x80": ("a pickle of Python", "models are read from .onnx and .pt2 files"),
}


def _binary(source: Source, span: Span, head: bytes, what: str) -> Diagnostic:
    """Return the error for a file that is no text; a kind of file that is known is named, others show the byte."""
    for start, (kind, help) in _KINDS.items():
        if head.startswith(start):
            return error("E0108", f"{source.name} is not a text: it is {kind}", help=help, file=source.name)
    return error("E0108", "this is not a text", span, what)


def _parser() -> tuple[Automaton, Builder]:
    """Return the automaton of this thread; its actions collect problems, so it is not shared."""
    parser: tuple[Automaton, Builder] | None = getattr(_local, "parser", None)
    if parser is None:
        builder = Builder()
        parser = _local.parser = (Automaton(tables.load(), builder), builder)
    return parser


def _too_deep(source: Source, body: tree.Body) -> list[Diagnostic]:
    """Report expressions, and chains of elif, that are nested too deeply for later stages."""
    deep = tree.parts_at_depth(body, 2 * MAX_DEPTH)  # nodes and the tuples that hold them alternate
    if not deep:
        return []
    at = next((part for part in deep if isinstance(part, tree.Node)), None)
    span = Span(source, at.start, at.end) if at is not None else None
    help = "give parts of it a name, or write a loop"
    return [error("E0107", f"this expression is nested more than {MAX_DEPTH} levels deep", span, help=help)]
