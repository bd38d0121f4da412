"""The soak driver: it is bounded by time, resumes, repeats a case, keeps findings, and records what it did."""

from __future__ import annotations

import importlib
import json
import os
import struct
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.children import NoSubject
from tests.soak import record
from tests.soak.__main__ import main
from tests.soak.campaign import Campaign, State
from tests.soak.surfaces import SURFACES, Surface

FAKE = "tests.soak.fake"


def fake_case(folder: Path, seed: str, number: int) -> str:
    """Every fifth number gives no case, 7 is a finding, 11 ends its process, 13 raises."""
    assert (folder / "prepared").read_text() == "once" and list(Path().iterdir()) == []
    if number % 5 == 0:
        raise NoSubject
    Path("case.txt").write_text(f"{seed} {number}")
    if number == 11:
        os.abort()
    if number == 13:
        raise ValueError("a fault")
    return "something is wrong with 7" if number == 7 else ""


@pytest.fixture
def surface(monkeypatch: pytest.MonkeyPatch) -> Iterator[Surface]:
    module = types.ModuleType(FAKE)
    module.case = fake_case  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, FAKE, module)
    yield Surface("fake", 100, "cases that do nothing", per_child=8, patience=30.0)


def campaign(folder: Path, surface: Surface, written: list[str]) -> Campaign:
    made = Campaign.open(folder, "9", [surface])
    made.write = written.append
    shared = folder / "shared" / "fake"
    shared.mkdir(parents=True, exist_ok=True)
    (shared / "prepared").write_text("once")
    return made


def slices(made: Campaign, surface: Surface, count: int) -> None:
    for _ in range(count):
        made.slice(surface, float("inf"))
        made.state.write(made.folder / "state.json")


def test_findings_are_kept_with_their_files(tmp_path: Path, surface: Surface) -> None:
    written: list[str] = []
    made = campaign(tmp_path, surface, written)
    slices(made, surface, 2)
    progress = made.state.of(surface)
    assert (progress.next, progress.cases, progress.void, progress.findings) == (16, 12, 4, 3)
    assert [f.number for f in made.state.findings] == [7, 11, 13]
    texts = [f.text for f in made.state.findings]
    assert texts[:2] == ["something is wrong with 7", "ended with -6"] and texts[2].startswith("ValueError: a fault")
    assert written[0] == "fake 9 7: something is wrong with 7"
    for number in (7, 11, 13):
        assert (tmp_path / f"findings/fake-9-{number}/case.txt").read_text() == f"9 {number}"
    assert not (tmp_path / "work" / "fake").exists()


def test_files_of_findings_are_reduced(tmp_path: Path, surface: Surface, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that succeeds counts as undocumented here: of the file it needs `w`, and the text beside it."""
    header = json.dumps({
        "__metadata__": {"one": "1", "two": "2"}, "w": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]},
    }).encode()  # fmt: skip
    words = ("passes", "-p", "bind-params{params=case.safetensors}", "net.mlc")

    def case(folder: Path, seed: str, number: int) -> str:
        Path("net.mlc").write_text('@R.function\ndef main(w: R.Tensor((3,), "float32")):\n    return R.exp(w)\n')
        Path("case.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(12))
        Path("mutated").write_text("case.safetensors")
        Path("argv").write_text("\n".join(words))
        return "exit code 0" if number == 1 else ""

    monkeypatch.setattr(surface.module, "case", case)
    monkeypatch.setattr(surface.module, "DOCUMENTED", (1,), raising=False)
    made = campaign(tmp_path, surface, [])
    slices(made, surface, 1)
    assert [f.reduced for f in made.state.findings] == [True]
    found = tmp_path / "findings" / "fake-9-1"
    small = (found / "reduced-case.safetensors").read_bytes()
    assert b'"w"' in small and b"__metadata__" not in small
    said = (found / "reduce.txt").read_text()
    assert said == f"a small file: mlcc {' '.join(words).replace('case.', 'reduced-case.')}\n"


def test_a_campaign_goes_on_where_it_was(tmp_path: Path, surface: Surface) -> None:
    slices(campaign(tmp_path / "two", surface, []), surface, 1)
    slices(campaign(tmp_path / "two", surface, []), surface, 1)
    slices(campaign(tmp_path / "one", surface, []), surface, 2)
    one, two = (State.read(tmp_path / name / "state.json") for name in ("one", "two"))
    for state in (one, two):
        state.begun = ""
        state.surfaces["fake"].seconds = 0.0
    assert one == two


def test_a_slice_that_was_cut_off_counts_what_it_ran(tmp_path: Path, surface: Surface) -> None:
    made = campaign(tmp_path, surface, [])
    made.slice(surface, 0.0)  # its time is over before it begins
    assert (made.state.of(surface).next, made.state.of(surface).cases) == (0, 0)


def test_a_run_is_bounded_by_time(tmp_path: Path, surface: Surface, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the driver goes on by ten seconds a slice; twenty-five seconds are three slices."""
    from tests.soak import campaign as driver

    made, now = campaign(tmp_path, surface, []), [0.0]
    monkeypatch.setattr(driver.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(driver, "import_what_cases_use", lambda surfaces: None)
    ran = []

    def one_slice(self: Campaign, chosen: Surface, end: float) -> None:
        ran.append(end)
        now[0] += 10.0

    monkeypatch.setattr(Campaign, "slice", one_slice)
    made.run(25.0)
    assert ran == [25.0, 25.0, 25.0]
    assert (tmp_path / "state.json").exists()


@pytest.mark.parametrize("words", [("--hours", "nan"), ("--seconds", "-1"), ("--hours", "inf"), ("--seconds", "x")])
def test_lengths_of_time_that_are_none(words: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--no-record", *words])
    assert f"argument {words[0]}: invalid duration value: '{words[1]}'" in capsys.readouterr().err


def test_the_surface_furthest_from_its_goal_is_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.soak import campaign as driver

    few, many = Surface("few", 10, ""), Surface("many", 1000, "")
    made = Campaign.open(tmp_path, "1", [few, many])
    monkeypatch.setattr(driver, "import_what_cases_use", lambda surfaces: None)
    monkeypatch.setattr(Campaign, "prepare", lambda self, surface: None)
    turns: list[str] = []
    now = [0.0]
    monkeypatch.setattr(driver.time, "monotonic", lambda: now[0])

    def one_slice(self: Campaign, chosen: Surface, end: float) -> None:
        turns.append(chosen.name)
        self.state.of(chosen).cases += 10
        now[0] += 1.0

    monkeypatch.setattr(Campaign, "slice", one_slice)
    made.run(5.0)
    assert turns == ["few", "many", "many", "many", "many"]


def run(seed: str, begun: str, **cases: int) -> record.Record:
    surfaces = {n: {"cases": c, "numbers": c, "findings": 1, "seconds": 3600} for n, c in cases.items()}
    return {"begun": begun, "ended": begun, "seed": seed, "compiler": "abc", "machine": "x", "surfaces": surfaces}


def test_a_record_has_sums_over_runs() -> None:
    whole: record.Record = {"runs": []}
    assert record.next_seed(whole) == "1"
    whole = record.with_entry(whole, run("4", "2026-01-01T00:00:00", texts=5))
    whole = record.with_entry(whole, run("4", "2026-01-01T00:00:00", texts=1500, kills=20))  # resumed: replaces
    whole = record.with_entry(whole, run("5", "2026-01-02T00:00:00", texts=700))
    assert record.next_seed(whole) == "6"
    assert record.sums(whole)["texts"] == (2200, 2, 7200)
    assert record.sums(whole)["kills"] == (20, 1, 3600) and record.sums(whole)["graphs"] == (0, 0, 0)
    page = record.updated_page(f"before {record.START} old {record.END} after", whole)
    assert "old" not in page and page.startswith("before ") and page.endswith(" after")
    assert "| 2,200 | 1,000,000 | 2 | 2.00 |" in page and record.updated_page(page, whole) == page
    with pytest.raises(ValueError, match="make soak"):
        record.updated_page("a page without a place for them", whole)


def test_the_page_shows_the_record() -> None:
    page = record.PAGE.read_text()
    assert record.updated_page(page, record.read()) == page
    for surface in SURFACES:
        assert f"| {surface.name} |" in page


@pytest.mark.parametrize("name", [surface.name for surface in SURFACES if surface.name not in ("caches", "importers")])
def test_the_first_cases_of_each_surface(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each surface prepares, and some of its cases find nothing, in children as in a campaign."""
    surface = next(s for s in SURFACES if s.name == name)
    importlib.import_module(surface.module_name)
    made = Campaign.open(tmp_path, "1", [surface])
    made.prepare(surface)
    few = Surface(name, surface.goal, surface.counts, 4, surface.memory, surface.patience)
    made.slice(few, float("inf"))
    progress = made.state.of(surface)
    assert made.state.findings == [] and progress.next == 4 and progress.cases + progress.void == 4
