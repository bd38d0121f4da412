"""What happens in some lanes only: branches and choices by a condition of many lanes, loads and stores under a mask.

Lanes that are off touch no memory. LLVM has instructions for it where the CPU has (AVX, AVX-512), else it tests each
lane. What is not by lane inside such a branch (scalar loads, loops) happens if any lane is on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mlcc.ir import tir
from mlcc.ir.node import Node, children
from mlcc.targets.llvm.casts import mangled
from mlcc.targets.llvm.ir_text import Value, integer, vector

if TYPE_CHECKING:
    from mlcc.targets.llvm.emitter import Emitter

_BITS: dict[str, tuple[int, ...]] = {"avx512bw": (8, 16, 32, 64), "avx512f": (32, 64), "avx2": (32, 64)}


def mask_bits(features: frozenset[str]) -> frozenset[int]:
    """The sizes of elements that the CPU loads and stores under a mask."""
    return frozenset(bits for feature in _BITS if feature in features for bits in _BITS[feature])


def branch(e: Emitter, stmt: tir.IfThenElse) -> None:
    """`if` by lane."""
    chosen = e.expr(stmt.condition)
    under(e, chosen, stmt.then_body, lambda: e.body(stmt.then_body))
    if stmt.else_body:
        under(e, _not(e, chosen), stmt.else_body, lambda: e.body(stmt.else_body or ()))


def choose(e: Emitter, condition: tir.Expr, true: tir.Expr, false: tir.Expr) -> Value:
    """One of two values in each lane; a side is evaluated in the lanes that choose it."""
    chosen = e.expr(condition)
    if e.speculatable(true) and e.speculatable(false):
        return e.fn.select(chosen, e.expr(true), e.expr(false))
    one = _side(e, chosen, true)
    return e.fn.select(chosen, one, _side(e, _not(e, chosen), false))


def _side(e: Emitter, mask: Value, node: tir.Expr) -> Value:
    if e.speculatable(node):
        return e.expr(node)
    made: list[Value] = []
    before, after = under(e, mask, (node,), lambda: made.append(e.expr(node)))
    if before == after:
        return made[0]
    inside = made[0]
    # the block in which `inside` was made falls into the current one
    return e.fn.phi(inside.type, [(inside, after), (Value(inside.type, "poison"), before)])


def under(e: Emitter, mask: Value, what: tuple[Node, ...], emit: Callable[[], object]) -> tuple[str, str]:
    """Emit with `mask` over what is active. The blocks before and at the end of what was emitted: the same one, unless
    there is something in `what` that must not happen where no lane is on."""
    fn, outer = e.fn, e.mask
    e.mask = mask if outer is None else fn.binary("and", outer, mask)
    try:
        if not any(_once(node) for node in what):
            emit()
            return fn.block, fn.block
        lanes = mask.type[1:].split(" ")[0]
        reduce = e.ctx.module.declare(f"llvm.vector.reduce.or.v{lanes}i1", "i1", [mask.type])
        then, done = fn.label("lanes"), fn.label("end")
        some = fn.call("i1", reduce, [e.mask])
        before = fn.block
        fn.cond_br(some, then, done)
        fn.start(then)
        emit()
        after = fn.block
        fn.start(done)
        return before, after
    finally:
        e.mask = outer


def _once(root: Node) -> bool:
    """Is there something below that is not by lane, and costs time or may fault?"""
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, (tir.For, tir.While, tir.Evaluate)):
            return True
        if isinstance(node, (tir.BufferLoad, tir.BufferStore)) and all(i.dtype.lanes == 1 for i in node.indices):
            return True
        stack.extend(children(node))
    return False


def _not(e: Emitter, mask: Value) -> Value:
    return e.fn.binary("xor", mask, Value(mask.type, "splat (i1 true)"))


# ---------------------------------------------------------------- memory


def load(e: Emitter, type: str, pointer: Value, mask: Value, align: int) -> Value:
    """A run of elements; lanes that are off are zero."""
    name = f"llvm.masked.load.{mangled(type)}.{mangled(pointer.type)}"
    callee = e.ctx.module.declare(name, type, [pointer.type, "i32", mask.type, type])
    return e.fn.call(type, callee, [pointer, integer("i32", align), mask, Value(type, "zeroinitializer")])


def store(e: Emitter, value: Value, pointer: Value, mask: Value, align: int) -> None:
    """A run of elements, those of lanes that are on."""
    name = f"llvm.masked.store.{mangled(value.type)}.{mangled(pointer.type)}"
    callee = e.ctx.module.declare(name, "void", [value.type, pointer.type, "i32", mask.type])
    e.fn.call("void", callee, [value, pointer, integer("i32", align), mask])


def gather(e: Emitter, type: str, pointers: Value, mask: Value, align: int) -> Value:
    """Elements anywhere; lanes that are off are zero."""
    name = f"llvm.masked.gather.{mangled(type)}.{mangled(pointers.type)}"
    callee = e.ctx.module.declare(name, type, [pointers.type, "i32", mask.type, type])
    return e.fn.call(type, callee, [pointers, integer("i32", align), mask, Value(type, "zeroinitializer")])


def scatter(e: Emitter, value: Value, pointers: Value, mask: Value, align: int) -> None:
    """Elements anywhere, those of lanes that are on; of two at one place the later lane's stays."""
    name = f"llvm.masked.scatter.{mangled(value.type)}.{mangled(pointers.type)}"
    callee = e.ctx.module.declare(name, "void", [value.type, pointers.type, "i32", mask.type])
    e.fn.call("void", callee, [value, pointers, integer("i32", align), mask])


def pointers(e: Emitter, scalar: str, base: Value, indices: Value, lanes: int) -> Value:
    """The addresses of elements, by a vector of i64; those of lanes that are off may be anywhere."""
    return e.fn.op(vector(base.type, lanes), f"getelementptr {scalar}, {base}, {indices}", "p")
