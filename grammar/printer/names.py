"""Names for a text: hints become identifiers, made unique among all that are visible at the same place."""

from __future__ import annotations

import keyword
import re

# What the text itself uses. Names of the 2022 dialect are kept free too, so that no reader takes a variable for them.
RESERVED = frozenset(
    {*keyword.kwlist, "T", "R", "I", "cls", "range", "float", "TypeVar", "metadata", "meta"}
    | {"tvm", "tir", "tirx", "relax"}
)


def identifier(hint: str) -> str:
    """`hint` with all that an ASCII identifier cannot hold replaced by `_`; never empty, never reserved."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", hint) or "v"
    if name[0].isdigit():
        name = "_" + name
    return name + "_" if name in RESERVED else name


class Names:
    """The names in use, in nested scopes. A name is free again when its scope ends.

    A clash adds the first free number: `x`, `x_1`, `x_2`. Where to look next is remembered for each hint, so that many
    equal hints cost linear time.
    """

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._seen: set[str] = set()  # all names given since `forget`
        self._next: dict[str, int] = {}
        self._scopes: list[list[tuple[str, str, int]]] = [[]]

    def fresh(self, hint: str, depth: int = -1) -> str:
        """A name for the scope at `depth` (the innermost one).

        A name for an outer scope is none that a scope inside it had: it is to be visible there too.
        """
        base = identifier(hint)
        name, number = base, 0
        used = self._taken if depth == -1 else self._seen
        if name in used:
            number = self._next.get(base, 1)
            stem = base if base.endswith("_") else base + "_"
            while (name := f"{stem}{number}") in used:
                number += 1
            self._next[base] = number + 1
        self._taken.add(name)
        self._seen.add(name)
        self._scopes[depth].append((name, base, number))
        return name

    def is_taken(self, name: str) -> bool:
        """Return True if a name is in use in this scope or reserved."""
        return name in self._taken or name in RESERVED

    def forget(self) -> None:
        """Start a new function: keep only the names that are in use."""
        self._seen = set(self._taken)

    def release(self, name: str) -> None:
        """Make a name available again: its variable is out of scope."""
        self._taken.discard(name)
        self._seen.discard(name)

    def push(self) -> None:
        self._scopes.append([])

    def pop(self) -> None:
        for name, base, number in reversed(self._scopes.pop()):
            self._taken.discard(name)
            if number:
                self._next[base] = min(number, self._next[base])
