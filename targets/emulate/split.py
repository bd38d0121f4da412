"""Split a kernel at collective calls into regions that each thread runs independently (loop fission over threads).

Loops and conditions around barriers stay outside the regions. Uniform ones are kept; divergent ones are predicated:
each thread has a mask bit, and a loop runs as long as one thread is active. A GPU runs divergent code in the same way,
so barriers that not all threads reach are detected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mlcc.errors import CompileError, error
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import BOOL, INT64
from mlcc.ir.intrinsics import Effect, called, effect_of
from mlcc.ir.node import children, node, replace, walk
from mlcc.ir.tir import Expr, ForKind, Stmt
from mlcc.targets.emulate.collectives import BARRIERS, EXCHANGES, GROUPS, Gathered, is_collective, name_of
from mlcc.targets.emulate.threads import Body, Threads
from mlcc.targets.plan.kernel_memory import bodies


@node
class Region(Stmt):
    """Code without collective calls that every thread runs, or every thread of `mask`."""

    body: tuple[Stmt, ...]
    mask: tir.Buffer | None


def is_pure(value: Expr) -> bool:
    """Return True if a value can be rematerialised at its uses: it reads no memory, and has no effect."""
    for part in walk(value):
        if isinstance(part, tir.BufferLoad) or (
            isinstance(part, tir.Call) and effect_of(part) > Effect.PURE and called(part).into is None
        ):
            return False
    return True


def has_jump(stmt: Stmt) -> bool:
    """Return True if a statement may break out of an enclosing loop, or continue it."""
    if isinstance(stmt, (tir.Break, tir.Continue)):
        return True
    return not isinstance(stmt, (tir.For, tir.While)) and any(has_jump(s) for body in bodies(stmt) for s in body)


@dataclass(frozen=True, slots=True, eq=False)
class _Loop:
    """The number of masks around a loop, and the mask of the threads still in it (None: a uniform loop)."""

    depth: int
    mask: tir.Buffer | None


class Splitter:
    """Split a kernel into regions at collective calls.

    `arrays` are the per-block arrays that the split adds; `shared` is the shared memory that the kernel allocates.
    """

    def __init__(self, threads: Threads) -> None:
        self.threads = threads
        self.arrays: list[tir.Buffer] = []
        self.shared: list[tir.Buffer] = []
        self._varying: set[tir.Var] = set(threads.axes)
        self._masks: list[tir.Buffer] = []  # enclosing masks; the last one says which threads are active
        self._loops: list[_Loop] = []
        self.divergence_points: dict[tir.Buffer, Stmt] = {}  # mask -> the statement at which threads diverge
        self._splits: dict[int, tuple[Stmt, bool]] = {}

    def body(self, statements: Body) -> Body:
        """Split statements into uniform statements and regions."""
        stmts: list[Stmt] = []
        run: list[Stmt] = []
        for stmt in self._inline_scopes(statements):
            if isinstance(stmt, tir.AllocBuffer) and stmt.buffer.scope != "local":
                self.shared.append(stmt.buffer)
            elif self._is_uniform(stmt):
                stmts.append(stmt)
            elif self._is_split(stmt) or (self._can_jump and has_jump(stmt)):
                self._flush(stmts, run)
                run = []
                self._split(stmt, stmts, run)
            else:
                run.append(stmt)
        self._flush(stmts, run)
        return tuple(stmts)

    def _inline_scopes(self, statements: Body) -> Iterator[Stmt]:
        """Yield statements; replace annotated scopes that contain a split by their bodies."""
        for stmt in statements:
            if isinstance(stmt, tir.AttrStmt) and (self._is_split(stmt) or has_jump(stmt)):
                yield from self._inline_scopes(stmt.body)
            else:
                yield stmt

    def _flush(self, output: list[Stmt], run: list[Stmt]) -> None:
        if run:
            output.append(Region(tuple(run), self._mask))

    def _is_uniform(self, stmt: Stmt) -> bool:
        """Return True for a uniform definition; record the variables of other definitions as varying."""
        match stmt:
            case tir.Bind(var=var, value=value):
                if self.is_uniform(value) and not is_collective(value):
                    return True
                self._varying.add(var)
            case tir.DeclBuffer(buffer=buffer, data=data):
                if self.is_uniform(data):
                    return True
                self._varying.add(buffer.data)
            case tir.AllocBuffer(buffer=buffer):
                self._varying.add(buffer.data)
        return False

    def is_uniform(self, value: Expr) -> bool:
        """Return True if all threads of a block compute the same value."""
        if not is_pure(value):
            return False
        for part in walk(value):
            if part in self._varying or (isinstance(part, tir.Buffer) and part.data in self._varying):
                return False
        return True

    def _is_split(self, stmt: Stmt) -> bool:
        """Return True if a statement contains a collective call, or an allocation that all threads share."""
        known = self._splits.get(id(stmt))
        if known is None:
            answer = isinstance(stmt, tir.AllocBuffer) and stmt.buffer.scope != "local"
            nested = {id(s) for body in bodies(stmt) for s in body}
            for body in bodies(stmt):
                answer = any(self._is_split(s) for s in body) or answer
            own = (child for child in children(stmt) if id(child) not in nested)
            answer = answer or any(is_collective(n) or called(n).leaves for child in own for n in walk(child))
            known = self._splits[id(stmt)] = stmt, answer
        return known[1]

    # ------------------------------------------------------------ splitting

    def _split(self, stmt: Stmt, output: list[Stmt], run: list[Stmt]) -> None:
        """Split one statement: append to `output`, and to `run` the start of the next region."""
        match stmt:
            case tir.Bind(var=var, value=tir.Call() as call):
                self._collective(stmt, call, var, output, run)
            case tir.Evaluate(value=tir.Call() as call) if called(call).leaves:
                self._deactivate(output, 0, [loop.mask for loop in self._loops])
            case tir.Evaluate(value=tir.Call() as call):
                self._collective(stmt, call, None, output, run)
            case tir.For():
                self._for(stmt, output)
            case tir.While():
                self._while(stmt, output)
            case tir.IfThenElse():
                self._if(stmt, output)
            case tir.Break():
                self._deactivate(output, self._loops[-1].depth, [self._loops[-1].mask])
            case tir.Continue():
                self._deactivate(output, self._loops[-1].depth, [])
            case _:
                raise CompileError(
                    error("E0749", f"a collective call cannot be emulated inside a `{type(stmt).__name__}`", stmt.span)
                )

    def _collective(self, stmt: Stmt, call: tir.Call, var: tir.Var | None, output: list[Stmt], run: list[Stmt]) -> None:
        name = name_of(call)
        if name in BARRIERS:
            self.at_sync(stmt, call, self._mask, output)
            return
        gathered = self._gather(stmt, call, output, var is not None and name in GROUPS)
        if name in EXCHANGES:
            value = EXCHANGES[name](gathered)
            run.append(tir.Evaluate(value) if var is None else tir.Bind(var, value, span=stmt.span))
            return
        size, meaning = GROUPS[name]
        output.append(self._group_loop(gathered, size, meaning))
        output.extend(self.after_collective(call))
        if var is not None and gathered.result is not None:
            run.append(tir.Bind(var, c.load(gathered.result, self.threads.number), span=stmt.span))

    def at_sync(self, stmt: Stmt, call: tir.Call, mask: tir.Buffer | None, output: list[Stmt]) -> None:
        """Hook for checks where the threads (of `mask`) synchronise; without checks, ending the region suffices."""

    def after_collective(self, call: tir.Call) -> list[Stmt]:
        """Return the code to run after a collective call (hook for checks)."""
        return []

    def _gather(self, stmt: Stmt, call: tir.Call, output: list[Stmt], has_result: bool) -> Gathered:
        """Store the arguments that differ between threads in arrays."""
        slots: list[tir.Buffer | None] = []
        stores: list[Stmt] = []
        for arg in call.args:
            if self.is_uniform(arg):
                slots.append(None)
                continue
            slot = self.array("argument", arg.dtype)
            slots.append(slot)
            stores.append(tir.BufferStore(slot, arg, (self.threads.number,), span=call.span))
        self._flush(output, stores)
        self.at_sync(stmt, call, self._mask, output)
        result = self.array("result", call.dtype) if has_result else None
        return Gathered(call, self.threads, tuple(slots), self._mask, result, self.check_arguments(stmt, call))

    def check_arguments(self, stmt: Stmt, call: tir.Call) -> Callable[[Expr], tuple[Expr, ...]]:
        """Return the additional arguments of each thread of a collective call (hook for checks)."""
        return lambda thread: ()

    def _group_loop(self, gathered: Gathered, size: int, meaning: object) -> Stmt:
        threads = self.threads
        group = tir.Var("group", threads.count.dtype)
        first = tir.Var("first", threads.count.dtype)
        body: Body = tuple(meaning(gathered, first))  # type: ignore[operator]
        if gathered.mask is not None:
            body = (tir.IfThenElse(c.load(gathered.mask, first), body),)
        count = c.floordiv(c.add(threads.count, size - 1), size)
        inner = (tir.Bind(first, c.mul(group, size)), *body)
        return tir.For(group, c.const(0, group.dtype), count, ForKind.SERIAL, inner, span=gathered.call.span)

    def block_prologue(self) -> Body:
        """Return the code that a block starts with (hook for checks)."""
        return ()

    def region_prologue(self) -> Body:
        """Return the code that a thread starts a region with (hook for checks)."""
        return ()

    def array(self, name: str, dtype: object, count: Expr | None = None) -> tir.Buffer:
        """Return a new array with one value per thread, or with `count` values."""
        buffer = c.make_buffer(name, (self.threads.count if count is None else count,), dtype, "local")  # type: ignore[arg-type]
        self.arrays.append(buffer)
        return buffer

    # ------------------------------------------------------------ control flow

    def mask(self, stmt: Stmt) -> tir.Buffer:
        """Return a new mask for a statement at which threads diverge."""
        flags = self.array("mask", BOOL)
        self.divergence_points[flags] = stmt
        return flags

    @property
    def _mask(self) -> tir.Buffer | None:
        return self._masks[-1] if self._masks else None

    def _masked(self, mask: tir.Buffer, body: Body) -> Body:
        self._masks.append(mask)
        inner = self.body(body)
        self._masks.pop()
        return inner

    def kernel(self, statements: Body) -> Body:
        """Split the whole code of a kernel."""
        returns = next((n for s in statements for n in walk(s) if called(n).leaves), None)
        if returns is None:
            return self.body(statements)
        running = self.mask(tir.Evaluate(returns, span=returns.span))
        start = Region((tir.BufferStore(running, c.const(True), (self.threads.number,)),), None)
        return (start, *self._masked(running, statements))

    @property
    def _can_jump(self) -> bool:
        """True if the innermost loop is divergent: threads leave it individually."""
        return bool(self._loops) and self._loops[-1].mask is not None

    def _deactivate(self, output: list[Stmt], depth: int, more: list[tir.Buffer | None]) -> None:
        """Clear the active threads in the masks from `depth` on, and in `more`."""
        masks = [m for m in (*self._masks[depth:], *more) if m is not None]
        off = (tir.BufferStore(m, c.const(False), (self.threads.number,)) for m in masks)
        output.append(Region(tuple(off), self._mask))

    def _active(self) -> Expr:
        return c.const(True) if self._mask is None else c.load(self._mask, self.threads.number)

    def _if(self, stmt: tir.IfThenElse, output: list[Stmt]) -> None:
        if self.is_uniform(stmt.condition):
            then = self.body(stmt.then_body)
            else_body = self.body(stmt.else_body) if stmt.else_body else None
            output.append(replace(stmt, then_body=then, else_body=else_body))
            return
        number = self.threads.number
        then_mask = self.mask(stmt)
        taken = tir.And(BOOL, self._active(), stmt.condition)
        start: list[Stmt] = [tir.BufferStore(then_mask, taken, (number,), span=stmt.span)]
        else_mask = None
        if stmt.else_body:
            else_mask = self.mask(stmt)
            not_taken = tir.And(BOOL, self._active(), c.logical_not(c.load(then_mask, number)))
            start.append(tir.BufferStore(else_mask, not_taken, (number,), span=stmt.span))
        output.append(Region(tuple(start), None))
        output.extend(self._masked(then_mask, stmt.then_body))
        if else_mask is not None and stmt.else_body:
            output.extend(self._masked(else_mask, stmt.else_body))

    def _for(self, stmt: tir.For, output: list[Stmt]) -> None:
        step = stmt.step or c.const(1, stmt.var.dtype)
        jumps = any(has_jump(s) for s in stmt.body)
        if all(self.is_uniform(part) for part in (stmt.min, stmt.extent, step)) and not jumps:
            self._loops.append(_Loop(len(self._masks), None))
            body = self.body(stmt.body)
            self._loops.pop()
            output.append(replace(stmt, body=body, kind=ForKind.SERIAL, annotations=type(stmt.annotations)()))
            return
        number, dtype = self.threads.number, stmt.var.dtype
        bounds = {}
        for name, value in (("start", stmt.min), ("extent", stmt.extent), ("step", step)):
            bounds[name] = self.array(name, dtype)
            output.append(Region((tir.BufferStore(bounds[name], c.cast(dtype, value), (number,)),), self._mask))
        count = self._scalar("count", INT64)
        offset = c.mul(c.cast(INT64, c.load(count, 0)), c.cast(INT64, c.load(bounds["step"], number)))
        condition = c.less(offset, c.cast(INT64, c.load(bounds["extent"], number)))
        self._varying.add(stmt.var)
        start, step_value = (c.load(bounds[name], number) for name in ("start", "step"))
        value = c.add(start, c.mul(c.cast(dtype, c.load(count, 0)), step_value))
        body = (tir.Bind(stmt.var, value, span=stmt.span), *stmt.body)
        output.append(c.store(count, c.const(0, INT64), 0))
        self._loop(stmt, condition, body, [c.store(count, c.add(c.load(count, 0), c.const(1, INT64)), 0)], output)

    def _while(self, stmt: tir.While, output: list[Stmt]) -> None:
        self._loop(stmt, stmt.condition, stmt.body, [], output)

    def _loop(self, stmt: Stmt, condition: Expr, body: Body, increment: list[Stmt], output: list[Stmt]) -> None:
        """Emit a divergent loop; each thread leaves it when its own condition fails."""
        number = self.threads.number
        mask, iteration_mask, any_active = self.mask(stmt), self.mask(stmt), self._scalar("some", BOOL)
        output.append(Region((tir.BufferStore(mask, self._active(), (number,)),), None))
        output.append(c.store(any_active, c.const(True), 0))
        test = Region(
            (
                tir.BufferStore(mask, tir.And(BOOL, c.load(mask, number), condition), (number,), span=stmt.span),
                tir.BufferStore(iteration_mask, c.load(mask, number), (number,)),
                tir.IfThenElse(c.load(mask, number), (c.store(any_active, c.const(True), 0),)),
            ),
            None,
        )
        self._loops.append(_Loop(len(self._masks), mask))
        inner = tir.IfThenElse(c.load(any_active, 0), (*self._masked(iteration_mask, body), *increment))
        self._loops.pop()
        output.append(
            tir.While(c.load(any_active, 0), (c.store(any_active, c.const(False), 0), test, inner), span=stmt.span)
        )

    def _scalar(self, name: str, dtype: object) -> tir.Buffer:
        return self.array(name, dtype, c.const(1))
