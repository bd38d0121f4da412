"""Plan where a kernel's temporary buffers are: on the stack, in the caller's workspace, or on the heap.

Small buffers of constant size are on the stack, up to a limit on their sum; tiles that may live in registers take
precedence, for only what is on the stack is promoted to registers. Others are in the workspace, where buffers with
disjoint live ranges share memory. Buffers whose size cannot be computed at entry (it depends on more than symbols and
parameters) are on the heap, and are freed on every exit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mlcc.errors import CompileError, error
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT64
from mlcc.ir.node import Node, children, find, holds, walk
from mlcc.ir.tir import ForKind

ALIGNMENT = 64
REGISTER_BYTES = 32 * 64  # of the vector registers of a CPU, at most: what a tile may take that lives there
_MAX_BYTES = 1 << 46  # sums of such sizes still fit 64 bits


@dataclass(slots=True)
class Region:
    """A range of the workspace that is in use until the statement numbered `last`."""

    offset: int
    size: int
    last: int


class KernelMemory:
    """The memory plan of a function body.

    `known` are the variables whose values are known at entry. `workspace` is the number of bytes needed, as an int64
    expression; the last `callee_bytes` of its constant part, at `callee_offset`, are for called kernels. Its address
    must be a multiple of `alignment`, which may be raised by shared memory of emulated GPU kernels. If code generation
    `promotes` buffers to registers, those that will be do not count as on the stack.
    """

    def __init__(
        self,
        body: tuple[tir.Stmt, ...],
        known: set[tir.Var],
        stack_bytes: int,
        callee_bytes: int = 0,
        promotes: bool = False,
    ) -> None:
        self._entry_variables = known
        self._fixed: dict[tir.Var, int | None] = {}  # offset in the workspace; None on the stack
        self._symbolic: dict[tir.Var, tir.Expr] = {}  # offset beyond the constant part
        self._heap: list[tir.Var] = []
        self._top = 0
        self._dynamic: tir.Expr = tir.IntImm(INT64, 0)
        self._stmt_number = 0
        self._last_use: dict[tir.Var, int] = {}
        buffers = [allocation.buffer for allocation in _allocations(body)]
        self.alignment = max(ALIGNMENT, *(b.alignment for b in buffers if b.scope.startswith("shared")), 0)
        self._stack = _stack_buffers(buffers, stack_bytes)
        if promotes:
            self._stack |= _register_buffers(body, [b for b in buffers if b.data not in self._stack])
        if buffers:
            self._find_uses(body)
            self._stmt_number = 0
            self._place_buffers(body, [])
        self.callee_offset = self._top
        self._top += self._aligned(callee_bytes)
        self.workspace: tir.Expr = c.add(tir.IntImm(INT64, self._top), self._dynamic)

    # ------------------------------------------------------------ planning

    def _find_uses(self, body: tuple[tir.Stmt, ...]) -> None:
        """Find the last statement that may use the memory of each allocation."""
        self._find_uses_in(body, {})

    def _find_uses_in(self, body: tuple[tir.Stmt, ...], owners: dict[tir.Var, set[tir.Var]]) -> None:
        """Find last uses in a body; `owners` maps a handle to the allocations that it may point into."""
        for stmt in body:
            self._stmt_number += 1
            used = {o for v in _used_handles(stmt) for o in owners.get(v, ())}
            for owner in used:
                self._last_use[owner] = self._stmt_number
            if isinstance(stmt, tir.AllocBuffer):
                owners[stmt.buffer.data] = {stmt.buffer.data}
                self._last_use[stmt.buffer.data] = self._stmt_number
            elif isinstance(stmt, tir.DeclBuffer):
                owners[stmt.buffer.data] = used | owners.get(stmt.buffer.data, set())
            elif isinstance(stmt, tir.Bind) and stmt.var.dtype.is_handle:
                owners[stmt.var] = used
            elif isinstance(stmt, tir.BufferStore) and stmt.value.dtype.is_handle:
                owners[stmt.buffer.data] = used  # a pointer loaded from the buffer may point to them
            for nested in bodies(stmt):
                self._find_uses_in(nested, owners)

    def _place_buffers(self, body: tuple[tir.Stmt, ...], outer: list[Region]) -> None:
        own: list[Region] = []
        for stmt in body:
            self._stmt_number += 1
            if is_parallel(stmt):
                self._stmt_number += sum(1 for _ in _statements(stmt))
                continue
            own = [r for r in own if r.last >= self._stmt_number]
            if isinstance(stmt, tir.AllocBuffer):
                region = self._place_buffer(stmt.buffer, outer, own)
                if region is not None:
                    own.append(region)
            for nested in bodies(stmt):
                self._place_buffers(nested, outer + own)

    def _place_buffer(self, buffer: tir.Buffer, outer: list[Region], own: list[Region]) -> Region | None:
        data = buffer.data
        size = byte_size(buffer)
        if isinstance(size, int):
            if data in self._stack:
                self._fixed[data] = None
                return None
            size = self._aligned(size)
            offset = _first_fit(sorted([*outer, *own], key=lambda r: r.offset), size)
            self._top = max(self._top, offset + size)
            self._fixed[data] = offset
            return Region(offset, size, self._last_use[data])
        if all(v in self._entry_variables for v in walk(size) if isinstance(v, tir.Var)):
            self._symbolic[data] = self._dynamic
            rounded = c.mul(c.floordiv(c.add(size, self.alignment - 1), self.alignment), self.alignment)
            self._dynamic = c.add(self._dynamic, rounded)
        else:
            self._heap.append(data)
        return None

    def _aligned(self, size: int) -> int:
        return -(-size // self.alignment) * self.alignment

    def on_stack(self, buffer: tir.Buffer) -> bool:
        """Return True if the buffer is on the stack of the function that allocates it."""
        return self._fixed.get(buffer.data, 0) is None

    def is_fixed(self, buffer: tir.Buffer) -> bool:
        """Return True if the buffer is on the stack or in the workspace, not on the heap."""
        return buffer.data in self._fixed

    def workspace_offset(self, buffer: tir.Buffer) -> tir.Expr | None:
        """Return a buffer's offset in the workspace in bytes, as an int64 expression; None if it is not there."""
        if buffer.data in self._symbolic:
            return c.add(self._symbolic[buffer.data], self._top)
        offset = self._fixed.get(buffer.data)
        return None if offset is None else tir.IntImm(INT64, offset)

    @property
    def heap_buffers(self) -> tuple[tir.Var, ...]:
        """The data variables of the buffers on the heap."""
        return tuple(self._heap)


def _stack_buffers(buffers: Sequence[tir.Buffer], stack_bytes: int) -> set[tir.Var]:
    """Choose buffers of at most `stack_bytes` together, those that fit into registers first; return their data."""
    sizes = [(data, size) for data, size in ((b.data, byte_size(b)) for b in buffers) if isinstance(size, int)]
    chosen: set[tir.Var] = set()
    for data, size in sorted(sizes, key=lambda item: item[1] > REGISTER_BYTES):
        if size <= stack_bytes:
            stack_bytes -= max(size, 1)
            chosen.add(data)
    return chosen


def _register_buffers(body: tuple[tir.Stmt, ...], buffers: Sequence[tir.Buffer]) -> set[tir.Var]:
    """Return the data of those of some buffers that fit into registers, and are accessed at constant indices alone."""
    sizes = ((b.data, byte_size(b)) for b in buffers)
    promoted = {data for data, size in sizes if isinstance(size, int) and size <= REGISTER_BYTES}
    stack: list[Node] = list(body) if promoted else []
    while stack:
        node = stack.pop()
        if isinstance(node, (tir.BufferLoad, tir.BufferStore)) and node.buffer.data in promoted:
            if not all(map(_is_constant, node.indices)):
                promoted.discard(node.buffer.data)
            stack.extend(child for child in children(node) if child is not node.buffer)
        elif isinstance(node, tir.Buffer):
            promoted.discard(node.data)
        elif isinstance(node, tir.Var):
            promoted.discard(node)
        elif isinstance(node, tir.Stmt) and is_parallel(node):
            promoted -= {buffer.data for buffer in find(node, tir.Buffer)}
        elif not isinstance(node, tir.AllocBuffer):
            stack.extend(children(node))
    return promoted


def _is_constant(index: tir.Expr) -> bool:
    return isinstance(index.base if isinstance(index, tir.Ramp) else index, tir.IntImm)


def is_parallel(stmt: tir.Stmt) -> bool:
    """Return True for a parallel loop, whose body becomes a function with its own memory."""
    return isinstance(stmt, tir.For) and stmt.kind is ForKind.PARALLEL


def _statements(stmt: tir.Stmt) -> Iterator[tir.Stmt]:
    """Yield all statements nested in a statement."""
    for body in bodies(stmt):
        for nested in body:
            yield nested
            yield from _statements(nested)


def bodies(stmt: tir.Stmt) -> Iterator[tuple[tir.Stmt, ...]]:
    """Yield the nested bodies of a statement of loop code."""
    if isinstance(stmt, (tir.For, tir.While, tir.AttrStmt)):
        yield stmt.body
    elif isinstance(stmt, tir.IfThenElse):
        yield stmt.then_body
        if stmt.else_body is not None:
            yield stmt.else_body


def byte_size(buffer: tir.Buffer) -> int | tir.Expr:
    """Return the bytes of a compact buffer: an int or an int64 expression. Raises CompileError if it is too large."""
    size: tir.Expr = tir.IntImm(INT64, buffer.dtype.bytes * buffer.dtype.lanes)
    total = buffer.dtype.bytes * buffer.dtype.lanes
    for dim in buffer.shape:
        known = tir.const_int(dim)
        total *= max(known, 0) if known is not None else 1
        if total > _MAX_BYTES:
            message = f"the temporary buffer `{buffer.name}` is too large"
            raise CompileError(error("E0704", message, buffer.span, f"more than {_MAX_BYTES} bytes"))
        size = c.mul(size, c.cast(INT64, dim))
    return total if isinstance(size, tir.IntImm) else size


def _first_fit(regions: list[Region], size: int) -> int:
    """Return the lowest offset at which `size` bytes are free; `regions` is sorted by offset."""
    offset = 0
    for region in regions:
        if region.offset - offset >= size:
            return offset
        offset = max(offset, region.offset + region.size)
    return offset


def _allocations(body: tuple[tir.Stmt, ...]) -> Iterator[tir.AllocBuffer]:
    for stmt in body:
        if isinstance(stmt, tir.AllocBuffer):
            yield stmt
        for nested in () if is_parallel(stmt) else bodies(stmt):
            yield from _allocations(nested)


def _used_handles(stmt: tir.Stmt) -> Iterator[tir.Var]:
    """Yield handle variables and data variables of buffers in a statement's own expressions, not in its bodies."""
    nested = {id(s) for body in bodies(stmt) for s in body}
    stack: list[Node] = [child for child in children(stmt) if id(child) not in nested]
    while stack:
        node = stack.pop()
        if isinstance(node, tir.Buffer):
            yield node.data
        elif isinstance(node, tir.Var):
            if node.dtype.is_handle:
                yield node
        elif not isinstance(node, _PURE_NUMBERS) or holds(node, tir.Buffer, tir.Call):
            stack.extend(children(node))


_PURE_NUMBERS = (tir.IntImm, tir.Add, tir.Sub, tir.Mul, tir.Ramp)
