"""Scalar expressions of TensorIR as text.

An operator is written infix only where reading the text gives the same node back, that is, where typed construction
neither folds it nor converts an operand; else it is the function that builds the node as it is, `T.Add(1, 2)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from mlcc.grammar.printer import tvm
from mlcc.grammar.printer.literals import float_imm_text, integer, quote
from mlcc.grammar.printer.writer import (
    AND,
    ANY,
    ATOM,
    COMPARE,
    NOT,
    OR,
    PRODUCT,
    SOURCE,
    SUM,
    UNARY,
    Child,
    Part,
    Parts,
    Value,
    Writer,
    call,
    handles,
    separated,
)
from mlcc.ir import construct, tir
from mlcc.ir.construct import TypeMismatch
from mlcc.ir.dtypes import BOOL, INT32, INT64, DType

_INFIX: dict[type, tuple[int, Callable[..., tir.Expr]]] = {
    tir.Add: (SUM, construct.add),
    tir.Sub: (SUM, construct.sub),
    tir.Mul: (PRODUCT, construct.mul),
    tir.Div: (PRODUCT, construct.div),
    tir.FloorDiv: (PRODUCT, construct.floordiv),
    tir.FloorMod: (PRODUCT, construct.floormod),
    tir.EQ: (COMPARE, construct.equal),
    tir.NE: (COMPARE, construct.not_equal),
    tir.LT: (COMPARE, construct.less),
    tir.LE: (COMPARE, construct.less_equal),
    tir.GT: (COMPARE, construct.greater),
    tir.GE: (COMPARE, construct.greater_equal),
    tir.And: (AND, construct.logical_and),
    tir.Or: (OR, construct.logical_or),
}
_FUNCTION: dict[type, tuple[str, Callable[..., tir.Expr]]] = {
    tir.Mod: ("T.truncmod", construct.truncmod),
    tir.Min: ("T.min", construct.minimum),
    tir.Max: ("T.max", construct.maximum),
}


def dtype_call(dtype: DType) -> str:
    """The function that makes constants and variables of a dtype: `T.int64`."""
    return f"T.{dtype}"


def var_type(var: tir.Var) -> str:
    """The annotation of a variable: `T.int32`, `T.handle("float32", "shared")`."""
    pointer = var.pointer
    if pointer is None:
        return dtype_call(var.dtype)
    scope = "" if pointer.scope == "global" else f", {quote(pointer.scope)}"
    return f"T.handle({quote(str(pointer.dtype))}{scope})"


def var_creation(var: tir.Var) -> str:
    """The expression that makes a new variable: `T.int32()`."""
    creation = var_type(var)
    return creation if creation.endswith(")") else creation + "()"


@handles(tir.Var)
def _var(out: Writer, var: tir.Var, like: DType | None) -> Parts:
    name = out.bound.get(var)
    if name is None:
        name = free_var(out, var)
    elif out.from_signature and var in out.from_signature:
        if out.signature is None:
            out.prelude.append(f"{out.from_signature.pop(var)} = {var_creation(var)}")
            out.imports.add("T")
        elif var in out.signature:
            out.mentions_signature = True
    return ATOM, [name]


def free_var(out: Writer, var: tir.Var) -> str:
    """The name of a variable that nothing in scope binds: the signature's, or declared at the top of the function."""
    name = out.define(var, var.name, out.function_scope)
    if out.signature is not None:
        out.signature.add(var)
        out.from_signature[var] = name
        out.mentions_signature = True
    else:
        out.prelude.append(f"{name} = {var_creation(var)}")
        out.imports.add("T")
    return name


@handles(tir.IntImm)
def _int(out: Writer, node: tir.IntImm, like: DType | None) -> Parts:
    if node.dtype is BOOL:
        return ATOM, [f"T.bool({bool(node.value)})"]
    prec = UNARY if node.value < 0 else ATOM
    if node.dtype is (like or INT32):
        return prec, [integer(node.value)]
    if out.dialect.is_tvm and node.value >> 63 > 0:  # TVM's constants are int64 inside
        return call("T.Cast", quote(str(node.dtype)), f"T.int64({integer(node.value - 2**64)})")
    return ATOM, [f"{dtype_call(node.dtype)}({integer(node.value)})"]


@handles(tir.FloatImm)
def _float(out: Writer, node: tir.FloatImm, like: DType | None) -> Parts:
    text = float_imm_text(node.value, node.written, node.dtype)
    if out.dialect.is_tvm and node.dtype.bits == 64 and math.isfinite(node.value) and abs(node.value) > 3.4e38:
        return call("T.FloatImm", quote(str(node.dtype)), text)  # TVM's function takes a float32 first
    return ATOM, [f"{dtype_call(node.dtype)}({text})"]


@handles(tir.StringImm)
def _string(out: Writer, node: tir.StringImm, like: DType | None) -> Parts:
    return ATOM, [quote(node.value)]


@handles(tir.Cast)
def _cast(out: Writer, node: tir.Cast, like: DType | None) -> Parts:
    return call("T.Cast", quote(str(node.dtype)), Child(node.value))


def _reads_back(node: tir.BinaryOp, build: Callable[..., tir.Expr]) -> bool:
    """True if building from the operands gives a node like this one."""
    try:
        rebuilt = build(node.lhs, node.rhs)
    except (TypeMismatch, ValueError, ArithmeticError, AttributeError):
        return False
    return (
        type(rebuilt) is type(node)
        and rebuilt.dtype is node.dtype
        and rebuilt.lhs is node.lhs
        and rebuilt.rhs is node.rhs
    )


@handles(*_INFIX)
def _infix(out: Writer, node: tir.BinaryOp, like: DType | None) -> Parts:
    prec, build = _INFIX[type(node)]
    integers = isinstance(node, tir.Div) and not node.dtype.is_float  # `/` of integers has no meaning in TVM's text
    vectors = isinstance(node, (tir.And, tir.Or)) and node.dtype.lanes > 1
    folded = out.dialect.is_tvm and tvm.folds(node)
    if integers or vectors or folded or not _reads_back(node, build):
        return call("T." + type(node).__name__, Child(node.lhs), Child(node.rhs))
    left = prec + 1 if prec == COMPARE else prec  # comparisons do not associate
    inner = None if prec < COMPARE else like
    return prec, [Child(node.lhs, left, inner), f" {node.symbol} ", Child(node.rhs, prec + 1, inner)]


@handles(*_FUNCTION)
def _function(out: Writer, node: tir.BinaryOp, like: DType | None) -> Parts:
    name, build = _FUNCTION[type(node)]
    if not _reads_back(node, build):
        return call("T." + type(node).__name__, Child(node.lhs), Child(node.rhs))
    return call(name, Child(node.lhs, ANY, like), Child(node.rhs, ANY, like))


@handles(tir.Not)
def _not(out: Writer, node: tir.Not, like: DType | None) -> Parts:
    if isinstance(node.value, tir.IntImm) or not node.value.dtype.is_bool:
        return call("T.Not", Child(node.value))
    return NOT, ["not ", Child(node.value, NOT)]


@handles(tir.Select)
def _select(out: Writer, node: tir.Select, like: DType | None) -> Parts:
    return call("T.Select", Child(node.condition), Child(node.true_value), Child(node.false_value))


@handles(tir.Ramp)
def _ramp(out: Writer, node: tir.Ramp, like: DType | None) -> Parts:
    return call("T.Ramp", Child(node.base), Child(node.stride), str(node.lanes))


@handles(tir.Broadcast)
def _broadcast(out: Writer, node: tir.Broadcast, like: DType | None) -> Parts:
    return call("T.Broadcast", Child(node.value), str(node.lanes))


def _list(nodes: tuple[Any, ...]) -> list[Part]:
    return ["[", *separated([[Child(n)] for n in nodes]), "]"]


@handles(tir.Shuffle)
def _shuffle(out: Writer, node: tir.Shuffle, like: DType | None) -> Parts:
    return call("T.Shuffle", _list(node.vectors), _list(node.indices))


@handles(tir.Let)
def _let(out: Writer, node: tir.Let, like: DType | None) -> Parts:
    return call("T.Let", Child(node.body), ["where={", Child(node.var), ": ", Child(node.value), "}"])


def indices(nodes: tuple[tir.Expr, ...]) -> list[Part]:
    """`[i, j]`, or `[()]` for none."""
    return ["[", *(separated([[Child(i)] for i in nodes]) or ["()"]), "]"]


@handles(tir.BufferLoad)
def _load(out: Writer, node: tir.BufferLoad, like: DType | None) -> Parts:
    name = scalar_name(out, node)
    return ATOM, [name] if name else [Child(node.buffer, ATOM), *indices(node.indices)]


def scalar_name(out: Writer, access: tir.BufferLoad | tir.BufferStore) -> str | None:
    """The name of a scalar variable, where an access is to its one element as its name alone means it."""
    name = out.bound.get(access.buffer, "").removesuffix(SOURCE)
    if name not in out.scalars or out.scalars[name] is not access.buffer or len(access.indices) != 1:
        return None
    at = access.indices[0]
    return name if is_int(at, 0) and at.dtype is INT32 else None


@handles(tir.CommReducer)
def _reducer(out: Writer, node: tir.CommReducer, like: DType | None) -> Parts:
    out.push()
    names = ", ".join([out.define(v, v.name) for v in node.lhs + node.rhs])
    result = [out.text(r) for r in node.result]
    out.pop()
    body = result[0] if len(result) == 1 else f"({', '.join(result)})"
    return call("T.comm_reducer", f"lambda {names}: {body}", _list(node.identity))


@handles(tir.IndexMap)
def _index_map(out: Writer, node: tir.IndexMap, like: DType | None) -> Parts:
    dtype = node.indices[0].dtype if node.indices else INT64
    args: list[Part | list[Part]] = [_map_lambda(out, node)]
    if node.inverse is not None:
        args.append(f"inverse_index_map={_map_lambda(out, node.inverse)}")
    if dtype is not INT64:
        args.append(f"index_dtype={quote(str(dtype))}")
    return call("T.index_map", *args)


def _map_lambda(out: Writer, node: tir.IndexMap) -> str:
    out.push()
    names = ", ".join([out.define(v, v.name) for v in node.indices])
    result = [out.text(r) for r in node.result]
    out.pop()
    return f"lambda {names}: ({', '.join(result)}{',' if len(result) == 1 else ''})"


@handles(tir.Reduce)
def _reduce(out: Writer, node: tir.Reduce, like: DType | None) -> Parts:
    return call(
        "T.Reduce", Child(node.combiner), _list(node.source), _list(node.axis), Child(node.condition),
        str(node.value_index), ["init=", *_list(node.init)],
    )  # fmt: skip


@handles(tir.IterVar)
def _iter_var(out: Writer, node: tir.IterVar, like: DType | None) -> Parts:
    return call("T.iter_var", Child(node.var), Child(node.dom), quote(node.kind.value), quote(node.thread_tag))


@handles(tir.Range)
def _range(out: Writer, node: tir.Range, like: DType | None) -> Parts:
    return call("T.Range", Child(node.min), Child(stop(node.min, node.extent)))


def stop(start: tir.Expr, extent: tir.Expr) -> tir.Expr:
    """The end of a range that starts at `start`."""
    try:
        return construct.add(start, extent)
    except (TypeMismatch, ValueError):
        return tir.Add(start.dtype, start, extent)


def is_int(node: Any, value: int) -> bool:
    return isinstance(node, tir.IntImm) and node.value == value


@handles(tir.BufferRegion)
def _region(out: Writer, node: tir.BufferRegion, like: DType | None) -> Parts:
    dims: list[list[Part]] = []
    for r in node.region:
        if is_int(r.extent, 1):
            dims.append([Child(r.min)])
        else:
            dims.append([Child(r.min), ":", Child(stop(r.min, r.extent))])
    return ATOM, [Child(node.buffer, ATOM), "[", *(separated(dims) or ["()"]), "]"]


@handles(tir.Op)
def _op(out: Writer, node: tir.Op, like: DType | None) -> Parts:
    return ATOM, [quote(node.name)]


__all__ = ["Value", "dtype_call", "free_var", "indices", "is_int", "stop", "var_creation", "var_type"]
