"""`mlcc report`: the page of a model that was compiled, in a browser."""

from __future__ import annotations

import json
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


SIZED = """
@R.function
def main(x: R.Tensor(("n", 8), "float32")):
    with R.dataflow():
        a = R.exp(x)
        R.output(a)
    return a
"""


def test_sizes_are_those_of_shapes(mlcc: Tool) -> None:
    """A size that no shape has is refused, and each of two files takes those that it has."""
    mlcc.file("net.mlc", SIZED)
    mlcc.file("other.mlc", SIZED.replace('"n"', '"rows"'))
    mlcc("report", "net.mlc", "--size", "m=3", "-o", "net.html", code=1)
    assert "E0017" in mlcc.err and "no shape in net.mlc has `m`" in mlcc.err
    assert not Path("net.html").exists()
    both = json.loads(mlcc("report", "net.mlc", "other.mlc", "--random", "--size", "n=3,rows=5", "--json"))
    assert [both[side]["kernels"][0]["bytes"] for side in "ab"] == [2 * 3 * 8 * 4, 2 * 5 * 8 * 4]
    assert all(both[side]["kernels"][0]["seconds"] > 0 for side in "ab")


@pytest.mark.parametrize("option", [("--func", "main"), ("--repeat", "9"), ("--params", "w.npz"), ("--ignore-extra",)])
def test_options_of_a_measurement_need_one(mlcc: Tool, option: tuple[str, ...]) -> None:
    mlcc.file("net.mlc", SIZED)
    mlcc("report", "net.mlc", *option, "-o", "net.html", code=2)
    assert f"{option[0]} is for a measurement: pass --in, --random or --profile, too" in mlcc.err
