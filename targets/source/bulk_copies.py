"""Barriers in shared memory and bulk copies in CUDA C: the PTX backend's instructions in `asm`."""

from __future__ import annotations

from collections.abc import Sequence

from mlcc.ir import tir

# name -> instruction, and its operands as kind and argument number. Kinds: s: shared address of a pointer, S: of a
# pointer plus the offset after it, G: global address of a pointer plus offset, m: address of a parameter, i: integer
_FORMS: dict[str, tuple[str, str]] = {
    "ptx_init_barrier_thread_count": ("mbarrier.init.shared::cta.b64 [%0], %1;", "s0 i1"),
    "ptx_arrive_barrier": ("mbarrier.arrive.shared::cta.b64 _, [%0];", "s0"),
    "ptx_arrive_barrier_expect_tx": ("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;", "s0 i1"),
    "ptx_cp_async_barrier": ("cp.async.mbarrier.arrive.shared::cta.b64 [%0];", "s0"),
    "ptx_wait_barrier": (
        "{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; "
        "@done bra over; bra again; over: }", "s0 i1",
    ),
    "ptx_fence_barrier_init": ("fence.mbarrier_init.release.cluster;", ""),
    "ptx_fence_proxy_async": ("fence.proxy.async.shared::cta;", ""),
    "ptx_cp_async_bulk": (
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];", "S0 G2 i4 s5",
    ),
    "ptx_cp_async_bulk_commit_group": ("cp.async.bulk.commit_group;", ""),
}  # fmt: skip


def asm_statement(name: str, args: Sequence[str], node: tir.Call) -> str | None:
    """Print a call, given its printed arguments; None for other intrinsics."""
    if name == "ptx_wait_barrier" and len(args) == 1:
        args = (*args, "0")
    if name in _FORMS:
        return _asm(*_FORMS[name], args)
    if name == "ptx_cp_async_bulk_wait_group":
        read = ".read" if len(node.args) > 1 and tir.const_int(node.args[1]) else ""
        return _asm(f"cp.async.bulk.wait_group{read} {tir.const_int(node.args[0])};", "", args)
    if name == "ptx_cp_async_bulk_tensor":
        rank = len(args) - 5
        coordinates = ", ".join(f"%{n}" for n in range(2, 2 + rank))
        text = f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        operands = " ".join(("S0 m2", *(f"i{n}" for n in range(5, 5 + rank)), "s3"))
        return _asm(f"{text} [%0], [%1, {{{coordinates}}}], [%{2 + rank}];", operands, args)
    if name == "ptx_cp_async_bulk_tensor_store":
        rank = len(args) - 4
        coordinates = ", ".join(f"%{n}" for n in range(2, 2 + rank))
        text = f"cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group [%1, {{{coordinates}}}], [%0];"
        return _asm(text, " ".join(("S0 m2", *(f"i{n}" for n in range(4, 4 + rank)))), args)
    return None


def _asm(text: str, operands: str, args: Sequence[str]) -> str:
    arguments = ", ".join(operand(o[0], int(o[1:]), args) for o in operands.split())
    return f'asm volatile("{text}" :: {arguments} : "memory")' if arguments else f'asm volatile("{text}" ::: "memory")'


def operand(kind: str, at: int, args: Sequence[str]) -> str:
    match kind:
        case "s":
            return f'"r"((unsigned)__cvta_generic_to_shared({args[at]}))'
        case "S":
            return f'"r"((unsigned)__cvta_generic_to_shared({args[at]} + ({args[at + 1]})))'
        case "G":
            return f'"l"({args[at]} + ({args[at + 1]}))'
        case "m":
            return f'"l"(&{args[at]})'
    return f'"r"((int)({args[at]}))'
