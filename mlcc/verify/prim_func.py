"""The rules of TensorIR functions, checked in one walk that visits every node once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from mlcc.arith.proofs import is_one
from mlcc.errors import Label, Span
from mlcc.ir import tir
from mlcc.ir.node import children
from mlcc.ir.tir import Expr, ForKind, IntImm, IterKind
from mlcc.ops.size_limits import too_large
from mlcc.verify.access import check_regions
from mlcc.verify.axes import Domains, LocalBuffers, PartitionKey, check_axes, partition_key
from mlcc.verify.calls import call_error
from mlcc.verify.expressions import access_dtype, access_error, expression_error
from mlcc.verify.out_of_bounds import check_bounds
from mlcc.verify.report import Report
from mlcc.verify.scope import Scope, matched_vars

Body = tuple[tir.Stmt, ...]
THREADS = frozenset({f"{kind}.{axis}" for kind in ("blockIdx", "threadIdx", "vthread") for axis in "xyz"} | {
    "vthread", "cthread",
})  # fmt: skip


class FuncVerifier:
    """Walks one function; findings go to `report`. `functions` are those of the module, by name."""

    def __init__(self, report: Report, functions: Mapping[str, Any]) -> None:
        self.report = report
        self._functions = functions
        self._scope = Scope()
        self._domains = Domains()
        self._seen: dict[int, int] = {}
        self._loops = 0
        self._guards = 0
        self._threads: dict[str, tuple[int, Any]] = {}  # of the kernel around this place
        self._thread_nest = 0
        self._blocks: set[tir.Block] = set()
        self._parts: Counter[PartitionKey] = Counter()
        self._local = LocalBuffers()
        self._reported: set[tir.Var] = set()  # variables that were reported

    def function(self, func: tir.PrimFunc) -> None:
        """Check a whole function."""
        self._parts = Counter(map(partition_key, _blocks(func.body)))
        self._local.func = func
        self.report.at(func)
        if len(func.params) != len(func.buffers):
            message = f"{len(func.params)} parameters and {len(func.buffers)} entries of `buffers`"
            self.report.add("E0346", message, func)
        for param in func.params:
            if not self._scope.define(param):
                self.report.add("E0346", f"parameter `{param.name}` is listed twice", param)
        matched = [b for b in func.buffers if b is not None]
        for param, buffer in zip(func.params, func.buffers, strict=False):
            if buffer is not None and not param.dtype.is_handle:
                message = f"parameter `{param.name}` has a buffer, so it must be a handle, not {param.dtype}"
                self.report.add("E0346", message, param)
        for buffer in matched:
            self._define(buffer, buffer)
            self._scope.define(buffer.data)
            for var in matched_vars(buffer):
                if not self._scope.bound(var):
                    self._scope.define(var)
        for buffer in matched:
            self._check_buffer(buffer)
        self._body(func.body, outermost=True)

    # ------------------------------------------------------------ statements

    def _body(self, body: Body, outermost: bool = False) -> None:
        with self._scope.frame():
            for stmt in body:
                self._stmt(stmt, outermost)

    def _stmt(self, stmt: tir.Stmt, outermost: bool) -> None:
        near = self.report.nearest_span
        self.report.at(stmt)
        rule = self._RULES.get(type(stmt))
        if rule is None:
            self.report.add("E0349", f"`{type(stmt).__name__}` is not allowed here", stmt)
        elif isinstance(stmt, tir.BlockRealize):
            self._realize(stmt, outermost)
        else:
            rule(self, stmt)
        self.report.nearest_span = near

    def _bind(self, stmt: tir.Bind) -> None:
        self._expr(stmt.value)
        if stmt.var.dtype is not stmt.value.dtype:
            message = f"`{stmt.var.name}` is {stmt.var.dtype}, but its value is {stmt.value.dtype}"
            self.report.add("E0337", message, stmt)
        self._define(stmt.var, stmt)

    def _store(self, stmt: tir.BufferStore) -> None:
        self._use_buffer(stmt.buffer, stmt)
        for part in (*stmt.indices, stmt.value):
            self._expr(part)
        violation = access_error(stmt.buffer, stmt.indices)
        if violation is not None:
            self.report.add(*violation, stmt)
            return
        want = access_dtype(stmt.buffer, stmt.indices)
        if stmt.value.dtype is not want:
            message = f"`{stmt.buffer.name}` holds {want}, but the value is {stmt.value.dtype}"
            place = Label(self._scope.place(stmt.buffer), f"`{stmt.buffer.name}` is declared here")
            self.report.add("E0338", message, stmt, related=(place,) if place.span else ())

    def _evaluate(self, stmt: tir.Evaluate) -> None:
        self._expr(stmt.value)

    def _assert(self, stmt: tir.AssertStmt) -> None:
        self._condition(stmt.condition, "an assertion", stmt)

    def _if(self, stmt: tir.IfThenElse) -> None:
        self._condition(stmt.condition, "`if`", stmt, by_lane=True)
        self._guards += 1
        self._body(stmt.then_body)
        self._body(stmt.else_body or ())
        self._guards -= 1

    def _while(self, stmt: tir.While) -> None:
        self._condition(stmt.condition, "`while`", stmt)
        self._loops += 1
        self._guards += 1
        self._body(stmt.body)
        self._guards -= 1
        self._loops -= 1

    def _jump(self, stmt: tir.Stmt) -> None:
        if not self._loops:
            word = type(stmt).__name__.lower()
            self.report.add("E0347", f"`{word}` outside a loop", stmt)

    def _attr(self, stmt: tir.AttrStmt) -> None:
        if isinstance(stmt.value, Expr):
            self._expr(stmt.value)
        subject = stmt.subject
        if not isinstance(subject, tir.IterVar):
            if isinstance(subject, Expr):
                self._expr(subject)
            elif isinstance(subject, tir.Buffer):
                self._use_buffer(subject, stmt)
            self._body(stmt.body)
            return
        with self._scope.frame():
            if not self._scope.bound(subject.var):  # a thread variable may be entered again
                self._scope.define(subject.var, stmt)
            if stmt.key == "thread_extent":
                self._thread(subject.thread_tag, stmt.value, stmt)
                if isinstance(stmt.value, Expr):
                    self._domains.ranges[subject.var] = tir.Range(IntImm(subject.var.dtype, 0), stmt.value)
            self._thread_nest += stmt.key == "thread_extent"
            self._body(stmt.body)
            self._thread_nest -= stmt.key == "thread_extent"

    def _for(self, stmt: tir.For) -> None:
        for part in (stmt.min, stmt.extent, *((stmt.step,) if stmt.step is not None else ())):
            self._expr(part)
            if part.dtype is not stmt.var.dtype:
                message = f"loop variable `{stmt.var.name}` is {stmt.var.dtype}, but a loop bound is {part.dtype}"
                self.report.add("E0337", message, part)
        if not stmt.var.dtype.is_int or stmt.var.dtype.lanes != 1:
            message = f"loop variable `{stmt.var.name}` must be an integer, not {stmt.var.dtype}"
            self.report.add("E0337", message, stmt)
        self._loop_kind(stmt)
        with self._scope.frame():
            self._define(stmt.var, stmt)
            stepped = stmt.step is not None and tir.const_int(stmt.step) != 1
            if not stepped:
                self._domains.ranges[stmt.var] = tir.Range(stmt.min, stmt.extent)
            self._domains.loops[stmt.var] = stmt
            self._loops += 1
            self._thread_nest += stmt.kind is ForKind.THREAD_BINDING
            self._body(stmt.body)
            self._thread_nest -= stmt.kind is ForKind.THREAD_BINDING
            self._loops -= 1

    def _loop_kind(self, stmt: tir.For) -> None:
        name = stmt.var.name
        if stmt.step is not None and (step := tir.const_int(stmt.step)) is not None and step <= 0:
            self.report.add("E0343", f"loop `{name}` has step {step}; a step must be positive", stmt)
        if stmt.kind is ForKind.THREAD_BINDING:
            self._thread(stmt.thread or "", stmt.extent, stmt)
        elif stmt.thread is not None:
            self.report.add("E0343", f"loop `{name}` names a thread axis but is not bound to it", stmt)

    def _thread(self, tag: str, extent: Any, at: Any) -> None:
        """Check that each thread axis of a kernel has one extent (virtual threads may repeat)."""
        if tag not in THREADS:
            known = "blockIdx.x, threadIdx.x, vthread.x, ..."
            self.report.add("E0343", f"`{tag}` is not a thread axis", at, help=f"thread axes are {known}")
            return
        if not self._thread_nest:
            self._threads.clear()
        if not isinstance(extent, IntImm) or tag.startswith("vthread"):
            return
        size, where = self._threads.setdefault(tag, (extent.value, at))
        if size != extent.value:
            related = (Label(where.span, f"here it has {size}"),)
            self.report.add("E0343", f"`{tag}` has {extent.value} threads here", at, related=related)

    # ------------------------------------------------------------ blocks

    def _realize(self, stmt: tir.BlockRealize, outermost: bool) -> None:
        block = stmt.block
        for value in stmt.values:
            self._expr(value)
            if not value.dtype.is_int or value.dtype.lanes != 1:
                self.report.add("E0337", f"an axis of block `{block.name}` is bound to {value.dtype}", value)
        self._condition(stmt.predicate, "a block predicate", stmt)
        if block in self._blocks:
            self.report.add("E0333", f"block `{block.name}` occurs twice", block)
            return
        self._blocks.add(block)
        if len(stmt.values) != len(block.iter_vars):
            message = f"block `{block.name}` has {len(block.iter_vars)} axes and {len(stmt.values)} bindings"
            self.report.add("E0336", message, block)
        else:
            is_part = self._parts[partition_key(block)] > 1
            check_axes(stmt, self._domains, self._guards > 0, self.report, is_part, self._local)
        with self._scope.frame():
            guards = self._guards
            if block.iter_vars:
                self._scope.depth += 1
                self._guards = 0  # of loops, which the block does not see
            elif not is_one(stmt.predicate):
                self._guards += 1
            self._inside(block, outermost)
            if block.iter_vars:
                self._scope.depth -= 1
            self._guards = guards

    def _inside(self, block: tir.Block, outermost: bool) -> None:
        for axis in block.iter_vars:
            self._expr(axis.dom.min)
            self._expr(axis.dom.extent)
            if not axis.var.dtype.is_int or axis.var.dtype.lanes != 1:
                self.report.add("E0337", f"axis `{axis.var.name}` must be an integer, not {axis.var.dtype}", axis)
            if axis.kind is IterKind.THREAD:
                self.report.add("E0344", f"axis `{axis.var.name}` has an unknown kind of block axis", axis)
        for axis in block.iter_vars:
            self._define(axis.var, axis)
            self._domains.ranges[axis.var] = axis.dom
        for buffer in block.alloc_buffers:
            self._local.allocated.add(buffer.data)
            self._check_buffer(buffer)
            self._declare(buffer, block)
        for match in block.match_buffers:
            self._match(match, block)
        loops, self._loops = self._loops, 0
        if block.init is not None:
            self._body(block.init)
        self._body(block.body)
        self._loops = loops
        for region in (*(block.reads or ()), *(block.writes or ())):
            self._region(region, block)
        if not (outermost and not block.iter_vars):
            check_regions(block, self.report)

    def _region(self, region: tir.BufferRegion, at: Any) -> None:
        self._use_buffer(region.buffer, region if region.span is not None else at)
        if len(region.region) != len(region.buffer.shape):
            message = (
                f"`{region.buffer.name}` has {len(region.buffer.shape)} dimensions, but its region {len(region.region)}"
            )
            self.report.add("E0339", message, region)
        for span in region.region:
            self._expr(span.min)
            self._expr(span.extent)

    def _match(self, match: tir.MatchBufferRegion, block: tir.Block) -> None:
        self._region(match.source, block)
        target, source = match.buffer, match.source.buffer
        for var in matched_vars(target):
            if not self._scope.bound(var):
                self._scope.define(var, match)
        self._check_buffer(target)
        self._declare(target, match)
        if target.dtype is not source.dtype:
            message = f"`{target.name}` is {target.dtype}, but its source `{source.name}` is {source.dtype}"
            self.report.add("E0353", message, match)
        region = match.source.region
        if len(target.shape) > len(region):
            message = (
                f"`{target.name}` has {len(target.shape)} dimensions, but the region of `{source.name}` {len(region)}"
            )
            self.report.add("E0353", message, match)
            return
        lead = len(region) - len(target.shape)
        extents = [1] * lead + [tir.const_int(n) for n in target.shape]
        for at, (span, extent) in enumerate(zip(region, extents, strict=True)):
            size = tir.const_int(span.extent)
            if size is not None and extent is not None and size != extent:
                message = (
                    f"dimension {at} of the region of `{source.name}` has {size} elements, but `{target.name}` {extent}"
                )
                self.report.add("E0353", message, match)

    # ------------------------------------------------------------ buffers and variables

    def _alloc(self, stmt: tir.AllocBuffer) -> None:
        self._local.allocated.add(stmt.buffer.data)
        self._check_buffer(stmt.buffer)
        self._declare(stmt.buffer, stmt)

    def _decl(self, stmt: tir.DeclBuffer) -> None:
        if stmt.data is not stmt.buffer.data:
            self._expr(stmt.data)
        if not self._scope.bound(stmt.buffer.data):
            self._scope.define(stmt.buffer.data, stmt)
        for var in matched_vars(stmt.buffer):
            if stmt.data is not stmt.buffer.data and not self._scope.was_bound(var):
                self._scope.define(var, stmt)
        self._check_buffer(stmt.buffer)
        self._define(stmt.buffer, stmt)

    def _declare(self, buffer: tir.Buffer, at: Any) -> None:
        self._define(buffer, at)
        if not self._scope.bound(buffer.data):
            self._scope.define(buffer.data, at)

    def _check_buffer(self, buffer: tir.Buffer) -> None:
        offset = (buffer.elem_offset,) if buffer.elem_offset is not None else ()
        for part in (*buffer.shape, *buffer.strides, *offset):
            self._expr(part)
            if not part.dtype.is_int or part.dtype.lanes != 1:
                message = f"sizes, strides and offset of `{buffer.name}` must be integers, not {part.dtype}"
                self.report.add("E0350", message, part)
        if buffer.strides and len(buffer.strides) != len(buffer.shape):
            message = f"`{buffer.name}` has {len(buffer.shape)} dimensions but {len(buffer.strides)} strides"
            self.report.add("E0350", message, buffer)
        for size in buffer.shape:
            value = tir.const_int(size)
            if value is not None and value < 0:
                self.report.add("E0350", f"a dimension of `{buffer.name}` is {value}", size)
        why = too_large([tir.const_int(size) for size in buffer.shape], buffer.dtype)
        if why is not None:
            self.report.add("E0447", f"`{buffer.name}` is {why}", buffer)

    def _define(self, item: Any, at: Any) -> None:
        place = self._scope.place(item)
        if not self._scope.define(item, at):
            word = "buffer" if isinstance(item, tir.Buffer) else "variable"
            related = (Label(place, "it is also bound here"),) if place is not None else ()
            self.report.add("E0333", f"{word} `{item.name}` is bound twice", at, related=related)

    def _use_buffer(self, buffer: tir.Buffer, at: Any) -> None:
        if self._scope.bound(buffer):
            return
        place = self._scope.place(buffer)
        related = (Label(place, "it is declared here and visible only in this block"),) if place is not None else ()
        self.report.add("E0332", f"buffer `{buffer.name}` is not declared here", at, related=related)

    # ------------------------------------------------------------ expressions

    def _condition(self, condition: Expr, of: str, at: Any, by_lane: bool = False) -> None:
        self._expr(condition)
        if not condition.dtype.is_bool or (condition.dtype.lanes != 1 and not by_lane):
            near = condition if condition.span is not None else at
            self.report.add("E0342", f"the condition of {of} must be bool, not {condition.dtype}", near)

    def _expr(self, root: Expr) -> None:
        """Check every node below `root`, except nodes that were already checked in a frame that is still open."""
        near = self.report.nearest_span
        stack: list[tuple[Any, Span | None]] = [(root, near)]
        while stack:
            top, place = stack.pop()
            self.report.nearest_span = place
            if isinstance(top, IntImm):
                self._check_type(top)
                continue
            if isinstance(top, _EndOfLet):
                top.frame.__exit__(None, None, None)
                continue
            if isinstance(top, tir.Var):
                self._use_var(top)
                continue
            seen = self._seen.get(id(top))
            if seen is not None and self._scope.alive(seen):
                continue
            self._seen[id(top)] = self._scope.serial
            self.report.at(top)
            here = self.report.nearest_span
            if isinstance(top, tir.Let):
                self._check_type(top)
                self._expr(top.value)
                frame = self._scope.frame()
                frame.__enter__()
                self._define(top.var, top)
                stack += [(_EndOfLet(frame), here), (top.body, here)]
            else:
                self._check_type(top)
                if isinstance(top, tir.BufferLoad):
                    self._use_buffer(top.buffer, top)
                    stack += [(i, here) for i in reversed(top.indices)]
                else:
                    stack += [(n, here) for n in reversed(list(children(top))) if isinstance(n, Expr)]
        self.report.nearest_span = near

    def _check_type(self, expr: Expr) -> None:
        violation = call_error(expr, self._functions) if isinstance(expr, tir.Call) else expression_error(expr)
        if violation is not None:
            self.report.add(*violation, expr)

    def _use_var(self, var: tir.Var) -> None:
        if not self._scope.bound(var):
            if var in self._reported:
                return
            self._reported.add(var)
            place = self._scope.place(var)
            if place is not None or self._scope.was_bound(var):
                related = (Label(place, f"`{var.name}` is bound here"),) if place is not None else ()
                message = f"`{var.name}` is used outside its scope"
                self.report.add("E0331", message, None, "not in scope", related=related)
            else:
                self.report.add("E0331", f"`{var.name}` is not bound anywhere", None, "not bound")
            return
        loop = self._domains.loops.get(var)
        if loop is not None and self._scope.depth_of(var) < self._scope.depth and var not in self._reported:
            self._reported.add(var)
            related = (Label(loop.span, f"loop `{var.name}`"),)
            message = f"loop variable `{var.name}` is used inside a block with axes"
            self.report.add("E0340", message, None, "bind it to an axis", related=related)

    _RULES: ClassVar[Mapping[type, Callable[..., None]]] = {
        tir.For: _for, tir.BlockRealize: _realize, tir.BufferStore: _store, tir.Bind: _bind, tir.AllocBuffer: _alloc,
        tir.DeclBuffer: _decl, tir.Evaluate: _evaluate, tir.AssertStmt: _assert, tir.IfThenElse: _if,
        tir.While: _while, tir.AttrStmt: _attr, tir.Break: _jump, tir.Continue: _jump,
    }  # fmt: skip


def _blocks(body: Body) -> Iterator[tir.Block]:
    """All blocks, once for each place."""
    stack: list[Any] = [*body]
    while stack:
        match stack.pop():
            case tir.BlockRealize(block=tir.Block() as block):
                yield block
                stack.extend(block.body)
            case tir.For(body=inner) | tir.While(body=inner) | tir.AttrStmt(body=inner):
                stack.extend(inner)
            case tir.IfThenElse(then_body=inner, else_body=other):
                stack.extend((*inner, *(other or ())))


class _EndOfLet:
    """Marks the end of a `Let` body on the stack."""

    __slots__ = ("frame",)

    def __init__(self, frame: Any) -> None:
        self.frame = frame


def verify_prim_func(func: tir.PrimFunc, report: Report, functions: Mapping[str, Any]) -> None:
    """Check all rules of one TensorIR function."""
    before = len(report.found)
    FuncVerifier(report, functions).function(func)
    if len(report.found) == before:  # of what is well-formed
        check_bounds(func, report)
