"""The semantic fields of each node class and their binders, for structural equality and hashing."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

from mlcc.ir import relax, tir
from mlcc.ir.dtypes import DType
from mlcc.ir.node import semantic_field_names
from mlcc.ir.tensor_data import TensorData, is_ndarray


class Mode(enum.Enum):
    """The role of variables in a field."""

    USE = 0  # must stand for each other
    BIND = 1  # this variable or buffer is introduced here
    FIRST = 2  # variables not bound yet are introduced here: shapes of parameters, `match_cast`
    ATTR = 3  # plain data; constants of the default types count as Python's
    PARAM = 4  # like BIND, and like FIRST for the struct info


USE, BIND, FIRST, ATTR, PARAM = Mode.USE, Mode.BIND, Mode.FIRST, Mode.ATTR, Mode.PARAM

# The semantic fields, in an order in which binders come before uses.
_PLANS: dict[type, tuple[tuple[str, Mode], ...]] = {
    tir.Let: (("dtype", USE), ("value", USE), ("var", BIND), ("body", USE)),
    tir.CommReducer: (("lhs", BIND), ("rhs", BIND), ("result", USE), ("identity", USE)),
    tir.Reduce: (
        ("dtype", USE), ("combiner", USE), ("axis", BIND), ("source", USE), ("init", USE), ("condition", USE),
        ("value_index", USE),
    ),
    tir.IndexMap: (("indices", BIND), ("result", USE), ("inverse", USE)),
    tir.Bind: (("value", USE), ("var", BIND)),
    tir.AllocBuffer: (("buffer", BIND), ("annotations", ATTR)),
    tir.DeclBuffer: (("data", USE), ("buffer", BIND)),
    tir.MatchBufferRegion: (("source", USE), ("buffer", FIRST)),
    tir.AttrStmt: (("subject", ATTR), ("key", USE), ("value", ATTR), ("body", USE)),
    tir.For: (
        ("kind", USE), ("min", USE), ("extent", USE), ("step", USE), ("thread", USE), ("annotations", ATTR),
        ("var", BIND), ("body", USE),
    ),
    tir.Block: (
        ("iter_vars", BIND), ("alloc_buffers", BIND), ("match_buffers", USE), ("reads", USE), ("writes", USE),
        ("annotations", ATTR), ("init", USE), ("body", USE),
    ),
    tir.PrimFunc: (("params", BIND), ("buffers", FIRST), ("ret_dtype", USE), ("attrs", ATTR), ("body", USE)),
    relax.FuncStructInfo: (("params", FIRST), ("ret", USE), ("purity", USE)),
    relax.GlobalVar: (("name", USE),),
    relax.ExternFunc: (("name", USE),),
    relax.Call: (("op", USE), ("args", USE), ("attrs", ATTR), ("sinfo_args", USE)),
    relax.VarBinding: (("var", BIND), ("value", USE)),
    relax.MatchCast: (("value", USE), ("struct_info", FIRST), ("var", BIND)),
    relax.Function: (
        ("params", PARAM), ("is_pure", USE), ("attrs", ATTR), ("ret_struct_info", USE), ("body", USE),
    ),
}  # fmt: skip


def semantic_fields(cls: type) -> tuple[tuple[str, Mode], ...]:
    """Return the semantic fields of a node class, each with the role of its variables."""
    plan = _PLANS.get(cls)
    if plan is None:
        names = semantic_field_names(cls)
        if issubclass(cls, relax.Expr):
            names = tuple(n for n in names if n != "struct_info")
        plan = _PLANS[cls] = tuple((n, USE) for n in names)
    return plan


VARIABLES = (tir.Var, relax.Var, relax.DataflowVar)


def plain_value(value: Any) -> Any:
    """Return an attribute's value; a constant of a default type becomes the Python value that the text shows."""
    if isinstance(value, tir.IntImm):
        if value.dtype.is_bool and value.dtype.lanes == 1:
            return bool(value.value)
        return value.value if str(value.dtype) == "int32" else value
    if isinstance(value, (tir.StringImm, relax.StringImm)):
        return value.value
    if isinstance(value, DType):
        return str(value)
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        return value.item()  # a NumPy scalar
    return TensorData.of(value) if is_ndarray(value) and value.dtype.kind in "biuf" else value


def semantic_parts(value: Any, mode: Mode) -> Iterator[tuple[str, Any, Mode]]:
    """Yield label, value and mode of each part of a node other than a variable."""
    cls = type(value)
    if cls is tir.Buffer:
        inner = FIRST if mode is FIRST else USE
        yield ".data", value.data, FIRST
        yield ".dtype", value.dtype, USE
        yield ".shape", value.shape, inner
        yield ".strides", value.strides, inner
        offset = value.elem_offset
        zero = offset is None or (isinstance(offset, tir.IntImm) and offset.value == 0)
        yield ".elem_offset", None if zero else offset, inner
        for name in ("alignment", "offset_factor", "axis_separators"):
            yield "." + name, getattr(value, name), USE
        return
    if cls is tir.IterVar:  # in a block a binder; a thread variable is bound by the first scope that names it
        yield ".var", value.var, BIND if mode is BIND else FIRST
        for name in ("dom", "kind", "thread_tag"):
            yield "." + name, getattr(value, name), USE
        return
    first = mode is FIRST
    for name, own in semantic_fields(cls):
        part = getattr(value, name)
        if name in _BODIES and type(part) is tuple and any(_is_nothing(s) for s in part):
            part = tuple(s for s in part if not _is_nothing(s))
        yield "." + name, part, FIRST if first and own is USE else own


_BODIES = frozenset(["body", "then_body", "else_body", "init"])


def _is_nothing(stmt: Any) -> bool:
    """Return True for `T.evaluate(0)`, an empty body; beside other statements it is ignored (as in TVM)."""
    return type(stmt) is tir.Evaluate and type(stmt.value) is tir.IntImm and stmt.value.value == 0


def binds(mode: Mode) -> bool:
    """Return True if a field of this mode introduces its variables."""
    return mode is BIND or mode is PARAM
