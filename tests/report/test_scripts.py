"""Parts of the page's program, run alone in a browser and judged by Python."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import mlcc.report
from mlcc.grammar.token_rules import TOKEN_RULES
from tests.report import browser as chromium
from tests.report.browser import Page

ROOT = Path(__file__).resolve().parents[2]
ASSETS = Path(mlcc.report.__file__).parent / "assets"
TEXTS = sorted([*(ROOT / "samples").rglob("*.mlc"), *(ROOT / "tests" / "grammar").rglob("*.mlc")])

pytestmark = pytest.mark.skipif(not chromium.CHROMIUM, reason="needs chromium")


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with chromium.browser() as page:
        yield page


def call(page: Page, script: str, expression: str, *arguments: Any) -> Any:
    """Evaluate an expression over a script's exports `it` and the arguments `given`."""
    source = base64.b64encode((ASSETS / f"{script}.js").read_bytes()).decode()
    return page.evaluate(
        f"import('data:text/javascript;base64,{source}').then((it) => {{ "
        f"const given = {json.dumps(arguments)}; return {expression}; }})"
    )


def common(left: list[str], right: list[str]) -> int:
    """The length of a longest common subsequence."""
    row = [0] * (len(right) + 1)
    for a in left:
        above, row = row, [0]
        for k, b in enumerate(right):
            row.append(above[k] + 1 if a == b else max(above[k + 1], row[k]))
    return row[-1]


def test_differences_are_right_and_smallest(page: Page) -> None:
    random = Random(7)
    pairs = [([], []), ([], ["a"]), (["a"], []), (["a"], ["a"]), (["a"], ["b"])]
    for _ in range(150):
        letters = "abcdefgh"[: random.randint(1, 8)]
        pairs.append(
            ([*random.choices(letters, k=random.randint(0, 25))], [*random.choices(letters, k=random.randint(0, 25))])
        )
    found = call(page, "diff", "given[0].map(([a, b]) => it.diffLines(a, b))", pairs)
    for (left, right), rows in zip(pairs, found, strict=True):
        assert [a for a, _ in rows if a is not None] == list(range(len(left)))
        assert [b for _, b in rows if b is not None] == list(range(len(right)))
        same = [(a, b) for a, b in rows if a is not None and b is not None]
        assert all(left[a] == right[b] for a, b in same)
        assert len(same) == common(left, right)


def test_differences_of_long_texts_end(page: Page) -> None:
    """Texts of 20,000 lines with nothing in common, and with a change in the middle."""
    count = "it.diffLines(given[0], given[1]).length"
    left, right = [f"a{k}" for k in range(20_000)], [f"b{k}" for k in range(20_000)]
    assert call(page, "diff", count, left, right) == 40_000
    assert call(page, "diff", count, left, [*left[:9_000], "new", *left[9_000:]]) == 20_001


def test_changed_words(page: Page) -> None:
    left, right = "    x = R.add(a, b)", "    x = R.multiply(a, b)"
    before, after = call(page, "diff", "it.changedParts(given[0], given[1])", left, right)
    assert before == [["    x = R.", False], ["add", True], ["(a, b)", False]]
    assert after[1] == ["multiply", True]
    left, right = 'c: (n, 64, 32) = R.conv(x, w, layout="NCHW")', 'c: (n, 32, 64) = R.conv(x, w, layout="NHWC")'
    before, after = call(page, "diff", "it.changedParts(given[0], given[1])", left, right)
    assert [text for text, changed in before if changed][-1] == "NCHW"
    assert ") = R.conv(x, w, layout=" in "".join(text for text, changed in before if not changed)
    for a, b in ((left, right), (right, left), ("f(a, b)", "g[c; d]"), ("", "x"), ("x x", "x"), ("same", "same")):
        parts = call(page, "diff", "it.changedParts(given[0], given[1])", a, b)
        assert ["".join(text for text, _ in part) for part in parts] == [a, b]


def test_tokens_are_those_of_pygments(page: Page) -> None:
    """One table, two engines: JavaScript's and Python's expressions find the same tokens."""
    pytest.importorskip("pygments")
    from mlcc.lsp.highlight import MlcLexer

    texts = [path.read_text() for path in TEXTS if path.stat().st_size < 30_000][:40]
    texts.append('x = """two\nlines""" + "open\ny = \'é\' # ünïcode\n')
    found = call(page, "code", "given[1].map((text) => it.tokenLines(text, it.compiled(given[0])))", TOKEN_RULES, texts)
    for text, lines in zip(texts, found, strict=True):
        expected: list[list[list[str]]] = [[]]
        for _, kind, value in MlcLexer(stripnl=False, ensurenl=False).get_tokens_unprocessed(text):
            for k, part in enumerate(value.split("\n")):
                if k:
                    expected.append([])
                if part:
                    expected[-1].append([str(kind).removeprefix("Token.").removeprefix("Literal."), part])
        if len(expected) > 1 and not expected[-1]:
            expected.pop()
        assert next(((a, b) for a, b in zip(lines, expected, strict=True) if a != b), None) is None
