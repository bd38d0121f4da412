"""Calls `T.*` with a value: functions, constants and variables of dtypes, intrinsics by name.

Calls that make a statement are in `statements`, `blocks` and `loops`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mlcc.errors import did_you_mean
from mlcc.grammar.syntax import tree
from mlcc.grammar.tir.arguments import signature
from mlcc.grammar.tir.call_arguments import argument, literal_dtype, make_call, split_dtype
from mlcc.grammar.tir.evaluation_results import is_number
from mlcc.grammar.tir.extern import EXTERNS
from mlcc.grammar.tir.functions import FUNCTIONS
from mlcc.grammar.tir.non_expressions import NON_EXPRESSIONS
from mlcc.grammar.tir.operators import OperatorEvaluator
from mlcc.ir import construct, intrinsics, tir
from mlcc.ir.dtypes import HANDLE, INT32, DType
from mlcc.ir.intrinsics import Intrinsic

Handler = Callable[[Any, tree.Call], Any]
Expr = tir.Expr

_STATEMENTS = """
alloc_buffer alloc_buffer_stmt alloc_local alloc_shared sblock_alloc_buffer allocate allocate_const decl_buffer
match_buffer buffer_decl Buffer block sblock init where reads writes block_attr sblock_attr func_attr axis.remap
axis.spatial axis.reduce axis.scan axis.opaque axis.S axis.R grid serial parallel vectorized unroll thread_binding
evaluate attr launch_thread env_thread LetStmt let Bind bind Assert buffer_store local_scalar shared_scalar alloc_scalar
prim_func
"""
STATEMENTS = frozenset(_STATEMENTS.split())


# ---------------------------------------------------------------- dispatch


def call(ev: OperatorEvaluator, path: str, cst: tree.Call) -> Any:
    """A call of the function with that dotted name."""
    name = path.removeprefix("T.")
    if name == path:
        from mlcc.grammar.foreign import intrinsic_hint

        operator = path.startswith("R.") and intrinsic_hint(path)
        help = f"`R.` has operators of graphs, on whole tensors; {operator}" if operator else suggestion(path)
        return ev.walk.fail("E0203", f"`{path}` is unknown here", cst.function, help=help)
    handler = CALLS.get(name)
    if handler is not None:
        return handler(ev, cst)
    dtype = dtype_named(name)
    if dtype is not None:
        return _dtype_call(ev, dtype, cst)
    if name in LEGACY:
        return _operand_typed_call(ev, LEGACY[name], cst)
    if name == "ptx.cp":
        return _ptx_copy(ev, cst)
    spec = intrinsics.INTRINSICS.get(intrinsics.ALIASES.get(name, name.removeprefix("tirx.")))
    if spec is not None:
        return _intrinsic(ev, spec, cst)
    if name in STATEMENTS:
        return ev.walk.fail("E0305", f"`{path}` is a statement and is not allowed here or inside an expression", cst)
    return ev.walk.fail("E0203", f"there is no `{path}`", cst.function, help=suggestion(path))


def constant(ev: OperatorEvaluator, path: str, cst: tree.Attribute) -> Any:
    """The value of a dotted name that is not called: a dtype."""
    name = path.removeprefix("T.")
    if path != name:
        if name in ("inf", "nan"):
            return float(name)
        dtype = dtype_named(name)
        if dtype is not None:
            return dtype
        if name in CALLS or name in STATEMENTS or intrinsics.find(name) is not None:
            return ev.walk.fail("E0300", f"`{path}` must be called", cst)
    return ev.walk.fail("E0203", f"there is no `{path}`", cst, help=suggestion(path))


def suggestion(path: str) -> str | None:
    """Return the known function that was probably meant, for messages, or None."""
    name = path.removeprefix("T.")
    from mlcc.grammar.foreign import intrinsic_hint

    hint = intrinsic_hint(name)
    if hint is not None:
        return hint
    candidate = did_you_mean(name, [*CALLS, *intrinsics.INTRINSICS, *STATEMENTS, *_COMMON_DTYPES])
    return None if candidate is None else candidate.replace("`", "`T.", 1)


_COMMON_DTYPES = (
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
    "bfloat16", "bool", "handle",
)  # fmt: skip
_SHORT = {
    "f16": "float16", "f32": "float32", "f64": "float64", "bf16": "bfloat16", "i8": "int8", "i16": "int16",
    "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "boolean": "bool",
}  # fmt: skip


@functools.lru_cache(maxsize=1024)
def dtype_named(name: str) -> DType | None:
    """The dtype that `T.name` stands for, if it is one."""
    name = _SHORT.get(name, name)
    if name not in ("bool", "handle", "void") and not any(c.isdigit() for c in name):
        return None
    try:
        return DType.of(name)
    except ValueError:
        return None


def _intrinsic(ev: OperatorEvaluator, spec: Intrinsic, cst: tree.Call) -> Expr:
    name, args = spec.name, cst.args
    for keyword in cst.keywords:
        if keyword.name not in ("dtype", "span"):
            ev.walk.fail("E0304", f"`T.{name}` has no argument `{keyword.name}`", keyword)
    dtype: DType | None = None
    if spec.result == "explicit":
        dtype, args = split_dtype(ev, cst, name)
    elif spec.result == "last" and args:
        dtype, args = ev.dtype(args[-1]), args[:-1]
    if not spec.takes(len(args)):
        plural = "" if spec.arity.endswith(" 1") or spec.arity == "1" else "s"
        ev.walk.fail("E0304", f"`T.{name}` takes {spec.arity} argument{plural}, not {len(args)}", cst)
    operands = _operands(ev, spec, args)
    if dtype is None:
        dtype = intrinsics.result_dtype(spec, operands)
    assert dtype is not None
    return make_call(ev, cst, name, dtype, operands)


# intrinsics of TVM 0.27 whose dtype goes by an operand: by the pointer of that number, or by a name of a type
LEGACY = {
    "ptx_legacy.mma": ("ptx_mma", 5), "ptx_legacy.ldmatrix": ("ptx_ldmatrix", 3),
    "cuda.mma_fill_legacy": ("mma_fill", 1), "cuda.mma_store_legacy": ("mma_store", 3),
}  # fmt: skip
_KINDS = {"fp16": "float16", "fp32": "float32", "fp64": "float64"}


def _operand_typed_call(ev: OperatorEvaluator, known: tuple[str, int], cst: tree.Call) -> Expr:
    name, at = known
    if any(keyword.name == "dtype" for keyword in cst.keywords):
        return _intrinsic(ev, intrinsics.INTRINSICS[name], cst)
    args = tuple(argument(ev, a) for a in cst.args)
    type_operand = args[at] if at < len(args) else None
    dtype: DType | None = None
    if isinstance(type_operand, tir.StringImm):
        dtype = dtype_named(_KINDS.get(type_operand.value, type_operand.value))
    elif isinstance(type_operand, tir.Var) and type_operand.pointer is not None:
        dtype = type_operand.pointer.dtype
    if dtype is None:
        ev.walk.fail("E0304", f"`T.{name}` needs the dtype of its result", cst, help="as `dtype=`")
    return make_call(ev, cst, name, dtype, args)


_COPIES: dict[tuple[str, ...], str] = {
    ("async", "commit_group"): "ptx_commit_group", ("async", "wait_group"): "ptx_wait_group",
}  # fmt: skip


def _ptx_copy(ev: OperatorEvaluator, cst: tree.Call) -> Expr:
    """`T.ptx.cp(0, "async", "wait_group", "")`: arguments, and what follows `cp` in the instruction's name."""
    words = [a.value for a in cst.args if isinstance(a, tree.Str)]
    name = _COPIES.get(tuple(w for w in words if w))
    if name is None:
        known = " and ".join(f"`cp.{'.'.join(w)}`" for w in _COPIES)
        written = ".".join(w for w in ("cp", *words) if w)
        ev.walk.fail("E0203", f"`{written}` of PTX is unknown", cst, help=f"{known} are known, and `T.ptx_cp_async`")
    numbers = tuple(a for a in cst.args if not isinstance(a, tree.Str))
    return _intrinsic(ev, intrinsics.INTRINSICS[name], replace(cst, args=numbers))


def _operands(ev: OperatorEvaluator, spec: Intrinsic, args: tuple[tree.Expr, ...]) -> tuple[Expr, ...]:
    if spec.operands == "any":
        return tuple(argument(ev, a) for a in args)
    values = [ev.operand(a) for a in args]
    like = next((v.dtype for v in values if isinstance(v, Expr)), None)
    operands = [
        v if isinstance(v, Expr) else ev.build(a, construct.const, v, literal_dtype(v, like))
        for v, a in zip(values, args, strict=True)
    ]
    if spec.operands == "match" and len(operands) == 2 and operands[0].dtype is not operands[1].dtype:
        operands = list(ev.build(args[1], construct.match_types, *operands))
    for value, cst in zip(operands, args, strict=True):
        if spec.operands == "integer" and not (value.dtype.is_int or value.dtype.is_bool):
            ev.walk.fail("E0301", f"`T.{spec.name}` takes integers, not {value.dtype}", cst)
        if spec.operands == "float" and not value.dtype.is_float:
            help = 'convert it: `T.Cast("float32", x)`'
            ev.walk.fail("E0301", f"`T.{spec.name}` takes floats, not {value.dtype}", cst, help=help)
        if spec.operands == "match" and value.dtype is not operands[0].dtype:
            ev.walk.fail("E0301", f"`T.{spec.name}` needs operands of the same dtype", cst, f"{value.dtype} here")
    return tuple(operands)


# ---------------------------------------------------------------- constants and variables


def _dtype_call(ev: OperatorEvaluator, dtype: DType, cst: tree.Call) -> Expr:
    """`T.int32(3)` is a constant, `T.int32(x)` a conversion, `T.int32()` a new variable."""
    if dtype.is_handle:
        return new_var(ev, dtype, cst, "v")
    arguments = signature(f"T.{dtype}", "expr=", "is_size_var").bind(ev.walk, cst)
    if "expr" not in arguments:
        return new_var(ev, dtype, cst, "v")
    at = arguments["expr"]
    value = ev.value(at)
    if isinstance(value, str):
        value = _float_text(ev, value, dtype, at)
    if is_number(value):
        return ev.build(cst, construct.const, value, dtype)  # type: ignore[no-any-return]
    return ev.build(cst, construct.cast, dtype, ev.as_expr(value, at))  # type: ignore[no-any-return]


def _float_text(ev: OperatorEvaluator, text: str, dtype: DType, cst: tree.Expr) -> float:
    try:
        value = float.fromhex(text) if "x" in text.lower() else float(text)
    except (ValueError, OverflowError):
        ev.walk.fail("E0302", f"`{text[:40]}` is not a number", cst)
    if not dtype.is_float:
        ev.walk.fail("E0302", f"a constant of {dtype} cannot be written as a string", cst)
    return value


_HANDLE = signature("T.handle", "dtype= storage_scope=", "is_size_var")


def new_var(ev: OperatorEvaluator, dtype: DType, cst: tree.Expr, name: str) -> tir.Var:
    """`T.int64()` or `T.handle("float32", "shared")`: a variable of that type."""
    pointer = None
    if dtype.is_handle and isinstance(cst, tree.Call):
        arguments = _HANDLE.bind(ev.walk, cst)
        scope = ev.string(arguments["storage_scope"], "a storage scope") if "storage_scope" in arguments else "global"
        if "dtype" in arguments and ev.value(arguments["dtype"]) is not None:
            pointer = tir.PointerType(ev.dtype(arguments["dtype"]), scope or "global")
    return tir.Var(name, dtype, pointer, span=ev.walk.span(cst))


def declared_dtype(ev: OperatorEvaluator, cst: tree.Expr) -> DType | None:
    """The dtype of `T.int64()` and other expressions that only declare a variable; None for anything else."""
    if not isinstance(cst, tree.Call):
        return None
    path = ev.walk.dotted(cst.function, ev.scope)
    if path is None or not path.startswith("T."):
        return None
    name = path[2:]
    if name in ("var", "dynamic") and cst.args:
        return ev.dtype(cst.args[-1] if name == "dynamic" and len(cst.args) > 1 else cst.args[0])
    if name in ("ptr", "buffer_var", "Ptr"):
        return HANDLE
    dtype = dtype_named(name)
    if dtype is None or (cst.args and not dtype.is_handle) or any(isinstance(k, tree.Expression) for k in cst.keywords):
        return None
    return dtype


def _var(ev: OperatorEvaluator, cst: tree.Call) -> tir.Var:
    arguments = signature("T.var", "dtype name=").bind(ev.walk, cst)
    name = ev.string(arguments["name"], "a name") if "name" in arguments else "v"
    return tir.Var(name or "v", ev.dtype(arguments["dtype"]), span=ev.walk.span(cst))


def _dynamic(ev: OperatorEvaluator, cst: tree.Call) -> tir.Var:
    arguments = signature("T.dynamic", "name dtype=").bind(ev.walk, cst)
    dtype = ev.dtype(arguments["dtype"]) if "dtype" in arguments else INT32
    return tir.Var(ev.string(arguments["name"], "a name"), dtype, span=ev.walk.span(cst))


def _pointer(ev: OperatorEvaluator, cst: tree.Call) -> tir.Var:
    arguments = signature("T.ptr", "dtype storage_scope=").bind(ev.walk, cst)
    scope = ev.string(arguments["storage_scope"], "a storage scope") if "storage_scope" in arguments else "global"
    return tir.Var("v", HANDLE, tir.PointerType(ev.dtype(arguments["dtype"]), scope), span=ev.walk.span(cst))


def _int_imm(ev: OperatorEvaluator, cst: tree.Call) -> Expr:
    arguments = signature("T.IntImm", "dtype value").bind(ev.walk, cst)
    return ev.build(cst, construct.const, ev.integer(arguments["value"], "the value"), ev.dtype(arguments["dtype"]))  # type: ignore[no-any-return]


def _float_imm(ev: OperatorEvaluator, cst: tree.Call) -> Expr:
    arguments = signature("T.FloatImm", "dtype value").bind(ev.walk, cst)
    value = ev.value(arguments["value"])
    if not is_number(value):
        ev.walk.fail("E0302", "the value must be a number", arguments["value"])
    return ev.build(cst, construct.const, float(value), ev.dtype(arguments["dtype"]))  # type: ignore[no-any-return]


def _string_imm(ev: OperatorEvaluator, cst: tree.Call) -> Expr:
    arguments = signature("T.StringImm", "value").bind(ev.walk, cst)
    return tir.StringImm(ev.string(arguments["value"], "the value"), span=ev.walk.span(cst))


CALLS: dict[str, Handler] = {
    **FUNCTIONS, **EXTERNS, **NON_EXPRESSIONS, "IntImm": _int_imm, "FloatImm": _float_imm, "StringImm": _string_imm,
    "llvm_lookup_intrinsic_id": _string_imm, "var": _var, "dynamic": _dynamic, "ptr": _pointer, "Ptr": _pointer,
    "buffer_var": _pointer,
}  # fmt: skip
