"""Intrinsics of GPU threads: barriers, shuffles, atomics. `TABLE` maps names (without `tir.`) to emitters.

Names and arguments are TVM's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mlcc.ir import tir
from mlcc.ir.construct import round_float
from mlcc.ir.dtypes import FLOAT32, DType
from mlcc.targets.llvm.codegen import casts, memory
from mlcc.targets.llvm.codegen.device_externs import extern
from mlcc.targets.llvm.codegen.ir_text import Value, floating, integer, vector
from mlcc.targets.llvm.codegen.refuse import unsupported
from mlcc.targets.llvm.codegen.types import memory_type, register_type, zero

if TYPE_CHECKING:
    from mlcc.targets.cuda.emitter import DeviceEmitter

Emit = Callable[[Any, tir.Call], Value]


def nvvm(e: DeviceEmitter, name: str, ret: str, *args: Value) -> Value:
    """Call `llvm.nvvm.NAME`."""
    callee = e.ctx.module.declare(f"llvm.nvvm.{name}", ret, [a.type for a in args])
    return e.fn.call(ret, callee, args)


# ---------------------------------------------------------------- barriers


def _sync(e: DeviceEmitter, node: tir.Call) -> Value:
    """tvm_storage_sync("shared" or "warp"): a barrier of the block, or of the warp."""
    scope = node.args[0].value if node.args and isinstance(node.args[0], tir.StringImm) else ""
    if scope == "warp":
        nvvm(e, "bar.warp.sync", "void", integer("i32", -1))
    elif scope in ("shared", "shared.dyn"):
        nvvm(e, "barrier.cta.sync.aligned.all", "void", integer("i32", 0))
    else:
        help = 'use `T.tvm_storage_sync("shared")` or `("warp")`; consecutive kernels are ordered without a barrier'
        raise unsupported(f"there is no barrier for the scope `{scope}`", node.span, help=help)
    return zero(node.dtype)


# ---------------------------------------------------------------- shuffles

# suffix of TVM's name -> PTX's mode, and the clamp in the control operand: c = (32 - width) << 8 | clamp
_SHUFFLES = {"": ("idx", 31), "_up": ("up", 0), "_down": ("down", 31), "_xor": ("bfly", 31)}
WARP = 32


def _shuffle(suffix: str) -> Emit:
    """tvm_warp_shuffle(mask, value, lane or delta, width, 32): the value of another lane of the warp."""
    mode, clamp = _SHUFFLES[suffix]

    def emit(e: DeviceEmitter, node: tir.Call) -> Value:
        if len(node.args) != 5:
            raise unsupported(f"`T.tvm_warp_shuffle{suffix}` takes 5 arguments, not {len(node.args)}", node.span)
        mask, value, lane, width, warp = node.args
        if tir.const_int(warp) != WARP:
            raise unsupported(f"a warp has {WARP} threads", node.span)
        known = tir.const_int(width)
        if known is None or known not in (1, 2, 4, 8, 16, 32):
            raise unsupported("the width of a shuffle is 1, 2, 4, 8, 16 or 32", node.span)
        if not (mask.dtype.is_int and lane.dtype.is_int) or mask.dtype.lanes > 1 or lane.dtype.lanes > 1:
            raise unsupported("the mask and the lane of a shuffle are integers", node.span)
        if value.dtype.is_handle or value.dtype.is_void:
            raise unsupported(f"a shuffle of {value.dtype} is not supported", node.span)
        control = integer("i32", (WARP - known) << 8 | clamp)
        members, from_lane = (_int32(e, a) for a in (mask, lane))
        return _map_words(
            e, e.expr(value), value.dtype,
            lambda word: nvvm(e, f"shfl.sync.{mode}.i32", "i32", members, word, from_lane, control),
        )  # fmt: skip

    return emit


def _int32(e: DeviceEmitter, node: tir.Expr) -> Value:
    dtype = DType.of("uint32" if node.dtype.is_uint else "int32")
    return casts.cast(e, e.expr(node), node.dtype, dtype)


def _map_words(e: DeviceEmitter, value: Value, dtype: DType, function: Callable[[Value], Value]) -> Value:
    """Apply `function` to each 32-bit word of a value of any arithmetic dtype."""
    fn = e.fn
    packed = casts.to_memory(e, value, dtype)
    bits = dtype.bytes * 8 * dtype.lanes
    count = -(-bits // WARP)
    bits_value = fn.convert("bitcast", packed, f"i{bits}")
    bits_value = fn.convert("zext", bits_value, f"i{count * 32}")
    if count == 1:
        result = function(bits_value)
    else:
        words = fn.convert("bitcast", bits_value, f"<{count} x i32>")
        mapped = Value(words.type, "poison")
        for at in range(count):
            mapped = fn.insert(mapped, function(fn.extract(words, at)), at)
        result = fn.convert("bitcast", mapped, f"i{count * 32}")
    result = fn.convert("trunc", result, f"i{bits}")
    return casts.from_memory(e, fn.convert("bitcast", result, packed.type), dtype)


def _active_mask(e: DeviceEmitter, node: tir.Call) -> Value:
    """Return the mask of the active lanes of the warp."""
    return e.fn.op("i32", 'call i32 asm sideeffect "activemask.b32 $0;", "=r"() convergent nounwind')


# ---------------------------------------------------------------- atomics


def _atomic_add(e: DeviceEmitter, node: tir.Call) -> Value:
    """atomic_add(address, value, order...): add atomically, and return the old value."""
    if len(node.args) < 2:
        raise unsupported("`T.atomic_add` takes an address and a value", node.span)
    target, value = node.args[0], node.args[1]
    dtype = value.dtype
    is_supported = dtype.lanes == 1 and (
        dtype.is_int and dtype.bits >= 32 or dtype.kind == "float" and dtype.bits >= 32
    )
    if not (target.dtype.is_handle or isinstance(target, tir.BufferLoad)) or not is_supported:
        help = "use int32, uint32, int64, uint64, float32 or float64"
        raise unsupported(f"there is no atomic addition of {dtype}", node.span, help=help)
    if isinstance(target, tir.BufferLoad):
        address = memory.address(e, target.buffer, target.indices[0])
    else:
        address = e.expr(target)
    operand = e.expr(value)
    op = "fadd" if dtype.is_float else "add"
    text = f'atomicrmw {op} {address}, {operand} syncscope("device") monotonic, align {dtype.bytes}'
    return e.fn.op(memory_type(dtype), text)


# ---------------------------------------------------------------- products of bytes


def _dp4a(e: DeviceEmitter, node: tir.Call) -> Value:
    """dp4a(a, b[, c]): for each int32 lane the dot product of four bytes, added to `c`; one instruction per lane."""
    fn, lanes = e.fn, node.dtype.lanes
    one, other, *start = node.args
    fits = all(a.dtype.is_int and a.dtype.bits == 8 and a.dtype.lanes in (4, 4 * lanes) for a in (one, other))
    if not fits or len(start) > 1 or any(a.dtype is not node.dtype for a in start):
        raise unsupported("`T.dp4a` takes two vectors of four 8-bit integers for each int32, or for all", node.span)
    kinds = ".".join("u" if a.dtype.is_uint else "s" for a in (one, other))
    words = [fn.convert("bitcast", e.expr(a), vector("i32", a.dtype.lanes // 4)) for a in (one, other)]
    sums = e.expr(start[0]) if start else zero(node.dtype)
    dots = Value(register_type(node.dtype), "poison")
    for lane in range(lanes):
        given = [v if v.type == "i32" else fn.extract(v, lane) for v in (*words, sums)]
        dot = nvvm(e, f"idp4a.{kinds}", "i32", *given)
        dots = fn.insert(dots, dot, lane) if lanes > 1 else dot
    return dots


# ---------------------------------------------------------------- functions of C

_LOG2_E = round_float(1.4426950408889634, FLOAT32)


def _fast_exp(e: DeviceEmitter, x: Value) -> Value:
    """`__expf`: exp(x) as 2**(x * log2(e)) by `ex2.approx`.

    The relative error is 2**-22 plus that of rounding x * log2(e) (CUDA programming guide, "Intrinsic Functions").
    Denormal results are flushed to 0.
    """
    return _fast_exp2(e, e.fn.binary("fmul", x, floating("float", _LOG2_E)))


def _fast_exp2(e: DeviceEmitter, x: Value) -> Value:
    """`__exp2f`: 2**x by `ex2.approx`, with a relative error of 2**-22. Denormal results are flushed to 0."""
    return nvvm(e, "ex2.approx.ftz.f", "float", x)


_FAST: dict[str, Callable[[DeviceEmitter, Value], Value]] = {"__expf": _fast_exp, "__exp2f": _fast_exp2}


def _extern(e: DeviceEmitter, node: tir.Call) -> Value:
    """Emit a libm function that devices support, or one of `_FAST`. Raises CompileError for others."""
    name = node.args[0].value if node.args and isinstance(node.args[0], tir.StringImm) else ""
    if name in _FAST and len(node.args) == 2 and node.dtype is node.args[1].dtype is FLOAT32:
        return _FAST[name](e, e.expr(node.args[1]))
    return extern(e, node)


# ---------------------------------------------------------------- unsupported calls


def unsupported_call(what: str, help: str) -> Emit:
    def emit(e: DeviceEmitter, node: tir.Call) -> Value:
        raise unsupported(what, node.span, help=help)

    return emit


_HOST_ONLY = unsupported_call(
    "a kernel cannot call a packed function",
    "kernels cannot call back to the host: call it from the graph, or outside the thread-bound loops",
)

TABLE: dict[str, Emit] = {
    "tvm_storage_sync": _sync,
    **{f"tvm_warp_shuffle{suffix}": _shuffle(suffix) for suffix in _SHUFFLES},
    "tvm_warp_activemask": _active_mask,
    "atomic_add": _atomic_add,
    "dp4a": _dp4a,
    **dict.fromkeys(("call_extern", "call_pure_extern"), _extern),
    **dict.fromkeys(("call_packed", "tvm_call_packed", "call_cpacked", "tvm_call_cpacked"), _HOST_ONLY),
}
