"""docs/torch-compile.md: its programs run, one after the other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "torch-compile.md").read_text()


def test_programs_of_the_page_run(torch: Any) -> None:
    programs = re.findall(r"^```python\n(.*?)^```", PAGE, re.S | re.M)
    assert len(programs) == 2
    scope: dict[str, Any] = {}
    for program in programs:
        assert "assert " in program
        exec(program, scope)


def test_table_lists_every_option() -> None:
    from mlcc.frontend.fx.options import Options

    table = PAGE.partition("| option |")[2].partition("They are given")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.M) == list(Options.__dataclass_fields__)
