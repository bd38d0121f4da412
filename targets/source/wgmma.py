"""Warpgroup products in CUDA C: `wgmma` in `asm`, for sm_90a.

As in the PTX backend, the accumulators are operands of fences, commits and waits, although the instructions do not name
them, so that the compiler does not move their uses.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.passes.gpu.wgmma_layout import Wgmma, dtype_of
from mlcc.targets.source.dialect import refuse

Register = tuple[str, str]  # constraint letter, lvalue
_ORDERING = {
    "ptx_wgmma_fence": "wgmma.fence.sync.aligned", "ptx_wgmma_commit_group": "wgmma.commit_group.sync.aligned",
    "ptx_wgmma_wait_group": "wgmma.wait_group.sync.aligned",
}  # fmt: skip


def registers(start: str, count: int, dtype: DType) -> list[Register]:
    """Return the 32-bit registers of `count` elements at a pointer."""
    type, letter = {"float32": ("float", "f"), "int32": ("int", "r")}.get(str(dtype), ("unsigned", "r"))
    return [(letter, f"(({type}*)({start}))[{n}]") for n in range(count * dtype.bits // 32)]


def asm_statement(name: str, args: Sequence[str], node: tir.Call, sums: Sequence[Register]) -> str | None:
    """Print a call, given its printed arguments; None for other intrinsics. `sums` are the accumulators in scope.

    Raises CompileError E0780 for a product without an instruction.
    """
    if name == "ptx_shared_address":
        return f"(unsigned)__cvta_generic_to_shared({args[0]})"
    if name in _ORDERING:
        count = f" {tir.const_int(node.args[0])}" if node.args else ""
        return _asm(f"{_ORDERING[name]}{count};", sums, [])
    if name not in ("ptx_wgmma_ss", "ptx_wgmma_rs"):
        return None
    product = Wgmma.of(*args[:4]) if len(args) == 13 else None
    if product is None:
        text = "no instruction `wgmma.mma_async` for this product"
        raise refuse(text, node.span, "docs/tensor-cores.md lists the products")
    acc = registers(f"{args[8]} + ({args[9]})", product.sums, dtype_of(product.accumulator))
    if name == "ptx_wgmma_ss":
        transpose_flags = node.args[4:6]
        a: list[Register] = [("l", args[6])]
    else:
        transpose_flags = node.args[6:7]
        a = registers(f"{args[4]} + ({args[5]})", product.a_count, dtype_of(product.a))
    flags = [
        *(node.args[11:13] if product.accumulator != "s32" else ()),
        *(transpose_flags if product.may_transpose else ()),
    ]
    lists = [_operand_list(0, len(acc))]
    lists.append(_operand_list(len(acc), len(a)) if name == "ptx_wgmma_rs" else f"%{len(acc)}")
    operand = len(acc) + len(a)
    tail = ["p", *(str(tir.const_int(f)) for f in flags)]
    kinds = f"{product.accumulator}.{product.a}.{product.b}"
    code = (
        f"{{ .reg .pred p; setp.ne.b32 p, %{operand + 1}, 0; wgmma.mma_async.sync.aligned.{product.name}.{kinds} "
        f"{', '.join([*lists, f'%{operand}', *tail])}; }}"
    )
    return _asm(code, acc, [*a, ("l", args[7]), ("r", f"(int)({args[10]})")])


def _operand_list(first: int, count: int) -> str:
    return "{" + ", ".join(f"%{first + n}" for n in range(count)) + "}"


def _asm(code: str, sums: Sequence[Register], given: Sequence[Register]) -> str:
    results = ", ".join(f'"+{letter}"({place})' for letter, place in sums)
    inputs = ", ".join(f'"{letter}"({place})' for letter, place in given)
    return f'asm volatile("{code}" : {results} : {inputs} : "memory")'
