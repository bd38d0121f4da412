"""Every syntax error is a diagnostic of ours, at the right place, and several come from one run."""

from __future__ import annotations

import pytest

from mlcc.errors import CompileError, Diagnostic, Source
from mlcc.grammar.syntax.reader import parse_syntax


def errors(text: str, start: str = "module") -> list[tuple[str, int, int, str]]:
    """(code, line, column, message) of every diagnostic."""
    with pytest.raises(CompileError) as caught:
        parse_syntax(Source("t", text), start)
    return [place(d) for d in caught.value.diagnostics]


def place(diagnostic: Diagnostic) -> tuple[str, int, int, str]:
    span = diagnostic.primary.span
    assert span is not None
    return (diagnostic.code, *span.source.line_col(span.start), diagnostic.message)


@pytest.mark.parametrize(
    ("text", "code", "line", "column", "message"),
    [
        ("x = ", "E0101", 1, 4, "expected an expression"),
        ("f(a b)", "E0101", 1, 5, "expected `,` or `)`"),
        ("x = [1 2]", "E0101", 1, 8, "expected `,` or `]`"),
        ("x = {a b}", "E0101", 1, 8, "expected `:`"),
        ("x = f(", "E0102", 1, 6, "`(` is never closed"),
        ("def f()\n    pass", "E0101", 1, 8, "expected `:`"),
        ("def f(:\n    pass", "E0102", 1, 6, "`(` is never closed"),
        ("def (x):\n    pass", "E0101", 1, 5, "expected a name"),
        ("def f():\n  for i range(3):\n    pass", "E0101", 2, 9, "expected `in`"),
        ("x y", "E0101", 1, 3, "expected the end of the line"),
        ("x = a.", "E0101", 1, 7, "expected a name"),
        ("x = a if b", "E0101", 1, 11, "expected `else`"),
        ("f(]", "E0102", 1, 3, "`]` does not close `(`"),
        ("x = 1)", "E0102", 1, 6, "unmatched `)`"),
        ("def f():\nx = 1", "E0103", 1, 1, "expected an indented block after `def`"),
        ("def f():", "E0103", 1, 1, "expected an indented block after `def`"),
        ("x = 1\n  y = 2", "E0103", 2, 1, "unexpected indentation"),
        ("def f(): x\n    y", "E0103", 2, 5, "unexpected indentation"),
        ("def f():\n    x\n  y", "E0103", 3, 1, "the indentation does not match any enclosing block"),
        ("def f():\n        x\n\ty", "E0104", 3, 1, "inconsistent tabs and spaces"),
        ("x = 'abc", "E0105", 1, 5, "unterminated string"),
        ('x = """abc\ndef\n', "E0105", 1, 5, "unterminated string"),
        ("x = 'a\\xg'", "E0105", 1, 7, "a malformed escape in a string"),
        ("x = f'a'", "E0105", 1, 5, "f-strings are not part of the language"),
        ("x = b'a'", "E0105", 1, 5, "byte strings are not part of the language"),
        ("x = 0x", "E0106", 1, 5, "`0x` is not a number"),
        ("x = 1j", "E0106", 1, 5, "`1j` is not a number"),
        ("x = 012", "E0106", 1, 5, "a decimal integer cannot start with 0; octal is written 0o17"),
        ("x = 1__0", "E0106", 1, 5, "`1__0` is not a number"),
        ("x = " + "9" * 5000, "E0106", 1, 5, "an integer of 5000 digits is too large"),
        ("x = a ? b", "E0106", 1, 7, "unexpected character `?`"),
        ("x\u00a0= 1", "E0106", 1, 2, "unexpected character U+00A0 (no-break space)"),
        ("else:\n    pass", "E0101", 1, 1, "`else` without a matching `if`"),
        ("for i in x:\n    pass", "E0101", 1, 1, "`for` outside a function"),
        ("@T.prim_func\nx = 1", "E0101", 2, 1, "expected a function"),
        ("f() = 1", "E0109", 1, 1, "cannot assign to a call"),
        ("f(a=1, 2)", "E0109", 1, 8, "positional argument after a keyword argument"),
        ("f(a=1, a=2)", "E0109", 1, 8, "argument `a` is given twice"),
        ("def f(a, a):\n    pass", "E0109", 1, 10, "parameter `a` is given twice"),
        ("def f():\n    raise x", "E0110", 2, 5, "`raise` statements are not part of the language"),
        ("x = [i for i in y]", "E0110", 1, 8, "comprehensions are not part of the language"),
        ("x = \0", "E0108", 1, 5, "this is not a text"),
    ],
)
def test_single_errors_are_reported_at_their_place(text: str, code: str, line: int, column: int, message: str) -> None:
    assert errors(text) == [(code, line, column, message)]


def test_independent_errors_come_together() -> None:
    text = """\
def f(a):
    x =
    y = (1,
    z = 2
def g():
    return 1 2
    if a = b:
        good(1)
        bad(1 2)
    else:
        pass
    try:
        pass
    w = 3 $ 4
def h()
    for i in x:
        q.
"""
    assert [(code, line) for code, line, _, _ in errors(text)] == [
        ("E0101", 2), ("E0102", 3), ("E0101", 6), ("E0101", 7), ("E0101", 9), ("E0110", 12), ("E0106", 14),
        ("E0101", 15), ("E0101", 17),
    ]  # fmt: skip


def test_errors_come_with_hints() -> None:
    with pytest.raises(CompileError) as caught:
        parse_syntax(Source("t", "def f():\n    if a = b:\n        pass\n    in = 3\n"))
    assert [d.help for d in caught.value.diagnostics] == [
        "write `==` for a comparison",
        "`in` is a keyword and cannot be a name",
    ]
    with pytest.raises(CompileError, match="opened here"):
        parse_syntax(Source("t", "x = (1]"))
    with pytest.raises(CompileError, match="`lambda` is a keyword and cannot be a name"):
        parse_syntax(Source("t", "def lambda():\n    pass\n"))


@pytest.mark.parametrize(
    "text",
    [
        "(" * 10_000,
        "x = " + "[" * 10_000 + "]" * 10_000,
        "".join(f"{' ' * i}if x:\n" for i in range(300)) + " " * 300 + "pass\n",
        "def f():\n" + "".join(f"{' ' * (i + 1)}while x:\n" for i in range(10_000)) + " " * 10_001 + "pass\n",
        "x = " + "-" * 10_000 + "1",
        "x = " + "not " * 10_000 + "1",
        "x = a" + " + a" * 10_000,
        "x = a" + ".b" * 10_000,
        "x = a" + "()" * 10_000,
        "x = " + "a if b else " * 10_000 + "c",
        "x = " + "lambda: " * 10_000 + "c",
        "def f():\n    if a: b\n" + "    elif a: b\n" * 10_000,
    ],
)
def test_deep_nesting_is_an_error(text: str) -> None:
    found = errors(text)
    assert found[0][0] == "E0107" or found[0][3] == "`if` outside a function"


def test_long_but_flat_texts_are_fine() -> None:
    parse_syntax(Source("t", "x = [" + "1, " * 100_000 + "]"))
    parse_syntax(Source("t", "x = '" + "a" * 1_000_000 + "'"))
    parse_syntax(Source("t", "x = f(" + "a * b + c, " * 20_000 + ")"))


def test_many_errors_stop_early() -> None:
    assert len(errors("x = \n" * 1000)) == 20
    assert len(errors("x = $\n" * 1000)) == 20
