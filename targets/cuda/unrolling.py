"""Unroll marked loops, and loops that index local buffers, so that these buffers are promoted to registers.

Bodies of marked loops are replicated (`unroll_marked`); all copies use the same shared memory.

Registers have no addresses: a `local` buffer is promoted only if every index into it is constant. Loops of constant
extent are therefore unrolled by LLVM if indices into local buffers depend on their variables and the code stays
bounded. Buffers larger than twice the registers of a thread stay in memory. A short loop around such loops (the
innermost steps of a GEMM with a register tile) is unrolled too, so that its loads from shared memory combine to 16
bytes.
"""

from __future__ import annotations

from mlcc.ir import tir
from mlcc.ir.intrinsics import called
from mlcc.ir.node import Node, find, walk
from mlcc.passes.lowering.mutator import Body, TirMutator
from mlcc.passes.lowering.options import GPU_UNROLL_LIMIT
from mlcc.passes.lowering.unroll import unroll_body
from mlcc.targets.plan.kernel_memory import bodies

MAX_COPIES = 4096  # per statement
MAX_REGISTER_BYTES = 2048  # per buffer; a thread has 255 registers
_MAX_OUTER_TRIPS, _MAX_OUTER_STATEMENTS = (
    16,
    1024,
)  # trips of a loop around a register tile, and statements after unrolling


def unroll_marked(body: Body) -> Body:
    """Unroll the marked loops of a thread's code."""
    return unroll_body(_HoistShared().body(body), GPU_UNROLL_LIMIT)


class _HoistShared(TirMutator):
    """Hoist allocations of shared memory out of marked loops."""

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
    """Return the variables of the loops to unroll for the promotion of buffers to registers."""
    finder = _LoopFinder()
    finder.visit(body, 1)
    return frozenset(finder.loops)


def _may_be_promoted(buffer: tir.Buffer) -> bool:
    """Return True if a buffer may be promoted to registers: scope `local`, at most `MAX_REGISTER_BYTES`."""
    size = tir.const_int(buffer.shape[0])
    return buffer.scope == "local" and (size or 0) * buffer.dtype.bytes <= MAX_REGISTER_BYTES


class _LoopFinder:
    """The search for loops to unroll.

    `_sources` maps a bound variable to the loop variables that it depends on; `copies` is how often a statement is
    replicated by unrolling its enclosing loops.
    """

    def __init__(self) -> None:
        self._local: set[tir.Var] = set()
        self._sources: dict[tir.Var, frozenset[tir.Var]] = {}
        self.loops: set[tir.Var] = set()

    def visit(self, body: tuple[tir.Stmt, ...], copies: int) -> None:
        for stmt in body:
            match stmt:
                case tir.AllocBuffer(buffer=buffer) if _may_be_promoted(buffer):
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
        inner_copies = copies * extent if extent is not None and self._indexes_local(stmt) else copies
        if extent is not None and inner_copies != copies and inner_copies <= MAX_COPIES:
            self.loops.add(stmt.var)
        self.visit(stmt.body, min(inner_copies, MAX_COPIES + 1))
        if extent is not None and 1 < extent <= _MAX_OUTER_TRIPS and any(isinstance(s, tir.For) for s in stmt.body):
            size = self._unrolled_size(stmt.body)
            if size is not None and size * extent <= _MAX_OUTER_STATEMENTS:
                self.loops.add(stmt.var)

    def _unrolled_size(self, body: tuple[tir.Stmt, ...]) -> int | None:
        """Return the number of statements of a body after unrolling.

        None if a loop in it is not unrolled, or if it has statements other than loops, bindings, stores and calls.
        """
        total = 0
        for stmt in body:
            match stmt:
                case tir.Bind() | tir.BufferStore() | tir.Evaluate():
                    total += 1
                case tir.For(var=var) if var in self.loops:
                    inside = self._unrolled_size(stmt.body)
                    if inside is None:
                        return None
                    total += inside * (tir.const_int(stmt.extent) or 1)
                case _:
                    return None
        return total

    def _indexes_local(self, loop: tir.For) -> bool:
        inner = _LoopFinder()
        inner._local, inner._sources = set(self._local), dict(self._sources)
        return inner._index_depends_on(loop.body, loop.var)

    def _index_depends_on(self, body: tuple[tir.Stmt, ...], var: tir.Var) -> bool:
        """Return True if an index into a local buffer depends on `var`."""
        for node in find(body, *_RELEVANT_NODES):
            match node:
                case tir.AllocBuffer(buffer=buffer) if _may_be_promoted(buffer):
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
                    offset_args = [args[n] for at, n in offsets if at < len(args) and args[at] in self._local]
                    if any(var in self._variables(a) for a in offset_args or args):
                        return True
        return False

    def _variables(self, node: tir.Expr) -> frozenset[tir.Var]:
        variables: set[tir.Var] = set()
        for part in walk(node):
            if isinstance(part, tir.Var):
                variables |= self._sources.get(part, frozenset((part,)))
        return frozenset(variables)


_RELEVANT_NODES: tuple[type[Node], ...] = (
    tir.AllocBuffer, tir.Bind, tir.For, tir.BufferStore, tir.BufferLoad, tir.Call,
)  # fmt: skip
