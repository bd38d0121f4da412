"""Emit conversions between dtypes, and between register and memory types. See `docs/semantics.md`, "Casts"."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.targets.llvm.codegen import small_float
from mlcc.targets.llvm.codegen.ir_text import Value, floating, integer, vector
from mlcc.targets.llvm.codegen.refuse import unsupported
from mlcc.targets.llvm.codegen.types import is_small_float, memory_type, register_type, zero

if TYPE_CHECKING:
    from mlcc.targets.llvm.codegen.emitter import Emitter


def cast_node(e: Emitter, node: tir.Cast) -> Value:
    if node.dtype.lanes != node.value.dtype.lanes:
        raise unsupported(f"a cast of {node.value.dtype} to {node.dtype} changes the lanes", node.span)
    to_int = node.value.dtype.is_float and not node.dtype.is_float
    fast, e.fast = e.fast, "" if to_int else e.fast  # a rounding difference could change the integer, and thus an index
    value = e.expr(node.value)
    e.fast = fast
    return cast(e, value, node.value.dtype, node.dtype)


def cast(e: Emitter, value: Value, source: DType, target: DType) -> Value:
    """Convert `value` from dtype `source` to `target`."""
    fn = e.fn
    type = register_type(target)
    if source is target:
        return value
    if target.is_bool:
        return fn.fcmp("une", value, zero(source)) if source.is_float else fn.icmp("ne", value, zero(source))
    if source.is_handle or target.is_handle:
        op = "inttoptr" if target.is_handle else "ptrtoint"
        return value if source.is_handle and target.is_handle else fn.convert(op, fn.generic(value), type)
    if target.is_float:
        return _to_float(e, value, source, target)
    if source.is_float:
        return _to_int(e, value, target)
    if source.is_bool:
        return fn.convert("zext", value, type)
    if source.bits > target.bits:
        return fn.convert("trunc", value, type)
    return fn.convert("zext" if source.is_uint else "sext", value, type)


def _to_float(e: Emitter, value: Value, source: DType, target: DType) -> Value:
    fn = e.fn
    type = register_type(target)
    if not source.is_float:
        converted = fn.convert("sitofp" if source.kind == "int" else "uitofp", value, type)
        return small_float.rounded(e, converted, target)
    if is_small_float(target):
        return (small_float.from_double if source.bits == 64 else small_float.rounded)(e, value, target)
    return fn.convert("fptrunc" if source.bits == 64 else "fpext", value, type)


def _to_int(e: Emitter, value: Value, target: DType) -> Value:
    """Convert to an integer, saturating, NaN to 0.

    If the CPU's conversion does not saturate, the value is clamped first: LLVM's would be scalarised.
    """
    type, lanes = register_type(target), target.lanes
    if e.ctx.architecture in ("aarch64", "riscv64"):
        name = f"llvm.fpto{'u' if target.is_uint else 's'}i.sat.{mangled(type)}.{mangled(value.type)}"
        return e.fn.call(type, e.ctx.module.declare(name, type, [value.type]), [value])
    if e.ctx.is_gpu and "double" not in value.type and target.bits <= 32:
        return _to_int_on_gpu(e, value, target)
    fn, scalar = e.fn, "double" if "double" in value.type else "float"
    bits = target.bits if target.is_uint else target.bits - 1
    least, greatest = (0 if target.is_uint else -(1 << bits)), (1 << bits) - 1
    digits = min(bits, 53 if scalar == "double" else 24)
    highest = greatest >> (bits - digits) << (bits - digits)  # the greatest float that fits
    low, high, zero = (fn.splat(floating(scalar, float(v)), lanes) for v in (least, highest, 0))
    clamped = fn.select(fn.fcmp("uno", value, value), zero, value)
    clamped = fn.select(fn.fcmp("olt", clamped, low), low, clamped)
    clamped = fn.select(fn.fcmp("ogt", clamped, high), high, clamped)
    via_int32 = target.bits < 32  # by int32, for which CPUs have an instruction
    converted = fn.convert(
        "fptoui" if target.is_uint and not via_int32 else "fptosi", clamped, vector("i32", lanes) if via_int32 else type
    )
    if via_int32:
        return fn.convert("trunc", converted, type)
    if highest == greatest:
        return converted
    return fn.select(fn.fcmp("ogt", value, high), fn.splat(integer(f"i{target.bits}", greatest), lanes), converted)


def _to_int_on_gpu(e: Emitter, value: Value, target: DType) -> Value:
    """Convert from float32 lane by lane with the GPU's conversion, which saturates and converts NaN to 0."""
    fn, wide = e.fn, target.bits == 32
    name = f"llvm.nvvm.f2{'ui' if target.is_uint and wide else 'i'}.rz"
    convert = e.ctx.module.declare(name, "i32", ["float"])
    least = 0 if target.is_uint else -(1 << (target.bits - 1))
    converted = Value(register_type(target), "poison")
    for lane in range(target.lanes):
        lane_value = fn.call("i32", convert, [fn.extract(value, lane) if target.lanes > 1 else value])
        if not wide:
            for op, limit in (("smax", least), ("smin", least + (1 << target.bits) - 1)):
                callee = e.ctx.module.declare(f"llvm.{op}.i32", "i32", ["i32", "i32"])
                lane_value = fn.call("i32", callee, [lane_value, Value("i32", str(limit))])
            lane_value = fn.convert("trunc", lane_value, f"i{target.bits}")
        converted = fn.insert(converted, lane_value, lane) if target.lanes > 1 else lane_value
    return converted


def mangled(type: str) -> str:
    """Return a type as part of the name of an overloaded intrinsic."""
    if type[0] == "<":
        lanes, scalar = type[1:-1].split(" x ")
        return f"v{lanes}{mangled(scalar)}"
    if type.startswith("ptr addrspace("):
        return f"p{type[14:-1]}"
    return {"float": "f32", "double": "f64", "ptr": "p0"}.get(type, type)


def to_memory(e: Emitter, value: Value, dtype: DType) -> Value:
    """Convert a register value to its memory type."""
    if dtype.is_bool:
        return e.fn.convert("zext", value, memory_type(dtype))
    return small_float.to_memory(e, value, dtype) if is_small_float(dtype) else value


def from_memory(e: Emitter, value: Value, dtype: DType) -> Value:
    """Convert a value from its memory type to its register type."""
    if dtype.is_bool:
        return e.fn.icmp("ne", value, Value(vector("i8", dtype.lanes), "0" if dtype.lanes == 1 else "zeroinitializer"))
    return small_float.from_memory(e, value, dtype) if is_small_float(dtype) else value
