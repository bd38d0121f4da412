"""Reductions over nothing: the init of a block whose loops do not run at all."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.conditions import operands
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import map_children, replace, walk
from mlcc.ir.visit import substitute, used_vars

Body = tuple[tir.Stmt, ...]
Names = frozenset[tir.Var | tir.Buffer]


def with_empty_inits(func: tir.PrimFunc) -> tir.PrimFunc:
    """`func`, in which a reduction whose reduce axes turn out to be empty still runs its init, once at each place.

    Before the outermost loop of such a block stands a condition on the extents of its reduce axes, and under it the
    init as a block of its own over all spatial axes. Blocks whose reduce axes are known to have elements stay as they
    are, and so do those under conditions, in `while` loops or in loops bound to threads.
    """
    return _Empty().rewrite(func)  # type: ignore[no-any-return]


class _Empty:
    """Rebuilds bodies of blocks; a node without such reductions inside is kept."""

    def rewrite(self, node: Any) -> Any:
        if isinstance(node, (tir.Expr, tir.Buffer)):
            return node
        if isinstance(node, (tir.Block, tir.PrimFunc)):
            body = self._body(node.body)
            return node if body is node.body else replace(node, body=body)
        return map_children(node, self.rewrite)

    def _body(self, body: Body) -> Body:
        made: list[tir.Stmt] = []
        for stmt in body:
            for hidden, realize in _realizes(stmt):
                made += _init_of_nothing(hidden, realize, stmt)
            made.append(self.rewrite(stmt))
        same = len(made) == len(body) and all(a is b for a, b in zip(made, body, strict=True))
        return body if same else tuple(made)


def _realizes(stmt: tir.Stmt) -> list[tuple[Names, tir.BlockRealize]]:
    """The blocks below a statement, with the variables and buffers that are bound between."""
    found: list[tuple[Names, tir.BlockRealize]] = []
    stack: list[tuple[tir.Stmt, Names]] = [(stmt, frozenset())]
    while stack:
        at, hidden = stack.pop()
        if isinstance(at, tir.BlockRealize):
            found.append((hidden, at))
        elif isinstance(at, tir.For) and at.kind is not tir.ForKind.THREAD_BINDING:
            inside = hidden | {at.var} | _bound(at.body)
            stack += [(inner, inside) for inner in reversed(at.body)]
        elif isinstance(at, tir.AttrStmt):
            stack += [(inner, hidden | _bound(at.body)) for inner in reversed(at.body)]
    return found


def _bound(body: Body) -> Names:
    """What the statements of a body bind for each other."""
    made: set[tir.Var | tir.Buffer] = {s.var for s in body if isinstance(s, tir.Bind)}
    return frozenset(made | {s.buffer for s in body if isinstance(s, (tir.AllocBuffer, tir.DeclBuffer))})


def _init_of_nothing(hidden: Names, realize: tir.BlockRealize, around: tir.Stmt) -> list[tir.Stmt]:
    """What to run before `around`, the outermost loop; nothing where the block cannot be empty, or where that is not
    known there: what its ranges or its init load must not be stored inside."""
    block = realize.block
    reduced = [a for a in block.iter_vars if a.kind is tir.IterKind.REDUCE]
    if block.init is None or all((tir.const_int(a.dom.extent) or 0) > 0 for a in reduced):
        return []
    spatial = [a for a in block.iter_vars if a.kind is tir.IterKind.SPATIAL]
    unknown = hidden | {a.var for a in block.iter_vars if a.kind is not tir.IterKind.SPATIAL} | {*block.alloc_buffers}
    stated = (*(a.dom for a in block.iter_vars), *block.init, *block.writes, *block.match_buffers)
    parts = [n for part in stated for n in walk(part)]
    if any(n in unknown for n in parts) or not _is_bound(realize):
        return []
    loaded = {n.buffer for n in parts if isinstance(n, tir.BufferLoad)}
    if loaded and any(isinstance(n, tir.BufferStore) and n.buffer in loaded for n in walk(around)):
        return []
    axes = [replace(a, var=tir.Var(a.var.name, a.var.dtype)) for a in spatial]
    loops = [tir.Var(a.var.name.removeprefix("v_"), a.var.dtype) for a in spatial]
    renamed: dict[Any, Any] = {old.var: new.var for old, new in zip(spatial, axes, strict=True)}
    init = tir.Block(
        f"{block.name}_init", tuple(axes), (), substitute(block.writes, renamed), substitute(block.init, renamed),
        match_buffers=substitute(block.match_buffers, renamed), annotations=block.annotations,
    )  # fmt: skip
    body: tuple[tir.Stmt, ...] = (tir.BlockRealize(tuple(loops), tir.TRUE, init),)
    for axis, loop in zip(reversed(axes), reversed(loops), strict=True):
        body = (tir.For(loop, axis.dom.min, axis.dom.extent, tir.ForKind.SERIAL, body),)
    empty = reduce(c.logical_or, (c.less_equal(a.dom.extent, c.const(0, a.dom.extent.dtype)) for a in reduced))
    return list(body) if tir.const_int(empty) else [tir.IfThenElse(empty, body)]


def _is_bound(realize: tir.BlockRealize) -> bool:
    """Whether the predicate says no more than that the axes stay in their domains, as splits of loops leave it."""
    return all(_keeps_domain(part, realize) for part in operands(realize.predicate))


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
    whole = reduce(c.mul, extents, c.const(1, other.dtype))
    return Analyzer().prove_equal(*c.match_types(whole, other))
