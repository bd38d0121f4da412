"""The commands of docs/how-slow.md run on the model of the page, and print the lines that it shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from tests.cli.test_cli import Tool, f32

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "how-slow.md").read_text()


def test_the_page(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tool = Tool(tmp_path, capfd)
    (model,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.S | re.M)
    tool.file("net.mlc", model)
    w, v = f32(256, 128), f32(128, 64)
    np.savez("w.npz", w=w, v=v)
    np.savez("in.npz", x=f32(300, 256), w=w, v=v)
    lines = [line for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.S | re.M) for line in block.splitlines()]
    printed = []
    for line in lines:
        words = shlex.split(line.split(" > ")[0])
        assert words[0] == "mlcc"
        printed.append(tool(*words[1:]))
    against = next(out for line, out in zip(lines, printed, strict=True) if "--against base.o" in line)
    profile, inspected = printed[0], printed[-1]
    shown = [block.splitlines() for block in re.findall(r"^```text\n(.*?)^```", PAGE, re.S | re.M)]
    head = shown[0][3].split()
    assert head in [line.split() for line in profile.splitlines()]
    for row in shown[0][4:]:  # rules, names and lines; the numbers are another machine's
        words = re.sub(r"\d+ of \d+", "", row).split()
        kept = [word for word in words if re.match(r"[a-z(]", word) and word not in ("us", "ns", "ms", "compute")]
        assert any(all(word in line for word in kept) for line in profile.splitlines()), kept
    assert len(against.splitlines()) == len(shown[1])
    assert re.search(r"^net\.mlc  (faster|slower|no difference): ", against, re.M)
    assert "kernel softmax: " in inspected and "constants: " in inspected
