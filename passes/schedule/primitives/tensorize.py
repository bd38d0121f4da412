"""`tensorize`: replace the body of a block by a tensor intrinsic."""

from __future__ import annotations

from typing import Any

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.node import Attrs, map_children, replace, walk
from mlcc.ir.visit import Rewriter, substitute
from mlcc.passes.schedule.analysis.checks import scope_root
from mlcc.passes.schedule.analysis.tensor_compare import DescriptionMatcher, Mismatch
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.registry import primitive
from mlcc.passes.schedule.state import BlockRef, LoopRef, State
from mlcc.passes.schedule.tensor_intrin import TensorIntrin, find_intrin
from mlcc.passes.schedule.tree import Rebuild
from mlcc.te.index_dtype import with_index_dtype


@primitive()
def tensorize(
    state: State, block_or_loop: BlockRef | LoopRef, tensor_intrin: str, preserve_unit_iters: bool = True
) -> None:
    """Replace the body of a block, or of a loop made a block before (`blockize`), by a tensor intrinsic.

    The block keeps its axes, its regions and its init; its body becomes the intrinsic's implementation, over views of
    the regions. Refused if no such intrinsic is registered (E0687), if the block does not match its description
    (E0689), or if the loop cannot be made a block (E0655, E0685).
    """
    from mlcc.passes.schedule.primitives.blockize import blockize_loop

    intrin = find_intrin(state, tensor_intrin)
    tree = block_or_loop.tree
    edit = Rebuild(tree)
    if isinstance(block_or_loop, BlockRef):
        scope_root(tree, block_or_loop.block)
        realize = block_or_loop.realize
    else:
        realize, _ = blockize_loop(tree, block_or_loop.loop, preserve_unit_iters)
    try:
        block = apply_intrinsic(realize, intrin)
    except Mismatch as miss:
        raise Refusal(
            "E0689", f"block `{realize.block.name}` does not match `{intrin.name}`: {miss.why}; "
            f"here `{miss.here}`, described `{miss.described}`", block_or_loop.node, miss.help,
        ) from None  # fmt: skip
    if isinstance(block_or_loop, BlockRef):
        edit.put_block(block_or_loop.block, block)
    else:
        edit.put(block_or_loop.loop, replace(realize, block=block))
    state.update(block_or_loop.func_name, edit)


def apply_intrinsic(realize: tir.BlockRealize, intrin: TensorIntrin) -> tir.Block:
    """Return the block with the implementation of `intrin` as its body. Raises Mismatch."""
    index = _index_dtype(realize.block)
    desc = simplified(with_index_dtype(intrin.desc, index))
    pairing = _match_description(realize, desc)
    impl = _copy(intrin.impl, index)
    (impl_realize,) = impl.body
    assert isinstance(impl_realize, tir.BlockRealize)
    inner = impl_realize.block
    accessed: dict[tir.Buffer, tir.BufferRegion] = {}
    for region in (*inner.reads, *inner.writes):
        accessed.setdefault(region.buffer, region)
    views = []
    for theirs, mine in zip(desc.buffers, impl.buffers, strict=True):
        assert theirs is not None and mine is not None
        source = pairing.buffers[theirs]
        views.append(tir.MatchBufferRegion(mine, _region_at(source, pairing.base[source], accessed[mine])))
    block = realize.block
    annotations = {k: v for k, v in inner.annotations.items() if k not in block.annotations}
    return replace(
        block, body=inner.body, match_buffers=(*views, *inner.match_buffers),
        alloc_buffers=block.alloc_buffers + inner.alloc_buffers,
        annotations=Attrs({**block.annotations, **annotations}) if annotations else block.annotations,
    )  # fmt: skip


def _match_description(realize: tir.BlockRealize, desc: tir.PrimFunc) -> DescriptionMatcher:
    """Return the pairing of the buffers of a description with those of a block.

    Raises Mismatch for a block that differs, except in the order of factors.
    """
    pairing = DescriptionMatcher()
    (described,) = desc.body
    assert isinstance(described, tir.BlockRealize)
    try:
        pairing.match(realize, described)
    except Mismatch as miss:
        pairing = DescriptionMatcher()
        try:
            pairing.match(realize, _FactorSwapper().visit(described))
        except Mismatch:
            raise miss from None
    return pairing


class _FactorSwapper(Rewriter):
    """Swap the factors of products of loads, and the order in which blocks read them: x * y is y * x."""

    def rewrite(self, node: Any) -> Any:
        match node:
            case tir.Mul(lhs=lhs, rhs=rhs):
                return replace(node, lhs=rhs, rhs=lhs)
            case tir.Block(reads=reads, writes=writes):
                written = {w.buffer for w in writes}
                factors = iter([r for r in reversed(reads) if r.buffer not in written])
                swapped = tuple(r if r.buffer in written else next(factors) for r in reads)
                return replace(node, reads=swapped)
        return node


def _region_at(source: tir.Buffer, base: list[tir.Expr], region: tir.BufferRegion) -> tir.BufferRegion:
    """Return the region of `source` that begins at `base` and has the extents of `region` in its last dimensions."""
    lead = len(base) - len(region.region)
    spans = [tir.Range(low, c.const(1, low.dtype)) for low in base[:lead]]
    for low, span in zip(base[lead:], region.region, strict=True):
        spans.append(tir.Range(low, c.cast(low.dtype, span.extent)))
    return tir.BufferRegion(source, tuple(spans))


def _index_dtype(block: tir.Block) -> DType:
    """Return the widest integer type in the regions of the block."""
    widths = [span.min.dtype.bits for r in (*block.reads, *block.writes) for span in r.region]
    return DType.of("int64" if max(widths, default=32) > 32 else "int32")


def _copy(func: tir.PrimFunc, index: DType) -> tir.PrimFunc:
    """Return a copy of the function over `index` integers, with fresh variables and buffers."""
    retyped = with_index_dtype(func, index)
    own = {n: tir.Var(n.name, n.dtype, n.pointer) for n in walk(retyped) if isinstance(n, tir.Var)}
    return substitute(retyped, own)


def simplified(func: tir.PrimFunc) -> tir.PrimFunc:
    """The function with its expressions simplified over the ranges of loops and axes."""
    analyzer = Analyzer()

    def expr(node: Any) -> Any:
        if isinstance(node, tir.Expr):
            return analyzer.simplify(node)
        if isinstance(node, (tir.Buffer, tir.IterVar)):
            return node
        return map_children(node, expr)

    def statement(stmt: tir.Stmt) -> tir.Stmt:
        match stmt:
            case tir.For():
                low, extent = analyzer.simplify(stmt.min), analyzer.simplify(stmt.extent)
                analyzer.bind(stmt.var, tir.Range(low, extent))
                return replace(stmt, min=low, extent=extent, body=body(stmt.body))
            case tir.BlockRealize(block=block):
                values, predicate = tuple(map(analyzer.simplify, stmt.values)), analyzer.simplify(stmt.predicate)
                for axis in block.iter_vars:
                    analyzer.bind(axis.var, axis.dom)
                new_block = replace(
                    block, reads=tuple(map(expr, block.reads)), writes=tuple(map(expr, block.writes)),
                    init=None if block.init is None else body(block.init), body=body(block.body),
                )  # fmt: skip
                return replace(stmt, values=values, predicate=predicate, block=new_block)
            case tir.IfThenElse(then_body=then, else_body=other):
                return replace(
                    stmt, condition=analyzer.simplify(stmt.condition), then_body=body(then),
                    else_body=None if other is None else body(other),
                )  # fmt: skip
            case tir.BufferStore(indices=indices, value=value):
                places = tuple(map(analyzer.simplify, indices))
                return replace(stmt, value=analyzer.simplify(value), indices=places)
            case tir.Evaluate(value=value):
                return replace(stmt, value=analyzer.simplify(value))
        return stmt

    def body(stmts: tuple[tir.Stmt, ...]) -> tuple[tir.Stmt, ...]:
        return tuple(map(statement, stmts))

    return replace(func, body=body(func.body))
