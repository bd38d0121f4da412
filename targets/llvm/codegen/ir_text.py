"""LLVM IR as text: a module of globals and functions, and a builder that appends instructions to a function.

Text costs a twentieth of building `llvmlite.ir` objects, and it is what people want to see. Nothing here knows
TensorIR. A value is its LLVM type and its spelling; every name is numbered in order of creation, so that equal input
gives equal bytes.

    module = ModuleText("x86_64-unknown-linux-gnu")
    fn = module.function("i32", "add1", [("ptr", "p"), ("i64", "n")])
    p, n = fn.params
    fn.store(fn.binary("add", fn.load("i64", p), n), p)
    fn.ret(Value("i32", "0"))
    module.text()
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_PLAIN_NAME = re.compile(r"[-a-zA-Z$._][-a-zA-Z$._0-9]*\Z")
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]")


class Value(NamedTuple):
    """An operand: `str(value)` is how an instruction writes it, type first."""

    type: str
    ref: str

    def __str__(self) -> str:
        return f"{self.type} {self.ref}"


NULL = Value("ptr", "null")
TRUE = Value("i1", "true")
FALSE = Value("i1", "false")


def integer(type: str, value: int) -> Value:
    """An integer constant of a scalar type; i1 reads as true and false."""
    if type == "i1":
        return TRUE if value else FALSE
    return Value(type, str(value))


def float_bits(value: float) -> str:
    """How LLVM writes a `float` or `double` constant exactly: the bits of the double."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def floating(type: str, value: float) -> Value:
    """A `float` or `double` constant; for `float` the value must already be rounded to it."""
    return Value(type, float_bits(value))


def quoted(text: bytes) -> str:
    """Bytes as the inside of an LLVM string."""
    return "".join(chr(b) if 32 <= b < 127 and b not in (34, 92) else f"\\{b:02X}" for b in text)


def global_name(symbol: str) -> str:
    """`@symbol`, quoted where it has to be."""
    return f"@{symbol}" if _PLAIN_NAME.match(symbol) else f'@"{quoted(symbol.encode())}"'


def vector(type: str, lanes: int) -> str:
    """The type of `lanes` values; one lane is the scalar type itself."""
    return type if lanes == 1 else f"<{lanes} x {type}>"


class ModuleText:
    """The parts of a module, each kept in the order in which it was first asked for."""

    def __init__(self, triple: str = "", data_layout: str = "") -> None:
        self.triple = triple
        self.data_layout = data_layout
        self.functions: list[FunctionText] = []
        self._globals: dict[str, str] = {}
        self._declarations: dict[str, str] = {}
        self._helpers: dict[str, str] = {}
        self._strings: dict[bytes, str] = {}
        self._metadata: list[str] = []

    def function(
        self, ret: str, symbol: str, params: Sequence[tuple[str, str]], *, linkage: str = "internal",
        param_attrs: Sequence[str] = (), attrs: str = "nounwind",
    ) -> FunctionText:  # fmt: skip
        """Begin a function definition; `params` are (type, name hint), `linkage` may be empty for an exported one."""
        made = FunctionText(self, ret, symbol, params, linkage, param_attrs, attrs)
        self.functions.append(made)
        return made

    def declare(self, symbol: str, ret: str, params: Iterable[str], attrs: str = "") -> str:
        """Declare an external function or an intrinsic once; gives `@symbol`."""
        name = global_name(symbol)
        if symbol not in self._declarations:
            self._declarations[symbol] = f"declare {ret} {name}({', '.join(params)})" + (f" {attrs}" if attrs else "")
        return name

    def helper(self, symbol: str, text: str) -> str:
        """Add the whole text of an internal function once; gives `@symbol`."""
        self._helpers.setdefault(symbol, text)
        return global_name(symbol)

    def has_helper(self, symbol: str) -> bool:
        return symbol in self._helpers

    def global_(self, symbol: str, definition: str) -> str:
        """Define or declare a global variable once: `@symbol = definition`."""
        name = global_name(symbol)
        self._globals.setdefault(symbol, f"{name} = {definition}")
        return name

    def string(self, text: bytes) -> Value:
        """A pointer to a constant zero-terminated string; equal strings are one."""
        name = self._strings.get(text)
        if name is None:
            name = self._strings[text] = f"@.str.{len(self._strings)}"
            spelling = f'private unnamed_addr constant [{len(text) + 1} x i8] c"{quoted(text)}\\00", align 1'
            self._globals[name[1:]] = f"{name} = {spelling}"
        return Value("ptr", name)

    def metadata(self, content: str, *, distinct: bool = False) -> str:
        """A new metadata node `!{content}`; with `distinct`, `!self` in the content is the node itself."""
        name = f"!{len(self._metadata)}"
        self._metadata.append(f"{name} = {'distinct ' if distinct else ''}!{{{content.replace('!self', name)}}}")
        return name

    def text(self) -> str:
        """The module, ready for LLVM's parser."""
        parts: list[str] = []
        if self.data_layout:
            parts.append(f'target datalayout = "{self.data_layout}"')
        if self.triple:
            parts.append(f'target triple = "{self.triple}"')
        parts.extend(self._globals.values())
        defined = {f.symbol for f in self.functions} | self._helpers.keys()
        parts.extend(text for symbol, text in self._declarations.items() if symbol not in defined)
        parts.extend(self._helpers.values())
        parts.extend(f.text() for f in self.functions)
        parts.extend(self._metadata)
        return "\n".join(parts) + "\n"


class FunctionText:
    """A function under construction. Instructions go to the end of the current block; `params` are its arguments.

    After a terminator, further instructions land in a block that nothing reaches: a caller need not care.
    """

    def __init__(
        self, module: ModuleText, ret: str, symbol: str, params: Sequence[tuple[str, str]], linkage: str,
        param_attrs: Sequence[str], attrs: str,
    ) -> None:  # fmt: skip
        self.module = module
        self.symbol = symbol
        self.ret_type = ret
        self._attrs = attrs
        self._linkage = linkage
        self._lines: list[str] = []
        self._entry: list[str] = []
        self._tail: list[str] = []
        self._count = 0
        self._open = True
        self.block = "entry"
        self.params = [Value(type, f"%{self._named(hint)}") for type, hint in params]
        extra = list(param_attrs) or [""] * len(params)
        self._signature = ", ".join(
            f"{p.type} {a + ' ' if a else ''}{p.ref}" for p, a in zip(self.params, extra, strict=True)
        )

    # ------------------------------------------------------------ names and blocks

    def _named(self, hint: str) -> str:
        """A fresh local name. A hint never ends in `.number`, so numbering keeps names apart."""
        self._count += 1
        return f"{_NOT_IN_NAMES.sub('_', hint)[:40]}.{self._count}"

    def label(self, hint: str = "b") -> str:
        """A fresh block label, to be placed by `start`."""
        return self._named(hint)

    def start(self, label: str) -> None:
        """Begin a block; the open one falls into it."""
        if self._open:
            self._lines.append(f"  br label %{label}")
        self._lines.append(f"{label}:")
        self.block = label
        self._open = True

    @property
    def is_open(self) -> bool:
        """False after a terminator."""
        return self._open

    def line(self, text: str) -> None:
        """Append an instruction without result."""
        if not self._open:
            self.start(self._named("dead"))
        self._lines.append(f"  {text}")

    def op(self, type: str, text: str, hint: str = "v") -> Value:
        """Append `%new = text`, a value of `type`."""
        if not self._open:
            self.start(self._named("dead"))
        self._count += 1
        name = f"%{hint}.{self._count}"
        self._lines.append(f"  {name} = {text}")
        return Value(type, name)

    def _close(self, text: str) -> None:
        if self._open:
            self._lines.append(f"  {text}")
            self._open = False

    def br(self, label: str, loop: str = "") -> None:
        """Jump; `loop` is the metadata node of the loop that this jump closes."""
        self._close(f"br label %{label}" + (f", !llvm.loop {loop}" if loop else ""))

    def cond_br(self, condition: Value, then: str, other: str, weights: str = "") -> None:
        """Branch; `weights` is a metadata node of `!prof`."""
        self._close(f"br i1 {condition.ref}, label %{then}, label %{other}" + (f", !prof {weights}" if weights else ""))

    def ret(self, value: Value | None = None) -> None:
        self._close("ret void" if value is None else f"ret {value}")

    def unreachable(self) -> None:
        self._close("unreachable")

    def cold(self, hint: str, lines: Iterable[str]) -> str:
        """A block of finished lines at the end of the function (failure exits); gives its label."""
        label = self._named(hint)
        self._tail.append(f"{label}:")
        self._tail.extend(f"  {line}" for line in lines)
        return label

    # ------------------------------------------------------------ instructions

    def binary(self, op: str, lhs: Value, rhs: Value) -> Value:
        """`add`, `fmul contract`, `sdiv`, ...: operands and result of one type."""
        return self.op(lhs.type, f"{op} {lhs}, {rhs.ref}")

    def icmp(self, predicate: str, lhs: Value, rhs: Value) -> Value:
        return self.op(_condition_type(lhs.type), f"icmp {predicate} {lhs}, {rhs.ref}")

    def fcmp(self, predicate: str, lhs: Value, rhs: Value) -> Value:
        return self.op(_condition_type(lhs.type), f"fcmp {predicate} {lhs}, {rhs.ref}")

    def select(self, condition: Value, true: Value, false: Value) -> Value:
        return self.op(true.type, f"select {condition}, {true}, {false}")

    def convert(self, op: str, value: Value, type: str) -> Value:
        """`sext`, `fptrunc`, `bitcast`, ...; the same value if it has the type already."""
        return value if value.type == type else self.op(type, f"{op} {value} to {type}")

    def load(self, type: str, pointer: Value, align: int = 0, suffix: str = "") -> Value:
        return self.op(type, f"load {type}, {pointer}" + (f", align {align}" if align else "") + suffix)

    def store(self, value: Value, pointer: Value, align: int = 0) -> None:
        self.line(f"store {value}, {pointer}" + (f", align {align}" if align else ""))

    def gep(self, type: str, pointer: Value, *indices: Value, flags: str = "inbounds ") -> Value:
        """The address of an element: `type` is what the first index steps over."""
        return self.op(pointer.type, f"getelementptr {flags}{type}, {pointer}, {', '.join(map(str, indices))}", "p")

    def generic(self, pointer: Value) -> Value:
        """A pointer into any memory, from one into a part of it (`ptr addrspace(3)`); other values as they are."""
        return self.convert("addrspacecast", pointer, "ptr") if pointer.type.startswith("ptr") else pointer

    def alloca(self, type: str, count: int = 1, align: int = 0, hint: str = "s") -> Value:
        """Stack memory of the function, allocated once on entry whatever the current block."""
        name = f"%{self._named(hint)}"
        size = f", i64 {count}" if count != 1 else ""
        self._entry.append(f"  {name} = alloca {type}{size}" + (f", align {align}" if align else ""))
        return Value("ptr", name)

    def call(self, ret: str, callee: str, args: Iterable[Value], flags: str = "", attrs: str = "") -> Value:
        """Call `@callee`; the value of a void call must not be used. `flags` go before the type (`contract`)."""
        text = f"call {flags + ' ' if flags else ''}{ret} {callee}({', '.join(map(str, args))})"
        if attrs:
            text = f"{text} {attrs}"
        if ret == "void":
            self.line(text)
            return Value("void", "")
        return self.op(ret, text)

    def phi(self, type: str, incoming: Iterable[tuple[Value, str]]) -> Value:
        """A value by predecessor block; only at the start of a block."""
        return self.op(type, f"phi {type} " + ", ".join(f"[ {v.ref}, %{label} ]" for v, label in incoming))

    def splat(self, value: Value, lanes: int) -> Value:
        """A vector of copies of a scalar."""
        if lanes == 1:
            return value
        type = vector(value.type, lanes)
        if not value.ref.startswith("%"):
            return Value(type, f"splat ({value})")
        one = self.op(type, f"insertelement {type} poison, {value}, i64 0")
        return self.op(type, f"shufflevector {one}, {type} poison, <{lanes} x i32> zeroinitializer")

    def extract(self, value: Value, lane: int | Value) -> Value:
        """One lane of a vector."""
        element = value.type[value.type.index(" x ") + 3 : -1]
        index = lane if isinstance(lane, Value) else Value("i64", str(lane))
        return self.op(element, f"extractelement {value}, {index}")

    def insert(self, into: Value, value: Value, lane: int | Value) -> Value:
        """A copy of a vector with one lane replaced."""
        index = lane if isinstance(lane, Value) else Value("i64", str(lane))
        return self.op(into.type, f"insertelement {into}, {value}, {index}")

    def extract_value(self, type: str, aggregate: Value, index: int) -> Value:
        """A member of a struct value."""
        return self.op(type, f"extractvalue {aggregate}, {index}")

    def text(self) -> str:
        """The definition."""
        linkage = f"{self._linkage} " if self._linkage else ""
        attrs = f" {self._attrs}" if self._attrs else ""
        head = f"define {linkage}{self.ret_type} {global_name(self.symbol)}({self._signature}){attrs} {{"
        return "\n".join([head, "entry:", *self._entry, *self._lines, *self._tail, "}"])


def _condition_type(type: str) -> str:
    return "i1" if type[0] != "<" else f"{type[: type.index(' x ')]} x i1>"
