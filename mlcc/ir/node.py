"""The base of all IR nodes, and the one generic child map.

Nodes are immutable and compare by identity; meaning is compared by `mlcc.ir.equal.structural_equal`.
A field holds a node, plain data, an `Attrs` map, or (nested) tuples of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

from mlcc.errors import Span

_fields: dict[type, tuple[str, ...]] = {}
_child_fields: dict[type, dict[str, str]] = {}  # those that may hold nodes, with their annotations
_meaning: dict[type, tuple[str, ...]] = {}  # those that are not hints
_LEAVES = {"DType", "ForKind", "IterKind", "PointerType", "TensorData", "bool", "float", "int", "str", "None"}
_defaults: dict[type, dict[str, Any]] = {}


@dataclass_transform(frozen_default=True, eq_default=False)
def node(cls: type) -> Any:
    """Class decorator of every IR node: its annotations are its fields, in slots, frozen, compared by identity.

    What `dataclass(frozen=True, slots=True, eq=False)` makes, with `span` for keyword only; written out because a
    hundred generated dataclasses take longer to define than a small model takes to compile. Fields that `HINTS` names
    are texts or places that say nothing about the meaning: comparisons leave them out.
    """
    base = next(b for b in cls.__mro__[1:] if issubclass(b, Node))
    annotations = cls.__dict__.get("__annotations__", {})
    own = [n for n, kind in annotations.items() if not kind.startswith("ClassVar") and n not in field_names(base)]
    names = (*field_names(base), *own)
    body = {k: v for k, v in cls.__dict__.items() if k not in ("__dict__", "__weakref__")}
    defaults = _defaults[base] | {n: body.pop(n) for n in own if n in body}
    body.update(__slots__=tuple(own), __match_args__=names)
    made = type(cls)(cls.__name__, cls.__bases__, body)
    _fields[made], _defaults[made] = names, defaults
    _meaning[made] = tuple(n for n in names if n not in getattr(cls, "HINTS", ()))
    may_hold = {n: annotations[n] for n in own if not {part.strip() for part in annotations[n].split("|")} <= _LEAVES}
    _child_fields[made] = {**_child_fields[base], **may_hold}
    _define_init(made, names, defaults)
    return made


def _define_init(cls: type, names: tuple[str, ...], defaults: dict[str, Any]) -> None:
    """`__init__` that stores through the slots' own setters, which `__setattr__` does not stop."""
    scope: dict[str, Any] = {f"_default_{n}": v for n, v in defaults.items()}
    scope |= {f"_set_{n}": getattr(cls, n).__set__ for n in (*names, "span")}
    parameters = [f"{n}=_default_{n}" if n in defaults else n for n in names]
    lines = [f"def __init__(self, {', '.join([*parameters, '*, span=None'])}):"]
    lines += [f"    _set_{n}(self, {n})" for n in (*names, "span")]
    exec("\n".join(lines), scope)
    init = scope["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    cls.__init__ = init  # type: ignore[misc]


if TYPE_CHECKING:  # what `node` does with the span, in words that type checkers know

    @dataclass(frozen=True, eq=False)
    class _Spanned:
        span: Span | None = field(default=None, kw_only=True)
else:
    _Spanned = object


class Node(_Spanned):
    """Immutable. `==` is identity; `span` is where the text of it stands, if it came from text."""

    __slots__ = ("span",)
    if not TYPE_CHECKING:
        __match_args__ = ()

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable: cannot assign to `{name}`")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable: cannot delete `{name}`")

    def __repr__(self) -> str:
        """One line: the class, and where the text begins."""
        try:
            return f"<{type(self).__name__} {one_line(str(self))}>"
        except Exception:  # noqa: BLE001 - a node with fields of the wrong kind, as it is debugged
            return f"<{type(self).__name__} that cannot be printed>"

    def __str__(self) -> str:
        from mlcc.grammar.printer.printer import script

        return script(self).rstrip("\n")


_fields[Node], _meaning[Node], _child_fields[Node], _defaults[Node] = (), (), {}, {}
_define_init(Node, (), {})


def one_line(text: str, width: int = 90) -> str:
    """The first line of a text that says something, and dots where there is more."""
    lines = [line for line in text.splitlines() if line and not line.startswith(("#", "@"))] or [""]
    if len(lines) == 1 and len(lines[0]) <= width:
        return lines[0]
    return f"{lines[0][:width].rstrip()} ..."


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
    """The fields of a node class: all but the span, in order."""
    return _fields[cls]


def meaning_names(cls: type) -> tuple[str, ...]:
    """The fields of a node class that carry meaning: all but hints and the span, in order."""
    return _meaning[cls]


T = TypeVar("T")
N = TypeVar("N", bound="_Spanned")


def map_value(value: T, fn: Callable[[Any], Any]) -> T:
    """`fn` over the nodes inside one field value; the same object if nothing changed."""
    made: Any = value
    if isinstance(value, Node):
        made = fn(value)
    elif isinstance(value, tuple):
        parts = [map_value(v, fn) for v in value]
        if any(old is not new for old, new in zip(value, parts, strict=True)):
            made = tuple(parts)
    elif isinstance(value, Attrs):
        items = {k: map_value(v, fn) for k, v in value.items()}
        if any(items[k] is not v for k, v in value.items()):
            made = Attrs(items)
    return made  # type: ignore[no-any-return]


def map_children(old: N, fn: Callable[[Any], Any]) -> N:
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


def replace(old: N, **changes: Any) -> N:
    """A copy with other field values; the same object if they are the ones it has."""
    if all(getattr(old, k) is v for k, v in changes.items()):
        return old
    values = {n: getattr(old, n) for n in _fields[type(old)]}
    return type(old)(**{"span": old.span, **values, **changes})


class _ChildLists(dict[type, Callable[[Any], list[Any]] | None]):
    """By class the function that lists the child nodes of a node of it; None where there are never any.

    They are generated when first asked for: a display of the fields, as in `[of.buffer, *of.indices]`, takes a third
    of the time of a loop over their names.
    """

    def __init__(self, backwards: bool) -> None:
        super().__init__()
        self._backwards = backwards

    def __missing__(self, cls: type) -> Callable[[Any], list[Any]] | None:
        parts = [_child_display(f"of.{name}", kind, self._backwards) for name, kind in _child_fields[cls].items()]
        if self._backwards:
            parts.reverse()
        made = eval(f"lambda of: [{', '.join(parts)}]", {"_nodes_in": _nodes_in}) if parts else None
        self[cls] = made
        return made  # type: ignore[no-any-return]


def _child_display(value: str, annotation: str, backwards: bool) -> str:
    """The nodes of a field as a part of a list display: the field itself where the annotation says one node."""
    order = "[::-1]" if backwards else ""
    kind = annotation.removesuffix(" | None")
    if kind in _NODES:
        return value if kind == annotation else f"*(({value},) if {value} is not None else ())"
    if kind.startswith("tuple[") and kind[6:].removesuffix(", ...]") in _NODES:
        return f"*{value}{order}" if kind == annotation else f"*({value} or ()){order}"
    return f"*_nodes_in({value}){order}"


def _nodes_in(value: Any) -> list[Any]:
    """The nodes that a field value holds."""
    found: list[Any] = []
    if value is not EMPTY:
        _add_nodes((value,), found)
    return found


def _add_nodes(value: Any, found: list[Any]) -> None:
    for item in value if type(value) is tuple else value.values():
        if isinstance(item, Node):
            found.append(item)
        elif type(item) is tuple or type(item) is Attrs:
            _add_nodes(item, found)


# node classes as annotations name them
_NODES = {
    "Binding", "BindingBlock", "Block", "Buffer", "BufferRegion", "CommReducer", "Expr", "IndexMap", "IterVar",
    "MatchBufferRegion", "PrimExpr", "Range", "SeqExpr", "Stmt", "StructInfo", "Var",
}  # fmt: skip
_children, _children_backwards = _ChildLists(False), _ChildLists(True)


def children(of: Any) -> list[Any]:
    """The direct child nodes, in field order."""
    listed = _children[type(of)]
    return listed(of) if listed is not None else []


def walk(root: Any) -> Iterator[Any]:
    """Every node below and including `root` (a node or a tuple of nodes), parents first, left to right.

    Shared nodes come up each time.
    """
    stack = list(reversed(root)) if isinstance(root, tuple) else [root]
    pop = stack.pop
    below = _children_backwards
    while stack:
        top = pop()
        yield top
        listed = below[type(top)]
        if listed is not None:
            stack += listed(top)
