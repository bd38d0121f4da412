"""Print calls of C functions by name (`T.call_extern`): those of libm, and those that the build allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcc.errors import did_you_mean
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.intrinsics import name_of
from mlcc.targets.c import expressions as ex
from mlcc.targets.c.dtypes import declared, register_type
from mlcc.targets.c.reserved import is_own
from mlcc.targets.llvm.codegen.libm import LIBM
from mlcc.targets.source.dialect import refuse
from mlcc.targets.source.expressions import Text

if TYPE_CHECKING:
    from mlcc.targets.c.writer import Writer

_TYPES = {"double": "float64", "float": "float32", "i32": "int32"}
_NOT_C99 = {"exp10": "exp10", "exp10f": "exp10"}


def extern_call(w: Writer, node: tir.Call) -> Text:
    """Print a call of a C function. Raises CompileError (E0780) for one that is not allowed, or for other types."""
    if not node.args or not isinstance(node.args[0], tir.StringImm):
        raise refuse(f"`T.{name_of(node)}` needs a name as its first argument", node.span)
    symbol, args = node.args[0].value, node.args[1:]
    types = LIBM.get(symbol)
    if symbol in _NOT_C99:
        raise refuse(f"C99 has no `{symbol}`", node.span, help=f"use `T.{_NOT_C99[symbol]}`")
    if types is not None:
        expected = [DType.of(_TYPES[t]) for t in types]
        if [node.dtype, *(a.dtype for a in args)] != expected:
            given = ", ".join(str(a.dtype) for a in args)
            wanted = ", ".join(map(str, expected[1:]))
            raise refuse(f"`{symbol}` is {expected[0]}({wanted}) in C, not {node.dtype}({given})", node.span)
        return ex.call(symbol, *(ex.text(w, a) for a in args))
    if symbol not in w.ctx.allow_extern:
        near = did_you_mean(symbol, LIBM)
        help = f"allow it with --allow-extern {symbol}, or use T.call_packed" + (f"; {near}" if near else "")
        raise refuse(f"the extern `{symbol}` is not allowed", node.span, help=help)
    if is_own(symbol):
        raise refuse(f"the extern `{symbol}` has the name of a function of the C file", node.span)
    for dtype in (node.dtype, *(a.dtype for a in args)):
        if dtype.lanes > 1 or dtype.is_float and dtype.bits < 32:
            raise refuse(f"{dtype} cannot be passed to the extern `{symbol}`", node.span)
    result = "void" if node.dtype.is_void else register_type(node.dtype)
    params = ", ".join(register_type(a.dtype) for a in args) or "void"
    w.ctx.declare_extern(symbol, f"MLCC_EXTERN {declared(result)}{symbol}({params});", node.span)
    return ex.call(symbol, *(ex.text(w, a) for a in args))
