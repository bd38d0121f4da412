"""The names of a text and where they are defined, found in its tokens, so that incomplete texts have them too."""

from __future__ import annotations

import bisect
import contextlib
import functools
import keyword
from collections.abc import Iterator
from dataclasses import dataclass, field

from mlcc.errors import Source
from mlcc.grammar.syntax.lexer import Lexer, StopLexing, Token

_TERMINALS = {word: word.upper() for word in keyword.kwlist} | {
    ":": "COLON",
    "@": "AT",
    ")": "RPAR",
    "]": "RSQB",
    "}": "RBRACE",
}
_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")
MODULES = frozenset({"R", "T", "I", "relax", "tir", "ir"})  # the names of parts of the language


@dataclass(eq=False, slots=True)
class Definition:
    """A name and the range in which it is known. `whole` is the text that it stands for: a function with its body."""

    name: str
    kind: str  # `class`, `function`, `parameter`, `size`, `loop`, `block`, `variable`
    start: int
    end: int
    visible: int  # from here on
    whole: tuple[int, int] = (0, 0)
    inside: Definition | None = None  # the function, or class, around it
    statement: tuple[int, int] = (0, 0)  # its line
    callee: str = ""  # of `x = callee(...)`


@dataclass(slots=True)
class _Line:
    """The tokens of a logical line, or of a part of it between semicolons."""

    tokens: list[Token]
    end: int
    opens: list[Definition] = field(default_factory=list)  # whose body follows


@dataclass(frozen=True, slots=True)
class Call:
    """The call around a position: the dotted name of its function, the argument there, and the keywords given."""

    callee: str
    argument: int
    keyword: str | None
    given: frozenset[str]


class Document:
    """A text in the language of `.mlc` files, or a schedule script."""

    def __init__(self, text: str, name: str = "<text>") -> None:
        self.text = text
        self.name = name
        self.is_script = name.endswith(".mls")
        lexer = Lexer(Source(name, text), _TERMINALS)
        self.tokens: list[Token] = []
        with contextlib.suppress(StopLexing):
            self.tokens += lexer.tokens()
        self.comments = lexer.comments
        self._words = [t for t in self.tokens if t.end > t.start and t.type != "NEWLINE"]
        self._starts = [t.start for t in self._words]

    # ------------------------------------------------------------ tokens

    def token_at(self, offset: int) -> Token | None:
        """Return the token that holds an offset, or ends there; a name comes before punctuation."""
        at = self._index(offset)
        for token in self._words[max(at - 1, 0) : at + 1][::-1]:
            if token.start <= offset <= token.end and is_name(token):
                return token
        for token in self._words[max(at - 1, 0) : at + 1][::-1]:
            if token.start <= offset < token.end:
                return token
        return None

    def comment_at(self, offset: int) -> tuple[int, int, str] | None:
        """Return the comment that holds an offset, or ends there."""
        return next((c for c in self.comments if c[0] <= offset <= c[1]), None)

    def string_at(self, offset: int) -> Token | None:
        """Return the string whose quotes are around an offset."""
        at = self._index(offset)
        token = self._words[at] if 0 <= at < len(self._words) else None
        if token is None or token.type != "STRING" or not token.start < offset <= token.end:
            return None
        written = self.text[token.start : token.end]
        closed = len(written) > 1 and written[-1] == written[0]
        return token if offset < token.end or not closed else None

    def string_range(self, offset: int) -> tuple[int, int]:
        """Return the range of what is between the quotes around an offset."""
        token = self.string_at(offset)
        return (offset, offset) if token is None else (token.start + 1, token.end - 1)

    def size_at(self, offset: int) -> Definition | None:
        """Return the definition of the size that is the quoted word at an offset, as in `R.Tensor(("n", 4))`."""
        token = self.string_at(offset)
        found = None if token is None else self.resolve(str(token.value), offset)
        return found if found is not None and found.kind == "size" else None

    def dotted_at(self, offset: int) -> tuple[str, Token] | None:
        """Return the dotted name around an offset, whole, and the token of it that is there."""
        here = self.token_at(offset)
        if here is None or not is_name(here):
            return None
        at = self._index(here.start)
        first = last = at
        while first >= 2 and self._is_dot(first - 1) and is_name(self._words[first - 2]):
            first -= 2
        while last + 2 < len(self._words) and self._is_dot(last + 1) and is_name(self._words[last + 2]):
            last += 2
        return "".join(str(t.value) for t in self._words[first : last + 1]), here

    def prefix_at(self, offset: int) -> str:
        """Return the dotted name that ends at an offset, such as `R.nn.` or `sch.sp`."""
        at = offset
        while at > 0 and (self.text[at - 1].isalnum() or self.text[at - 1] in "_."):
            at -= 1
        return self.text[at:offset]

    def call_at(self, offset: int) -> Call | None:
        """Return the innermost call whose arguments hold an offset."""
        at = bisect.bisect_left(self._starts, offset) - 1
        depth, commas, given = 0, 0, set[str]()
        word: str | None = None
        while at >= 0:
            value = self._words[at].value if self._words[at].type != "STRING" else ""
            if value in _CLOSE:
                depth += 1
            elif value in _OPEN and depth:
                depth -= 1
            elif value in _OPEN:
                before = self._words[at - 1] if at else None
                if value == "(" and before is not None and is_name(before):
                    if at > 1 and self._words[at - 2].type in ("DEF", "CLASS"):
                        return None
                    found = self.dotted_at(before.start)
                    return Call(found[0] if found else "", commas, word, frozenset(given))
                depth, commas, word = 0, 0, None
                given.clear()
            elif depth == 0 and value == ",":
                commas += 1
            elif depth == 0 and value == "=" and at and is_name(self._words[at - 1]):
                given.add(str(self._words[at - 1].value))
                word = str(self._words[at - 1].value) if not commas and word is None else word
            elif self._words[at].type in ("DEF", "CLASS", "RETURN", "WITH"):
                return None
            at -= 1
        return None

    def _index(self, offset: int) -> int:
        """The last token that starts at or before an offset."""
        return bisect.bisect_right(self._starts, offset) - 1

    def _is_dot(self, at: int) -> bool:
        return self._words[at].value == "." and self._words[at].type != "STRING"

    # ------------------------------------------------------------ definitions

    @functools.cached_property
    def definitions(self) -> list[Definition]:
        """All definitions, in the order of the text."""
        return list(_Definitions(self.tokens, len(self.text)).read())

    def around(self, offset: int) -> Definition | None:
        """Return the innermost function, or else class, whose text holds an offset."""
        holders = [
            d for d in self.definitions if d.kind in ("function", "class") and d.whole[0] <= offset <= d.whole[1]
        ]
        return holders[-1] if holders else None

    def resolve(self, name: str, offset: int) -> Definition | None:
        """Return the definition that a name at an offset refers to."""
        named = [d for d in self.definitions if d.name == name and d.kind != "block"]
        for d in named:
            if d.start <= offset <= d.end:
                return d
        scope = self.around(offset)
        while scope is not None:
            inside = [d for d in named if d.inside is scope]
            before = [d for d in inside if d.visible <= offset]
            if before or (inside and scope.kind == "function"):
                return before[-1] if before else inside[0]
            scope = scope.inside
        outside = [d for d in named if d.inside is None or d.kind == "function"]
        return outside[-1] if outside else None

    def definition_at(self, offset: int) -> Definition | None:
        """Return the definition of what is at an offset: a name, a function of the module, a quoted size, a block."""
        found = self.block_at(offset) or self.size_at(offset)
        dotted = self.dotted_at(offset)
        if found is not None or dotted is None:
            return found
        path, token = dotted
        root, _, rest = path.partition(".")
        if not self._follows_dot(token):
            return self.resolve(root, offset)
        holder = self.resolve(root, offset)
        if root == "cls" or (holder is not None and holder.kind == "class"):
            name = rest.partition(".")[0]
            return next((d for d in self.definitions if d.kind == "function" and d.name == name), None)
        return None

    def _follows_dot(self, token: Token) -> bool:
        at = self._index(token.start)
        return at > 0 and self._is_dot(at - 1)

    def block_at(self, offset: int) -> Definition | None:
        """Return the block whose name is the string at an offset."""
        return next((d for d in self.definitions if d.kind == "block" and d.start <= offset <= d.end), None)

    def in_scope(self, offset: int) -> list[Definition]:
        """Return what a name at an offset may refer to, innermost first, each name once."""
        found: dict[str, Definition] = {}
        scope = self.around(offset)
        while True:
            for d in reversed(self.definitions):
                if d.inside is scope and d.kind != "block" and (d.visible <= offset or d.kind == "function"):
                    found.setdefault(d.name, d)
            if scope is None:
                return list(found.values())
            scope = scope.inside


def is_name(token: Token) -> bool:
    """Return True for a name, False for keywords, punctuation and literals."""
    return token.type == "NAME" and isinstance(token.value, str) and token.value.isidentifier()


class _Definitions:
    """Reads the definitions of a list of tokens, line by line."""

    def __init__(self, tokens: list[Token], end: int) -> None:
        self._tokens = tokens
        self._end = end
        self._open: list[list[Definition]] = []  # for each block of lines around: whose body it is
        self._scopes: list[Definition] = []

    def read(self) -> Iterator[Definition]:
        line: list[Token] = []
        waiting: list[Definition] = []
        line_end = 0
        for token in self._tokens:
            if token.type == "INDENT":
                self._open.append(waiting)
                waiting = []
            elif token.type == "DEDENT":
                self._close(line_end)
            elif token.type in ("NEWLINE", "$END"):
                if line:
                    line_end = line[-1].end
                    waiting = []
                    for d in self._line(line):
                        if d.whole[1]:
                            waiting.append(d)
                        yield d
                    self._scopes += [d for d in waiting if d.kind in ("function", "class")]
                    if line[-1].value != ":":  # the body is on the line, or is still to be written
                        self._finish(waiting, line_end)
                        waiting = []
                line = []
            else:
                line.append(token)
        while self._open:
            self._close(self._end)

    def _close(self, end: int) -> None:
        if self._open:
            self._finish(self._open.pop(), end)

    def _finish(self, ended: list[Definition], end: int) -> None:
        for d in ended:
            d.whole = (d.whole[0], max(end, d.whole[1]))
            if d in self._scopes:
                self._scopes.remove(d)

    def _define(self, token: Token, kind: str, line: list[Token], visible: int, whole: bool = False) -> Definition:
        return Definition(
            str(token.value), kind, token.start, token.end, visible,
            (line[0].start, line[-1].end) if whole else (0, 0),
            self._scopes[-1] if self._scopes else None, (line[0].start, line[-1].end),
        )  # fmt: skip

    def _line(self, line: list[Token]) -> Iterator[Definition]:
        head = line[0].type
        if head in ("DEF", "CLASS") and len(line) > 1 and is_name(line[1]):
            made = self._define(line[1], "function" if head == "DEF" else "class", line, line[0].start, whole=True)
            yield made
            if head == "DEF":
                for parameter in self._parameters(line):
                    parameter.inside = made
                    yield parameter
        elif head == "FOR":
            stop = next((i for i, t in enumerate(line) if t.type == "IN"), len(line))
            for token in line[1:stop]:
                if is_name(token):
                    yield self._define(token, "loop", line, token.start)
        elif head == "WITH":
            yield from self._with(line)
        else:
            yield from self._assigned(line)

    def _parameters(self, line: list[Token]) -> Iterator[Definition]:
        depth = 0
        for before, token in zip(line[1:], line[2:], strict=False):
            if token.type == "STRING":
                if depth and str(token.value).isidentifier() and before.value in ("(", ",", "["):
                    text = str(token.value)
                    size = Token("NAME", token.start + 1, token.end - 1, text)
                    if text not in _DTYPES:
                        yield self._define(size, "size", line, line[0].start)
                continue
            if is_name(token) and depth == 1 and before.value in ("(", ","):
                yield self._define(token, "parameter", line, token.start)
            depth += (token.value in _OPEN) - (token.value in _CLOSE)

    def _with(self, line: list[Token]) -> Iterator[Definition]:
        for at, token in enumerate(line):
            if token.type == "STRING" and [t.value for t in line[max(at - 2, 0) : at]] in _BLOCK_HEADS:
                name = Token("NAME", token.start + 1, token.end - 1, str(token.value))
                yield self._define(name, "block", line, token.start, whole=True)
            elif token.type == "AS":
                for target in line[at + 1 :]:
                    if target.value in (":",):
                        break
                    if is_name(target):
                        yield self._define(target, "variable", line, target.start)

    def _assigned(self, line: list[Token]) -> Iterator[Definition]:
        depth = 0
        last = start = 0
        annotated = None
        for at, token in enumerate(line):
            if token.type == "STRING":
                continue
            depth += (token.value in _OPEN) - (token.value in _CLOSE)
            if depth == 0 and token.value == "=":
                last = at
                yield from self._targets(line, start, annotated or at)
                start, annotated = at + 1, None
            elif depth == 0 and token.value == ":" and annotated is None and not last:
                annotated = at
            elif token.value == ";":
                yield from self._rest(line, start, last, annotated)
                start, last, annotated = at + 1, 0, None
        yield from self._rest(line, start, last, annotated)

    def _rest(self, line: list[Token], start: int, last: int, annotated: int | None) -> Iterator[Definition]:
        if annotated is not None and not last:  # `x: T.int32`
            yield from self._targets(line, start, annotated)

    def _targets(self, line: list[Token], start: int, stop: int) -> Iterator[Definition]:
        targets = line[start:stop]
        if any(not is_name(t) and t.value not in (",", "(", ")", "*", "[", "]") for t in targets):
            return
        names = [t for t in targets if is_name(t)]
        if len(names) == 1 and len(targets) > 1 and targets[0] is names[0] and targets[1].value != ",":
            return  # `A[i] = ...` stores into what is defined elsewhere
        if targets and is_name(targets[0]) and len(targets) > 1 and targets[1].value in ("[", "("):
            return
        callee = ""
        for token in line[stop + 1 :]:
            if not is_name(token) and token.value != ".":
                break
            callee += str(token.value)
        for token in names:
            made = self._define(token, "variable", line, line[-1].end)
            made.callee = callee
            yield made


_BLOCK_HEADS = (["block", "("], ["sblock", "("])
_DTYPES = frozenset(
    {*(f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64)), "bfloat16", "bool", "handle"}
)
