"""The context of a walk over a syntax tree: source, diagnostics so far, functions of the module, and scopes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

from mlcc.errors import Diagnostic, Label, Source, Span, did_you_mean, error
from mlcc.grammar.syntax import tree
from mlcc.ir.dtypes import INT64, DType
from mlcc.ir.global_info import GlobalInfo
from mlcc.ir.relax import GlobalVar

_FEW = 8  # names in scope that a message lists
MAX_ERRORS = 50  # in one text

# the names under which a text knows the parts of the language; import lines may add others
MODULES = {"T": "T", "R": "R", "I": "I", "tir": "T", "tirx": "T", "relax": "R", "ir": "I", "tvm": "tvm"}
_IMPORTS = {
    "tvm": "tvm", "tvm.ir": "I", "tvm.tir": "T", "tvm.tirx": "T", "tvm.relax": "R", "tvm.script": "tvm.script",
    "tvm.script.ir": "I", "tvm.script.tir": "T", "tvm.script.tirx": "T", "tvm.script.relax": "R",
    "tvm.script.parser.ir": "I", "tvm.script.parser.tir": "T", "tvm.script.parser.relax": "R",
}  # fmt: skip


UNKNOWN: Any = object()  # the value of a name with a wrong definition: its uses are not reported again


@dataclass(frozen=True, slots=True)
class TypeVar:
    """`n = TypeVar("n")` at the module's level: each function that uses the name has a variable of its own."""

    name: str
    dtype: DType = INT64


@dataclass(frozen=True, slots=True)
class Alias:
    """A name of the program around a text for a part of the language: `TT` for `T`, `prim_func` for `T.prim_func`."""

    path: str


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A name of the program around a text whose value means nothing in the text, with a description of the value."""

    what: str
    help: str


class TooManyErrors(Exception):
    """Raised after `MAX_ERRORS` errors, to end the walk."""


class Skip(Exception):
    """Raised after an error is reported, to skip the current part; `Walk.attempt` catches it."""


@dataclass(eq=False)
class Walk:
    """The state of walking one text. `functions` holds the handles of all functions, filled before any body."""

    source: Source
    module_name: str = "Module"
    functions: dict[str, GlobalVar] = field(default_factory=dict)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    modules: dict[str, str] = field(default_factory=lambda: dict(MODULES))
    self_names: set[str] = field(default_factory=set)  # names of the module itself: the class, `cls`
    definitions: dict[str, tree.Def] = field(default_factory=dict)  # the `def` of every function, by name
    return_dtypes: dict[str, DType] = field(default_factory=dict)  # what PrimFuncs return, where they do
    prelude: Scope = field(default_factory=lambda: Scope())  # what module-level lines bind
    tirx: bool = False  # whether the text is of TVM 0.27, by its header
    global_infos: dict[str, tuple[GlobalInfo, ...]] = field(default_factory=dict)  # virtual devices and such
    folder: str | os.PathLike[str] | None = None  # paths in the text resolve from here
    data: Any = None  # arrays for constants that the text only refers to
    strings: dict[str, str] = field(default_factory=dict)  # of the metadata section, by `ir.StringImm[0]`
    constants: Any = None  # where references find their data, made on first use
    relax: dict[str, Any] | None = None  # relax functions that are walked already
    captured: set[str] = field(default_factory=set)  # names of the prelude that the program around the text defines
    unavailable: dict[str, Unavailable] = field(default_factory=dict)  # names of that program that cannot be used

    def span(self, cst: tree.Node) -> Span:
        """The place of a syntax node."""
        return Span(self.source, cst.start, cst.end)

    def note(
        self, code: str, message: str, at: tree.Node | Span | None, text: str = "", *,
        help: str | None = None, related: tuple[Label, ...] = (),
    ) -> None:  # fmt: skip
        """Record an error and continue. Raises Enough after `MAX_ERRORS`."""
        span = at if at is None or isinstance(at, Span) else self.span(at)
        self.diagnostics.append(error(code, message, span, text, help=help, related=related))
        if len(self.diagnostics) >= MAX_ERRORS:
            raise TooManyErrors

    def fail(
        self, code: str, message: str, at: tree.Node | Span | None, text: str = "", *,
        help: str | None = None, related: tuple[Label, ...] = (),
    ) -> NoReturn:  # fmt: skip
        """Record an error and raise Skip."""
        self.note(code, message, at, text, help=help, related=related)
        raise Skip

    @contextlib.contextmanager
    def attempt(self) -> Iterator[None]:
        """Catch Skip, so that an error inside does not end the walk outside."""
        with contextlib.suppress(Skip):
            yield

    def dotted(self, cst: tree.Expr, scope: Scope | None = None) -> str | None:
        """Return the dotted name of an attribute chain, such as `T.axis.spatial`, with imported aliases resolved."""
        names: list[str] = []
        while isinstance(cst, tree.Attribute):
            names.append(cst.name)
            cst = cst.base
        if not isinstance(cst, tree.Name) or (scope is not None and scope.find(cst.id) is not None):
            return None
        root = self.modules.get(cst.id)
        if root is None:
            return None
        names.append(root)
        path = ".".join(reversed(names))
        for prefix in ("tvm.script.", "tvm."):
            if path.startswith(prefix):
                head, _, rest = path[len(prefix) :].partition(".")
                known = self.modules.get(head) if head != "tvm" else None
                if known in ("T", "R", "I"):
                    return f"{known}.{rest}" if rest else known
        return path

    def bind_import(self, cst: tree.Import) -> None:
        """Bind the names of an import line."""
        for path, name in cst.names:
            module = _IMPORTS.get(path)
            if module is not None:
                self.modules[name] = module

    def unknown_name(self, cst: tree.Expr, name: str, scope: Scope, graph: bool = False) -> NoReturn:
        """Report an unbound name, with a suggestion; `graph`: in a relax function."""
        from mlcc.grammar.foreign import call_hint, name_hint

        shown = name if len(name) <= 60 else f"{name[:60]}..."
        gone = scope.gone.get(name)
        if gone is not None:
            where, span = gone
            related = (Label(span, f"`{shown}` is bound here{where}"),) if span is not None else ()
            self.fail("E0202", f"`{shown}` is used outside its scope", cst, "not in scope here", related=related)
        graph, known, text = graph or scope.graph, scope.names(), self.source.text
        help = name_hint(name, text, cst.start, cst.end, graph)
        if name in self.unavailable:
            value = self.unavailable[name]
            self.fail("E0210", f"`{shown}` is {value.what}, which cannot be used here", cst, help=help or value.help)
        help = help or did_you_mean(name, [*known, *self.functions])
        help = help or call_hint(name, text, cst.end, graph)
        if help is None and self.source.text[cst.start : cst.start + 1] in ("'", '"'):  # a size such as "n * 2"
            help = f'bind it first: use it alone as a dimension, or pass it as a parameter `R.Shape(["{shown}"])`'
        if help is None and 0 < len({*known}) <= _FEW:
            help = f"bound here are {', '.join(f'`{n}`' for n in dict.fromkeys(known))}"
        self.fail("E0201", f"unknown name `{shown}`", cst, "not bound here", help=help)


@dataclass(slots=True)
class Binding:
    """The value of a name, and the place where it was bound."""

    value: Any
    span: Span | None


class Scope:
    """Nested name tables; names that went out of scope are kept for error messages."""

    graph = False  # whether it is that of a relax function

    def __init__(self, outer: Scope | None = None) -> None:
        self._frames: list[tuple[dict[str, Binding], str]] = [({}, "")]
        self._outer = outer
        self.gone: dict[str, tuple[str, Span | None]] = {}

    def define(self, name: str, value: Any, span: Span | None = None) -> None:
        """Bind a name in the innermost frame, over any older binding."""
        self._frames[-1][0][name] = Binding(value, span)

    def find(self, name: str) -> Binding | None:
        """The innermost binding of a name."""
        for names, _ in reversed(self._frames):
            binding = names.get(name)
            if binding is not None:
                return binding
        return self._outer.find(name) if self._outer is not None else None

    def find_innermost(self, name: str) -> Binding | None:
        """The binding of a name in the innermost frame."""
        return self._frames[-1][0].get(name)

    def bindings(self) -> list[tuple[str, Binding]]:
        """All names of this scope's own frames with their bindings, outermost first."""
        return [item for names, _ in self._frames for item in names.items()]

    def get(self, name: str) -> Any:
        """The value of a name, or None."""
        binding = self.find(name)
        return None if binding is None else binding.value

    def names(self) -> list[str]:
        """All names bound here, innermost first."""
        mine = [n for names, _ in reversed(self._frames) for n in names]
        return mine + self._outer.names() if self._outer is not None else mine

    @contextlib.contextmanager
    def frame(self, where: str = "") -> Iterator[None]:
        """A nested scope. `where` completes "`i` is bound here", e.g. ", and is visible in that loop only"."""
        self._frames.append(({}, where))
        try:
            yield
        finally:
            names, where_text = self._frames.pop()
            for name, binding in names.items():
                self.gone[name] = (where_text, binding.span)
