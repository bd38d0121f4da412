"""`mlcc report`: the page of a model that was compiled, in a browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_cli import Tool
from tests.report import browser as chromium

NET = """
@R.function
def main(x: R.Tensor((4, 64), "float32"), w: R.Tensor((64, 96), "float32")):
    with R.dataflow():
        a = R.matmul(x, w)
        b = R.nn.relu(a)
        c = R.nn.softmax(b)
        R.output(c)
    return c
"""


@pytest.fixture
def mlcc(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tool:
    monkeypatch.chdir(tmp_path)
    return Tool(tmp_path, capfd)


@pytest.mark.skipif(not chromium.CHROMIUM, reason="needs chromium")
def test_a_report_of_a_model(mlcc: Tool) -> None:
    mlcc.file("net.mlc", NET)
    mlcc("report", "net.mlc", "-o", "net.html")
    with chromium.browser() as page:
        page.open(mlcc.folder / "net.html")
        expected = {
            "graph": "operators", "passes": "before and after", "kernels": "softmax", "decisions": "fused",
            "memory": "workspace", "sizes": "code", "manifest": "abi", "kernels/softmax": "machine code",
        }  # fmt: skip
        for tab, text in expected.items():
            page.go(f"#{tab}")
            assert text in page.evaluate("document.getElementById('panel').innerText"), tab
        assert page.evaluate("document.querySelectorAll('.code .linked').length") > 10
        assert not page.problems


def test_pages_and_data_have_their_suffixes(mlcc: Tool) -> None:
    mlcc.file("net.mlc", NET)
    mlcc("report", "net.mlc", "-o", "net.json", code=1)
    assert "E0012" in mlcc.err
