"""The examples of docs/llm.md, run in order: what its loops in Python and in C write is the same."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mlcc.cli.main import run

PAGE = Path(__file__).resolve().parents[2] / "docs" / "llm.md"


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_examples_of_the_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torch: Any, transformers: Any, safetensors: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    said = ""
    examples = re.findall(r"^```(python|sh|c)\n(.*?)^```", PAGE.read_text(), re.S | re.M)
    assert len(examples) == 8
    for kind, text in examples:
        if kind == "python":
            exec(text, scope)
        elif kind == "c":
            Path("llama.c").write_text(text)
        else:
            for line in text.splitlines():
                command = shlex.split(line)
                if command[0] == "mlcc":
                    assert run(command[1:]) == 0, line
                else:
                    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert [int(token) for token in said.split()] == scope["tokens"][0, 4:].tolist()
