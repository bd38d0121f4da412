"""The canonical layout of a text: `format_text`.

Formatting works on tokens, so nothing but blanks, line ends and semicolons can change: indentation by four, one
statement a line, one blank at most in a row and one around definitions, brackets broken where a line is longer than
120. Comments stay where they are, between the same tokens.
"""

from __future__ import annotations

import keyword
from dataclasses import dataclass, field

from mlcc.errors import Source
from mlcc.grammar.fmt.layout import STEP, Atom, Comment, Layout, build, space_tokens
from mlcc.grammar.syntax.lexer import Lexer, Token
from mlcc.grammar.syntax.reader import parse_syntax

_TERMINALS = {word: word.upper() for word in keyword.kwlist} | {":": "COLON"}
_HEADERS = frozenset({"class", "def", "for", "while", "if", "elif", "else", "with"})
_LAYOUT = frozenset({"NEWLINE", "INDENT", "DEDENT", "$END"})


@dataclass(slots=True)
class Line:
    """A logical line, or a comment on a separate line; `blank`: an empty line precedes it.

    `comments` are those inside the line, each with the number of tokens before it.
    """

    depth: int
    tokens: list[str] = field(default_factory=list)
    comments: list[tuple[int, Comment]] = field(default_factory=list)
    blank: bool = False

    @property
    def is_comment(self) -> bool:
        return not self.tokens

    def parts(self) -> list[Atom | Comment]:
        """Tokens, with the blanks between them, and comments."""
        atoms = space_tokens(self.tokens)
        if not self.comments:
            return list(atoms)
        parts: list[Atom | Comment] = []
        at = 0
        for number, comment in self.comments:
            parts += atoms[at:number]
            parts.append(comment)
            at = number
        return parts + atoms[at:]

    @property
    def starts_definition(self) -> bool:
        return bool(self.tokens) and self.tokens[0] in ("@", "def", "class")

    @property
    def opens(self) -> bool:
        return bool(self.tokens) and self.tokens[0] in _HEADERS


def format_text(text: str, name: str = "<text>") -> str:
    """The text in canonical layout; a name ending in `.mls` makes it a schedule script. Raises CompileError."""
    source = Source(name, text)
    parse_syntax(source, "script" if name.endswith(".mls") else "module")
    lines = read_lines(source)
    _separate(lines)
    formatted = "".join(_write(line) for line in lines)
    if _tokens_by_depth(read_lines(Source(name, formatted))) != _tokens_by_depth(lines):
        raise AssertionError(f"formatting {name} would change its tokens")
    return formatted


def _tokens_by_depth(lines: list[Line]) -> list[tuple[int, list[str]]]:
    return [(line.depth, line.tokens) for line in lines if line.tokens]


def _write(line: Line) -> str:
    indent = STEP * line.depth
    layout = Layout(indent)
    layout.parts(build(line.parts()), indent, indent + STEP, first=True)
    return ("\n" if line.blank else "") + "\n".join(text.rstrip(" ") for text in layout.lines) + "\n"


# ---------------------------------------------------------------- from text to lines


def read_lines(source: Source) -> list[Line]:
    """The logical lines and comments of a text that parses, semicolons and one-line bodies taken apart."""
    text = source.text
    lexer = Lexer(source, _TERMINALS)
    tokens = list(lexer.tokens())
    comments = [_SourceComment(start, end, content.rstrip()) for start, end, content in lexer.comments]
    lines: list[Line] = []
    columns = {0: 0}  # of the blocks, by depth
    depth = last_end = at = 0
    blank = False
    current: list[Token] = []
    for token in tokens:
        if token.type == "INDENT":
            depth += 1
            columns[depth] = _column(text, token.start)
        elif token.type == "DEDENT":
            depth -= 1
        elif token.type == "NEWLINE":
            first = at
            while at < len(comments) and comments[at].start <= token.start:
                at += 1
            lines += _split_statements(text, depth, blank, current, comments[first:at])
            last_end = max(token.start, comments[at - 1].end if at > first else 0)
            current = []
        elif not current:
            first = at
            while at < len(comments) and comments[at].start < token.start:
                at += 1
            _place_comments(text, lines, comments[first:at], columns, depth, last_end)
            last_end = comments[at - 1].end if at > first else last_end
            blank = token.type != "$END" and _blank_between(text, last_end, token.start)
            current.append(token)
        else:
            current.append(token)
    return lines


@dataclass(frozen=True, slots=True)
class _SourceComment:
    """A comment as it stands in the source."""

    start: int
    end: int
    text: str


def _column(text: str, offset: int) -> int:
    return offset - (max(text.rfind("\n", 0, offset), text.rfind("\r", 0, offset)) + 1)


def _blank_between(text: str, end: int, start: int) -> bool:
    """Return True if the whitespace between two positions contains an empty line."""
    return text[end:start].replace("\r\n", "\n").replace("\r", "\n").count("\n") > 1


def _place_comments(
    text: str, lines: list[Line], comments: list[_SourceComment], columns: dict[int, int], depth: int, last_end: int
) -> None:
    """Comments before a line of `depth`: each belongs to the deepest block still open there that its column reaches."""
    before = lines[-1].depth + lines[-1].opens if lines else 0
    for comment in comments:
        column = _column(text, comment.start)
        open_here = [d for d in range(depth + 1, before + 1) if columns.get(d, column + 1) <= column]
        blank = _blank_between(text, last_end, comment.start)
        lines.append(Line(max(open_here, default=depth), [], [(0, Comment(comment.text, True))], blank))
        last_end = comment.end


def _split_statements(
    text: str, depth: int, blank: bool, tokens: list[Token], comments: list[_SourceComment]
) -> list[Line]:
    """Split a logical line into one line for each statement."""
    statements: list[Line] = []
    words: list[str] = []
    inside: list[tuple[int, Comment]] = []  # comments and how many words come before them
    brackets = lambdas = 0
    header = text[tokens[0].start : tokens[0].end] in _HEADERS

    def finish(depth: int) -> None:
        if words:
            statements.append(Line(depth, list(words), list(inside), blank and not statements))
        elif statements:
            statements[-1].comments += [(len(statements[-1].tokens), comment) for _, comment in inside]
        words.clear()
        inside.clear()

    at = 0
    for token in tokens:
        while at < len(comments) and comments[at].start < token.start:
            inside.append((len(words), _comment(text, comments[at])))
            at += 1
        word = text[token.start : token.end]
        if word == ";" and not brackets:
            finish(depth)
            continue
        words.append(word)
        if word in ("(", "[", "{"):
            brackets += 1
        elif word in (")", "]", "}"):
            brackets -= 1
        elif word == "lambda" and not brackets:
            lambdas += 1
        elif word == ":" and not brackets:
            if lambdas:
                lambdas -= 1
            elif header:
                finish(depth)
                header = False
                depth += 1
    inside += [(len(words), _comment(text, comment)) for comment in comments[at:]]
    finish(depth)
    return statements


def _comment(text: str, comment: _SourceComment) -> Comment:
    start = comment.start - _column(text, comment.start)
    return Comment(comment.text, not text[start : comment.start].strip())


# ---------------------------------------------------------------- empty lines


def _separate(lines: list[Line]) -> None:
    """One empty line around definitions, at most one elsewhere, none at the start of a block."""
    _lift_blanks(lines)
    definitions: list[int] = []  # depths of those that are open
    before = Line(0)
    for number, line in enumerate(lines):
        closed = False
        while definitions and line.depth <= definitions[-1]:
            definitions.pop()
            closed = True
        first = number == 0 or (before.opens and line.depth > before.depth)
        if first or before.tokens[:1] == ["@"] or line.tokens[:1] in (["else"], ["elif"]):
            line.blank = False
        elif closed and not line.is_comment:
            line.blank = line.blank or not before.is_comment
        if line.tokens and line.tokens[0] in ("def", "class"):
            definitions.append(line.depth)
        before = line


def _lift_blanks(lines: list[Line]) -> None:
    """The empty line before a definition stands before its decorators and the comments that lie directly on it."""
    for number, line in enumerate(lines):
        if not line.starts_definition or (number and lines[number - 1].tokens[:1] == ["@"]):
            continue
        top = number
        while top and not lines[top].blank and lines[top - 1].is_comment and lines[top - 1].depth == line.depth:
            top -= 1
        lines[top].blank = True
