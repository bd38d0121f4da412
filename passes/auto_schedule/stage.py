"""A stage: one block of a kernel with its loops, and the stride of each access along each loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.symbolic_extents import SymbolicExtents
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import children, walk
from mlcc.ir.visit import substitute, used_vars
from mlcc.passes.lowering.divisions import count_divisions
from mlcc.passes.lowering.match_buffer import compact_strides
from mlcc.passes.schedule.tree import Tree


@dataclass(frozen=True, eq=False)
class Access:
    """A load or store of one element, with indices over loop variables."""

    buffer: tir.Buffer
    indices: tuple[tir.Expr, ...]
    stored: bool

    @cached_property
    def variables(self) -> frozenset[tir.Var]:
        return frozenset(used_vars(self.indices))


@dataclass(frozen=True, eq=False)
class Stage:
    """A block with the loops around it."""

    realize: tir.BlockRealize
    loops: tuple[tir.For, ...]

    @property
    def block(self) -> tir.Block:
        return self.realize.block

    @cached_property
    def kinds(self) -> dict[tir.Var, tir.IterKind]:
        """The kind of the axes that each loop drives; a reduction if any of them is one."""
        by_var = dict.fromkeys((loop.var for loop in self.loops), tir.IterKind.SPATIAL)
        for axis, value in zip(self.block.iter_vars, self.realize.values, strict=True):
            if axis.kind is not tir.IterKind.SPATIAL:
                by_var.update((v, axis.kind) for v in used_vars(value) if v in by_var)
        return by_var

    @cached_property
    def axes(self) -> dict[tir.Var, tir.Expr]:
        """The value of each axis."""
        return {a.var: v for a, v in zip(self.block.iter_vars, self.realize.values, strict=True)}

    @cached_property
    def spatial(self) -> tuple[int, ...]:
        """The positions of the loops that drive spatial axes."""
        return tuple(n for n, loop in enumerate(self.loops) if self.kinds[loop.var] is tir.IterKind.SPATIAL)

    @cached_property
    def reduced(self) -> tuple[int, ...]:
        """The positions of the loops that drive reduction axes."""
        return tuple(n for n in range(len(self.loops)) if n not in self.spatial)

    @cached_property
    def extents(self) -> tuple[int | None, ...]:
        """The extent of each loop; None where it is unknown."""
        return tuple(tir.const_int(loop.extent) for loop in self.loops)

    @cached_property
    def plain(self) -> bool:
        """True if the body only stores expressions."""
        return all(isinstance(stmt, tir.BufferStore) for stmt in self.block.body)

    @cached_property
    def straight(self) -> bool:
        """True if the body only stores expressions, possibly bound to variables first, as in tuple reductions."""
        return all(isinstance(stmt, (tir.Bind, tir.BufferStore)) for stmt in self.block.body)

    @cached_property
    def stores(self) -> tuple[tir.BufferStore, ...]:
        return tuple(n for n in walk(self.block.body) if isinstance(n, tir.BufferStore))

    @cached_property
    def accesses(self) -> tuple[Access, ...]:
        """The loads and stores of the body and the init, with indices over loop variables.

        Indices that use variables bound in the body stay. Quotients and remainders are simplified by the ranges of
        loops, as in reshaped data.
        """
        accesses = []
        for node in walk((*self.block.body, *(self.block.init or ()))):
            if isinstance(node, (tir.BufferLoad, tir.BufferStore)):
                indices = tuple(self._by_loops(i) for i in node.indices)
                accesses.append(Access(node.buffer, indices, isinstance(node, tir.BufferStore)))
        return tuple(accesses)

    def _by_loops(self, index: tir.Expr) -> tir.Expr:
        """Rewrite an index of the body over loop variables."""
        expr = self.axes.get(index, index) if isinstance(index, tir.Var) else substitute(index, self.axes)
        if isinstance(expr, tir.Var) or not count_divisions(expr):
            return expr
        simplified = self._analyzer.simplify(expr)
        if not self._spans or not count_divisions(simplified):
            return simplified
        return self._analyzer.simplify(self._spans[0].simplify(simplified))

    def axis_place(self, index: tir.Expr) -> int | None:
        """Return the position of the loop that drives an index of the body; None if the index is not an axis."""
        value = self.axes.get(index) if isinstance(index, tir.Var) else None
        return next((n for n, loop in enumerate(self.loops) if loop.var is value), None)

    @property
    def only_moves_elements(self) -> bool:
        """True if the body is one store of a loaded value: a copy, perhaps in another layout."""
        return not self.reduced and len(self.stores) == 1 and isinstance(self.stores[0].value, tir.BufferLoad)

    @cached_property
    def element_bytes(self) -> int:
        """The size of the widest element that is loaded or stored."""
        return max((max(a.buffer.dtype.bits // 8, 1) for a in self.accesses), default=4)

    @cached_property
    def operations(self) -> int:
        """Estimate the scalar operations of an iteration; calls of intrinsics count for many."""
        total = 0
        for node in walk(self.block.body):
            if isinstance(node, (tir.BinaryOp, tir.BufferLoad, tir.BufferStore, tir.Cast, tir.Select)):
                total += 1
            elif isinstance(node, tir.Call):
                total += CALL_OPERATIONS
        return max(total, 1)

    @cached_property
    def calls(self) -> tuple[tir.Call | tir.Evaluate, ...]:
        """The calls in the body and the init, and the expressions evaluated for their effects."""
        nodes = walk((*self.block.body, *(self.block.init or ())))
        return tuple(n for n in nodes if isinstance(n, (tir.Call, tir.Evaluate)))

    @cached_property
    def iterations(self) -> int | None:
        """The number of iterations of the body; None if it is unknown."""
        return self.times(range(len(self.extents)))

    def times(self, positions: Sequence[int]) -> int | None:
        """Return the product of the extents of the loops at these places, or None if one is unknown."""
        extents = [self.extents[n] for n in positions]
        return None if None in extents else prod(n for n in extents if n is not None)

    @property
    def nonunit_loops(self) -> list[int]:
        """The positions of the loops that run more than once."""
        return [n for n, extent in enumerate(self.extents) if extent != 1]

    def step(self, access: Access, position: int) -> tir.Expr | None:
        """Return the stride of an access in its buffer along a loop; None if it varies."""
        var = self.loops[position].var
        dtype = var.dtype
        if var not in access.variables:
            return c.const(0, dtype)
        analyzer = self._analyzer
        strides = access.buffer.strides or compact_strides(access.buffer.shape)
        total: tir.Expr = c.const(0, dtype)
        for index, stride in zip(access.indices, strides, strict=True):
            if index is var:
                total = c.add(total, c.cast(dtype, stride))
            elif var in used_vars(index):
                difference = c.sub(substitute(index, {var: c.add(var, 1)}), index)
                total = c.add(total, c.mul(c.cast(dtype, difference), c.cast(dtype, stride)))
        total = analyzer.simplify(total)  # as a whole, so that quotients and remainders cancel
        loop_vars = {loop.var for loop in self.loops}
        return None if used_vars(total) & loop_vars or _has_loads_or_calls(total) else total

    @cached_property
    def value_vars(self) -> frozenset[tir.Var]:
        """The loop variables that occur in values and conditions, not only in indices."""
        used: set[tir.Var] = set()
        stack: list[Any] = [*self.block.body, *(self.block.init or ())]
        while stack:
            node = stack.pop()
            if isinstance(node, tir.BufferStore):
                stack.append(node.value)
            elif isinstance(node, tir.Var):
                used.add(node)
            elif not isinstance(node, (tir.BufferLoad, tir.Buffer)):
                stack.extend(children(node))
        return frozenset(used_vars(tuple(value for axis, value in self.axes.items() if axis in used)))

    @cached_property
    def _analyzer(self) -> Analyzer:
        analyzer = Analyzer()
        for loop in self.loops:
            analyzer.bind(loop.var, tir.Range(loop.min, loop.extent))
        return analyzer

    @cached_property
    def _spans(self) -> tuple[SymbolicExtents, ...]:
        """What divisions by unknown extents of loops are decided by; nothing if all are known."""
        sizes = {var for loop in self.loops for var in used_vars(loop.extent)}
        if not sizes:
            return ()
        spans = SymbolicExtents(sizes - {loop.var for loop in self.loops})
        for loop in self.loops:
            if tir.const_int(loop.min) == 0:
                spans.bind(loop.var, loop.extent)
        return (spans,)

    def reads_once(self, buffer: tir.Buffer) -> bool:
        """Return True if no two iterations read the same element of a buffer.

        Only the loops that its indices do not depend on are considered.
        """
        extents = self._repetitions(buffer)
        return extents is not None and all(extent == 1 for extent in extents)

    def may_read_once(self, buffer: tir.Buffer) -> bool:
        """Return True if `reads_once` holds for some values of the unknown extents."""
        extents = self._repetitions(buffer)
        return extents is not None and all(extent in (1, None) for extent in extents)

    def _repetitions(self, buffer: tir.Buffer) -> list[int | None] | None:
        """Return the extents of the loops that the only read of a buffer does not depend on; None for several reads."""
        reads = [a for a in self.accesses if a.buffer is buffer and not a.stored]
        if len(reads) != 1:
            return None
        return [self.extents[n] for n, loop in enumerate(self.loops) if loop.var not in reads[0].variables]

    def steps_by(self, position: int) -> list[int | None]:
        """Return the strides of all accesses along a loop as numbers, None for those that are not constant."""
        return [None if s is None else tir.const_int(s) for s in (self.step(a, position) for a in self.accesses)]

    def same_extent(self, first: tir.For, second: tir.For) -> bool:
        return self._analyzer.prove_equal(first.extent, c.cast(first.extent.dtype, second.extent))

    def store_stride(self, position: int) -> int | None:
        """Return the stride of the stores along a loop; None if it is not a single known number."""
        steps = {s for s, a in zip(self.steps_by(position), self.accesses, strict=True) if a.stored}
        return steps.pop() if len(steps) == 1 else None

    def fusable(self, outer: int, inner: int) -> bool:
        """Return True if every access is as regular over both loops fused as over the inner one.

        False if either loop variable is used as a value.
        """
        if {self.loops[outer].var, self.loops[inner].var} & self.value_vars:
            return False
        extent = self.loops[inner].extent
        for access in self.accesses:
            a, b = self.step(access, outer), self.step(access, inner)
            if a is None or b is None:
                return False
            if not self._analyzer.prove_equal(a, c.mul(b, c.cast(b.dtype, extent))):
                return False
        return True


def stages_of(func: tir.PrimFunc) -> list[Stage]:
    """Return the blocks of a function in order; none if it has no blocks."""
    root = func.root
    tree = Tree(func)
    return [] if root is None else [Stage(r, tuple(tree.loops_above(r.block))) for r in tree.child_realizes(root.body)]


CALL_OPERATIONS = 16  # cost of exp, vector division and the like, in simple operations


def _has_loads_or_calls(expr: tir.Expr) -> bool:
    return any(isinstance(n, (tir.BufferLoad, tir.Call)) for n in walk(expr))
