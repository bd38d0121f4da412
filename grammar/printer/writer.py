"""The base of all printers: output lines, names in scope, and printing of expressions without recursion.

An expression's handler returns its precedence and its parts: text, and children with the precedence that their
position requires. `Writer.text` joins the parts with an explicit stack and parenthesizes a child that binds less
tightly than its position requires. Expressions may be of any depth, and time is linear in the length of the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from mlcc.grammar.constants import ConstantKeys
from mlcc.grammar.printer.literals import quote
from mlcc.grammar.printer.names import Names, identifier
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.node import Node

# Precedence, loosest first, as in Python.
ANY, OR, AND, NOT, COMPARE, SUM, PRODUCT, UNARY, ATOM = range(9)

SOURCE = ".source"  # the buffer behind a scalar variable
START, END = "\x01", "\x02"  # around the node that an excerpt points to; `quote` writes no control characters


@dataclass(frozen=True, slots=True)
class Dialect:
    """The differences in spelling between the two printed dialects."""

    name: str
    tir_import: str
    prim_func: str  # an argument of the decorator
    plain_prim_func: str  # the same for a function that TVM 0.27 does not mark `s_tir`
    block: str
    block_attr: str
    block_alloc: str
    alloc: str
    bind: str  # the annotation of a bound variable
    out_sinfo: str
    sinfo_args: str
    anything: str

    @property
    def is_tvm(self) -> bool:
        return self.name == "tvm"


DIALECTS = {
    "mlcc": Dialect(
        "mlcc", "tir", "", "s_tir=False", "T.block", "T.block_attr", "T.alloc_buffer", "T.alloc_buffer_stmt", "{}",
        "out_sinfo", "sinfo_args", "R.Object",
    ),
    "tvm": Dialect(
        "tvm", "tirx", "s_tir=True", "", "T.sblock", "T.sblock_attr", "T.sblock_alloc_buffer", "T.alloc_buffer",
        "T.let[{}]", "out_ty", "ty_args", "R.Any",
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Child:
    """A child expression in a place that asks for a precedence.

    `like`: the dtype that the reader gives to a bare integer in this place, if it is not int32.
    """

    node: Any
    prec: int = ANY
    like: DType | None = None


@dataclass(frozen=True, slots=True)
class Value:
    """An attribute's value: plain data, or a node."""

    value: Any


Part = str | Child | Value
Parts = tuple[int, list[Part]]
Handler = Callable[["Writer", Any, "DType | None"], Parts]


@dataclass(frozen=True, slots=True)
class Style:
    """Deviations of a printed text from the canonical one, which is the default.

    `comment` returns the comment to write behind a binding. `call` returns the arguments (nodes or plain values) and
    attributes to write for a relax call. `hints` are names for variables and buffers in place of their own.
    """

    comment: Callable[[Any], str | None] | None = None
    call: Callable[[Any], tuple[Sequence[Any], Mapping[str, Any]]] | None = None
    hints: Mapping[Any, str] = field(default_factory=dict)


CANONICAL = Style()

HANDLERS: dict[type, Handler] = {}
_LONGEST_COMMENT = 160  # characters


def handles(*classes: type) -> Callable[[Handler], Handler]:
    """Register the handler of expression classes."""

    def register(fn: Handler) -> Handler:
        for cls in classes:
            HANDLERS[cls] = fn
        return fn

    return register


def separated(parts: list[list[Part]], by: str = ", ") -> list[Part]:
    """The parts of a list, with separators."""
    joined: list[Part] = []
    for i, part in enumerate(parts):
        if i:
            joined.append(by)
        joined += part
    return joined


def call(name: str, *args: Part | list[Part]) -> Parts:
    """The parts of `name(args)`."""
    return ATOM, [name, "(", *separated([a if isinstance(a, list) else [a] for a in args]), ")"]


class Writer:
    """The text under construction.

    `bound` maps variables and buffers in scope to their text. What is used without being bound gets a declaration in
    `prelude`, the lines that go to the top of the function.
    """

    def __init__(
        self, dialect: Dialect, module_name: str = "", trail: list[Any] | None = None, style: Style = CANONICAL
    ) -> None:
        self.dialect = dialect
        self.style = style
        self.last_comment = ("", "")  # the text, and with what the variable's name begins
        self.module_name = identifier(module_name) if module_name else ""
        self.lines: list[str] = []
        self.depth = 0
        self.names = Names()
        self.bound: dict[Any, str] = {}
        self.past: dict[Any, str] = {}  # names that variables of dataflow blocks had
        self.scopes: list[list[Any]] = [[]]
        self.function_scope = 0  # where the declarations of the prelude belong
        self.prelude: list[str] = []
        self.signature: set[Any] | None = None  # the symbolic variables that the signature being written introduces
        self.from_signature: dict[Any, str] = {}  # those that the body has not declared yet
        self.scalars: dict[str, tir.Buffer] = {}  # the buffers behind names of scalar variables
        self.checked: dict[Any, Any] = {}  # values of variables that only hand them to the check of an annotation
        self.mentions_signature = False  # set by variables of the signature
        self.thread_vars: dict[Any, int] = {}
        self.loops: dict[tir.Var, tir.For] = {}
        self.keys = ConstantKeys()
        self.imports: set[str] = set()
        self.uses_module = False
        self.function_names: dict[str, str] = {}
        self.trail = trail or []
        self.reached = 0

    # ------------------------------------------------------------ lines

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text if text else "")

    def comment(self, node: Any, at: int) -> None:
        """Write the comment of a binding behind line `at`, its first, unless the preceding binding has the same comment
        and a variable name with the same beginning."""
        comment = self.style.comment(node) if self.style.comment is not None and at < len(self.lines) else None
        text = " ".join("".join(c if c.isprintable() else " " for c in comment or "").split())[:_LONGEST_COMMENT]
        comment_key = text, getattr(node.var, "name", "").partition("_")[0]
        if text and comment_key != self.last_comment:
            self.lines[at] += f"  # {text}"
        self.last_comment = comment_key

    @contextmanager
    def indented(self) -> Iterator[None]:
        """A nested block of lines, with names of its own."""
        self.depth += 1
        self.push()
        yield
        self.pop()
        self.depth -= 1

    # ------------------------------------------------------------ names

    def push(self) -> None:
        self.names.push()
        self.scopes.append([])

    def pop(self) -> None:
        self.names.pop()
        for node in self.scopes.pop():
            self.bound.pop(node, None)

    def define(self, node: Any, hint: str, depth: int = -1) -> str:
        """Bind a variable or buffer in the scope at `depth` and give it a name."""
        name = self.fresh_name(node, hint, depth)
        self.bind(node, name, depth)
        return name

    def fresh_name(self, node: Any, hint: str, depth: int = -1) -> str:
        """A new name for a variable or buffer in the scope at `depth`, like its hint, or like that of the style."""
        return self.names.fresh(self.style.hints.get(node, hint), depth)

    def bind(self, node: Any, text: str, depth: int = -1) -> None:
        """Write `node` as `text` until the scope ends."""
        self.bound[node] = text
        self.scopes[depth].append(node)

    def function_name(self, name: str) -> str:
        """The identifier of a function of the module."""
        return self.function_names.get(name) or identifier(name)

    # ------------------------------------------------------------ expressions

    def text(self, node: Any, prec: int = ANY, like: DType | None = None) -> str:
        """The text of an expression, struct info, or any other node that is not a statement."""
        return self.join([Child(node, prec, like)])

    def value(self, value: Any) -> str:
        """The text of an attribute's value."""
        return self.join([Value(value)])

    def join(self, parts: list[Part]) -> str:
        out: list[str] = []
        stack: list[Part] = parts[::-1]
        while stack:
            top = stack.pop()
            if isinstance(top, str):
                out.append(top)
                continue
            if isinstance(top, Value):
                stack += reversed(self.value_parts(top.value))
                continue
            marked = self.reach(top.node)
            if marked:
                out.append(START)
                stack.append(END)
            handler = HANDLERS.get(type(top.node)) or _handler(type(top.node))
            prec, below = handler(self, top.node, top.like)
            if prec < top.prec:
                stack.append(")")
                stack += reversed(below)
                out.append("(")
            else:
                stack += reversed(below)
        return "".join(out)

    def value_parts(self, value: Any) -> list[Part]:
        from mlcc.grammar.printer.attributes import attribute_parts

        return attribute_parts(self, value)

    # ------------------------------------------------------------ excerpts

    def reach(self, node: Any) -> bool:
        """True if `node` is the next one on the trail to the place that an excerpt shows."""
        if self.reached < len(self.trail) and self.trail[self.reached][0] is node:
            entry = self.trail[self.reached]
            if entry[1]:  # the same object stands further left under the same parent
                self.trail[self.reached] = (node, entry[1] - 1)
                return False
            self.reached += 1
            return True
        return False

    def mark(self, marked: bool, at: int) -> None:
        """Put the marks of an excerpt around the first line of a statement, which is line `at`, if it is `marked`."""
        if marked and at < len(self.lines):
            text = self.lines[at].lstrip(" ")
            self.lines[at] = " " * (len(self.lines[at]) - len(text)) + START + text + END


def _handler(cls: type) -> Handler:
    """The handler of a class or its bases; a node without one is written as a call that cannot be parsed."""
    for base in cls.__mro__:
        if base in HANDLERS:
            HANDLERS[cls] = HANDLERS[base]
            return HANDLERS[base]
    return _unknown


def _unknown(out: Writer, node: Any, like: DType | None) -> Parts:
    if isinstance(node, Node):
        return ATOM, [f"T.{type(node).__name__}()"]
    return ATOM, [quote(str(node))]
