"""The page of a report, opened in a browser: every part is filled, nothing is asked of a network, names stay text."""

from __future__ import annotations

import configparser
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mlcc.report
from mlcc.report.page import SCRIPTS, render
from tests.report import browser as chromium
from tests.report import report_data as made
from tests.report.browser import Page

HERE = Path(__file__).parent
HOSTILE = "</script><img src=x onerror=alert(1)>\"'&amp;<svg onload=alert(2)>]]>"
TABS = ("graph", "passes", "kernels", "decisions", "memory", "sizes", "manifest")


Shown = Callable[..., Page]
needs_chromium = pytest.mark.skipif(not chromium.CHROMIUM, reason="needs chromium")


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with chromium.browser() as page:
        yield page


@pytest.fixture
def shown(page: Page, tmp_path: Path) -> Iterator[Shown]:
    """Show a report: `shown(data)`, then checks that the browser had nothing to complain about."""
    page.size(1280, 900)
    page.prefer("light")

    def show(data: dict[str, Any], fragment: str = "") -> Page:
        path = tmp_path / "report.html"
        path.write_text(render(data), encoding="utf-8")
        page.open(path, fragment)
        return page

    yield show
    problems, page.problems = page.problems, []
    assert not problems


def _panel(page: Page) -> str:
    return page.evaluate("document.getElementById('panel').innerText")


def test_files_of_the_page_are_installed() -> None:
    setup = configparser.ConfigParser()
    setup.read(HERE.parents[1] / "setup.cfg")
    patterns = setup["options.package_data"]["mlcc.report"].split(", ")
    package = Path(mlcc.report.__file__).parent
    files = {path.relative_to(package) for path in package.rglob("*") if path.suffix in (".js", ".css", ".html")}
    assert {path.stem for path in files if path.suffix == ".js"} == set(SCRIPTS)
    assert all(any(path.match(pattern) for pattern in patterns) for path in files)


def test_scripts_never_parse_html() -> None:
    for name in SCRIPTS:
        text = (Path(mlcc.report.__file__).parent / "assets" / f"{name}.js").read_text()
        assert not re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", text)


def test_the_file_has_one_script_of_ours_and_no_text_of_the_model() -> None:
    text = render(made.report(HOSTILE))
    assert "onerror" not in text.replace("&lt;img src=x onerror=alert(1)&gt;", "")
    assert len(re.findall(r"</script", text)) == 3  # the rules of tokens, the data, the program
    text = render(made.report())
    assert not re.findall(r"(?:src|href)=|url\(|@import|https?://(?!www\.w3\.org)", text)


@needs_chromium
@pytest.mark.parametrize("tab", TABS)
def test_every_tab_is_filled(shown: Shown, tab: str) -> None:
    page = shown(made.report(), f"#{tab}")
    assert page.evaluate(f"document.getElementById('tab-{tab}').getAttribute('aria-selected')") == "true"
    expected = {
        "graph": "operators", "passes": "fuse: before and after", "kernels": "net_conv",
        "decisions": "fused: one kernel", "memory": "most in use at once", "sizes": "artifact", "manifest": "abi",
    }  # fmt: skip
    assert expected[tab] in _panel(page)


@needs_chromium
def test_names_stay_text(shown: Shown) -> None:
    for data, tabs in ((made.report(HOSTILE), TABS), (made.comparison(HOSTILE, "b"), ("difference",))):
        page = shown(data)
        for tab in tabs:
            page.go(f"#{tab}")
            assert not page.evaluate("document.querySelectorAll('#app img, #app script, #app iframe').length")
            assert not page.evaluate("[...document.querySelectorAll('*')].some((e) => e.onload || e.onerror)")
    page.go(f"#kernels/{HOSTILE}_conv")
    assert HOSTILE in _panel(page)


@needs_chromium
def test_a_box_of_the_graph_leads_to_its_kernel(shown: Shown) -> None:
    page = shown(made.report(), "#graph/2")
    assert page.evaluate("document.querySelector('.box.selected').textContent").startswith("R.nn.conv2d")
    assert "net.layer.conv" in _panel(page)
    assert page.evaluate("document.querySelector('.code .near').textContent") == "    lv1 = R.nn.conv2d(x, w)"
    page.evaluate("[...document.querySelectorAll('#panel button')].find((b) => b.textContent === 'net_conv').click()")
    page.wait("location.hash === '#kernels/net_conv' && document.querySelector('section')")
    assert "it is a convolution" in _panel(page)
    assert page.evaluate("document.querySelectorAll('.chart .point').length") == 1  # in its roofline


@needs_chromium
def test_the_graph_is_drawn_pans_and_zooms(shown: Shown) -> None:
    page = shown(made.report(), "#graph")
    assert page.evaluate("document.querySelectorAll('.graph .box').length") == 5  # the constant is part of its user
    view = "document.querySelector('.graph').getAttribute('viewBox').split(' ').map(Number)"
    page.wait("document.querySelector('.canvas').dataset.settled")
    before = page.evaluate(view)
    for event, x in (("mousePressed", 300), ("mouseMoved", 400), ("mouseReleased", 400)):
        page.send("Input.dispatchMouseEvent", type=event, x=x, y=400, button="left", buttons=1, clickCount=1)
    dragged = page.evaluate(view)
    assert dragged[0] < before[0] and dragged[2:] == before[2:]
    page.send("Input.dispatchMouseEvent", type="mouseWheel", x=400, y=400, deltaX=0, deltaY=-200)
    page.wait(f"({view})[2] < {dragged[2]}")
    page.evaluate("document.querySelector('.canvas').focus()")
    page.press("ArrowDown")
    page.press("ArrowDown")
    assert page.evaluate("document.querySelector('.box.selected').textContent").startswith("R.nn.conv2d")
    page.evaluate("{ const s = document.querySelector('[aria-label=colour]'); s.value = 'time'; "
                  "s.dispatchEvent(new Event('change')); }")  # fmt: skip
    assert "color-mix" in page.evaluate("document.querySelector('.box.call rect').style.fill")


@needs_chromium
def test_search_by_keyboard(shown: Shown) -> None:
    page = shown(made.report(), "#graph")
    page.press("/")
    page.type("layer relu")
    page.wait("!document.getElementById('results').hidden")
    assert page.evaluate("document.querySelectorAll('.box.found').length") == 1
    page.press("ArrowDown")
    page.press("Enter")
    page.wait("document.querySelector('.box.selected')?.textContent.startsWith('R.nn.relu')")
    page.press("Escape")
    assert not page.evaluate("document.querySelectorAll('.box.found').length")
    page.evaluate("document.getElementById('tab-graph').focus()")
    page.press("ArrowRight")
    page.wait("location.hash === '#passes'")
    assert page.evaluate("document.activeElement.id") == "tab-passes"


@needs_chromium
def test_what_is_found_is_shown(shown: Shown) -> None:
    page = shown(made.report(), "#graph")
    for words, place, text in (
        ("one kernel of 2", "#decisions/0", "net_conv"),
        ("fuse", "#passes/3", "before and after"),
        ("net_add", "#kernels/net_add", "Calls"),
    ):
        page.press("/")
        page.type(words)
        page.wait("!document.getElementById('results').hidden")
        for _ in range(10):
            page.press("ArrowDown")
            chosen = "document.querySelector('#results [aria-selected=true] small').textContent"
            if page.evaluate(chosen) in ("kernel", "pass", "fused: one kernel of 2 operations"):
                break
        page.press("Enter")
        page.wait(f"location.hash === '{place}'")
        assert text in _panel(page)
        page.press("Escape")
    page.go("#decisions/0")
    assert "fused: one kernel" in page.evaluate("document.querySelector('tr.chosen').textContent")


@needs_chromium
def test_everything_one_can_reach_has_a_name(shown: Shown) -> None:
    """What takes the focus has a name and a role in the accessibility tree; ids are unique."""
    page = shown(made.comparison())
    page.send("Accessibility.enable")
    for tab in ("difference/0", *TABS, "kernels/left_conv", "graph/2"):
        page.go(f"#{tab}")
        nodes = page.send("Accessibility.getFullAXTree")["nodes"]
        for node in nodes:
            properties = {p["name"]: p["value"].get("value") for p in node.get("properties", [])}
            if properties.get("focusable") and not node["ignored"] and node["role"]["value"] != "RootWebArea":
                assert node.get("name", {}).get("value"), (tab, node["role"])
                assert node["role"]["value"] not in ("generic", "none"), (tab, node.get("name"))
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map((node) => node.id)")
        assert len(ids) == len(set(ids))
    page.send("Accessibility.disable")


@needs_chromium
def test_passes_fold_what_did_not_change(shown: Shown) -> None:
    data = made.report()
    lines = [f"    line{k} = R.add(x, x)" for k in range(100)]
    data["texts"]["t0"] = "\n".join(lines)
    data["texts"]["t1"] = "\n".join([*lines[:50], "    new = R.add(x, y)", *lines[51:]])
    page = shown(data, "#passes/3")
    assert "unchanged by 2: normalize, dead-code" in _panel(page)
    assert page.evaluate("[...document.querySelectorAll('.diff td.removed')].map((e) => e.innerText)") == [lines[50]]
    assert page.evaluate("document.querySelectorAll('.diff tr').length") == 9  # 3 lines around, two folds
    page.evaluate("document.querySelector('.diff .fold button').click()")
    assert page.evaluate("document.querySelectorAll('.diff tr').length") == 8 + 47


@needs_chromium
def test_kernels_sort(shown: Shown) -> None:
    page = shown(made.report(), "#kernels")
    names = "[...document.querySelectorAll('tbody tr')].map((row) => row.cells[0].textContent)"
    click = "[...document.querySelectorAll('th button')].find((b) => b.textContent === 'Calls').click()"
    page.evaluate(click)
    assert page.evaluate(names) == ["net_add", "net_conv"]
    page.evaluate(click)
    assert page.evaluate(names) == ["net_conv", "net_add"]
    assert page.evaluate("document.querySelector('th[aria-sort=ascending]').textContent") == "Calls"


@needs_chromium
def test_lines_of_machine_code_lead_to_loops_and_source(shown: Shown) -> None:
    page = shown(made.report(), "#kernels/net_conv")
    page.evaluate("document.querySelectorAll('.code')[1].querySelectorAll('.line')[2].click()")
    pinned = page.evaluate("[...document.querySelectorAll('.code .pinned')].map((e) => e.dataset.n)")
    assert pinned == ["200", "3"]
    assert page.evaluate("document.querySelectorAll('.code')[0].scrollTop") > 1000
    assert page.evaluate("document.querySelector('.code.short .near').textContent") == "    lv2 = R.nn.relu(lv1)"


@needs_chromium
def test_lines_of_several_calls_are_all_shown(shown: Shown) -> None:
    page = shown(made.report(), "#kernels/net_conv")
    page.evaluate("document.querySelectorAll('.code')[1].querySelectorAll('.line')[3].click()")
    assert page.evaluate("[...document.querySelectorAll('.code .pinned')].map((e) => e.dataset.n)") == ["201", "4"]
    places = page.evaluate("[...document.querySelectorAll('#panel h3')].map((e) => e.textContent)")
    assert places[-2:] == ["net.mlc:2", "net.mlc:3"]
    near = page.evaluate("[...document.querySelectorAll('.code.short .near')].map((e) => e.textContent.trim())")
    assert near == ["lv1 = R.nn.conv2d(x, w)", "lv2 = R.nn.relu(lv1)"]


@needs_chromium
def test_main_is_shown_first(shown: Shown) -> None:
    """Private functions, which may come before it in a module, are a choice away."""
    data = made.report()
    helper = {**data["graphs"][0], "function": "helper"}
    helper["nodes"] = [{**node, "id": node["id"] + 100} for node in helper["nodes"]]
    helper["edges"] = [[a + 100, b + 100] for a, b in helper["edges"]]
    data["graphs"].insert(0, helper)
    page = shown(data, "#graph")
    chosen = "document.querySelector('[aria-label=graph]').selectedOptions[0].textContent"
    assert page.evaluate(chosen).startswith("main")
    page.go("#graph/102")
    assert page.evaluate(chosen).startswith("helper")


@needs_chromium
def test_names_in_sentences_are_code(shown: Shown) -> None:
    data = made.report()
    data["decisions"][0]["text"] = "not fused: `lv1` is opaque, and `<b>`"
    data["kernels"][0]["why"] = "`net_conv` is a convolution"
    page = shown(data, "#decisions")
    code = "[...document.querySelectorAll('#panel code')].map((e) => e.textContent)"
    assert page.evaluate(code) == ["lv1", "<b>"]
    assert "not fused: lv1 is opaque" in _panel(page)
    page.go("#kernels/net_conv")
    assert page.evaluate(code)[0] == "net_conv"


@needs_chromium
def test_a_plan_of_unknown_sizes_shows_no_peak(shown: Shown) -> None:
    """A chart of the buffers whose sizes are known would show a peak that no call has."""
    data = made.report()
    assert shown(data, "#memory").evaluate("document.querySelectorAll('.chart').length") == 1
    data["memory"][0]["buffers"][1] |= {"bytes": None, "size": "n * 4"}
    data["memory"][0] |= {"peak": None, "workspace": None}
    page = shown(data, "#memory")
    assert page.evaluate("document.querySelectorAll('.chart').length") == 0
    assert "The sizes of 1 of 2 buffers depend on symbols" in _panel(page)
    assert "n * 4" in _panel(page)


@needs_chromium
def test_kernels_say_how_to_measure_them(shown: Shown) -> None:
    data = made.report()
    assert "--random" not in _panel(shown(data, "#kernels"))
    data["profile"] = None
    for kernel in data["kernels"]:
        kernel["estimate"] = None
    assert "come from a run" in _panel(shown(data, "#kernels"))
    for kernel in data["kernels"]:
        kernel["flops"] = None
    assert "--size NAME=N" in _panel(shown(data, "#kernels"))


@needs_chromium
def test_long_equal_lines_are_folded(shown: Shown) -> None:
    data = made.report()
    long = "def main(" + ", ".join(f"w{k}: R.Tensor((64,), 'float32')" for k in range(80)) + "):"
    data["texts"]["t0"] = f"{long}\n    a = R.exp(w0)\n"
    data["texts"]["t1"] = f"{long}\n    a = R.tanh(w0)\n"
    page = shown(data, "#passes/3")
    assert page.evaluate("document.querySelectorAll('.diff .more').length") == 2
    assert "w40" not in page.evaluate("document.querySelector('.diff').innerText")
    page.evaluate("document.querySelector('.diff .more').click()")
    assert page.evaluate("document.querySelector('.diff td:nth-child(2)').textContent") == long


@needs_chromium
def test_two_modules(shown: Shown) -> None:
    page = shown(made.comparison())
    text = _panel(page)
    assert "-50.0 %" in text and "-1 µs -50.0 %" in text and "1 changed, 1 only in A, 1 only in B" in text
    assert page.evaluate("[...document.querySelectorAll('.box.removed, .box.added')].length") == 2
    page.go("#difference/0")
    assert page.evaluate("document.querySelector('.diff .removed').innerText") != ""
    page.go("#b:kernels")
    assert "right_conv" in _panel(page) and "left_conv" not in _panel(page)


@needs_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out(shown: Shown, page: Page, scheme: str) -> None:
    """Contrast of 4.5 to 1 at least (WCAG 2.1, AA) between text and what is behind it."""
    page.prefer(scheme)
    shown(made.report(), "#kernels/net_conv")
    for tab in (*TABS, "kernels/net_conv"):
        page.go(f"#{tab}")
        assert page.evaluate((HERE / "contrast.js").read_text()) == [], tab


@needs_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("colour", ["time", "bytes", "kernel", "module"])
def test_text_stands_out_on_every_colour(shown: Shown, page: Page, colour: str, scheme: str) -> None:
    page.prefer(scheme)
    shown(made.report(), "#graph")
    page.evaluate(
        "{ const choice = document.querySelector('[aria-label=colour]'); "
        f"choice.value = '{colour}'; choice.dispatchEvent(new Event('change')); }}"
    )
    assert page.evaluate("[...document.querySelectorAll('.box.call rect')].some((rect) => rect.style.fill)")
    assert page.evaluate((HERE / "contrast.js").read_text()) == []


@needs_chromium
def test_a_phone(shown: Shown, page: Page) -> None:
    page.size(390, 844, phone=True)
    shown(made.comparison())
    for tab in ("difference", *TABS, "kernels/left_conv"):
        page.go(f"#{tab}")
        assert page.evaluate("document.documentElement.scrollWidth") == 390, tab


@needs_chromium
def test_the_theme_switches(shown: Shown) -> None:
    page = shown(made.report())
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.evaluate("document.querySelector('[aria-label^=\"switch between\"]').click()")
    assert page.evaluate(background) != light


@needs_chromium
def test_reports_with_nothing_in_them(shown: Shown) -> None:
    data = made.report()
    for part in ("stages", "graphs", "kernels", "decisions", "memory"):
        data[part] = []
    data |= {"source": None, "sizes": {}, "manifest": {}, "profile": None, "texts": {}, "pipeline": None}
    page = shown(data)
    for tab in TABS:
        page.go(f"#{tab}")


@needs_chromium
def test_damaged_data_are_named(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "broken.html"
    path.write_text(re.sub(r'(id="data">)[^<]{20}', r"\1", render(made.report())))
    page.open(path)
    assert "cannot be shown" in page.evaluate("document.body.innerText")
    page.problems.clear()
