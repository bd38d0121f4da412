"""The examples of docs/adding-a-pass.md run, in their order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[2] / "docs" / "adding-a-pass.md"


def test_examples_of_the_page_run() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.S | re.M)
    assert len(blocks) == 2
    scope: dict[str, Any] = {"__name__": __name__}
    exec("\n".join(blocks), scope)
    assert scope["mod"]["main"].attrs.get("operations") is None  # the module that was given stays as it was
