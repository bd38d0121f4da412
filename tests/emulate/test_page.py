"""docs/emulation.md shows what the commands print."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from mlcc.targets.cuda import ptxas
from tests.cli.test_cli import Tool

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "emulation.md").read_text()


def test_page_shows_what_the_commands_print(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ptxas, "find_ptxas", lambda: None)
    (kernel,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.S | re.M)
    finding, table = re.findall(r"^```text\n(.*?)^```", PAGE, re.S | re.M)
    tool = Tool(tmp_path, capfd)
    tool.file("transpose.mlc", kernel)
    tool.npz("x.npz", A=np.random.default_rng(0).random((64, 64), dtype=np.float32))
    tool("run", "transpose.mlc", "-t", "cuda", "--emulate", "--func", "transpose", "--in", "x.npz", code=1)
    assert tool.err == finding
    lines = kernel.splitlines()
    lines.insert(10, '    T.tvm_storage_sync("shared")')
    tool.file("transpose.mlc", "\n".join(lines))
    assert tool("analyze", "transpose.mlc", "-t", "cuda{arch=sm_90}") == table


def test_all_codes_are_listed() -> None:
    listed = re.findall(r"^\| (E\d+) \|", PAGE, re.M)
    assert listed == ["E0739", *(f"E074{i}" for i in range(7))]
