"""`T.dp4a` and `T.dp2a`: sums of products of neighbouring integers, by the CPU's instructions for it where it has one.

x86: vpdpbusd (AVX512-VNNI, AVX-VNNI: unsigned by signed), vpdpbssd and vpdpbuud (AVX-VNNI-INT8), pmaddwd (words);
AArch64: sdot and udot (dotprod), usdot (i8mm). None of them saturates or rounds: sums wrap as int32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlcc.ir import tir
from mlcc.targets.llvm.codegen.ir_text import Value, vector
from mlcc.targets.llvm.codegen.refuse import unsupported

if TYPE_CHECKING:
    from mlcc.targets.llvm.codegen.emitter import Emitter


@dataclass(frozen=True, slots=True)
class _Instruction:
    """An intrinsic for vectors of `lanes` sums; `adds`: to a vector that it takes first. `operand` is LLVM's type of
    what is multiplied; `swapped`: the right operand comes first."""

    name: str
    lanes: int
    operand: str
    adds: bool = True
    swapped: bool = False


def dot(e: Emitter, node: tir.Call) -> Value:
    """The call of an intrinsic: two vectors of 8-bit (`dp4a`) or 16-bit (`dp2a`) integers, and perhaps sums so far."""
    bits = 8 if node.op.name == "tir.dp4a" else 16
    group, lanes = 32 // bits, node.dtype.lanes
    one, other, *start = node.args
    fits = all(
        a.dtype.is_int and a.dtype.bits == bits and a.dtype.lanes in (group, group * lanes) for a in (one, other)
    )
    if not fits or any(a.dtype is not node.dtype for a in start):
        name = node.op.name.replace("tir.", "T.")
        raise unsupported(
            f"`{name}` takes two vectors of {group} {bits}-bit integers for each int32, or for all", node.span
        )
    sums = e.expr(start[0]) if start else None
    values = _operand(e, one, group, lanes), _operand(e, other, group, lanes)
    known = _instructions(e, one.dtype.is_uint, other.dtype.is_uint, bits) if lanes > 1 else []
    if not known:
        product = _by_widening(e, values, (one.dtype.is_uint, other.dtype.is_uint), group, lanes)
        return product if sums is None else e.fn.binary("add", product, sums)
    if sums is None:
        sums = Value(vector("i32", lanes), "zeroinitializer")
    parts: list[Value] = []
    at = 0
    while at < lanes:
        use = next((i for i in known if i.lanes <= lanes - at), known[-1])
        parts.append(_part(e, use, values, sums, at, group))
        at += use.lanes
    return _joined(e, parts, lanes)


def _operand(e: Emitter, node: tir.Expr, group: int, lanes: int) -> Value:
    """A vector for all lanes; a group for all of them is one number, which CPUs can spread while they load it."""
    value = e.expr(node)
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


def _on_arm(features: frozenset[str], one_unsigned: bool, other_unsigned: bool) -> list[_Instruction]:
    mixed = one_unsigned != other_unsigned
    if ("i8mm" if mixed else "dotprod") not in features:
        return []
    kind = "usdot" if mixed else "udot" if one_unsigned else "sdot"
    name = f"llvm.aarch64.neon.{kind}.v4i32.v16i8"
    return [_Instruction(name, 4, "<16 x i8>", swapped=mixed and other_unsigned)]


def _part(e: Emitter, use: _Instruction, values: tuple[Value, Value], sums: Value, at: int, group: int) -> Value:
    """The sums of some lanes."""
    fn = e.fn
    given = [
        _as(e, _lanes(e, v, at * group, use.lanes * group), use.operand)
        for v in (values[::-1] if use.swapped else values)
    ]
    before = _lanes(e, sums, at, use.lanes)
    type = vector("i32", use.lanes)
    if use.adds:
        callee = e.ctx.module.declare(use.name, type, [type, use.operand, use.operand])
        return fn.call(type, callee, [before, *given])
    callee = e.ctx.module.declare(use.name, type, [use.operand, use.operand])
    return fn.binary("add", before, fn.call(type, callee, given))


def _as(e: Emitter, value: Value, type: str) -> Value:
    return value if value.type == type else e.fn.convert("bitcast", value, type)


def _lanes(e: Emitter, value: Value, start: int, count: int) -> Value:
    """Some lanes of a vector; beyond its end there is anything."""
    scalar, have = _parts_of(value)
    if start == 0 and count == have:
        return value
    picks = ", ".join(f"i32 {n}" if n < have else "i32 poison" for n in range(start, start + count))
    text = f"shufflevector {value}, {value.type} poison, <{count} x i32> <{picks}>"
    return e.fn.op(vector(scalar, count), text)


def _parts_of(value: Value) -> tuple[str, int]:
    lanes, scalar = value.type[1:-1].split(" x ")
    return scalar, int(lanes)


def _joined(e: Emitter, parts: list[Value], lanes: int) -> Value:
    joined = parts[0]
    for part in parts[1:]:
        (scalar, have), more = _parts_of(joined), _parts_of(part)[1]
        wide = [_lanes(e, v, 0, have + more) for v in (joined, part)]
        picks = [*range(have), *range(have + more, have + more + more)]
        mask = ", ".join(f"i32 {n}" for n in picks)
        text = f"shufflevector {wide[0]}, {wide[1]}, <{have + more} x i32> <{mask}>"
        joined = e.fn.op(vector(scalar, have + more), text)
    return _lanes(e, joined, 0, lanes)


def _by_widening(
    e: Emitter, values: tuple[Value, Value], unsigned: tuple[bool, bool], group: int, lanes: int
) -> Value:  # fmt: skip
    """Products of int32, a step of each group at a time."""
    fn = e.fn
    total: Value | None = None
    for step in range(group):
        sides = []
        for value, is_unsigned in zip(values, unsigned, strict=True):
            if lanes == 1:
                sides.append(fn.convert("zext" if is_unsigned else "sext", fn.extract(value, step), "i32"))
                continue
            picks = ", ".join(f"i32 {lane * group + step}" for lane in range(lanes))
            scalar = _parts_of(value)[0]
            text = f"shufflevector {value}, {value.type} poison, <{lanes} x i32> <{picks}>"
            one = fn.op(vector(scalar, lanes), text)
            sides.append(fn.convert("zext" if is_unsigned else "sext", one, vector("i32", lanes)))
        product = fn.binary("mul", *sides)
        total = product if total is None else fn.binary("add", total, product)
    assert total is not None
    return total
