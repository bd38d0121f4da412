"""The fusion kind of a TIR function, derived from its blocks by the rules of TVM's AnnotateTIROpPattern."""

from __future__ import annotations

from typing import Any

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.checked_index import checked_index
from mlcc.ir.node import Node, children, walk
from mlcc.ir.visit import uncast
from mlcc.ops import FusionKind

ATTRIBUTE = "op_pattern"


def kind_of(func: tir.PrimFunc) -> FusionKind:
    """Return the kind in the attribute `op_pattern`, or else the one derived from the blocks."""
    stated = func.attrs.get(ATTRIBUTE)
    if isinstance(stated, tir.IntImm):
        stated = stated.value
    if isinstance(stated, int):
        return FusionKind(stated) if stated in FusionKind.__members__.values() else FusionKind.OPAQUE
    return computed_kind(func)


def computed_kind(func: tir.PrimFunc) -> FusionKind:
    """Return the most complex fusion kind among the blocks, or opaque for anything but a nest of simple blocks."""
    if func.root is None:
        return FusionKind.OPAQUE
    outputs = {b for b in func.buffers if b is not None}
    kind = FusionKind.ELEMWISE
    blocks = _outer_blocks(func.root.body)
    if not blocks:
        return FusionKind.OPAQUE
    for block in blocks:
        block_kind = _block_kind(block)
        if block_kind is FusionKind.OPAQUE:
            return FusionKind.OPAQUE
        writes_output = any(w.buffer in outputs for w in block.writes)
        if kind is FusionKind.COMM_REDUCE and writes_output and block_kind <= FusionKind.INJECTIVE:
            kind = FusionKind.OUT_EWISE_FUSABLE  # reduce, then scale, as softmax does
        else:
            kind = max(kind, block_kind)
    return kind


def _outer_blocks(body: tuple[tir.Stmt, ...]) -> list[tir.Block]:
    """Return the blocks that are not inside other blocks, in order."""
    blocks = []
    stack: list[Any] = list(reversed(body))
    while stack:
        top = stack.pop()
        if isinstance(top, tir.Block):
            blocks.append(top)
        elif isinstance(top, Node):
            stack.extend(reversed(list(children(top))))
    return blocks


def _block_kind(block: tir.Block) -> FusionKind:
    """Return the kind of a block with one store; opaque if it has no store, several, or no known form."""
    nodes = [n for stmt in block.body for n in walk(stmt)]
    stores = [n for n in nodes if isinstance(n, tir.BufferStore)]
    if not stores or any(not _same(s.indices, stores[0].indices) for s in stores):
        return FusionKind.OPAQUE
    store = stores[-1]
    loads = [n for n in nodes if isinstance(n, tir.BufferLoad)]
    kind = FusionKind.ELEMWISE
    has_elemwise = False
    for load in loads:
        if _same(store.indices, load.indices) and not _is_padded(store, load):
            has_elemwise = True
        elif _is_broadcast(store, load) and not _same(store.indices, load.indices):
            kind = max(kind, FusionKind.BROADCAST)
        elif _is_injective(store, load):
            kind = max(kind, FusionKind.INJECTIVE)
        else:
            return _reduction_kind(block, loads)
    # A[i, j] = B[i, j] + C[i] counts as element-wise: it has the layout of one of its operands
    return FusionKind.ELEMWISE if kind is FusionKind.BROADCAST and has_elemwise else kind


def _reduction_kind(block: tir.Block, loads: list[tir.BufferLoad]) -> FusionKind:
    reduced = {i.var for i in block.iter_vars if i.kind is tir.IterKind.REDUCE}
    if not reduced:
        return FusionKind.OPAQUE
    if len(block.body) == 1 and _is_multiply_add(block.body[0]):
        return FusionKind.OUT_EWISE_FUSABLE
    if all(_is_plain_reduction(load, reduced) for load in loads):
        return FusionKind.COMM_REDUCE
    return FusionKind.OUT_EWISE_FUSABLE  # pooling: an axis of the load mixes spatial and reduced variables


def _same(a: tuple[tir.Expr, ...], b: tuple[tir.Expr, ...]) -> bool:
    """Return True if the indices are pairwise the same nodes; expressions that are only equal in value do not count."""
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))


def _is_padded(store: tir.BufferStore, load: tir.BufferLoad) -> bool:
    """Return True if the result is provably larger than the operand at the same indices: padding behind the data."""
    extents = zip(store.buffer.shape, load.buffer.shape, strict=True)
    return any(written is not read and _is_larger(written, read) for written, read in extents)


def _is_larger(first: tir.Expr, second: tir.Expr) -> bool:
    return Analyzer().prove_at_least(c.sub(*c.match_types(first, second)), 1)


def _is_broadcast(store: tir.BufferStore, load: tir.BufferLoad) -> bool:
    """Return True if the indices of the load occur among those of the store, in order; dimensions of 1 are skipped."""
    remaining = iter(store.indices)
    for extent, index in zip(load.buffer.shape, load.indices, strict=True):
        if tir.const_int(extent) == 1 and tir.const_int(index) == 0:
            continue
        if not any(x is index for x in remaining):
            return False
    return True


def _is_injective(store: tir.BufferStore, load: tir.BufferLoad) -> bool:
    """Return True if the load uses only variables that are indices of the store."""
    if not all(isinstance(i, tir.Var) for i in store.indices):
        return False
    known = set(store.indices)
    return all(v in known for i in load.indices for v in _vars(_unchecked_index(i)))


def _unchecked_index(index: tir.Expr) -> tir.Expr:
    """Return the index inside a bounds check, whose bound does not count."""
    check = checked_index(index)
    return index if check is None else check.index


def _is_multiply_add(stmt: tir.Stmt) -> bool:
    """Match `C[i, j] = C[i, j] + A[...] * B[...]`, each factor lacking an axis of the result; casts are skipped."""
    if not isinstance(stmt, tir.BufferStore):
        return False
    total = uncast(stmt.value)
    if not isinstance(total, tir.Add):
        return False
    before, product = uncast(total.lhs), uncast(total.rhs)
    if not (isinstance(before, tir.BufferLoad) and before.buffer is stmt.buffer and isinstance(product, tir.Mul)):
        return False
    factors = (uncast(product.lhs), uncast(product.rhs))
    return _same(before.indices, stmt.indices) and all(
        isinstance(f, tir.BufferLoad) and _is_reused(stmt, f) for f in factors
    )


def _is_reused(store: tir.BufferStore, load: tir.BufferLoad) -> bool:
    """Return True if the load is broadcast: one loaded element is used for several stored ones."""
    if not all(isinstance(i, tir.Var) for i in store.indices):
        return False
    return bool(set(store.indices) - {v for i in load.indices for v in _vars(i)})


def _is_plain_reduction(load: tir.BufferLoad, reduced: set[tir.Var]) -> bool:
    return all(index in reduced or not any(v in reduced for v in _vars(index)) for index in load.indices)


def _vars(expr: tir.Expr) -> list[tir.Var]:
    return [n for n in walk(expr) if isinstance(n, tir.Var)]
