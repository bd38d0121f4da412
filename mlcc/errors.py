"""Errors as plain data: spans, diagnostics, and the exceptions that carry them.

A stage collects `Diagnostic`s and raises them together in one `CompileError`. Only the command line prints.
"""

from __future__ import annotations

import bisect
import enum
import errno
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

_MAX_LINES = 20  # line numbers that a merged diagnostic lists
_UNMAPPED = ("failed to map segment", "annot allocate memory")  # what the dynamic linker says without memory


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A source text and its name in messages; positions are character offsets into `text`."""

    name: str
    text: str
    _starts: list[int] = field(default_factory=list, repr=False)

    @property
    def is_model(self) -> bool:
        """True if the lines stand for nodes of an imported model."""
        return False

    def line_col(self, offset: int) -> tuple[int, int]:
        """1-based line and column of a character offset."""
        starts = self._starts
        if not starts:
            starts.append(0)
            at = self.text.find("\n")
            while at >= 0:
                starts.append(at + 1)
                at = self.text.find("\n", at + 1)
        line = bisect.bisect_right(starts, max(offset, 0))
        return line, offset - starts[line - 1] + 1

    def line(self, number: int) -> str:
        """The text of a 1-based line, without its newline."""
        self.line_col(0)
        start = self._starts[number - 1]
        end = self._starts[number] - 1 if number < len(self._starts) else len(self.text)
        return self.text[start:end].rstrip("\r\n")


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range of characters in a source."""

    source: Source
    start: int
    end: int

    @property
    def all(self) -> tuple[Span, ...]:
        """Return the places that this one stands for: itself."""
        return (self,)


@dataclass(frozen=True, slots=True)
class SharedSpan(Span):
    """The place of code that several places of a text share: the first of them, and the `others`."""

    others: tuple[Span, ...]

    @property
    def all(self) -> tuple[Span, ...]:
        return (Span(self.source, self.start, self.end), *self.others)


class Severity(enum.Enum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Label:
    """A message at a span; the span may be unknown."""

    span: Span | None
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One finding for the user. `code` is stable and explained by `mlcc explain CODE`.

    `file` is the path of what the finding is about, where that has no span: a file that is missing, or is no text.
    """

    code: str
    message: str
    primary: Label = Label(None)
    related: tuple[Label, ...] = ()
    help: str | None = None
    severity: Severity = Severity.ERROR
    file: str | None = None


class MlccError(Exception):
    """Base class of the exceptions that mlcc raises on purpose; `.diagnostics` lists the findings."""

    def __init__(self, diagnostics: Diagnostic | list[Diagnostic] | tuple[Diagnostic, ...]) -> None:
        one = isinstance(diagnostics, Diagnostic)
        self.diagnostics: tuple[Diagnostic, ...] = (diagnostics,) if one else tuple(diagnostics)  # type: ignore[assignment,arg-type]
        super().__init__("\n".join(render(d) for d in self.diagnostics))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.diagnostics,), self.__dict__  # not the text: copies and other processes want all


class CompileError(MlccError):
    """Raised for an error in a source text or in a request; the diagnostics say where."""


class CallError(MlccError, TypeError, ValueError):
    """Raised for arguments that do not fit the called function."""


class NotFiniteError(MlccError):
    """Raised out of a checked run at the first call that makes a NaN or an infinity (exit code 3)."""


class LoadError(MlccError):
    """Raised for an artifact that cannot be loaded: damaged, not an artifact, or made by another version."""


class MachineError(LoadError):
    """Raised for a valid artifact that does not fit this machine (exit code 6)."""


def error(
    code: str,
    message: str,
    span: Span | None = None,
    text: str = "",
    *,
    related: tuple[Label, ...] = (),
    help: str | None = None,
    file: str | None = None,
) -> Diagnostic:
    """Return an error diagnostic with a label at a span, or about a file."""
    return Diagnostic(code=code, message=message, primary=Label(span, text), related=related, help=help, file=file)


def is_out_of_memory(exc: BaseException | None) -> bool:
    """Return True if an exception, or one that it came from, is a failed allocation.

    That also is how a library or a module of C code fails to be mapped where memory is limited (`ulimit -v`).
    """
    while exc is not None:
        if isinstance(exc, MemoryError) or (isinstance(exc, OSError) and exc.errno == errno.ENOMEM):
            return True
        if isinstance(exc, OSError | ImportError) and any(words in str(exc) for words in _UNMAPPED):
            return True
        exc = exc.__cause__ or exc.__context__
    return False


def merge_repeated(found: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Merge diagnostics with equal messages into one at the first location, which states their number and lines."""
    groups: dict[tuple[str, str, str | None], list[Diagnostic]] = {}
    for one in found:
        groups.setdefault((one.code, one.message, one.help), []).append(one)
    return [_merged(list({d.primary.span: d for d in group}.values())) for group in groups.values()]


def _merged(group: list[Diagnostic]) -> Diagnostic:
    if len(group) == 1:
        return group[0]
    first = group[0]
    spans = [d.primary.span for d in group if d.primary.span is not None]
    lines = sorted({s.source.line_col(s.start)[0] for s in spans if s.source is spans[0].source})
    shown = ", ".join(map(str, lines[:_MAX_LINES])) + (", ..." if len(lines) > _MAX_LINES else "")
    where = f": lines {shown}" if len(lines) > 1 else ""
    return replace(first, message=f"{first.message} ({len(group)} uses{where})")


def nearest(word: str, known: object, limit: int = 3) -> list[str]:
    """Return the known words closest to `word`, best first, for "did you mean"."""
    import difflib

    if len(word) > 100:
        return []  # comparing long words takes quadratic time
    return difflib.get_close_matches(word, [str(k) for k in known], n=limit, cutoff=0.6)  # type: ignore[attr-defined]


def did_you_mean(word: str, known: object) -> str | None:
    """A help line naming the nearest known word, or None."""
    matches = nearest(word, known, 1)
    return f"did you mean `{matches[0]}`?" if matches else None


def render(diagnostic: Diagnostic, color: bool = False) -> str:
    """Format a diagnostic: location, message, the source line with carets, related locations, help."""
    paint = _paint if color else _plain
    head = f"{diagnostic.severity.value}[{diagnostic.code}]"
    style = "1;31" if diagnostic.severity is Severity.ERROR else "1;33"
    at = _place(diagnostic.primary.span)
    lines = [f"{at}{paint(head, style)}: {paint(diagnostic.message, '1')}"]
    lines += _excerpt(diagnostic.primary, paint, style)
    for label in diagnostic.related:
        lines.append(f"{_place(label.span)}{paint('note', '1;36')}: {label.text}")
        lines += _excerpt(Label(label.span), paint, "1;36")
    if diagnostic.help:
        lines.append(f"  {paint('help', '1;32')}: {diagnostic.help}")
    return "\n".join(lines)


def _place(span: Span | None) -> str:
    if span is None:
        return ""
    line, column = span.source.line_col(span.start)
    return f"{span.source.name}:{line}:{column}: "


def _excerpt(label: Label, paint: object, style: str) -> list[str]:
    span = label.span
    if span is None:
        return [f"    {label.text}"] if label.text else []
    line, column = span.source.line_col(span.start)
    text = span.source.line(line)
    width = max(1, min(span.end - span.start, len(text) - column + 1))
    shown, offset = _clip(text, column - 1, width)
    pad = "".join("\t" if c == "\t" else " " for c in shown[:offset])
    marks = "^" * max(1, min(width, len(shown) - offset))
    return [f"    {shown}", f"    {pad}{paint(marks + (' ' + label.text if label.text else ''), style)}"]  # type: ignore[operator]


def _clip(text: str, column: int, width: int) -> tuple[str, int]:
    """Cut a long line (data, one-line programs) to a window around the span."""
    if len(text) <= 160:
        return text, column
    start = max(0, column - 60)
    end = min(len(text), start + 150)
    head = "..." if start else ""
    return head + text[start:end] + ("..." if end < len(text) else ""), column - start + len(head)


def _paint(text: str, style: str) -> str:
    return f"\x1b[{style}m{text}\x1b[0m"


def _plain(text: str, style: str) -> str:
    return text
