"""Tensor core instructions and asynchronous copies: `ptx_mma`, `ptx_ldmatrix`, `ptx_cp_async` and its groups.

Arguments are TVM's. On architectures without these instructions, copies become loads and stores, and products are
refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.passes.gpu.mma_layout import DTYPES, Mma
from mlcc.targets.llvm.codegen.ir_text import Value, integer
from mlcc.targets.llvm.codegen.refuse import unsupported
from mlcc.targets.llvm.codegen.types import memory_type, zero

if TYPE_CHECKING:
    from mlcc.targets.cuda.emitter import DeviceEmitter

Emit = Callable[[Any, tir.Call], Value]

# ---------------------------------------------------------------- products


def text_of(node: tir.Expr) -> str:
    return node.value if isinstance(node, tir.StringImm) else ""


def _mma(e: DeviceEmitter, node: tir.Call) -> Value:
    """ptx_mma(shape, layouts of A and B, types of A, B and C, three pointers with offsets, saturate)."""
    if len(node.args) not in (13, 14):
        raise unsupported("`T.ptx_mma` takes 13 arguments", node.span)
    shape, row, col, *types = (text_of(a) for a in node.args[:6])
    product = Mma.of(shape, *types)
    if product is None or (row, col) != ("row", "col") or len(node.args) == 14:
        text = f"there is no instruction `mma.sync` of {shape} {row} {col} for {', '.join(types)}"
        raise unsupported(text, node.span, help="docs/tensor-cores.md lists the products")
    if e.arch.number < product.arch:
        text = f"`mma.sync` of {product.name} for {product.a} is not supported on {e.arch.name}"
        raise unsupported(text, node.span, help=f"compile for sm_{product.arch} or later")
    saturate = ".satfinite" if tir.const_int(node.args[12]) else ""
    a, b, acc = (_registers(e, node, at, count, kind) for at, count, kind in zip(
        (6, 8, 10), product.counts, (product.a, product.b, product.accumulator), strict=True))  # fmt: skip
    if product.a == "tf32":  # the instruction ignores the low bits
        round_to_tf32 = e.ctx.module.declare("llvm.nvvm.f2tf32.rna", "i32", ["float"])
        a, b = ((places, [e.fn.call("i32", round_to_tf32, [v]) for v in values]) for places, values in (a, b))
    kinds = f"{product.accumulator}.{product.a}.{product.b}.{product.accumulator}"
    code = f"mma.sync.aligned.{product.name}.row.col{saturate}.{kinds}"
    results = _asm(e, code, [v.type for v in acc[1]], [a[1], b[1], acc[1]])
    for address, value in zip(acc[0], results, strict=True):
        e.fn.store(value, address, 4 if value.type != "double" else 8)
    return zero(node.dtype)


def _registers(e: DeviceEmitter, node: tir.Call, at: int, count: int, kind: str) -> tuple[list[Value], list[Value]]:
    """Return the addresses and values of the registers that hold a lane's elements of a matrix."""
    dtype = DType.of(DTYPES[kind])
    size = max(32, dtype.bits)
    type = {"f32": "float", "tf32": "float", "f64": "double"}.get(kind, "i32")
    start = e.fn.gep(memory_type(dtype), e.expr(node.args[at]), e.index(node.args[at + 1]))
    addresses = [e.fn.gep("i8", start, integer("i64", n * size // 8)) for n in range(count * dtype.bits // size)]
    return addresses, [e.fn.load(type, place, size // 8) for place in addresses]


def _asm(e: DeviceEmitter, code: str, results: list[str], groups: list[list[Value]]) -> list[Value]:
    """Emit an instruction with lists of registers, `{results}, {group}, ...`; it accesses no memory."""
    letters = {"float": "f", "i32": "r", "double": "d"}
    at = len(results)
    lists = ["{" + ", ".join(f"${n}" for n in range(at)) + "}"]
    for group in groups:
        lists.append("{" + ", ".join(f"${at + n}" for n in range(len(group))) + "}")
        at += len(group)
    values = [v for group in groups for v in group]
    constraints = ",".join([*(f"={letters[t]}" for t in results), *(letters[v.type] for v in values)])
    ret = "{" + ", ".join(results) + "}"
    operands = ", ".join(lists)
    text = f'call {ret} asm "{code} {operands};", "{constraints}"({", ".join(map(str, values))})'
    registers = e.fn.op(ret, f"{text} convergent nounwind memory(none)")
    return [e.fn.extract_value(t, registers, n) for n, t in enumerate(results)]


# ---------------------------------------------------------------- loads of matrices


def _ldmatrix(e: DeviceEmitter, node: tir.Call) -> Value:
    """ptx_ldmatrix(transpose, 1 or 2 or 4, ".b16", pointer and offset of registers, of shared memory)."""
    if len(node.args) != 7:
        raise unsupported("`T.ptx_ldmatrix` takes 7 arguments", node.span)
    trans, count = tir.const_int(node.args[0]), tir.const_int(node.args[1])
    if trans is None or count not in (1, 2, 4) or text_of(node.args[2]) != ".b16":
        raise unsupported("`T.ptx_ldmatrix` loads 1, 2 or 4 matrices of `.b16`", node.span)
    scalar = memory_type(node.dtype.element)
    source = e.fn.gep(scalar, e.expr(node.args[5]), e.index(node.args[6]))
    if not source.type.endswith("addrspace(3)"):
        raise unsupported("`T.ptx_ldmatrix` loads from shared memory", node.span)
    target = e.fn.gep(scalar, e.expr(node.args[3]), e.index(node.args[4]))
    name = f"ldmatrix.sync.aligned.m8n8.x{count}{'.trans' if trans else ''}.b16.p3"
    ret = "i32" if count == 1 else "{" + ", ".join(["i32"] * count) + "}"
    callee = e.ctx.module.declare(f"llvm.nvvm.{name}", ret, [source.type])
    loaded = e.fn.call(ret, callee, [source])
    for n in range(count):
        word = loaded if count == 1 else e.fn.extract_value("i32", loaded, n)
        e.fn.store(word, e.fn.gep("i8", target, integer("i64", 4 * n)), 4)
    return zero(node.dtype)


# ---------------------------------------------------------------- asynchronous copies


def _cp_async(e: DeviceEmitter, node: tir.Call) -> Value:
    """ptx_cp_async(shared pointer, offset, global pointer, offset, bytes[, predicate]): zeros if that is false."""
    size = tir.const_int(node.args[4]) if len(node.args) in (5, 6) else None
    if size not in (4, 8, 16):
        raise unsupported(
            "`T.ptx_cp_async` copies 4, 8 or 16 bytes, from a pointer and an offset to another", node.span
        )
    scalar = memory_type(node.dtype.element)
    target = e.fn.gep(scalar, e.expr(node.args[0]), e.index(node.args[1]))
    source = e.fn.gep(scalar, e.expr(node.args[2]), e.index(node.args[3]))
    if not target.type.endswith("addrspace(3)") or not source.type.endswith("addrspace(1)"):
        raise unsupported("`T.ptx_cp_async` copies from global to shared memory", node.span)
    condition = e.expr(node.args[5]) if len(node.args) == 6 else None
    if e.arch.number < 80:
        return _copy_directly(e, node, target, source, size, condition)
    name = f"cp.async.{'cg' if size == 16 else 'ca'}.shared.global.{size}"
    args = [target, source]
    if condition is not None:
        name += ".s"
        args.append(e.fn.select(condition, integer("i32", size), integer("i32", 0)))
    callee = e.ctx.module.declare(f"llvm.nvvm.{name}", "void", [a.type for a in args])
    e.fn.call("void", callee, args)
    return zero(node.dtype)


def _copy_directly(
    e: DeviceEmitter, node: tir.Call, target: Value, source: Value, size: int, condition: Value | None
) -> Value:
    type = "i32" if size == 4 else f"<{size // 4} x i32>"
    if condition is None:
        e.fn.store(e.fn.load(type, source, size), target, size)
        return zero(node.dtype)
    fn = e.fn
    copy, zeros, end = fn.label("copy"), fn.label("zeros"), fn.label("end")
    fn.cond_br(condition, copy, zeros)
    fn.start(copy)
    fn.store(fn.load(type, source, size), target, size)
    fn.br(end)
    fn.start(zeros)
    fn.store(Value(type, "0" if size == 4 else "zeroinitializer"), target, size)
    fn.br(end)
    fn.start(end)
    return zero(node.dtype)


def _commit(e: DeviceEmitter, node: tir.Call) -> Value:
    if e.arch.number >= 80:
        e.fn.call("void", e.ctx.module.declare("llvm.nvvm.cp.async.commit.group", "void", []), [])
    return zero(node.dtype)


def _wait(e: DeviceEmitter, node: tir.Call) -> Value:
    """ptx_wait_group(n): wait until at most n groups are in flight."""
    count = tir.const_int(node.args[0])
    if count is None:
        raise unsupported("`T.ptx_wait_group` takes a constant", node.span)
    if e.arch.number >= 80:
        callee = e.ctx.module.declare("llvm.nvvm.cp.async.wait.group", "void", ["i32 immarg"])
        e.fn.call("void", callee, [integer("i32", count)])
    return zero(node.dtype)


TABLE: dict[str, Emit] = {
    "ptx_mma": _mma, "ptx_ldmatrix": _ldmatrix, "ptx_cp_async": _cp_async, "ptx_commit_group": _commit,
    "ptx_wait_group": _wait,
}  # fmt: skip
