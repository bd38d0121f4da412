"""TensorIR's intrinsics by name: mathematics and bits. `TABLE` maps a name (without `tir.`) to its emitter."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.intrinsics import name_of
from mlcc.targets.llvm.codegen import arith, casts, small_float, vmath
from mlcc.targets.llvm.codegen import dot_products as dots
from mlcc.targets.llvm.codegen.ir_text import NULL, Value, floating, integer, vector
from mlcc.targets.llvm.codegen.refuse import unsupported
from mlcc.targets.llvm.codegen.types import is_small_float, memory_type, register_type, zero

if TYPE_CHECKING:
    from mlcc.targets.llvm.codegen.emitter import Emitter

Emit = Callable[["Emitter", tir.Call], Value]


# ---------------------------------------------------------------- floats


def _floats(e: Emitter, node: tir.Call, count: int) -> list[Value]:
    """The arguments, which must be `count` floats of one dtype."""
    args = node.args
    if len(args) != count or any(not a.dtype.is_float or a.dtype is not args[0].dtype for a in args):
        given = ", ".join(str(a.dtype) for a in args)
        raise unsupported(
            f"`T.{name_of(node)}` takes {count} float argument{'s' * (count > 1)}, not ({given})", node.span
        )
    return [e.expr(a) for a in args]


def _llvm(base: str, count: int = 1) -> Emit:
    """An LLVM intrinsic on floats; for narrow types computed in float32 and rounded."""

    def emit(e: Emitter, node: tir.Call) -> Value:
        return small_float.rounded(e, e.intrinsic(f"llvm.{base}", *_floats(e, node, count)), node.dtype)

    return emit


def _inline(base: str, count: int = 1) -> Emit:
    """A function of `vmath`."""

    def emit(e: Emitter, node: tir.Call) -> Value:
        args = _floats(e, node, count)
        return small_float.rounded(e, vmath.call(e, base, args, node.dtype.lanes), node.dtype)

    return emit


def _fabs_or_abs(e: Emitter, node: tir.Call) -> Value:
    (arg,) = _arguments(e, node, 1)
    dtype = node.dtype
    if dtype.is_float:
        return e.intrinsic("llvm.fabs", arg)
    if dtype.kind != "int":
        return arg
    name = e.ctx.module.declare(f"llvm.abs.{casts.mangled(arg.type)}", arg.type, [arg.type, "i1"])
    return e.fn.call(arg.type, name, [arg, Value("i1", "false")])


def _fma(e: Emitter, node: tir.Call) -> Value:
    if node.dtype.is_int:
        a, b, c = _arguments(e, node, 3)
        return e.fn.binary("add", e.fn.binary("mul", a, b), c)
    return small_float.rounded(e, vmath.fma(e, _floats(e, node, 3), node.dtype.lanes), node.dtype)


def _ldexp(e: Emitter, node: tir.Call) -> Value:
    """x * 2**n; the exponent is an integer of any width, brought to int32 by saturation."""
    x, n = _arguments(e, node, 2)
    by = node.args[1].dtype
    if not node.dtype.is_float or not by.is_int:
        raise unsupported(f"`T.ldexp` takes a float and an integer, not ({node.args[0].dtype}, {by})", node.span)
    wide = casts.cast(e, n, by, DType.of("int64").with_lanes(by.lanes))
    limit = [e.fn.splat(integer("i64", v), by.lanes) for v in (-100000, 100000)]
    wide = e.fn.select(e.fn.icmp("slt", wide, limit[0]), limit[0], wide)
    wide = e.fn.select(e.fn.icmp("sgt", wide, limit[1]), limit[1], wide)
    if node.dtype.bits < 64:
        wide = e.fn.convert("trunc", wide, vector("i32", by.lanes))
    return small_float.rounded(e, vmath.ldexp(e, x, wide, by.lanes), node.dtype)


def _nextafter(e: Emitter, node: tir.Call) -> Value:
    if is_small_float(node.dtype):
        raise unsupported(f"`T.nextafter` of {node.dtype} is not supported", node.span)
    return _inline("nextafter", 2)(e, node)


def _classify(test: str) -> Emit:
    """isnan, isinf, isfinite: false, false and true for integers."""

    def emit(e: Emitter, node: tir.Call) -> Value:
        (x,) = _arguments(e, node, 1)
        dtype = node.args[0].dtype
        if not dtype.is_float:
            return arith.constant(DType.of("bool").with_lanes(dtype.lanes), int(test == "isfinite"))
        if test == "isnan":
            return e.fn.fcmp("uno", x, x)
        infinity = e.fn.splat(floating(register_type(dtype.element), float("inf")), dtype.lanes)
        return e.fn.fcmp("oeq" if test == "isinf" else "one", e.intrinsic("llvm.fabs", x), infinity)

    return emit


def _infinity(e: Emitter, node: tir.Call) -> Value:
    if not node.dtype.is_float or str(node.dtype.element) == "float8_e4m3fn":
        raise unsupported(f"{node.dtype} has no infinity", node.span)
    return e.fn.splat(floating(register_type(node.dtype.element), float("inf")), node.dtype.lanes)


# ---------------------------------------------------------------- integers and bits


def _arguments(e: Emitter, node: tir.Call, count: int) -> list[Value]:
    if len(node.args) != count:
        raise unsupported(f"`T.{name_of(node)}` takes {count} arguments, not {len(node.args)}", node.span)
    return [e.expr(a) for a in node.args]


def _bitwise(op: str) -> Emit:
    def emit(e: Emitter, node: tir.Call) -> Value:
        lhs, rhs = _arguments(e, node, 2)
        _need_bits(node)
        return e.fn.binary(op, lhs, rhs)

    return emit


def _need_bits(node: tir.Call) -> None:
    if not (node.dtype.is_int or node.dtype.is_bool) or any(a.dtype is not node.args[0].dtype for a in node.args):
        given = ", ".join(str(a.dtype) for a in node.args)
        raise unsupported(f"`T.{name_of(node)}` takes integers of one dtype, not ({given})", node.span)


def _bitwise_not(e: Emitter, node: tir.Call) -> Value:
    (x,) = _arguments(e, node, 1)
    _need_bits(node)
    return e.fn.binary("xor", x, arith.constant(node.dtype, 1 if node.dtype.is_bool else -1))


def _shift(left: bool) -> Emit:
    """Shifts whose count is outside 0..bits-1 shift everything out."""

    def emit(e: Emitter, node: tir.Call) -> Value:
        fn, dtype = e.fn, node.dtype
        value, count = _arguments(e, node, 2)
        _need_bits(node)
        if dtype.is_bool:
            raise unsupported(f"`T.{name_of(node)}` takes integers, not bool", node.span)
        op = "shl" if left else "lshr" if dtype.is_uint else "ashr"
        known = tir.const_int(node.args[1])
        if known is not None and 0 <= known < dtype.bits:
            return fn.binary(op, value, count)
        inside = fn.icmp("ult", count, arith.constant(dtype, dtype.bits))
        if op == "ashr":
            return fn.binary(op, value, fn.select(inside, count, arith.constant(dtype, dtype.bits - 1)))
        return fn.select(inside, fn.binary(op, value, count), arith.constant(dtype, 0))

    return emit


def _count_bits(op: str) -> Emit:
    def emit(e: Emitter, node: tir.Call) -> Value:
        (x,) = _arguments(e, node, 1)
        source = node.args[0].dtype
        if not source.is_int or source.lanes != node.dtype.lanes:
            raise unsupported(f"`T.{name_of(node)}` of {source} is not {node.dtype}", node.span)
        extra = [Value("i1", "false")] if op == "ctlz" else []
        name = e.ctx.module.declare(f"llvm.{op}.{casts.mangled(x.type)}", x.type, [x.type, *(v.type for v in extra)])
        unsigned = DType.of(f"uint{source.bits}").with_lanes(source.lanes)
        return casts.cast(e, e.fn.call(x.type, name, [x, *extra]), unsigned, node.dtype)

    return emit


def _reinterpret(e: Emitter, node: tir.Call) -> Value:
    """The same bits as another dtype of the same size."""
    (x,) = _arguments(e, node, 1)
    source, target = node.args[0].dtype, node.dtype
    if source.is_handle or target.is_handle:
        return casts.cast(e, x, source, target)
    if source.bytes * source.lanes != target.bytes * target.lanes:
        raise unsupported(f"`T.reinterpret` of {source} as {target}: the sizes differ", node.span)
    return casts.from_memory(e, e.fn.convert("bitcast", casts.to_memory(e, x, source), memory_type(target)), target)


def _q_multiply_shift(e: Emitter, node: tir.Call) -> Value:
    """round(x * y * 2**(s - q)) in 64 bits, halves up; x is shifted left by a positive s first."""
    fn = e.fn
    x, y, q, s = _extended(e, node, 4)
    zero, one = (fn.splat(integer("i64", v), node.dtype.lanes) for v in (0, 1))
    upward = fn.icmp("sgt", s, zero)
    left = fn.select(upward, s, zero)
    right = fn.binary("add", q, fn.select(upward, zero, fn.binary("sub", zero, s)))
    product = fn.binary("mul", fn.binary("shl", x, left), y)
    half = fn.binary("shl", one, fn.binary("sub", right, one))
    moved = fn.binary("ashr", fn.binary("add", product, half), right)
    return fn.convert("trunc", moved, register_type(node.dtype))


def _extended(e: Emitter, node: tir.Call, count: int) -> list[Value]:
    """Integer arguments as i64, with the lanes of the result."""
    fn, lanes = e.fn, node.dtype.lanes
    if any(not a.dtype.is_int or a.dtype.lanes not in (1, lanes) for a in node.args):
        given = ", ".join(str(a.dtype) for a in node.args)
        raise unsupported(f"`T.{name_of(node)}` takes integers, not ({given})", node.span)
    values: list[Value] = []
    for value, arg in zip(_arguments(e, node, count), node.args, strict=True):
        wide = fn.convert("zext" if arg.dtype.is_uint else "sext", value, vector("i64", arg.dtype.lanes))
        values.append(fn.splat(wide, lanes) if arg.dtype.lanes == 1 else wide)
    return values


def _lane_mask(e: Emitter, node: tir.Call) -> Value:
    """Lane i is whether base + i < limit, without overflow."""
    fn, lanes = e.fn, node.dtype.lanes
    base, limit = _extended(e, node, 2)
    steps = arith.lane_numbers(DType.of("int64").with_lanes(lanes))
    return fn.icmp("slt", fn.binary("add nsw", base, steps), limit)


# ---------------------------------------------------------------- the rest


def _if_then_else(e: Emitter, node: tir.Call) -> Value:
    if len(node.args) != 3:
        raise unsupported(f"`T.if_then_else` takes 3 arguments, not {len(node.args)}", node.span)
    condition, true, false = (a.dtype for a in node.args)
    if not condition.is_bool or true is not false or condition.lanes not in (1, true.lanes):
        raise unsupported(f"`T.if_then_else` of ({condition}, {true}, {false})", node.span)
    return arith.choose(e, *node.args)


def _first_argument(e: Emitter, node: tir.Call) -> Value:
    return e.expr(node.args[0])


def _nothing(e: Emitter, node: tir.Call) -> Value:
    """A hint without effect; its arguments are not evaluated."""
    return zero(node.dtype)


def _true(e: Emitter, node: tir.Call) -> Value:
    return arith.constant(node.dtype, 1)


def _isnullptr(e: Emitter, node: tir.Call) -> Value:
    (x,) = _arguments(e, node, 1)
    if not node.args[0].dtype.is_handle:
        raise unsupported(f"`T.isnullptr` takes a handle, not {node.args[0].dtype}", node.span)
    return e.fn.icmp("eq", e.fn.generic(x), NULL)


def _halves(which: str) -> Emit:
    def emit(e: Emitter, node: tir.Call) -> Value:
        (value,) = _arguments(e, node, 1)
        count, whole = node.dtype.lanes, node.args[0].dtype
        if whole.element is not node.dtype.element or whole.lanes != 2 * count or count < 2:
            raise unsupported(f"`T.{name_of(node)}` of {whole} is not {node.dtype}", node.span)
        first = count if which == "high" else 0
        mask = ", ".join(f"i32 {first + i}" for i in range(count))
        text = f"shufflevector {value}, {value.type} poison, <{count} x i32> <{mask}>"
        return e.fn.op(register_type(node.dtype), text)

    return emit


def _combine(e: Emitter, node: tir.Call) -> Value:
    low, high = _arguments(e, node, 2)
    half = node.args[0].dtype
    same = half is node.args[1].dtype and half.element is node.dtype.element
    if not same or half.lanes < 2 or node.dtype.lanes != 2 * half.lanes:
        given = ", ".join(str(a.dtype) for a in node.args)
        raise unsupported(f"`T.vectorcombine` of ({given}) is not {node.dtype}", node.span)
    mask = ", ".join(f"i32 {i}" for i in range(node.dtype.lanes))
    return e.fn.op(register_type(node.dtype), f"shufflevector {low}, {high}, <{node.dtype.lanes} x i32> <{mask}>")


_HINTS = ("prefetch", "tvm_kernel_replace_point", "start_profile_intrinsic", "end_profile_intrinsic", "undef")

TABLE: dict[str, Emit] = {
    **{name: _inline(name) for name in (*vmath.UNARY, *vmath.ROUNDING)},
    **{name: _inline(name, 2) for name in vmath.BINARY},
    **dict.fromkeys(_HINTS, _nothing),
    **dict.fromkeys(
        ("assume_number", "allow_reciprocal", "likely", "tvm_thread_invariant", "ignore_loop_partition"),
        _first_argument,
    ),
    **{name: _classify(name) for name in ("isnan", "isinf", "isfinite")},
    **{f"bitwise_{op}": _bitwise(op) for op in ("and", "or", "xor")},
    "round": _inline("nearbyint"), "fabs": _llvm("fabs"), "copysign": _llvm("copysign", 2), "nextafter": _nextafter,
    "fma": _fma, "abs": _fabs_or_abs, "ldexp": _ldexp, "infinity": _infinity,
    "bitwise_not": _bitwise_not, "shift_left": _shift(True), "shift_right": _shift(False),
    "popcount": _count_bits("ctpop"), "clz": _count_bits("ctlz"), "reinterpret": _reinterpret,
    "q_multiply_shift": _q_multiply_shift, "dp4a": dots.dot, "dp2a": dots.dot,
    "get_active_lane_mask": _lane_mask, "assume": _true,
    "if_then_else": _if_then_else, "isnullptr": _isnullptr,
    "vectorlow": _halves("low"), "vectorhigh": _halves("high"), "vectorcombine": _combine,
}  # fmt: skip
