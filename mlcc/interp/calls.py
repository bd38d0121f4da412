"""Intrinsics: mathematical functions, bit operations, pointers, and calls into the environment."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from mlcc.interp import arithmetic
from mlcc.interp.arithmetic import Value
from mlcc.interp.environment import call_extern, call_packed
from mlcc.interp.memory import Pointer, compact_strides
from mlcc.interp.state import State
from mlcc.ir import tir
from mlcc.ir.checked_index import checked_index
from mlcc.ir.dtypes import DType
from mlcc.ir.tir import Expr
from mlcc.runtime.abi import fill_numbers

if TYPE_CHECKING:
    from mlcc.interp.expressions import CompiledExpr, ExprCompiler


class Returned(Exception):
    """Raised at `T.ret(value)`."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


def compile_call(compiler: ExprCompiler, node: tir.Call) -> CompiledExpr:
    """The closure of an intrinsic call."""
    from mlcc.interp.expressions import unsupported

    name = node.op.name.removeprefix("tir.")
    special = _SPECIAL.get(name)
    if special is not None:
        return special(compiler, node)  # type: ignore[no-any-return]
    rule = _rule(name, node)
    if rule is None:
        raise unsupported(f"`{name}`", node)
    args = compiler.exprs(node.args)
    if len(args) == 1:
        only = args[0]
        return lambda s: rule(only(s))
    return lambda s: rule(*[a(s) for a in args])


# ---------------------------------------------------------------- functions of numbers


def _rule(name: str, node: tir.Call) -> Callable[..., Value] | None:
    dtype = node.args[0].dtype if node.args else node.dtype
    if name in _TESTS:
        test = _TESTS[name]
        return (lambda x: test(x)) if dtype.is_float else (lambda x: np.full(np.shape(x), name == "isfinite")[()])
    if name in _BITS and (dtype.is_int or dtype.is_bool):
        return functools.partial(_BITS[name], dtype=dtype.element)
    function = MATH.get(name)
    if function is None:
        return None
    return in_float_dtype(function, node.dtype.element)


def in_float_dtype(function: Callable[..., Value], dtype: DType) -> Callable[..., Value]:
    """`function` on values of a floating `dtype`: narrow types compute in float32 and round once."""
    if not dtype.is_float:
        kind = arithmetic.carrier(dtype)
        return lambda *a: np.asarray(function(*a)).astype(kind)[()]
    if dtype.bits >= 32:
        kind = arithmetic.carrier(dtype)
        return lambda *a: np.asarray(function(*a)).astype(kind, copy=False)[()]
    return lambda *a: arithmetic.narrowed(function(*[arithmetic.widened(v) for v in a]), dtype)


def _elementwise(function: Callable[[float], float]) -> Callable[..., Value]:
    """A function of one Python float on arrays, in float64."""

    def one(x: float) -> float:
        try:
            return function(x)
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan

    vectorized = np.frompyfunc(one, 1, 1)
    return lambda x: np.asarray(vectorized(np.asarray(x, np.float64))).astype(np.float64)


def _wide(function: Callable[..., Value]) -> Callable[..., Value]:
    """float32 by way of float64: correctly rounded in nearly every case."""
    return lambda *a: function(*[np.asarray(v, np.float64) for v in a])


MATH: dict[str, Callable[..., Value]] = {
    "exp": _wide(np.exp), "exp2": _wide(np.exp2), "exp10": _wide(lambda x: np.power(10.0, x)),
    "log": _wide(np.log), "log2": _wide(np.log2), "log10": _wide(np.log10), "log1p": _wide(np.log1p),
    "sqrt": np.sqrt, "rsqrt": _wide(lambda x: 1.0 / np.sqrt(x)), "sigmoid": _wide(lambda x: 1.0 / (1.0 + np.exp(-x))),
    "sin": _wide(np.sin), "cos": _wide(np.cos), "tan": _wide(np.tan), "sinh": _wide(np.sinh), "cosh": _wide(np.cosh),
    "tanh": _wide(np.tanh), "asin": _wide(np.arcsin), "acos": _wide(np.arccos), "atan": _wide(np.arctan),
    "asinh": _wide(np.arcsinh), "acosh": _wide(np.arccosh), "atanh": _wide(np.arctanh),
    "atan2": _wide(np.arctan2), "hypot": _wide(np.hypot), "pow": _wide(np.power), "fmod": np.fmod,
    "erf": _elementwise(math.erf), "erfc": _elementwise(math.erfc), "lgamma": _elementwise(math.lgamma),
    "tgamma": _elementwise(math.gamma), "cbrt": _wide(np.cbrt), "expm1": _wide(np.expm1),
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint, "nearbyint": np.rint, "rint": np.rint,
    "fabs": np.abs, "copysign": np.copysign, "nextafter": np.nextafter, "ldexp": np.ldexp,
    "fma": lambda a, b, c: np.asarray(a, np.longdouble) * np.asarray(b, np.longdouble) + np.asarray(c, np.longdouble),
    "fdim": lambda a, b: np.where(a > b, a - b, np.where(np.isnan(a) | np.isnan(b), np.nan, 0.0)),
    "fmin": np.fmin, "fmax": np.fmax,
}  # fmt: skip
_TESTS = {"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite}


def _unsigned(value: Value, dtype: DType) -> np.ndarray:
    """The bits of an integer, in uint64."""
    return np.asarray(value).astype(np.uint64) & np.uint64((1 << dtype.bits) - 1)


def _popcount(value: Value, dtype: DType) -> Value:
    return np.bitwise_count(_unsigned(value, dtype)).astype(arithmetic.carrier(dtype))[()]


def _clz(value: Value, dtype: DType) -> Value:
    bits = _unsigned(value, dtype)
    length = np.zeros(bits.shape, np.int32)
    for step in (32, 16, 8, 4, 2, 1):
        high = bits >> np.uint64(step)
        more = high != 0
        length = np.where(more, length + step, length)
        bits = np.where(more, high, bits)
    return (dtype.bits - np.where(bits != 0, length + 1, 0)).astype(np.int32)[()]


def _shift(a: Value, n: Value, left: bool, dtype: DType) -> Value:
    a, n = np.asarray(a), np.asarray(n)
    inside = (n >= 0) & (n < dtype.bits)
    count = np.where(inside, n, 0).astype(a.dtype)
    shifted = np.left_shift(a, count) if left else np.right_shift(a, count)
    out = np.zeros((), a.dtype) if left else np.where(a < 0, np.array(-1).astype(a.dtype), np.zeros((), a.dtype))
    shifted = np.where(inside, shifted, out).astype(a.dtype)[()]
    back = arithmetic.rounding_function(dtype)
    return shifted if back is None else back(shifted)


def _bit_not(a: Value, dtype: DType) -> Value:
    if dtype.is_bool:
        return np.logical_not(a)
    back = arithmetic.rounding_function(dtype)
    inverted = np.bitwise_not(a)
    return inverted if back is None else back(inverted)


def _abs(a: Value, dtype: DType) -> Value:
    return a if dtype.is_uint or dtype.is_bool else np.where(np.asarray(a) < 0, 0 - np.asarray(a), a)[()]


_BITS: dict[str, Callable[..., Value]] = {
    "bitwise_and": lambda a, b, dtype: np.bitwise_and(a, b),
    "bitwise_or": lambda a, b, dtype: np.bitwise_or(a, b),
    "bitwise_xor": lambda a, b, dtype: np.bitwise_xor(a, b),
    "bitwise_not": _bit_not, "popcount": _popcount, "clz": _clz, "abs": _abs, "fabs": _abs,
    "shift_left": functools.partial(_shift, left=True), "shift_right": functools.partial(_shift, left=False),
}  # fmt: skip


# ---------------------------------------------------------------- calls that are not functions of numbers


def _first_argument(compiler: ExprCompiler, node: tir.Call) -> CompiledExpr:
    """`likely(x)` and the like: x."""
    return compiler.expr(node.args[0])


def _no_op(compiler: ExprCompiler, node: tir.Call) -> CompiledExpr:
    """Barriers and hints, which do nothing because iterations run in order."""
    zero = np.int32(0)
    return lambda s: zero


def _checked_index(compiler: ExprCompiler, node: tir.Call) -> CompiledExpr:
    """Check an index and bring it within bounds; inactive vectorized iterations and lanes are ignored."""
    from mlcc.interp.expressions import unsupported

    parts = checked_index(node)
    if parts is None:
        raise unsupported("`T.checked_index` of these arguments", node)
    index, extent = compiler.expr(parts.index), compiler.expr(parts.extent)
    vector, turns = node.dtype.lanes > 1, parts.from_end and not parts.index.dtype.is_uint

    def run(s: State) -> Value:
        index_values, size = np.asarray(index(s)), np.asarray(extent(s)).astype(np.int64)
        if vector and size.ndim and size.shape[-1:] != index_values.shape[-1:]:
            size = size[..., None]
        wide = index_values.astype(np.int64)
        place = np.where(wide < 0, wide + size, wide) if turns else wide
        outside = (place < 0) | (place >= size)
        if outside.any():
            bad = s.active_lanes(outside) if vector else s.active(outside)
            if bad.any():
                first = int(np.argmax(bad))
                shape = bad.shape
                one, count = (int(np.broadcast_to(v, shape).ravel()[first]) for v in (index_values, size))
                s.fault("E0818", fill_numbers(parts.message, one, count), node)
            place = np.where(outside, 0, place)
        return place[()]

    return run


def _constant_true(compiler: ExprCompiler, node: tir.Call) -> CompiledExpr:
    yes = np.bool_(True)
    return lambda s: yes


def _reinterpret(compiler: ExprCompiler, node: tir.Call) -> CompiledExpr:
    """Reinterpret the bits as another type."""
    source, to = node.args[0].dtype, node.dtype
    value = compiler.expr(node.args[0])
    if source.is_handle or to.is_handle:
        return value

    def run(s: State) -> Value:
        raw = np.asarray(arithmetic.to_memory(value(s), source))
        raw = raw.astype(arithmetic.stored(source))
        if source.element.bits == to.element.bits:
            bits = raw.view(arithmetic.stored(to))
        else:
            bits = np.ascontiguousarray(raw).view(arithmetic.stored(to))
        return arithmetic.from_memory(bits, to)[()]

    return run


def _vector_half(compiler: ExprCompiler, node: tir.Call) -> CompiledExpr:
    value, lanes = compiler.expr(node.args[0]), node.dtype.lanes
    low = node.op.name.endswith("low")
    return lambda s: np.asarray(value(s))[..., :lanes] if low else np.asarray(value(s))[..., -lanes:]


def _combine(compiler: ExprCompiler, node: tir.Call) -> CompiledExpr:
    a, b = compiler.exprs(node.args)

    def run(s: State) -> Value:
        return np.concatenate(np.broadcast_arrays(a(s), b(s)), axis=-1)

    return run


def _return(compiler: ExprCompiler, node: tir.Call) -> CompiledExpr:
    value = compiler.expr(node.args[0]) if node.args else None

    def run(s: State) -> Value:
        raise Returned(None if value is None else value(s))

    return run


def _extern(compiler: ExprCompiler, node: tir.Call) -> CompiledExpr:
    """A C function by name: libm's by their meaning, others from the environment."""
    name = node.args[0].value  # type: ignore[attr-defined]
    args = compiler.exprs(node.args[1:])
    known = libm(name)
    if known is not None and node.dtype.is_float:
        rule = in_float_dtype(known, node.dtype.element)
        return lambda s: rule(*[a(s) for a in args])
    return lambda s: call_extern(name, [a(s) for a in args], node, s)


def libm(name: str) -> Callable[..., Value] | None:
    """The C library's function of that name (`sinf`, `sin`)."""
    plain = {"fabs": "fabs", "round": None, "lround": None}.get(name, name)
    if name in ("round", "roundf"):
        return lambda x: np.trunc(x + np.copysign(0.5, x)) if np.ndim(x) == 0 else _round_away(x)
    if plain in MATH and plain not in _NOT_C:
        return MATH[plain]
    if name.endswith("f") and name[:-1] in MATH and name[:-1] not in _NOT_C:
        return MATH[name[:-1]]
    return None


_NOT_C = frozenset({"sigmoid", "rsqrt", "round"})


def _round_away(x: Value) -> Value:
    """Round as C's `round`: ties away from zero."""
    truncated = np.trunc(x)
    return truncated + np.copysign(np.abs(x - truncated) >= 0.5, x)


def _packed(compiler: ExprCompiler, node: tir.Call) -> CompiledExpr:
    name = node.args[0].value  # type: ignore[attr-defined]
    args = compiler.exprs(node.args[1:])
    dtypes = [a.dtype for a in node.args[1:]]
    return lambda s: call_packed(name, [a(s) for a in args], dtypes, node, s)


def _address_of(compiler: ExprCompiler, node: tir.Call) -> CompiledExpr:
    from mlcc.interp.expressions import unsupported

    load = node.args[0]
    if not isinstance(load, tir.BufferLoad):
        raise unsupported("`address_of` of anything but an element of a buffer", node)
    indices, _ = compiler.indices(load.indices)
    buffer = load.buffer

    def run(s: State) -> Pointer:
        view = s.view(buffer, node)
        at = view.offset
        for index, stride in zip(indices(s), view.strides, strict=True):
            at = at + np.asarray(index).astype(np.int64)[()] * stride
        return Pointer(view.storage, at * arithmetic.stored(buffer.dtype).itemsize * buffer.dtype.lanes)

    return run


def _access_ptr(compiler: ExprCompiler, node: tir.Call) -> CompiledExpr:
    """tvm_access_ptr(type, data, offset, extent, mask): data plus offset elements of the type."""
    from mlcc.interp.expressions import pointer_of

    kind, data, offset, *_ = node.args
    place, shift = compiler.expr(data), compiler.expr(offset)
    size = arithmetic.stored(kind.dtype).itemsize * kind.dtype.lanes

    def run(s: State) -> Pointer:
        base = pointer_of(place(s), s, node)
        return Pointer(base.storage, base.offset + np.asarray(shift(s)).astype(np.int64)[()] * size)

    return run


def _byte_offset(compiler: ExprCompiler, node: tir.Call) -> CompiledExpr:
    from mlcc.interp.expressions import pointer_of

    place, shift = compiler.expr(node.args[0]), compiler.expr(node.args[1])

    def run(s: State) -> Pointer:
        base = pointer_of(place(s), s, node)
        return Pointer(base.storage, base.offset + np.asarray(shift(s)).astype(np.int64)[()])

    return run


def _make_array(compiler: ExprCompiler, node: tir.Call) -> CompiledExpr:
    """tvm_stack_make_array(data, shape, strides or 0, ndim, a constant of the dtype, offset): the array itself."""
    from mlcc.interp.expressions import pointer_of, unsupported

    data, shape, strides, _, element, offset = node.args
    if not isinstance(shape, tir.Call):
        raise unsupported("`tvm_stack_make_array` without `tvm_stack_make_shape`", node)
    place, start, dims = compiler.expr(data), compiler.expr(offset), compiler.exprs(shape.args)
    steps = compiler.exprs(strides.args) if isinstance(strides, tir.Call) else None
    kind = arithmetic.stored(element.dtype)

    def run(s: State) -> np.ndarray:
        base = pointer_of(place(s), s, node)
        sizes = tuple(int(d(s)) for d in dims)
        by = compact_strides(sizes) if steps is None else tuple(int(x(s)) for x in steps)
        first = int(base.offset) // kind.itemsize + int(start(s))
        reach = 0 if 0 in sizes else first + 1 + sum((n - 1) * step for n, step in zip(sizes, by, strict=True))
        elements = base.storage.typed(kind)
        if first < 0 or reach > len(elements) or any(step < 0 for step in by):
            s.fault("E0870", "the array reaches outside the memory of its data", node)
        if base.storage.defined is not None:
            base.storage.defined[:] = True  # the callee may write any of it
        return np.lib.stride_tricks.as_strided(elements[first:], sizes, [step * kind.itemsize for step in by])

    return run


def _is_null(compiler: ExprCompiler, node: tir.Call) -> CompiledExpr:
    value = compiler.expr(node.args[0])
    return lambda s: np.bool_(not isinstance(value(s), Pointer))


def _type(compiler: ExprCompiler, node: tir.Call) -> CompiledExpr:
    return lambda s: node.dtype


def _lane_mask(compiler: ExprCompiler, node: tir.Call) -> CompiledExpr:
    base, limit = compiler.exprs(node.args)
    steps = np.arange(node.dtype.lanes)
    return lambda s: np.asarray(base(s))[..., None] + steps < np.asarray(limit(s))[..., None]


def _multiply_shift(compiler: ExprCompiler, node: tir.Call) -> CompiledExpr:
    """round(x * y * 2**(s - q)) for q fractional bits in y, ties upward."""
    args = compiler.exprs(node.args)

    def run(s: State) -> Value:
        x, y, q, shift = (np.asarray(a(s)).astype(np.int64) for a in args)
        left = np.where(shift > 0, shift, 0)
        right = np.where(shift > 0, 0, -shift)
        total = right + q
        product = (x << left) * y
        return ((product + (np.int64(1) << (total - 1))) >> total).astype(np.int32)[()]

    return run


def _dot(compiler: ExprCompiler, node: tir.Call) -> CompiledExpr:
    """`dp4a` and `dp2a`: sums of the products of some neighbours each, as int32 or float32, and perhaps another number.
    An operand of one group is taken for all lanes. Floats are summed one after the other, the last product first."""
    one, other, *start = compiler.exprs(node.args)
    size, single = 32 // node.args[0].dtype.bits, node.dtype.lanes == 1
    dtype = np.float32 if node.dtype.is_float else np.int32

    def groups(values: Value) -> Value:
        values = np.asarray(values).astype(dtype)
        return values.reshape(*values.shape[:-1], -1, size)

    def run(s: State) -> Value:
        products = groups(one(s)) * groups(other(s))
        products = products[..., 0, :] if single else products
        sums = np.asarray(start[0](s)) if start else np.zeros((), dtype)
        for member in reversed(range(size)):
            sums = sums + products[..., member]
        return sums[()]

    return run


_SPECIAL: dict[str, Callable[[Any, tir.Call], Any]] = {
    "assume_number": _first_argument, "allow_reciprocal": _first_argument, "likely": _first_argument, "ret": _return,
    "reinterpret": _reinterpret,
    "vectorlow": _vector_half, "vectorhigh": _vector_half, "vectorcombine": _combine, "call_extern": _extern,
    "call_pure_extern": _extern, "call_packed": _packed, "call_cpacked": _packed, "address_of": _address_of,
    "tvm_access_ptr": _access_ptr, "handle_add_byte_offset": _byte_offset, "isnullptr": _is_null,
    "type_annotation": _type, "tvm_stack_make_array": _make_array, "get_active_lane_mask": _lane_mask,
    "q_multiply_shift": _multiply_shift, "assume": _constant_true, "dp4a": _dot, "dp2a": _dot,
    "ignore_loop_partition": _first_argument, "tvm_thread_invariant": _first_argument, "tvm_storage_sync": _no_op,
    "checked_index": _checked_index, "sanitize_index": _first_argument, "sanitize_view": _first_argument,
    "sanitize_read": _first_argument, "sanitize_write": _first_argument, "sanitize_shared_read": _first_argument,
    "sanitize_shared_write": _first_argument, "ptx_commit_group": _no_op, "ptx_wait_group": _no_op, "prefetch": _no_op,
    "tvm_kernel_replace_point": _no_op, "start_profile_intrinsic": _no_op, "end_profile_intrinsic": _no_op,
}  # fmt: skip


def is_static(node: Expr) -> bool:
    """Return True if a call has no side effects that prevent vectorizing the iterations around it."""
    if not isinstance(node, tir.Call) or not isinstance(node.op, tir.Op):
        return False
    name = node.op.name.removeprefix("tir.")
    if name in ("call_extern", "call_pure_extern"):
        return node.dtype.is_float and libm(node.args[0].value) is not None  # type: ignore[attr-defined]
    return name not in ("ret", "call_packed", "call_cpacked", "tvm_storage_sync")
