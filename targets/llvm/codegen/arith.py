"""Emit operators: arithmetic, comparisons, logic, selection and vectors. `docs/semantics.md` defines their results."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mlcc.ir import tir
from mlcc.ir.construct import round_float
from mlcc.ir.dtypes import DType
from mlcc.targets.llvm.codegen import masks, small_float, vmath
from mlcc.targets.llvm.codegen.ir_text import FunctionText, Value, floating, integer, vector
from mlcc.targets.llvm.codegen.loop_invariants import is_loop_invariant
from mlcc.targets.llvm.codegen.refuse import unsupported
from mlcc.targets.llvm.codegen.types import is_small_float, register_type

if TYPE_CHECKING:
    from mlcc.targets.llvm.codegen.emitter import Emitter


# ---------------------------------------------------------------- leaves


def variable(e: Emitter, node: tir.Var) -> Value:
    value = e.values.get(node)
    if value is None:
        raise unsupported(f"`{node.name}` has no value here", node.span)
    return value


def int_imm(e: Emitter, node: tir.IntImm) -> Value:
    if node.dtype.is_handle:
        return Value("ptr", "null") if node.value == 0 else e.fn.convert("inttoptr", integer("i64", node.value), "ptr")
    return integer(register_type(node.dtype), node.value)


def float_imm(e: Emitter, node: tir.FloatImm) -> Value:
    return floating(register_type(node.dtype), round_float(node.value, node.dtype))


def string_imm(e: Emitter, node: tir.StringImm) -> Value:
    return e.ctx.module.string(node.value.encode())


def constant(dtype: DType, value: int) -> Value:
    """Return a small integer as a constant of any arithmetic register type, including vectors."""
    scalar = register_type(dtype.element)
    one = floating(scalar, float(value)) if dtype.is_float else integer(scalar, value)
    return one if dtype.lanes == 1 else Value(vector(scalar, dtype.lanes), f"splat ({one})")


# ---------------------------------------------------------------- arithmetic


def _arith(e: Emitter, node: tir.BinaryOp, int_op: str, float_op: str) -> Value:
    dtype = node.dtype
    lhs, rhs = e.expr(node.lhs), e.expr(node.rhs)
    if dtype.is_int:
        return e.fn.binary(int_op, lhs, rhs)
    if dtype.is_float:
        if is_small_float(dtype):
            return small_float.rounded(e, e.fn.binary(float_op, lhs, rhs), dtype)
        return e.fn.binary(f"{float_op}{e.fast}", lhs, rhs)
    if dtype.is_bool:  # arithmetic on 0 and 1, converted back to bool
        op = {"add": "or", "sub": "xor", "mul": "and"}[int_op]
        return e.fn.binary(op, lhs, rhs)
    raise unsupported(f"there is no arithmetic on {dtype}", node.span)


def add(e: Emitter, node: tir.Add) -> Value:
    if node.lhs.dtype.is_handle:
        return e.fn.gep("i8", e.expr(node.lhs), e.index(node.rhs))
    return _arith(e, node, "add", "fadd")


def sub(e: Emitter, node: tir.Sub) -> Value:
    return _arith(e, node, "sub", "fsub")


def mul(e: Emitter, node: tir.Mul) -> Value:
    return _arith(e, node, "mul", "fmul")


def _constant_value(node: tir.Expr) -> int | None:
    if isinstance(node, tir.Broadcast):
        node = node.value
    return node.value if isinstance(node, tir.IntImm) else None


def int_divide(
    fn: FunctionText, lhs: Value, rhs: Value, dtype: DType, constant_divisor: int | None
) -> tuple[Value, Value]:
    """Truncating quotient and remainder, with x / 0 = x % 0 = 0 and MIN / -1 = MIN; `constant_divisor` is a constant
    divisor."""
    sign = "u" if dtype.is_uint else "s"
    if constant_divisor == 0:
        return constant(dtype, 0), constant(dtype, 0)
    if constant_divisor == -1 and sign == "s":
        return fn.binary("sub", constant(dtype, 0), lhs), constant(dtype, 0)
    if constant_divisor is not None:
        return fn.binary(f"{sign}div", lhs, rhs), fn.binary(f"{sign}rem", lhs, rhs)
    # Divisors 0 and -1 are replaced by 1: then the remainder is 0, and the quotient is lhs * rhs (0, or -lhs).
    if sign == "u":
        special = fn.icmp("eq", rhs, constant(dtype, 0))
    else:
        special = fn.icmp("ult", fn.binary("add", rhs, constant(dtype, 1)), constant(dtype, 2))
    safe = fn.select(special, constant(dtype, 1), rhs)
    quotient = fn.binary(f"{sign}div", lhs, safe)
    remainder = fn.binary(f"{sign}rem", lhs, safe)
    return fn.select(special, fn.binary("mul", lhs, rhs), quotient), remainder


def _bool_divide(e: Emitter, node: tir.BinaryOp, quotient: bool) -> Value:
    lhs, rhs = e.expr(node.lhs), e.expr(node.rhs)  # x / 0 = 0, x / 1 = x; every remainder is 0
    return e.fn.binary("and", lhs, rhs) if quotient else constant(node.dtype, 0)


def div(e: Emitter, node: tir.Div) -> Value:
    dtype = node.dtype
    if dtype.is_bool:
        return _bool_divide(e, node, True)
    lhs, rhs = e.expr(node.lhs), e.expr(node.rhs)
    if dtype.is_int:
        return int_divide(e.fn, lhs, rhs, dtype, _constant_value(node.rhs))[0]
    if isinstance(node.rhs, tir.Broadcast) and dtype.bits >= 32 and not e.ctx.options.fast_math:
        min_quotients = vmath.min_profitable_quotients(e, lhs, dtype.lanes)
        if min_quotients is not None and is_loop_invariant(e, node.rhs.value, min_quotients):
            return vmath.quotient(e, lhs, e.expr(node.rhs.value), dtype.lanes)
    op = f"fdiv{e.fast}" if e.ctx.options.fast_math and not is_small_float(dtype) else "fdiv"
    return small_float.rounded(e, e.fn.binary(op, lhs, rhs), dtype)


def mod(e: Emitter, node: tir.Mod) -> Value:
    dtype = node.dtype
    if dtype.is_bool:
        return _bool_divide(e, node, False)
    lhs, rhs = e.expr(node.lhs), e.expr(node.rhs)
    if dtype.is_int:
        return int_divide(e.fn, lhs, rhs, dtype, _constant_value(node.rhs))[1]
    return small_float.rounded(e, fmod(e, lhs, rhs, dtype.lanes), dtype)


def fmod(e: Emitter, lhs: Value, rhs: Value, lanes: int) -> Value:
    """Emit C's fmod."""
    return vmath.call(e, "fmod", [lhs, rhs], lanes)


def _floor_division_parts(e: Emitter, node: tir.BinaryOp, lhs: Value, rhs: Value) -> tuple[Value, Value, Value | None]:
    """Return the truncating quotient and remainder, and a condition to adjust them for floor division (None: never)."""
    fn, dtype = e.fn, node.dtype
    known = _constant_value(node.rhs)
    quotient, remainder = int_divide(fn, lhs, rhs, dtype, known)
    if dtype.is_uint or known in (0, -1):
        return quotient, remainder, None
    zero = constant(dtype, 0)
    if known is not None and known > 0:
        return quotient, remainder, fn.icmp("slt", remainder, zero)
    signs_differ = fn.icmp("slt", fn.binary("xor", remainder, rhs), zero)
    return quotient, remainder, fn.binary("and", signs_differ, fn.icmp("ne", remainder, zero))


def floordiv(e: Emitter, node: tir.FloorDiv) -> Value:
    fn, dtype = e.fn, node.dtype
    if dtype.is_bool:
        return _bool_divide(e, node, True)
    lhs, rhs = e.expr(node.lhs), e.expr(node.rhs)
    if dtype.is_float:
        quotient = fn.binary("fdiv", lhs, rhs)
        return small_float.rounded(e, vmath.call(e, "floor", [quotient], dtype.lanes), dtype)
    known = _constant_value(node.rhs)
    if known is not None and known > 0 and known & (known - 1) == 0:
        return fn.binary("lshr" if dtype.is_uint else "ashr", lhs, constant(dtype, known.bit_length() - 1))
    quotient, _, adjust = _floor_division_parts(e, node, lhs, rhs)
    return quotient if adjust is None else fn.binary("add", quotient, fn.convert("sext", adjust, quotient.type))


def floormod(e: Emitter, node: tir.FloorMod) -> Value:
    fn, dtype = e.fn, node.dtype
    if dtype.is_bool:
        return _bool_divide(e, node, False)
    lhs, rhs = e.expr(node.lhs), e.expr(node.rhs)
    if dtype.is_float:
        return small_float.rounded(e, _float_floormod(e, lhs, rhs, dtype), dtype)
    known = _constant_value(node.rhs)
    if known is not None and known > 0 and known & (known - 1) == 0:
        return fn.binary("and", lhs, constant(dtype, known - 1))
    _, remainder, adjust = _floor_division_parts(e, node, lhs, rhs)
    if adjust is None:
        return remainder
    return fn.binary("add", remainder, fn.select(adjust, rhs, constant(dtype, 0)))


def _float_floormod(e: Emitter, lhs: Value, rhs: Value, dtype: DType) -> Value:
    """Emit fmod, plus the divisor if the signs differ; a zero takes the divisor's sign."""
    fn, zero = e.fn, constant(dtype, 0)
    remainder = fmod(e, lhs, rhs, dtype.lanes)
    differ = fn.binary("xor", fn.fcmp("olt", remainder, zero), fn.fcmp("olt", rhs, zero))
    adjusted = fn.select(differ, fn.binary("fadd", remainder, rhs), remainder)
    return fn.select(fn.fcmp("oeq", remainder, zero), e.intrinsic("llvm.copysign", zero, rhs), adjusted)


# ---------------------------------------------------------------- comparisons

_PREDICATES: dict[type, tuple[str, str, str]] = {
    tir.EQ: ("eq", "eq", "oeq"), tir.NE: ("ne", "ne", "une"), tir.LT: ("slt", "ult", "olt"),
    tir.LE: ("sle", "ule", "ole"), tir.GT: ("sgt", "ugt", "ogt"), tir.GE: ("sge", "uge", "oge"),
}  # fmt: skip


def _compare(fn: FunctionText, kind: type, dtype: DType, lhs: Value, rhs: Value) -> Value:
    signed, unsigned, ordered = _PREDICATES[kind]
    if dtype.is_float:
        return fn.fcmp(ordered, lhs, rhs)
    return fn.icmp(signed if dtype.kind == "int" else unsigned, lhs, rhs)


def compare(e: Emitter, node: tir.CompareOp) -> Value:
    lhs, rhs = e.fn.generic(e.expr(node.lhs)), e.fn.generic(e.expr(node.rhs))
    return _compare(e.fn, type(node), node.lhs.dtype, lhs, rhs)


def minimum(e: Emitter, node: tir.Min) -> Value:
    return _min_or_max(e, node, tir.LT, "le")


def maximum(e: Emitter, node: tir.Max) -> Value:
    return _min_or_max(e, node, tir.GT, "ge")


def _min_or_max(e: Emitter, node: tir.Min | tir.Max, strict: type[tir.CompareOp], inclusive: str) -> Value:
    """Emit min or max: NaN if an operand is NaN, the first of equal ones. With a constant it is one x86 instruction."""
    fn, lhs, rhs = e.fn, e.expr(node.lhs), e.expr(node.rhs)
    if not node.dtype.is_float:
        return fn.select(_compare(fn, strict, node.dtype, lhs, rhs), lhs, rhs)
    if _never_nan(node.lhs):
        return fn.select(fn.fcmp(f"o{inclusive}", lhs, rhs), lhs, rhs)
    chosen = fn.select(fn.fcmp(f"u{inclusive}", lhs, rhs), lhs, rhs)
    return chosen if _never_nan(node.rhs) else fn.select(fn.fcmp("uno", rhs, rhs), rhs, chosen)


def _never_nan(expr: tir.Expr) -> bool:
    match expr:
        case tir.FloatImm(value=value):
            return not math.isnan(value)
        case tir.Broadcast(value=value):
            return _never_nan(value)
        case tir.Cast(value=value):
            return not value.dtype.is_float
        case tir.Call(op=tir.Op(name="tir.assume_number")):
            return True
        case tir.Call(op=tir.Op(name="tir.if_then_else"), args=(_, yes, no)):
            return _never_nan(yes) and _never_nan(no)
        case _:
            return False


# ---------------------------------------------------------------- logic and choice


def logical(e: Emitter, node: tir.BinaryOp) -> Value:
    """Emit `and`/`or` with short-circuit evaluation, unless the right operand can be speculated."""
    fn, is_and = e.fn, isinstance(node, tir.And)
    lhs = e.expr(node.lhs)
    if node.dtype.lanes > 1 or e.speculatable(node.rhs):
        return fn.binary("and" if is_and else "or", lhs, e.expr(node.rhs))
    more, done = fn.label("more"), fn.label("done")
    before = fn.block
    fn.cond_br(lhs, more if is_and else done, done if is_and else more)
    fn.start(more)
    rhs = e.expr(node.rhs)
    after = fn.block
    fn.start(done)
    return fn.phi("i1", [(integer("i1", 0 if is_and else 1), before), (rhs, after)])


def logical_not(e: Emitter, node: tir.Not) -> Value:
    value = e.expr(node.value)
    return e.fn.binary("xor", value, constant(node.dtype, 1))


def select(e: Emitter, node: tir.Select) -> Value:
    return choose(e, node.condition, node.true_value, node.false_value)


def choose(e: Emitter, condition: tir.Expr, true: tir.Expr, false: tir.Expr) -> Value:
    """Emit a conditional expression; only the selected operand is evaluated, unless both can be speculated."""
    if condition.dtype.lanes > 1:
        return masks.choose(e, condition, true, false)
    fn = e.fn
    condition_value = e.expr(condition)
    if e.speculatable(true) and e.speculatable(false):
        return fn.select(condition_value, fn.generic(e.expr(true)), fn.generic(e.expr(false)))
    then, otherwise, done = fn.label("then"), fn.label("else"), fn.label("done")
    fn.cond_br(condition_value, then, otherwise)
    fn.start(then)
    true_value, true_end = fn.generic(e.expr(true)), fn.block
    fn.br(done)
    fn.start(otherwise)
    false_value, false_end = fn.generic(e.expr(false)), fn.block
    fn.start(done)
    if true.dtype.is_void:
        return true_value
    return fn.phi(true_value.type, [(true_value, true_end), (false_value, false_end)])


def let(e: Emitter, node: tir.Let) -> Value:
    e.bind(node.var, e.expr(node.value))
    return e.expr(node.body)


# ---------------------------------------------------------------- vectors


def lane_numbers(dtype: DType) -> Value:
    """Return the constant <0, 1, 2, ...> of an integer vector type."""
    scalar = register_type(dtype.element)
    if dtype.lanes == 1:
        return integer(scalar, 0)
    lanes = ", ".join(f"{scalar} {i}" for i in range(dtype.lanes))
    return Value(register_type(dtype), f"<{lanes}>")


def ramp(e: Emitter, node: tir.Ramp) -> Value:
    fn, dtype = e.fn, node.dtype
    if node.base.dtype.lanes != 1 or not dtype.is_int:
        raise unsupported(f"a ramp of {node.base.dtype} is not supported", node.span)
    base, stride = e.expr(node.base), e.expr(node.stride)
    steps = lane_numbers(dtype)
    if tir.const_int(node.stride) != 1:
        steps = fn.binary("mul", steps, fn.splat(stride, dtype.lanes))
    return fn.binary("add", fn.splat(base, dtype.lanes), steps)


def broadcast(e: Emitter, node: tir.Broadcast) -> Value:
    value = e.expr(node.value)
    inner = node.value.dtype.lanes
    if inner == 1:
        return e.fn.splat(value, node.lanes)
    mask = ", ".join(f"i32 {i % inner}" for i in range(inner * node.lanes))
    text = f"shufflevector {value}, {value.type} poison, <{inner * node.lanes} x i32> <{mask}>"
    return e.fn.op(register_type(node.dtype), text)


def shuffle(e: Emitter, node: tir.Shuffle) -> Value:
    """Emit a shuffle by constant or computed lane numbers; computed ones use extract and insert."""
    fn = e.fn
    known = [tir.const_int(i) for i in node.indices]
    count = node.vectors[0].dtype.lanes
    if len(node.vectors) == 1 and count > 1 < len(known) and all(k is not None and 0 <= k < count for k in known):
        value = e.expr(node.vectors[0])
        mask = ", ".join(f"i32 {k}" for k in known)
        type = register_type(node.dtype)
        return fn.op(type, f"shufflevector {value}, {value.type} poison, <{len(known)} x i32> <{mask}>")
    if len(node.vectors) == 2 and count == node.vectors[1].dtype.lanes > 1 < len(known):
        first, second = (e.expr(v) for v in node.vectors)
        if all(k is not None and 0 <= k < 2 * count for k in known):
            mask = ", ".join(f"i32 {k}" for k in known)
            return fn.op(register_type(node.dtype), f"shufflevector {first}, {second}, <{len(known)} x i32> <{mask}>")
    lanes: list[tuple[Value, int | None]] = []
    for part in node.vectors:
        value = e.expr(part)
        count = part.dtype.lanes
        lanes += [(value, None)] if count == 1 else [(value, i) for i in range(count)]
    chosen: list[Value] = []
    for index in node.indices:
        number = tir.const_int(index)
        if number is None:
            chosen.append(_dynamic_lane(e, node, index))
        elif not 0 <= number < len(lanes):
            raise unsupported(f"lane {number} is out of range for a shuffle of {len(lanes)} lanes", node.span)
        else:
            value, lane = lanes[number]
            chosen.append(value if lane is None else fn.extract(value, lane))
    if node.dtype.lanes == 1:
        return chosen[0]
    shuffled = Value(register_type(node.dtype), "poison")
    for position, value in enumerate(chosen):
        shuffled = fn.insert(shuffled, value, position)
    return shuffled


def _dynamic_lane(e: Emitter, node: tir.Shuffle, index: tir.Expr) -> Value:
    if len(node.vectors) != 1 or node.vectors[0].dtype.lanes == 1:
        raise unsupported("a computed lane needs a shuffle of one vector", node.span)
    return e.fn.extract(e.expr(node.vectors[0]), e.index(index))
