"""The examples of docs/importing.md, run in order."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcc.cli.main import run

PAGE = Path(__file__).resolve().parents[2] / "docs" / "importing.md"


def test_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torch: Any, onnx: Any) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("x.npz", input=np.ones((1, 8), "float32"))
    scope: dict[str, Any] = {}
    _, *examples = re.findall(r"^```(python|sh)\n(.*?)^```", PAGE.read_text(), re.S | re.M)  # the first names no files
    assert torch and onnx and len(examples) >= 8
    for kind, text in examples:
        if kind == "python":
            exec(text, scope)
        else:
            for line in text.splitlines():
                assert run(shlex.split(line, comments=True)[1:]) == 0, line
    assert (tmp_path / "mlp.safetensors").exists() and not (tmp_path / "mlp_open.npz").exists()
