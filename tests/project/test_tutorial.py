"""The tutorial followed to the letter: its files written, its commands run by bash, its output compared."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.pages import ROOT, follow, matches, needs

PAGE = ROOT / "docs" / "tutorial.md"


def test_from_text_to_pass(tmp_path: Path) -> None:
    compiler = shutil.which("cc") is not None
    follow(PAGE, tmp_path, "Before", "1.", "2.", "3.", *(["4."] if compiler else []), "5.", "6.", "7.")
    if not compiler:
        pytest.skip("part 4 needs a C compiler")


@needs("torch")
def test_pytorch(tmp_path: Path) -> None:
    follow(PAGE, tmp_path, "8.")


@needs("onnx")
def test_onnx(tmp_path: Path) -> None:
    follow(PAGE, tmp_path, "9.")


def test_every_part_is_followed() -> None:
    titles = re.findall(r"^## (\S+)", PAGE.read_text(), re.M)
    assert titles == ["Before", *(f"{n}." for n in range(1, 10)), "Where"]


def test_expected_output() -> None:
    assert matches("a\n...\nd\n", "a\nb\nc\nd\n") and matches("x ... y", "x 1 y\n")
    assert not matches("a\n...\nd", "a\nb\nc\n") and not matches("a", "a b")
    assert matches("[0.25 -1.5]", "[0.25001 -1.5]") and not matches("[0.25]", "[0.26]")
