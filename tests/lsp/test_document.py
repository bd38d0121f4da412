"""Names and their definitions in texts that are whole, and in texts that are being typed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from mlcc.lsp.check import check_text
from mlcc.lsp.completion import complete
from mlcc.lsp.document import Document
from mlcc.lsp.hover import hover
from mlcc.lsp.positions import Positions

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = [p for p in sorted((ROOT / "samples").rglob("*.ml[cs]")) if p.stat().st_size < 20_000]


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.name)
def test_every_node_with_a_name_has_a_definition(path: Path) -> None:
    """What the parser binds at a place, the tokens define there: both have the same names."""
    from mlcc.ir import relax, tir

    text = path.read_text()
    defined = {d.start: d.name for d in Document(text, str(path)).definitions}
    for start, nodes in check_text(text, str(path)).nodes.items():
        for node in nodes:
            if isinstance(node, (tir.Buffer, relax.Var, tir.For)) and text[start].isalpha():
                name = node.var.name if isinstance(node, tir.For) else node.name
                if text.startswith(name, start):
                    assert defined.get(start) == name, (text[start : start + 20], type(node))


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.name)
def test_broken_texts_are_answered(path: Path) -> None:
    """Texts that lack a piece, at any place: no request fails."""
    rng = random.Random(path.name)
    whole = path.read_text()
    checked = check_text(whole, str(path))
    for _ in range(20):
        at = rng.randrange(len(whole) + 1)
        text = (
            whole[:at]
            + rng.choice(["", "(", '"', "R.", "def ", "\n", "with ", "x = ", "\\"])
            + whole[at + rng.randrange(9) :]
        )
        document = Document(text, str(path))
        for offset in {at, min(at + 1, len(text)), rng.randrange(len(text) + 1)}:
            complete(document, offset)
            hover(document, offset, checked)
            document.definition_at(offset)


def resolved(text: str, word: str, shift: int = 0) -> int | None:
    """The line of the definition of a word."""
    found = Document(text).definition_at(text.rindex(word) + shift)
    return None if found is None else text.count("\n", 0, found.start)


def test_a_line_sees_the_name_that_it_binds_only_afterwards() -> None:
    text = "@R.function\ndef f(x: R.Object):\n    x = R.nn.relu(x)\n    return x\n"
    assert resolved(text, "(x)", 1) == 1
    assert resolved(text, "return x", 7) == 2


def test_stores_define_nothing() -> None:
    text = "@T.prim_func\ndef f(A: T.Buffer((4,))):\n    A[0] = 1.0\n    A[1], b = 1, 2\n    A[2] = A[0]\n"
    assert resolved(text, "A[0]") == 1
    assert [d.name for d in Document(text).definitions] == ["f", "A"]


def test_annotations_and_tuples_define() -> None:
    text = "def f():\n    x: T.int32 = 1\n    y: T.float32\n    (a, b) = g\n    c = d = e\n    p = 1; q = 2\n"
    assert [d.name for d in Document(text).definitions] == ["f", "x", "y", "a", "b", "c", "d", "p", "q"]


def test_names_of_another_function_are_not_in_scope() -> None:
    text = "def f(a):\n    b = a\n\ndef g(c):\n    return b\n"
    assert resolved(text, "return b", 7) is None
    assert {d.name for d in Document(text).in_scope(len(text) - 1)} == {"f", "g", "c"}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_positions(encoding: str) -> None:
    text = "a\r\n𝛼b\rä\n\nend"
    positions = Positions(text, encoding)
    widths = {"utf-8": 1, "utf-16": 2, "utf-32": 4}
    for offset in range(len(text) + 1):
        line, column = positions.position(offset)
        start = positions.offset(line, 0)
        encoded = text[start:offset].encode(encoding if encoding == "utf-8" else f"{encoding}-le")
        assert column == len(encoded) // widths[encoding]
        if text[offset - 1 : offset + 1] != "\r\n":  # inside of the end of a line there is no position
            assert positions.offset(line, column) == offset
    assert positions.offset(99, 0) == len(text)
    assert positions.offset(0, 99) == 1
