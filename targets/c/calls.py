"""Print calls of TensorIR's intrinsics. `TABLE` maps a name (without `tir.`) to its printer.

Elementary functions are those of C's math library. What may fail or ends the function is a statement in C: calls of
PrimFuncs and packed functions, checked indices and returns are printed by `mlcc.targets.c.kernel`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mlcc.errors import CompileError, did_you_mean
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.intrinsics import name_of
from mlcc.targets.c import expressions as ex
from mlcc.targets.c.dtypes import is_narrow_float, memory_type, register_type, suffix
from mlcc.targets.c.externs import extern_call
from mlcc.targets.source.dialect import refuse
from mlcc.targets.source.expressions import ATOM, EQUAL, PRODUCT, SUM, UNARY, Text

if TYPE_CHECKING:
    from mlcc.targets.c.writer import Writer

Print = Callable[["Writer", tir.Call], Text]


def refuse_call(node: tir.Call) -> CompileError:
    """Return the error for an intrinsic without a form in C."""
    return refuse(f"`T.{name_of(node)}` has no form in C", node.span, help=did_you_mean(name_of(node), TABLE))


def _need(node: tir.Call, count: int, fits: bool = True) -> None:
    """Raises CompileError (E0780) for another number of arguments, or dtypes that do not fit."""
    if len(node.args) != count or not fits:
        given = ", ".join(str(a.dtype) for a in node.args)
        raise refuse(f"`T.{name_of(node)}` of ({given}) has no form in C", node.span)


# ---------------------------------------------------------------- floats


def _libm(name: str, count: int = 1) -> Print:
    def emit(w: Writer, node: tir.Call) -> Text:
        _need(node, count, all(a.dtype is node.dtype for a in node.args) and node.dtype.is_float)
        function = ex.math(name, ex.computed(node.dtype))
        return ex.rounded(w, node.dtype, ex.call(function, *(ex.text(w, a) for a in node.args)))

    return emit


def _exp10(w: Writer, node: tir.Call) -> Text:
    wide = ex.computed(node.dtype)
    ten = "10.0" if wide.bits == 64 else "10.0f"
    return ex.rounded(w, node.dtype, ex.call(ex.math("pow", wide), ten, ex.text(w, node.args[0])))


def _one(dtype: DType) -> str:
    return "1.0" if dtype.bits == 64 else "1.0f"


def _sigmoid(w: Writer, node: tir.Call) -> Text:
    wide = ex.computed(node.dtype)
    inner = f"{ex.math('exp', wide)}(-{ex.text(w, node.args[0], ATOM)})"
    return ex.rounded(w, node.dtype, (PRODUCT, f"{_one(wide)} / ({_one(wide)} + {inner})"))


def _rsqrt(w: Writer, node: tir.Call) -> Text:
    wide = ex.computed(node.dtype)
    inner = f"{_one(wide)} / {ex.math('sqrt', wide)}({ex.text(w, node.args[0])})"
    return ex.rounded(w, node.dtype, (PRODUCT, inner))


def _classify(name: str) -> Print:
    def emit(w: Writer, node: tir.Call) -> Text:
        _need(node, 1)
        if not node.args[0].dtype.is_float:
            return ATOM, "true" if name == "isfinite" else "false"
        return UNARY, f"(bool){name}({ex.text(w, node.args[0])})"

    return emit


def _infinity(w: Writer, node: tir.Call) -> Text:
    _need(node, len(node.args), node.dtype.is_float and str(node.dtype) != "float8_e4m3fn")
    return ATOM, "INFINITY"


def _abs(w: Writer, node: tir.Call) -> Text:
    _need(node, 1)
    dtype, x = node.dtype, node.args[0]
    if dtype.is_float:
        return ex.call(ex.math("fabs", ex.computed(dtype)), ex.text(w, x))
    if not dtype.is_int or dtype.is_uint:
        return ATOM, ex.text(w, x, ATOM)
    w.helpers.add(
        f"abs_{suffix(dtype)}",
        f"static inline {register_type(dtype)} abs_{suffix(dtype)}({register_type(dtype)} x) {{\n"
        f"    return x < 0 ? {w.helpers.use(f'sub_{suffix(dtype)}')}(0, x) : x;\n}}",
    )
    return ex.call(f"abs_{suffix(dtype)}", ex.text(w, x))


def _fma(w: Writer, node: tir.Call) -> Text:
    _need(node, 3)
    a, b, addend = node.args
    if node.dtype.is_int:
        return ex.text_of(w, tir.Add(node.dtype, tir.Mul(node.dtype, a, b), addend))
    function = ex.math("fma", ex.computed(node.dtype))
    return ex.rounded(w, node.dtype, ex.call(function, *(ex.text(w, x) for x in node.args)))


def _ldexp(w: Writer, node: tir.Call) -> Text:
    _need(node, 2, node.dtype.is_float and node.args[1].dtype.is_int)
    n = ex.text_of(w, tir.Cast(DType.of("int64"), node.args[1]))[1]
    function = ex.math("ldexp", ex.computed(node.dtype))
    return ex.rounded(w, node.dtype, ex.call(function, ex.text(w, node.args[0]), f"{w.helpers.use('exponent')}({n})"))


def _nextafter(w: Writer, node: tir.Call) -> Text:
    if is_narrow_float(node.dtype):
        raise refuse(f"`T.nextafter` of {node.dtype} is not supported", node.span)
    return _libm("nextafter", 2)(w, node)


# ---------------------------------------------------------------- integers and bits


def _bitwise(symbol: str) -> Print:
    def emit(w: Writer, node: tir.Call) -> Text:
        _need(node, 2, all(a.dtype is node.dtype for a in node.args) and not node.dtype.is_float)
        sides = (ex.text(w, a, UNARY) for a in node.args)
        type = register_type(node.dtype)
        return UNARY, f"({type})({f' {symbol} '.join(sides)})"

    return emit


def _bitwise_not(w: Writer, node: tir.Call) -> Text:
    _need(node, 1, not node.dtype.is_float)
    type, x = register_type(node.dtype), ex.text(w, node.args[0], UNARY)
    return (UNARY, f"!{x}") if node.dtype.is_bool else (UNARY, f"({type})~({type}){x}")


def _shift(base: str) -> Print:
    def emit(w: Writer, node: tir.Call) -> Text:
        _need(node, 2, node.dtype.is_int and all(a.dtype is node.dtype for a in node.args))
        return ex.helper(w, base, node.dtype, *node.args)

    return emit


def _unsigned_bits(w: Writer, node: tir.Expr) -> str:
    """Print an integer zero-extended to 64 bits."""
    return f"(uint{node.dtype.bits}_t){ex.text(w, node, UNARY)}"


def _popcount(w: Writer, node: tir.Call) -> Text:
    _need(node, 1, node.args[0].dtype.is_int)
    count = f"{w.helpers.use('popcount')}({_unsigned_bits(w, node.args[0])})"
    return UNARY, f"({register_type(node.dtype)}){count}"


def _clz(w: Writer, node: tir.Call) -> Text:
    _need(node, 1, node.args[0].dtype.is_int)
    args = f"{_unsigned_bits(w, node.args[0])}, {node.args[0].dtype.bits}"
    return UNARY, f"({register_type(node.dtype)}){w.helpers.use('count_leading_zeros')}({args})"


def _q_multiply_shift(w: Writer, node: tir.Call) -> Text:
    _need(node, 4, all(a.dtype.is_int for a in node.args))
    return ex.call(w.helpers.use("q_multiply_shift"), *(ex.text(w, a) for a in node.args))


def _reinterpret(w: Writer, node: tir.Call) -> Text:
    """The same bits as another dtype of the same size."""
    _need(node, 1)
    source, target = node.args[0].dtype, node.dtype
    if source.is_handle or target.is_handle:
        return ex.convert(w, node.args[0], target)
    if source.bytes != target.bytes:
        raise refuse(f"`T.reinterpret` of {source} as {target}: the sizes differ", node.span)
    bits = ex.to_memory(w, node.args[0])
    unsigned = f"uint{8 * source.bytes}_t"
    if source.is_float and not is_narrow_float(source):
        bits = f"{w.helpers.use(f'bits_of_{suffix(source)}')}({bits})"
    elif memory_type(source) != unsigned:
        bits = f"({unsigned})({bits})"
    if target.is_float and not is_narrow_float(target):
        return ex.call(w.helpers.use(f"of_bits_{suffix(target)}"), bits)
    if target.is_int and not target.is_uint:
        return UNARY, f"({memory_type(target)})({bits})"
    return ex.from_memory(w, f"({bits})", target)


# ---------------------------------------------------------------- pointers, the rest


def _if_then_else(w: Writer, node: tir.Call) -> Text:
    _need(node, 3)
    return ex.choice(w, *node.args)


def _first_argument(w: Writer, node: tir.Call) -> Text:
    return ATOM, ex.text(w, node.args[0], ATOM)


def _nothing(w: Writer, node: tir.Call) -> Text:
    """A hint without effect; its arguments are not evaluated."""
    return ATOM, "0"


def _true(w: Writer, node: tir.Call) -> Text:
    return ATOM, "true"


def _isnullptr(w: Writer, node: tir.Call) -> Text:
    _need(node, 1, node.args[0].dtype.is_handle)
    return EQUAL, f"{ex.text(w, node.args[0], EQUAL + 1)} == NULL"


def _address_of(w: Writer, node: tir.Call) -> Text:
    match node.args:
        case (tir.BufferLoad(buffer=buffer, indices=(index,)),):
            return UNARY, "&" + w.element(buffer, index.base if isinstance(index, tir.Ramp) else index)
        case (tir.Var() as var,):
            return ATOM, w.name(var)
    raise refuse("`T.address_of` takes an element of a buffer", node.span)


def _access_ptr(w: Writer, node: tir.Call) -> Text:
    """tvm_access_ptr(type, data, offset in elements, extent, mask)."""
    _need(node, 5)
    element = node.args[0].dtype
    type = "unsigned char" if element.is_void else memory_type(element)
    offset = ex.index(w, node.args[2], PRODUCT)
    if element.lanes > 1:
        offset = f"{ex.index(w, node.args[2], PRODUCT)} * {element.lanes}"
    return SUM, f"({type} *){ex.text(w, node.args[1], UNARY)} + {offset}"


def _byte_offset(w: Writer, node: tir.Call) -> Text:
    _need(node, len(node.args), len(node.args) > 1 and node.args[0].dtype.is_handle and node.args[1].dtype.is_int)
    pointer, offset = ex.text(w, node.args[0], UNARY), ex.index(w, node.args[1], PRODUCT)
    return UNARY, f"(void *)((unsigned char *){pointer} + {offset})"


def _llvm_intrinsic(w: Writer, node: tir.Call) -> Text:
    """An LLVM intrinsic that TensorIR has as well."""
    first = node.args[0] if node.args else None
    base = first.value.removeprefix("llvm.") if isinstance(first, tir.StringImm) else ""
    if base.startswith("prefetch"):
        return _nothing(w, node)
    name, count = _LLVM.get(base, ("", 0))
    args = node.args[1:]
    if len(args) == count + 1 and tir.const_int(args[0]) is not None:
        args = args[1:]  # older texts give the number of operands that select the overload
    if not name or len(args) != count:
        help = "use the intrinsic of TensorIR, such as `T.exp`"
        raise refuse(f"the LLVM intrinsic `{base}` has no form in C", node.span, help=help)
    return TABLE[name](w, tir.Call(node.dtype, tir.Op(f"tir.{name}"), args, span=node.span))


_LLVM = {
    **{name: (name, 1) for name in ("fabs", "sqrt", "exp", "exp2", "log", "log2", "log10", "sin", "cos", "floor",
                                    "ceil", "trunc", "nearbyint")},
    "rint": ("nearbyint", 1), "pow": ("pow", 2), "copysign": ("copysign", 2), "fma": ("fma", 3),
    "ctpop": ("popcount", 1),
}  # fmt: skip
_HINTS = ("prefetch", "tvm_kernel_replace_point", "start_profile_intrinsic", "end_profile_intrinsic", "undef",
          "tvm_storage_sync")  # fmt: skip
_UNARY = """
    exp exp2 tanh sinh cosh erf log log2 log10 log1p sqrt atan asin acos sin cos tan asinh acosh atanh floor ceil trunc
    nearbyint
"""
_BINARY = ("pow", "hypot", "atan2", "fmod", "copysign")

TABLE: dict[str, Print] = {
    **{name: _libm(name) for name in _UNARY.split()}, **{name: _libm(name, 2) for name in _BINARY},
    "round": _libm("nearbyint"), "fabs": _abs, "abs": _abs, "exp10": _exp10, "sigmoid": _sigmoid, "rsqrt": _rsqrt,
    "nextafter": _nextafter, "fma": _fma, "ldexp": _ldexp, "infinity": _infinity,
    **{name: _classify(name) for name in ("isnan", "isinf", "isfinite")},
    "bitwise_and": _bitwise("&"), "bitwise_or": _bitwise("|"), "bitwise_xor": _bitwise("^"),
    "bitwise_not": _bitwise_not, "shift_left": _shift("shift_left"), "shift_right": _shift("shift_right"),
    "popcount": _popcount, "clz": _clz, "q_multiply_shift": _q_multiply_shift, "reinterpret": _reinterpret,
    "if_then_else": _if_then_else, "isnullptr": _isnullptr, "assume": _true,
    **dict.fromkeys(
        ("assume_number", "allow_reciprocal", "likely", "tvm_thread_invariant", "ignore_loop_partition"),
        _first_argument,
    ),
    **dict.fromkeys(_HINTS, _nothing),
    "address_of": _address_of, "tvm_access_ptr": _access_ptr,
    "handle_add_byte_offset": _byte_offset, "ptr_byte_offset": _byte_offset,
    "call_extern": extern_call, "call_pure_extern": extern_call,
    "call_llvm_intrin": _llvm_intrinsic, "call_llvm_pure_intrin": _llvm_intrinsic,
}  # fmt: skip
