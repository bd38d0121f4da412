"""`python -m bench dynamic`: kernels of unknown sizes beside compiled ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench import dynamic

SMALL = dynamic.Case(
    "small",
    {"x": ("n", 8), "w": (8, 4)},
    ("n", 4),
    "h = R.matmul(x, w); R.nn.relu(h)",
    lambda torch, x, w: None,
    ("w",),
)


def test_a_case_is_measured_beside_its_compiled_size() -> None:
    unknown = dynamic.compiled(SMALL, None)
    for size in (1, 5):
        times = dynamic.measure(SMALL, unknown, size, rounds=2)
        assert list(times) == ["static", "dynamic"] and all(len(t) == 2 and min(t) >= 0 for t in times.values())


def test_results_that_differ_are_an_error() -> None:
    def wrong(x: np.ndarray) -> np.ndarray:
        return np.full((len(x), 4), 7, "f4")

    class Wrong:
        def bind(self, x: np.ndarray, out: np.ndarray) -> object:
            return lambda: out.__setitem__(slice(None), wrong(x))

    with pytest.raises(ValueError, match="results differ"):
        dynamic.measure(SMALL, Wrong(), 3, rounds=1)


def test_cells_are_medians_of_ratios() -> None:
    times = {"static": [1e-6, 2e-6, 4e-6], "dynamic": [2e-6, 2e-6, 4e-6], "torch": [4e-6, 4e-6, 8e-6]}
    assert dynamic.cell(times) == "2 / **1.00** / 2.00"


@pytest.mark.parametrize("case", dynamic.CASES, ids=lambda case: case.name)
def test_texts_have_the_size_where_it_is_known(case: dynamic.Case) -> None:
    assert '"n"' in case.source(None) and '"n"' not in case.source(7)
    assert set(case.weights) <= set(case.params) and all(a.size for a in case.arrays(2).values())


def test_figures_are_put_in_their_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"head\n{dynamic.START}\nold\n{dynamic.END}\ntail\n")
    monkeypatch.setattr(dynamic, "PAGE", page)
    monkeypatch.setattr(dynamic, "CASES", (SMALL,))
    monkeypatch.setenv("MLCC_NUM_THREADS", "1")
    assert dynamic.main(["--sizes", "1,3", "--rounds", "1", "--peers", "", "--write"]) == 0
    text = page.read_text()
    assert text.startswith("head\n") and text.endswith(f"{dynamic.END}\ntail\n") and "old" not in text
    assert "| small | " in text
