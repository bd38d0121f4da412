"""Text to tokens: names, literals, operators, and the layout (NEWLINE, INDENT, DEDENT) of a Python-like language.

One regular expression finds all tokens, so the cost is linear. What is wrong is noted in `problems`, and the scan goes
on in the most likely way: an unclosed bracket ends where a statement keyword starts a line, a missing block is filled
in. Logical lines whose tokens are not to be trusted are listed in `bad_lines`, so that the parser stays quiet there.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from mlcc.errors import Diagnostic, Label, Source, Span, error
from mlcc.grammar.syntax import literals

MAX_BRACKETS = 200
MAX_INDENTS = 100
MAX_PROBLEMS = 20

# Groups of alternatives repeat with `*`, not `*+`: the latter loses matches before Python 3.11.3.
_TOKEN = re.compile(
    r"""[ \t\f]*+(?:
      ((?:[rRuUbBfF]|[bBfF][rR]|[rR][bBfF])?(?:
          \"\"\"[^"\\]*+(?:(?:\\.|"(?!""))[^"\\]*+)*\"\"\"
        | '''[^'\\]*+(?:(?:\\.|'(?!''))[^'\\]*+)*'''
        | "(?!"")[^"\\\r\n]*+(?:\\(?:\r\n|.)[^"\\\r\n]*+)*"
        | '(?!'')[^'\\\r\n]*+(?:\\(?:\r\n|.)[^'\\\r\n]*+)*'))                 # 1 string
    | ([^\W\d]\w*+)                                                            # 2 name or keyword
    | ([()\[\]{}])                                                             # 3 bracket
    | (0[xX][0-9a-fA-F_]*+ | 0[oO][0-7_]*+ | 0[bB][01_]*+
      | (?:[0-9][0-9_]*+(?:\.[0-9_]*+)?|\.[0-9][0-9_]*+)(?:[eE][+-]?[0-9][0-9_]*+)?)  # 4 number
    | (\r\n|\n|\r)                                                             # 5 end of line
    | (\.\.\.|//=|\*\*=|<<=|>>=|[-+*/%&|^]=|==|!=|<=|>=|->|//|\*\*|<<|>>|[-+*/%&|^~<>=.,:;@])  # 6 operator
    | (\#[^\r\n]*+)                                                            # 7 comment
    | (\\[ \t]*+(?:\r\n|\n|\r))                                                # 8 continued line
    | (\"\"\".*+|'''.*+|["'][^\r\n]*+)                                         # 9 unterminated string
    | (\Z)                                                                     # 10 end of text
    | (.)                                                                      # 11 anything else
    )""",
    re.VERBOSE | re.DOTALL,
)

_KINDS = {
    **dict.fromkeys(("//", "/", "%", "**", "<<", ">>", "&", "|", "^", "==", "!=", "<", ">", "<=", ">="), "OPERATOR"),
    **dict.fromkeys(("+", "-"), "SIGN"),
    **dict.fromkeys(("+=", "-=", "*=", "/=", "//=", "%=", "&=", "|=", "^=", "<<=", ">>=", "**="), "AUGMENT"),
}
_OPENER = {")": "(", "]": "[", "}": "{"}
_CLOSER = {"(": ")", "[": "]", "{": "}"}
_FOREIGN_HEADERS = ("try", "except", "finally", "match")  # refused where they stand; what they open is no second error
_HEADERS = {"CLASS", "DEF", "FOR", "WHILE", "IF", "ELIF", "ELSE", "WITH"}
_NEVER_INSIDE = {
    "CLASS", "DEF", "WHILE", "WITH", "RETURN", "PASS", "BREAK", "CONTINUE", "ASSERT", "IMPORT", "FROM", "AT",
}  # fmt: skip


class Token:
    """A token; `value` is the text, or the value of a literal."""

    __slots__ = ("end", "start", "type", "value")

    def __init__(self, type: str, start: int, end: int, value: object = "") -> None:
        self.type = type
        self.start = start
        self.end = end
        self.value = value

    def __repr__(self) -> str:
        return f"Token({self.type}, {self.value!r})"


class StopLexing(Exception):
    """Raised to end the scan: nesting is beyond the limits, or there are too many problems. They are recorded."""


class Lexer:
    """Scans one source. `terminals` maps keywords and punctuation to the grammar's names for them."""

    def __init__(self, source: Source, terminals: dict[str, str]) -> None:
        self.source = source
        self.comments: list[tuple[int, int, str]] = []
        self.problems: list[Diagnostic] = []
        self.bad_lines: set[int] = set()
        self._types = {**_KINDS, **terminals}
        self._line = 0  # number of the logical line: how many NEWLINE tokens came before
        self._widths = [(0, 0)]  # indentation of the open blocks, with tabs of 8 and of 1
        self._silent = [False]  # the indentation opened no block, and closes none
        self._brackets: list[tuple[str, int, int]] = []  # character, offset, start of its physical line

    def tokens(self) -> Iterator[Token]:
        """All tokens with layout, ending in `$END`. Raises Stop."""
        text, types, brackets = self.source.text, self._types, self._brackets
        first: Token | None = None  # of the logical line being read
        header: Token | None = None  # first and last token of the logical line before
        last = Token("NEWLINE", 0, 0)
        line_start = 1 if text.startswith("\ufeff") else 0
        fresh = True  # nothing but blanks so far in this physical line
        for match in _TOKEN.finditer(text, line_start):
            kind: int = match.lastindex  # type: ignore[assignment]
            start, end = match.span(kind)
            if kind == 2 or kind == 6 or kind == 3:
                word = match[kind]
                token = Token(types.get(word, "NAME"), start, end, word)
            elif kind == 5:
                if first is not None and not brackets:
                    yield Token("NEWLINE", start, end)
                    self._line += 1
                    header, first = first, None
                line_start = end
                fresh = True
                continue
            elif kind == 4:
                token = self._number(match[4], start, end)
            elif kind == 1:
                token = self._string(match[1], start, end)
            elif kind == 7:
                self.comments.append((start, end, match[7]))
                continue
            elif kind == 8:
                continue
            elif kind == 9:
                token = self._unterminated(match[9], start, end)
            elif kind == 10:
                break
            else:
                self._stray(match[11], start)
                continue
            if fresh:
                fresh = False
                if brackets and self._breaks_out(token, line_start):
                    yield from self._close_all(last.end)
                    header, first = first, None
                if first is None:
                    yield from self._layout(text[line_start:start], token, header, last)
                    first = token
            if kind == 3 and not self._bracket(token, line_start):
                continue
            yield token
            last = token
        end = len(text)
        if brackets:
            yield from self._close_all(last.end)
            header = first
        elif first is not None:
            yield Token("NEWLINE", end, end)
            self._line += 1
            header = first
        yield from self._layout("", Token("$END", end, end), header, last)
        yield Token("$END", end, end)

    # ------------------------------------------------------------ layout

    def _layout(self, blank: str, token: Token, header: Token | None, last: Token) -> Iterator[Token]:
        """Yield the tokens for the indentation `blank` of a logical line that starts with `token`, after `header`."""
        tab8, tab1 = _width(blank, 8), _width(blank, 1)
        top8, top1 = self._widths[-1]
        if (tab8 > top8) != (tab1 > top1) or (tab8 < top8) != (tab1 < top1):
            self._note(
                "E0104", "inconsistent tabs and spaces", token.start - len(blank), token.start,
                "the depth of this indentation depends on the width of a tab", help="indent with spaces only",
            )  # fmt: skip
        opens = header is not None and (header.type in _HEADERS or header.value in _FOREIGN_HEADERS)
        if tab8 > top8:
            if len(self._widths) > MAX_INDENTS:
                self._note("E0107", f"blocks are nested more than {MAX_INDENTS} deep", token.start, token.end)
                raise StopLexing
            if not opens and self._line not in self.bad_lines:
                self._note(
                    "E0103", "unexpected indentation", token.start - len(blank), token.start,
                    "no block starts here",
                )  # fmt: skip
            else:
                yield Token("INDENT", token.start, token.start)
            self._widths.append((tab8, tab1))
            self._silent.append(not opens)
            return
        if opens and last.type == "COLON":
            yield from self._fill_block(header, last)  # type: ignore[arg-type]
        while self._widths[-1][0] > tab8:
            self._widths.pop()
            if not self._silent.pop():
                yield Token("DEDENT", token.start, token.start)
        if self._widths[-1][0] != tab8:
            self._note(
                "E0103", "the indentation does not match any enclosing block", token.start - len(blank), token.start,
                help=f"the enclosing blocks are indented by {', '.join(str(w) for w, _ in self._widths)}",
            )  # fmt: skip
            self._widths.append((tab8, tab1))
            self._silent.append(True)

    def _fill_block(self, header: Token, colon: Token) -> Iterator[Token]:
        self._note(
            "E0103", f"expected an indented block after `{header.value}`", header.start, colon.end,
            "nothing is indented under this line", help="write `pass` for an empty block",
        )  # fmt: skip
        at = colon.end
        yield from (Token("INDENT", at, at), Token("PASS", at, at), Token("NEWLINE", at, at), Token("DEDENT", at, at))
        self._line += 1

    # ------------------------------------------------------------ brackets

    def _bracket(self, token: Token, line_start: int) -> bool:
        """Open or close a bracket; False if the token should be dropped."""
        brackets, word = self._brackets, str(token.value)
        if word in _CLOSER:
            brackets.append((word, token.start, line_start))
            if len(brackets) > MAX_BRACKETS:
                self._note("E0107", f"brackets are nested more than {MAX_BRACKETS} deep", token.start, token.end)
                raise StopLexing
            return True
        if brackets and brackets[-1][0] == _OPENER[word]:
            brackets.pop()
            return True
        if not brackets:
            self._note("E0102", f"unmatched `{word}`", token.start, token.end, "no bracket is open here")
            self.bad_lines.add(self._line)
            return False
        opener, at, _ = brackets[-1]
        self._note(
            "E0102", f"`{word}` does not close `{opener}`", token.start, token.end, f"expected `{_CLOSER[opener]}`",
            (Label(Span(self.source, at, at + 1), f"`{opener}` is opened here"),),
        )  # fmt: skip
        self.bad_lines.add(self._line)
        brackets.pop()
        token.type = self._types[_CLOSER[opener]]
        return True

    def _breaks_out(self, token: Token, line_start: int) -> bool:
        """Return True if a physical line that starts with `token` shows that an earlier bracket was not closed."""
        if token.type in _NEVER_INSIDE:
            return True
        if token.type != "FOR":
            return False
        text, outer = self.source.text, self._brackets[0][2]
        return _indent(text, line_start) <= _indent(text, outer)

    def _close_all(self, at: int) -> Iterator[Token]:
        opener, offset, _ = self._brackets[-1]
        self._note("E0102", f"`{opener}` is never closed", offset, offset + 1, f"`{_CLOSER[opener]}` is missing")
        self.bad_lines.add(self._line)
        while self._brackets:
            word = _CLOSER[self._brackets.pop()[0]]
            yield Token(self._types[word], at, at, word)
        yield Token("NEWLINE", at, at)
        self._line += 1

    # ------------------------------------------------------------ literals and strays

    def _number(self, text: str, start: int, end: int) -> Token:
        following = self.source.text[end : end + 1]
        if following.isalnum() or following == "_":
            rest = re.compile(r"\w*").match(self.source.text, end)
            stop = rest.end() if rest else end
            self._note("E0106", f"`{self.source.text[start:stop][:40]}` is not a number", start, stop)
            self.bad_lines.add(self._line)
            return Token("INT", start, end, 0)
        try:
            if text[:2].lower() in ("0x", "0o", "0b") or text.replace("_", "").isdigit():
                return Token("INT", start, end, literals.integer(text))
            return Token("FLOAT", start, end, literals.floating(text))
        except literals.BadLiteral as bad:
            self._note("E0106", str(bad), start, end)
        except ValueError:
            self._note("E0106", f"`{text[:40]}` is not a number", start, end)
        return Token("INT", start, end, 0)

    def _string(self, text: str, start: int, end: int) -> Token:
        try:
            return Token("STRING", start, end, literals.string(text))
        except literals.BadLiteral as bad:
            self._note("E0105", str(bad), start + bad.offset, end if not bad.offset else start + bad.offset + 2)
        return Token("STRING", start, end, "")

    def _unterminated(self, text: str, start: int, end: int) -> Token:
        quotes = text[:3] if text[:3] in ('"""', "'''") else text[0]
        self._note("E0105", "unterminated string", start, start + len(quotes), f"`{quotes}` is missing at its end")
        self.bad_lines.add(self._line)
        return Token("STRING", start, end, "")

    def _stray(self, char: str, start: int) -> None:
        if self._line in self.bad_lines:
            return
        self.bad_lines.add(self._line)
        name = unicodedata.name(char, "").lower()
        shown = f"`{char}`" if char.isprintable() and not char.isspace() else f"U+{ord(char):04X}"
        what = f"{shown} ({name})" if name and not char.isascii() else shown
        hint = None
        if "quotation mark" in name:
            hint = "strings take straight quotes, \" or '"
        elif char == "`":
            hint = "remove what is of Markdown, such as the fences around the text"
        elif char == "!":
            hint = "write `not` for negation"
        elif "space" in name:
            hint = "use an ordinary space"
        self._note("E0106", f"unexpected character {what}", start, start + 1, help=hint)

    def _note(
        self, code: str, message: str, start: int, end: int, text: str = "",
        related: tuple[Label, ...] = (), help: str | None = None,
    ) -> None:  # fmt: skip
        span = Span(self.source, start, max(end, start + 1))
        self.problems.append(error(code, message, span, text, related=related, help=help))
        if len(self.problems) >= MAX_PROBLEMS:
            raise StopLexing


def _width(blank: str, tab: int) -> int:
    """The width of leading blanks with tab stops every `tab` columns."""
    if "\t" not in blank and "\f" not in blank:
        return len(blank)
    width = 0
    for char in blank:
        if char == "\t":
            width = (width // tab + 1) * tab
        elif char == "\f":
            width = 0
        else:
            width += 1
    return width


def _indent(text: str, line_start: int) -> int:
    at = line_start
    while text[at : at + 1] in (" ", "\t"):
        at += 1
    return _width(text[line_start:at], 8)
