"""The nodes of the syntax tree: one class per form of the text, with named parts.

Every node has its place, `start` and `end` in characters, and a `kind`, its name in messages. Parts that are absent
are None, or empty tuples; bodies are tuples of statements. Nodes are compared by identity, and do not change once the
tree is built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from operator import attrgetter
from types import EllipsisType
from typing import Any, ClassVar


@dataclass(slots=True, eq=False, repr=False)
class Node:
    """A part of the text, from `start` up to `end`."""

    kind: ClassVar[str] = "node"
    start: int
    end: int

    def __repr__(self) -> str:
        parts = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in fields(self)[2:])
        return f"{type(self).__name__}({parts})"


class Expr(Node):
    """An expression."""

    __slots__ = ()


class Stmt(Node):
    """A statement."""

    __slots__ = ()


# ---------------------------------------------------------------- expressions


@dataclass(slots=True, eq=False, repr=False)
class Name(Expr):
    """`x`."""

    kind = "name"
    id: str


class Literal(Expr):
    """A number, a string, or a constant; each class has its `value`."""

    __slots__ = ()
    value: Any


@dataclass(slots=True, eq=False, repr=False)
class Int(Literal):
    """`12`, `0x1F`."""

    kind = "int"
    value: int


@dataclass(slots=True, eq=False, repr=False)
class Float(Literal):
    """`1e-3`."""

    kind = "float"
    value: float


@dataclass(slots=True, eq=False, repr=False)
class Str(Literal):
    """`"text"`, adjacent strings joined."""

    kind = "str"
    value: str


@dataclass(slots=True, eq=False, repr=False)
class Const(Literal):
    """`True`, `False`, `None`, `...`."""

    kind = "const"
    value: bool | None | EllipsisType


@dataclass(slots=True, eq=False, repr=False)
class Attribute(Expr):
    """`base.name`."""

    kind = "attr"
    base: Expr
    name: str


@dataclass(slots=True, eq=False, repr=False)
class Keyword(Node):
    """`name=value` in a call; its place is that of the name."""

    kind = "keyword"
    name: str
    value: Expr


@dataclass(slots=True, eq=False, repr=False)
class Call(Expr):
    """`function(args, keywords)`; an argument may be a `Star`."""

    kind = "call"
    function: Expr
    args: tuple[Expr, ...]
    keywords: tuple[Keyword, ...]


@dataclass(slots=True, eq=False, repr=False)
class Index(Expr):
    """`base[items]`; an item may be a `Slice` or a `Star`."""

    kind = "index"
    base: Expr
    items: tuple[Expr, ...]

    @property
    def indices(self) -> tuple[Expr, ...]:
        """The items; those of the tuple in `base[(a, b)]`."""
        return self.items[0].items if len(self.items) == 1 and isinstance(self.items[0], Tuple) else self.items


@dataclass(slots=True, eq=False, repr=False)
class Slice(Expr):
    """`low:high:step`."""

    kind = "slice"
    low: Expr | None
    high: Expr | None
    step: Expr | None


@dataclass(slots=True, eq=False, repr=False)
class Star(Expr):
    """`*value`."""

    kind = "star"
    value: Expr


@dataclass(slots=True, eq=False, repr=False)
class Display(Expr):
    """A `Tuple` or a `List`."""

    items: tuple[Expr, ...]


class Tuple(Display):
    """`a, b`, `(a, b)`."""

    __slots__ = ()
    kind = "tuple"


class List(Display):
    """`[a, b]`."""

    __slots__ = ()
    kind = "list"


@dataclass(slots=True, eq=False, repr=False)
class Dict(Expr):
    """`{key: value, ...}`."""

    kind = "dict"
    entries: tuple[tuple[Expr, Expr], ...]


@dataclass(slots=True, eq=False, repr=False)
class Unary(Expr):
    """`-operand`, `not operand`."""

    kind = "unary"
    op: str
    operand: Expr


@dataclass(slots=True, eq=False, repr=False)
class Infix(Expr):
    """`left op right`: a `Binary`, a `Compare`, or a `Bool`."""

    op: str
    left: Expr
    right: Expr


class Binary(Infix):
    """`a + b`."""

    __slots__ = ()
    kind = "binary"


class Compare(Infix):
    """`a < b`, `a is b`, `a not in b`."""

    __slots__ = ()
    kind = "compare"


class Bool(Infix):
    """`a and b`, `a or b`. `a < b < c` is the `and` of two comparisons that share the node of `b`."""

    __slots__ = ()
    kind = "bool"


@dataclass(slots=True, eq=False, repr=False)
class IfExp(Expr):
    """`then if condition else other`."""

    kind = "ifexp"
    condition: Expr
    then: Expr
    other: Expr


@dataclass(slots=True, eq=False, repr=False)
class Lambda(Expr):
    """`lambda parameters, *rest: body`."""

    kind = "lambda"
    parameters: tuple[str, ...]
    body: Expr
    rest: str | None


def items_of(cst: Expr) -> tuple[Expr, ...]:
    """The items of a tuple or a list; anything else stands for a list of one."""
    return cst.items if isinstance(cst, Display) else (cst,)


def callee_of(cst: Expr) -> Expr:
    """The function of a call; anything else itself."""
    return cst.function if isinstance(cst, Call) else cst


def unless_none(cst: Expr | None) -> Expr | None:
    """The expression; None where there is none, or `None` is written."""
    return None if isinstance(cst, Const) and cst.value is None else cst


# ---------------------------------------------------------------- statements

Body = tuple[Stmt, ...]


@dataclass(slots=True, eq=False, repr=False)
class Expression(Stmt):
    """A line that is an expression."""

    kind = "expr"
    value: Expr


@dataclass(slots=True, eq=False, repr=False)
class Assign(Stmt):
    """`target = value`, `target: annotation = value`, `target: annotation`.

    `a = b = c` is one of these per target, left to right, which share the node of `c`. That is exact for the values
    that programs here have, which have no effects.
    """

    kind = "assign"
    target: Expr
    annotation: Expr | None
    value: Expr | None


@dataclass(slots=True, eq=False, repr=False)
class AugAssign(Stmt):
    """`target op= value`."""

    kind = "augassign"
    target: Expr
    op: str
    value: Expr


@dataclass(slots=True, eq=False, repr=False)
class For(Stmt):
    """`for target in iterable: body`; its place is that of the header."""

    kind = "for"
    target: Expr
    iterable: Expr
    body: Body


@dataclass(slots=True, eq=False, repr=False)
class While(Stmt):
    """`while condition: body`."""

    kind = "while"
    condition: Expr
    body: Body


@dataclass(slots=True, eq=False, repr=False)
class If(Stmt):
    """`if condition: then else: other`; an `elif` is an `If` in `other`."""

    kind = "if"
    condition: Expr
    then: Body
    other: Body


@dataclass(slots=True, eq=False, repr=False)
class With(Stmt):
    """`with context as target, ...: body`; items are pairs of both."""

    kind = "with"
    items: tuple[tuple[Expr, Expr | None], ...]
    body: Body


@dataclass(slots=True, eq=False, repr=False)
class Return(Stmt):
    """`return value`."""

    kind = "return"
    value: Expr | None


@dataclass(slots=True, eq=False, repr=False)
class Assert(Stmt):
    """`assert condition, message`."""

    kind = "assert"
    condition: Expr
    message: Expr | None


class Pass(Stmt):
    """`pass`."""

    __slots__ = ()
    kind = "pass"


class Break(Stmt):
    """`break`."""

    __slots__ = ()
    kind = "break"


class Continue(Stmt):
    """`continue`."""

    __slots__ = ()
    kind = "continue"


@dataclass(slots=True, eq=False, repr=False)
class Import(Stmt):
    """An import line: pairs of a dotted name and the name that it binds."""

    kind = "import"
    names: tuple[tuple[str, str], ...]


@dataclass(slots=True, eq=False, repr=False)
class Parameter(Node):
    """`name: annotation = default` of a function; its place is that of the name."""

    kind = "parameter"
    name: str
    annotation: Expr | None
    default: Expr | None

    @property
    def place(self) -> Name:
        """The name as a node."""
        return Name(self.start, self.end, self.name)


@dataclass(slots=True, eq=False, repr=False)
class Def(Stmt):
    """`def name(parameters) -> returns: body` under decorators."""

    kind = "def"
    name: str
    name_start: int
    name_end: int
    parameters: tuple[Parameter, ...]
    returns: Expr | None
    decorators: tuple[Expr, ...]
    body: Body

    @property
    def place(self) -> Name:
        """The name as a node."""
        return Name(self.name_start, self.name_end, self.name)


@dataclass(slots=True, eq=False, repr=False)
class Class(Stmt):
    """`class name(bases): body` under decorators."""

    kind = "class"
    name: str
    bases: tuple[Expr, ...]
    decorators: tuple[Expr, ...]
    body: Body


# ---------------------------------------------------------------- traversal

_LEAVES = {"int", "str", "float", "bool | None | EllipsisType", "tuple[str, ...]", "tuple[tuple[str, str], ...]"}


def _parts() -> dict[type, Callable[[Any], tuple[Any, ...]] | None]:
    """For every class of nodes what gives the parts that are or hold nodes, after its offsets; None if it has none."""
    parts: dict[type, Callable[[Any], tuple[Any, ...]] | None] = {}
    classes = [Node]
    while classes:
        cls = classes.pop()
        names = [field.name for field in fields(cls) if field.type not in _LEAVES]
        parts[cls] = attrgetter("start", "end", *names) if names else None
        classes += cls.__subclasses__()
    return parts


_PARTS = _parts()


def nodes(tree: Node | tuple[Any, ...]) -> Iterator[Node]:
    """All nodes of a tree, or of tuples of trees: parents first, else in the order of their fields."""
    stack: list[Any] = [tree]
    while stack:
        top = stack.pop()
        kind = type(top)
        if kind is tuple:
            stack += top[::-1]
        elif kind in _PARTS:
            yield top
            parts = _PARTS[kind]
            if parts is not None:
                stack += parts(top)[:1:-1]


def parts_at_depth(tree: tuple[Any, ...], depth: int) -> list[Any]:
    """Return the parts `depth` levels below the root of a tree; nodes and tuples of nodes each count as a level."""
    level: list[Any] = [tree]
    for _ in range(depth):
        inside: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is tuple:
                inside += item
            elif (parts := _PARTS[kind]) is not None:
                inside += parts(item)[2:]
        level = [part for part in inside if type(part) in _PARTS or (type(part) is tuple and part)]
        if not level:
            break
    return level
