"""Calls of intrinsics and functions as text.

`T.exp(x)` is written where reading it gives the same call back: the function of the text may fold its arguments, bring
them to one dtype, or have a result of another dtype. Else it is `T.call_intrin("float32", "tir.exp", x)`, which builds
the call as it is.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable

from mlcc.grammar.printer import tvm as printer_tvm
from mlcc.grammar.printer.literals import quote
from mlcc.grammar.printer.writer import ATOM, Child, Part, Parts, Writer, call, handles
from mlcc.ir import calls, relax, tir
from mlcc.ir.checked_index import checked_index
from mlcc.ir.dtypes import DType
from mlcc.ir.intrinsics import INTRINSICS, Intrinsic, result_dtype

# Functions of the text that build more than the call of their name; by what they build it shows whether they did.
_BUILDERS: dict[str, Callable[..., tir.Expr]] = {
    "bitwise_and": calls.bitwise_and, "bitwise_or": calls.bitwise_or, "bitwise_xor": calls.bitwise_xor,
    "bitwise_not": calls.bitwise_not, "shift_left": calls.shift_left, "shift_right": calls.shift_right,
    "if_then_else": calls.if_then_else, "fabs": calls.absolute, "abs": calls.absolute, "pow": calls.power,
    "isnan": calls.isnan, "isinf": calls.isinf, "isfinite": calls.isfinite,
    **{name: functools.partial(calls.rounding, name) for name in ("floor", "ceil", "trunc", "round", "nearbyint")},
}  # fmt: skip


def _reads_back(node: tir.Call, known: Intrinsic) -> bool:
    """True if the function of the intrinsic's name gives this call for its arguments."""
    build = _BUILDERS.get(known.name)
    args = node.args
    if not known.takes(len(args)):
        return False
    if build is not None:
        try:
            rebuilt = build(*args)
        except (ValueError, TypeError, ArithmeticError, AttributeError):
            return False
        same = isinstance(rebuilt, tir.Call) and rebuilt.op == node.op and rebuilt.dtype is node.dtype
        return same and all(a is b for a, b in zip(rebuilt.args, args, strict=True))  # type: ignore[attr-defined]
    if known.name == "likely" and isinstance(args[0], tir.IntImm):
        return False
    if known.operands == "match" and any(a.dtype is not args[0].dtype for a in args):
        return False
    if known.operands == "float" and not all(a.dtype.is_float for a in args):
        return False
    if known.operands == "integer" and not all(a.dtype.is_int or a.dtype.is_bool for a in args):
        return False
    return known.result in ("explicit", "last") or result_dtype(known, args) is node.dtype


def _target(config: str) -> str:
    """The configuration of a target: a dict if it is one, else the string."""
    if config.startswith("{"):
        try:
            parsed = json.loads(config)
        except ValueError:
            return quote(config)
        if isinstance(parsed, dict):
            return repr(parsed)
    return quote(config)


@handles(tir.Call)
def _call(out: Writer, node: tir.Call, like: DType | None) -> Parts:
    args: list[Part | list[Part]] = [Child(a) for a in node.args]
    dtype = quote(str(node.dtype))
    if isinstance(node.op, relax.GlobalVar):
        return call(f"{out.module_name or 'cls'}.{out.function_name(node.op.name)}", *args)
    if not isinstance(node.op, tir.Op):
        return call("T.call_intrin", dtype, Child(node.op), *args)
    name = node.op.name.removeprefix("tir.")
    if out.dialect.is_tvm and name in printer_tvm.NODES:
        return call("T." + printer_tvm.NODES[name], *args)
    check = checked_index(node) if out.dialect.is_tvm else None
    if check is not None:
        return ATOM, [Child(check.unchecked(), ATOM)]
    if name == "target" and len(node.args) == 1 and isinstance(node.args[0], tir.StringImm):
        return call("T.target", _target(node.args[0].value))
    known = INTRINSICS.get(name)
    if known is None or not _reads_back(node, known) or (out.dialect.is_tvm and name in printer_tvm.WITHOUT_FUNCTION):
        return call(
            "T.call_intrin", dtype, quote(printer_tvm.full_name(name) if out.dialect.is_tvm else node.op.name), *args
        )
    if out.dialect.is_tvm and name in printer_tvm.LEGACY:
        return call("T." + printer_tvm.LEGACY[name], *args, [f"dtype={dtype}"])
    if out.dialect.is_tvm and name in printer_tvm.PTX:
        return call("T.ptx.cp", *args, *[quote(word) for word in printer_tvm.PTX[name]])
    if known.result == "explicit":
        args.insert(0, dtype)
    elif known.result == "last":
        args.append(dtype)
    return call("T." + (printer_tvm.NAMES.get(name, name) if out.dialect.is_tvm else name), *args)
