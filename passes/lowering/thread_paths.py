"""Paths of accesses in kernels (see `passes.gpu.kernels`), from the point of view of memory shared by threads.

For memory of one thread, an execution of a scope has the accesses of that thread. For memory of a block it has those of
all threads: loops over threads count as inner loops, separate for each access.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from mlcc.ir import tir
from mlcc.ir.node import replace as changed
from mlcc.ir.tir import ForKind
from mlcc.ir.visit import substitute
from mlcc.passes.lowering.accesses import Access, BufferUses, Scope
from mlcc.passes.lowering.vector_legality import mentions

_fresh_numbers = count(-1, -1)  # numbers of scopes that no other access shares


def is_thread_bound(scope: Scope) -> bool:
    """Return True if a scope is a loop over threads or blocks; virtual threads are ordinary loops."""
    stmt, _ = scope
    bound = isinstance(stmt, tir.For) and stmt.kind is ForKind.THREAD_BINDING
    return bound and (stmt.thread or "").startswith(("threadIdx", "blockIdx"))  # type: ignore[attr-defined]


def is_thread_loop(scope: Scope, axis: str = "threadIdx") -> bool:
    """Return True if a scope is a loop over the threads of a block, or over one axis of them."""
    stmt, _ = scope
    return is_thread_bound(scope) and (stmt.thread or "").startswith(axis)  # type: ignore[attr-defined]


def kernel_depth(uses: BufferUses) -> int | None:
    """Return the depth of the kernel body that contains all accesses; None if they are not in one kernel."""
    if not uses.accesses:
        return None
    first = uses.accesses[0].path
    depth = max((at + 1 for at, scope in enumerate(first) if is_thread_bound(scope)), default=0)
    return depth if depth and all(a.path[:depth] == first[:depth] for a in uses.accesses) else None


def sink_thread_loops(uses: BufferUses, axis: str = "threadIdx") -> BufferUses:
    """Return the uses with loops over threads moved inside all scopes that are uniform over threads.

    For memory of a warp, only the loops over one `axis` move.
    """
    shared = replace(uses, path=tuple(s for s in uses.path if not is_thread_loop(s, axis)))
    shared.accesses = [_sink_threads(a, axis) for a in uses.accesses]
    return shared


def _sink_threads(access: Access, axis: str) -> Access:
    threads = [s for s, _ in access.path if isinstance(s, tir.For) and is_thread_loop((s, 0), axis)]
    if not threads:
        return access
    own = {loop.var: tir.Var(loop.var.name, loop.var.dtype) for loop in threads}
    divergent = set(own)
    outer: list[Scope] = []
    inner: list[Scope] = []
    position: list[int] = [0]  # of the first scopes of the old path, how many are in `outer`
    for scope in access.path:
        stmt, _ = scope
        if is_thread_loop(scope, axis):
            pass
        elif inner or _is_divergent(stmt, divergent):
            inner.append((_renamed(stmt, own, divergent), next(_fresh_numbers)))
        else:
            outer.append(scope)
        position.append(len(outer) + len(threads) + len(inner) if inner else len(outer))
    path = (*outer, *((changed(loop, var=own[loop.var]), next(_fresh_numbers)) for loop in threads), *inner)
    guards = []
    for guard, at in access.guards:
        renamed = substitute(guard, own)
        guards.append((renamed, position[at] if renamed is guard else max(position[at], len(outer) + len(threads))))
    indices = tuple(substitute(i, own) for i in access.indices)
    return replace(access, indices=indices, guards=tuple(guards), path=path)


def _is_divergent(stmt: tir.Stmt, divergent: set[tir.Var]) -> bool:
    """Return True if the bounds or condition of a scope differ between threads."""
    match stmt:
        case tir.For(min=low, extent=extent):
            return mentions(low, divergent) or mentions(extent, divergent)
        case tir.IfThenElse(condition=condition):
            return mentions(condition, divergent)
    return False


def _renamed(stmt: tir.Stmt, own: dict[tir.Var, tir.Var], divergent: set[tir.Var]) -> tir.Stmt:
    if isinstance(stmt, tir.For):
        if _is_divergent(stmt, divergent):
            divergent.add(stmt.var)
        return changed(stmt, min=substitute(stmt.min, own), extent=substitute(stmt.extent, own))
    return stmt
