"""Products of warpgroups in CUDA C: `wgmma` in `asm`, for sm_90a.

As in PTX, what orders products has the accumulators among its operands although it does not name them, so that the
compiler moves no use of them past it.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.passes.gpu.wgmma_layout import Wgmma, dtype_of
from mlcc.targets.source.dialect import refuse

Register = tuple[str, str]  # a letter for its type, and the place it stands for
_ORDER = {
    "ptx_wgmma_fence": "wgmma.fence.sync.aligned", "ptx_wgmma_commit_group": "wgmma.commit_group.sync.aligned",
    "ptx_wgmma_wait_group": "wgmma.wait_group.sync.aligned",
}  # fmt: skip


def registers(start: str, count: int, dtype: DType) -> list[Register]:
    """The registers of 32 bits that `count` elements from a pointer on are in."""
    type, letter = {"float32": ("float", "f"), "int32": ("int", "r")}.get(str(dtype), ("unsigned", "r"))
    return [(letter, f"(({type}*)({start}))[{n}]") for n in range(count * dtype.bits // 32)]


def asm_statement(name: str, args: Sequence[str], node: tir.Call, sums: Sequence[Register]) -> str | None:
    """The statement for a call, from the texts of its arguments; None for what is none of these. `sums`: accumulators
    of the kernel. Raises CompileError (E0780) for a product that there is no instruction for."""
    if name == "ptx_shared_address":
        return f"(unsigned)__cvta_generic_to_shared({args[0]})"
    if name in _ORDER:
        count = f" {tir.const_int(node.args[0])}" if node.args else ""
        return _asm(f"{_ORDER[name]}{count};", sums, [])
    if name not in ("ptx_wgmma_ss", "ptx_wgmma_rs"):
        return None
    product = Wgmma.of(*args[:4]) if len(args) == 13 else None
    if product is None:
        text = "no instruction `wgmma.mma_async` for this product"
        raise refuse(text, node.span, "docs/tensor-cores.md lists the products")
    acc = registers(f"{args[8]} + ({args[9]})", product.sums, dtype_of(product.accumulator))
    if name == "ptx_wgmma_ss":
        turned = node.args[4:6]
        a: list[Register] = [("l", args[6])]
    else:
        turned = node.args[6:7]
        a = registers(f"{args[4]} + ({args[5]})", product.a_count, dtype_of(product.a))
    flags = [*(node.args[11:13] if product.accumulator != "s32" else ()), *(turned if product.may_transpose else ())]
    lists = [_listed(0, len(acc))]
    lists.append(_listed(len(acc), len(a)) if name == "ptx_wgmma_rs" else f"%{len(acc)}")
    at = len(acc) + len(a)
    tail = ["p", *(str(tir.const_int(f)) for f in flags)]
    kinds = f"{product.accumulator}.{product.a}.{product.b}"
    code = (
        f"{{ .reg .pred p; setp.ne.b32 p, %{at + 1}, 0; wgmma.mma_async.sync.aligned.{product.name}.{kinds} "
        f"{', '.join([*lists, f'%{at}', *tail])}; }}"
    )
    return _asm(code, acc, [*a, ("l", args[7]), ("r", f"(int)({args[10]})")])


def _listed(first: int, count: int) -> str:
    return "{" + ", ".join(f"%{first + n}" for n in range(count)) + "}"


def _asm(code: str, sums: Sequence[Register], given: Sequence[Register]) -> str:
    results = ", ".join(f'"+{letter}"({place})' for letter, place in sums)
    inputs = ", ".join(f'"{letter}"({place})' for letter, place in given)
    return f'asm volatile("{code}" : {results} : {inputs} : "memory")'
