"""The base of all IR nodes, and the one generic child map.

Nodes are immutable and compare by identity; meaning is compared by `mlcc.ir.equal.structural_equal`.
A field holds a node, plain data, an `Attrs` map, or (nested) tuples of these.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, dataclass_transform

from mlcc.errors import Span

_fields: dict[type, tuple[str, ...]] = {}


@dataclass_transform(frozen_default=True, eq_default=False)
def node(cls: type) -> Any:
    """Class decorator of every IR node: frozen, slotted, identity equality."""
    return dataclass(frozen=True, slots=True, eq=False)(cls)


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """Immutable. `==` is identity; `span` is where the text of it stands, if it came from text."""

    span: Span | None = field(default=None, kw_only=True, repr=False)

    def __str__(self) -> str:
        from mlcc.grammar.printer import script  # the one upward import that the design lists

        return script(self).rstrip("\n")


class Attrs(Mapping[str, Any]):
    """An immutable, ordered map from names to plain values, tuples, `Attrs` and nodes. `==` is identity."""

    __slots__ = ("_items",)
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __init__(self, items: Mapping[str, Any] | None = None, **more: Any) -> None:
        made = dict(items) if items else {}
        made.update(more)
        self._items = {str(k): freeze(v) for k, v in made.items()}

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"Attrs({self._items!r})"

    def with_item(self, key: str, value: Any) -> Attrs:
        return Attrs({**self._items, key: value})

    def without(self, *keys: str) -> Attrs:
        return Attrs({k: v for k, v in self._items.items() if k not in keys})


EMPTY = Attrs()


def freeze(value: Any) -> Any:
    """Lists become tuples and maps become `Attrs`, all the way down."""
    if isinstance(value, (list, tuple)):
        return tuple(freeze(v) for v in value)
    if isinstance(value, Mapping) and not isinstance(value, Attrs):
        return Attrs(value)
    return value


def field_names(cls: type) -> tuple[str, ...]:
    """The fields of a node class that carry meaning: all but the span, in order."""
    found = _fields.get(cls)
    if found is None:
        found = _fields[cls] = tuple(f.name for f in dataclasses.fields(cls) if f.name != "span")
    return found


def map_value(value: Any, fn: Callable[[Any], Any]) -> Any:
    """`fn` over the nodes inside one field value; the same object if nothing changed."""
    if isinstance(value, Node):
        return fn(value)
    if isinstance(value, tuple):
        made = [map_value(v, fn) for v in value]
        for old, new in zip(value, made, strict=True):
            if old is not new:
                return tuple(made)
        return value
    if isinstance(value, Attrs):
        items = {k: map_value(v, fn) for k, v in value.items()}
        return value if all(items[k] is v for k, v in value.items()) else Attrs(items)
    return value


def map_children(old: Any, fn: Callable[[Any], Any]) -> Any:
    """A copy of `old` with `fn` applied to its direct children, or `old` itself if none changed.

    Binding positions (loop variables, parameters, ...) are children too: `fn` decides what to do with a `Var`.
    """
    names = field_names(type(old))
    values = [getattr(old, n) for n in names]
    made = [map_value(v, fn) for v in values]
    for a, b in zip(values, made, strict=True):
        if a is not b:
            return type(old)(*made, span=old.span)
    return old


def replace(old: Any, **changes: Any) -> Any:
    """A copy with other field values; the same object if they are the ones it has."""
    if all(getattr(old, k) is v for k, v in changes.items()):
        return old
    return dataclasses.replace(old, **changes)


def children(of: Any) -> Iterator[Any]:
    """The direct child nodes, in field order."""
    for name in field_names(type(of)):
        value = getattr(of, name)
        if isinstance(value, Node):
            yield value
        elif type(value) is tuple or type(value) is Attrs:
            yield from _nodes(value)


def _nodes(value: Any) -> Iterator[Any]:
    for item in value if type(value) is tuple else value.values():
        if isinstance(item, Node):
            yield item
        elif type(item) is tuple or type(item) is Attrs:
            yield from _nodes(item)


def walk(root: Any) -> Iterator[Any]:
    """Every node below and including `root` (a node or a tuple of nodes), parents first, left to right.

    Shared nodes come up each time.
    """
    stack = list(reversed(root)) if isinstance(root, tuple) else [root]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(list(children(top))))
