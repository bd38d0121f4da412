"""The primitive `loop_partition`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from itertools import accumulate, pairwise

from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.node import replace, walk
from mlcc.ir.tir import ForKind, IntImm, IterKind, const_int
from mlcc.ir.visit import fresh_binders, substitute
from mlcc.passes.schedule.primitives.loop_checks import check_plain
from mlcc.passes.schedule.primitives.split import check_factors
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.registry import primitive
from mlcc.passes.schedule.state import LoopRef, State
from mlcc.passes.schedule.substitution import map_realizes
from mlcc.passes.schedule.tree import Body, Rebuild, child_realizes


@primitive()
def loop_partition(
    state: State, loop: LoopRef, factors: list[int | None], preserve_unit_iters: bool = True
) -> list[LoopRef]:
    """Divide a loop into consecutive loops, each over the next `factor` iterations; the last one covers the rest.

    A factor None takes what the others leave; without one, there is one more loop than there are factors. Each part is
    a block of its own (`C_i0_partition`, ... in `C_i_common`) with copies of the blocks inside. `preserve_unit_iters`
    has no effect.

    Refused for a loop with annotations or a thread axis (E0620), of unknown size, or that is a reduce axis of a block
    with an init (E0629), and for factors that are not positive or add up to the extent or more (E0621).
    """
    old = loop.loop
    bounds = _bounds(old, factors)
    check_plain(old, "partition")
    below = child_realizes(old.body)
    if not below:
        raise Refusal("E0629", f"loop `{old.var.name}` contains no block", old)
    _check_reductions(old, below)
    name = f"{below[0].block.name}_{old.var.name}"
    dtype = old.var.dtype if old.var.dtype.bits > 32 else DType.of("int32")
    parts, variables = [], []
    for n, (low, high) in enumerate(pairwise(bounds)):
        var = tir.Var(f"{old.var.name}{n}", dtype)
        body = _part(old, var, low, high)
        part_loop = tir.For(var, IntImm(dtype, low), IntImm(dtype, high - low), ForKind.SERIAL, body, span=old.span)
        parts.append(_opaque_block(f"{name}{n}_partition", part_loop))
        variables.append(var)
    edit = Rebuild(loop.tree)
    edit.put(old, _opaque_block(f"{name}_common", *parts))
    state.update(loop.func_name, edit)
    return [state.loop_ref(loop.func_name, var) for var in variables]


def _bounds(loop: tir.For, factors: list[int | None]) -> list[int]:
    """Return where the parts start, and the end of the last. Raises Refusal E0621 or E0629."""
    low, extent, name = const_int(loop.min), const_int(loop.extent), loop.var.name
    if low is None or extent is None:
        what = f"starts at `{loop.min}`" if low is None else f"has the extent `{loop.extent}`"
        raise Refusal("E0629", f"cannot partition loop `{name}`: it {what}, not a number", loop)
    check_factors(loop, factors)
    if factors == [None]:
        raise Refusal("E0621", f"factors=[None] would not divide loop `{name}`", loop, "for example [4, None]")
    total = sum(f for f in factors if f is not None)
    if total >= extent:
        text = " + ".join(str(f) for f in factors if f is not None) or "0"
        total_text = f"{text} = {total}" if total and len(factors) - factors.count(None) > 1 else text
        raise Refusal(
            "E0621", f"the factors leave nothing of loop `{name}` for the last part: {total_text}, but the extent is"
            f" {extent}", loop, "they must add up to less than the extent; the rest becomes a separate part",
        )  # fmt: skip
    sizes = [extent - total if f is None else f for f in factors]
    return [*accumulate(sizes, initial=low)] if None in factors else [*accumulate(sizes, initial=low), low + extent]


def _check_reductions(loop: tir.For, below: list[tir.BlockRealize]) -> None:
    """Refuse (E0629) a loop whose parts would each restart a reduction."""
    for realize in below:
        block = realize.block
        for axis, value in zip(block.iter_vars, realize.values, strict=True):
            if block.init is not None and axis.kind is IterKind.REDUCE and value is loop.var:
                raise Refusal(
                    "E0629",
                    f"cannot partition loop `{loop.var.name}`: it is the reduce axis `{axis.var.name}` of block"
                    f" `{block.name}`, whose init would run again in every part",
                    (loop, block), f"separate the init first: `sch.decompose_reduction({block.name!r}, loop)`",
                )  # fmt: skip


def _opaque_block(name: str, *body: tir.Stmt) -> tir.BlockRealize:
    return tir.BlockRealize((), tir.TRUE, tir.Block(name, (), (), (), body))


def _part(loop: tir.For, var: tir.Var, low: int, high: int) -> Body:
    """A copy of the loop's body for the iterations from `low` on and before `high`."""

    def renamed(block: tir.Block, inside: Callable[[tir.BlockRealize], tir.BlockRealize]) -> tir.Block:
        init = None if block.init is None else map_realizes(block.init, inside)
        name = f"{block.name}_{var.name}"
        return replace(block, name=name, init=init, body=map_realizes(block.body, inside))

    def nested(realize: tir.BlockRealize) -> tir.BlockRealize:
        return replace(realize, block=renamed(realize.block, nested))

    def direct(realize: tir.BlockRealize) -> tir.BlockRealize:
        at = next((n for n, value in enumerate(realize.values) if value is loop.var), None)
        if at is None:  # an axis of a block inside may still be the loop
            return replace(realize, block=renamed(realize.block, direct))
        block = _narrow_axis(renamed(realize.block, nested), at, low, high)
        return replace(realize, block=block)

    body = map_realizes(loop.body, direct)
    copies = fresh_binders(body)
    return tuple(substitute(stmt, {loop.var: var, **copies}) for stmt in body)


def _narrow_axis(block: tir.Block, at: int, low: int, high: int) -> tir.Block:
    """Return `block` with axis number `at` over low .. high - 1, and its regions over that range."""
    axes = list(block.iter_vars)
    dtype = axes[at].var.dtype
    axes[at] = replace(axes[at], dom=tir.Range(IntImm(dtype, low), IntImm(dtype, high - low)))
    domains = {axis.var: axis.dom for axis in axes}
    accessed = _at_axes(block, domains.keys())

    def covered(region: tir.BufferRegion) -> tir.BufferRegion:
        indices = accessed.get(region.buffer)
        return region if indices is None else tir.BufferRegion(region.buffer, tuple(domains[i] for i in indices))

    reads, writes = tuple(map(covered, block.reads)), tuple(map(covered, block.writes))
    return replace(block, iter_vars=tuple(axes), reads=reads, writes=writes)


def _at_axes(block: tir.Block, axes: Collection[tir.Var]) -> dict[tir.Buffer, tuple[tir.Var, ...]]:
    """Return, for each buffer that the block accesses only at its axes and always at the same ones, these axes."""
    indices_of: dict[tir.Buffer, tuple[tir.Expr, ...] | None] = {}
    bare: Counter[tir.Var] = Counter()  # how often a variable occurs, and not as the pointer of a buffer
    views = list(block.match_buffers)
    for node in walk((*block.body, *(block.init or ()))):
        match node:
            case tir.BufferStore(buffer=buffer, indices=indices) | tir.BufferLoad(buffer=buffer, indices=indices):
                same = len(indices_of.setdefault(buffer, indices) or ()) == len(indices) and all(
                    a is b and a in axes for a, b in zip(indices_of[buffer] or (), indices, strict=True)
                )
                indices_of[buffer] = indices if same else None
            case tir.Block():
                views += node.match_buffers
            case tir.Var():
                bare[node] += 1
            case tir.Buffer():
                bare[node.data] -= 1
    hidden = {view.source.buffer for view in views}
    return {
        buffer: indices  # type: ignore[misc]
        for buffer, indices in indices_of.items()
        if indices is not None and buffer not in hidden and not bare[buffer.data]
    }
