"""Text to IR: `parse`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mlcc.errors import CompileError, Label, Source, Span, did_you_mean, error
from mlcc.grammar.context import UNKNOWN, Alias, Scope, Skip, TooManyErrors, TypeVar, Unavailable, Walk
from mlcc.grammar.global_infos import read_global_infos
from mlcc.grammar.syntax import tree
from mlcc.grammar.syntax.reader import Tree, parse_syntax, read_source
from mlcc.grammar.tir import attribute_values
from mlcc.grammar.tir.evaluator import Evaluator
from mlcc.ir.dtypes import INT64
from mlcc.ir.module import Func, IRModule
from mlcc.ir.relax import GlobalVar
from mlcc.recursion import FRAMES_WITH_C, deep_recursion, gc_disabled

# `# from tvm.script import tirx as T`: what TVM 0.27 prints above a text, as a comment or not
_TIRX = re.compile(r"#\s*from\s+tvm\.script\s+import\s+(?:[\w, ]+,\s*)?tirx\b")
_FUNCTIONS = {"T.prim_func": "T", "R.function": "R"}
_OUTSIDE = 'a text runs no Python: outside of functions there are imports, and lines such as `n = TypeVar("n")`'
_DECORATORS = "`@T.prim_func` for a loop-level function, `@R.function` for a graph-level one"
_NETWORK = re.compile(r"class\s+\w+\s*\([^)]*\b(?:nn\.Module|LightningModule)\b")
_CLASSES = {"I.ir_module", "R.rewriter", "tvm.script.ir_module", "tvm.ir_module"}


def parse(
    text: str | bytes | os.PathLike[str], name: str | None = None, data: Mapping[str, Any] | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> IRModule:  # fmt: skip
    """The module that a text means; a bare function makes a module of one. Raises CompileError.

    `name` is for messages. `data` has arrays for constants that the text only refers to; more are looked for beside
    the file, in `folder`.
    """
    refuse_path(text)
    if folder is None and isinstance(text, os.PathLike):
        folder = os.path.dirname(os.fspath(text))
    source = read_source(text, name)
    with gc_disabled(), deep_recursion(FRAMES_WITH_C):
        reader = _Reader(source, parse_syntax(source), data, folder)
        try:
            return reader.module()
        except TooManyErrors:
            raise CompileError(reader.walk.diagnostics) from None


def parse_within(source: Source, lookup: Callable[[str], Any]) -> IRModule:
    """The module that a text within a program means. Raises CompileError.

    `lookup` gives what a name of the program means in the text: a value, a node, a `TypeVar`, an `Alias`, or
    `Unavailable`; `UNKNOWN` if the program does not have it. It is called for the names that occur in the text.
    """
    with gc_disabled(), deep_recursion(FRAMES_WITH_C):
        reader = _Reader(source, parse_syntax(source), None, None)
        reader.capture(lookup)
        try:
            return reader.module()
        except TooManyErrors:
            raise CompileError(reader.walk.diagnostics) from None


_PATH = re.compile(r"(?!\d)[\w./\\~:+-]*\.(?:mlc|mls|py|txt|onnx|pt2?|pth|npz|o|so)")


def refuse_path(text: object, model: bool = True) -> None:
    """Raises CompileError E0108 for a path where a text is expected, TypeError for what is neither."""
    if isinstance(text, str) and (_PATH.fullmatch(text.strip()) or (0 < len(text) < 256 and os.path.isfile(text))):
        help = f"pass a path as one: Path({text!r})" if model else f"pass what is in it: Path({text!r}).read_text()"
        suffix = os.path.splitext(text)[1]
        if suffix in (".onnx", ".pt2"):
            help = f"import it: mlcc.frontend.from_{suffix[1:]}({text!r})"
        raise CompileError(error("E0108", f"`{text}` is a path, not a text", help=help))
    if not isinstance(text, (str, bytes, bytearray, os.PathLike)):
        raise TypeError(f"a text, or the path of one, is expected, not {type(text).__name__}")


@dataclass(eq=False)
class _TextContents:
    """The contents of a text: functions in order, attributes of the module, and its class."""

    functions: list[tree.Def] = field(default_factory=list)
    attrs: list[tree.Call] = field(default_factory=list)
    module: tree.Class | None = None


class _Reader:
    """Reads one text: first the names of all functions, then their bodies."""

    def __init__(
        self, source: Source, text: Tree, data: Mapping[str, Any] | None, folder: str | os.PathLike[str] | None
    ) -> None:
        self.walk = Walk(source, folder=folder, data=data)
        self.text = text
        head = text.body[0].start if text.body else 0
        self.walk.tirx = any(_TIRX.match(comment) for start, _, comment in text.comments if start < head)
        self.contents = _TextContents()

    def capture(self, lookup: Callable[[str], Any]) -> None:
        """Bind the names of the program around the text that occur in it; functions of the text take precedence."""
        walk, nodes = self.walk, list(tree.nodes(self.text.body))
        defined = {node.name for node in nodes if isinstance(node, (tree.Def, tree.Class))}
        for name in dict.fromkeys(node.id for node in nodes if isinstance(node, tree.Name)):
            value = UNKNOWN if name in defined else lookup(name)
            if isinstance(value, Alias):
                walk.modules[name] = value.path
            elif isinstance(value, Unavailable):
                walk.unavailable[name] = value
            elif value is not UNKNOWN:
                walk.captured.add(name)
                walk.prelude.define(name, value)

    def module(self) -> IRModule:
        """Read the whole module."""
        walk = self.walk
        for stmt in self.text.body:
            with walk.attempt():
                self._top(stmt)
        self._declare()
        functions: dict[str, Func] = {}
        for cst in self.contents.functions:
            with walk.attempt():
                functions[cst.name] = self._function(cst)
        attrs = {}
        for call in self.contents.attrs:
            with walk.attempt():
                attrs.update(self._module_attrs(call))
        if not self.contents.functions and self.contents.module is None and not walk.diagnostics:
            end = len(walk.source.text.rstrip())
            span = Span(walk.source, 0, end) if end else None
            help = "a text has a class under `@I.ir_module`, or functions under `@T.prim_func` and `@R.function`"
            walk.note("E0207", "the text has no functions", span, help=help)
        if walk.diagnostics:
            raise CompileError(walk.diagnostics)
        return IRModule(functions, attrs, walk.module_name, walk.global_infos)

    # ------------------------------------------------------------ module level

    def _top(self, stmt: tree.Stmt) -> None:
        walk = self.walk
        if isinstance(stmt, tree.Class):
            self._class(stmt)
        elif isinstance(stmt, tree.Def):
            self._add(stmt)
        elif isinstance(stmt, tree.Import):
            walk.bind_import(stmt)
            walk.tirx = walk.tirx or any(path.endswith(".tirx") for path, _ in stmt.names)
        elif isinstance(stmt, tree.Assign) and isinstance(stmt.target, tree.Name) and stmt.value is not None:
            self._prelude(stmt.target, stmt.value)
        elif not _is_no_op(stmt):
            walk.fail("E0208", "this is not allowed outside a function", stmt, help=_OUTSIDE)

    def _class(self, cst: tree.Class) -> None:
        walk = self.walk
        if self.contents.module is not None:
            related = (Label(walk.span(self.contents.module), "the first one is here"),)
            walk.fail("E0208", "a text can hold only one module", cst, "a second class", related=related)
        self.contents.module = cst
        decorators = [walk.dotted(tree.callee_of(d)) for d in cst.decorators]
        plain = [d.id for d in cst.decorators if isinstance(d, tree.Name)]
        if not cst.decorators and _NETWORK.match(walk.source.text, cst.start):
            help = "save it by torch.export, and import that: `mlcc import model.pt2 -o model.mlc`"
            walk.note("E0208", f"class `{cst.name}` is a module of PyTorch, and no text", cst, help=help)
            raise TooManyErrors
        if not _CLASSES.intersection(d for d in decorators if d) and "ir_module" not in plain:
            walk.note(
                "E0208", f"class `{cst.name}` is not marked as a module", cst, help="write `@I.ir_module` above it"
            )
        walk.module_name = cst.name
        walk.self_names.update((cst.name, "cls"))
        for stmt in cst.body:
            with walk.attempt():
                self._member(stmt)

    def _member(self, stmt: tree.Stmt) -> None:
        walk = self.walk
        if isinstance(stmt, tree.Def):
            self._add(stmt)
        elif isinstance(stmt, tree.Import):
            walk.bind_import(stmt)
        elif isinstance(stmt, tree.Expression) and self._is_module_declaration(stmt.value):
            pass
        elif isinstance(stmt, tree.Assign) and isinstance(stmt.target, tree.Name) and stmt.value is not None:
            self._prelude(stmt.target, stmt.value)
        elif not _is_no_op(stmt):
            walk.fail(
                "E0208",
                "this is not allowed in a module",
                stmt,
                help="a module can contain functions, `I.module_attrs` and `I.module_global_infos`",
            )

    def _is_module_declaration(self, cst: tree.Expr) -> bool:
        """Read `I.module_attrs(...)` or `I.module_global_infos(...)`; False for any other statement."""
        path = self.walk.dotted(cst.function) if isinstance(cst, tree.Call) else None
        if not isinstance(cst, tree.Call) or path not in ("I.module_attrs", "I.module_global_infos"):
            return False
        if path == "I.module_attrs":
            self.contents.attrs.append(cst)
        else:
            self.walk.global_infos |= read_global_infos(self.walk, cst)
        return True

    def _add(self, cst: tree.Def) -> None:
        walk, name, at = self.walk, cst.name, cst.place
        self._function_kind(cst)
        before = walk.definitions.get(name)
        if before is not None:
            related = (Label(walk.span(before.place), "it is defined here"),)
            walk.fail("E0209", f"function `{name}` is defined twice", at, related=related)
        walk.definitions[name] = cst
        self.contents.functions.append(cst)

    def _function_kind(self, cst: tree.Def) -> str:
        """`T` for a PrimFunc, `R` for a relax function, as the decorator says."""
        walk = self.walk
        for decorator in cst.decorators:
            head = tree.callee_of(decorator)
            path = walk.dotted(head)
            kind = _FUNCTIONS.get(path) if path is not None else None
            if kind is not None:
                return kind
            written = walk.source.text[head.start : head.end]
            hint = did_you_mean(written, _FUNCTIONS) or _DECORATORS
            walk.fail("E0203", f"there is no decorator `@{written}`", decorator, help=hint)
        return walk.fail("E0208", f"function `{cst.name}` has no decorator", cst.place, help=_DECORATORS)

    def _prelude(self, target: tree.Name, value: tree.Expr) -> None:
        """Read `n = TypeVar("n")`, `n = T.int64()` or `cls = Module`: names visible in all following functions."""
        walk, name, span = self.walk, target.id, self.walk.span(target)
        if isinstance(value, tree.Name) and value.id in walk.self_names:
            walk.self_names.add(name)
            return
        if isinstance(value, tree.Call) and walk.dotted(value.function) == "I.load_json":
            self._metadata(value)
            return
        if isinstance(value, tree.Call) and isinstance(value.function, tree.Name) and value.function.id == "TypeVar":
            walk.prelude.define(name, TypeVar(name, INT64), span)
            return
        path = walk.dotted(value.function) if isinstance(value, tree.Call) else None
        if path is not None and path.startswith("R."):
            walk.fail("E0208", f"`{path}` cannot be called outside a function", value, help=_OUTSIDE)
        from mlcc.grammar.tir.calls import declared_dtype

        dtype = declared_dtype(Evaluator(walk, walk.prelude), value)
        if dtype is not None:
            walk.prelude.define(name, TypeVar(name, dtype), span)
            return
        evaluated = Evaluator(walk, walk.prelude).value(value)
        walk.prelude.define(name, evaluated, span)

    def _metadata(self, call: tree.Call) -> None:
        """Read `metadata = tvm.ir.load_json("...")`, the data of constants that the text refers to."""
        walk = self.walk
        if len(call.args) != 1 or call.keywords or not isinstance(call.args[0], tree.Str):
            walk.fail("E0907", "`tvm.ir.load_json` takes one string", call)
        from mlcc.grammar.metadata import metadata_of

        try:
            tensors, strings = metadata_of(call.args[0].value)
        except ValueError as problem:
            walk.fail("E0907", "this is not the metadata of a module", call.function, str(problem))
        walk.data = {**tensors, **(walk.data or {})}
        walk.strings |= strings

    def _module_attrs(self, call: tree.Call) -> dict[str, Any]:
        if len(call.args) != 1 or call.keywords:
            self.walk.fail("E0304", "`I.module_attrs` takes one dict", call)
        return attribute_values.attributes(Evaluator(self.walk, Scope()), call.args[0], "module attributes")

    # ------------------------------------------------------------ functions

    def _declare(self) -> None:
        """Create the handles of all functions, and note the dtypes that PrimFuncs return."""
        walk = self.walk
        for cst in self.contents.functions:
            name = cst.name
            walk.functions[name] = GlobalVar(name, span=walk.span(cst.place))
            if self._function_kind(cst) == "T":
                quiet = len(walk.diagnostics)
                with walk.attempt():
                    from mlcc.grammar.tir.types import result_annotation

                    dtype = result_annotation(Evaluator(walk, Scope(walk.prelude)), cst.returns)
                    if dtype is not None:
                        walk.return_dtypes[name] = dtype
                del walk.diagnostics[quiet:]  # reported when the function is walked

    def _function(self, cst: tree.Def) -> Func:
        if self._function_kind(cst) == "T":
            from mlcc.grammar.tir.walk import walk_prim_func

            return walk_prim_func(self.walk, cst)
        from mlcc.grammar.relax.walk import walk_function

        before = len(self.walk.diagnostics)
        func = walk_function(self.walk, cst)
        if len(self.walk.diagnostics) > before:
            raise Skip
        return func


def _is_no_op(stmt: tree.Stmt) -> bool:
    """True for `pass` and documentation strings."""
    return bool(isinstance(stmt, tree.Pass) or (isinstance(stmt, tree.Expression) and isinstance(stmt.value, tree.Str)))
