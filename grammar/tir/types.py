"""Annotations of TensorIR parameters, results and bindings: `T.Buffer((4, 4), "float32")`, `T.handle`, `T.int32`."""

from __future__ import annotations

from typing import Any

from mlcc.grammar.context import UNKNOWN, Skip
from mlcc.grammar.quoted_expressions import names_in
from mlcc.grammar.syntax import tree
from mlcc.grammar.tir import buffers as tir_buffers
from mlcc.grammar.tir import calls as tir_calls
from mlcc.grammar.tir.operators import OperatorEvaluator
from mlcc.ir import tir
from mlcc.ir.dtypes import HANDLE, DType


class Signature:
    """The parameters of one PrimFunc, in order, with the buffers that handles are matched to."""

    def __init__(self, ev: OperatorEvaluator, declared: dict[str, DType]) -> None:
        """`declared` has the dtypes that the body gives to names, as in `n = T.int64()`."""
        self.ev = ev
        self.params: list[tir.Var] = []
        self.buffers: list[tir.Buffer | None] = []
        self.matched: dict[str, tir.Var] = {}  # variables that quoted names in shapes introduced
        self._declared = declared

    def read(self, parameters: tuple[tree.Parameter, ...]) -> None:
        """Read all parameters, scalars first: shapes may use scalars that are declared further right."""
        walk, scope = self.ev.walk, self.ev.scope
        scalars: dict[str, tir.Var] = {}
        for parameter in parameters:
            name, annotation = parameter.name, parameter.annotation
            dtype = scalar_annotation(self.ev, annotation) if annotation is not None else None
            if dtype is not None:
                span = walk.span(parameter)
                scalars[name] = tir.Var(name, dtype, span=span)
                scope.define(name, scalars[name], span)
        for parameter in parameters:
            name, annotation = parameter.name, parameter.annotation
            try:
                if parameter.default is not None:
                    walk.fail("E0306", "parameters of a PrimFunc cannot have default values", parameter.default)
                if name in scalars:
                    self.params.append(scalars[name])
                    self.buffers.append(None)
                elif annotation is None:
                    help = f'`{name}: T.Buffer((4,), "float32")`'
                    walk.fail("E0306", f"parameter `{name}` needs a type annotation", parameter, help=help)
                else:
                    self._parameter(name, parameter, annotation)
            except Skip:
                scope.define(name, UNKNOWN, walk.span(parameter))

    def _parameter(self, name: str, at: tree.Parameter, annotation: tree.Expr) -> None:
        walk, span = self.ev.walk, self.ev.walk.span(at)
        call = buffer_call(self.ev, annotation)
        if call is not None:
            self._define_quoted(call)
            arguments = tir_buffers.BUFFER.bind(walk, call)
            if "data" in arguments:
                walk.fail("E0306", "the data of a parameter come from its caller", arguments["data"])
            buffer = tir_buffers.buffer_of(self.ev, arguments, name, at)
            self.params.append(tir.Var(name, HANDLE, span=span))
            self.buffers.append(buffer)
            self.ev.scope.define(name, buffer, span)
            return
        var = tir.Var(name, HANDLE, _pointer_annotation(self.ev, annotation), span=span)
        self.params.append(var)
        self.buffers.append(None)
        self.ev.scope.define(name, var, span)

    def _define_quoted(self, call: tree.Call) -> None:
        """Define the names that quoted dimensions such as `"n"` introduce."""
        shape = next((k.value for k in call.keywords if k.name == "shape"), None) or (
            call.args[0] if call.args else None
        )
        if shape is None:
            return
        for item in tree.items_of(shape):
            if not isinstance(item, tree.Str):
                continue
            for name in names_in(item.value):
                captured = name in self.ev.walk.captured and not isinstance(self.ev.scope.get(name), tir.Var)
                if captured or self.ev.scope.find(name) is None:
                    span = self.ev.walk.span(item)
                    dtype = self._declared.get(name, DType.of("int32"))
                    self.matched[name] = tir.Var(name, dtype, span=span)
                    self.ev.scope.define(name, self.matched[name], span)


def buffer_call(ev: OperatorEvaluator, annotation: tree.Expr) -> tree.Call | None:
    """`T.Buffer(...)`, or the older `T.Buffer[...]` in the shape of a call; None for anything else."""
    if not isinstance(annotation, (tree.Call, tree.Index)):
        return None
    if ev.walk.dotted(_head(annotation), ev.scope) not in ("T.Buffer", "T.match_buffer"):
        return None
    if isinstance(annotation, tree.Call):
        return annotation
    items = annotation.indices
    if len(items) > 1 and not isinstance(items[1], tree.Str) and all(isinstance(i, tree.Int) for i in items):
        items = (tree.Tuple(items[0].start, items[-1].end, items),)  # T.Buffer[128, 128]: a shape
    return tree.Call(annotation.start, annotation.end, annotation.base, items, ())


def _head(annotation: tree.Expr) -> tree.Expr:
    """`T.f` of `T.f`, `T.f(...)` and `T.f[...]`."""
    return annotation.base if isinstance(annotation, tree.Index) else tree.callee_of(annotation)


def scalar_annotation(ev: OperatorEvaluator, annotation: tree.Expr) -> DType | None:
    """The dtype of `T.int32` (called or not, or its name in quotes); None if it is not a scalar."""
    if isinstance(annotation, tree.Call) and not annotation.args and not annotation.keywords:
        annotation = annotation.function
    path = ev.walk.dotted(annotation, ev.scope)
    if path is None or not path.startswith("T."):
        return None
    dtype = tir_calls.dtype_named(path[2:])
    return None if dtype is None or dtype.is_handle or dtype.is_void else dtype


def _pointer_annotation(ev: OperatorEvaluator, annotation: tree.Expr) -> tir.PointerType | None:
    """The type of a handle parameter; fails for any other annotation."""
    value: Any = None
    path = ev.walk.dotted(_head(annotation), ev.scope)
    if path in ("T.handle", "T.ptr", "T.Ptr", "T.buffer_var"):
        if isinstance(annotation, tree.Call):
            value = ev.value(annotation)
        elif isinstance(annotation, tree.Index):
            value = ev.value(tree.Call(annotation.start, annotation.end, annotation.base, annotation.items, ()))
        return value.pointer if isinstance(value, tir.Var) else None
    if path is not None and path.startswith("T.") and not isinstance(annotation, tree.Call):
        ev.value(annotation)  # says what is wrong with an unknown name
    help = "a parameter must be `T.Buffer(shape, dtype)`, `T.handle`, or a scalar such as `T.int32`"
    return ev.walk.fail("E0306", "this is not the type of a parameter", annotation, help=help)


def result_annotation(ev: OperatorEvaluator, annotation: tree.Expr | None) -> DType | None:
    """The dtype that a function returns; None for `None` and where nothing is written."""
    annotation = tree.unless_none(annotation)
    if annotation is None:
        return None
    dtype = scalar_annotation(ev, annotation)
    if dtype is None:
        value = ev.value(annotation)
        if isinstance(value, DType) and value.is_void:
            return None
        if not isinstance(value, DType):
            ev.walk.fail("E0306", "a PrimFunc can return only a scalar, or None", annotation)
        dtype = value
    return dtype


def bound_type(
    ev: OperatorEvaluator, annotation: tree.Expr
) -> tuple[DType | None, tir.PointerType | None, bool] | None:
    """The type in `x: T.int32 = ...`, and whether it is one of `T.let`: (dtype or None for the value's, pointer, let).

    None for an annotation of another kind.
    """
    path = ev.walk.dotted(annotation, ev.scope)
    if path in ("T.let", "T.LetStmt", "T.Let"):
        return (None, None, True)
    if isinstance(annotation, tree.Index) and ev.walk.dotted(annotation.base, ev.scope) in ("T.let", "T.Let"):
        items = annotation.items
        inner = bound_type(ev, items[0]) if len(items) == 1 else None
        if inner is None:
            ev.walk.fail("E0306", "`T.let[...]` takes one type", annotation)
        return (inner[0], inner[1], True)
    dtype = scalar_annotation(ev, annotation)
    if dtype is not None:
        return (dtype, None, False)
    if path in ("T.handle", "I.StringType"):
        return (HANDLE, None, False)
    if isinstance(annotation, tree.Call):
        called = ev.walk.dotted(annotation.function, ev.scope)
        if called in ("T.handle", "T.ptr", "T.Ptr"):
            return (HANDLE, _pointer_annotation(ev, annotation), False)
        if called == "I.StringType":
            return (HANDLE, None, False)
    return None
