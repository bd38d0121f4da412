"""docs/python.md: its programs run, one after the other, and its table lists the builder's methods."""

from __future__ import annotations

import linecache
import re
from pathlib import Path
from typing import Any

from mlcc import relax

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "python.md").read_text()


def test_programs_of_the_page_run() -> None:
    programs = re.findall(r"^```python\n(.*?)^```", PAGE, re.S | re.M)
    assert len(programs) == 4
    scope: dict[str, Any] = {}
    for at, program in enumerate(programs):
        assert "assert " in program
        name = f"<python.md, program {at}>"  # decorators read the source text
        linecache.cache[name] = (len(program), None, program.splitlines(keepends=True), name)
        exec(compile(program, name, "exec", dont_inherit=True), scope)


def test_table_lists_every_method() -> None:
    table = PAGE.partition("## The builder")[2].partition("What is wrong")[0]
    listed = {name for cell in re.findall(r"^\| (.*?) \|", table, re.M) for name in re.findall(r"`([a-z_]+)", cell)}
    public = {n for n in vars(relax.BlockBuilder) if not n.startswith("_")}
    inner = {"begin_scope", "end_scope", "current", "current_block_is_dataflow", "testing_scope", "emit_match_cast"}
    assert listed == public - inner
