"""The functions `T.*` that call outside code: externs, packed functions, LLVM intrinsics, pointers.

`EXTERNS` maps names to handlers that build the call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc.errors import did_you_mean
from mlcc.grammar.syntax import tree
from mlcc.grammar.tir.arguments import signature
from mlcc.grammar.tir.call_arguments import argument, make_call, packed_argument, split_dtype
from mlcc.grammar.tir.evaluation_results import Scalar
from mlcc.grammar.tir.operators import OperatorEvaluator
from mlcc.ir import calls, construct, intrinsics, tir
from mlcc.ir.dtypes import HANDLE, INT32, VOID, DType

Handler = Callable[[Any, tree.Call], Any]
Expr = tir.Expr


# ---------------------------------------------------------------- calls out of the language


def _extern(name: str) -> Handler:
    """`T.call_extern("int32", "f", x)` or `T.call_extern("f", x, dtype="int32")`."""

    def handler(ev: OperatorEvaluator, cst: tree.Call) -> Expr:
        dtype, args = split_dtype(ev, cst, name)
        if not args:
            ev.walk.fail("E0304", f"`T.{name}` needs the name of a function", cst)
        function = argument(ev, args[0])
        if not isinstance(function, tir.StringImm):
            ev.walk.fail(
                "E0302", "the name of the function must be a string", args[0], help='`T.call_extern("int32", "f", x)`'
            )
        return make_call(ev, cst, name, dtype, (function, *(argument(ev, a) for a in args[1:])))

    return handler


def _llvm(name: str) -> Handler:
    def handler(ev: OperatorEvaluator, cst: tree.Call) -> Expr:
        dtype, args = split_dtype(ev, cst, name)
        if not args:
            ev.walk.fail("E0304", f"`T.{name}` needs the name of an intrinsic", cst)
        function = ev.value(args[0])
        if isinstance(function, str):
            first: Expr = tir.StringImm(function, span=ev.walk.span(args[0]))
        elif isinstance(function, int):
            first = ev.build(args[0], construct.const, function, "uint32")
        else:
            first = ev.as_expr(function, args[0])
        return make_call(ev, cst, name, dtype, (first, *(argument(ev, a) for a in args[1:])))

    return handler


def _packed(name: str) -> Handler:
    def handler(ev: OperatorEvaluator, cst: tree.Call) -> Expr:
        if not cst.args:
            ev.walk.fail("E0304", f"`T.{name}` needs the name of a function", cst)
        args = tuple(packed_argument(ev, a) for a in cst.args)
        if not isinstance(args[0], tir.StringImm):
            ev.walk.fail("E0302", "the name of the function must be a string", cst.args[0])
        return make_call(ev, cst, name, INT32, args)

    return handler


def _intrin(ev: OperatorEvaluator, cst: tree.Call) -> Expr:
    """`T.call_intrin("float32", "tir.exp", x)`."""
    dtype, args = split_dtype(ev, cst, "call_intrin")
    if not args:
        ev.walk.fail("E0304", "`T.call_intrin` needs the name of an intrinsic", cst)
    written = ev.string(args[0], "the name of the intrinsic")
    intrinsic = intrinsics.find(written)
    bare = written.removeprefix("tir.").removeprefix("tirx.")
    if intrinsic is None and "." not in bare:
        hint = did_you_mean(bare, intrinsics.INTRINSICS)
        ev.walk.fail("E0203", f"there is no intrinsic `{written}`", args[0], help=hint)
    name = intrinsic.name if intrinsic is not None else bare
    return make_call(ev, cst, name, dtype, tuple(argument(ev, a) for a in args[1:]))


# ---------------------------------------------------------------- memory


def _reinterpret(ev: OperatorEvaluator, cst: tree.Call) -> Expr:
    dtype, args = split_dtype(ev, cst, "reinterpret")
    if len(args) != 1:
        ev.walk.fail("E0304", f"`T.reinterpret` takes one value, not {len(args)}", cst)
    return ev.build(cst, calls.reinterpret, dtype, argument(ev, args[0]))  # type: ignore[no-any-return]


def _address_of(ev: OperatorEvaluator, cst: tree.Call) -> Expr:
    at = signature("T.address_of", "buffer_load", "span dtype").bind(ev.walk, cst)["buffer_load"]
    value = ev.value(at)
    if isinstance(value, Scalar):
        value = value.buffer
    if isinstance(value, tir.Buffer):
        value = ev.build(at, construct.load, value, *(0 for _ in value.shape))
    if not isinstance(value, tir.BufferLoad):
        ev.walk.fail("E0302", "only an element of a buffer has an address", at)
    return ev.build(cst, calls.address_of, value)  # type: ignore[no-any-return]


def _access_ptr(ev: OperatorEvaluator, cst: tree.Call) -> Expr:
    arguments = signature("T.tvm_access_ptr", "ptype data offset extent rw_mask", "span dtype").bind(ev.walk, cst)
    kind = ev.value(arguments["ptype"])
    if isinstance(kind, (str, DType)):
        kind = calls.make("type_annotation", ev.dtype(arguments["ptype"]))
    rest = tuple(argument(ev, arguments[n]) for n in ("data", "offset", "extent", "rw_mask"))
    return make_call(ev, cst, "tvm_access_ptr", HANDLE, (ev.as_expr(kind, arguments["ptype"]), *rest))


def _storage_sync(ev: OperatorEvaluator, cst: tree.Call) -> Expr:
    arguments = signature("T.tvm_storage_sync", "storage_scope is_load= num_blocks=", "dtype").bind(ev.walk, cst)
    scope = ev.string(arguments["storage_scope"], "a storage scope")
    load = ev.expr(arguments["is_load"]) if "is_load" in arguments else construct.const(False)
    blocks = ev.expr(arguments["num_blocks"]) if "num_blocks" in arguments else construct.const(-1)
    return make_call(ev, cst, "tvm_storage_sync", VOID, (tir.StringImm(scope), load, blocks))


_PACKED = (
    "call_packed", "call_cpacked", "call_packed_lowered", "call_cpacked_lowered", "tvm_call_packed", "tvm_call_cpacked",
    "tvm_call_packed_lowered", "tvm_call_cpacked_lowered",
)  # fmt: skip

EXTERNS: dict[str, Handler] = {
    **{name: _packed(intrinsics.ALIASES.get(name, name)) for name in _PACKED},
    "call_extern": _extern("call_extern"), "call_pure_extern": _extern("call_pure_extern"), "call_intrin": _intrin,
    "call_llvm_intrin": _llvm("call_llvm_intrin"), "call_llvm_pure_intrin": _llvm("call_llvm_pure_intrin"),
    "reinterpret": _reinterpret,
    "address_of": _address_of, "tvm_access_ptr": _access_ptr, "tvm_storage_sync": _storage_sync,
}  # fmt: skip
