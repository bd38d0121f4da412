"""Placeholders for names of the language in Python: `T.Buffer((4,), "float32")` in an annotation gives one.

Python evaluates annotations, defaults and the statements of a class before a decorator reads their text. Placeholders
make that evaluation cheap and free of errors; they keep their path and arguments, so that `n = T.int64()` at the level
of a module has a meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Placeholder:
    """A dotted name of the language, or a call or subscript of one; `args` is None unless it was called."""

    __slots__ = ("args", "path")

    def __init__(self, path: str, args: tuple[Any, ...] | None = None) -> None:
        self.path, self.args = path, args

    def __getattr__(self, name: str) -> Placeholder:
        if name.startswith("_"):
            raise AttributeError(f"`{self.path}` has no attribute {name!r}")
        return Placeholder(f"{self.path}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Placeholder:
        return Placeholder(self.path, (*args, *kwargs.values()))

    def __getitem__(self, items: Any) -> Placeholder:
        return Placeholder(f"{self.path}[]", (items,))

    def __iter__(self) -> Any:
        raise TypeError(f"{self!r} can be iterated over only in a function under a decorator")

    def __repr__(self) -> str:
        return f"<{self.path} of the language, outside a text>"


def _operator(name: str) -> Callable[..., Placeholder]:
    def operator(*operands: Any) -> Placeholder:
        return Placeholder(name, operands)

    return operator


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift"):
    setattr(Placeholder, f"__{_name}__", _operator(_name))
    setattr(Placeholder, f"__r{_name}__", _operator(_name))
for _name in ("neg", "pos", "invert", "lt", "le", "gt", "ge"):
    setattr(Placeholder, f"__{_name}__", _operator(_name))


def placeholder(path: str) -> Placeholder:
    """Return the placeholder of `T.name`, `R.name` or `I.name`. Raise AttributeError for a name with an underscore."""
    root, _, name = path.partition(".")
    if name.startswith("_"):
        raise AttributeError(f"`{root}` has no attribute {name!r}")
    return Placeholder(path)
