"""Print scalar expressions, with parentheses where the language needs them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mlcc.ir import relax, tir
from mlcc.ir.checked_index import INDEX_ERROR, checked_index
from mlcc.ir.construct import round_float
from mlcc.ir.dtypes import INT64, DType
from mlcc.targets.source.dialect import refuse

if TYPE_CHECKING:
    from mlcc.targets.source.kernel import KernelWriter

ATOM, UNARY, PRODUCT, SUM, SHIFT, ORDER, EQUAL, BIT_AND, BIT_XOR, BIT_OR, AND, OR, CHOICE = range(13, 0, -1)

Text = tuple[int, str]  # precedence of the outermost operator, and the text


def text(w: KernelWriter, node: tir.Expr, precedence: int = CHOICE) -> str:
    """Print a scalar expression, in parentheses if its precedence is lower than `precedence`."""
    emit = _EMIT.get(type(node))
    if emit is None or node.dtype.lanes > 1:
        raise refuse(f"`{type(node).__name__}` of {node.dtype} has no source form", node.span)
    own_precedence, printed = emit(w, node)
    return printed if own_precedence >= precedence else f"({printed})"


def _infix(w: KernelWriter, level: int, symbol: str, lhs: tir.Expr, rhs: tir.Expr) -> Text:
    """Print a left-associative operator. Operands of bit operations and shifts get parentheses, to avoid warnings."""
    plain = level in (PRODUCT, SUM, AND, OR, ORDER, EQUAL)
    return level, f"{text(w, lhs, level if plain else UNARY)} {symbol} {text(w, rhs, level + 1 if plain else UNARY)}"


def _narrowed(w: KernelWriter, dtype: DType, result: Text) -> Text:
    """Convert an arithmetic result to its dtype: C computes narrow integers as int, and mlcc narrow floats as float."""
    if dtype.is_int and dtype.bits < 32:
        return ATOM, f"{_cast_name(w, dtype)}({result[1]})"
    if dtype.is_float and dtype.bits < 32:
        return ATOM, w.language.round(result[1], dtype, DType.of("float32"))
    return result


def _cast_name(w: KernelWriter, dtype: DType) -> str:
    """Return a type as it is written in a functional cast, `T(x)`."""
    name = w.language.register(dtype)
    return name if " " not in name else f"({name})"


# ---------------------------------------------------------------- leaves


def _var(w: KernelWriter, node: tir.Var) -> Text:
    return ATOM, w.name(node)


def _int(w: KernelWriter, node: tir.IntImm) -> Text:
    return number(w, node.value, node.dtype)


def number(w: KernelWriter, value: int, dtype: DType) -> Text:
    """Print an integer constant of a dtype."""
    if dtype.is_bool:
        return ATOM, "true" if value else "false"
    if dtype.is_handle:
        return (ATOM, "nullptr") if value == 0 else (ATOM, f"((void*){value})")
    if dtype.bits < 32:
        return ATOM, f"{_cast_name(w, dtype)}({value})"
    suffix = ("u" if dtype.is_uint else "") + (w.language.long_suffix if dtype.bits == 64 else "")
    if value == -(1 << dtype.bits - 1):
        return ATOM, f"({value + 1}{suffix} - 1)"
    return (UNARY if value < 0 else ATOM), f"{value}{suffix}"


def _float(w: KernelWriter, node: tir.FloatImm) -> Text:
    value = round_float(node.value, node.dtype)
    w.language.register(node.dtype, node.span)
    if math.isnan(value):
        return ATOM, "NAN"
    if math.isinf(value):
        return (ATOM, "INFINITY") if value > 0 else (UNARY, "-INFINITY")
    digits = repr(float(value)) if node.dtype.bits == 64 else _shortest(value)
    digits += "" if "." in digits or "e" in digits else ".0"
    binds = UNARY if math.copysign(1, value) < 0 else ATOM
    return binds, digits + ("" if node.dtype.bits == 64 else "f")


def _shortest(value: float) -> str:
    """Return the shortest text that reads as this float32."""
    import numpy as np

    return str(np.format_float_scientific(np.float32(value), unique=True, trim="-")) if _needs_exponent(value) else str(
        np.format_float_positional(np.float32(value), unique=True, trim="0")
    )  # fmt: skip


def _needs_exponent(value: float) -> bool:
    return value != 0 and not 1e-4 <= abs(value) < 1e7


# ---------------------------------------------------------------- operators


def _arithmetic(level: int, symbol: str, for_bool: tuple[int, str]) -> Callable[[KernelWriter, Any], Text]:
    def emit(w: KernelWriter, node: tir.BinaryOp) -> Text:
        dtype = node.dtype
        if dtype.is_bool:
            return ATOM, f"bool({_infix(w, *for_bool, node.lhs, node.rhs)[1]})"
        if dtype.is_handle:  # pointer arithmetic is in bytes
            return ATOM, f"((char*){text(w, node.lhs, UNARY)} {symbol} {text(w, node.rhs, PRODUCT)})"
        known = node.rhs.value if isinstance(node.rhs, tir.IntImm) else 0
        if symbol == "+" and known < 0 and dtype.bits >= 32:
            return SUM, f"{text(w, node.lhs, SUM)} - {number(w, -known, dtype)[1]}"
        return _narrowed(w, dtype, _infix(w, level, symbol, node.lhs, node.rhs))

    return emit


def _call_helper(w: KernelWriter, name: str, *nodes: tir.Expr) -> Text:
    """Print a call of a helper function on values of one dtype."""
    return ATOM, f"{w.language.use(name)}({', '.join(text(w, n) for n in nodes)})"


def _bool_quotient(w: KernelWriter, node: tir.BinaryOp) -> Text:
    if isinstance(node, (tir.Div, tir.FloorDiv)):  # x / 0 = 0, x / 1 = x
        return ATOM, f"bool({_infix(w, BIT_AND, '&', node.lhs, node.rhs)[1]})"
    return ATOM, "false"


def _div(w: KernelWriter, node: tir.Div) -> Text:
    dtype = node.dtype
    if dtype.is_bool:
        return _bool_quotient(w, node)
    if dtype.is_float or (tir.const_int(node.rhs) or -1) != -1:
        return _narrowed(w, dtype, _infix(w, PRODUCT, "/", node.lhs, node.rhs))
    return _call_helper(w, "div_trunc", node.lhs, node.rhs)


def _mod(w: KernelWriter, node: tir.Mod) -> Text:
    dtype = node.dtype
    if dtype.is_bool:
        return _bool_quotient(w, node)
    if dtype.is_float:
        name = w.language.math("fmod", _wide(dtype), node.span)
        return _narrowed(w, dtype, (ATOM, f"{name}({text(w, node.lhs)}, {text(w, node.rhs)})"))
    if (tir.const_int(node.rhs) or -1) != -1:
        return _narrowed(w, dtype, _infix(w, PRODUCT, "%", node.lhs, node.rhs))
    return _call_helper(w, "mod_trunc", node.lhs, node.rhs)


def _wide(dtype: DType) -> DType:
    """Return the dtype that a float is computed in."""
    return DType.of("float32") if dtype.bits < 32 else dtype.element


def _floordiv(w: KernelWriter, node: tir.FloorDiv) -> Text:
    dtype, known = node.dtype, tir.const_int(node.rhs)
    if dtype.is_bool:
        return _bool_quotient(w, node)
    if dtype.is_float:
        quotient = _infix(w, PRODUCT, "/", node.lhs, node.rhs)[1]
        return _narrowed(w, dtype, (ATOM, f"{w.language.math('floor', _wide(dtype), node.span)}({quotient})"))
    if known is not None and known > 0 and known & (known - 1) == 0:
        return _narrowed(w, dtype, (SHIFT, f"{text(w, node.lhs, UNARY)} >> {known.bit_length() - 1}"))
    if known is not None and known > 0 and (dtype.is_uint or w.never_negative(node.lhs)):
        return _narrowed(w, dtype, _infix(w, PRODUCT, "/", node.lhs, node.rhs))
    return _call_helper(w, "div_floor", node.lhs, node.rhs)


def _floormod(w: KernelWriter, node: tir.FloorMod) -> Text:
    dtype, known = node.dtype, tir.const_int(node.rhs)
    if dtype.is_bool:
        return _bool_quotient(w, node)
    if dtype.is_float:
        return _narrowed(w, dtype, _call_helper(w, "floor_mod", node.lhs, node.rhs))
    if known is not None and known > 0 and known & (known - 1) == 0:
        return _narrowed(w, dtype, (BIT_AND, f"{text(w, node.lhs, UNARY)} & {known - 1}"))
    if known is not None and known > 0 and (dtype.is_uint or w.never_negative(node.lhs)):
        return _narrowed(w, dtype, _infix(w, PRODUCT, "%", node.lhs, node.rhs))
    return _call_helper(w, "mod_floor", node.lhs, node.rhs)


def _min_or_max(helper: str) -> Callable[[KernelWriter, Any], Text]:
    """Print min or max, which return NaN if an operand is NaN, unlike the language's own functions."""
    return lambda w, node: _call_helper(w, helper, node.lhs, node.rhs)


def _compare(level: int, symbol: str) -> Callable[[KernelWriter, Any], Text]:
    return lambda w, node: _infix(w, level, symbol, node.lhs, node.rhs)


def _logical(level: int, symbol: str) -> Callable[[KernelWriter, Any], Text]:
    """Print `&&` or `||`; operands with the other operator get parentheses, to avoid warnings."""

    def side(w: KernelWriter, node: tir.Expr) -> str:
        return text(w, node, level if isinstance(node, (tir.And, tir.Or)) and level == _precedence(node) else EQUAL)

    return lambda w, node: (level, f"{side(w, node.lhs)} {symbol} {side(w, node.rhs)}")


def _precedence(node: tir.Expr) -> int:
    return AND if isinstance(node, tir.And) else OR


def _not(w: KernelWriter, node: tir.Not) -> Text:
    return UNARY, f"!{text(w, node.value, UNARY)}"


def choice(w: KernelWriter, condition: tir.Expr, true: tir.Expr, false: tir.Expr) -> Text:
    """Print a conditional expression; only the selected operand is evaluated."""
    return CHOICE, f"{text(w, condition, OR)} ? {text(w, true, OR)} : {text(w, false, OR)}"


def _select(w: KernelWriter, node: tir.Select) -> Text:
    return choice(w, node.condition, node.true_value, node.false_value)


def _let(w: KernelWriter, node: tir.Let) -> Text:
    from mlcc.ir.visit import substitute

    return CHOICE, text(w, substitute(node.body, {node.var: node.value}))


def _cast(w: KernelWriter, node: tir.Cast) -> Text:
    source, target = node.value.dtype, node.dtype
    inner = text(w, node.value)
    if target.is_bool:
        return EQUAL, f"{text(w, node.value, EQUAL)} != {'0.0f' if source.is_float else '0'}"
    if target.is_float and target.bits < 32:
        if source is target:
            return ATOM, inner
        wide = inner if source.is_float else f"float({inner})"
        return ATOM, w.language.round(wide, target, source)
    if source.is_float and target.is_int:
        bits = target.bits if target.is_uint else target.bits - 1
        low = 0 if target.is_uint else -(1 << bits)
        ends = [number(w, v, target)[1] for v in (low, (1 << bits) - 1)]
        return ATOM, f"{w.language.use('saturated')}({inner}, {ends[0]}, {ends[1]})"
    return ATOM, f"{_cast_name(w, target)}({inner})"


def _load(w: KernelWriter, node: tir.BufferLoad) -> Text:
    dtype = node.dtype
    element = w.element(node.buffer, node.indices[0])
    if dtype.is_bool:
        return EQUAL, f"{element} != 0"
    if dtype.is_float and dtype.bits < 32:
        return ATOM, w.language.from_memory(element, dtype)
    return ATOM, element


# ---------------------------------------------------------------- calls


def _call(w: KernelWriter, node: tir.Call) -> Text:
    if isinstance(node.op, relax.GlobalVar):
        raise refuse(f"a kernel calls `{node.op.name}`, which has no source form", node.span)
    name = node.op.name.removeprefix("tir.")
    emit = _CALLS.get(name)
    if emit is not None:
        return emit(w, node)
    if node.dtype.is_float and len(node.args) in (1, 2, 3) and all(a.dtype is node.dtype for a in node.args):
        function = w.language.math(name, _wide(node.dtype), node.span)
        return _narrowed(w, node.dtype, (ATOM, f"{function}({', '.join(text(w, a) for a in node.args)})"))
    call = w.language.intrinsic(name, [_argument(w, a) for a in node.args], node)
    if call is None:
        raise refuse(f"`T.{name}` has no form in {w.language.name}", node.span)
    return ATOM, call


def _argument(w: KernelWriter, node: tir.Expr) -> str:
    return node.value if isinstance(node, tir.StringImm) else text(w, node)


def _bits(level: int, symbol: str) -> Callable[[KernelWriter, tir.Call], Text]:
    def emit(w: KernelWriter, node: tir.Call) -> Text:
        printed = _infix(w, level, symbol, *node.args)
        return (ATOM, f"bool({printed[1]})") if node.dtype.is_bool else _narrowed(w, node.dtype, printed)

    return emit


def _bitwise_not(w: KernelWriter, node: tir.Call) -> Text:
    inner = text(w, node.args[0], UNARY)
    return (UNARY, f"!{inner}") if node.dtype.is_bool else _narrowed(w, node.dtype, (UNARY, f"~{inner}"))


def _shift(helper: str, symbol: str) -> Callable[[KernelWriter, tir.Call], Text]:
    def emit(w: KernelWriter, node: tir.Call) -> Text:
        count = tir.const_int(node.args[1])
        if count is not None and 0 <= count < node.dtype.bits:
            return _narrowed(w, node.dtype, (SHIFT, f"{text(w, node.args[0], UNARY)} {symbol} {count}"))
        return _call_helper(w, helper, *node.args)

    return emit


def _if_then_else(w: KernelWriter, node: tir.Call) -> Text:
    return choice(w, *node.args)


def _first_argument(w: KernelWriter, node: tir.Call) -> Text:
    return ATOM, text(w, node.args[0], ATOM)


def _sigmoid(w: KernelWriter, node: tir.Call) -> Text:
    one = "1.0" if node.dtype.bits == 64 else "1.0f"
    exp = w.language.math("exp", _wide(node.dtype), node.span)
    return _narrowed(w, node.dtype, (PRODUCT, f"{one} / ({one} + {exp}(-{text(w, node.args[0], UNARY)}))"))


def _float_predicate(name: str) -> Callable[[KernelWriter, tir.Call], Text]:
    def emit(w: KernelWriter, node: tir.Call) -> Text:
        if not node.args[0].dtype.is_float:
            return ATOM, "true" if name == "isfinite" else "false"
        return ATOM, f"{name}({text(w, node.args[0])})"

    return emit


def _abs(w: KernelWriter, node: tir.Call) -> Text:
    dtype = node.dtype
    if dtype.is_float:
        return ATOM, f"{w.language.math('fabs', _wide(dtype), node.span)}({text(w, node.args[0])})"
    if dtype.is_uint or dtype.is_bool:
        return _first_argument(w, node)
    x = text(w, node.args[0], UNARY)
    return _narrowed(w, dtype, (CHOICE, f"{x} < 0 ? -{x} : {x}"))


def _fma(w: KernelWriter, node: tir.Call) -> Text:
    a, b, addend = node.args
    if node.dtype.is_int:
        return _narrowed(
            w, node.dtype, (SUM, f"{text(w, a, PRODUCT)} * {text(w, b, UNARY)} + {text(w, addend, PRODUCT)}")
        )
    name = w.language.math("fma", _wide(node.dtype), node.span)
    return _narrowed(w, node.dtype, (ATOM, f"{name}({text(w, a)}, {text(w, b)}, {text(w, addend)})"))


def _reinterpret(w: KernelWriter, node: tir.Call) -> Text:
    source, target = node.args[0].dtype, node.dtype
    if source.is_handle or target.is_handle:
        return ATOM, text(w, node.args[0], ATOM)
    if source.bytes != target.bytes:
        raise refuse(f"`T.reinterpret` of {source} as {target}: the sizes differ", node.span)
    inner = text(w, node.args[0])
    if source.is_float and source.bits < 32:
        inner = w.language.to_memory(inner, source, source)
    if target.is_bool:
        return EQUAL, f"{w.language.use('as_type')}<unsigned char>({inner}) != 0"
    value = f"{w.language.use('as_type')}<{w.language.memory(target)}>({inner})"
    return ATOM, w.language.from_memory(value, target) if target.is_float and target.bits < 32 else value


def _address(w: KernelWriter, node: tir.Call) -> Text:
    match node.args:
        case (tir.BufferLoad(buffer=buffer, indices=(index,)),):
            return UNARY, "&" + w.element(buffer, index.base if isinstance(index, tir.Ramp) else index)
        case (tir.Var() as var,):
            return ATOM, w.name(var)
    raise refuse("`T.address_of` takes an element of a buffer", node.span)


def _access_ptr(w: KernelWriter, node: tir.Call) -> Text:
    return SUM, f"{text(w, node.args[1], SUM)} + {text(w, node.args[2], PRODUCT)}"


def _infinity(w: KernelWriter, node: tir.Call) -> Text:
    return ATOM, "INFINITY"


def _checked_index(w: KernelWriter, node: tir.Call) -> Text:
    """Print a checked index; a failure is noted in the kernel's error record."""
    check = checked_index(node)
    if check is None:
        raise refuse("`T.checked_index` takes an index, an extent, a text, a dimension and a bool", node.span)
    number = w.failure_number(INDEX_ERROR, check.message)
    wide = _cast_name(w, INT64)
    index, extent = (f"{wide}({text(w, part)})" for part in (check.index, check.extent))
    helper = w.language.use("checked_from_end" if check.from_end and not check.index.dtype.is_uint else "checked_index")
    return ATOM, f"{helper}({index}, {extent}, {number}, {w.record()})"


def _return(w: KernelWriter, node: tir.Call) -> Text:
    return ATOM, "return"


_CALLS: dict[str, Callable[[KernelWriter, tir.Call], Text]] = {
    "bitwise_and": _bits(BIT_AND, "&"), "bitwise_or": _bits(BIT_OR, "|"), "bitwise_xor": _bits(BIT_XOR, "^"),
    "bitwise_not": _bitwise_not, "shift_left": _shift("shift_up", "<<"), "shift_right": _shift("shift_down", ">>"),
    "if_then_else": _if_then_else, "sigmoid": _sigmoid,
    **dict.fromkeys(
        ("assume_number", "allow_reciprocal", "likely", "tvm_thread_invariant", "ignore_loop_partition"),
        _first_argument,
    ),
    **{name: _float_predicate(name) for name in ("isnan", "isinf", "isfinite")},
    "abs": _abs, "fabs": _abs, "fma": _fma, "reinterpret": _reinterpret, "address_of": _address,
    "checked_index": _checked_index, "tvm_access_ptr": _access_ptr, "infinity": _infinity, "thread_return": _return,
}  # fmt: skip

_EMIT: dict[type, Callable[[KernelWriter, Any], Text]] = {
    tir.Var: _var, tir.IntImm: _int, tir.FloatImm: _float,
    tir.Add: _arithmetic(SUM, "+", (BIT_OR, "|")), tir.Sub: _arithmetic(SUM, "-", (BIT_XOR, "^")),
    tir.Mul: _arithmetic(PRODUCT, "*", (BIT_AND, "&")),
    tir.Div: _div, tir.Mod: _mod, tir.FloorDiv: _floordiv, tir.FloorMod: _floormod,
    tir.Min: _min_or_max("least"), tir.Max: _min_or_max("most"),
    tir.EQ: _compare(EQUAL, "=="), tir.NE: _compare(EQUAL, "!="), tir.LT: _compare(ORDER, "<"),
    tir.LE: _compare(ORDER, "<="), tir.GT: _compare(ORDER, ">"), tir.GE: _compare(ORDER, ">="),
    tir.And: _logical(AND, "&&"), tir.Or: _logical(OR, "||"), tir.Not: _not,
    tir.Select: _select, tir.Let: _let, tir.Cast: _cast, tir.BufferLoad: _load, tir.Call: _call,
}  # fmt: skip
