"""Forms of the text that look like operator calls but are not: `R.shape`, `R.const`, `R.str`, ..."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc.grammar.relax import const as relax_const
from mlcc.grammar.relax.scope import FunctionWalk
from mlcc.grammar.relax.types import tensor_dtype
from mlcc.grammar.syntax import tree
from mlcc.ir import relax, tir
from mlcc.ir.node import Attrs
from mlcc.ops import values


def bind_arguments(fw: FunctionWalk, cst: tree.Call, names: tuple[str, ...], required: int) -> dict[str, tree.Expr]:
    """The arguments of a form by name; `*` collects all."""
    if names == ("*",):
        return {str(i): a for i, a in enumerate(cst.args)}
    what = fw.walk.dotted(cst.function, fw.scope) or "this"
    if len(cst.args) > len(names):
        fw.walk.fail("E0441", f"{what} takes at most {len(names)} arguments", cst.args[len(names)])
    arguments = dict(zip(names, cst.args, strict=False))
    for keyword in cst.keywords:
        name = _ALIASES.get(keyword.name, keyword.name)
        if name not in names or name in arguments:
            fw.walk.fail("E0441", f"{what} has no argument `{keyword.name}` left", keyword)
        arguments[name] = keyword.value
    for name in names[:required]:
        if name not in arguments:
            fw.walk.fail("E0441", f"{what} needs argument `{name}`", cst)
    return arguments


_ALIASES = {"ty": "struct_info", "ty_args": "sinfo_args"}


def _shape(fw: FunctionWalk, cst: tree.Call, arguments: dict[str, tree.Expr]) -> relax.Expr:
    listed = arguments["value"]
    if not isinstance(listed, tree.Display):
        fw.walk.fail("E0442", "R.shape takes a list of dimensions", listed)
    with fw.guard(listed):
        return values.shape_expr([fw.scalar(item) for item in listed.items], fw.walk.span(cst))


def _prim_value(fw: FunctionWalk, cst: tree.Call, arguments: dict[str, tree.Expr]) -> relax.Expr:
    scalar = fw.scalar(arguments["value"])
    if not isinstance(scalar, (bool, int, float, tir.Expr)) or isinstance(scalar, tir.StringImm):
        fw.walk.fail("E0442", "R.prim_value takes a scalar", arguments["value"])
    return values.expr(scalar, fw.walk.span(cst))


def _str(fw: FunctionWalk, cst: tree.Call, arguments: dict[str, tree.Expr]) -> relax.Expr:
    text = fw.scalar(arguments["value"])
    if not isinstance(text, str):
        fw.walk.fail("E0442", "R.str takes a string", arguments["value"])
    return values.expr(text, fw.walk.span(cst))


def _dtype(fw: FunctionWalk, cst: tree.Call, arguments: dict[str, tree.Expr]) -> relax.Expr:
    dtype = tensor_dtype(fw, arguments["value"])
    if dtype is None:
        fw.walk.fail("E0442", "R.dtype takes the name of a dtype", arguments["value"])
    return values.expr(dtype, fw.walk.span(cst))


def _extern(fw: FunctionWalk, cst: tree.Call, arguments: dict[str, tree.Expr]) -> relax.Expr:
    if not isinstance(arguments["name"], tree.Str):
        fw.walk.fail("E0442", "R.ExternFunc takes the name of a packed function", arguments["name"])
    return values.extern(arguments["name"].value, fw.walk.span(cst))


def _device(fw: FunctionWalk, cst: tree.Call, arguments: dict[str, tree.Expr]) -> Attrs:
    kind, index = (
        values.python_value(fw.scalar(arguments[n])) if n in arguments else 0 for n in ("device_type", "index")
    )
    return Attrs({"device_type": kind, "index": index})


Form = tuple[tuple[str, ...], int, Callable[[FunctionWalk, tree.Call, dict[str, tree.Expr]], Any]]
SPECIAL_FORMS: dict[str, Form] = {
    "const": (("value", "dtype"), 1, relax_const.const),
    "data": (("key", "info", "sha256"), 1, relax_const.data),
    "shape": (("value",), 1, _shape),
    "ShapeExpr": (("value",), 1, _shape),
    "prim_value": (("value",), 1, _prim_value),
    "PrimValue": (("value",), 1, _prim_value),
    "str": (("value",), 1, _str),
    "StringImm": (("value",), 1, _str),
    "dtype": (("value",), 1, _dtype),
    "ExternFunc": (("name",), 1, _extern),
    "device": (("device_type", "index"), 1, _device),
}
