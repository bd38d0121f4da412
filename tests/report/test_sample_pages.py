"""Pages that `mlcc report` makes of the samples, opened in a browser: tabs are filled, and search leads there."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mlcc import driver
from mlcc.cli.main import run
from tests.report import browser as chromium
from tests.report.browser import Page

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
PAGES = {
    "lenet": "lenet/lenet.mlc", "resnet": "resnet/resnet18.mlc", "transformer": "transformer/encoder.mlc",
    "writer": "writer/writer.mlc", "decoder": "decoder/decoder.mlc", "kernel": "matmul/matmul.mlc",
}  # fmt: skip
MOST_BYTES = 1_000_000

pytestmark = pytest.mark.skipif(not chromium.CHROMIUM, reason="needs chromium")


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with chromium.browser() as page:
        yield page


def data_of(text: str) -> dict[str, Any]:
    """Return the data that a page carries."""
    packed = re.search(r'id="data">([^<]+)<', text)
    assert packed is not None
    return dict(json.loads(zlib.decompress(base64.b64decode(packed[1]))))


def panel(page: Page) -> str:
    return str(page.evaluate("document.getElementById('panel').innerText"))


@pytest.mark.parametrize("sample", PAGES)
def test_a_page_of_a_sample(page: Page, sample: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.html"
    monkeypatch.setattr(driver, "VERIFY_EACH", False)  # tests of the networks verify after each pass
    assert run(["report", str(SAMPLES / PAGES[sample]), "-o", str(path)]) == 0
    text = path.read_text()
    assert len(text) < MOST_BYTES
    data = data_of(text)
    page.size(1280, 900)
    page.open(path)
    _tabs_are_filled(page, data)
    _graphs_are_drawn(page, data)
    _kernels_are_shown(page, data)
    _search_leads_there(page, data)
    page.size(390, 844, phone=True)
    for tab in ("graph", "passes", "kernels", "decisions", "memory", "sizes", "manifest"):
        page.go(f"#{tab}")
        assert page.evaluate("document.documentElement.scrollWidth") == 390, tab
    problems, page.problems = page.problems, []
    assert problems == []


def _tabs_are_filled(page: Page, data: dict[str, Any]) -> None:
    kernel, decision = data["kernels"][0], data["decisions"][0]
    changed = next(
        stage["pass"]
        for before, stage in zip(data["stages"], data["stages"][1:], strict=False)
        if stage["functions"] != before["functions"]
    )
    buffers = [buffer["name"] for plan in data["memory"] for buffer in plan["buffers"]]
    expected = {
        "graph": ["boxes", "operators"],
        "passes": [f"{changed}: before and after", *(s["pass"] for s in data["stages"])],
        "kernels": [one["name"] for one in data["kernels"]],
        f"kernels/{kernel['name']}": ["loop nest", "machine code", kernel["rule"] or kernel["name"]],
        "decisions": [decision["subject"], *{one["kind"] for one in data["decisions"]}],
        "memory": [*(plan["function"] for plan in data["memory"]), *(buffers[:1] or ["keeps nothing"])],
        "sizes": ["artifact", "constants"],
        "manifest": ["abi", *data["manifest"]["functions"]],
    }
    for tab, words in expected.items():
        page.go(f"#{tab}")
        shown = panel(page).replace("\N{NO-BREAK SPACE}", " ")
        assert [word for word in words if word.replace("`", "") not in shown.replace("`", "")] == [], tab


def _graphs_are_drawn(page: Page, data: dict[str, Any]) -> None:
    """Each operator of the graph that is shown first has a box, or is within one of a module."""
    page.go("#graph")
    first = page.evaluate("document.querySelector('.tools select').selectedOptions[0].textContent")
    functions = [graph["function"] for graph in data["graphs"]]
    wanted = "main" if "main" in functions else functions[0]
    assert first.startswith(wanted)
    (graph,) = [g for g in data["graphs"] if g["function"] == wanted and g["stage"] == "source"]
    calls = [node for node in graph["nodes"] if node["kind"] == "call"]
    boxes = page.evaluate("document.querySelectorAll('.graph .box:not(.input):not(.output)').length")
    assert 0 < boxes <= 2 * len(calls)
    last = calls[-1]
    page.go(f"#graph/{last['id']}")
    assert page.evaluate("document.querySelectorAll('.box.selected').length") == 1
    assert last["op"] in panel(page)


def _kernels_are_shown(page: Page, data: dict[str, Any]) -> None:
    """Every kernel has its loops and its machine code, whose lines are linked to those of the loops."""
    for kernel in data["kernels"]:
        page.go(f"#kernels/{kernel['name']}")
        counts = page.evaluate(
            "[...document.querySelectorAll('section .code')].map((code) => "
            "[code.querySelectorAll('.line').length, code.querySelectorAll('.linked').length])"
        )
        lines = [len(data["texts"][kernel[name]].splitlines()) for name in ("loops", "assembly")]
        assert [count for count, _ in counts[:2]] == lines, kernel["name"]
        assert all(linked for _, linked in counts[:2]), kernel["name"]
        assert kernel["line_table"]


def _search_leads_there(page: Page, data: dict[str, Any]) -> None:
    """What is found by its whole name is opened by Enter."""
    kernel = max(data["kernels"], key=lambda one: len(one["name"]))["name"]
    node = next(n for g in data["graphs"] for n in g["nodes"][::-1] if n["kind"] == "call")
    passes = [stage["pass"] for stage in data["stages"]]
    number = max(k for k, name in enumerate(passes) if passes.count(name) == 1)
    for words, place in (
        (kernel, f"#kernels/{kernel}"),
        (passes[number], f"#passes/{number}"),
        (f"{node['op']} {node['name']}", f"#graph/{node['id']}"),
    ):
        page.go("#sizes")
        page.press("/")
        page.type(words)
        page.wait("!document.getElementById('results').hidden")
        assert page.evaluate("document.querySelectorAll('#results [role=option]').length") > 1, words
        page.press("Enter")
        assert page.evaluate("location.hash") == place
        page.press("Escape")
