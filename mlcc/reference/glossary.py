"""The terms of the glossary, `glossary.md` beside this module.

An item explains one term or several that belong together. Terms are bold; other words for them stand in parentheses,
inside the bold text or right after it. Names of code in backticks have pages of their own and are no terms.

    - **Struct info** (sinfo): the static type of a graph value.
    - **Lane**: one element of a vector. **Mask**: which lanes take part.
"""

from __future__ import annotations

import functools
import re
import textwrap
from dataclasses import dataclass

from mlcc.reference.sections import FOLDER

_ITEM = re.compile(r"^- (.*(?:\n  .*)*)$", re.MULTILINE)
_TERMS = re.compile(r"\*\*(.+?)\*\*(?: \(([^)`]*)[^)]*\))?")


@dataclass(frozen=True, slots=True)
class Item:
    """An item of the glossary: its section, the terms that it explains, and its text without bold type and links."""

    section: str
    terms: tuple[str, ...]
    text: str


@functools.cache
def items() -> tuple[Item, ...]:
    """All items, in their order."""
    found = []
    for part in re.split(r"^## ", (FOLDER / "glossary.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        section, _, body = part.partition("\n")
        for match in _ITEM.finditer(body):
            text = " ".join(match[1].split())
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("**", "")
            found.append(Item(section.strip(), tuple(_terms(text)), plain))
    return tuple(found)


def _terms(text: str) -> list[str]:
    """Return the terms of an item in lower case: `constant folding`, `dead code elimination`, `dce`."""
    names = []
    for bold, others in _TERMS.findall(text):
        names += re.split(r", | \(|\)", bold)
        names += re.split(r", ", others)
    return [name.strip().lower() for name in names if name.strip()]


@functools.cache
def _items_by_name() -> dict[str, list[Item]]:
    found: dict[str, list[Item]] = {}
    for item in items():
        for term in item.terms:
            found.setdefault(_key(term), []).append(item)
    return found


def _key(term: str) -> str:
    return re.sub(r"[\s_]+", "-", term.strip().lower())


def terms() -> list[str]:
    """All terms as topics: in lower case, words joined by hyphens, sorted."""
    return sorted(_items_by_name())


def term_page(topic: str, width: int) -> str | None:
    """Return what the glossary says about a term, also in the plural, or None. A term may have several meanings."""
    known = _items_by_name()
    key = _key(topic)
    found = known.get(key) or known.get(key.removesuffix("s")) or known.get(key.removesuffix("es"))
    if found is None:
        return None
    filled = (textwrap.fill(item.text, width, break_on_hyphens=False) for item in found)
    return "\n\n".join(f"{text}\n(glossary: {item.section})" for text, item in zip(filled, found, strict=True))
