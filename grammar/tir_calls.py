"""The functions `T.*` that give a value. Those that make a statement are in `tir_statements`, `tir_blocks`, `tir_loops`.

`CALLS` maps names to functions of the evaluator and the call; names that are dtypes make constants and variables; all
other names are intrinsics, from the table `mlcc.ir.intrinsics`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

from mlcc.errors import did_you_mean
from mlcc.grammar.arguments import Signature
from mlcc.grammar.operators import Operators, Scalar, describe, is_number, mark
from mlcc.grammar.tree import Cst
from mlcc.ir import calls, construct, intrinsics, tir
from mlcc.ir.dtypes import BOOL, HANDLE, INT32, VOID, DType
from mlcc.ir.intrinsics import Intrinsic

Handler = Callable[[Any, Cst], Any]
Expr = tir.Expr

STATEMENTS = frozenset(
    """alloc_buffer alloc_buffer_stmt alloc_local alloc_shared sblock_alloc_buffer allocate allocate_const decl_buffer
    match_buffer buffer_decl Buffer block sblock init where reads writes block_attr sblock_attr func_attr axis.remap
    axis.spatial axis.reduce axis.scan axis.opaque axis.S axis.R grid serial parallel vectorized unroll thread_binding
    evaluate attr launch_thread env_thread LetStmt let Bind bind Assert While If realize buffer_store store preflattened_buffer
    local_scalar shared_scalar alloc_scalar func_ret func_name prim_func""".split()
)


# ---------------------------------------------------------------- dispatch


def call(ev: Operators, path: str, cst: Cst) -> Any:
    """A call of the function with that dotted name."""
    name = path.removeprefix("T.")
    if name == path:
        return ev.walk.fail("E0203", f"`{path}` is unknown here", cst[3], help=suggestion(path))
    handler = CALLS.get(name)
    if handler is not None:
        return handler(ev, cst)
    dtype = dtype_named(name)
    if dtype is not None:
        return _of_dtype(ev, dtype, cst)
    spec = intrinsics.INTRINSICS.get(intrinsics.ALIASES.get(name, name))
    if spec is not None:
        return _intrinsic(ev, spec, cst)
    if name in STATEMENTS:
        return ev.walk.fail("E0305", f"`{path}` is a statement, and cannot stand inside an expression or here", cst)
    return ev.walk.fail("E0203", f"there is no `{path}`", cst[3], help=suggestion(path))


def constant(ev: Operators, path: str, cst: Cst) -> Any:
    """The value of a dotted name that is not called: a dtype."""
    name = path.removeprefix("T.")
    if path != name:
        dtype = dtype_named(name)
        if dtype is not None:
            return dtype
        if name in CALLS or name in STATEMENTS or intrinsics.find(name) is not None:
            return ev.walk.fail("E0300", f"`{path}` has to be called", cst)
    return ev.walk.fail("E0203", f"there is no `{path}`", cst, help=suggestion(path))


def suggestion(path: str) -> str | None:
    """Which known function may have been meant."""
    name = path.removeprefix("T.")
    found = did_you_mean(name, [*CALLS, *intrinsics.INTRINSICS, *STATEMENTS, *_COMMON_DTYPES])
    return None if found is None else found.replace("`", "`T.", 1)


_COMMON_DTYPES = (
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
    "bfloat16", "bool", "handle",
)  # fmt: skip
_SHORT = {
    "f16": "float16", "f32": "float32", "f64": "float64", "bf16": "bfloat16", "i8": "int8", "i16": "int16", "i32": "int32",
    "i64": "int64", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "boolean": "bool",
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


# ---------------------------------------------------------------- arguments of intrinsics


def argument(ev: Operators, cst: Cst) -> Expr:
    """An argument of an intrinsic: an expression, a string, or a buffer, which stands for its pointer."""
    value = ev.value(cst)
    if isinstance(value, str):
        return tir.StringImm(value, span=ev.walk.span(cst))
    if isinstance(value, DType):
        return tir.StringImm(str(value), span=ev.walk.span(cst))
    if isinstance(value, tir.Buffer):
        return value.data
    return ev.as_expr(value, cst)


pointer_or_expr = argument


def _packed_argument(ev: Operators, cst: Cst) -> Expr:
    value = ev.value(cst)
    if isinstance(value, tir.Buffer):
        return mark(calls.pack_buffer(value), ev.walk.span(cst))  # type: ignore[no-any-return]
    if isinstance(value, str):
        return tir.StringImm(value, span=ev.walk.span(cst))
    return ev.as_expr(value, cst)


def _made(ev: Operators, cst: Cst, name: str, dtype: DType, args: tuple[Expr, ...]) -> tir.Call:
    return mark(tir.Call(dtype, tir.Op(f"tir.{name}"), args), ev.walk.span(cst))  # type: ignore[no-any-return]


def _split_dtype(ev: Operators, cst: Cst, name: str) -> tuple[DType, tuple[Cst, ...]]:
    """The dtype of a call that states it, by name or as first argument, and the other arguments."""
    args = cst[4]
    for key, _, _, value in cst[5]:
        if key == "dtype":
            return ev.dtype(value), args
    if not args:
        ev.walk.fail("E0304", f"`T.{name}` needs the dtype of its result", cst, help="as first argument, or `dtype=`")
    return ev.dtype(args[0]), args[1:]


def _intrinsic(ev: Operators, spec: Intrinsic, cst: Cst) -> Expr:
    name, args = spec.name, cst[4]
    for key, start, end, _ in cst[5]:
        if key not in ("dtype", "span"):
            ev.walk.fail("E0304", f"`T.{name}` has no argument `{key}`", ("name", start, end, key))
    dtype: DType | None = None
    if spec.result == "explicit":
        dtype, args = _split_dtype(ev, cst, name)
    elif spec.result == "last" and args:
        dtype, args = ev.dtype(args[-1]), args[:-1]
    if not spec.takes(len(args)):
        plural = "" if spec.arity.endswith(" 1") or spec.arity == "1" else "s"
        ev.walk.fail("E0304", f"`T.{name}` takes {spec.arity} argument{plural}, not {len(args)}", cst)
    made = _operands(ev, spec, args)
    if dtype is None:
        dtype = intrinsics.result_dtype(spec, made)
    assert dtype is not None
    return _made(ev, cst, name, dtype, made)


def _operands(ev: Operators, spec: Intrinsic, args: tuple[Cst, ...]) -> tuple[Expr, ...]:
    if spec.operands == "any":
        return tuple(argument(ev, a) for a in args)
    values = [ev.operand(a) for a in args]
    like = next((v.dtype for v in values if isinstance(v, Expr)), None)
    made = [
        v if isinstance(v, Expr) else ev.build(a, construct.const, v, _literal_dtype(v, like))
        for v, a in zip(values, args, strict=True)
    ]
    if spec.operands == "match" and len(made) == 2 and made[0].dtype is not made[1].dtype:
        made = list(ev.build(args[1], construct.match_types, *made))
    for value, cst in zip(made, args, strict=True):
        if spec.operands == "integer" and not (value.dtype.is_int or value.dtype.is_bool):
            ev.walk.fail("E0301", f"`T.{spec.name}` takes integers, not {value.dtype}", cst)
        if spec.operands == "float" and not value.dtype.is_float:
            help = 'convert it: `T.Cast("float32", x)`'
            ev.walk.fail("E0301", f"`T.{spec.name}` takes floats, not {value.dtype}", cst, help=help)
        if spec.operands == "match" and value.dtype is not made[0].dtype:
            ev.walk.fail("E0301", f"`T.{spec.name}` takes operands of one dtype", cst, f"{value.dtype} here")
    return tuple(made)


def _literal_dtype(value: Any, like: DType | None) -> DType | None:
    """The dtype for a Python number beside operands of dtype `like`."""
    if like is None or (isinstance(value, float) and not like.is_float) or like.is_bool:
        return None
    return like


# ---------------------------------------------------------------- constants and variables


def _of_dtype(ev: Operators, dtype: DType, cst: Cst) -> Expr:
    """`T.int32(3)` is a constant, `T.int32(x)` a conversion, `T.int32()` a new variable."""
    if dtype.is_handle:
        return new_var(ev, dtype, cst, "v")
    given = Signature(f"T.{dtype}", "expr=", "is_size_var").bind(ev.walk, cst)
    if "expr" not in given:
        return new_var(ev, dtype, cst, "v")
    at = given["expr"]
    value = ev.value(at)
    if isinstance(value, str):
        value = _float_text(ev, value, dtype, at)
    if is_number(value):
        return ev.build(cst, construct.const, value, dtype)  # type: ignore[no-any-return]
    return ev.build(cst, construct.cast, dtype, ev.as_expr(value, at))  # type: ignore[no-any-return]


def _float_text(ev: Operators, text: str, dtype: DType, cst: Cst) -> float:
    try:
        value = float.fromhex(text) if "x" in text.lower() else float(text)
    except (ValueError, OverflowError):
        ev.walk.fail("E0302", f"`{text[:40]}` is not a number", cst)
    if not dtype.is_float:
        ev.walk.fail("E0302", f"a constant of {dtype} is not written as a string", cst)
    return value


_HANDLE = Signature("T.handle", "dtype= storage_scope=", "is_size_var")


def new_var(ev: Operators, dtype: DType, cst: Cst, name: str) -> tir.Var:
    """`T.int64()` or `T.handle("float32", "shared")`: a variable of that type."""
    pointer = None
    if dtype.is_handle and cst[0] == "call":
        given = _HANDLE.bind(ev.walk, cst)
        scope = ev.string(given["storage_scope"], "a storage scope") if "storage_scope" in given else "global"
        if "dtype" in given and ev.value(given["dtype"]) is not None:
            pointer = tir.PointerType(ev.dtype(given["dtype"]), scope or "global")
    return tir.Var(name, dtype, pointer, span=ev.walk.span(cst))


def declared_dtype(ev: Operators, cst: Cst) -> DType | None:
    """The dtype of `T.int64()` and other expressions that only declare a variable; None for anything else."""
    if cst[0] != "call":
        return None
    path = ev.walk.dotted(cst[3], ev.scope)
    if path is None or not path.startswith("T."):
        return None
    name = path[2:]
    if name in ("var", "dynamic") and cst[4]:
        return ev.dtype(cst[4][-1] if name == "dynamic" and len(cst[4]) > 1 else cst[4][0])
    if name in ("ptr", "buffer_var", "Ptr"):
        return HANDLE
    dtype = dtype_named(name)
    if dtype is None or (cst[4] and not dtype.is_handle) or any(k[0] == "expr" for k in cst[5]):
        return None
    return dtype


def _var(ev: Operators, cst: Cst) -> tir.Var:
    given = Signature("T.var", "dtype name=").bind(ev.walk, cst)
    name = ev.string(given["name"], "a name") if "name" in given else "v"
    return tir.Var(name or "v", ev.dtype(given["dtype"]), span=ev.walk.span(cst))


def _dynamic(ev: Operators, cst: Cst) -> tir.Var:
    given = Signature("T.dynamic", "name dtype=").bind(ev.walk, cst)
    dtype = ev.dtype(given["dtype"]) if "dtype" in given else INT32
    return tir.Var(ev.string(given["name"], "a name"), dtype, span=ev.walk.span(cst))


def _pointer(ev: Operators, cst: Cst) -> tir.Var:
    given = Signature("T.ptr", "dtype storage_scope=").bind(ev.walk, cst)
    scope = ev.string(given["storage_scope"], "a storage scope") if "storage_scope" in given else "global"
    return tir.Var("v", HANDLE, tir.PointerType(ev.dtype(given["dtype"]), scope), span=ev.walk.span(cst))


def _int_imm(ev: Operators, cst: Cst) -> Expr:
    given = Signature("T.IntImm", "dtype value").bind(ev.walk, cst)
    return ev.build(cst, construct.const, ev.integer(given["value"], "the value"), ev.dtype(given["dtype"]))  # type: ignore[no-any-return]


def _float_imm(ev: Operators, cst: Cst) -> Expr:
    given = Signature("T.FloatImm", "dtype value").bind(ev.walk, cst)
    value = ev.value(given["value"])
    if not is_number(value):
        ev.walk.fail("E0302", "the value is a number", given["value"])
    return ev.build(cst, construct.const, float(value), ev.dtype(given["dtype"]))  # type: ignore[no-any-return]


def _string_imm(ev: Operators, cst: Cst) -> Expr:
    given = Signature("T.StringImm", "value").bind(ev.walk, cst)
    return tir.StringImm(ev.string(given["value"], "the value"), span=ev.walk.span(cst))


# ---------------------------------------------------------------- nodes as they are written


def _node(cls: type[tir.BinaryOp]) -> Handler:
    """`T.Add(a, b)`: the node itself, never folded; operands already have one dtype."""
    signature = Signature(f"T.{cls.__name__}", "a b", "span")
    compares, logical = issubclass(cls, tir.CompareOp), cls in (tir.And, tir.Or)

    def made(ev: Operators, cst: Cst) -> Expr:
        given = signature.bind(ev.walk, cst)
        a, b = _pair(ev, given["a"], given["b"])
        if a.dtype is not b.dtype:
            ev.walk.fail("E0301", f"`T.{cls.__name__}` takes operands of one dtype", cst, f"{a.dtype} and {b.dtype}")
        if logical and not a.dtype.is_bool:
            ev.walk.fail("E0301", f"`T.{cls.__name__}` takes bools, not {a.dtype}", cst)
        dtype = BOOL.with_lanes(a.dtype.lanes) if compares else a.dtype
        return cls(dtype, a, b, span=ev.walk.span(cst))

    return made


def _pair(ev: Operators, first: Cst, second: Cst) -> tuple[Expr, Expr]:
    """Two operands; a Python number takes the dtype of the other one where it fits."""
    a, b = ev.operand(first), ev.operand(second)
    if not isinstance(a, Expr):
        a = ev.build(first, construct.const, a, _literal_dtype(a, b.dtype if isinstance(b, Expr) else None))
    if not isinstance(b, Expr):
        b = ev.build(second, construct.const, b, _literal_dtype(b, a.dtype))
    return a, b


def _raw_bits(name: str, symbol: str) -> Handler:
    signature = Signature(f"T.{symbol}", "a b", "span")

    def made(ev: Operators, cst: Cst) -> Expr:
        given = signature.bind(ev.walk, cst)
        a, b = _pair(ev, given["a"], given["b"])
        return _made(ev, cst, name, a.dtype, (a, b))

    return made


def _not(ev: Operators, cst: Cst) -> Expr:
    value = ev.expr(Signature("T.Not", "a", "span").bind(ev.walk, cst)["a"])
    if not value.dtype.is_bool:
        ev.walk.fail("E0301", f"`T.Not` takes a bool, not {value.dtype}", cst)
    return tir.Not(value.dtype, value, span=ev.walk.span(cst))


def _cast_node(ev: Operators, cst: Cst) -> Expr:
    given = Signature("T.Cast", "dtype value", "span").bind(ev.walk, cst)
    dtype, value = ev.dtype(given["dtype"]), ev.expr(given["value"])
    if dtype.lanes != value.dtype.lanes:
        ev.walk.fail("E0301", f"cannot cast {value.dtype} to {dtype}: they have different lanes", cst)
    return tir.Cast(dtype, value, span=ev.walk.span(cst))


def _cast(ev: Operators, cst: Cst) -> Expr:
    given = Signature("T.cast", "value dtype", "span").bind(ev.walk, cst)
    if given["value"][0] == "str":  # both orders are in use
        given["value"], given["dtype"] = given["dtype"], given["value"]
    return ev.build(cst, construct.cast, ev.dtype(given["dtype"]), ev.expr(given["value"]))  # type: ignore[no-any-return]


def _let(ev: Operators, cst: Cst) -> Expr:
    """`T.Let(body, where={x: value})`, or in older texts `T.Let(x, value, body)`."""
    signature = Signature("T.Let", "expr where= body=")
    given = signature.bind(ev.walk, cst)
    if "body" in given:
        var, value, body = ev.value(given["expr"]), ev.expr(given["where"]), given["body"]
    else:
        where = given.get("where")
        if where is None or where[0] != "dict" or len(where[3]) != 1:
            ev.walk.fail("E0302", "`T.Let` binds one variable: `T.Let(x + 1, where={x: value})`", cst)
        var, value, body = ev.value(where[3][0][0]), ev.expr(where[3][0][1]), given["expr"]
    if not isinstance(var, tir.Var):
        ev.walk.fail("E0302", "what `T.Let` binds is a variable, such as `x = T.float32()`", cst)
    if var.dtype is not value.dtype:
        ev.walk.fail("E0301", f"`{var.name}` is {var.dtype}, its value is {value.dtype}", cst)
    made = ev.expr(body)
    return tir.Let(made.dtype, var, value, made, span=ev.walk.span(cst))


# ---------------------------------------------------------------- folding functions


def _function(name: str, names: str, fn: Callable[..., Any]) -> Handler:
    """A function of expressions, built by `fn`."""
    signature = Signature(f"T.{name}", names, "span dtype")
    parameters = signature.positional

    def made(ev: Operators, cst: Cst) -> Any:
        given = signature.bind(ev.walk, cst)
        return ev.build(cst, fn, *(ev.operand(given[p]) for p in parameters if p in given))

    return made


def _chooser(name: str, fn: Callable[..., Any]) -> Handler:
    signature = Signature(f"T.{name}", "condition true_value false_value", "cond t f span dtype")
    order = ("condition", "true_value", "false_value")

    def made(ev: Operators, cst: Cst) -> Any:
        short = dict(zip(("cond", "t", "f"), order, strict=True))
        renamed = (*cst[:5], tuple((short.get(k[0], k[0]), *k[1:]) for k in cst[5]))
        given = signature.bind(ev.walk, renamed)
        return ev.build(cst, fn, ev.bool(given["condition"]), ev.operand(given["true_value"]), ev.operand(given["false_value"]))

    return made


def _select_node(condition: Expr, a: Any, b: Any) -> Expr:
    return calls.select(condition, a, b)


def _limit(name: str, fn: Callable[[DType], Expr]) -> Handler:
    signature = Signature(f"T.{name}", "dtype", "span")

    def made(ev: Operators, cst: Cst) -> Any:
        return ev.build(cst, fn, ev.dtype(signature.bind(ev.walk, cst)["dtype"]))

    return made


def _ramp(ev: Operators, cst: Cst) -> Expr:
    given = Signature("T.Ramp", "base stride lanes", "span").bind(ev.walk, cst)
    lanes = _lane_count(ev, given["lanes"])
    return ev.build(cst, calls.ramp, ev.operand(given["base"]), ev.operand(given["stride"]), lanes)  # type: ignore[no-any-return]


def _broadcast(ev: Operators, cst: Cst) -> Expr:
    given = Signature("T.Broadcast", "value lanes", "span").bind(ev.walk, cst)
    return ev.build(cst, calls.broadcast, ev.operand(given["value"]), _lane_count(ev, given["lanes"]))  # type: ignore[no-any-return]


def _lane_count(ev: Operators, cst: Cst) -> int:
    count = ev.integer(cst, "the number of lanes")
    if not 2 <= count <= 1024:
        ev.walk.fail("E0302", "a vector has 2 to 1024 lanes", cst)
    return count


def _shuffle(ev: Operators, cst: Cst) -> Expr:
    given = Signature("T.Shuffle", "vectors indices", "span").bind(ev.walk, cst)
    vectors, indices = ev.exprs(given["vectors"], "`vectors`"), ev.exprs(given["indices"], "`indices`")
    return ev.build(cst, calls.shuffle, vectors, indices)  # type: ignore[no-any-return]


def _buffer_load(ev: Operators, cst: Cst) -> Expr:
    given = Signature("T.BufferLoad", "buffer indices", "predicate span").bind(ev.walk, cst)
    buffer = ev.value(given["buffer"])
    if not isinstance(buffer, tir.Buffer):
        ev.walk.fail("E0302", "`buffer` is a buffer", given["buffer"])
    items = given["indices"][3] if given["indices"][0] in ("tuple", "list") else (given["indices"],)
    return ev.load(buffer, ("index", *cst[1:3], given["buffer"], items))


def _likely(ev: Operators, cst: Cst) -> Expr:
    value = ev.bool(Signature("T.likely", "cond", "span dtype").bind(ev.walk, cst)["cond"])
    return value if isinstance(value, tir.IntImm) else _made(ev, cst, "likely", value.dtype, (value,))


# ---------------------------------------------------------------- calls out of the language


def _extern(name: str) -> Handler:
    """`T.call_extern("int32", "f", x)` or `T.call_extern("f", x, dtype="int32")`."""

    def made(ev: Operators, cst: Cst) -> Expr:
        dtype, args = _split_dtype(ev, cst, name)
        if not args:
            ev.walk.fail("E0304", f"`T.{name}` needs the name of a function", cst)
        function = argument(ev, args[0])
        if not isinstance(function, tir.StringImm):
            ev.walk.fail("E0302", "the name of the function is a string", args[0], help='`T.call_extern("int32", "f", x)`')
        return _made(ev, cst, name, dtype, (function, *(argument(ev, a) for a in args[1:])))

    return made


def _llvm(name: str) -> Handler:
    def made(ev: Operators, cst: Cst) -> Expr:
        dtype, args = _split_dtype(ev, cst, name)
        if not args:
            ev.walk.fail("E0304", f"`T.{name}` needs the name of an intrinsic", cst)
        function = ev.value(args[0])
        if isinstance(function, str):
            first: Expr = tir.StringImm(function, span=ev.walk.span(args[0]))
        elif isinstance(function, int):
            first = ev.build(args[0], construct.const, function, "uint32")
        else:
            first = ev.as_expr(function, args[0])
        return _made(ev, cst, name, dtype, (first, *(argument(ev, a) for a in args[1:])))

    return made


def _packed(name: str) -> Handler:
    def made(ev: Operators, cst: Cst) -> Expr:
        if not cst[4]:
            ev.walk.fail("E0304", f"`T.{name}` needs the name of a function", cst)
        args = tuple(_packed_argument(ev, a) for a in cst[4])
        if not isinstance(args[0], tir.StringImm):
            ev.walk.fail("E0302", "the name of the function is a string", cst[4][0])
        return _made(ev, cst, name, INT32, args)

    return made


def _intrin(ev: Operators, cst: Cst) -> Expr:
    """`T.call_intrin("float32", "tir.exp", x)`."""
    dtype, args = _split_dtype(ev, cst, "call_intrin")
    if not args:
        ev.walk.fail("E0304", "`T.call_intrin` needs the name of an intrinsic", cst)
    written = ev.string(args[0], "the name of the intrinsic")
    found = intrinsics.find(written)
    bare = written.removeprefix("tir.").removeprefix("tirx.")
    if found is None and "." not in bare:
        hint = did_you_mean(bare, intrinsics.INTRINSICS)
        ev.walk.fail("E0203", f"there is no intrinsic `{written}`", args[0], help=hint)
    name = found.name if found is not None else bare
    return _made(ev, cst, name, dtype, tuple(argument(ev, a) for a in args[1:]))


# ---------------------------------------------------------------- memory


def _address_of(ev: Operators, cst: Cst) -> Expr:
    at = Signature("T.address_of", "buffer_load", "span dtype").bind(ev.walk, cst)["buffer_load"]
    value = ev.value(at)
    if isinstance(value, Scalar):
        value = value.buffer
    if isinstance(value, tir.Buffer):
        value = ev.build(at, construct.load, value, *(0 for _ in value.shape))
    if not isinstance(value, tir.BufferLoad):
        ev.walk.fail("E0302", "only an element of a buffer has an address", at)
    return ev.build(cst, calls.address_of, value)  # type: ignore[no-any-return]


def _access_ptr(ev: Operators, cst: Cst) -> Expr:
    given = Signature("T.tvm_access_ptr", "ptype data offset extent rw_mask", "span dtype").bind(ev.walk, cst)
    kind = ev.value(given["ptype"])
    if isinstance(kind, (str, DType)):
        kind = calls.make("type_annotation", ev.dtype(given["ptype"]))
    rest = tuple(argument(ev, given[n]) for n in ("data", "offset", "extent", "rw_mask"))
    return _made(ev, cst, "tvm_access_ptr", HANDLE, (ev.as_expr(kind, given["ptype"]), *rest))


def _storage_sync(ev: Operators, cst: Cst) -> Expr:
    given = Signature("T.tvm_storage_sync", "storage_scope is_load= num_blocks=", "dtype").bind(ev.walk, cst)
    scope = ev.string(given["storage_scope"], "a storage scope")
    load = ev.expr(given["is_load"]) if "is_load" in given else construct.const(False)
    blocks = ev.expr(given["num_blocks"]) if "num_blocks" in given else construct.const(-1)
    return _made(ev, cst, "tvm_storage_sync", VOID, (tir.StringImm(scope), load, blocks))


# ---------------------------------------------------------------- what is no expression


def _comm_reducer(ev: Operators, cst: Cst) -> tir.CommReducer:
    given = Signature("T.comm_reducer", "combiner identity").bind(ev.walk, cst)
    combiner, identity = given["combiner"], ev.exprs(given["identity"], "`identity`")
    if combiner[0] != "lambda":
        ev.walk.fail("E0302", "the combiner is a lambda: `lambda x, y: x + y`", combiner)
    names, count = combiner[3], len(identity)
    if len(names) != 2 * count:
        ev.walk.fail("E0302", f"the lambda takes {2 * count} names, two for each identity element", combiner)
    span = ev.walk.span(combiner)
    made = [tir.Var(n, identity[i % count].dtype, span=span) for i, n in enumerate(names)]
    with ev.scope.frame(" in a lambda"):
        for var in made:
            ev.scope.define(var.name, var, span)
        result = ev.exprs(combiner[4], "the result")
    if len(result) != count:
        ev.walk.fail("E0302", f"the lambda gives {len(result)} values, and there are {count} identity elements", combiner)
    return tir.CommReducer(tuple(made[:count]), tuple(made[count:]), result, identity, span=ev.walk.span(cst))


_KINDS = {
    "ThreadIndex": tir.IterKind.THREAD, "DataPar": tir.IterKind.SPATIAL, "CommReduce": tir.IterKind.REDUCE,
    "Ordered": tir.IterKind.SCAN, "Opaque": tir.IterKind.OPAQUE, **{k.value: k for k in tir.IterKind},
}  # fmt: skip


def _iter_var(ev: Operators, cst: Cst) -> tir.IterVar:
    given = Signature("T.iter_var", "var dom iter_type thread_tag").bind(ev.walk, cst)
    kind = _KINDS.get(ev.string(given["iter_type"], "the kind of axis"))
    if kind is None:
        ev.walk.fail("E0302", "unknown kind of axis", given["iter_type"], help=f"one of {', '.join(_KINDS)}")
    value = ev.value(given["var"])
    dom = as_range(ev, given["dom"])
    var = tir.Var(value, dom.extent.dtype, span=ev.walk.span(cst)) if isinstance(value, str) else value
    if not isinstance(var, tir.Var):
        ev.walk.fail("E0302", "`var` is a variable or its name", given["var"])
    return tir.IterVar(var, dom, kind, ev.string(given["thread_tag"], "the thread tag"), span=ev.walk.span(cst))


def as_range(ev: Operators, cst: Cst) -> tir.Range:
    """A domain: an extent, `(begin, end)`, or `T.Range(begin, end)`."""
    span = ev.walk.span(cst)
    if cst[0] in ("tuple", "list"):
        if len(cst[3]) != 2:
            ev.walk.fail("E0302", "a domain is an extent or a pair (begin, end)", cst)
        return _range_of(ev, cst[3][0], cst[3][1], cst)
    value = ev.value(cst)
    if isinstance(value, tir.Range):
        return value
    extent = ev.as_expr(value, cst)
    if not extent.dtype.is_int:
        ev.walk.fail("E0301", f"an extent is an integer, not {extent.dtype}", cst)
    return tir.Range(tir.IntImm(extent.dtype, 0, span=span), extent, span=span)


def _range_of(ev: Operators, begin: Cst, end: Cst, cst: Cst) -> tir.Range:
    low, high = _pair(ev, begin, end)
    low, high = ev.build(cst, construct.match_types, low, high)
    if not low.dtype.is_int:
        ev.walk.fail("E0301", f"a range is over integers, not {low.dtype}", cst)
    extent = ev.build(cst, construct.sub, high, low)
    known = ev.simplify(extent)
    return tir.Range(low, known if isinstance(known, tir.IntImm) else extent, span=ev.walk.span(cst))


def _range(ev: Operators, cst: Cst) -> tir.Range:
    given = Signature("T.Range", "begin end").bind(ev.walk, cst)
    return _range_of(ev, given["begin"], given["end"], cst)


def _target(ev: Operators, cst: Cst) -> Expr:
    """A target, kept as the text of it."""
    given = Signature("T.target", "target_config host=").bind(ev.walk, cst)
    value = ev.value(given["target_config"])
    if isinstance(value, dict):
        if "host" in given:
            value = {**value, "host": ev.value(given["host"])}
        try:
            value = json.dumps(value)
        except TypeError:
            ev.walk.fail("E0302", "a target has strings, numbers and lists", cst)
    if not isinstance(value, str):
        ev.walk.fail("E0302", "a target is a string or a dict", cst)
    return _made(ev, cst, "target", HANDLE, (tir.StringImm(value, span=ev.walk.span(cst)),))


def _llvm_id(ev: Operators, cst: Cst) -> Expr:
    return _string_imm(ev, cst)


# ---------------------------------------------------------------- Python's own functions


def _python_number(fn: Callable[[Any], Any]) -> Handler:
    def made(ev: Operators, cst: Cst) -> Any:
        if len(cst[4]) != 1 or cst[5]:
            ev.walk.fail("E0304", "one argument is needed", cst)
        value = ev.value(cst[4][0])
        if not isinstance(value, (bool, int, float, str)):
            ev.walk.fail("E0300", "only a number can be converted here", cst, help="convert expressions by `T.Cast`")
        try:
            return fn(value)
        except (ValueError, OverflowError) as bad:
            return ev.walk.fail("E0302", str(bad), cst)

    return made


def _extreme(name: str, pick: Callable[..., Any], fn: Callable[..., Expr]) -> Handler:
    def made(ev: Operators, cst: Cst) -> Any:
        if len(cst[4]) < 2 or cst[5]:
            ev.walk.fail("E0304", f"`{name}` takes two arguments", cst)
        values = [ev.operand(a) for a in cst[4]]
        if all(is_number(v) for v in values):
            return pick(values)
        return functools.reduce(lambda a, b: ev.build(cst, fn, a, b), values)

    return made


def _length(ev: Operators, cst: Cst) -> Any:
    value = ev.value(cst[4][0]) if len(cst[4]) == 1 else None
    if not isinstance(value, (tuple, list, dict, str)):
        ev.walk.fail("E0300", f"{describe(value)} has no length", cst)
    return len(value)


BUILTINS: dict[str, Handler] = {
    "min": _extreme("min", min, construct.minimum), "max": _extreme("max", max, construct.maximum),
    "abs": _function("abs", "x", calls.absolute), "float": _python_number(float), "int": _python_number(int),
    "bool": _python_number(bool), "len": _length,
}  # fmt: skip


CALLS: dict[str, Handler] = {
    **{c.__name__: _node(c) for c in (
        tir.Add, tir.Sub, tir.Mul, tir.Div, tir.Mod, tir.FloorDiv, tir.FloorMod, tir.Min, tir.Max, tir.EQ, tir.NE,
        tir.LT, tir.LE, tir.GT, tir.GE, tir.And, tir.Or,
    )},
    "LShift": _raw_bits("shift_left", "LShift"), "RShift": _raw_bits("shift_right", "RShift"),
    "BitwiseAnd": _raw_bits("bitwise_and", "BitwiseAnd"), "BitwiseOr": _raw_bits("bitwise_or", "BitwiseOr"),
    "BitwiseXor": _raw_bits("bitwise_xor", "BitwiseXor"), "BitwiseNot": _function("BitwiseNot", "a", calls.bitwise_not),
    "Not": _not, "Cast": _cast_node, "cast": _cast, "Let": _let, "let": _let,
    "IntImm": _int_imm, "FloatImm": _float_imm, "StringImm": _string_imm, "BufferLoad": _buffer_load,
    "Select": _chooser("Select", _select_node), "if_then_else": _chooser("if_then_else", calls.if_then_else),
    "Ramp": _ramp, "ramp": _ramp, "Broadcast": _broadcast, "broadcast": _broadcast, "Shuffle": _shuffle,
    "min": _function("min", "a b", construct.minimum), "max": _function("max", "a b", construct.maximum),
    "truncdiv": _function("truncdiv", "a b", construct.div), "truncmod": _function("truncmod", "a b", construct.truncmod),
    "floordiv": _function("floordiv", "a b", construct.floordiv), "div": _function("div", "a b", construct.div),
    "floormod": _function("floormod", "a b", construct.floormod), "indexdiv": _function("indexdiv", "a b", construct.floordiv),
    "indexmod": _function("indexmod", "a b", construct.floormod), "ceildiv": _function("ceildiv", "lhs rhs", calls.ceildiv),
    "bitwise_and": _function("bitwise_and", "x y", calls.bitwise_and), "bitwise_or": _function("bitwise_or", "x y", calls.bitwise_or),
    "bitwise_xor": _function("bitwise_xor", "x y", calls.bitwise_xor), "bitwise_not": _function("bitwise_not", "x", calls.bitwise_not),
    "shift_left": _function("shift_left", "x y", calls.shift_left), "shift_right": _function("shift_right", "x y", calls.shift_right),
    "abs": _function("abs", "x", calls.absolute), "fabs": _function("fabs", "x", calls.absolute),
    **{n: _function(n, "x", functools.partial(calls.rounding, n)) for n in ("floor", "ceil", "trunc", "round", "nearbyint")},
    "pow": _function("pow", "x y", calls.power), "power": _function("power", "x y", calls.power),
    "isnan": _function("isnan", "x", calls.isnan), "isinf": _function("isinf", "x", calls.isinf),
    "isfinite": _function("isfinite", "x", calls.isfinite), "likely": _likely,
    "min_value": _limit("min_value", construct.min_value), "max_value": _limit("max_value", construct.max_value),
    "infinity": _limit("infinity", calls.infinity),
    "call_extern": _extern("call_extern"), "call_pure_extern": _extern("call_pure_extern"), "call_intrin": _intrin,
    "call_llvm_intrin": _llvm("call_llvm_intrin"), "call_llvm_pure_intrin": _llvm("call_llvm_pure_intrin"),
    **{alias: _packed(intrinsics.ALIASES.get(alias, alias)) for alias in (
        "call_packed", "call_cpacked", "call_packed_lowered", "call_cpacked_lowered", "tvm_call_packed", "tvm_call_cpacked",
        "tvm_call_packed_lowered", "tvm_call_cpacked_lowered",
    )},
    "llvm_lookup_intrinsic_id": _llvm_id, "address_of": _address_of, "tvm_access_ptr": _access_ptr,
    "tvm_storage_sync": _storage_sync, "comm_reducer": _comm_reducer, "iter_var": _iter_var, "Range": _range,
    "target": _target, "var": _var, "dynamic": _dynamic, "ptr": _pointer, "Ptr": _pointer, "buffer_var": _pointer,
}  # fmt: skip
