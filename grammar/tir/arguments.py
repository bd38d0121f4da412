"""Arguments of the functions that the text calls, matched to their names."""

from __future__ import annotations

import functools

from mlcc.errors import did_you_mean
from mlcc.grammar.context import Walk
from mlcc.grammar.syntax import tree


class Signature:
    """The parameters of a text function: `signature("T.serial", "start stop=", "annotations step")`.

    Positional ones come first, those ending in `=` may be left out; `named` ones are given by name only, and may always
    be left out. `rest` collects further positional arguments.
    """

    def __init__(self, name: str, positional: str, named: str = "", rest: bool = False) -> None:
        words = positional.split()
        self.name = name
        self.positional = tuple(w.rstrip("=") for w in words)
        self.required = tuple(w for w in words if not w.endswith("="))
        self.known = (*self.positional, *named.split())
        self.rest = rest

    def bind(self, walk: Walk, call: tree.Call, skip: int = 0) -> dict[str, tree.Expr]:
        """Return the arguments by name, without the first `skip`. Wrong arguments are reported and raise Skip."""
        bound: dict[str, tree.Expr] = {}
        args = call.args[skip:]
        star = next((a for a in args if isinstance(a, tree.Star)), None)
        if star is not None:
            walk.fail("E0304", f"`{self.name}` does not accept starred arguments", star)
        if len(args) > len(self.positional) and not self.rest:
            count = f"{len(self.positional)} argument{'s' * (len(self.positional) != 1)} by position"
            walk.fail("E0304", f"`{self.name}` takes {count}, not {len(args)}", args[len(self.positional)], "too many")
        bound.update(zip(self.positional, args, strict=False))
        for keyword in call.keywords:
            name = keyword.name
            if name not in self.known:
                help = did_you_mean(name, self.known)
                walk.fail("E0304", f"`{self.name}` has no argument `{name}`", keyword, help=help)
            if name in bound:
                walk.fail("E0304", f"argument `{name}` of `{self.name}` is given twice", keyword)
            bound[name] = keyword.value
        missing = [name for name in self.required if name not in bound]
        if missing:
            names = ", ".join(f"`{name}`" for name in missing)
            walk.fail("E0304", f"`{self.name}` needs {names}", call, "missing here")
        return bound


signature = functools.cache(Signature)
