"""Annotations of TensorIR parameters, results and bindings: `T.Buffer((4, 4), "float32")`, `T.handle`, `T.int32`."""

from __future__ import annotations

from typing import Any

from mlcc.grammar.context import UNKNOWN, Skip
from mlcc.grammar.quoted import names_in
from mlcc.grammar.syntax.tree import Cst
from mlcc.grammar.tir import buffers as tir_buffers
from mlcc.grammar.tir import calls as tir_calls
from mlcc.grammar.tir.operators import Operators
from mlcc.ir import tir
from mlcc.ir.dtypes import HANDLE, DType


class Signature:
    """The parameters of one PrimFunc, in order, with the buffers that handles are matched to."""

    def __init__(self, ev: Operators, declared: dict[str, DType]) -> None:
        """`declared` has the dtypes that the body gives to names, as in `n = T.int64()`."""
        self.ev = ev
        self.params: list[tir.Var] = []
        self.buffers: list[tir.Buffer | None] = []
        self.matched: dict[str, tir.Var] = {}  # variables that quoted names in shapes introduced
        self._declared = declared

    def read(self, parameters: tuple[Cst, ...]) -> None:
        """All parameters. Scalars come first into scope: shapes may mention those that stand further right."""
        walk, scope = self.ev.walk, self.ev.scope
        scalars: dict[str, tir.Var] = {}
        for name, start, end, annotation, _ in parameters:
            dtype = scalar_annotation(self.ev, annotation) if annotation is not None else None
            if dtype is not None:
                span = walk.span(("name", start, end))
                scalars[name] = tir.Var(name, dtype, span=span)
                scope.define(name, scalars[name], span)
        for name, start, end, annotation, default in parameters:
            at = ("name", start, end)
            try:
                if default is not None:
                    walk.fail("E0306", "a PrimFunc has no default arguments", default)
                if name in scalars:
                    self.params.append(scalars[name])
                    self.buffers.append(None)
                elif annotation is None:
                    walk.fail(
                        "E0306", f"parameter `{name}` has no type", at, help=f'`{name}: T.Buffer((4,), "float32")`'
                    )
                else:
                    self._parameter(name, at, annotation)
            except Skip:
                scope.define(name, UNKNOWN, walk.span(at))

    def _parameter(self, name: str, at: Cst, annotation: Cst) -> None:
        walk, span = self.ev.walk, self.ev.walk.span(at)
        call = buffer_call(self.ev, annotation)
        if call is not None:
            self._quoted(call)
            given = tir_buffers.BUFFER.bind(walk, call)
            if "data" in given:
                walk.fail("E0306", "the data of a parameter come from its caller", given["data"])
            buffer = tir_buffers.buffer_of(self.ev, given, name, at)
            self.params.append(tir.Var(name, HANDLE, span=span))
            self.buffers.append(buffer)
            self.ev.scope.define(name, buffer, span)
            return
        var = tir.Var(name, HANDLE, _pointer_annotation(self.ev, annotation), span=span)
        self.params.append(var)
        self.buffers.append(None)
        self.ev.scope.define(name, var, span)

    def _quoted(self, call: Cst) -> None:
        """Define the names that quoted dimensions such as `"n"` introduce."""
        shape = next((k[3] for k in call[5] if k[0] == "shape"), None) or (call[4][0] if call[4] else None)
        if shape is None:
            return
        for item in shape[3] if shape[0] in ("tuple", "list") else (shape,):
            if item[0] != "str":
                continue
            for name in names_in(item[3]):
                if self.ev.scope.find(name) is None:
                    span = self.ev.walk.span(item)
                    dtype = self._declared.get(name, DType.of("int32"))
                    self.matched[name] = tir.Var(name, dtype, span=span)
                    self.ev.scope.define(name, self.matched[name], span)


def buffer_call(ev: Operators, annotation: Cst) -> Cst | None:
    """`T.Buffer(...)`, or the older `T.Buffer[...]` in the shape of a call; None for anything else."""
    if annotation[0] not in ("call", "index"):
        return None
    if ev.walk.dotted(annotation[3], ev.scope) not in ("T.Buffer", "T.match_buffer"):
        return None
    if annotation[0] == "call":
        return annotation
    items = annotation[4]
    if len(items) == 1 and items[0][0] == "tuple":
        items = items[0][3]
    if len(items) > 1 and items[1][0] != "str" and all(i[0] == "int" for i in items):
        items = (("tuple", items[0][1], items[-1][2], items),)  # T.Buffer[128, 128]: a shape
    return ("call", *annotation[1:4], items, ())


def scalar_annotation(ev: Operators, annotation: Cst) -> DType | None:
    """The dtype of `T.int32` (called or not, or its name in quotes); None if it is no scalar."""
    if annotation[0] == "call" and not annotation[4] and not annotation[5]:
        annotation = annotation[3]
    path = ev.walk.dotted(annotation, ev.scope)
    if path is None or not path.startswith("T."):
        return None
    dtype = tir_calls.dtype_named(path[2:])
    return None if dtype is None or dtype.is_handle or dtype.is_void else dtype


def _pointer_annotation(ev: Operators, annotation: Cst) -> tir.PointerType | None:
    """The type of a handle parameter; fails for what is no handle."""
    value: Any = None
    path = ev.walk.dotted(annotation[3] if annotation[0] in ("call", "index") else annotation, ev.scope)
    if path in ("T.handle", "T.ptr", "T.Ptr", "T.buffer_var"):
        if annotation[0] == "call":
            value = ev.value(annotation)
        elif annotation[0] == "index":
            value = ev.value(("call", *annotation[1:4], annotation[4], ()))
        return value.pointer if isinstance(value, tir.Var) else None
    if path is not None and path.startswith("T.") and annotation[0] != "call":
        ev.value(annotation)  # says what is wrong with an unknown name
    help = "a parameter is `T.Buffer(shape, dtype)`, `T.handle`, or a scalar such as `T.int32`"
    return ev.walk.fail("E0306", "this is not the type of a parameter", annotation, help=help)


def result_annotation(ev: Operators, annotation: Cst | None) -> DType | None:
    """The dtype that a function returns; None for `None` and where nothing is written."""
    if annotation is None or (annotation[0] == "const" and annotation[3] is None):
        return None
    dtype = scalar_annotation(ev, annotation)
    if dtype is None:
        value = ev.value(annotation)
        if isinstance(value, DType) and value.is_void:
            return None
        if not isinstance(value, DType):
            ev.walk.fail("E0306", "a PrimFunc returns a scalar, or None", annotation)
        dtype = value
    return dtype


def bound_type(ev: Operators, annotation: Cst) -> tuple[DType | None, tir.PointerType | None, bool] | None:
    """The type in `x: T.int32 = ...`, and whether it is one of `T.let`: (dtype or None for the value's, pointer, let).

    None for an annotation of another kind.
    """
    path = ev.walk.dotted(annotation, ev.scope)
    if path in ("T.let", "T.LetStmt", "T.Let"):
        return (None, None, True)
    if annotation[0] == "index" and ev.walk.dotted(annotation[3], ev.scope) in ("T.let", "T.Let"):
        items = annotation[4]
        inner = bound_type(ev, items[0]) if len(items) == 1 else None
        if inner is None:
            ev.walk.fail("E0306", "`T.let[...]` takes one type", annotation)
        return (inner[0], inner[1], True)
    dtype = scalar_annotation(ev, annotation)
    if dtype is not None:
        return (dtype, None, False)
    if path in ("T.handle", "I.StringType"):
        return (HANDLE, None, False)
    if annotation[0] == "call":
        called = ev.walk.dotted(annotation[3], ev.scope)
        if called in ("T.handle", "T.ptr", "T.Ptr"):
            return (HANDLE, _pointer_annotation(ev, annotation), False)
        if called == "I.StringType":
            return (HANDLE, None, False)
    return None
