"""Masked code: branches and selects by vector conditions, loads and stores under a mask.

Inactive lanes access no memory. LLVM uses the CPU's masked instructions (AVX, AVX-512, and SVE predicates, here for
vectors of 128 bits whatever the CPU's vector length) or tests each lane. Scalar code inside a masked branch (scalar
loads, loops) runs if any lane is active.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mlcc.ir import tir
from mlcc.ir.checked_index import checked_index
from mlcc.ir.node import Node, children
from mlcc.targets.llvm.codegen.casts import mangled
from mlcc.targets.llvm.codegen.ir_text import Value, integer, vector

if TYPE_CHECKING:
    from mlcc.targets.llvm.codegen.emitter import Emitter


def branch(e: Emitter, stmt: tir.IfThenElse) -> None:
    """Emit an `if` with a vector condition."""
    condition = e.expr(stmt.condition)
    emit_masked(e, condition, stmt.then_body, lambda: e.body(stmt.then_body))
    if stmt.else_body:
        emit_masked(e, _not(e, condition), stmt.else_body, lambda: e.body(stmt.else_body or ()))


def choose(e: Emitter, condition: tir.Expr, true: tir.Expr, false: tir.Expr) -> Value:
    """Select between two values in each lane; each is evaluated only in the lanes that use it."""
    mask = e.expr(condition)
    if e.speculatable(true) and e.speculatable(false):
        return e.fn.select(mask, e.expr(true), e.expr(false))
    true_value = _masked_value(e, mask, true)
    return e.fn.select(mask, true_value, _masked_value(e, _not(e, mask), false))


def _masked_value(e: Emitter, mask: Value, node: tir.Expr) -> Value:
    """Evaluate an expression in the lanes of a mask; the other lanes are arbitrary."""
    if e.speculatable(node):
        return e.expr(node)
    values: list[Value] = []
    before, after = emit_masked(e, mask, (node,), lambda: values.append(e.expr(node)))
    if before == after:
        return values[0]
    value = values[0]
    # the block that computes the value falls through to the current one
    return e.fn.phi(value.type, [(value, after), (Value(value.type, "poison"), before)])


def emit_masked(e: Emitter, mask: Value, nodes: tuple[Node, ...], emit: Callable[[], object]) -> tuple[str, str]:
    """Emit code under a mask in addition to the current one.

    Return the basic blocks before and at the end of the emitted code. They are the same, unless scalar code in `nodes`
    costs time or may fault: a branch then skips it if no lane is active.
    """
    fn, outer_mask = e.fn, e.mask
    e.mask = mask if outer_mask is None else fn.binary("and", outer_mask, mask)
    try:
        if not any(_has_scalar_effects(node) for node in nodes):
            emit()
            return fn.block, fn.block
        lanes = mask.type[1:].split(" ")[0]
        reduce = e.ctx.module.declare(f"llvm.vector.reduce.or.v{lanes}i1", "i1", [mask.type])
        then, done = fn.label("lanes"), fn.label("end")
        any_active = fn.call("i1", reduce, [e.mask])
        before = fn.block
        fn.cond_br(any_active, then, done)
        fn.start(then)
        emit()
        after = fn.block
        fn.start(done)
        return before, after
    finally:
        e.mask = outer_mask


def _has_scalar_effects(root: Node) -> bool:
    """Return True if a node contains scalar code that costs time or may fault: loops, calls, scalar accesses."""
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, (tir.For, tir.While, tir.Evaluate)):
            return True
        if isinstance(node, tir.Call) and node.dtype.lanes == 1 and checked_index(node) is not None:
            return True
        if isinstance(node, (tir.BufferLoad, tir.BufferStore)) and all(i.dtype.lanes == 1 for i in node.indices):
            return True
        stack.extend(children(node))
    return False


def _not(e: Emitter, mask: Value) -> Value:
    return e.fn.binary("xor", mask, Value(mask.type, "splat (i1 true)"))


# ---------------------------------------------------------------- memory


def load(e: Emitter, type: str, pointer: Value, mask: Value, align: int) -> Value:
    """Load contiguous elements; inactive lanes are zero."""
    if not e.MASKED_MEMORY:
        return _load_by_lane(e, type, pointer, mask, align)
    lanes, scalar = _lanes_and_scalar(type)
    step = _lanes_at_once(e, type)
    loaded: Value | None = None
    for start in range(0, lanes, step):
        part = vector(scalar, step)
        name = f"llvm.masked.load.{mangled(part)}.p0"
        part_mask = slice_lanes(e, mask, start, step)
        callee = e.ctx.module.declare(name, part, ["ptr", "i32", part_mask.type, part])
        part_pointer = e.fn.gep(scalar, pointer, integer("i64", start), flags="") if start else pointer
        value = e.fn.call(
            part, callee, [part_pointer, integer("i32", align), part_mask, Value(part, "zeroinitializer")]
        )
        loaded = value if loaded is None else _concat(e, loaded, value)
    assert loaded is not None
    return slice_lanes(e, loaded, 0, lanes)


def store(e: Emitter, value: Value, pointer: Value, mask: Value, align: int) -> None:
    """Store the active lanes to contiguous elements."""
    if not e.MASKED_MEMORY:
        return _store_by_lane(e, value, pointer, mask, align)
    lanes, scalar = _lanes_and_scalar(value.type)
    step = _lanes_at_once(e, value.type)
    for start in range(0, lanes, step):
        part, part_mask = slice_lanes(e, value, start, step), slice_lanes(e, mask, start, step)
        name = f"llvm.masked.store.{mangled(part.type)}.p0"
        callee = e.ctx.module.declare(name, "void", [part.type, "ptr", "i32", part_mask.type])
        part_pointer = e.fn.gep(scalar, pointer, integer("i64", start), flags="") if start else pointer
        e.fn.call("void", callee, [part, part_pointer, integer("i32", align), part_mask])


def _load_by_lane(e: Emitter, type: str, pointer: Value, mask: Value, align: int) -> Value:
    lanes, scalar = _lanes_and_scalar(type)
    loaded = Value(type, "zeroinitializer")
    for lane in range(lanes):
        address = e.fn.gep(scalar, pointer, integer("i64", lane), flags="") if lane else pointer
        inactive, then, done = e.fn.block, e.fn.label("lane"), e.fn.label("next")
        e.fn.cond_br(e.fn.extract(mask, lane), then, done)
        e.fn.start(then)
        updated = e.fn.insert(loaded, e.fn.load(scalar, address, align), lane)
        e.fn.start(done)
        loaded = e.fn.phi(type, [(updated, then), (loaded, inactive)])
    return loaded


def _store_by_lane(e: Emitter, value: Value, pointer: Value, mask: Value, align: int) -> None:
    lanes, scalar = _lanes_and_scalar(value.type)
    for lane in range(lanes):
        address = e.fn.gep(scalar, pointer, integer("i64", lane), flags="") if lane else pointer
        then, done = e.fn.label("lane"), e.fn.label("next")
        e.fn.cond_br(e.fn.extract(mask, lane), then, done)
        e.fn.start(then)
        e.fn.store(e.fn.extract(value, lane), address, align)
        e.fn.start(done)


_SCALAR_BITS = {"float": 32, "double": 64, "half": 16, "ptr": 64}


def _lanes_and_scalar(type: str) -> tuple[int, str]:
    lanes, scalar = type[1:-1].split(" x ")
    return int(lanes), scalar


def _lanes_at_once(e: Emitter, type: str) -> int:
    """Return the number of lanes of one masked access: all of them, or as many as fill 128 bits on SVE."""
    lanes, scalar = _lanes_and_scalar(type)
    if "sve" not in e.ctx.features:
        return lanes
    return 128 // (_SCALAR_BITS.get(scalar) or int(scalar[1:]))


def slice_lanes(e: Emitter, value: Value, start: int, count: int) -> Value:
    """Return `count` lanes from `start` on. Lanes beyond the end of the vector are zero: inactive in a mask."""
    lanes, scalar = _lanes_and_scalar(value.type)
    if start == 0 and count == lanes:
        return value
    lane_indices = ", ".join(f"i32 {min(n, lanes)}" for n in range(start, start + count))
    text = f"shufflevector {value}, {value.type} zeroinitializer, <{count} x i32> <{lane_indices}>"
    return e.fn.op(vector(scalar, count), text)


def _concat(e: Emitter, first: Value, other: Value) -> Value:
    first_lanes, scalar = _lanes_and_scalar(first.type)
    other_lanes = _lanes_and_scalar(other.type)[0]
    widened = slice_lanes(e, other, 0, first_lanes)
    lane_indices = ", ".join(f"i32 {n}" for n in range(first_lanes + other_lanes))
    text = f"shufflevector {first}, {widened}, <{first_lanes + other_lanes} x i32> <{lane_indices}>"
    return e.fn.op(vector(scalar, first_lanes + other_lanes), text)


def gather(e: Emitter, type: str, pointers: Value, mask: Value, align: int) -> Value:
    """Load elements from a vector of addresses; inactive lanes are zero."""
    name = f"llvm.masked.gather.{mangled(type)}.{mangled(pointers.type)}"
    callee = e.ctx.module.declare(name, type, [pointers.type, "i32", mask.type, type])
    return e.fn.call(type, callee, [pointers, integer("i32", align), mask, Value(type, "zeroinitializer")])


def scatter(e: Emitter, value: Value, pointers: Value, mask: Value, align: int) -> None:
    """Store the active lanes to a vector of addresses; of lanes with one address the last one is stored."""
    name = f"llvm.masked.scatter.{mangled(value.type)}.{mangled(pointers.type)}"
    callee = e.ctx.module.declare(name, "void", [value.type, pointers.type, "i32", mask.type])
    e.fn.call("void", callee, [value, pointers, integer("i32", align), mask])


def pointers(e: Emitter, scalar: str, base: Value, indices: Value, lanes: int) -> Value:
    """Return the addresses of elements at a vector of i64 indices; those of inactive lanes may be invalid."""
    return e.fn.op(vector(base.type, lanes), f"getelementptr {scalar}, {base}, {indices}", "p")
