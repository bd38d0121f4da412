"""Highlighting knows the keywords of the grammar, and takes every text apart without a rest."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest

pygments = pytest.importorskip("pygments")
from pygments.token import Comment, Error, Keyword, Name, Number, Operator, String  # noqa: E402

from mlcc.grammar import token_rules  # noqa: E402
from mlcc.lsp import highlight  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
GRAMMAR = (ROOT / "grammar" / "mlc.lark").read_text()
TEXTS = sorted(
    [*(ROOT / "samples").rglob("*.mlc"), *(ROOT / "samples").rglob("*.mls"), *(ROOT / "tests").rglob("*.mls")]
)


def grammar_keywords() -> set[str]:
    rules = re.sub(r"//.*", "", GRAMMAR)
    return set(re.findall(r'"([A-Za-z]+)"', rules))


def kinds(text: str, lexer: type = highlight.MlcLexer) -> dict[str, object]:
    return {value: kind for kind, value in lexer().get_tokens(text)}


def test_keywords_are_those_of_the_grammar() -> None:
    known = {*token_rules.KEYWORDS, *token_rules.WORD_OPERATORS, *token_rules.IMPORTS, *token_rules.CONSTANTS}
    assert known == grammar_keywords()
    for word in known:
        assert kinds(word)[word] in (Keyword, Keyword.Namespace, Keyword.Constant, Operator.Word), word


@pytest.mark.parametrize("path", TEXTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_texts_are_taken_apart_without_a_rest(path: Path) -> None:
    text = path.read_text()
    lexer = highlight.MlsLexer if path.suffix == ".mls" else highlight.MlcLexer
    found = list(lexer(stripnl=False, ensurenl=False).get_tokens(text))
    assert "".join(value for _, value in found) == text
    assert not [value for kind, value in found if kind is Error]


def test_tokens_are_those_of_the_reader() -> None:
    """Names, numbers and strings are as long as the reader of the language has them."""
    from mlcc.lsp.document import Document

    for path in TEXTS[:20]:
        text = path.read_text()
        mine = [(at, at + len(v)) for at, _, v in highlight.MlcLexer(stripnl=False).get_tokens_unprocessed(text)]
        edges = {edge for place in mine for edge in place}
        for token in Document(text, str(path)).tokens:
            if token.type in ("INT", "FLOAT", "STRING"):
                assert (token.start, token.end) in mine, (path, text[token.start : token.end])
            assert {token.start, token.end} <= edges | {len(text)} or token.type in (
                "NEWLINE",
                "INDENT",
                "DEDENT",
                "NAME",
            )


def test_kinds() -> None:
    found = kinds(
        '# PASSES: fuse\n@T.prim_func\ndef f(A: T.Buffer((0x10, 1.5e-3), "float32")):\n    x = T.exp(R.nn.relu, "s")\n'
    )
    assert found["T.prim_func"] is Name.Decorator
    assert found["f"] is Name.Function
    assert found['"float32"'] is Keyword.Type
    assert found['"s"'] is String
    assert found["0x10"] is Number.Hex
    assert found["1.5e-3"] is Number.Float
    assert found["nn.relu"] is Name.Builtin
    assert found[" fuse"] is Comment.Preproc
    assert kinds("x = R.sum(y, axis=1)")["axis"] is Name.Attribute
    assert kinds("x = R.sum(y, axis=1)")["x"] is Name
    assert kinds("b = sch.get_block('C')", highlight.MlsLexer)["get_block"] is Name.Builtin


def test_pygments_finds_the_lexers_by_their_entry_points() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    for line in setup["options.entry_points"]["pygments.lexers"].strip().splitlines():
        module, _, name = line.partition("=")[2].strip().partition(":")
        assert module == highlight.__name__
        assert issubclass(getattr(highlight, name), pygments.lexer.RegexLexer)
