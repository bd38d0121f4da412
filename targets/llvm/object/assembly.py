"""Join the assembly of several modules into one text, as the linker joins their objects.

Modules may use the same temporary labels (`.LBB0_1`) and names of internal functions. Both are local to a file, so they
are suffixed with the number of their module where names clash.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

_SYMBOL = r'"(?:[^"\\]|\\.)*"|[A-Za-z_.$][\w.$]*'
_USED = re.compile(rf'(?<![\w.$%"])(?:{_SYMBOL})')
_DEFINED = re.compile(rf"^({_SYMBOL}):|^\t\.local\t({_SYMBOL})$", re.M)
_FILE = re.compile(r'\t\.file\t(\d+) (".*\n)')
_VISIBLE = re.compile(rf"^\t\.(?:globl|weak)\t({_SYMBOL})$", re.M)
_TEXTS = ("\t.asci", "\t.file\t", "\t.ident\t", "\t.section\t")  # directives whose strings name no symbol


def join_assembly(texts: Sequence[str]) -> str:
    """Join the assembly of modules that call each other by visible names."""
    if len(texts) == 1:
        return texts[0]
    texts = _with_shared_files(texts)
    local = [_local_symbols(text) for text in texts]
    count = Counter(name for names in local for name in names)
    return "".join(
        _renamed(text, number, {name for name in names if count[name] > 1})
        for number, (text, names) in enumerate(zip(texts, local, strict=True))
    )


def _with_shared_files(texts: Sequence[str]) -> list[str]:
    """Return the texts with the files that `.loc` directives refer to numbered alike in all of them."""
    if not any("\t.loc\t" in text for text in texts):
        return list(texts)
    numbers: dict[str, int] = {}
    renumbered = []
    for text in texts:
        here: dict[str, int] = {}
        lines = []
        for line in text.splitlines(keepends=True):
            match = _FILE.fullmatch(line)
            if match is not None:
                name = match[2]
                is_new = name not in numbers
                here[match[1]] = numbers.setdefault(name, len(numbers) + 1)
                if not is_new:
                    continue
                line = f"\t.file\t{here[match[1]]} {name}"
            elif line.startswith("\t.loc\t"):
                file, _, rest = line.removeprefix("\t.loc\t").partition(" ")
                line = f"\t.loc\t{here[file]} {rest}"
            lines.append(line)
        renumbered.append("".join(lines))
    return renumbered


def _local_symbols(text: str) -> set[str]:
    """Return the symbols that are local to a text."""
    defined = {label or common for label, common in _DEFINED.findall(text)}
    return defined - set(_VISIBLE.findall(text))


def _renamed(text: str, number: int, names: set[str]) -> str:
    """Append the module number to these names in a text."""

    def replacement(match: re.Match[str]) -> str:
        name = match[0]
        if name not in names:
            return name
        return f'{name[:-1]}.u{number}"' if name[0] == '"' else f"{name}.u{number}"

    return "".join(
        line if line.startswith(_TEXTS) else _USED.sub(replacement, line) for line in text.splitlines(keepends=True)
    )
