"""Empty reductions: the init of a block whose loops do not run at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.conditions import conjunct_operands
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import EMPTY, map_children, replace, walk
from mlcc.ir.visit import fresh_binders, substitute, used_vars

Body = tuple[tir.Stmt, ...]
Names = frozenset[tir.Var | tir.Buffer]


def insert_empty_reduction_inits(func: tir.PrimFunc) -> tir.PrimFunc:
    """Return `func` with an init that runs, once for each element, for reductions whose axes turn out to be empty.

    Before the outermost loop of such a block stands a condition on the extents of its reduce axes, and under it the
    init as a separate block over all spatial axes. Blocks whose reduce axes are known to have elements stay unchanged,
    and so do those under conditions or in `while` loops.

    Thread-bound loops that enclose all others keep enclosing them. Inside, each thread runs the init at the elements
    that its values of the spatial axes select.
    """
    return _EmptyReductionRewriter().rewrite(func)  # type: ignore[no-any-return]


class _EmptyReductionRewriter:
    """Rebuilds bodies of blocks; a node without such reductions is kept.

    `_threads`: True if there are surrounding loops and all are bound to threads, None below others.
    """

    def __init__(self) -> None:
        self._threads: bool | None = False
        self._done: set[tir.BlockRealize] = set()

    def rewrite(self, node: Any) -> Any:
        if isinstance(node, (tir.Expr, tir.Buffer)):
            return node
        outer = self._threads
        if isinstance(node, (tir.Block, tir.PrimFunc)):
            self._threads = False
        elif _is_threads(node) and outer is not None:
            self._threads = True
        elif isinstance(node, tir.Stmt) and not isinstance(node, tir.BlockRealize):
            self._threads = None
        try:
            if isinstance(node, (tir.Block, tir.PrimFunc)) or (self._threads and _is_threads(node)):
                body = self._body(node.body)
                return node if body is node.body else replace(node, body=body)
            return map_children(node, self.rewrite)
        finally:
            self._threads = outer

    def _body(self, body: Body) -> Body:
        statements: list[tir.Stmt] = []
        for stmt in body:
            for reduction in _nested_blocks(stmt):
                if reduction.realize not in self._done and self._init_goes_before(stmt, reduction):
                    self._done.add(reduction.realize)
                    statements += _empty_reduction_init(reduction, stmt, bool(self._threads))
            statements.append(self.rewrite(stmt))
        same = len(statements) == len(body) and all(a is b for a, b in zip(statements, body, strict=True))
        return body if same else tuple(statements)

    @staticmethod
    def _init_goes_before(stmt: tir.Stmt, nested: _NestedBlock) -> bool:
        """Return True if the init goes before a statement rather than inside it.

        It goes before threads that divide the reduction among them.
        """
        if not _is_threads(stmt):
            return True
        values = zip(nested.realize.block.iter_vars, nested.realize.values, strict=True)
        driving = used_vars(tuple(v for axis, v in values if axis.kind is not tir.IterKind.SPATIAL))
        return isinstance(stmt, tir.For) and stmt.var in driving


def _is_threads(node: Any) -> bool:
    match node:
        case tir.For(kind=tir.ForKind.THREAD_BINDING) | tir.AttrStmt(key="thread_extent" | "virtual_thread"):
            return True
    return False


@dataclass(frozen=True, slots=True, eq=False)
class _NestedBlock:
    """A block, with the variables and buffers that are bound between a statement and it, and the loops there."""

    realize: tir.BlockRealize
    hidden: Names
    loops: tuple[tir.For, ...]


def _nested_blocks(stmt: tir.Stmt) -> list[_NestedBlock]:
    """Return the blocks below a statement."""
    blocks: list[_NestedBlock] = []
    stack: list[tuple[tir.Stmt, Names, tuple[tir.For, ...]]] = [(stmt, frozenset(), ())]
    while stack:
        at, hidden, loops = stack.pop()
        if isinstance(at, tir.BlockRealize):
            blocks.append(_NestedBlock(at, hidden, loops))
        elif isinstance(at, tir.For):
            inside = hidden | {at.var} | _variables_bound_by(at.body)
            stack += [(inner, inside, (*loops, at)) for inner in reversed(at.body)]
        elif isinstance(at, tir.AttrStmt) and not _is_threads(at):
            stack += [(inner, hidden | _variables_bound_by(at.body), loops) for inner in reversed(at.body)]
    return blocks


def _variables_bound_by(body: Body) -> Names:
    """Return the variables and buffers that statements of a body bind for the statements after them."""
    variables: set[tir.Var | tir.Buffer] = {s.var for s in body if isinstance(s, tir.Bind)}
    return frozenset(variables | {s.buffer for s in body if isinstance(s, (tir.AllocBuffer, tir.DeclBuffer))})


def _empty_reduction_init(nested: _NestedBlock, around: tir.Stmt, in_threads: bool) -> list[tir.Stmt]:
    """Return the guarded init to insert before `around`, the outermost loop; empty if it is not needed or not safe.

    It is not needed if every reduction axis has a positive extent. It is not safe if the ranges or the init use a
    variable bound inside, or load a buffer that `around` stores to.
    """
    realize, hidden = nested.realize, nested.hidden
    block = realize.block
    reduced = [a for a in block.iter_vars if a.kind is tir.IterKind.REDUCE]
    if block.init is None or all((tir.const_int(a.dom.extent) or 0) > 0 for a in reduced):
        return []
    spatial = [a for a in block.iter_vars if a.kind is tir.IterKind.SPATIAL]
    unknown = hidden | {a.var for a in block.iter_vars if a.kind is not tir.IterKind.SPATIAL} | {*block.alloc_buffers}
    evaluated_parts = (*(a.dom for a in block.iter_vars), *block.init, *block.writes, *block.match_buffers)
    parts = [n for part in evaluated_parts for n in walk(part)]
    if any(n in unknown for n in parts) or not _only_bounds_axes(realize):
        return []
    loaded = {n.buffer for n in parts if isinstance(n, tir.BufferLoad)}
    if loaded and any(isinstance(n, tir.BufferStore) and n.buffer in loaded for n in walk(around)):
        return []
    axes = [replace(a, var=tir.Var(a.var.name, a.var.dtype)) for a in spatial]
    renamed: dict[Any, Any] = {old.var: new.var for old, new in zip(spatial, axes, strict=True)}
    renamed |= fresh_binders((*block.init, *block.match_buffers))  # the block keeps its own binders
    init = tir.Block(
        f"{block.name}_init", tuple(axes), (), substitute(block.writes, renamed), substitute(block.init, renamed),
        match_buffers=substitute(block.match_buffers, renamed), annotations=block.annotations,
    )  # fmt: skip
    if in_threads or any(map(_is_threads, nested.loops)):
        body = _in_spatial_loops(init, spatial, nested)
    else:
        body = _over_all_axes(init)
    empty = reduce(c.logical_or, (c.less_equal(a.dom.extent, c.const(0, a.dom.extent.dtype)) for a in reduced))
    return list(body) if tir.const_int(empty) else [tir.IfThenElse(empty, body)]


def _over_all_axes(init: tir.Block) -> Body:
    loops = [tir.Var(a.var.name.removeprefix("v_"), a.var.dtype) for a in init.iter_vars]
    body: Body = (tir.BlockRealize(tuple(loops), tir.TRUE, init),)
    for axis, loop in zip(reversed(init.iter_vars), reversed(loops), strict=True):
        body = (tir.For(loop, axis.dom.min, axis.dom.extent, tir.ForKind.SERIAL, body),)
    return body


def _in_spatial_loops(init: tir.Block, spatial: Sequence[tir.IterVar], nested: _NestedBlock) -> Body:
    """Return the init in the loops around the block that drive spatial axes, without the other loops."""
    drives = dict(zip((a.var for a in nested.realize.block.iter_vars), nested.realize.values, strict=True))
    values: Any = tuple(drives[a.var] for a in spatial)
    wanted = used_vars(values)
    for loop in reversed(nested.loops):
        if loop.var in wanted:
            wanted |= used_vars((loop.min, loop.extent))
    kept = [loop for loop in nested.loops if loop.var in wanted]
    dropped = {loop.var for loop in nested.loops} - wanted
    limits = [part for part in conjunct_operands(nested.realize.predicate) if not used_vars(part) & dropped]
    start: tir.Expr = tir.TRUE
    predicate = reduce(c.logical_and, limits, start)
    body: Body = (tir.BlockRealize(values, predicate, init),)
    for loop in reversed(kept):
        annotations = loop.annotations if _is_threads(loop) else EMPTY
        body = (replace(loop, body=body, annotations=annotations),)
    new: Any = {loop.var: tir.Var(loop.var.name, loop.var.dtype) for loop in kept}
    return substitute(body, new)


def _only_bounds_axes(realize: tir.BlockRealize) -> bool:
    """Return True if the predicate only keeps the axes in their domains, as splits of loops leave it."""
    return all(_keeps_domain(part, realize) for part in conjunct_operands(realize.predicate))


def _keeps_domain(part: tir.Expr, realize: tir.BlockRealize) -> bool:
    """`e < extent`: the extent is that of the axes together that the loops of `e` drive."""
    if not isinstance(part, tir.LT):
        return False
    loops = used_vars(part.lhs)
    driven = [
        axis.dom.extent
        for axis, value in zip(realize.block.iter_vars, realize.values, strict=True)
        if loops & used_vars(value)
    ]
    return _same_product(driven, part.rhs)


def _same_product(extents: Sequence[tir.Expr], other: tir.Expr) -> bool:
    product = reduce(c.mul, extents, c.const(1, other.dtype))
    return Analyzer().prove_equal(*c.match_types(product, other))
