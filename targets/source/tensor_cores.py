"""Warp-level matrix products, matrix loads and asynchronous copies in CUDA C: PTX instructions in `asm`, from sm_80 on.

A lane's elements are accessed as 32-bit registers, so the local arrays that hold them are aligned to 16 bytes
(`in_registers`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.node import find, walk
from mlcc.passes.gpu.mma_layout import DTYPES, Mma
from mlcc.targets.source.bulk_copies import operand
from mlcc.targets.source.dialect import refuse

_REGISTERS = {"float32": ("float", "f"), "float64": ("double", "d")}  # other dtypes are packed into 32-bit words
_POINTERS = {
    "tir.ptx_mma": (6, 8, 10), "tir.ptx_ldmatrix": (3,), "tir.ptx_wgmma_ss": (8,), "tir.ptx_wgmma_rs": (4, 8),
}  # to memory of a thread, among the arguments  # fmt: skip


def in_registers(body: Sequence[tir.Stmt]) -> set[tir.Var]:
    """Return the pointers of local memory that these instructions access as registers."""
    return set(_pointers(body))


def _pointers(body: Sequence[tir.Stmt]) -> Iterator[tir.Var]:
    for stmt in body:
        for node in walk(stmt):
            if isinstance(node, tir.Call):
                pointer_args = _POINTERS.get(getattr(node.op, "name", ""), ())
                pointers = [node.args[at] for at in pointer_args if at < len(node.args)]
                yield from (n for a in pointers for n in walk(a) if isinstance(n, tir.Var) and n.dtype.is_handle)
                yield from (n.buffer.data for a in pointers for n in find(a, tir.BufferLoad))


def asm_statement(name: str, args: Sequence[str], node: tir.Call) -> str | None:
    """Print a call, given its printed arguments; None for other intrinsics. Raises CompileError E0780."""
    match name:
        case "ptx_mma":
            return _mma(args, node)
        case "ptx_ldmatrix":
            return _ldmatrix(args, node)
        case "ptx_cp_async":
            return _cp_async(args, node)
        case "ptx_commit_group":
            return 'asm volatile("cp.async.commit_group;" ::: "memory")'
        case "ptx_wait_group":
            return f'asm volatile("cp.async.wait_group {tir.const_int(node.args[0])};" ::: "memory")'
    return None


def _mma(args: Sequence[str], node: tir.Call) -> str:
    product = Mma.of(args[0], *args[3:6]) if len(args) == 13 else None
    if product is None or tuple(args[1:3]) != ("row", "col"):
        raise refuse("no instruction `mma.sync` for this product", node.span, "docs/tensor-cores.md lists the products")
    kinds = (product.a, product.b, product.accumulator)
    groups = [_registers(args, at, n, DTYPES[k]) for at, n, k in zip((6, 8, 10), product.counts, kinds, strict=True)]
    a, b, acc = groups
    number = 0
    lists = []
    for group in (acc, a, b):  # accumulators come first: they are outputs, too
        lists.append("{" + ", ".join(f"%{number + n}" for n in range(len(group))) + "}")
        number += len(group)
    saturate = ".satfinite" if tir.const_int(node.args[12]) else ""
    types = f"{product.accumulator}.{product.a}.{product.b}.{product.accumulator}"
    rounding = ""
    if product.a == "tf32":  # the instruction ignores the low bits
        names = [f"x{n}" for n in range(len(a) + len(b))]
        numbers = range(len(acc), number)
        rounds = " ".join(f"cvt.rna.tf32.f32 {x}, %{n};" for x, n in zip(names, numbers, strict=True))
        rounding = f".reg .b32 {', '.join(names)}; {rounds} "
        lists[1:] = ("{" + ", ".join(part) + "}" for part in (names[: len(a)], names[len(a) :]))
    code = f"mma.sync.aligned.{product.name}.row.col{saturate}.{types} {lists[0]}, {lists[1]}, {lists[2]}, {lists[0]};"
    if rounding:
        code = "{ " + rounding + code + " }"
    results = ", ".join(f'"+{letter}"({lvalue})' for letter, lvalue in acc)
    inputs = ", ".join(f'"{letter}"({lvalue})' for letter, lvalue in (*a, *b))
    return f'asm volatile("{code}" : {results} : {inputs})'


def _registers(args: Sequence[str], at: int, count: int, dtype: str) -> list[tuple[str, str]]:
    """Return the registers (constraint letter, lvalue) of `count` elements at a pointer and the offset after it."""
    type, letter = _REGISTERS.get(dtype, ("unsigned", "r"))
    bits = DType.of(dtype).bits
    pointer = f"(({type}*)({args[at]} + ({args[at + 1]})))"
    return [(letter, f"{pointer}[{n}]") for n in range(count * bits // max(32, bits))]


def _ldmatrix(args: Sequence[str], node: tir.Call) -> str:
    trans, count = tir.const_int(node.args[0]), tir.const_int(node.args[1])
    if len(args) != 7 or trans is None or count not in (1, 2, 4) or args[2] != ".b16":
        raise refuse("`T.ptx_ldmatrix` loads 1, 2 or 4 matrices of `.b16`", node.span)
    operands = ", ".join(f"%{n}" for n in range(count))
    code = f"ldmatrix.sync.aligned.m8n8.x{count}{'.trans' if trans else ''}.shared.b16 {{{operands}}}, [%{count}];"
    results = ", ".join(f'"=r"(((unsigned*)({args[3]} + ({args[4]})))[{n}])' for n in range(count))
    return f'asm volatile("{code}" : {results} : {operand("S", 5, args)} : "memory")'


def copied_bytes(node: tir.Call) -> int:
    """Return the number of bytes that an asynchronous copy moves. Raises CompileError (E0780)."""
    size = tir.const_int(node.args[4]) if len(node.args) in (5, 6) else None
    if size not in (4, 8, 16):
        raise refuse("`T.ptx_cp_async` copies 4, 8 or 16 bytes", node.span)
    return size


def _cp_async(args: Sequence[str], node: tir.Call) -> str:
    """Print an asynchronous copy; if its condition is false, it reads nothing and stores zeros."""
    size = copied_bytes(node)
    operands = [operand("S", 0, args), operand("G", 2, args)]
    if len(args) == 6:
        operands.append(f'"r"(({args[5]}) ? {size} : 0)')
    code = f"cp.async.{'cg' if size == 16 else 'ca'}.shared.global [%0], [%1], {size}{', %2' * (len(args) == 6)};"
    return f'asm volatile("{code}" :: {", ".join(operands)} : "memory")'
