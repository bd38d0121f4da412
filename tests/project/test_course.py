"""Each chapter of docs/course.md followed alone, in an empty folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.pages import ROOT, follow

PAGE = ROOT / "docs" / "course.md"


@pytest.mark.parametrize("title", re.findall(r"^## (.*)", PAGE.read_text(), re.M))
def test_chapter(title: str, tmp_path: Path) -> None:
    follow(PAGE, tmp_path, title)
