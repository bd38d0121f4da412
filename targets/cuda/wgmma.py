"""Products of warpgroups in PTX: `ptx_wgmma_ss`, `ptx_wgmma_rs`, what orders them, and addresses in shared memory.

Accumulators pass through every instruction that orders products as operands, although it does not name them: LLVM then
keeps what comes before and after in its place, and does not touch the registers between (ptxas makes products wait for
each other where something does).
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
        text = f"no instruction `wgmma.mma_async` of {shape} for {', '.join(types)}"
        raise unsupported(text, node.span, help="docs/tensor-cores.md lists the products")
    _check_arch(e, node, f"`wgmma` of {product.name}")
    return product


def _check_arch(e: DeviceEmitter, node: tir.Call, what: str) -> None:
    if e.arch.name != ARCH:
        help = f"compile for `cuda{{arch={ARCH}}}`, or write products of warps, `T.ptx_mma`, for GPUs from sm_80 on"
        raise unsupported(f"{what} on {e.arch.name}: only {ARCH} has it", node.span, help=help)


def _flag(node: tir.Call, at: int, what: str) -> int:
    flag = tir.const_int(node.args[at])
    if flag is None:
        raise unsupported(f"{what} of `wgmma` is a constant", node.span)
    return int(flag)


def _ss(e: DeviceEmitter, node: tir.Call) -> Value:
    """ptx_wgmma_ss(shape, types of A, B and C, whether A and B are turned, their descriptors, pointer and offset of C,
    whether C is added, signs of A and B)."""
    product = _product(e, node)
    a, b = (e.expr(node.args[at]) for at in (6, 7))
    flags = [_flag(node, at, "a layout") for at in (4, 5)]
    return _issue(e, node, product, [[a], [b]], flags, flags)


def _rs(e: DeviceEmitter, node: tir.Call) -> Value:
    """ptx_wgmma_rs(shape, types, pointer and offset of A, B transposed, descriptor of B, then as `ptx_wgmma_ss`)."""
    product = _product(e, node)
    dtype = dtype_of(product.a)
    _, a = _words(e, node.args[4], node.args[5], product.a_count, dtype.bits, "i32")
    flags = [_flag(node, 6, "a layout")]
    return _issue(e, node, product, [a, [e.expr(node.args[7])]], flags, flags)


def _issue(
    e: DeviceEmitter, node: tir.Call, product: Wgmma, operands: list[list[Value]], turned: list[int], flags: list[int]
) -> Value:
    if any(turned) and not product.may_transpose:
        text = f"`wgmma` for {product.a} takes both matrices with the elements of a sum side by side"
        raise unsupported(text, node.span, help="`transform_layout` turns the one that lies otherwise")
    dtype = dtype_of(product.accumulator)
    type = "float" if product.accumulator == "f32" else "i32"
    places, sums = _words(e, node.args[8], node.args[9], product.sums, dtype.bits, type)
    adds = e.fn.convert("zext", e.expr(node.args[10]), "i32")
    count = len(sums)
    at = count
    lists = ["{" + ", ".join(f"${n}" for n in range(count)) + "}"]
    for group in operands:
        names = [f"${at + n}" for n in range(len(group))]
        lists.append("{" + ", ".join(names) + "}" if len(group) > 1 else names[0])
        at += len(group)
    tail = ["p"]
    if product.accumulator != "s32":
        tail += [str(_flag(node, n, "a sign")) for n in (11, 12)]
        if product.may_transpose:
            tail += [str(int(bool(f))) for f in flags]
    kinds = f"{product.accumulator}.{product.a}.{product.b}"
    code = (
        f"{{ .reg .pred p; setp.ne.b32 p, ${at}, 0; wgmma.mma_async.sync.aligned.{product.name}.{kinds} "
        f"{', '.join([*lists, *tail])}; }}"
    )
    inputs = [v for group in operands for v in group] + [adds]
    _tied(e, code, places, sums, inputs)
    return zero(node.dtype)


def _words(
    e: DeviceEmitter, pointer: tir.Expr, offset: tir.Expr, count: int, bits: int, type: str
) -> tuple[list[Value], list[Value]]:
    """The places and values of registers of 32 bits that a thread's elements are in."""
    start = e.fn.gep(f"i{bits}" if type != "float" else "float", e.expr(pointer), e.index(offset))
    places = [e.fn.gep("i8", start, integer("i64", 4 * n)) for n in range(count * bits // 32)]
    return places, [e.fn.load(type, place, 4) for place in places]


def _tied(e: DeviceEmitter, code: str, places: list[Value], sums: list[Value], inputs: list[Value]) -> None:
    """Emit an instruction with `inputs` and read-write operands `sums`; store their new values at `places`."""
    outs = [f"={_LETTERS[v.type]}" for v in sums]
    given = [*(_LETTERS[v.type] for v in inputs), *map(str, range(len(sums)))]
    constraints = ",".join([*outs, *given, "~{memory}"])
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
    for number, (place, old) in enumerate(zip(places, sums, strict=True)):
        value = returned if len(sums) == 1 else e.fn.extract_value(old.type, returned, number)
        e.fn.store(value, place, 4)


def _order(code: str) -> Emit:
    def emit(e: DeviceEmitter, node: tir.Call) -> Value:
        if not e.accumulators:  # products are refused themselves
            _check_arch(e, node, f"`{code}`")
        places: list[Value] = []
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
                places.append(e.fn.gep("i8", start, integer("i64", 4 * n)))
                sums.append(e.fn.load(type, places[-1], 4))
        _tied(e, f"{text};", places, sums, [])
        return zero(node.dtype)

    return emit


def _address(e: DeviceEmitter, node: tir.Call) -> Value:
    """ptx_shared_address(pointer): where in the shared memory of the block it points."""
    pointer = e.expr(node.args[0])
    if not pointer.type.endswith("addrspace(3)"):
        raise unsupported("`T.ptx_shared_address` takes a pointer to shared memory", node.span)
    return e.fn.convert("ptrtoint", pointer, "i32")


TABLE: dict[str, Emit] = {
    "ptx_wgmma_ss": _ss, "ptx_wgmma_rs": _rs, "ptx_wgmma_fence": _order("wgmma.fence.sync.aligned"),
    "ptx_wgmma_commit_group": _order("wgmma.commit_group.sync.aligned"),
    "ptx_wgmma_wait_group": _order("wgmma.wait_group.sync.aligned"),
    "ptx_shared_address": _address,
}  # fmt: skip
