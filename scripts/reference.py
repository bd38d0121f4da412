"""Generate the pages of operators, intrinsics and terms in docs/ from the reference that `mlcc explain` prints.

`python scripts/reference.py` writes `docs/operators/`, `docs/intrinsics.md` and `docs/glossary.md`; a test checks that
they are up to date.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
OPERATORS = """# Operators by family

What each operator of relax computes; `mlcc explain R.add` prints the same. Rules that hold for all of them are in
[ops.md](../ops.md), tested dtypes in [ops-tables.md](../ops-tables.md). Lists leave out parameters whose names say what
they are.

Every example runs in a test: compiled, it gives what the Python below it computes from the same arguments, where `np`
is NumPy, `torch` PyTorch, and parameters have their names.

"""
INTRINSICS = """# Intrinsics of TensorIR

What each intrinsic computes; `mlcc explain T.exp` prints the same. How accurate elementary functions are is in
[math.md](math.md). Every example runs in a test: compiled, it gives what the Python below it computes.

"""


def pages() -> dict[Path, str]:
    """Return the content of every page, by path."""
    from mlcc.reference.sections import FOLDER

    families = sorted((FOLDER / "operators").glob("*.md"))
    return {
        DOCS / "operators" / "README.md": index(families),
        **{DOCS / "operators" / path.name: family(path) for path in families},
        DOCS / "intrinsics.md": intrinsics(FOLDER / "intrinsics.md"),
        DOCS / "glossary.md": (FOLDER / "glossary.md").read_text(encoding="utf-8"),
    }


def index(families: list[Path]) -> str:
    """Return the page that lists all operators with their first sentences."""
    from mlcc.reference.sections import heading, sections

    lines = []
    for path in sorted(families, key=heading):
        lines += [f"## [{heading(path)[0]}]({path.name})", "", "| operator | what it computes |", "| --- | --- |"]
        for name, section in sorted(sections(path).items()):
            anchor = re.sub(r"[^\w-]", "", name.lower())
            lines.append(f"| [`{name}`]({path.name}#{anchor}) | {_cell(first_sentence(section.meaning))} |")
        lines.append("")
    return OPERATORS + "\n".join(lines).rstrip() + "\n"


def first_sentence(text: str) -> str:
    """Return the text up to its first full stop."""
    found = re.match(r".*?\.(?=\s|$)", " ".join(text.split()))
    assert found is not None, text
    return found[0]


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def family(path: Path) -> str:
    """Return the page of a family of operators: signature, meaning, facts and example of each."""
    from mlcc.ops.signature import signature, signature_text
    from mlcc.reference.pages import operator_notes
    from mlcc.reference.sections import heading, sections

    title, intro = heading(path)
    lines = [f"# {title}", "", *([intro, ""] if intro else [])]
    for name, section in sorted(sections(path).items()):
        lines += [f"## {name}", ""]
        known = signature(name) is not None
        if known:
            lines += [f"`R.{signature_text(name)}`", ""]
        lines += [section.meaning, "", *_listed(section.facts)]
        for note in operator_notes(name) if known else ():
            lines += [note, ""]
        lines += _examples(section.example, section.judge)
    return "\n".join(lines).rstrip() + "\n"


def intrinsics(path: Path) -> str:
    """Return the page of the intrinsics."""
    from mlcc.ir.intrinsics import INTRINSICS as RECORDS
    from mlcc.reference.pages import intrinsic_aliases, intrinsic_facts
    from mlcc.reference.sections import sections

    lines = []
    for name, section in sorted(sections(path).items()):
        lines += [f"## {name}", "", section.meaning, "", *_listed([*section.facts, *intrinsic_facts(RECORDS[name])])]
        others = intrinsic_aliases(name)
        if others:
            lines += [f"Also written {', '.join(f'`T.{other}`' for other in others)}.", ""]
        lines += _examples(section.example, section.judge)
    return INTRINSICS + "\n".join(lines).rstrip() + "\n"


def _listed(facts: list[tuple[str, str]] | tuple[tuple[str, str], ...]) -> Iterator[str]:
    yield from (f"- {what}: {text}" for what, text in facts)
    if facts:
        yield ""


def _examples(example: str, judge: str) -> Iterator[str]:
    for language, text in (("mlc", example), ("python", judge)):
        if text:
            yield from (f"```{language}", text.rstrip(), "```", "")


def main() -> int:
    written = pages()
    for path, text in written.items():
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {os.path.relpath(path, ROOT)}")
    for path in set((DOCS / "operators").iterdir()) - set(written):
        path.unlink()
        print(f"removed {os.path.relpath(path, ROOT)}")
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
