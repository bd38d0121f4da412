"""TensorIR statements as Python closures over a `State`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

from mlcc.errors import CallError, error
from mlcc.interp import arithmetic
from mlcc.interp.expressions import ExprCompiler, copy_if_view, pointer_of, unsupported
from mlcc.interp.loops import LoopBodyFacts, LoopNest
from mlcc.interp.memory import Pointer, VectorizedRegion, View, compact_strides
from mlcc.interp.state import State, make_view
from mlcc.interp.strided_views import AffineForm, Steps, form_of, forms_of
from mlcc.ir import tir
from mlcc.ir.tir import Expr, IntImm, IterKind

Run = Callable[[State], None]
Body = tuple[tir.Stmt, ...]


class BreakLoop(Exception):
    """Raised at `break`."""


class ContinueLoop(Exception):
    """Raised at `continue`."""


class Compiler(ExprCompiler):
    """Turns the body of one function into closures."""

    def __init__(self) -> None:
        super().__init__()
        self._statements: dict[type, Callable[[Any], Run]] = {
            tir.For: self._for, tir.BlockRealize: self._realize, tir.BufferStore: self._store, tir.Bind: self._bind,
            tir.AllocBuffer: self._alloc, tir.DeclBuffer: self._decl, tir.Evaluate: self._evaluate,
            tir.AssertStmt: self._assert, tir.IfThenElse: self._if, tir.While: self._while, tir.AttrStmt: self._attr,
            tir.Break: lambda _: _raise_jump(BreakLoop), tir.Continue: lambda _: _raise_jump(ContinueLoop),
        }  # fmt: skip

    def body(self, body: Body) -> Run:
        """The closure of a sequence of statements."""
        runs = [self.stmt(s) for s in body]
        if len(runs) == 1:
            return runs[0]

        def run(s: State) -> None:
            for one in runs:
                one(s)

        return run

    def stmt(self, stmt: tir.Stmt) -> Run:
        rule = self._statements.get(type(stmt))
        if rule is None:
            raise unsupported(f"`{type(stmt).__name__}`", stmt)
        return rule(stmt)

    # ------------------------------------------------------------ simple statements

    def _store(self, stmt: tir.BufferStore) -> Run:
        buffer = stmt.buffer
        value = self.expr(stmt.value)
        indices, vector = self.indices(stmt.indices)
        if vector or buffer.dtype.lanes > 1:
            return lambda s: s.store(s.view(buffer, stmt), indices(s), value(s), vector, stmt)
        closures = self.exprs(stmt.indices)
        forms = forms_of(stmt.indices)

        def run(s: State) -> None:
            view = s.view(buffer, stmt)
            stored = value(s)
            if s.dims or len(closures) != len(view.shape):
                if forms is not None and s.dims and s.store_strided(view, forms, stored):
                    return
                s.store(view, [c(s) for c in closures], stored, False, stmt)
                return
            at = view.offset
            for closure, extent, stride in zip(closures, view.shape, view.strides, strict=True):
                index = int(closure(s))
                if not 0 <= index < extent:
                    s.store(view, [c(s) for c in closures], stored, False, stmt)  # says what is wrong
                at += index * stride
            view.data[at] = arithmetic.to_memory(stored, view.dtype) if view.narrow else stored
            if view.storage.defined is not None:
                view.storage.defined[at] = True

        return run

    def _bind(self, stmt: tir.Bind) -> Run:
        value, var = self.expr(stmt.value), stmt.var

        def run(s: State) -> None:
            s.values[var] = copy_if_view(value(s))

        return run

    def _evaluate(self, stmt: tir.Evaluate) -> Run:
        value = self.expr(stmt.value)

        def run(s: State) -> None:
            value(s)

        return run

    def _assert(self, stmt: tir.AssertStmt) -> Run:
        condition = self.expr(stmt.condition)
        message = "".join(stmt.message)

        def run(s: State) -> None:
            holds = condition(s)
            if isinstance(holds, np.ndarray):
                if s.active(~holds).any():
                    s.fault("E0813", "an assertion failed", stmt)
            elif not holds:
                if s.dims:
                    s.fault("E0813", "an assertion failed", stmt)
                text = message if stmt.kind in ("", "AssertionError") else f"{stmt.kind}: {message}"
                raise CallError(error("E0813", text, stmt.span))

        return run

    def _if(self, stmt: tir.IfThenElse) -> Run:
        condition, then = self.expr(stmt.condition), self.body(stmt.then_body)
        other = self.body(stmt.else_body) if stmt.else_body else None

        by_lane = stmt.condition.dtype.lanes > 1

        def run(s: State) -> None:
            chosen = condition(s)
            if by_lane:
                for body, active in ((then, chosen != 0), (other, chosen == 0)):
                    if body is not None:
                        with s.lane_masked(active) as some:
                            if some:
                                body(s)
                return
            if not isinstance(chosen, np.ndarray):
                if chosen:
                    then(s)
                elif other is not None:
                    other(s)
                return
            with s.masked(chosen != 0) as some:
                if some:
                    then(s)
            if other is not None:
                with s.masked(chosen == 0) as some:
                    if some:
                        other(s)

        return run

    def _while(self, stmt: tir.While) -> Run:
        condition, body = self.expr(stmt.condition), self.body(stmt.body)

        def run(s: State) -> None:
            try:
                while condition(s):
                    with contextlib.suppress(ContinueLoop):
                        body(s)
            except BreakLoop:
                pass

        return run

    # ------------------------------------------------------------ loops

    def _for(self, stmt: tir.For) -> Run:
        facts = LoopBodyFacts((stmt,))
        if facts.barrier and _is_thread_axis(stmt.thread):
            return self._threads(stmt.var, stmt.min, stmt.extent, stmt.body, stmt)
        loops = [stmt]
        while len(loops[-1].body) == 1 and isinstance(loops[-1].body[0], tir.For) and not facts.barrier:
            loops.append(loops[-1].body[0])
        inner = self.body(loops[-1].body)
        if _has_jump(stmt.body):
            return self._loop_with_jumps(stmt)
        bounds = [(self.expr(f.min), self.expr(f.extent), None if f.step is None else self.expr(f.step)) for f in loops]
        return LoopNest(loops, bounds, inner, facts).run

    def _loop_with_jumps(self, stmt: tir.For) -> Run:
        """Compile a loop with `break` or `continue`, which runs one iteration at a time."""
        low, extent, body = self.expr(stmt.min), self.expr(stmt.extent), self.body(stmt.body)
        step = 1 if stmt.step is None else tir.const_int(stmt.step) or 1
        var, kind = stmt.var, arithmetic.carrier(stmt.var.dtype).type

        def run(s: State) -> None:
            start = int(low(s))
            try:
                for number in range(start, start + int(extent(s)), step):
                    s.values[var] = kind(number)
                    with contextlib.suppress(ContinueLoop):
                        body(s)
            except BreakLoop:
                pass

        return run

    def _threads(self, var: tir.Var, low: Expr, extent: Expr, body: Body, node: Any) -> Run:
        """Run threads that synchronize at barriers vectorized, in lockstep."""
        inner, start, count = self.body(body), self.expr(low), self.expr(extent)
        kind = arithmetic.carrier(var.dtype)

        def run(s: State) -> None:
            size, first = count(s), start(s)
            if isinstance(size, np.ndarray) or isinstance(first, np.ndarray):
                raise unsupported("barriers between a varying number of threads", node)
            dims, lanes, region = s.dims, s.lanes, s.region
            form = (int(size),) + (1,) * dims
            s.values[var] = (int(first) + np.arange(int(size))).astype(kind).reshape(form)
            s.region, s.dims, s.lanes = VectorizedRegion((int(size),), dims, region, set()), dims + 1, lanes * int(size)
            s.steps[var] = (int(first), {dims: 1})
            s.sizes.append(int(size))
            s.threads += 1
            try:
                inner(s)
            finally:
                s.region, s.dims, s.lanes = region, dims, lanes
                s.sizes.pop()
                s.steps.pop(var, None)
                s.threads -= 1

        return run

    def _attr(self, stmt: tir.AttrStmt) -> Run:
        subject = stmt.subject
        if not isinstance(subject, tir.IterVar) or stmt.key not in ("thread_extent", "virtual_thread"):
            return self.body(stmt.body)
        extent = stmt.value
        if not isinstance(extent, Expr):
            raise unsupported("a thread axis without an extent", stmt)
        zero = IntImm(subject.var.dtype, 0)
        if _is_thread_axis(subject.thread_tag) and LoopBodyFacts(stmt.body).barrier:
            return self._threads(subject.var, zero, extent, stmt.body, stmt)
        return self._for(tir.For(subject.var, zero, extent, tir.ForKind.SERIAL, stmt.body))

    # ------------------------------------------------------------ buffers

    def _shape(self, buffer: tir.Buffer) -> Callable[[State], tuple[int, ...]]:
        closures = self.exprs(buffer.shape)

        def run(s: State) -> tuple[int, ...]:
            dims = [c(s) for c in closures]
            if any(isinstance(n, np.ndarray) for n in dims):
                s.fault("E0872", f"the shape of `{buffer.name}` differs between iterations", buffer)
            return tuple(int(n) for n in dims)

        return run

    def allocation(self, buffer: tir.Buffer) -> Run:
        """Fresh memory for a buffer."""
        shape = self._shape(buffer)
        offset = tir.const_int(buffer.elem_offset) or 0
        strides = [tir.const_int(x) for x in buffer.strides]
        if buffer.strides and all(x is not None for x in strides):
            return lambda s: s.allocate(buffer, shape(s), tuple(strides), offset)  # type: ignore[arg-type]
        return lambda s: s.allocate(buffer, shape(s), None, offset)

    def _alloc(self, stmt: tir.AllocBuffer) -> Run:
        return self.allocation(stmt.buffer)

    def _decl(self, stmt: tir.DeclBuffer) -> Run:
        buffer, shape = stmt.buffer, self._shape(stmt.buffer)
        data = self.expr(stmt.data)
        strides = self.exprs(buffer.strides)
        offset = self.expr(buffer.elem_offset) if buffer.elem_offset is not None else None
        size = arithmetic.stored(buffer.dtype).itemsize * buffer.dtype.lanes

        def run(s: State) -> None:
            place = pointer_of(data(s), s, stmt)
            s.values[buffer.data] = place
            dims = shape(s)
            start = _elements(place.offset, size, s, stmt)
            if offset is not None:
                start = start + np.asarray(offset(s)).astype(np.int64)[()]
            steps = tuple(int(c(s)) for c in strides) if strides else compact_strides(dims)
            s.views[buffer] = s.checked(make_view(buffer, place.storage, dims, steps, start), stmt)

        return run

    def _match(self, match: tir.MatchBufferRegion) -> Run:
        buffer, source = match.buffer, match.source.buffer
        starts = self.exprs(tuple(r.min for r in match.source.region))
        shape_parts = list(zip(buffer.shape, self.exprs_or_none(buffer.shape), strict=True))
        forms = forms_of(tuple(r.min for r in match.source.region))
        extents = self.exprs(tuple(r.extent for r in match.source.region))
        stride_parts = buffer.strides

        def run(s: State) -> None:
            outer = s.view(source, match)
            start = outer.offset
            for closure, stride in zip(starts, outer.strides, strict=True):
                start = start + np.asarray(closure(s)).astype(np.int64)[()] * stride
            lead = len(outer.shape) - len(buffer.shape)
            sizes = [int(np.max(c(s))) for c in extents][lead:]
            strides = outer.strides[lead:]
            for (part, closure), size in zip(shape_parts, sizes, strict=True):
                self._bind_size(part, closure, size, s, buffer)
            for part, stride in zip(stride_parts, strides, strict=False):
                self._bind_size(part, None, stride, s, buffer)
            if isinstance(buffer.elem_offset, tir.Var):
                s.values.setdefault(buffer.elem_offset, arithmetic.carrier(buffer.elem_offset.dtype).type(0))
                s.values[buffer.elem_offset] = np.asarray(start).astype(arithmetic.carrier(buffer.elem_offset.dtype))[
                    ()
                ]
            size = arithmetic.stored(source.dtype).itemsize * source.dtype.lanes
            s.values[buffer.data] = Pointer(outer.storage, 0 if _has_offset(buffer) else start * size)
            steps = self._match_steps(forms, outer, s)
            s.views[buffer] = View(
                outer.storage, outer.data, outer.dtype, tuple(sizes), tuple(strides), start, buffer.name, outer.narrow,
                steps,
            )  # fmt: skip

        return run

    def _match_steps(self, forms: list[AffineForm] | None, outer: View, s: State) -> Steps | None:
        """Return the step of a matched region's start along each axis of the vectorized loops, or None."""
        if outer.steps is None or forms is None:
            return None
        steps = dict(outer.steps)
        for form, stride in zip(forms, outer.strides, strict=True):
            start_and_steps = s.resolve(form)
            if start_and_steps is None:
                return None
            for axis, step in start_and_steps[1].items():
                steps[axis] = steps.get(axis, 0) + step * stride
        return steps

    def exprs_or_none(self, parts: tuple[Expr, ...]) -> list[Any]:
        """Closures; None for variables, which may be bound only by the match."""
        return [None if isinstance(p, tir.Var) else self.expr(p) for p in parts]

    def _bind_size(self, part: Expr, closure: Any, size: int, s: State, buffer: tir.Buffer) -> None:
        if isinstance(part, tir.Var):
            s.values.setdefault(part, arithmetic.carrier(part.dtype).type(size))
            wanted = s.values[part]
        else:
            wanted = closure(s) if closure is not None else self.expr(part)(s)
        if int(np.max(wanted)) != size:
            s.fault("E0805", f"`{buffer.name}` matches {size} elements, but asks for {wanted}", buffer)

    # ------------------------------------------------------------ blocks

    def _realize(self, stmt: tir.BlockRealize) -> Run:
        block = stmt.block
        values = self.exprs(stmt.values)
        axes = [
            (axis.var, arithmetic.cast(axis.var.dtype, v.dtype))
            for axis, v in zip(block.iter_vars, stmt.values, strict=True)
        ]
        forms = [form_of(v) for v in stmt.values]
        predicate = None if isinstance(stmt.predicate, IntImm) and stmt.predicate.value else self.expr(stmt.predicate)
        setup = [self.allocation(b) for b in block.alloc_buffers] + [self._match(m) for m in block.match_buffers]
        body = self.body(block.body)
        init = self._init(block)

        def inside(s: State) -> None:
            for one in setup:
                one(s)
            if init is not None:
                init(s)
            body(s)

        def run(s: State) -> None:
            axis_values = [rule(value(s)) for value, (_, rule) in zip(values, axes, strict=True)]
            for (var, _), value, form in zip(axes, axis_values, forms, strict=True):
                s.values[var] = value
                if s.dims:
                    s.set_steps(var, form)
                elif s.steps:
                    s.steps.pop(var, None)  # left by an earlier vectorized run
            if predicate is None:
                inside(s)
                return
            chosen = predicate(s)
            if not isinstance(chosen, np.ndarray):
                if chosen:
                    inside(s)
                return
            with s.masked(chosen) as some:
                if some:
                    inside(s)

        return run

    def _init(self, block: tir.Block) -> Run | None:
        """Compile the init of a block, which runs where all reduce axes are at their start."""
        if block.init is None:
            return None
        body = self.body(block.init)
        starts = [(a.var, self.expr(a.dom.min)) for a in block.iter_vars if a.kind is IterKind.REDUCE]

        def run(s: State) -> None:
            first: Any = np.bool_(True)
            for var, low in starts:
                first = np.logical_and(first, s.values[var] == low(s))
            if not isinstance(first, np.ndarray):
                if first:
                    body(s)
                return
            with s.masked(first) as some:
                if some:
                    body(s)

        return run


def _elements(offset: Any, size: int, s: State, node: Any) -> Any:
    """A byte offset in elements."""
    if np.any(np.asarray(offset) % size):
        s.fault("E0872", "a pointer is not aligned to the elements it points to", node)
    return np.asarray(offset)[()] // size


def _has_offset(buffer: tir.Buffer) -> bool:
    """Return True if the buffer's element offset is a variable, counted from the data pointer of its source."""
    return isinstance(buffer.elem_offset, tir.Var)


def _is_thread_axis(tag: str | None) -> bool:
    return (tag or "").startswith("threadIdx")


def _raise_jump(kind: type[Exception]) -> Run:
    def run(s: State) -> None:
        raise kind

    return run


def _has_jump(body: Body) -> bool:
    """Return True if a body has a `break` or `continue` of its own loop, not of an inner one."""
    stack: list[Any] = list(body)
    while stack:
        match stack.pop():
            case tir.Break() | tir.Continue():
                return True
            case tir.IfThenElse(then_body=then, else_body=other):
                stack += [*then, *(other or ())]
            case tir.AttrStmt(body=inner):
                stack += inner
            case tir.BlockRealize(block=block):
                stack += [*block.body, *(block.init or ())]
    return False
