"""Diagnostics for a text that does not parse, with error recovery: every independent error is reported.

Tokens are grouped into logical lines. A line that the automaton refuses is reported and replaced by a valid line of the
same kind, so that the rest is still checked.
"""

from __future__ import annotations

from collections.abc import Iterator

from mlcc.errors import Diagnostic, Source, Span, error
from mlcc.grammar.syntax.automaton import Automaton
from mlcc.grammar.syntax.lexer import MAX_PROBLEMS, Lexer, StopLexing, Token

_EXPRESSION = {"NAME", "INT", "STRING"}  # where all of these may stand, an expression may
_CLOSERS = {"RPAR": "`)`", "RSQB": "`]`", "RBRACE": "`}`"}
_MARKS = {
    "COLON": "`:`",
    "IN": "`in`",
    "COMMA": "`,`",
    **_CLOSERS,
    "ELSE": "`else`",
    "EQUAL": "`=`",
    "IMPORT": "`import`",
}
# what Python has and the language does not, by the word that a statement starts with
_FOREIGN = {
    "try": "`try` statements", "except": "`try` statements", "finally": "`try` statements",
    "raise": "`raise` statements", "global": "`global` statements", "nonlocal": "`nonlocal` statements",
    "del": "`del` statements", "async": "`async` functions", "await": "`await` expressions",
    "yield": "`yield` expressions", "match": "`match` statements",
}  # fmt: skip


def find_errors(source: Source, automaton: Automaton, start: str) -> list[Diagnostic]:
    """All independent errors of a text that has at least one, by position."""
    lexer = Lexer(source, automaton.terminals)
    try:
        tokens = list(lexer.tokens())
    except StopLexing:
        return lexer.problems
    states = automaton.begin(start)
    problems = list(lexer.problems)
    groups = list(_groups(tokens))
    last: Token | None = None  # of the line before
    dropped: list[bool] = []  # of each open indentation: whether its INDENT was refused
    line = 0
    for at, group in enumerate(groups):
        kind = group[0].type
        if kind == "DEDENT" and dropped and dropped.pop():
            continue
        saved = list(states)
        spoiled = line in lexer.bad_lines and kind not in ("INDENT", "DEDENT", "$END")
        failed = 0 if spoiled else _feed(automaton, states, group)
        if kind == "INDENT":
            dropped.append(failed is not None)
        if failed is not None:
            if line not in lexer.bad_lines:
                at_end = last if kind in ("DEDENT", "$END") else None
                problems.append(_describe(source, automaton, list(saved), group, failed, start, at_end))
            states = saved
            if kind != "INDENT":
                states = _stand_in(automaton, states, at + 1 < len(groups) and groups[at + 1][0].type == "INDENT")
            if kind == "DEDENT":
                _feed(automaton, states, group)
        if group[-1].type == "NEWLINE":
            line += 1
            last = group[-2] if len(group) > 1 else last
        if len(problems) >= MAX_PROBLEMS:
            break
    return sorted(problems, key=lambda d: d.primary.span.start if d.primary.span else 0)


def _groups(tokens: list[Token]) -> Iterator[list[Token]]:
    """Logical lines up to their NEWLINE; each other layout token by itself."""
    line: list[Token] = []
    for token in tokens:
        line.append(token)
        if token.type in ("NEWLINE", "INDENT", "DEDENT", "$END"):
            yield line
            line = []


def _feed(automaton: Automaton, states: list[int], tokens: list[Token]) -> int | None:
    """The index of the first token that the automaton refuses, or None."""
    for at, token in enumerate(tokens):
        if not automaton.step(states, token.type):
            return at
    return None


def _stand_in(automaton: Automaton, states: list[int], header: bool) -> list[int]:
    """The states after some line that is allowed here, one that opens a block if `header`."""
    if header:
        shapes = ("IF NAME COLON NEWLINE", "DEF NAME LPAR RPAR COLON NEWLINE")
    else:
        shapes = ("PASS NEWLINE", "DEF NAME LPAR RPAR COLON PASS NEWLINE")
    for shape in shapes:
        tried = list(states)
        if all(automaton.step(tried, kind) for kind in shape.split()):
            return tried
    return states


def _describe(
    source: Source, automaton: Automaton, states: list[int], group: list[Token], failed: int, start: str,
    last: Token | None,
) -> Diagnostic:  # fmt: skip
    """The error at a token of `group`; at the end of a block or of the text it is placed after `last`."""
    help: str | None
    _feed(automaton, states, group[:failed])
    accepted = automaton.accepted(states)
    token = group[failed]
    span = Span(source, token.start, max(token.end, token.start + 1))
    before = group[failed - 1] if failed else last
    if last is not None:
        span = Span(source, last.end, last.end + 1)
    foreign = _FOREIGN.get(str(group[0].value)) if group[0].type == "NAME" and failed <= 2 else None
    if foreign is not None:
        first = group[0]
        return error("E0110", f"{foreign} are not part of the language", Span(source, first.start, first.end))
    if token.type == "FOR" and failed:
        help = "write the items one by one"
        return error("E0110", "comprehensions are not part of the language", span, help=help)
    if token.type == "INDENT":
        return error("E0103", "unexpected indentation", span, "the block of this line was written after its `:`")
    if failed == 0 and token.type in ("ELSE", "ELIF"):
        return error("E0101", f"`{token.value}` without a matching `if`", span)
    if accepted and accepted <= {"AT", "DEF", "CLASS"}:
        module = "this looks like a module: a schedule script calls primitives, `sch.split(...)`"
        label, help = "a decorator stands before `def` or `class`", module if start == "script" else None
        return error("E0101", "expected a function", span, label, help=help)
    if failed == 0 and token.type in ("FOR", "WHILE", "IF", "WITH", "CLASS"):
        where = "in a schedule script" if start == "script" else "inside a function or class"
        message = f"a class is not allowed {where}" if token.type == "CLASS" else f"`{token.value}` outside a function"
        return error("E0101", message, span, help=_foreign_hint(source, token, failed))
    if token.type in ("NEWLINE", "$END", "DEDENT"):
        label = "the line ends here"
        at = before.end if before is not None else token.start
        span = Span(source, at, at + 1)
    else:
        label = f"unexpected {'name ' if token.type == 'NAME' else ''}`{source.text[token.start : token.end][:40]}`"
    help = _hint(token, accepted) or _foreign_hint(source, token, failed)
    return error("E0101", f"expected {_words(accepted, failed)}", span, label, help=help)


def _foreign_hint(source: Source, token: Token, failed: int) -> str | None:
    from mlcc.grammar.syntax.slips import conflict_hint, token_hint

    number, column = source.line_col(token.start)
    line = source.line(number)
    word = source.text[token.start : token.end]
    return (conflict_hint(line) if failed == 0 else None) or token_hint(line, word, line[: column - 1], failed == 0)


def _words(accepted: set[str], failed: int) -> str:
    """Describe the expected tokens for a message, without every operator that might continue an expression."""
    if accepted >= _EXPRESSION:
        words = ["a statement"] if failed == 0 else ["an expression"]
        words += [mark for name, mark in _CLOSERS.items() if name in accepted]
    elif "NEWLINE" in accepted:
        words = ["the end of the line"]
    elif "NAME" in accepted:
        words = ["a name"] + [mark for name, mark in _CLOSERS.items() if name in accepted]
    elif "COLON" in accepted and not accepted & set(_CLOSERS):
        words = ["`:`"]
    else:
        words = [mark for name, mark in _MARKS.items() if name in accepted and (name != "EQUAL" or len(accepted) == 1)]
        if "OPERATOR" in accepted:
            words = [mark for mark in words if mark != "`in`"]  # one operator of many
        elif "IN" in accepted:
            words = ["`in`"]
    words = words or sorted(f"`{name.lower()}`" for name in accepted) or ["nothing more"]
    return " or ".join(words) if len(words) < 3 else ", ".join(words[:-1]) + " or " + words[-1]


def _hint(token: Token, accepted: set[str]) -> str | None:
    if token.type == "EQUAL" and "EQUAL" not in accepted:
        return "write `==` for a comparison"
    if "NAME" in accepted and token.type.isalpha() and str(token.value).isidentifier() and token.type != "NAME":
        return f"`{token.value}` is a keyword and cannot be a name"
    return None
