"""Unroll loops: those marked for it, and those that index local buffers, so that these are promoted to registers.

Bodies of marked loops are copied (`unroll_marked`); all copies use the same shared memory.

A register has no address: a `local` buffer is promoted only if every index into it becomes a constant. So loops of
constant extent are unrolled if indices into local buffers depend on their variables and the code stays bounded. Buffers
larger than twice the registers of a thread stay in memory. A short loop around these loops (the innermost steps of a
GEMM whose tile is in registers) is unrolled too: its loads from shared memory become contiguous and combine to 16
bytes.
"""

from __future__ import annotations

from mlcc.ir import tir
from mlcc.ir.intrinsics import called
from mlcc.ir.node import Node, find, walk
from mlcc.passes.lowering.mutator import Body, TirMutator
from mlcc.passes.lowering.options import GPU_UNROLL_LIMIT
from mlcc.passes.lowering.unroll import unroll_body
from mlcc.targets.llvm.codegen.storage import bodies

MOST_COPIES = 4096  # of a statement
MOST_BYTES = 2048  # of a buffer in registers, of which a thread has 255
_SHORT, _MOST_AROUND = 16, 1024  # trips of a loop around a tile, and statements that it comes to


def unroll_marked(body: Body) -> Body:
    """Unroll the marked loops of a thread's code."""
    return unroll_body(_SharedOutside().body(body), GPU_UNROLL_LIMIT)


class _SharedOutside(TirMutator):
    """Hoists allocations of shared memory out of marked loops."""

    def __init__(self) -> None:
        self._before: list[tir.Stmt] | None = None

    def expr(self, node: tir.Expr) -> tir.Expr:
        return node

    def stmt_alloc(self, node: tir.AllocBuffer) -> tir.Stmt | list[tir.Stmt]:
        if self._before is None or not node.buffer.scope.startswith("shared"):
            return node
        self._before.append(node)
        return []

    def stmt_for(self, node: tir.For) -> tir.Stmt | list[tir.Stmt]:
        if node.kind is not tir.ForKind.UNROLLED or self._before is not None:
            return super().stmt_for(node)
        before: list[tir.Stmt] = []
        self._before = before
        rewritten = super().stmt_for(node)
        self._before = None
        return [*before, *(rewritten if isinstance(rewritten, list) else [rewritten])]


def loops_to_unroll(body: tuple[tir.Stmt, ...]) -> frozenset[tir.Var]:
    """Return the variables of the loops to unroll for the sake of registers."""
    finder = _Finder()
    finder.visit(body, 1)
    return frozenset(finder.found)


def _fits(buffer: tir.Buffer) -> bool:
    """Return True if a buffer may be promoted to registers: scope `local`, at most `MOST_BYTES`."""
    size = tir.const_int(buffer.shape[0])
    return buffer.scope == "local" and (size or 0) * buffer.dtype.bytes <= MOST_BYTES


class _Finder:
    """`sources` are the loop variables that a bound variable is computed from; `copies` how often what is here would be
    repeated if the loops around it that index local buffers were unrolled."""

    def __init__(self) -> None:
        self._local: set[tir.Var] = set()
        self._sources: dict[tir.Var, frozenset[tir.Var]] = {}
        self.found: set[tir.Var] = set()

    def visit(self, body: tuple[tir.Stmt, ...], copies: int) -> None:
        for stmt in body:
            match stmt:
                case tir.AllocBuffer(buffer=buffer) if _fits(buffer):
                    self._local.add(buffer.data)
                case tir.DeclBuffer(buffer=buffer, data=tir.Var() as data) if data in self._local:
                    self._local.add(buffer.data)
                case tir.Bind():
                    self._sources[stmt.var] = self._variables(stmt.value)
                case tir.For():
                    self._loop(stmt, copies)
                    continue
            for nested in bodies(stmt):
                self.visit(nested, copies)

    def _loop(self, stmt: tir.For, copies: int) -> None:
        extent = tir.const_int(stmt.extent)
        self._sources[stmt.var] = frozenset((stmt.var,))
        inside = copies * extent if extent is not None and self._indexes_local(stmt) else copies
        if extent is not None and inside != copies and inside <= MOST_COPIES:
            self.found.add(stmt.var)
        self.visit(stmt.body, min(inside, MOST_COPIES + 1))
        if extent is not None and 1 < extent <= _SHORT and any(isinstance(s, tir.For) for s in stmt.body):
            size = self._size(stmt.body)
            if size is not None and size * extent <= _MOST_AROUND:
                self.found.add(stmt.var)

    def _size(self, body: tuple[tir.Stmt, ...]) -> int | None:
        """Return the number of statements of a body after unrolling. None if a loop in it is not unrolled, or if it
        has statements other than loops, bindings, stores and calls."""
        total = 0
        for stmt in body:
            match stmt:
                case tir.Bind() | tir.BufferStore() | tir.Evaluate():
                    total += 1
                case tir.For(var=var) if var in self.found:
                    inside = self._size(stmt.body)
                    if inside is None:
                        return None
                    total += inside * (tir.const_int(stmt.extent) or 1)
                case _:
                    return None
        return total

    def _indexes_local(self, loop: tir.For) -> bool:
        inner = _Finder()
        inner._local, inner._sources = set(self._local), dict(self._sources)
        return inner._reaches(loop.body, loop.var)

    def _reaches(self, body: tuple[tir.Stmt, ...], var: tir.Var) -> bool:
        """Return True if an index into a local buffer depends on `var`."""
        for node in find(body, *_TOUCHING):
            match node:
                case tir.AllocBuffer(buffer=buffer) if _fits(buffer):
                    self._local.add(buffer.data)
                case tir.Bind():
                    self._sources[node.var] = self._variables(node.value)
                case tir.For():
                    self._sources[node.var] = frozenset((node.var,)) | self._variables(node.min)
                case tir.BufferStore(buffer=buffer, indices=indices) | tir.BufferLoad(buffer=buffer, indices=indices):
                    if buffer.data in self._local and any(var in self._variables(i) for i in indices):
                        return True
                case tir.Call(args=args) if any(a in self._local for a in args):
                    offsets = called(node).offsets
                    beside = [args[n] for at, n in offsets if at < len(args) and args[at] in self._local]
                    if any(var in self._variables(a) for a in beside or args):
                        return True
        return False

    def _variables(self, node: tir.Expr) -> frozenset[tir.Var]:
        variables: set[tir.Var] = set()
        for part in walk(node):
            if isinstance(part, tir.Var):
                variables |= self._sources.get(part, frozenset((part,)))
        return frozenset(variables)


_TOUCHING: tuple[type[Node], ...] = (
    tir.AllocBuffer, tir.Bind, tir.For, tir.BufferStore, tir.BufferLoad, tir.Call,
)  # fmt: skip
