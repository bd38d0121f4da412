"""Print scalar expressions as C, with parentheses where the language needs them.

Signed arithmetic that may wrap around calls helper functions (`mlcc.targets.c.helpers`), as its overflow is undefined
in C; where the interval of a value (`mlcc.targets.c.ranges`) shows that it cannot, it is plain C.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mlcc.arith.linear import is_index
from mlcc.ir import relax, tir
from mlcc.ir.construct import round_float
from mlcc.ir.dtypes import INT64, DType
from mlcc.targets.c.dtypes import (
    float_literal,
    integer_literal,
    integer_range,
    is_narrow_float,
    register_type,
    suffix,
)
from mlcc.targets.source.dialect import refuse
from mlcc.targets.source.expressions import (
    AND,
    ATOM,
    CHOICE,
    EQUAL,
    OR,
    ORDER,
    PRODUCT,
    SUM,
    UNARY,
    Text,
)

if TYPE_CHECKING:
    from mlcc.targets.c.writer import Writer


def text(w: Writer, node: tir.Expr, precedence: int = CHOICE) -> str:
    """Print a scalar expression, in parentheses if its precedence is lower than `precedence`. Raises CompileError."""
    emit = _EMIT.get(type(node))
    if emit is None or node.dtype.lanes > 1:
        raise refuse(f"`{type(node).__name__}` of {node.dtype} has no form in C", node.span)
    own_precedence, printed = emit(w, node)
    return printed if own_precedence >= precedence else f"({printed})"


def text_of(w: Writer, node: tir.Expr) -> Text:
    """Print a scalar expression with the precedence of its outermost operator."""
    return _EMIT[type(node)](w, node)


def cast(w: Writer, type: str, node: tir.Expr) -> Text:
    return UNARY, f"({type}){text(w, node, UNARY)}"


def call(name: str, *args: str) -> Text:
    return ATOM, f"{name}({', '.join(args)})"


def helper(w: Writer, base: str, dtype: DType, *nodes: tir.Expr) -> Text:
    """Print a call of a helper function on values of a dtype."""
    name = w.helpers.use(f"{base}_{suffix(dtype)}")
    return call(name, *(text(w, n) for n in nodes))


def infix(w: Writer, level: int, symbol: str, lhs: tir.Expr, rhs: tir.Expr) -> Text:
    """Print a left-associative operator."""
    return level, f"{text(w, lhs, level)} {symbol} {text(w, rhs, level + 1)}"


def rounded(w: Writer, dtype: DType, result: Text) -> Text:
    """Round a float to a narrow dtype; print other results as they are."""
    if not is_narrow_float(dtype):
        return result
    return call(w.helpers.use(f"round_{suffix(dtype)}"), result[1])


def computed(dtype: DType) -> DType:
    """Return the dtype that a float is computed in."""
    return DType.of("float32") if is_narrow_float(dtype) else dtype.element


def math(name: str, dtype: DType) -> str:
    """Return libm's function of a float dtype."""
    return name if dtype.bits == 64 else f"{name}f"


# ---------------------------------------------------------------- indices


def index(w: Writer, node: tir.Expr, precedence: int = CHOICE) -> str:
    """Print the index of an element. Sums and products in it are computed in 64 bits where 32 might not hold them."""
    node = _without_casts(w, node)
    if _fits(w, node):
        return text(w, node, precedence)
    own_precedence, printed = _wide(w, node)
    return printed if own_precedence >= precedence else f"({printed})"


def _without_casts(w: Writer, node: tir.Expr) -> tir.Expr:
    """Remove conversions between integers that keep the value: any integer type will do for an index."""
    match node:
        case tir.Cast(value=value) if is_index(node.dtype) and is_index(value.dtype):
            low, high = w.ranges.of(value)
            least, greatest = integer_range(node.dtype)
            return _without_casts(w, value) if least <= low and high <= greatest else node
        case tir.Add(lhs=lhs, rhs=rhs) | tir.Sub(lhs=lhs, rhs=rhs) | tir.Mul(lhs=lhs, rhs=rhs) if is_index(node.dtype):
            return type(node)(node.dtype, _without_casts(w, lhs), _without_casts(w, rhs), span=node.span)
    return node


def _fits(w: Writer, node: tir.Expr) -> bool:
    """Return True if no sum or product at the top of an index can wrap around."""
    if isinstance(node, (tir.Add, tir.Sub, tir.Mul)) and is_index(node.dtype):
        return w.ranges.fits(node) and _fits(w, node.lhs) and _fits(w, node.rhs)
    return True


def _wide(w: Writer, node: tir.Expr) -> Text:
    if isinstance(node, (tir.Add, tir.Sub, tir.Mul)) and is_index(node.dtype):
        level, symbol = (PRODUCT, "*") if isinstance(node, tir.Mul) else (SUM, node.symbol)
        sides = [index_side(w, node.lhs, level), index_side(w, node.rhs, level + 1)]
        return level, f" {symbol} ".join(sides)
    if node.dtype is INT64 or isinstance(node, tir.IntImm):
        return ATOM, text(w, node, ATOM)
    return cast(w, "int64_t", node)


def index_side(w: Writer, node: tir.Expr, precedence: int) -> str:
    own_precedence, printed = _wide(w, node)
    return printed if own_precedence >= precedence else f"({printed})"


# ---------------------------------------------------------------- leaves


def _var(w: Writer, node: tir.Var) -> Text:
    return ATOM, w.name(node)


def _int(w: Writer, node: tir.IntImm) -> Text:
    if node.dtype.is_handle:
        return (ATOM, "NULL") if node.value == 0 else (UNARY, f"(void *)(uintptr_t){node.value}")
    register_type(node.dtype, node.span)
    printed = integer_literal(node.value, node.dtype)
    return (UNARY if printed.startswith("-") else ATOM), printed


def _float(w: Writer, node: tir.FloatImm) -> Text:
    register_type(node.dtype, node.span)
    printed = float_literal(round_float(node.value, node.dtype), computed(node.dtype))
    return (UNARY if printed.startswith("-") else ATOM), printed


def _string(w: Writer, node: tir.StringImm) -> Text:
    return ATOM, string_literal(node.value)


def string_literal(value: str) -> str:
    """Return a string constant of ASCII characters; others are octal escapes of their bytes in UTF-8."""
    plain = set(range(32, 127)) - {34, 92, 63}  # quotes, backslashes and trigraphs
    return '"' + "".join(chr(b) if b in plain else f"\\{b:03o}" for b in value.encode()) + '"'


# ---------------------------------------------------------------- arithmetic


def _arithmetic(base: str, level: int, symbol: str, of_bool: tuple[int, str]) -> Callable[[Writer, Any], Text]:
    def emit(w: Writer, node: tir.BinaryOp) -> Text:
        dtype = node.dtype
        if dtype.is_bool:
            bool_level, bool_symbol = of_bool
            sides = (text(w, side, EQUAL + 1) for side in (node.lhs, node.rhs))
            return bool_level, f" {bool_symbol} ".join(sides)
        if dtype.is_handle:  # pointer arithmetic is in bytes
            return UNARY, f"(void *)((unsigned char *){text(w, node.lhs, UNARY)} {symbol} {text(w, node.rhs, PRODUCT)})"
        if dtype.is_float:
            return rounded(w, dtype, infix(w, level, symbol, node.lhs, node.rhs))
        return _integer_arithmetic(w, node, base, level, symbol)

    return emit


def _integer_arithmetic(w: Writer, node: tir.BinaryOp, base: str, level: int, symbol: str) -> Text:
    dtype = node.dtype
    register_type(dtype, node.span)
    is_small = dtype.bits < 32
    if not (is_small or dtype.is_uint or w.ranges.fits(node)) or is_small and dtype.is_uint and symbol == "*":
        return helper(w, base, dtype, node.lhs, node.rhs)
    if is_small:  # C computes in int, which holds the result
        return UNARY, f"({register_type(dtype)})({infix(w, level, symbol, node.lhs, node.rhs)[1]})"
    if isinstance(node.lhs, tir.IntImm) and isinstance(node.rhs, tir.IntImm):  # two constants have C's type, not ours
        sides = [integer_literal(side.value, dtype, exact=True) for side in (node.lhs, node.rhs)]
        return level, f"{sides[0]} {symbol} ({sides[1]})" if sides[1][0] == "-" else f" {symbol} ".join(sides)
    known = node.rhs.value if isinstance(node.rhs, tir.IntImm) else 0
    if symbol == "+" and not dtype.is_uint and integer_range(dtype)[0] < known < 0:
        return SUM, f"{text(w, node.lhs, SUM)} - {integer_literal(-known, dtype)}"
    return infix(w, level, symbol, node.lhs, node.rhs)


def _bool_quotient(w: Writer, node: tir.BinaryOp) -> Text:
    """x / 0 = 0, x / 1 = x, and every remainder is 0."""
    if isinstance(node, (tir.Div, tir.FloorDiv)):
        return AND, f"{text(w, node.lhs, EQUAL + 1)} && {text(w, node.rhs, EQUAL + 1)}"
    return ATOM, "false"


def _quotient(base: str, symbol: str) -> Callable[[Writer, Any], Text]:
    def emit(w: Writer, node: tir.BinaryOp) -> Text:
        dtype = node.dtype
        if dtype.is_bool:
            return _bool_quotient(w, node)
        if dtype.is_float:
            return _float_quotient(w, node, base)
        register_type(dtype, node.span)
        divisor = tir.const_int(node.rhs)
        is_floor = base.startswith("floor")
        if (
            divisor is not None and divisor > 0 and not isinstance(node.lhs, tir.IntImm)
            and (dtype.is_uint or not is_floor or w.ranges.never_negative(node.lhs))
        ):  # fmt: skip
            result = infix(w, PRODUCT, symbol, node.lhs, node.rhs)
            return result if dtype.bits >= 32 else (UNARY, f"({register_type(dtype)})({result[1]})")
        return helper(w, base, dtype, node.lhs, node.rhs)

    return emit


def _float_quotient(w: Writer, node: tir.BinaryOp, base: str) -> Text:
    dtype, wide = node.dtype, computed(node.dtype)
    if base == "div":
        return rounded(w, dtype, infix(w, PRODUCT, "/", node.lhs, node.rhs))
    if base == "mod":
        return rounded(w, dtype, call(math("fmod", wide), text(w, node.lhs), text(w, node.rhs)))
    return rounded(w, dtype, helper(w, base, wide, node.lhs, node.rhs))


def _min_or_max(base: str) -> Callable[[Writer, Any], Text]:
    """Print min or max, which return NaN if an operand is NaN, unlike C's fmin and fmax."""

    def emit(w: Writer, node: tir.BinaryOp) -> Text:
        if node.dtype.is_bool:
            sides = (text(w, side, EQUAL + 1) for side in (node.lhs, node.rhs))
            return (AND, " && ".join(sides)) if base == "min" else (OR, " || ".join(sides))
        return helper(w, base, computed(node.dtype) if node.dtype.is_float else node.dtype, node.lhs, node.rhs)

    return emit


# ---------------------------------------------------------------- comparisons, logic, choice


def _compare(level: int, symbol: str) -> Callable[[Writer, Any], Text]:
    def emit(w: Writer, node: tir.CompareOp) -> Text:
        sides = text(w, node.lhs, level + 1), text(w, node.rhs, level + 1)
        if sides[0] == sides[1] and not node.lhs.dtype.is_float:  # compilers warn of it
            return ATOM, "true" if symbol in ("==", "<=", ">=") else "false"
        return level, f" {symbol} ".join(sides)

    return emit


def _logical(kind: type, level: int, symbol: str) -> Callable[[Writer, Any], Text]:
    """Print `&&` or `||`; operands with the other operator get parentheses, to avoid warnings."""

    def emit(w: Writer, node: tir.BinaryOp) -> Text:
        sides = (text(w, side, level if isinstance(side, kind) else EQUAL) for side in (node.lhs, node.rhs))
        return level, f" {symbol} ".join(sides)

    return emit


def _not(w: Writer, node: tir.Not) -> Text:
    return UNARY, f"!{text(w, node.value, UNARY)}"


def choice(w: Writer, condition: tir.Expr, true: tir.Expr, false: tir.Expr) -> Text:
    """Print a conditional expression; only the selected operand is evaluated."""
    sides = [text(w, side, OR + 1) for side in (true, false)]
    result = f"{text(w, condition, OR)} ? {sides[0]} : {sides[1]}"
    if true.dtype.is_int and true.dtype.bits < 32:
        return UNARY, f"({register_type(true.dtype)})({result})"
    if true.dtype.is_int and all(isinstance(side, tir.IntImm) for side in (true, false)):
        return UNARY, f"({register_type(true.dtype)})({result})"
    return CHOICE, result


def _select(w: Writer, node: tir.Select) -> Text:
    return choice(w, node.condition, node.true_value, node.false_value)


# ---------------------------------------------------------------- conversions


def _cast(w: Writer, node: tir.Cast) -> Text:
    return convert(w, node.value, node.dtype)


def convert(w: Writer, value: tir.Expr, target: DType) -> Text:
    """Print the conversion of a value to a dtype."""
    source = value.dtype
    type = register_type(target)
    if source is target:
        return UNARY, text(w, value, UNARY)
    if target.is_bool:
        return EQUAL, f"{text(w, value, EQUAL + 1)} != 0"
    if source.is_handle or target.is_handle:
        if source.is_handle and target.is_handle:
            return UNARY, text(w, value, UNARY)
        return UNARY, f"({type})(uintptr_t){text(w, value, UNARY)}"
    if is_narrow_float(target):
        if source.is_float and source.bits == 64:
            return rounded(w, target, call(w.helpers.use("odd_from_f64"), text(w, value)))
        inner = text(w, value) if source.is_float else f"(float){text(w, value, UNARY)}"
        return rounded(w, target, (UNARY, inner))
    if is_narrow_float(source) and target is DType.of("float32"):
        return UNARY, text(w, value, UNARY)
    if source.is_float and target.is_int:
        name = w.helpers.use(f"from_{suffix(computed(source))}_{suffix(target)}")
        return call(name, text(w, value))
    return cast(w, type, value)


# ---------------------------------------------------------------- memory, calls


def load(w: Writer, node: tir.BufferLoad) -> Text:
    if len(node.indices) != 1 or node.buffer.strides:
        raise refuse(f"`{node.buffer.name}` is not flattened", node.span)
    return from_memory(w, w.loaded(node.buffer, node.indices[0]), node.dtype)


def from_memory(w: Writer, element: str, dtype: DType) -> Text:
    """Convert an element in memory to its register type."""
    if dtype.is_bool:
        return EQUAL, f"{element} != 0"
    if is_narrow_float(dtype):
        return call(w.helpers.use(f"unpack_{suffix(dtype)}"), element)
    return ATOM, element


def to_memory(w: Writer, node: tir.Expr) -> str:
    """Print a value in its memory type."""
    if isinstance(node, tir.BufferLoad) and is_narrow_float(node.dtype):
        return w.loaded(node.buffer, node.indices[0])
    if is_narrow_float(node.dtype):
        pack, printed = w.helpers.use(f"pack_{suffix(node.dtype)}"), text(w, node)
        return f"{pack}({_unrounded(printed, f'round_{suffix(node.dtype)}(')})"
    return text(w, node)


def _unrounded(printed: str, rounding: str) -> str:
    """Return the argument of a call that rounds to a narrow float: packing rounds, too."""
    if not printed.startswith(rounding):
        return printed
    depth = 0
    for at, character in enumerate(printed):
        depth += (character == "(") - (character == ")")
        if character == ")" and depth == 0:
            return printed[len(rounding) : -1] if at == len(printed) - 1 else printed
    return printed


def _call(w: Writer, node: tir.Call) -> Text:
    from mlcc.targets.c.calls import TABLE, refuse_call

    if isinstance(node.op, relax.GlobalVar):
        raise refuse(f"the call of `{node.op.name}` cannot be part of this expression", node.span)
    emit = TABLE.get(node.op.name.removeprefix("tir."))
    if emit is None:
        raise refuse_call(node)
    return emit(w, node)


_EMIT: dict[type, Callable[[Writer, Any], Text]] = {
    tir.Var: _var, tir.IntImm: _int, tir.FloatImm: _float, tir.StringImm: _string,
    tir.Add: _arithmetic("add", SUM, "+", (OR, "||")), tir.Sub: _arithmetic("sub", SUM, "-", (EQUAL, "!=")),
    tir.Mul: _arithmetic("mul", PRODUCT, "*", (AND, "&&")),
    tir.Div: _quotient("div", "/"), tir.Mod: _quotient("mod", "%"),
    tir.FloorDiv: _quotient("floordiv", "/"), tir.FloorMod: _quotient("floormod", "%"),
    tir.Min: _min_or_max("min"), tir.Max: _min_or_max("max"),
    tir.EQ: _compare(EQUAL, "=="), tir.NE: _compare(EQUAL, "!="), tir.LT: _compare(ORDER, "<"),
    tir.LE: _compare(ORDER, "<="), tir.GT: _compare(ORDER, ">"), tir.GE: _compare(ORDER, ">="),
    tir.And: _logical(tir.And, AND, "&&"), tir.Or: _logical(tir.Or, OR, "||"), tir.Not: _not,
    tir.Select: _select, tir.Cast: _cast, tir.BufferLoad: load, tir.Call: _call,
}  # fmt: skip
