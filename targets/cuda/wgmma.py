"""Warpgroup products in PTX: `ptx_wgmma_ss`, `ptx_wgmma_rs`, their fences and waits, and shared memory addresses.

Accumulators are tied operands of fences, commits and waits, although the instructions do not name them: this keeps LLVM
from moving accesses across them and from touching the registers in between, which would make ptxas serialise products.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mlcc.ir import tir
from mlcc.passes.gpu.wgmma_layout import Wgmma, dtype_of
from mlcc.targets.cuda.tensor_cores import text_of
from mlcc.targets.llvm.codegen.ir_text import Value, integer
from mlcc.targets.llvm.codegen.refuse import unsupported
from mlcc.targets.llvm.codegen.types import memory_type, zero

if TYPE_CHECKING:
    from mlcc.targets.cuda.emitter import DeviceEmitter

Emit = Callable[[Any, tir.Call], Value]
ARCH = "sm_90a"
_LETTERS = {"float": "f", "i32": "r", "i64": "l"}


def _product(e: DeviceEmitter, node: tir.Call) -> Wgmma:
    shape, *types = (text_of(a) for a in node.args[:4])
    product = Wgmma.of(shape, *types)
    if product is None:
        text = f"there is no instruction `wgmma.mma_async` of {shape} for {', '.join(types)}"
        raise unsupported(text, node.span, help="docs/tensor-cores.md lists the products")
    _check_arch(e, node, f"`wgmma` of {product.name}")
    return product


def _check_arch(e: DeviceEmitter, node: tir.Call, what: str) -> None:
    if e.arch.name != ARCH:
        help = f"compile for `cuda{{arch={ARCH}}}`, or write products of warps, `T.ptx_mma`, for GPUs from sm_80 on"
        raise unsupported(f"{what} is not supported on {e.arch.name}: only {ARCH} has it", node.span, help=help)


def _flag(node: tir.Call, at: int, what: str) -> int:
    flag = tir.const_int(node.args[at])
    if flag is None:
        raise unsupported(f"{what} of `wgmma` must be a constant", node.span)
    return int(flag)


def _ss(e: DeviceEmitter, node: tir.Call) -> Value:
    """ptx_wgmma_ss(shape, types of A, B and C, whether A and B are transposed, their descriptors, pointer and offset of
    C, whether to add to C, signs of A and B)."""
    product = _product(e, node)
    a, b = (e.expr(node.args[at]) for at in (6, 7))
    flags = [_flag(node, at, "a layout") for at in (4, 5)]
    return _issue(e, node, product, [[a], [b]], flags, flags)


def _rs(e: DeviceEmitter, node: tir.Call) -> Value:
    """ptx_wgmma_rs(shape, types, pointer and offset of A, B transposed, descriptor of B, then as `ptx_wgmma_ss`)."""
    product = _product(e, node)
    dtype = dtype_of(product.a)
    _, a = _registers(e, node.args[4], node.args[5], product.a_count, dtype.bits, "i32")
    flags = [_flag(node, 6, "a layout")]
    return _issue(e, node, product, [a, [e.expr(node.args[7])]], flags, flags)


def _issue(
    e: DeviceEmitter,
    node: tir.Call,
    product: Wgmma,
    operands: list[list[Value]],
    transposed: list[int],
    flags: list[int],
) -> Value:
    if any(transposed) and not product.may_transpose:
        text = f"`wgmma` for {product.a} requires both matrices to be contiguous along the reduction axis"
        raise unsupported(text, node.span, help="transpose the other one with `transform_layout`")
    dtype = dtype_of(product.accumulator)
    type = "float" if product.accumulator == "f32" else "i32"
    addresses, sums = _registers(e, node.args[8], node.args[9], product.sums, dtype.bits, type)
    accumulate = e.fn.convert("zext", e.expr(node.args[10]), "i32")
    count = len(sums)
    operand = count
    lists = ["{" + ", ".join(f"${n}" for n in range(count)) + "}"]
    for group in operands:
        names = [f"${operand + n}" for n in range(len(group))]
        lists.append("{" + ", ".join(names) + "}" if len(group) > 1 else names[0])
        operand += len(group)
    tail = ["p"]
    if product.accumulator != "s32":
        tail += [str(_flag(node, n, "a sign")) for n in (11, 12)]
        if product.may_transpose:
            tail += [str(int(bool(f))) for f in flags]
    kinds = f"{product.accumulator}.{product.a}.{product.b}"
    code = (
        f"{{ .reg .pred p; setp.ne.b32 p, ${operand}, 0; wgmma.mma_async.sync.aligned.{product.name}.{kinds} "
        f"{', '.join([*lists, *tail])}; }}"
    )
    inputs = [v for group in operands for v in group] + [accumulate]
    _emit_with_tied_operands(e, code, addresses, sums, inputs)
    return zero(node.dtype)


def _registers(
    e: DeviceEmitter, pointer: tir.Expr, offset: tir.Expr, count: int, bits: int, type: str
) -> tuple[list[Value], list[Value]]:
    """Return the addresses and values of the 32-bit registers that hold a thread's elements."""
    start = e.fn.gep(f"i{bits}" if type != "float" else "float", e.expr(pointer), e.index(offset))
    addresses = [e.fn.gep("i8", start, integer("i64", 4 * n)) for n in range(count * bits // 32)]
    return addresses, [e.fn.load(type, place, 4) for place in addresses]


def _emit_with_tied_operands(
    e: DeviceEmitter, code: str, addresses: list[Value], sums: list[Value], inputs: list[Value]
) -> None:
    """Emit an instruction with `inputs` and read-write operands `sums`; store the new sums at `addresses`."""
    output_constraints = [f"={_LETTERS[v.type]}" for v in sums]
    input_constraints = [*(_LETTERS[v.type] for v in inputs), *map(str, range(len(sums)))]
    constraints = ",".join([*output_constraints, *input_constraints, "~{memory}"])
    values = ", ".join(map(str, [*inputs, *sums]))
    head = "call void" if not sums else f"call {{{', '.join(v.type for v in sums)}}}"
    if len(sums) == 1:
        head = f"call {sums[0].type}"
    text = f'{head} asm sideeffect "{code}", "{constraints}"({values}) convergent nounwind'
    if not sums:
        e.fn.line(text)
        return
    ret = head.removeprefix("call ")
    returned = e.fn.op(ret, text)
    for number, (address, old) in enumerate(zip(addresses, sums, strict=True)):
        value = returned if len(sums) == 1 else e.fn.extract_value(old.type, returned, number)
        e.fn.store(value, address, 4)


def _ordering_instruction(code: str) -> Emit:
    def emit(e: DeviceEmitter, node: tir.Call) -> Value:
        if not e.accumulators:  # otherwise a product has been refused already
            _check_arch(e, node, f"`{code}`")
        addresses: list[Value] = []
        sums: list[Value] = []
        text = code
        if node.args:
            text = f"{code} {_flag(node, 0, 'the number of groups')}"
        for data, buffer in e.accumulators.items():
            start = e.values.get(data)
            size = tir.const_int(buffer.shape[0])
            if start is None or size is None:
                continue
            type = "float" if memory_type(buffer.dtype) == "float" else "i32"
            for n in range(size * buffer.dtype.bits // 32):
                addresses.append(e.fn.gep("i8", start, integer("i64", 4 * n)))
                sums.append(e.fn.load(type, addresses[-1], 4))
        _emit_with_tied_operands(e, f"{text};", addresses, sums, [])
        return zero(node.dtype)

    return emit


def _address(e: DeviceEmitter, node: tir.Call) -> Value:
    """ptx_shared_address(pointer): the address within the shared memory of the block."""
    pointer = e.expr(node.args[0])
    if not pointer.type.endswith("addrspace(3)"):
        raise unsupported("`T.ptx_shared_address` takes a pointer to shared memory", node.span)
    return e.fn.convert("ptrtoint", pointer, "i32")


TABLE: dict[str, Emit] = {
    "ptx_wgmma_ss": _ss, "ptx_wgmma_rs": _rs, "ptx_wgmma_fence": _ordering_instruction("wgmma.fence.sync.aligned"),
    "ptx_wgmma_commit_group": _ordering_instruction("wgmma.commit_group.sync.aligned"),
    "ptx_wgmma_wait_group": _ordering_instruction("wgmma.wait_group.sync.aligned"),
    "ptx_shared_address": _address,
}  # fmt: skip
