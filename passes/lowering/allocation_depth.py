"""Find the innermost scope that may own an allocation: no loop-carried flow dependence may go through the buffer.

The candidates are the loops and branches that contain all uses. Moving an allocation into a loop is sound if each
element that an iteration reads was written earlier in the same iteration. That is proved for each load: some store
covers, over the loops that it does not share with the load, a box that contains the load, or it writes the loaded
element itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from itertools import permutations

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.conditions import linear_parts
from mlcc.arith.intset import eval_set, from_range
from mlcc.arith.region_bound import lower_bound
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.tir import Expr, ForKind
from mlcc.ir.visit import substitute, used_vars
from mlcc.passes.lowering.accesses import Access, BufferUses, Scope, is_pure

MAX_PERMUTED = 3  # loops whose orders are tried one after another
_LOOPS = (ForKind.SERIAL, ForKind.PARALLEL, ForKind.UNROLLED)  # a vectorized loop cannot contain an allocation


def allocation_depth(uses: BufferUses, jumps: bool, loose: set[tir.Var]) -> int:
    """Return the greatest legal depth of the allocation, the length of a common prefix of the paths of all accesses.

    `jumps`: loops may be left early, so that an earlier statement need not have run. `loose` variables may change
    between iterations.
    """
    least = len(uses.path)
    if not uses.accesses or uses.opaque:
        return least
    first, *others = (a.path for a in uses.accesses)
    most = least
    while (
        most < len(first)
        and _may_own(first[most])
        and all(p[most : most + 1] == first[most : most + 1] for p in others)
    ):
        most += 1
    for depth in range(most, least, -1):
        in_loop = any(isinstance(s, tir.For) for s, _ in first[least:depth])
        if not in_loop or (not jumps and is_self_contained(uses.accesses, depth, loose)):
            return depth
    return least


def _may_own(scope: Scope) -> bool:
    stmt, _ = scope
    if isinstance(stmt, tir.For):  # virtual threads are loops as others are
        return stmt.kind in _LOOPS or (stmt.thread or "").startswith(("vthread", "cthread"))
    return isinstance(stmt, (tir.IfThenElse, tir.AttrStmt))


def is_self_contained(accesses: Sequence[Access], depth: int, loose: set[tir.Var]) -> bool:
    """Return True if one execution of the scope at `depth` is proved to read only elements that it wrote before."""
    writes = [a for a in accesses if a.writes]
    return all(
        a.writes or any(w.number < a.number and store_covers(w, a, depth, loose) for w in writes) for a in accesses
    )


def store_covers(store: Access, other: Access, depth: int, loose: set[tir.Var]) -> bool:
    """Return True if `store` is proved to write the element of `other` in the same execution of the scope at `depth`.

    The other access is a load or a store, before or after: the order is for the caller to check. `loose` variables may
    change between iterations.
    """
    common = shared_depth(store, other, depth)
    if any(isinstance(s, tir.While) or not _has_unit_step(s) for s, _ in store.path[common:]):
        return False
    if not all(is_pure(index) for index in (*store.indices, *other.indices)):
        return False  # the memory that an index loads may change in between
    analyzer = Analyzer()
    for loop in (*other.loops(), *store.loops(common)):
        if _has_unit_step(loop):
            analyzer.bind(loop.var, tir.Range(loop.min, loop.extent))
    with ExitStack() as known:
        for guard, _ in other.guards:
            if is_pure(guard):
                known.enter_context(analyzer.constraint(guard))
        pinned = _pin_first_iterations(store, depth, common, analyzer, loose)
        return pinned is not None and _CoverProof(store, other, common, pinned, analyzer).holds()


def shared_depth(one: Access, other: Access, start: int = 0) -> int:
    """Return the length of the common prefix of the paths of two accesses, which share the scopes before `start`."""
    depth = start
    while depth < min(len(one.path), len(other.path)) and one.path[depth] == other.path[depth]:
        depth += 1
    return depth


def _has_unit_step(stmt: tir.Stmt) -> bool:
    """Return True unless the statement is a loop with a step other than 1."""
    return not isinstance(stmt, tir.For) or tir.const_int(stmt.step) in (None, 1)


Pins = dict[tir.Var, Expr]


def _pin_first_iterations(
    store: Access, depth: int, common: int, analyzer: Analyzer, loose: set[tir.Var]
) -> tuple[Pins, list[Expr]] | None:
    """Return the loop variables whose first iteration alone runs the store, and its other conditions; None if unknown.

    A reduction initializes under `k == 0`. The value is there in each later iteration as well, if everything that the
    store depends on is the same in the first iteration.
    """
    loops = {s.var: (s, at) for at, (s, _) in enumerate(store.path) if at >= depth and isinstance(s, tir.For)}
    pins: Pins = {}
    rest: list[Expr] = []
    for guard, at in store.guards:
        if at < common:
            continue
        if not is_pure(guard):
            return None
        first = _first_iterations(guard, loops)
        if first is None:
            rest.append(guard)
        else:
            pins.update(first)
    for var in list(pins):
        loop, at = loops[var]
        if at >= common:
            if not analyzer.prove(c.greater(loop.extent, 0)):
                return None
        elif not _first_iteration_reaches(store, common, loop, at, pins, analyzer) or loose & _store_vars(store, at):
            return None
    return pins, [substitute(part, pins) for part in rest]


def _store_vars(store: Access, depth: int) -> set[tir.Var]:
    """Return the variables in the indices, loop bounds and conditions of the store below a depth."""
    bounds = [e for loop in store.loops(depth) for e in (loop.min, loop.extent)]
    return _vars((*store.indices, *bounds, *(guard for guard, at in store.guards if at > depth)))


def _vars(exprs: Sequence[Expr]) -> set[tir.Var]:
    return {var for expr in exprs for var in used_vars(expr)}


def _first_iteration_reaches(
    store: Access, common: int, loop: tir.For, at: int, pins: Pins, analyzer: Analyzer
) -> bool:  # fmt: skip
    """Return True if the first iteration of `loop` reaches the store whenever another iteration does."""
    if loop.kind not in (ForKind.SERIAL, ForKind.UNROLLED) or not _has_unit_step(loop):
        return False
    for inner, _ in store.path[at + 1 : common]:
        if isinstance(inner, tir.While):
            return False
        if isinstance(inner, tir.For) and loop.var in _vars((inner.min, inner.extent)):
            return False
    for guard, where in store.guards:
        if at < where < common:
            if not is_pure(guard):
                return False
            if loop.var in used_vars(guard) and not analyzer.prove(substitute(guard, pins)):
                return False
    return True


def _first_iterations(guard: Expr, loops: dict[tir.Var, tuple[tir.For, int]]) -> Pins | None:
    """Return the first values of the loop variables if `guard` holds exactly in the first iteration of their loops."""
    match guard:
        case tir.EQ(lhs=lhs, rhs=tir.IntImm(value=wanted)):
            parts = linear_parts(lhs)
        case _:
            return None
    if parts is None or not parts[0]:
        return None
    least, pins = parts[1], {}
    for var, factor in parts[0].items():
        start = tir.const_int(loops[var][0].min) if var in loops else None
        if start is None or factor <= 0:
            return None
        least += factor * start
        pins[var] = loops[var][0].min
    return pins if least == wanted else None


class _CoverProof:
    """The proof for one store and one load. `common` is the length of the path that they share."""

    def __init__(
        self, store: Access, load: Access, common: int, pinned: tuple[Pins, list[Expr]], analyzer: Analyzer
    ) -> None:
        pins, self._guards = pinned
        self._load = load
        self._indices = [substitute(i, pins) for i in store.indices]
        self._own = [loop for loop in store.loops(common) if loop.var not in pins]
        self._pins = pins
        self._common = common
        self._analyzer = analyzer

    def holds(self) -> bool:
        if any(i.dtype.lanes > 1 for i in (*self._indices, *self._load.indices)):
            return False
        return self._same_element({}) or self._matches_loops() or self._in_box()

    def _matches_loops(self) -> bool:
        """Prove that both access the same element in each iteration: their own loops match one to one in extent.

        They may be nested in different orders, such as the loops that compute and that store a register tile.
        """
        wanted = _vars(self._load.indices)
        loops = [loop for loop in self._load.loops(self._common) if loop.var in wanted]
        orders = permutations(loops) if len(loops) <= MAX_PERMUTED else (loops,)
        return any(self._matches_in_order(list(order)) for order in orders)

    def _matches_in_order(self, load_loops: list[tir.For]) -> bool:
        index_vars = _vars(self._indices)
        values: Pins = {}
        for own in self._own:
            start, extent = (substitute(e, {**self._pins, **values}) for e in (own.min, own.extent))
            if own.var not in index_vars:
                if not self._analyzer.prove(c.greater(extent, 0)):
                    return False
                values[own.var] = start
                continue
            if not load_loops:
                return False
            other = load_loops.pop(0)
            if own.var.dtype is not other.var.dtype or not self._analyzer.prove_equal(extent, other.extent):
                return False
            values[own.var] = c.add(c.sub(other.var, other.min), start)
        return not load_loops and self._same_element(values)

    def _same_element(self, values: Pins) -> bool:
        if len(values) != len(self._own):
            return False
        for index, wanted in zip(self._indices, self._load.indices, strict=True):
            if not self._analyzer.prove_equal(substitute(index, values), wanted):
                return False
        return all(self._analyzer.prove(substitute(guard, values)) for guard in self._guards)

    def _in_box(self) -> bool:
        """Prove that the load lies in a box that the store's own loops cover."""
        prove = self._analyzer.prove
        open_guards = [g for g in self._guards if not prove(g)]
        used = _vars((*self._indices, *open_guards))
        if any(loop.var not in used and not prove(c.greater(loop.extent, 0)) for loop in self._own):
            return False
        domain = {
            loop.var: tir.Range(substitute(loop.min, self._pins), substitute(loop.extent, self._pins))
            for loop in self._own if loop.var in used
        }  # fmt: skip
        if domain.keys() & _vars([e for span in domain.values() for e in (span.min, span.extent)]):
            return False
        predicate: Expr = tir.TRUE
        for guard in open_guards:
            predicate = c.logical_and(predicate, guard)
        if not self._indices:
            return not open_guards
        region = [tir.Range(i, c.const(1, i.dtype)) for i in self._indices]
        box = lower_bound(region, domain, predicate, self._analyzer)
        if box is None:
            return False
        for interval, index in zip(box, self._load.indices, strict=True):
            if interval.low is None or interval.high is None or interval.empty:
                return False
            if not self._between(interval.low, index, interval.high):
                return False
        return True

    def _between(self, low: Expr, index: Expr, high: Expr) -> bool:
        """Prove low <= index <= high, for the index itself or its range over the load's own loops (of any extent)."""
        prove = self._analyzer.prove
        loops = {
            x.var: from_range(tir.Range(x.min, x.extent)) for x in self._load.loops(self._common) if _has_unit_step(x)
        }
        reach = eval_set(index, loops)
        least, most = reach.low, reach.high
        from_low = prove(c.less_equal(low, index)) or (least is not None and prove(c.less_equal(low, least)))
        if not from_low:
            return False
        if prove(c.less_equal(index, high)) or (most is not None and prove(c.less_equal(most, high))):
            return True
        # the conditions of the load may bound it where the store's rows end: keep the variables that these mention
        limits = _alternatives(high)
        guarded = _vars([guard for guard, _ in self._load.guards])
        within = eval_set(index, {var: span for var, span in loops.items() if var not in guarded}).high
        bounds = [bound for bound in (within, index, most) if bound is not None]
        return len(limits) > 1 and all(any(prove(c.less_equal(b, limit)) for b in bounds) for limit in limits)


def _alternatives(high: Expr) -> list[Expr]:
    """Return the expressions of which `high` is the least, where it is a sum with a minimum."""
    match high:
        case tir.Min(lhs=lhs, rhs=rhs):
            return [*_alternatives(lhs), *_alternatives(rhs)]
        case tir.Add(lhs=lhs, rhs=rhs):
            return [c.add(a, b) for a in _alternatives(lhs) for b in _alternatives(rhs)]
        case tir.Sub(lhs=lhs, rhs=rhs):
            return [c.sub(a, rhs) for a in _alternatives(lhs)]
    return [high]
