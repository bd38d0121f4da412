"""Emit `T.dp4a` and `T.dp2a`, sums of products of neighbours, by the CPU's dot-product instructions.

x86: vpdpbusd (AVX512-VNNI, AVX-VNNI: unsigned by signed), vpdpbssd and vpdpbuud (AVX-VNNI-INT8), pmaddwd (words),
vdpbf16ps (AVX512-BF16); AArch64: sdot and udot (dotprod), usdot (i8mm). Those of integers neither saturate nor round:
sums wrap as int32. That of bfloat16 adds one product after the other, the second one first, to a float32 that is
rounded each time; subnormal operands and results are 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.machine.dot_products import sum_of
from mlcc.targets.llvm.codegen import small_float
from mlcc.targets.llvm.codegen.ir_text import Value, floating, vector
from mlcc.targets.llvm.codegen.refuse import unsupported

if TYPE_CHECKING:
    from mlcc.targets.llvm.codegen.emitter import Emitter


@dataclass(frozen=True, slots=True)
class _Instruction:
    """A dot-product intrinsic for vectors of `lanes` sums.

    `operand` is LLVM's type of the factors, `sum` that of one sum; `adds`: it accumulates to its first operand;
    `swapped`: the right factor comes first.
    """

    name: str
    lanes: int
    operand: str
    adds: bool = True
    swapped: bool = False
    sum: str = "i32"


def dot(e: Emitter, node: tir.Call) -> Value:
    """Emit a dot product of two vectors of 8-bit (`dp4a`) or 16-bit (`dp2a`) numbers, with an optional accumulator."""
    bits = 8 if node.op.name == "tir.dp4a" else 16
    group, lanes = 32 // bits, node.dtype.lanes
    a_operand, b_operand, *initial = node.args
    is_float = a_operand.dtype.is_float
    is_valid = all(
        (a.dtype.kind == "bfloat" if is_float else a.dtype.is_int)
        and a.dtype.bits == bits
        and a.dtype.lanes in (group, group * lanes)
        for a in (a_operand, b_operand)
    )
    if not is_valid or any(a.dtype is not node.dtype for a in initial):
        name = node.op.name.replace("tir.", "T.")
        raise unsupported(
            f"`{name}` takes two vectors of {group} {bits}-bit integers"
            + " or bfloat16 numbers" * (bits == 16)
            + f" for each {sum_of(a_operand.dtype)}, or for all",
            node.span,
        )
    sums = e.expr(initial[0]) if initial else None
    values = _operand_vector(e, a_operand, group, lanes), _operand_vector(e, b_operand, group, lanes)
    if is_float:
        instructions = _of_bfloats(e)
    else:
        instructions = _instructions(e, a_operand.dtype.is_uint, b_operand.dtype.is_uint, bits)
    if lanes == 1 or not instructions:
        if is_float:
            return _by_float_sums(e, values, sums, group, lanes)
        product = _by_widening(e, values, (a_operand.dtype.is_uint, b_operand.dtype.is_uint), group, lanes)
        return product if sums is None else e.fn.binary("add", product, sums)
    if sums is None:
        sums = Value(vector("float" if is_float else "i32", lanes), "zeroinitializer")
    chunks: list[Value] = []
    lane = 0
    while lane < lanes:
        instruction = next((i for i in instructions if i.lanes <= lanes - lane), instructions[-1])
        chunks.append(_emit_chunk(e, instruction, values, sums, lane, group))
        lane += instruction.lanes
    return _concat(e, chunks, lanes)


def _operand_vector(e: Emitter, node: tir.Expr, group: int, lanes: int) -> Value:
    """Return an operand for all lanes; a single group is broadcast as a 32-bit number, which CPUs do while loading."""
    value = e.expr(node)
    if node.dtype.is_float:
        value = small_float.to_memory(e, value, node.dtype)
    if node.dtype.lanes == group * lanes:
        return value
    word = e.fn.convert("bitcast", value, "i32")
    return e.fn.convert("bitcast", e.fn.splat(word, lanes), vector(f"i{32 // group}", group * lanes))


def _instructions(e: Emitter, one_unsigned: bool, other_unsigned: bool, bits: int) -> list[_Instruction]:
    """Return the CPU's dot-product instructions for operands of these signs and bits, widest first."""
    features = e.ctx.features
    if e.ctx.module.triple.startswith("aarch64"):
        return _on_arm(features, one_unsigned, other_unsigned) if bits == 8 else []
    if not e.ctx.module.triple.startswith("x86_64"):
        return []
    wide = "avx512f" in features
    if bits == 16:
        widths = [
            *([_Instruction("llvm.x86.avx512.pmaddw.d.512", 16, "<32 x i16>", adds=False)] * ("avx512bw" in features)),
            *([_Instruction("llvm.x86.avx2.pmadd.wd", 8, "<16 x i16>", adds=False)] * ("avx2" in features)),
            _Instruction("llvm.x86.sse2.pmadd.wd", 4, "<8 x i16>", adds=False),
        ]
        return widths if not (one_unsigned or other_unsigned) else []
    if one_unsigned == other_unsigned:
        if "avxvnniint8" not in features or "avx2" not in features:
            return []
        name = "llvm.x86.avx2.vpdpbuud" if one_unsigned else "llvm.x86.avx2.vpdpbssd"
        return [_Instruction(f"{name}.{32 * n}", n, vector("i32", n)) for n in (8, 4)]
    vnni = wide and "avx512vnni" in features
    short = (vnni and "avx512vl" in features) or ("avxvnni" in features and "avx2" in features)
    lanes = [16] * vnni + [8, 4] * short
    return [
        _Instruction(f"llvm.x86.avx512.vpdpbusd.{32 * n}", n, vector("i32", n), swapped=other_unsigned) for n in lanes
    ]


def _of_bfloats(e: Emitter) -> list[_Instruction]:
    """Return the CPU's dot-product instructions for bfloat16, widest first."""
    features = e.ctx.features
    if not e.ctx.module.triple.startswith("x86_64") or not {"avx512f", "avx512bf16"} <= features:
        return []
    return [
        _Instruction(f"llvm.x86.avx512bf16.dpbf16ps.{32 * n}", n, vector("bfloat", 2 * n), sum="float")
        for n in ([16, 8, 4] if "avx512vl" in features else [16])
    ]


def _on_arm(features: frozenset[str], one_unsigned: bool, other_unsigned: bool) -> list[_Instruction]:
    mixed = one_unsigned != other_unsigned
    if ("i8mm" if mixed else "dotprod") not in features:
        return []
    kind = "usdot" if mixed else "udot" if one_unsigned else "sdot"
    name = f"llvm.aarch64.neon.{kind}.v4i32.v16i8"
    return [_Instruction(name, 4, "<16 x i8>", swapped=mixed and other_unsigned)]


def _emit_chunk(
    e: Emitter, instruction: _Instruction, values: tuple[Value, Value], sums: Value, first_lane: int, group: int
) -> Value:
    """Emit one instruction for some lanes."""
    fn = e.fn
    operands = [
        _bitcast(e, _lanes(e, v, first_lane * group, instruction.lanes * group), instruction.operand)
        for v in (values[::-1] if instruction.swapped else values)
    ]
    accumulators = _lanes(e, sums, first_lane, instruction.lanes)
    type = vector(instruction.sum, instruction.lanes)
    if instruction.adds:
        callee = e.ctx.module.declare(instruction.name, type, [type, instruction.operand, instruction.operand])
        return fn.call(type, callee, [accumulators, *operands])
    callee = e.ctx.module.declare(instruction.name, type, [instruction.operand, instruction.operand])
    return fn.binary("add", accumulators, fn.call(type, callee, operands))


def _bitcast(e: Emitter, value: Value, type: str) -> Value:
    return value if value.type == type else e.fn.convert("bitcast", value, type)


def _lanes(e: Emitter, value: Value, start: int, count: int) -> Value:
    """Return some lanes of a vector; lanes beyond its end are poison."""
    scalar, length = _scalar_and_lanes(value)
    if start == 0 and count == length:
        return value
    mask = ", ".join(f"i32 {n}" if n < length else "i32 poison" for n in range(start, start + count))
    text = f"shufflevector {value}, {value.type} poison, <{count} x i32> <{mask}>"
    return e.fn.op(vector(scalar, count), text)


def _scalar_and_lanes(value: Value) -> tuple[str, int]:
    lanes, scalar = value.type[1:-1].split(" x ")
    return scalar, int(lanes)


def _concat(e: Emitter, parts: list[Value], lanes: int) -> Value:
    joined = parts[0]
    for part in parts[1:]:
        (scalar, length), part_length = _scalar_and_lanes(joined), _scalar_and_lanes(part)[1]
        widened = [_lanes(e, v, 0, length + part_length) for v in (joined, part)]
        lane_order = [*range(length), *range(length + part_length, length + part_length + part_length)]
        mask = ", ".join(f"i32 {n}" for n in lane_order)
        text = f"shufflevector {widened[0]}, {widened[1]}, <{length + part_length} x i32> <{mask}>"
        joined = e.fn.op(vector(scalar, length + part_length), text)
    return _lanes(e, joined, 0, lanes)


def _by_widening(
    e: Emitter, values: tuple[Value, Value], unsigned: tuple[bool, bool], group: int, lanes: int
) -> Value:  # fmt: skip
    """Emit the dot product by widening to int32, one element of each group at a time."""
    fn = e.fn
    total: Value | None = None
    for step in range(group):
        sides = [
            fn.convert("zext" if is_unsigned else "sext", _members(e, value, step, group, lanes), vector("i32", lanes))
            for value, is_unsigned in zip(values, unsigned, strict=True)
        ]
        product = fn.binary("mul", *sides)
        total = product if total is None else fn.binary("add", total, product)
    assert total is not None
    return total


def _by_float_sums(e: Emitter, values: tuple[Value, Value], sums: Value | None, group: int, lanes: int) -> Value:
    """Emit the dot product of bfloat16 in float32, in the order of the instruction: the last member first."""
    dtype = DType.of("bfloat16").with_lanes(lanes)
    total = sums or e.fn.splat(floating("float", 0.0), lanes)
    for step in reversed(range(group)):
        sides = [small_float.from_memory(e, _members(e, value, step, group, lanes), dtype) for value in values]
        total = e.fn.binary("fadd", total, e.fn.binary("fmul", *sides))
    return total


def _members(e: Emitter, value: Value, step: int, group: int, lanes: int) -> Value:
    """Return one member of each group, a scalar for one group."""
    if lanes == 1:
        return e.fn.extract(value, step)
    mask = ", ".join(f"i32 {lane * group + step}" for lane in range(lanes))
    text = f"shufflevector {value}, {value.type} poison, <{lanes} x i32> <{mask}>"
    return e.fn.op(vector(_scalar_and_lanes(value)[0], lanes), text)
