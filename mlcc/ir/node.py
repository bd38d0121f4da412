"""The base of all IR nodes, and the one generic child map.

Nodes are immutable and compare by identity; meaning is compared by `mlcc.ir.equal.structural_equal`.
A field holds a node, plain data, an `Attrs` map, or (nested) tuples of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import CodeType
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

from mlcc.errors import Span

_fields: dict[type, tuple[str, ...]] = {}
_child_fields: dict[type, dict[str, str]] = {}  # those that may hold nodes, with their annotations
_meaning: dict[type, tuple[str, ...]] = {}  # those that are not hints
_LEAVES = {"DType", "ForKind", "IterKind", "PointerType", "TensorData", "bool", "float", "int", "str", "None"}
_defaults: dict[type, dict[str, Any]] = {}
_kinds: dict[type, int] = {}  # a bit for each node class, and those of its bases


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
    defined = type(cls)(cls.__name__, cls.__bases__, body)
    _fields[defined], _defaults[defined] = names, defaults
    _meaning[defined] = tuple(n for n in names if n not in getattr(cls, "HINTS", ()))
    may_hold = {n: annotations[n] for n in own if not {part.strip() for part in annotations[n].split("|")} <= _LEAVES}
    _child_fields[defined] = {**_child_fields[base], **may_hold}
    _kinds[defined] = 1 << len(_kinds) | _kinds[base]
    _define_init(defined, names, defaults)
    return defined


def _define_init(cls: type, names: tuple[str, ...], defaults: dict[str, Any]) -> None:
    """Define an `__init__` that stores through the setters of the slots, bypassing `__setattr__`."""
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

    __slots__ = (
        "_contained_kinds",
        "span",
    )  # `_contained_kinds`: the kinds of the nodes below and of itself, once asked for
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
        return self.script().rstrip("\n")

    def script(self, dialect: str = "mlcc") -> str:
        """Return the node as text; see `mlcc.script`."""
        from mlcc.grammar.printer.printer import script

        return script(self, dialect=dialect)

    def show(self, dialect: str = "mlcc") -> None:
        """Print the text, highlighted on a terminal."""
        from mlcc.grammar.printer.printer import show

        show(self, dialect=dialect)


_fields[Node], _meaning[Node], _child_fields[Node], _defaults[Node] = (), (), {}, {}
_kinds[Node] = 1
_define_init(Node, (), {})


def one_line(text: str, width: int = 90) -> str:
    """Return the first significant line of a text, with dots if there is more."""
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
        merged = dict(items) if items else {}
        merged.update(more)
        self._items = {str(k): freeze(v) for k, v in merged.items()}

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
    """Convert lists to tuples and maps to `Attrs`, recursively."""
    if isinstance(value, (list, tuple)):
        return tuple(freeze(v) for v in value)
    if isinstance(value, Mapping) and not isinstance(value, Attrs):
        return Attrs(value)
    return value


def field_names(cls: type) -> tuple[str, ...]:
    """Return the fields of a node class in order, without the span."""
    return _fields[cls]


def semantic_field_names(cls: type) -> tuple[str, ...]:
    """Return the semantic fields of a node class in order, without hints and the span."""
    return _meaning[cls]


T = TypeVar("T")
N = TypeVar("N", bound="_Spanned")


def map_value(value: T, fn: Callable[[Any], Any]) -> T:
    """Apply `fn` to the nodes inside one field value; return the same object if nothing changed."""
    mapped: Any = value
    if isinstance(value, tuple):
        parts = [fn(v) if isinstance(v, Node) else map_value(v, fn) for v in value]
        for old, new in zip(value, parts, strict=True):
            if old is not new:
                return tuple(parts)  # type: ignore[return-value]
    elif isinstance(value, Node):
        mapped = fn(value)
    elif isinstance(value, Attrs) and value is not EMPTY:
        items = {k: map_value(v, fn) for k, v in value.items()}
        if any(items[k] is not v for k, v in value.items()):
            mapped = Attrs(items)
    return mapped  # type: ignore[no-any-return]


def map_children(old: N, fn: Callable[[Any], Any]) -> N:
    """Return a copy of `old` with `fn` applied to its direct children, or `old` itself if none changed.

    Binding positions (loop variables, parameters, ...) are children too: `fn` decides what to do with a `Var`.
    """
    mapped = _maps[type(old)]
    return old if mapped is None else mapped(old, fn)


def replace(old: N, **changes: Any) -> N:
    """Return a copy with other field values; the same object if they are unchanged."""
    return _replacers[type(old)](old, **changes)  # type: ignore[no-any-return]


class _Generated(dict[type, Any]):
    """Functions specialized to a node class, by class, generated on first use.

    They name the fields, which takes a fraction of the time of a loop over their names.
    """

    def __init__(self, source: Callable[[type], list[str]], **scope: Any) -> None:
        super().__init__()
        self._source = source
        self._scope = scope
        self._codes: dict[str, CodeType] = {}  # by source, which many classes share

    def __missing__(self, cls: type) -> Any:
        if not issubclass(cls, Node):  # a field value that contradicts the annotations
            self[cls] = None
            return None
        source = "\n".join(self._source(cls))
        scope = {**self._scope, "_cls": cls}
        if source:
            code = self._codes.get(source) or self._codes.setdefault(source, compile(source, "<node>", "exec"))
            exec(code, scope)
        function = self[cls] = scope.get("made")
        return function


def _map_source(cls: type) -> list[str]:
    """Return the source of `map_children` for a node class; empty if it never has children."""
    kinds = _child_fields[cls]
    if not kinds:
        return []
    lines = ["def made(old, fn):"]
    for name, kind in kinds.items():
        mapped = f"fn(old_{name})" if kind in _NODES else f"map_value(old_{name}, fn)"
        lines += [f"    old_{name} = old.{name}", f"    new_{name} = {mapped}"]
    lines += [f"    if {' and '.join(f'new_{n} is old_{n}' for n in kinds)}:", "        return old"]
    values = ", ".join(f"new_{n}" if n in kinds else f"old.{n}" for n in _fields[cls])
    return [*lines, f"    return _cls({values}, span=old.span)"]


def _replace_source(cls: type) -> list[str]:
    """Return the source of `replace` for a node class."""
    names = (*_fields[cls], "span")
    lines = [f"def made(_old, *, {', '.join(f'{n}=_same' for n in names)}):", "    _changed = False"]
    for name in names:
        lines += [f"    if {name} is _same:", f"        {name} = _old.{name}"]
        lines += [f"    elif not _changed and {name} is not _old.{name}:", "        _changed = True"]
    return [*lines, f"    return _cls({', '.join(f'{n}={n}' for n in names)}) if _changed else _old"]


def _children_source(cls: type) -> list[str]:
    """Return the source of a function that lists the children of a node; empty if the class never has any."""
    parts = ", ".join(_child_display(f"of.{name}", kind) for name, kind in _child_fields[cls].items())
    return [f"made = lambda of: [{parts}]"] if parts else []


def _child_display(value: str, annotation: str) -> str:
    """Return the source of a field's nodes in a list display: the field itself if its annotation is one node."""
    kind = annotation.removesuffix(" | None")
    if kind in _NODES:
        return value if kind == annotation else f"*(() if {value} is None else ({value},))"
    if kind.startswith("tuple[") and kind[6:].removesuffix(", ...]") in _NODES:
        return f"*({value} or ())"  # None also stands for parts that a parser leaves out
    return f"*_nodes_in({value})"


def _nodes_in(value: Any) -> list[Any]:
    """Return the nodes that a field value holds."""
    nodes: list[Any] = []
    if value is not EMPTY:
        _add_nodes((value,), nodes)
    return nodes


def _add_nodes(value: Any, nodes: list[Any]) -> None:
    for item in value if type(value) is tuple else value.values():
        if isinstance(item, Node):
            nodes.append(item)
        elif type(item) is tuple or type(item) is Attrs:
            _add_nodes(item, nodes)


# node classes as annotations name them
_NODES = {
    "Binding", "BindingBlock", "Block", "Buffer", "BufferRegion", "CommReducer", "Expr", "IndexMap", "IterVar",
    "MatchBufferRegion", "PrimExpr", "Range", "SeqExpr", "Stmt", "StructInfo", "Var",
}  # fmt: skip
_maps = _Generated(_map_source, map_value=map_value)
_replacers = _Generated(_replace_source, _same=object())
_children = _Generated(_children_source, _nodes_in=_nodes_in)


def is_leaf(of: Node) -> bool:
    """Return True if nodes of this class never have children."""
    return _children[type(of)] is None


def children(of: Any) -> list[Any]:
    """Return the direct child nodes, in field order."""
    listed = _children[type(of)]
    return listed(of) if listed is not None else []


def walk(root: Any) -> Iterator[Any]:
    """Yield every node below and including `root` (a node or a tuple of nodes) in preorder, left to right.

    Shared nodes are yielded at each occurrence.
    """
    stack = list(reversed(root)) if isinstance(root, tuple) else [root]
    pop = stack.pop
    lists = _children
    while stack:
        top = pop()
        yield top
        listed = lists[type(top)]
        if listed is not None:
            below = listed(top)
            below.reverse()
            stack += below


def find(root: Any, *classes: type) -> Iterator[Any]:
    """Yield the nodes of these classes in the order of `walk`, skipping subtrees that contain none.

    The classes in a subtree are cached in its root at the first search. That costs as much as three walks and pays
    off because code is searched far more often than that before it changes.
    """
    wanted = _wanted(classes)
    stack = list(reversed(root)) if isinstance(root, tuple) else [root]
    pop = stack.pop
    lists, kinds = _children, _kinds
    while stack:
        top = pop()
        cls = type(top)
        listed = lists[cls]
        if listed is None:
            if kinds.get(cls, 0) & wanted:
                yield top
            continue
        try:
            held = top._contained_kinds
        except AttributeError:
            held = _cache_contained_kinds(top)
        if held & wanted:
            if kinds[cls] & wanted:
                yield top
            below = listed(top)
            below.reverse()
            stack += below


def holds(root: Any, *classes: type) -> bool:
    """Return True if `root`, a node or a tuple of nodes, is or contains a node of these classes."""
    wanted = _wanted(classes)
    return any(_contained_kinds(n) & wanted for n in (root if isinstance(root, tuple) else (root,)))


@cache
def _wanted(classes: tuple[type, ...]) -> int:
    """Return a mask with the bit of each class, which subclasses share."""
    bits = 0
    for cls in classes:
        bits |= 1 << _kinds[cls].bit_length() - 1
    return bits


def _contained_kinds(of: Any) -> int:
    """Return the kinds of a node and of all below it, as a mask."""
    cls = type(of)
    if _children[cls] is None:
        return _kinds.get(cls, 0)
    try:
        return of._contained_kinds  # type: ignore[no-any-return]
    except AttributeError:
        return _cache_contained_kinds(of)


_set_contained_kinds = Node._contained_kinds.__set__  # type: ignore[attr-defined]


def _cache_contained_kinds(root: Any) -> int:
    """Cache the kinds below a node in it and in the nodes below it; return its mask."""
    lists, kinds = _children, _kinds
    stack = [root]
    held = 0
    while stack:
        top = stack[-1]
        cls = type(top)
        held = kinds[cls]
        waiting = False
        for child in lists[cls](top):
            kind = type(child)
            if lists[kind] is None:
                held |= kinds.get(kind, 0)
                continue
            try:
                held |= child._contained_kinds
            except AttributeError:
                stack.append(child)
                waiting = True
        if not waiting:
            stack.pop()
            _set_contained_kinds(top, held)
    return held
