"""flip_sign: a factor of a sum of products of bytes, signed instead of unsigned or the other way round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.node import replace, walk
from mlcc.ir.visit import substitute, used_vars
from mlcc.passes.schedule.analysis.block_access import points
from mlcc.passes.schedule.analysis.checks import scope_root
from mlcc.passes.schedule.analysis.reducers import reduction_parts
from mlcc.passes.schedule.buffers import BufferArg
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.registry import primitive
from mlcc.passes.schedule.state import BlockRef, State
from mlcc.passes.schedule.substitution import TrackedSubstitute
from mlcc.passes.schedule.tree import Rebuild, child_realizes

_FLIPS = {"int8": ("uint8", 128), "uint8": ("int8", -128)}


@primitive()
def flip_sign(state: State, block: BlockRef, buffer: BufferArg) -> None:
    """Sum up products with a copy of a factor of the other signedness: uint8 instead of int8, with 128 added to each
    element, or int8 instead of uint8, with 128 subtracted. The difference, 128 times the sums of the other factor, is
    corrected afterwards, so that results stay the same.

    Before:  C[vi, vj] += T.Cast("int32", A[vi, vk]) * T.Cast("int32", B[vk, vj])         # int8, int8
    After:   A_uint8[v0, v1] = T.Cast("uint8", A[v0, v1]) + T.uint8(128)
             B_sums[vj] += T.Cast("int32", B[vk, vj])
             C_flipped[vi, vj] += T.Cast("int32", A_uint8[vi, vk]) * T.Cast("int32", B[vk, vj])
             C[vi, vj] = C_flipped[vi, vj] - 128 * B_sums[vj]

    For CPUs that multiply unsigned by signed bytes. Refused: a block that is no sum, by plain loops, of products of
    integers, of which one is the buffer's element, cast (E0690). TVM has no such primitive.
    """
    tree, old, realize = block.tree, block.block, block.realize
    place = buffer.of(old, "read")
    state.recorded["buffer"] = place.pair
    operand = place.buffer
    scope = scope_root(tree, old, require_stage_pipeline=True)
    other = _other_factor(block, operand)
    top = tree.child_of(scope, realize)
    (target,) = (region.buffer for region in old.writes)
    store = old.body[0]
    assert isinstance(store, tir.BufferStore)
    spatial = [a for a in old.iter_vars if a.kind is tir.IterKind.SPATIAL]
    _check_nest(block, top, store, spatial)
    name, shift = _FLIPS[str(operand.dtype)]
    flipped = c.make_buffer(f"{operand.name}_{name}", operand.shape, DType.of(name), operand.scope)
    raw = c.make_buffer(f"{target.name}_flipped", target.shape, target.dtype, target.scope)
    kept = [a for a in spatial if a.var in used_vars(other)]
    label = next((n.buffer.name for n in walk(other) if isinstance(n, tir.BufferLoad)), "other")
    sums = c.make_buffer(f"{label}_sums", tuple(a.dom.extent for a in kept), target.dtype)
    rewriter = _Flipped({operand: flipped, target: raw}, flipped)
    rewritten = rewriter.visit(top)
    edit = Rebuild(tree)
    edit.put(
        top,
        _copy_nest(operand, flipped, shift),
        _sums_nest(old, other, sums, kept),
        rewritten,
        _correction_nest(store, raw, sums, kept, spatial, shift),
    )
    edit.allocate(scope, flipped, sums, raw)
    state.update(block.func_name, edit, rewriter.reuse)


# ---------------------------------------------------------------- what is required


def _other_factor(block: BlockRef, operand: tir.Buffer) -> tir.Expr:
    """Return the other factor of the products with the operand. Refuses (E0690) any other form."""
    node = block.block

    def refusal(words: str) -> Refusal:
        return Refusal("E0690", f"block `{node.name}` is not a sum of products of bytes: {words}", node)

    if str(operand.dtype) not in _FLIPS:
        raise refusal(f"`{operand.name}` is {operand.dtype}, not int8 or uint8")
    if node.init is None:
        raise refusal("it has no init")
    parts = reduction_parts(node)
    if len(parts.buffers) != 1 or not isinstance(parts.reducer.result[0], tir.Add):
        raise refusal("it does more than add up products")
    value, dtype = parts.rhs[0], parts.buffers[0].dtype
    if not dtype.is_int or dtype.bits < 16:
        raise refusal(f"it sums up {dtype}")
    loads = [n for n in walk((*node.body, *node.init)) if isinstance(n, tir.BufferLoad) and n.buffer is operand]
    if len(loads) == 1 and isinstance(value, tir.Mul):
        for one, other in ((value.lhs, value.rhs), (value.rhs, value.lhs)):
            if isinstance(one, tir.Cast) and one.value is loads[0] and one.dtype is dtype:
                return other
    raise refusal(f"`{value}` is not a product with an element of `{operand.name}` as {dtype}")


def _check_nest(block: BlockRef, top: tir.Stmt, store: tir.BufferStore, spatial: Sequence[tir.IterVar]) -> None:
    """Refuse (E0690) a block that does not store element by element, in its own loops."""
    old = block.block
    whole = tir.const_int(block.realize.predicate) == 1 and all(tir.const_int(a.dom.min) == 0 for a in old.iter_vars)
    plain = [i for i in store.indices if isinstance(i, tir.Var)]
    by_axes = {a.var for a in spatial} == set(plain) and len(set(plain)) == len(plain)
    rest = all(isinstance(i, (tir.Var, tir.IntImm)) for i in store.indices)
    alone = len(child_realizes(top)) == 1 and not old.alloc_buffers and not old.match_buffers
    if not (whole and by_axes and rest and alone):
        message = f"block `{old.name}` does not store one element for each point of its axes, in its own loops"
        raise Refusal("E0690", message, old)


# ---------------------------------------------------------------- the new blocks


class _Flipped(TrackedSubstitute):
    """Other buffers, and loads of what the new operand holds."""

    def __init__(self, replacements: dict[Any, Any], flipped: tir.Buffer) -> None:
        super().__init__(replacements)
        self._flipped = flipped

    def rewrite(self, node: Any) -> Any:
        match node:
            case tir.BufferLoad(buffer=buffer) if buffer is self._flipped:
                return replace(node, dtype=buffer.dtype)
        return node


def _copy_nest(source: tir.Buffer, target: tir.Buffer, shift: int) -> tir.Stmt:
    axes = [_axis(f"v{n}", size, tir.IterKind.SPATIAL) for n, size in enumerate(source.shape)]
    at = tuple(a.var for a in axes)
    value = c.add(c.cast(target.dtype, c.load(source, *at)), c.const(shift, target.dtype))
    return _nest(target.name, axes, (source,), tir.BufferStore(target, value, at))


def _sums_nest(old: tir.Block, other: tir.Expr, sums: tir.Buffer, kept: Sequence[tir.IterVar]) -> tir.Stmt:
    """The sums of the other factor over all reduce axes."""
    chosen = [*kept, *(a for a in old.iter_vars if a.kind is not tir.IterKind.SPATIAL)]
    axes = [_axis(a.var.name, a.dom.extent, a.kind) for a in chosen]
    value = substitute(other, {a.var: new.var for a, new in zip(chosen, axes, strict=True)})
    at = tuple(a.var for a in axes[: len(kept)])
    reads = tuple(dict.fromkeys(n.buffer for n in walk(value) if isinstance(n, tir.BufferLoad)))
    init = (tir.BufferStore(sums, c.const(0, sums.dtype), at),)
    store = tir.BufferStore(sums, c.add(c.load(sums, *at), value), at)
    return _nest(sums.name, axes, reads, store, init)


def _correction_nest(
    store: tir.BufferStore, raw: tir.Buffer, sums: tir.Buffer, kept: Sequence[tir.IterVar],
    spatial: Sequence[tir.IterVar], shift: int,
) -> tir.Stmt:  # fmt: skip
    """The output without what the flipped sign added."""
    axes = [_axis(a.var.name, a.dom.extent, a.kind) for a in spatial]
    new = {a.var: axis.var for a, axis in zip(spatial, axes, strict=True)}
    at = tuple(substitute(i, new) for i in store.indices)
    added = c.mul(c.load(sums, *(new[a.var] for a in kept)), c.const(shift, sums.dtype))
    value = c.sub(c.load(raw, *at), added)
    return _nest(store.buffer.name, axes, (raw, sums), tir.BufferStore(store.buffer, value, at))


def _axis(name: str, extent: tir.Expr, kind: tir.IterKind) -> tir.IterVar:
    return tir.IterVar(tir.Var(name, extent.dtype), tir.Range(c.const(0, extent.dtype), extent), kind)


def _nest(
    name: str, axes: Sequence[tir.IterVar], reads: tuple[tir.Buffer, ...], store: tir.BufferStore,
    init: tuple[tir.Stmt, ...] | None = None,
) -> tir.Stmt:  # fmt: skip
    """A block under one loop for each axis."""
    loads = [n for n in walk(store.value) if isinstance(n, tir.BufferLoad)]
    regions = tuple(tir.BufferRegion(n.buffer, points(n.indices)) for b in reads for n in loads if n.buffer is b)
    writes = (tir.BufferRegion(store.buffer, points(store.indices)),)
    block = tir.Block(name, tuple(axes), regions, writes, (store,), init=init)
    loops = tuple(tir.Var(f"i{n}", a.var.dtype) for n, a in enumerate(axes))
    nest: tir.Stmt = tir.BlockRealize(loops, tir.TRUE, block)
    for var, axis in zip(reversed(loops), reversed(axes), strict=True):
        nest = tir.For(var, axis.dom.min, axis.dom.extent, tir.ForKind.SERIAL, (nest,))
    return nest
