"""The pages in docs/ say what `mlcc explain` says."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from mlcc import ops
from mlcc.ir.intrinsics import INTRINSICS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "scripts" / "reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages_are_what_explain_prints(script: ModuleType) -> None:
    pages = script.pages()
    assert set((ROOT / "docs" / "operators").iterdir()) < set(pages)
    for path, text in pages.items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} is old: run scripts/reference.py"


def test_pages_list_every_operator_and_intrinsic() -> None:
    index = (ROOT / "docs" / "operators" / "README.md").read_text(encoding="utf-8")
    assert not [name for name in ops.names() if f"| [`{name.removeprefix('relax.')}`](" not in index]
    intrinsics = (ROOT / "docs" / "intrinsics.md").read_text(encoding="utf-8")
    assert not [name for name in INTRINSICS if f"\n## {name}\n" not in intrinsics]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("The sum. It may overflow.", "The sum."),
        ("1 / (1 + exp(-x)), in 0.0 to 1.0.\nMore.", "1 / (1 + exp(-x)), in 0.0 to 1.0."),
    ],
)
def test_first_sentence_ends_at_a_full_stop(script: ModuleType, text: str, first: str) -> None:
    assert script.first_sentence(text) == first
