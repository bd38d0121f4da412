"""Error tests are written in the texts: `# error[E0203]: part of the message` on the line at fault. Nothing else may
be reported, and nothing announced may be missing.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import mlcc
from mlcc.codes import codes
from mlcc.errors import CompileError, render

HERE = Path(__file__).parent / "errors"
_ANNOUNCED = re.compile(r"# error\[(E\d{4})\]: ([^#\n]*)")


def announced_errors(text: str) -> list[tuple[int, str, str]]:
    return [
        (number, code, part.strip())
        for number, line in enumerate(text.split("\n"), 1)
        for code, part in _ANNOUNCED.findall(line)
    ]


@pytest.mark.parametrize("path", sorted(HERE.glob("*.mlc")), ids=lambda p: p.stem)
def test_announced_errors_are_reported(path: Path) -> None:
    with pytest.raises(CompileError) as caught:
        mlcc.parse(path)
    left = announced_errors(path.read_text())
    for diagnostic in caught.value.diagnostics:
        span = diagnostic.primary.span
        assert span is not None, diagnostic
        line = span.source.line_col(span.start)[0]
        match = next((a for a in left if a[:2] == (line, diagnostic.code) and a[2] in diagnostic.message), None)
        assert match is not None, render(diagnostic)
        left.remove(match)
        assert diagnostic.code in codes(diagnostic.code)
        assert not diagnostic.message.endswith(".")
    assert not left


@pytest.mark.parametrize(
    ("line", "help"),
    [
        ("T.evaluate(T.expp(x))", "did you mean `T.exp`?"),
        ("T.evaluate(xx)", "did you mean `x`?"),
        ("for i in T.paralel(4): pass", "did you mean `T.parallel`?"),
        ("for i in T.serial(4, anotations={}): pass", "did you mean `annotations`?"),
        ("T.evaluate(A.dtyp)", "did you mean `dtype`?"),
        ("T.evaluate(cls.ff())", "did you mean `f`?"),
        ("T.evaluate(n / 2)", "`//` rounds down, `T.truncdiv` toward zero"),
        ("T.evaluate(T.exp(n))", 'convert it: `T.Cast("float32", x)`'),
        ("...", "write the body; `pass` stands for one that does nothing"),
    ],
)
def test_diagnostics_suggest_a_correction(line: str, help: str) -> None:
    head = '@I.ir_module\nclass M:\n    @T.prim_func\n    def f(A: T.Buffer((4,), "int8"), x: T.float32, n: T.int32):\n'
    text = f"{head}        {line}\n"
    with pytest.raises(CompileError) as caught:
        mlcc.parse(text)
    assert [d.help for d in caught.value.diagnostics] == [help]


def test_the_binding_is_shown() -> None:
    text = "@T.prim_func\ndef f(n: T.int32):\n    for i in range(4):\n        pass\n    T.evaluate(i)\n"
    with pytest.raises(CompileError) as caught:
        mlcc.parse(text)
    (diagnostic,) = caught.value.diagnostics
    (related,) = diagnostic.related
    assert related.text == "`i` is bound here in a loop, and is visible in that loop only"
    assert related.span is not None
    assert related.span.source.line_col(related.span.start) == (3, 9)


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "import tvm\n"])
def test_texts_without_functions_are_refused(text: str) -> None:
    with pytest.raises(CompileError, match="E0207.*the text has no functions"):
        mlcc.parse(text)
    assert not mlcc.parse("@I.ir_module\nclass M:\n    pass\n").functions


@pytest.mark.parametrize(
    "body",
    [
        "T.evaluate(" + "-" * 10_000 + "1)",
        "T.evaluate(" + "(" * 10_000 + "1" + ")" * 10_000 + ")",
        "T.evaluate(n" + " + n" * 10_000 + ")",
        "T.evaluate(" + "T.max(n, " * 150 + "1" + ")" * 150 + ")\n    T.evaluate(q)",
        "".join(f"{' ' * (4 * k)}for a{k} in range(2):\n    " for k in range(1000)) + " " * 4000 + "pass",
        "T.evaluate(A" + "[0]" * 10_000 + ")",
        "T.evaluate(" + "9" * 100_000 + ")",
        "T.evaluate(" + " " * 1_000_000 + "q)",
        "T.func_attr({'a': " + "[" * 150 + "q" + "]" * 150 + "})",
        "T.evaluate(n" + " if n else n" * 300 + " if q else n)",
    ],
)
def test_extreme_texts_are_errors(body: str) -> None:
    with pytest.raises(CompileError):
        mlcc.parse(f'@T.prim_func\ndef f(A: T.Buffer((4,), "int8"), n: T.int32):\n    {body}\n')
