"""Loop nests: the choice of loops that are vectorized as NumPy axes; the others run serially.

A nest of directly nested loops runs with as many of them vectorized as possible (a `Region`), except loops that are
known to depend on their order: reduce axes are bound to them, or the region found that iterations access each other's
memory. Then the writes of the region are undone, the loop is marked, and the nest runs again. After an error in a
region, its writes are undone too and its iterations run one by one, so that the first error is the one reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from mlcc.interp.arithmetic import carrier
from mlcc.interp.calls import is_static
from mlcc.interp.memory import LoopCarriedDependence, RegionFault, Storage, VectorizedRegion
from mlcc.interp.state import State
from mlcc.ir import tir
from mlcc.ir.node import children
from mlcc.ir.tir import IterKind

Run = Callable[[State], None]
Body = tuple[tir.Stmt, ...]
MAX_LANES = 1 << 17  # maximum of vectorized iterations: what fits in a cache
MIN_VECTORIZED = 8


class LoopBodyFacts:
    """Facts of a loop body, collected in one walk: whether the loop may be vectorized, and the buffers it may write."""

    def __init__(self, body: Body) -> None:
        self.simple = True
        self.barrier = False
        self.written: set[tir.Var] = set()
        self.ordered: set[tir.Var] = set()  # variables that reduce axes depend on
        roots: dict[tir.Var, tir.Var] = {}
        for node in _nodes(body):
            match node:
                case tir.While() | tir.Break() | tir.Continue():
                    self.simple = False
                case tir.Call():
                    name = node.op.name if isinstance(node.op, tir.Op) else ""
                    self.barrier = self.barrier or name == "tir.tvm_storage_sync"
                    self.simple = self.simple and is_static(node)
                case tir.BufferStore(buffer=buffer):
                    self.written.add(buffer.data)
                case tir.DeclBuffer(buffer=buffer, data=tir.Var() as data):
                    roots[buffer.data] = data
                case tir.DeclBuffer():
                    self.simple = False
                case tir.Block(match_buffers=matches):
                    roots.update((m.buffer.data, m.source.buffer.data) for m in matches)
                case tir.BlockRealize(values=values, block=block):
                    for axis, value in zip(block.iter_vars, values, strict=False):
                        if axis.kind is not IterKind.SPATIAL:
                            self.ordered |= _variables(value)
        for data in list(self.written):
            while roots.get(data, data) is not data:
                data = roots[data]
                self.written.add(data)


def _nodes(body: Body) -> Iterator[Any]:
    stack: list[Any] = list(body)
    while stack:
        top = stack.pop()
        yield top
        if not isinstance(top, (tir.Var, tir.IntImm, tir.FloatImm, tir.Buffer)):
            stack.extend(children(top))


def _variables(value: Any) -> set[tir.Var]:
    variables: set[tir.Var] = set()
    stack = [value]
    while stack:
        top = stack.pop()
        if isinstance(top, tir.Var):
            variables.add(top)
        else:
            stack.extend(children(top))
    return variables


class LoopNest:
    """Directly nested loops around a body that is not a loop."""

    def __init__(
        self, loops: list[tir.For], bounds: list[tuple[Any, Any, Any]], inner: Run, facts: LoopBodyFacts
    ) -> None:
        self.loops = loops
        self.bounds = bounds  # closures of min, extent and step (None: 1)
        self.inner = inner
        self.facts = facts
        self.kinds = [carrier(loop.var.dtype).type for loop in loops]
        outer: set[tir.Var] = set()
        self.fixed: list[bool] = []  # loops that are never vectorized
        for loop in loops:
            ragged = bool(outer & (_variables(loop.extent) | _variables(loop.min)))
            self.fixed.append(not facts.simple or loop.var in facts.ordered or ragged)
            outer.add(loop.var)

    def run(self, s: State) -> None:
        """Run the whole nest."""
        self._run_from(s, 0, frozenset())

    def _run_from(self, s: State, at: int, serial: frozenset[int]) -> None:
        """Run loop `at` and the loops in it; loops in `serial` run one iteration at a time."""
        if at == len(self.loops):
            self.inner(s)
            return
        low, size, step = self._bounds(s, at)
        if isinstance(size, np.ndarray) or isinstance(low, np.ndarray):
            self._run_ragged(s, at, low, size, step, serial)
            return
        if size <= 0:
            return
        if not self.fixed[at] and at not in serial:
            sizes = self._sizes(s, at, size, serial)
            if sizes is not None:
                self._run_vectorized(s, at, low, size, step, sizes, serial)
                return
        var, kind = self.loops[at].var, self.kinds[at]
        for number in range(size):
            s.values[var] = kind(low + number * step)
            self._run_from(s, at + 1, serial)

    def _bounds(self, s: State, at: int) -> tuple[Any, Any, int]:
        start, count, by = self.bounds[at]
        low, extent, step = start(s), count(s), None if by is None else by(s)
        stride = 1 if step is None else int(step)
        if isinstance(low, np.ndarray) or isinstance(extent, np.ndarray):
            return low, extent, stride
        size = int(extent)
        return int(low), -(-size // stride) if stride > 0 else 0, stride

    def _run_ragged(self, s: State, at: int, low: Any, size: Any, step: int, serial: frozenset[int]) -> None:
        """Run a loop whose bounds differ between vectorized iterations: each is masked off at its own bound."""
        if step != 1:
            raise RegionFault
        low, size = np.broadcast_arrays(low, size)
        active = size if s.mask is None else np.where(s.mask, size, 0)
        most = int(active.max()) if active.size else 0
        for number in range(most):
            with s.masked(np.asarray(size > number)) as some:
                if some:
                    s.values[self.loops[at].var] = low + self.kinds[at](number)
                    self._run_from(s, at + 1, serial)

    def _sizes(self, s: State, at: int, size: int, serial: frozenset[int]) -> dict[int, int] | None:
        """Return the number of vectorized iterations of loop `at` and of each loop inside it.

        None if vectorizing does not pay off, or if the inner loops alone fill the lanes.
        """
        sizes: dict[int, int] = {}
        inner = 1
        for position in range(at + 1, len(self.loops)):
            if self.fixed[position] or position in serial:
                continue
            _, extent, _ = self._bounds(s, position)
            if isinstance(extent, np.ndarray):
                return None
            if extent <= 0:
                return None
            sizes[position] = extent
            inner *= extent
        room = MAX_LANES // max(s.lanes, 1)
        if inner > room // 2 and inner > 1:
            return None
        sizes[at] = min(size, max(room // inner, 1))
        return sizes if sizes[at] * inner >= MIN_VECTORIZED else None

    def _run_vectorized(
        self, s: State, at: int, low: int, size: int, step: int, sizes: dict[int, int], serial: frozenset[int]
    ) -> None:
        first = 0
        while first < size:
            sizes[at] = min(sizes[at], size - first)
            order = sorted(sizes)
            try:
                clash = self._run_region(s, at, low + first * step, step, {p: sizes[p] for p in order})
            except RegionFault:
                self._run_serially(s, at, low, first, size, step, serial)
                return
            if clash is None:
                first += sizes[at]
                continue
            position = at if clash.axis is None else order[clash.axis]
            self.fixed[position] = True
            if position == at:
                self._run_serially(s, at, low, first, size, step, serial)
                return
            del sizes[position]

    def _run_serially(
        self, s: State, at: int, low: int, first: int, size: int, step: int, serial: frozenset[int]
    ) -> None:
        """The iterations from `first` on, one by one."""
        var, kind = self.loops[at].var, self.kinds[at]
        for number in range(first, size):
            s.values[var] = kind(low + number * step)
            self._run_from(s, at + 1, serial)

    def _run_region(
        self, s: State, at: int, low: int, step: int, sizes: dict[int, int]
    ) -> LoopCarriedDependence | None:
        """Run the chosen loops vectorized. On a loop-carried dependence, undo all writes and return the Conflict."""
        outer_dims, outer_lanes, outer_region, mask = s.dims, s.lanes, s.region, s.mask
        shape = tuple(sizes.values())
        tracked = {id(storage) for storage in self._storages(s)}
        region = VectorizedRegion(shape, outer_dims, outer_region, tracked)
        for axis, position in enumerate(sizes):
            start, stride = (low, step) if position == at else self._bounds(s, position)[::2]
            numbers = start + np.arange(shape[axis], dtype=np.int64) * stride
            form = [1] * (len(shape) + outer_dims)
            form[axis] = shape[axis]
            var = self.loops[position].var
            s.values[var] = numbers.astype(self.kinds[position]).reshape(form)
            s.steps[var] = (start, {region.axes[len(shape) - 1 - axis]: stride})
        s.sizes += reversed(shape)
        s.region, s.dims, s.lanes = region, outer_dims + len(shape), outer_lanes * int(np.prod(shape))
        try:
            self._run_inner_loops(s, at, sizes)
        except LoopCarriedDependence as conflict:
            region.undo()
            if conflict.region is not region:
                raise
            return conflict
        except RegionFault:
            region.undo()
            raise
        finally:
            s.region, s.dims, s.lanes, s.mask = outer_region, outer_dims, outer_lanes, mask
            del s.sizes[outer_dims:]
            for position in sizes:
                s.steps.pop(self.loops[position].var, None)
        return None

    def _run_inner_loops(self, s: State, at: int, sizes: dict[int, int]) -> None:
        """Run the remaining loops of the nest serially."""
        while at < len(self.loops) and at in sizes:
            at += 1
        if at == len(self.loops):
            self.inner(s)
            return
        low, size, step = self._bounds(s, at)
        if isinstance(size, np.ndarray) or isinstance(low, np.ndarray):
            raise RegionFault
        var, kind = self.loops[at].var, self.kinds[at]
        for number in range(size):
            s.values[var] = kind(low + number * step)
            self._run_inner_loops(s, at + 1, sizes)

    def _storages(self, s: State) -> Iterator[Storage]:
        for data in self.facts.written:
            pointer = s.values.get(data)
            if pointer is not None:
                yield pointer.storage
