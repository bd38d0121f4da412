"""The page of models, and how it is made from a record."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.frontend import campaign
from tests.frontend.campaign import CASES, read
from tests.frontend.model_check import Way
from tests.frontend.model_report import PAGE, WAYS, render, write


def line(model: str, wrong: str = "", via: str = "pt2", levels: str = "default", **more: Any) -> dict[str, Any]:
    known = {"dynamic": False, "cuda": False, "operators": {"aten.relu.default": 2}, "seconds": {}, "commit": ""}
    return {"model": model, "via": via, "levels": [levels], "wrong": wrong, **known, **more}


def test_models_that_pytorch_cannot_export_do_not_count() -> None:
    text = render([line("a"), line("b", "run -O0: off"), line("c", "export: no")])
    assert "| `.pt2` | 2 | 1 (50.0 %) | 0 |" in text
    assert "- b, `.pt2`: run -O0: off" in text and "- c," not in text
    assert "`aten.relu.default` 1 of 2" in text


def test_a_model_is_right_if_it_is_at_every_level() -> None:
    assert "| `.pt2` | 1 | 0 (0.0 %) | 0 |" in render([line("a"), line("a", "build -O0: no", levels="0"), line("a")])
    text = render([line("a"), line("a", levels="0"), line("b"), line("c", levels="0")])
    assert "| `.pt2` | 2 | 2 (100.0 %) | 1 |" in text and "| a | yes, `-O0` too |" in text and "| b | yes |" in text


def test_the_last_line_of_a_model_counts(tmp_path: Path) -> None:
    record, page = tmp_path / "record", tmp_path / "page.md"
    record.write_text("".join(json.dumps(made) + "\n" for made in (line("a", "import: no"), line("a"))))
    page.write_text("Before.\n<!-- record -->\nold\n<!-- /record -->\nAfter.\n")
    write(record, page)
    assert len(read(record)) == 1
    assert "old" not in page.read_text() and "1 (100.0 %)" in page.read_text() and page.read_text().endswith("After.\n")


def test_the_page_is_of_models_that_there_are() -> None:
    rows = [row.split(" | ") for row in PAGE.read_text().splitlines() if row.startswith("| ")]
    names = {row[0].removeprefix("| ") for row in rows if len(row) == 1 + len(WAYS)} - {"model", "---"}
    assert names <= set(CASES)


def test_a_model_that_takes_too_long_or_dies_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    for stand_in, wrong in (
        (lambda *_: time.sleep(60), "not within 0.5 s"),
        (lambda *_: os._exit(3), "crash: ended with 3"),
    ):
        monkeypatch.setattr(campaign, "_tried", stand_in)
        found = campaign._within(0.5, "bert", Way())
        assert found["wrong"] == wrong and found["model"] == "bert"
