"""The site of docs/: every page in the navigation, once, and links and anchors that lead somewhere."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.pages import ROOT


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "scripts" / "site_hooks.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_navigation_has_every_page_once(hooks: Any) -> None:
    home, *groups = hooks.navigation((ROOT / "README.md").read_text())
    assert home == {"Home": "index.md"}
    assert [name for group in groups for name in group] == ["Begin here", "Reference", "How it works", "Measurements"]
    listed = [path for group in groups for pages in group.values() for page in pages for path in page.values()]
    pages = [path.name for path in (ROOT / "docs").glob("*.md")]
    index = "operators/README.md"  # of the pages of operators, which it links
    assert sorted(listed) == sorted([*pages, index, *hooks.OUTSIDE])


def test_links_of_the_home_page(hooks: Any) -> None:
    assert hooks.site_links("[a](docs/tune.md#options), `[b](docs/x.md)`") == "[a](tune.md#options), `[b](docs/x.md)`"
    assert hooks.site_links("[a](CHANGELOG.md) [b](LICENSE)") == "[a](CHANGELOG.md) b"
    assert hooks.site_links("[a](../samples/writer) [b](no.md)", ROOT / "docs") == "a [b](no.md)"


@pytest.mark.skipif(importlib.util.find_spec("material") is None, reason="needs mkdocs-material (extra `docs`)")
def test_site_is_built_without_warnings(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path / "site")]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list((tmp_path / "site").glob("*.html"))) > 30
