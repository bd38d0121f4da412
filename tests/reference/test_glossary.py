"""`mlcc explain` answers terms of the glossary with what `docs/glossary.md` says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mlcc.cli.main import run
from mlcc.reference.glossary import items, term_page, terms
from mlcc.reference.pages import pages, topics

GLOSSARY = Path(__file__).resolve().parents[2] / "docs" / "glossary.md"


def test_every_bold_term_of_the_page_is_a_topic() -> None:
    bold = re.findall(r"\*\*([^*]+)\*\*", GLOSSARY.read_text(encoding="utf-8").replace("\n  ", " "))
    assert len(bold) > 80
    known = set(topics())
    for text in bold:
        for term in re.split(r", | \(|\)", text):
            assert not term or term.lower().replace(" ", "-") in known, term


def test_every_item_explains_its_terms() -> None:
    for item in items():
        assert item.terms, item
        assert re.search(r": \S", item.text) and item.text.endswith("."), item.text


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ("buffer", "Buffer (`T.Buffer`): memory that loops read and write"),
        ("sinfo", "Struct info (sinfo): the static type"),
        ("TIR", "TensorIR (TIR): the half of the language for loops"),
        ("reduction axis", "Spatial axis, reduction axis: "),
        ("Reduction-Axis", "Spatial axis, reduction axis: "),
        ("shared_memory", "Shared memory: "),
        ("mask", "Mask: which lanes take part."),
        ("kernels", "Kernel: "),
        ("dce", "Dead code elimination (DCE, `dead-code`)"),
    ],
)
def test_term_is_explained_however_it_is_spelt(topic: str, said: str) -> None:
    (page,) = pages(topic)
    assert said in " ".join(page.split())


def test_term_of_two_fields_has_both_meanings() -> None:
    page = term_page("block", 100)
    assert page is not None
    assert page.index("(glossary: Programs)") < page.index("1024 threads") < page.index("(glossary: Code for GPUs)")


def test_names_of_code_keep_their_own_pages() -> None:
    assert "dead-code" not in terms()
    assert len(pages("dead-code")) == 1
    assert term_page("nothing of the kind", 100) is None


@pytest.mark.parametrize(
    ("word", "help"),
    [
        ("bufer", "did you mean `buffer`?"),
        ("batch", "there are `R.nn.batch_flatten`, `R.nn.batch_norm`, "),
        ("dim", "there are "),
        ("qqqqq", "`mlcc explain --list` lists all topics"),
    ],
)
def test_unknown_word_is_answered_with_names_like_it(word: str, help: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", word]) == 1
    assert help in capsys.readouterr().err
