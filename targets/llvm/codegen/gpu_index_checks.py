"""Checked indices in the code of a GPU's threads: the first that is wrong is noted, and the thread goes on.

A thread that ends early would leave others waiting for it (barriers, shuffles, products of warps). So a wrong index is
noted in the kernel's error record, by whichever thread comes first, and place 0 is taken in its stead: what the thread
then reads and writes is within its buffers, and thrown away, since the host reports the failure. Only where there may
be no place 0, because the dimension is empty, does the thread end.
"""

from __future__ import annotations

from typing import Protocol

from mlcc.targets.llvm.codegen.ir_text import FunctionText, Value, integer

_FIRST, _SECOND = 8, 16  # bytes from the start of a record (`mlcc.runtime.abi.RECORD`)


class Noting(Protocol):
    """The interface of an emitter of GPU threads: `leave(0)` ends the thread."""

    fn: FunctionText
    mask: Value | None

    def leave(self, code: Value) -> None: ...


def check_index(
    e: Noting, record: Value, index: Value, place: Value, inside: Value, extent: Value, number: int
) -> Value:  # fmt: skip
    """The place of a checked index, lane by lane; see `Emitter.check_index`. `number` is that of the check in its
    kernel, from 1."""
    fn = e.fn
    if not inside.type.startswith("<"):
        return _check_scalar(e, record, index, place, inside, extent, number)
    if e.mask is not None and e.mask.type == inside.type:
        inside = fn.binary("or", inside, fn.binary("xor", e.mask, Value(inside.type, "splat (i1 true)")))
    settled = Value(place.type, "poison")
    for lane in range(int(place.type[1:].split(" ")[0])):
        one, there, good, size = (fn.extract(v, lane) for v in (index, place, inside, extent))
        settled = fn.insert(settled, _check_scalar(e, record, one, there, good, size, number), lane)
    return settled


def _check_scalar(
    e: Noting, record: Value, index: Value, place: Value, inside: Value, extent: Value, number: int
) -> Value:  # fmt: skip
    fn = e.fn
    wrong, write, noted, go_on = (fn.label(name) for name in ("wrong", "note", "noted", "inside"))
    before = fn.block
    fn.cond_br(inside, go_on, wrong)
    fn.start(wrong)
    zero, one = integer("i32", 0), integer("i32", number)
    taken = fn.op("{ i32, i1 }", f"cmpxchg {record}, {zero}, {one} monotonic monotonic")
    fn.cond_br(fn.extract_value("i1", taken, 1), write, noted)
    fn.start(write)
    for value, at in ((index, _FIRST), (extent, _SECOND)):
        fn.store(value, fn.gep("i8", record, integer("i64", at)), 8)
    fn.start(noted)
    if extent.ref.startswith("%") or int(extent.ref) < 1:
        end, stay = fn.label("end"), fn.label("stay")
        fn.cond_br(fn.icmp("slt", extent, integer("i64", 1)), end, stay)
        fn.start(end)
        e.leave(zero)
        fn.start(stay)
    after = fn.block
    fn.start(go_on)
    return fn.phi("i64", [(place, before), (integer("i64", 0), after)])
