"""Hooks of mkdocs for `make docs`: navigation and home page come from the README.

The navigation is its list "Where to read on", the home page what stands before it. CONTRIBUTING.md and
CHANGELOG.md become pages as well. Headings get the anchors that GitHub gives them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
READ_ON = "## Where to read on"
GROUP = re.compile(r"^([A-Z][^\n]*?)(?: \([^\n]*\))?[:,][^\n]*\n\n((?:- .*\n(?:  .*\n)*)+)", re.M)
OUTSIDE = ("CONTRIBUTING.md", "CHANGELOG.md")
LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def navigation(readme: str) -> list[dict[str, Any]]:
    """Return the navigation of the site: the groups of links of the README, each page once."""
    listed = readme.partition(READ_ON)[2]
    groups: list[dict[str, Any]] = [{"Home": "index.md"}]
    seen = set()
    for group, text in GROUP.findall(listed):
        pages = []
        for _, path, _ in LINK.findall(text):
            name = path.removeprefix("docs/")
            if name.endswith(".md") and name not in seen:
                seen.add(name)
                pages.append({title(name): name})
        groups.append({group.partition(",")[0]: pages})
    return groups


def title(name: str) -> str:
    """Return the first heading of a page."""
    path = ROOT / name if name in OUTSIDE else ROOT / "docs" / name
    heading = re.search(r"^# (.*)", path.read_text(), re.M)
    return heading.group(1).replace("`", "") if heading else name


def site_links(text: str, folder: Path = ROOT) -> str:
    """Return a page of a folder for the site: files that are not on it, such as samples, are named without a link."""

    def replaced(match: re.Match[str]) -> str:
        label, path, anchor = match.groups()
        if "://" in path:
            return match.group()
        target = (folder / path).resolve()
        if target.is_relative_to(ROOT / "docs"):
            return f"[{label}]({target.relative_to(ROOT / 'docs')}{anchor or ''})"
        if target.parent == ROOT and target.name in OUTSIDE:
            return f"[{label}]({target.name}{anchor or ''})"
        return label if target.exists() else match.group()

    parts = re.split(r"(^```.*?^```$|`[^`\n]*`)", text, flags=re.S | re.M)
    parts[::2] = [LINK.sub(replaced, part) for part in parts[::2]]
    return "".join(parts)


def anchor_of(heading: str, separator: str) -> str:
    """Return the anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", separator)


def on_config(config: Any) -> Any:
    config.nav = navigation((ROOT / "README.md").read_text())
    config.mdx_configs.setdefault("toc", {})["slugify"] = anchor_of
    return config


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    home = (ROOT / "README.md").read_text().partition(READ_ON)[0]
    for name, text in (("index.md", home), *((name, (ROOT / name).read_text()) for name in OUTSIDE)):
        files.append(File.generated(config, name, content=site_links(text)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    generated = page.file.src_uri in ("index.md", *OUTSIDE)  # whose links are those of the site already
    return markdown if generated else site_links(markdown, ROOT / "docs")
