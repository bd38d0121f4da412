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

from mlcc.errors import Span
from mlcc.targets.llvm.codegen.debug_lines import DebugLines

_USED = re.compile(r'@"[^"]*"|@[-a-zA-Z$._0-9]+')
_METADATA = re.compile(r"![0-9]+")
_PLAIN_NAME = re.compile(r"[-a-zA-Z$._][-a-zA-Z$._0-9]*\Z")
_DEFINITION = re.compile(r'^define ([^@]+) (@"[^"]*"|@[-a-zA-Z$._0-9]+)\(([^)]*)\)([^{]*) \{', re.M)
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
    """Return the exact spelling of a `float` or `double` constant in LLVM IR: the bits of the double in hexadecimal."""
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

    def __init__(
        self, triple: str = "", data_layout: str = "", *, names: bool = True, debug_lines: bool = False
    ) -> None:
        """`names`: local values are called after what they are; else equal code is equal text. With `debug_lines` the
        instructions of functions have the places that `FunctionText.locate` says."""
        self.names = names
        self.debug = DebugLines(self._node, lambda text: quoted(text.encode())) if debug_lines else None
        self.triple = triple
        self.data_layout = data_layout
        self.functions: list[FunctionText] = []
        self._globals: dict[str, str] = {}
        self._declarations: dict[str, str] = {}
        self._helpers: dict[str, str] = {}
        self._shared: dict[str, str] = {}  # functions that all units call: their declarations
        self.owner = ""  # of the functions that are begun: the kernel under way, or none
        self._strings: dict[bytes, str] = {}
        self._metadata: list[str] = []
        self.suffix = ""  # of helpers that are made now, and the CPU that they are for (`versions`)
        self.helper_attrs = ""

    def function(
        self, ret: str, symbol: str, params: Sequence[tuple[str, str]], *, linkage: str = "internal",
        param_attrs: Sequence[str] = (), attrs: str = "nounwind",
    ) -> FunctionText:  # fmt: skip
        """Begin a function definition; `params` are (type, name hint), `linkage` may be empty for an exported one."""
        fn = FunctionText(self, ret, symbol, params, linkage, param_attrs, attrs)
        self.functions.append(fn)
        return fn

    def declare(self, symbol: str, ret: str, params: Iterable[str], attrs: str = "") -> str:
        """Declare an external function or an intrinsic once; return `@symbol`."""
        name = global_name(symbol)
        if symbol not in self._declarations:
            self._declarations[symbol] = f"declare {ret} {name}({', '.join(params)})" + (f" {attrs}" if attrs else "")
        return name

    def helper(self, symbol: str, text: str, *, shared: bool = False) -> str:
        """Add the whole text of an internal function once; gives `@symbol`.

        A `shared` one has state, or is large: there is one for all units of the module (`units`), and its text may
        define several functions.
        """
        if symbol not in self._helpers:
            self._helpers[symbol] = text
            if shared:
                self._shared.update(_declarations(text))
        return global_name(symbol)

    def own(self, symbol: str) -> str:
        """The name of a helper that is another one for each CPU."""
        return symbol + self.suffix

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

    def part(self, functions: Sequence[FunctionText]) -> str:
        """A module of some of the functions, which is complete: with the helpers, constants and declarations that they
        use. All can be called from other parts (their symbols are hidden), as those call others.
        """
        return self._complete([f.text("hidden") for f in functions], {global_name(f.symbol) for f in functions})

    def rest(self) -> tuple[str, str, str]:
        """The modules of what no kernel owns: shared helpers that use nothing of this module, so that most modules have
        the same ones; the functions for the program with the other helpers; and those that are separate."""
        fixed: dict[str, str] = {}
        roots: list[str] = []
        for symbol, text in self._helpers.items():
            is_shared = global_name(symbol) in self._shared
            if is_shared:
                text = text.replace("define internal", "define hidden", 1)
            if is_shared and not any(name[1:] in self._globals for name in _USED.findall(text)):
                fixed[symbol] = text
            elif is_shared or not text.startswith("define internal"):
                roots.append(text)
        texts = [text for _, text in sorted(fixed.items())]
        unowned = [f for f in self.functions if not f.owner]
        roots += [f.text() for f in unowned if not f.is_separate]
        separate = [f.text() for f in unowned if f.is_separate]
        return (
            self._complete(texts, _defined(texts)), self._complete(roots, _defined(roots)),
            self._complete(separate, _defined(separate)) if separate else "",
        )  # fmt: skip

    def _complete(self, texts: list[str], inside: set[str]) -> str:
        """The text of a module of definitions; `inside` names what they define."""
        head = [f'target triple = "{self.triple}"'] if self.triple else []
        outside = {global_name(f.symbol): f for f in self.functions}
        seen = set(inside)
        metadata: dict[str, None] = {}
        waiting = list(texts)
        helpers: list[str] = []
        while waiting:
            text = waiting.pop(0)
            metadata.update(dict.fromkeys(_METADATA.findall(text)))
            for name in _USED.findall(text):
                if name in seen:
                    continue
                seen.add(name)
                symbol = _unquoted(name[2:-1]) if name[1] == '"' else name[1:]
                if name in self._shared:
                    if name not in inside:
                        head.append(self._shared[name])
                elif symbol in self._helpers:
                    helpers.append(self._helpers[symbol])
                    waiting.append(helpers[-1])
                elif name in outside:
                    head.append(outside[name].declaration())
                elif symbol in self._globals:
                    head.append(self._globals[symbol])
                elif symbol in self._declarations:
                    head.append(self._declarations[symbol])
        nodes = self._nodes(metadata)
        return "\n".join([*head, *helpers, *texts, *nodes]) + "\n"

    def _nodes(self, used: Iterable[str]) -> list[str]:
        """The metadata nodes of these names, and those that they mention."""
        named = self.debug.module_nodes(self._closure(used)) if self.debug is not None else []
        numbers = self._closure([*used, *(name for line in named for name in _METADATA.findall(line))])
        return [*named, *(self._metadata[int(name[1:])] for name in numbers)]

    def _closure(self, used: Iterable[str]) -> list[str]:
        """The names of metadata nodes and of those that they mention, in order."""
        needed, waiting = set(), [int(name[1:]) for name in used]
        while waiting:
            number = waiting.pop()
            if number not in needed:
                needed.add(number)
                waiting += [int(name[1:]) for name in _METADATA.findall(self._metadata[number])]
        return [f"!{number}" for number in sorted(needed)]

    def metadata(self, content: str, *, distinct: bool = False) -> str:
        """A new metadata node `!{content}`; with `distinct`, `!self` in the content is the node itself."""
        name = f"!{len(self._metadata)}"
        self._metadata.append(f"{name} = {'distinct ' if distinct else ''}!{{{content.replace('!self', name)}}}")
        return name

    def _node(self, content: str) -> str:
        """A new metadata node of any kind, `distinct` or not."""
        name = f"!{len(self._metadata)}"
        self._metadata.append(f"{name} = {content}")
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
        parts.extend([] if self.debug is None else self.debug.module_nodes())
        parts.extend(self._metadata)
        return "\n".join(parts) + "\n"


def _unquoted(name: str) -> str:
    """A name in quotes as it is, without LLVM's escapes."""
    return re.sub(rb"\\([0-9A-Fa-f]{2})", lambda found: bytes.fromhex(found[1].decode()), name.encode()).decode()


def _defined(texts: Iterable[str]) -> set[str]:
    """The functions that texts define, as `@symbol`."""
    return {found[1] for text in texts for found in _DEFINITION.findall(text)}


def _declarations(text: str) -> dict[str, str]:
    """The declaration of every function that a text defines, by `@symbol`."""
    declarations = {}
    for ret, name, params, rest in _DEFINITION.findall(text):
        attrs = rest.replace("optnone", "").replace("noinline", "")  # they say how to compile it
        hidden = "" if "weak" in ret else "hidden "
        ret = re.sub(r"\b(weak|internal) ", "", ret)
        declarations[name] = f"declare {hidden}{ret} {name}({params}){attrs}".rstrip()
    return declarations


class FunctionText:
    """A function under construction. Instructions go to the end of the current block; `params` are its arguments.

    After a terminator, further instructions land in a block that nothing reaches: a caller need not care.

    Instructions without effects are numbered by value: one whose operands and operation are those of an instruction in
    a block that dominates the current one is not written again, and integer constants are folded. Unrolled code repeats
    its addresses so often that this halves the text. It rests on one thing: when a block is started, every branch to it
    has been written but for those from blocks that it dominates (the back edges of loops).
    """

    def __init__(
        self, module: ModuleText, ret: str, symbol: str, params: Sequence[tuple[str, str]], linkage: str,
        param_attrs: Sequence[str], attrs: str,
    ) -> None:  # fmt: skip
        self.module = module
        self.symbol = symbol
        self.owner = module.owner
        self.is_separate = False  # whether a static library has it in a member of its own
        self.scalar_loops = False  # whether an innermost loop has no vectors: one that LLVM may vectorize
        self.ret_type = ret
        self._attrs = attrs
        self._linkage = linkage
        self._lines: list[str] = []
        self._entry: list[str] = []
        self._tail: list[str] = []
        self._places: list[tuple[int, Span]] = []  # from which line on instructions come from a place
        self._count = 0
        self._open = True
        # in kernels of GPUs values that live longer were seen to make ptxas spill registers
        self._numbers_values = not module.triple.startswith("nvptx")
        self._is_reached = True  # whether a branch leads to the current block
        self._inner_loops = False  # whether a loop has ended since the last one began
        self.block = "entry"
        self._known: dict[str, tuple[Value, str]] = {}  # what an instruction without effects gave, and in which block
        self._dominators: dict[str, int] = {"entry": 0}  # of the current block, with itself, by depth
        self._parents: dict[str, str] = {"entry": ""}  # the immediate dominator of every block that was started
        self._came_from: dict[str, str | None] = {}  # what dominates all branches so far to a block not started yet
        self.params = [Value(type, f"%{self._named(hint)}") for type, hint in params]
        extra = list(param_attrs) or [""] * len(params)
        self._signature = ", ".join(
            f"{p.type} {a + ' ' if a else ''}{p.ref}" for p, a in zip(self.params, extra, strict=True)
        )

    # ------------------------------------------------------------ names and blocks

    def _named(self, hint: str) -> str:
        """A fresh local name. A hint never ends in `.number`, so numbering keeps names apart."""
        self._count += 1
        return f"{_NOT_IN_NAMES.sub('_', hint)[:40] if self.module.names else 'n'}.{self._count}"

    def label(self, hint: str = "b") -> str:
        """A fresh block label, to be placed by `start`."""
        return self._named(hint)

    def start(self, label: str) -> None:
        """Begin a block; the open one falls into it."""
        if self._open:
            self._lines.append(f"  br label %{label}")
            self._branch_to(label)
        self._lines.append(f"{label}:")
        self._is_reached = label in self._came_from
        parent = self._came_from.pop(label, None) or ""
        self._parents[label] = parent
        self._move_below(parent)
        self._dominators[label] = len(self._dominators)
        self.block = label
        self._open = True

    def _branch_to(self, label: str) -> None:
        """Note that the current block branches to another, unless none branches to it: code behind an exit."""
        if not self._is_reached:
            return
        if label in self._parents:
            assert label in self._dominators, f"a late branch to {label}"
            return
        before = self._came_from.get(label, self.block)
        self._came_from[label] = self._common(before) if before else None

    def _common(self, block: str) -> str | None:
        """The nearest block that dominates both the current one and another; None if one of them is unreachable."""
        while block and block not in self._dominators:
            block = self._parents[block]
        return block or None

    def _move_below(self, block: str) -> None:
        """Let the dominators be those of a block that is started now, whose immediate dominator is given."""
        if block in self._dominators:
            depth = self._dominators[block]
            while len(self._dominators) > depth + 1:
                self._dominators.popitem()
            return
        path = []
        while block:
            path.append(block)
            block = self._parents[block]
        self._dominators = {name: depth for depth, name in enumerate(reversed(path))}

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

    def pure(self, type: str, text: str, hint: str = "v") -> Value:
        """`op` for an instruction that has no effects and reads no memory."""
        if not self._numbers_values:
            return self.op(type, text, hint)
        known = self._known.get(text)
        if known is not None and known[1] in self._dominators and known[0].type == type:
            return known[0]
        value = self.op(type, text, hint)
        self._known[text] = value, self.block
        return value

    def _close(self, text: str, *targets: str) -> None:
        if self._open:
            self._lines.append(f"  {text}")
            for label in targets:
                self._branch_to(label)
            self._open = False

    def br(self, label: str, loop: str = "") -> None:
        """Jump; `loop` is the metadata node of the loop that this jump closes."""
        self._close(f"br label %{label}" + (f", !llvm.loop {loop}" if loop else ""), label)

    def cond_br(self, condition: Value, then: str, other: str, weights: str = "") -> None:
        """Branch; `weights` is a metadata node of `!prof`."""
        text = f"br i1 {condition.ref}, label %{then}, label %{other}"
        self._close(text + (f", !prof {weights}" if weights else ""), then, other)

    def switch(self, value: Value, other: str, cases: Sequence[tuple[int, str]]) -> None:
        """Jump to the label of a value, or to another."""
        listed = " ".join(f"{value.type} {at}, label %{label}" for at, label in cases)
        self._close(f"switch {value}, label %{other} [ {listed} ]", other, *(label for _, label in cases))

    def ret(self, value: Value | None = None) -> None:
        self._close("ret void" if value is None else f"ret {value}")

    def unreachable(self) -> None:
        self._close("unreachable")

    def cold(self, hint: str, lines: Iterable[str]) -> str:
        """Add a block of finished lines at the end of the function (failure exits); return its label."""
        label = self._named(hint)
        self._tail.append(f"{label}:")
        self._tail.extend(f"  {line}" for line in lines)
        return label

    # ------------------------------------------------------------ debug locations

    def locate(self, span: Span | None) -> None:
        """Note where in the source the following instructions come from, if the module has debug locations."""
        if span is not None and self.module.debug is not None and (not self._places or self._places[-1][1] != span):
            self._places.append((len(self._lines), span))

    @property
    def place(self) -> Span | None:
        """Where the following instructions come from, if that is known."""
        return self._places[-1][1] if self._places else None

    def _located(self, debug: DebugLines) -> tuple[str, list[str], list[str]]:
        """Return the node of the function, and the lines and the tail with the locations of their instructions.

        Instructions before the first place have that one, since calls need a location."""
        first = self._places[0][1]
        function = debug.function(self.symbol, first)
        places = iter([*self._places[1:], (len(self._lines), first)])
        until, following = next(places)
        node = debug.location(function, first)
        lines = []
        for at, line in enumerate(self._lines):
            while at >= until:
                node = debug.location(function, following)
                until, following = next(places)
            lines.append(_with_location(line, node))
        start = debug.location(function, first)
        return function, lines, [_with_location(line, start) for line in self._tail]

    # ------------------------------------------------------------ instructions

    def binary(self, op: str, lhs: Value, rhs: Value) -> Value:
        """`add`, `fmul contract`, `sdiv`, ...: operands and result of one type."""
        if rhs.ref[0] in _DIGITS and lhs.type[0] == "i":
            folded = _folded(op, lhs, rhs)
            if folded is not None:
                return folded
        return self.pure(lhs.type, f"{op} {lhs.type} {lhs.ref}, {rhs.ref}")

    def icmp(self, predicate: str, lhs: Value, rhs: Value) -> Value:
        return self.pure(_condition_type(lhs.type), f"icmp {predicate} {lhs.type} {lhs.ref}, {rhs.ref}")

    def fcmp(self, predicate: str, lhs: Value, rhs: Value) -> Value:
        return self.pure(_condition_type(lhs.type), f"fcmp {predicate} {lhs.type} {lhs.ref}, {rhs.ref}")

    def select(self, condition: Value, true: Value, false: Value) -> Value:
        return self.pure(true.type, f"select {condition}, {true}, {false}")

    def convert(self, op: str, value: Value, type: str) -> Value:
        """`sext`, `fptrunc`, `bitcast`, ...; the same value if it has the type already."""
        if value.type == type:
            return value
        if value.ref[0] in _DIGITS and op in _RESIZED and value.type[0] == "i" == type[0]:
            return _resized(op, value, type)
        return self.pure(type, f"{op} {value.type} {value.ref} to {type}")

    def load(self, type: str, pointer: Value, align: int = 0, suffix: str = "") -> Value:
        return self.op(type, f"load {type}, {pointer}" + (f", align {align}" if align else "") + suffix)

    def store(self, value: Value, pointer: Value, align: int = 0) -> None:
        self.line(f"store {value}, {pointer}" + (f", align {align}" if align else ""))

    def gep(self, type: str, pointer: Value, *indices: Value, flags: str = "inbounds ") -> Value:
        """The address of an element: `type` is what the first index steps over."""
        return self.pure(pointer.type, f"getelementptr {flags}{type}, {pointer}, {', '.join(map(str, indices))}", "p")

    def generic(self, pointer: Value) -> Value:
        """A pointer into any memory, from one into a part of it (`ptr addrspace(3)`); other values as they are."""
        return self.convert("addrspacecast", pointer, "ptr") if pointer.type.startswith("ptr") else pointer

    def alloca(self, type: str, count: int = 1, align: int = 0, hint: str = "s") -> Value:
        """Stack memory of the function, allocated once on entry whatever the current block."""
        name = f"%{self._named(hint)}"
        size = f", i64 {count}" if count != 1 else ""
        self._entry.append(f"  {name} = alloca {type}{size}" + (f", align {align}" if align else ""))
        return Value("ptr", name)

    def call(
        self, ret: str, callee: str, args: Iterable[Value], flags: str = "", attrs: str = "", tail: str = ""
    ) -> Value:
        """Call `@callee`; the value of a void call must not be used. `flags` go before the type (`contract`), `tail`
        before the call (`musttail`)."""
        text = f"call {flags + ' ' if flags else ''}{ret} {callee}({', '.join(map(str, args))})"
        if tail:
            text = f"{tail} {text}"
        if attrs:
            text = f"{text} {attrs}"
        if ret == "void":
            self.line(text)
            return Value("void", "")
        return self.op(ret, text)

    def begin_loop(self) -> int:
        """Note that the body of a loop begins here; for `end_loop`."""
        self._inner_loops = False
        return len(self._lines)

    def end_loop(self, begun: int) -> None:
        """Note that the body of a loop ends here."""
        if not self._inner_loops and not any(" x " in line for line in self._lines[begun:]):
            self.scalar_loops = True
        self._inner_loops = True

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
        one = self.pure(type, f"insertelement {type} poison, {value}, i64 0")
        return self.pure(type, f"shufflevector {one}, {type} poison, <{lanes} x i32> zeroinitializer")

    def extract(self, value: Value, lane: int | Value) -> Value:
        """One lane of a vector."""
        element = value.type[value.type.index(" x ") + 3 : -1]
        index = lane if isinstance(lane, Value) else Value("i64", str(lane))
        return self.pure(element, f"extractelement {value}, {index}")

    def insert(self, into: Value, value: Value, lane: int | Value) -> Value:
        """A copy of a vector with one lane replaced."""
        index = lane if isinstance(lane, Value) else Value("i64", str(lane))
        return self.pure(into.type, f"insertelement {into}, {value}, {index}")

    def extract_value(self, type: str, aggregate: Value, index: int) -> Value:
        """A member of a struct value."""
        return self.pure(type, f"extractvalue {aggregate}, {index}")

    @property
    def size(self) -> int:
        """Characters of the text, roughly."""
        return 50 * len(self._lines)

    def declaration(self) -> str:
        """Return the declaration with which another module of the object refers to the function.

        It is `hidden` unless the function is exported: what is hidden becomes local when modules are linked.
        """
        hidden = "hidden " if self._linkage else ""
        return f"declare {hidden}{self.ret_type} {global_name(self.symbol)}({self._signature}) {self._attrs}".rstrip()

    def text(self, linkage: str | None = None) -> str:
        """The definition, with another linkage if one is given."""
        linkage = self._linkage if linkage is None else linkage
        linkage = f"{linkage} " if linkage else ""
        attrs = f" {self._attrs}" if self._attrs else ""
        lines, tail = self._lines, self._tail
        if self.module.debug is not None and self._places:
            function, lines, tail = self._located(self.module.debug)
            attrs = f"{attrs} !dbg {function}"
        head = f"define {linkage}{self.ret_type} {global_name(self.symbol)}({self._signature}){attrs} {{"
        return "\n".join([head, "entry:", *self._entry, *lines, *tail, "}"])


def _with_location(line: str, node: str) -> str:
    """An instruction with its debug location; a label stays as it is."""
    return f"{line}, !dbg {node}" if line.startswith(" ") else line


def _condition_type(type: str) -> str:
    return "i1" if type[0] != "<" else f"{type[: type.index(' x ')]} x i1>"


_DIGITS = frozenset("-0123456789")
_RESIZED = frozenset({"trunc", "sext", "zext"})


def _folded(op: str, lhs: Value, rhs: Value) -> Value | None:
    """A sum, difference or product with an integer constant, where it is a constant or the other operand."""
    name = op.partition(" ")[0]
    if name not in ("add", "sub", "mul"):
        return None
    right = int(rhs.ref)
    if right == (name == "mul"):
        return lhs
    if lhs.ref[0] not in _DIGITS:
        return rhs if name == "mul" and right == 0 else None
    left = int(lhs.ref)
    value = left + right if name == "add" else left - right if name == "sub" else left * right
    return integer(lhs.type, _wrapped(value, int(lhs.type[1:])))


def _resized(op: str, value: Value, type: str) -> Value:
    """An integer constant in another width."""
    number = int(value.ref)
    if op == "zext":
        number %= 1 << int(value.type[1:])
    return integer(type, _wrapped(number, int(type[1:])))


def _wrapped(value: int, bits: int) -> int:
    """An integer as `bits` of two's complement, signed."""
    half = 1 << (bits - 1)
    return ((value + half) & ((1 << bits) - 1)) - half
