"""Rewrite older spellings of a text as today's: `upgraded_text`.

Only tokens change, so layout and comments stay. The result is read again and must mean what the text did.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Iterator

from mlcc.errors import CompileError, Source, error
from mlcc.grammar.parser import parse
from mlcc.grammar.printer.writer import DIALECTS
from mlcc.grammar.relax.types import BARE
from mlcc.grammar.syntax.lexer import Lexer, Token
from mlcc.grammar.syntax.reader import parse_syntax
from mlcc.grammar.syntax.version import VERSION, version_line, version_of
from mlcc.ir.equal import structural_equal
from mlcc.passes.schedule.registry import ALIASES

Edit = tuple[int, int, str]  # start, end, replacement

_TVM, _MLCC = DIALECTS["tvm"], DIALECTS["mlcc"]
_LAYOUT = frozenset({"NEWLINE", "INDENT", "DEDENT", "$END"})
_TERMINALS = {word: word.upper() for word in keyword.kwlist}
_ROOTS = {
    "tvm.script.tirx": "T", "tvm.script.tir": "T", "tvm.tirx": "T", "tvm.tir": "T", "tirx": "T", "tir": "T",
    "tvm.script.relax": "R", "tvm.relax": "R", "relax": "R", "tvm.script.ir": "I", "tvm.ir": "I", "tvm.script": "I",
    "ir": "I",
}  # fmt: skip
_NAMES = {_TVM.block: _MLCC.block, _TVM.block_attr: _MLCC.block_attr, _TVM.anything: _MLCC.anything}
_TIRX_NAMES = {_TVM.block_alloc: _MLCC.block_alloc, _TVM.alloc: _MLCC.alloc}
_KEYWORDS = {_TVM.out_sinfo: _MLCC.out_sinfo, _TVM.sinfo_args: _MLCC.sinfo_args}
_TIRX_IMPORT = re.compile(
    r"(from[ \t]+tvm\.script[ \t]+import[ \t]+(?:[\w, ]+,[ \t]*)?)tirx\b|(tvm\.(?:script\.)?)tirx\b"
)
_IMPORT_LINE = re.compile(r"(?m)^[ \t]*#?[ \t]*(?:from|import)[ \t][^\r\n]*tirx[^\r\n]*\r?$")


def upgraded_text(text: str, name: str, folder: str | None = None) -> str:
    """Return a module's text in today's spelling, with the version at its top.

    Raises CompileError for a text that is not read, and E0112 if a rewriting would change what it means: the text has
    to be rewritten by hand then, and is read as it is.
    """
    before = parse(text, name=name, folder=folder)
    made = _with_edits(text, sorted({*_spelling(text, name), *_version(text)}))
    try:
        after = parse(made, name=name, folder=folder)
    except CompileError as exc:
        raise _changed(name, exc.diagnostics[0].message) from None
    if not structural_equal(before, after):
        raise _changed(name, "it would mean another program")
    if len(_comments(made)) < len(_comments(text)):
        raise _changed(name, "a comment stands inside of a form that is written in another way today")
    return made


def _comments(text: str) -> list[str]:
    """The comments of a text but its version."""
    found = version_of(text)
    comments = parse_syntax(Source("<text>", text)).comments
    return [content for start, _, content in comments if found is None or start != found[1]]


def upgraded_script(text: str, name: str) -> str:
    """Return a schedule script with today's names of primitives, and the version at its top. Raises CompileError."""
    source = Source(name, text)
    parse_syntax(source, start="script")
    tokens = _tokens(source)
    edits = [
        (token.start, token.end, ALIASES[word])
        for at, token in enumerate(tokens)
        if (word := text[token.start : token.end]) in ALIASES and at and text[tokens[at - 1].start] == "."
    ]
    made = _with_edits(text, sorted([*edits, *_version(text)]))
    parse_syntax(Source(name, made), start="script")
    return made


def _changed(name: str, why: str) -> CompileError:
    help = "it stays as it is, and is read as it is; `mlcc passes FILE -p ''` prints today's text, without comments"
    return CompileError(error("E0112", f"{name} cannot be upgraded with its comments: {why}", help=help, file=name))


def _with_edits(text: str, edits: Iterable[Edit]) -> str:
    pieces, at = [], 0
    for start, end, replacement in edits:
        if start < at:  # inside of what another edit replaced, as it was
            continue
        pieces += [text[at:start], replacement]
        at = end
    return "".join([*pieces, text[at:]])


def _version(text: str) -> Iterator[Edit]:
    """State the version: on the first line, or in the comment of an older one."""
    found = version_of(text)
    if found is None:
        start = len(text) - len(text.removeprefix("\ufeff"))
        is_crlf = text.partition("\n")[0].endswith("\r")
        yield start, start, version_line().replace("\n", "\r\n") if is_crlf else version_line()
    elif found[0] != VERSION:
        yield found[1], found[2], version_line().rstrip()


def _tokens(source: Source) -> list[Token]:
    """The tokens of a text without its layout. Names and keywords have their own text as type or value."""
    return [t for t in Lexer(source, _TERMINALS).tokens() if t.type not in _LAYOUT]


def _spelling(text: str, name: str) -> Iterator[Edit]:
    """The edits from older spellings to today's."""
    tokens = _tokens(Source(name, text))
    words = [text[t.start : t.end] for t in tokens]
    head = tokens[0].start if tokens else 0
    is_tirx = bool(re.search(r"(?m)^[ \t]*#.*\btirx\b", text[:head])) or "tirx" in words
    yield from _imports(text)
    names = {**_NAMES, **_TIRX_NAMES} if is_tirx else {**_NAMES, _TVM.block_alloc: _MLCC.block_alloc}
    rewriter = _Rewriter(text, tokens, words, names, is_tirx)
    yield from rewriter.edits()


def _imports(text: str) -> Iterator[Edit]:
    """`tir` for `tirx` in lines that import it, comments or statements; and the block in the printer's comments."""
    for line in _IMPORT_LINE.finditer(text):
        changed = _TIRX_IMPORT.sub(lambda m: f"{m[1] or m[2]}tir", line[0])
        if changed != line[0]:
            yield line.start(), line.end(), changed
    for block in re.finditer(r'#[ \t]*with T\.(sblock)\("root"\):', text):  # as the printer writes it
        yield block.start(1), block.end(1), "block"


class _Rewriter:
    """The edits of one text, whose tokens are `words`."""

    def __init__(self, text: str, tokens: list[Token], words: list[str], names: dict[str, str], is_tirx: bool) -> None:
        self.text, self.tokens, self.words = text, tokens, words
        self.names, self.is_tirx = names, is_tirx
        self.closes = self._brackets()
        self.imports = {
            at
            for line in re.finditer(r"(?m)^[ \t]*(?:from|import)[ \t][^\r\n]*\r?$", text)
            for at, token in enumerate(tokens)
            if line.start() <= token.start < line.end()
        }

    def _brackets(self) -> dict[int, int]:
        """The closing bracket of each opening one."""
        closes, opened = {}, []
        for at, word in enumerate(self.words):
            if word in ("(", "[", "{"):
                opened.append(at)
            elif word in (")", "]", "}") and opened:
                closes[opened.pop()] = at
        return closes

    def edits(self) -> Iterator[Edit]:
        at = 0
        while at < len(self.words):
            end = self._path_end(at)
            if end and at not in self.imports:
                yield from self._path(at, end)
                at = end
            else:
                at += 1

    def _path_end(self, at: int) -> int:
        """The token behind the dotted name that starts at a token, or 0."""
        if not self.words[at].isidentifier() or keyword.iskeyword(self.words[at]):
            return 0
        if at and self.words[at - 1] == ".":
            return 0
        end = at + 1
        while end + 1 < len(self.words) and self.words[end] == "." and self.words[end + 1].isidentifier():
            end += 2
        return end

    def _path(self, at: int, end: int) -> Iterator[Edit]:
        path = "".join(self.words[at:end])
        follower = self.words[end] if end < len(self.words) else ""
        if follower == "=" and path in _KEYWORDS:
            yield self._replace(at, end, _KEYWORDS[path])
            return
        new = self._today(path, follower)
        if path == "TypeVar" and follower == "(":
            yield from self._type_variable(at, end)
        elif new in ("T.prim_func",) and at and self.words[at - 1] == "@":
            yield from self._decorator(at, end, new)
        elif new == "T.Buffer" and follower == "[":
            yield self._replace(at, end, new)
            yield self._replace(end, end + 1, "(")
            yield self._replace(self.closes[end], self.closes[end] + 1, ")")
        elif new == "T.let" and follower == "[":
            close = self.closes[end]
            yield self.tokens[at].start, self.tokens[end].end, ""
            yield self._replace(close, close + 1, "")
        elif new != path:
            yield self._replace(at, end, new)
        if new == "R.call_tir" and follower == "(":
            yield from self._call_tir(end)

    def _today(self, path: str, follower: str) -> str:
        """Today's spelling of a dotted name."""
        if path in BARE and follower in ("(", ",", ")", ":", "]", "[", "=", ""):
            path = f"R.{path}" if follower != "=" else path
        if path == "Buffer" and follower in ("(", "["):
            path = "T.Buffer"
        for root, short in _ROOTS.items():
            if path.startswith(root + "."):
                path = f"{short}{path[len(root) :]}"
                break
        return self.names.get(path, path)

    def _replace(self, at: int, end: int, new: str) -> Edit:
        return self.tokens[at].start, self.tokens[end - 1].end, new

    def _type_variable(self, at: int, end: int) -> Iterator[Edit]:
        """`T.int64()` for `TypeVar("n")`."""
        close = self.closes[end]
        if close == end + 2:
            yield self.tokens[at].start, self.tokens[close].end, "T.int64()"

    def _decorator(self, at: int, end: int, new: str) -> Iterator[Edit]:
        """`@T.prim_func` for `@T.prim_func(s_tir=True)`, and `(s_tir=False)` where TVM 0.27 leaves it out."""
        has_arguments = end < len(self.words) and self.words[end] == "("
        arguments = self._arguments(end) if has_arguments else []
        kept = [a for a in arguments if self._source(a).replace(" ", "") != "s_tir=True"]
        if self.is_tirx and not any(self._source(a).lstrip().startswith("s_tir") for a in arguments):
            shown = [*map(self._source, kept), _MLCC.plain_prim_func]
        elif len(kept) == len(arguments):
            if new != "".join(self.words[at:end]):
                yield self._replace(at, end, new)
            return
        else:
            shown = [*map(self._source, kept)]
        last = self.closes[end] + 1 if has_arguments else end
        yield self._replace(at, last, f"{new}({', '.join(shown)})" if shown else new)

    def _arguments(self, opening: int) -> list[tuple[int, int]]:
        """The arguments between brackets, as ranges of tokens."""
        close, at, start = self.closes[opening], opening + 1, opening + 1
        found = []
        while at < close:
            if self.words[at] == ",":
                found.append((start, at))
                start = at + 1
            at = self.closes[at] + 1 if at in self.closes else at + 1
        if start < close:
            found.append((start, close))
        return found

    def _source(self, argument: tuple[int, int]) -> str:
        start, end = argument
        return self.text[self.tokens[start].start : self.tokens[end - 1].end]

    def _call_tir(self, opening: int) -> Iterator[Edit]:
        """`out_sinfo=R.Tensor(shape, dtype)` for a shape as third argument and `dtype=`."""
        arguments = self._arguments(opening)
        dtype = next((a for a in arguments if self.words[a[0] : a[0] + 2] == ["dtype", "="]), None)
        if dtype is None or len(arguments) < 4 or "=" in self.words[arguments[2][0] : arguments[2][0] + 2]:
            return
        shape, wanted = arguments[2], (dtype[0] + 2, dtype[1])
        if self.words[shape[0]] == "[":
            shapes, dtypes = self._arguments(shape[0]), self._arguments(wanted[0])
            if len(shapes) != len(dtypes):
                return
            infos = [self._tensor(s, d) for s, d in zip(shapes, dtypes, strict=True)]
            new = f"out_sinfo=[{', '.join(infos)}]"
        else:
            new = f"out_sinfo={self._tensor(shape, wanted)}"
        yield self._replace(*shape, new)
        yield self.tokens[dtype[0] - 1].start, self.tokens[dtype[1] - 1].end, ""

    def _tensor(self, shape: tuple[int, int], dtype: tuple[int, int]) -> str:
        return f"R.Tensor({self._source(shape)}, {self._source(dtype)})"
