"""Checked kernels: what their generated code looks at, and which place of the source each look belongs to.

Every access of global, shared and local memory is compared with the size of what it is in; those of global and shared
memory leave marks in shadow memory (`shadow_memory.ll`), by which threads that nothing orders are found out. Findings
are numbers of sites and threads, which `findings` turns into diagnostics.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mlcc.errors import CompileError, Source, Span, error
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT32, INT64, DType
from mlcc.ir.intrinsics import Effect, effect_of
from mlcc.ir.node import Node, walk
from mlcc.ir.tir import Expr, Stmt
from mlcc.passes.gpu.device import DeviceKernel
from mlcc.passes.lowering.aliases import Aliases
from mlcc.targets.emulate.barriers import barrier_of
from mlcc.targets.emulate.threads import Body, Threads

# the words (of 64 bits) of the report that a launch passes; after them come two for each root: its bytes, its cells
WORDS = (
    "NOTIFY", "SHARED_CELLS", "SHARED_BYTES", "TRACE", "ROOM", "USED", "STRIDE", "SEEN", "SITES", "ORDER", "WIDTH",
    "BARRIERS", "ORDER_BYTES", "ROOTS",
)  # fmt: skip
(
    NOTIFY, SHARED_CELLS, SHARED_BYTES, TRACE, ROOM, USED, STRIDE, SEEN, SITES, ORDER, WIDTH, BARRIERS, ORDER_BYTES,
    ROOTS,
) = range(14)  # fmt: skip
MARKS = 9  # int32 words of a cell

# kinds of findings; the first three are those that shadow_memory.ll knows
WRITE_WRITE, READ_WRITE, WRITE_READ, UNWRITTEN, OUTSIDE, DIVERGED, ABSENT, ENDLESS, MISUSED = range(9)
KINDS = 9
MOST_BARRIERS = 256  # in memory, that checks tell apart
COPIED = "emulate.copied"  # the key of a scope whose stores the copy engine makes; it completes bytes at the barrier
UNCOUNTED = "emulate.uncounted"  # the key of a scope whose accesses are no requests of threads
CLEAR = "emulate.clear"  # a new block begins: its shared memory is not written
JOIN = "emulate.join"  # T.join(first thread, count, first column): join their rows of the happens-before table
NOTE = "emulate.note"  # T.note(kind, site, thread, index, other site, other thread)


@dataclass(frozen=True, slots=True, eq=False)
class Root:
    """Memory of its own: a parameter, or what the kernel allocates. `granule` is the size in bytes of the smallest
    element that is seen in it; `size` its bytes, None for a parameter. Threads may only meet where `is_marked`: local
    memory is their own, and what no thread writes may be read by all."""

    number: int
    name: str
    data: tir.Var
    scope: str
    granule: int
    size: Expr | None
    is_marked: bool = True


@dataclass(frozen=True, slots=True)
class Site:
    """A place in the source where threads do something to memory, or meet: in the source, or as lowered."""

    span: Span
    what: str
    root: Root | None = None
    is_in_source: bool = True


@dataclass(slots=True, eq=False)
class Checks:
    """State of the checks of one kernel, filled while it is emitted and read by its findings."""

    kernel: DeviceKernel
    threads: Threads
    trace: bool = False
    roots: list[Root] = field(default_factory=list)
    sites: list[Site] = field(default_factory=list)
    me: tir.Var = field(default_factory=lambda: tir.Var("me", INT32))  # the number of the thread in the grid, plus 1
    clock: tir.Var = field(default_factory=lambda: tir.Var("clock", INT32))
    stamp: tir.Var = field(default_factory=lambda: tir.Var("stamp", INT64))  # both, as the first words of a mark
    synced: tir.Var = field(default_factory=lambda: tir.Var("synced", INT32))  # the clock when the warp last met
    report: tir.Var = field(default_factory=lambda: tir.Var("report", DType.of("handle")))
    block: tir.Var = field(default_factory=lambda: tir.Var("block", INT64))
    barriers: dict[int, int] = field(default_factory=dict)  # by the number of their root, which one is its first
    barrier_count: int = 0
    _root_of: dict[tir.Var, Root] = field(default_factory=dict)
    _site_numbers: dict[tuple[object, ...], int] = field(default_factory=dict)
    _texts: dict[str, Source] = field(default_factory=dict)
    _aliases: Aliases = field(default_factory=Aliases)

    def find_roots(self, body: Body) -> None:
        """Record all memory that a kernel's code uses."""
        aliases, memory, smallest = Aliases(), dict[tir.Var, tuple[str, Expr | None]](), dict[tir.Var, int]()
        views: dict[tir.Var, tir.Var] = {}
        written: set[tir.Var] = set()
        barriers: list[tir.Var] = []

        def see(buffer: tir.Buffer) -> None:
            root = aliases.of(buffer.data).root
            if root is not None:
                views[buffer.data] = root
                smallest[root] = min(smallest.get(root, 1 << 10), buffer.dtype.bytes)

        for var, buffer in zip(self.kernel.params, self.kernel.buffers, strict=True):
            if var.dtype.is_handle:
                memory[var] = "global", None
                if buffer is not None:
                    aliases.bind(buffer.data, var)
                    see(buffer)
        for node in (n for stmt in body for n in walk(stmt)):
            match node:
                case tir.AllocBuffer(buffer=buffer):
                    memory[buffer.data] = buffer.scope, _bytes(buffer)
                    see(buffer)
                case tir.DeclBuffer(buffer=buffer, data=data):
                    aliases.bind(buffer.data, data)
                    see(buffer)
                case tir.Bind(var=var, value=value) if var.dtype.is_handle:
                    aliases.bind(var, value)
                case tir.BufferLoad(buffer=buffer):
                    see(buffer)
                case tir.BufferStore(buffer=buffer):
                    see(buffer)
                    written.add(buffer.data)
                case tir.Call() if (barrier := barrier_of(node)) is not None:
                    barriers += [v for v in walk(barrier) if isinstance(v, tir.Var) and v.dtype.is_handle]
                    written.update(barriers)
                case tir.Call(args=args) if effect_of(node) > Effect.PURE:
                    written.update(v for a in args for v in walk(a) if isinstance(v, tir.Var) and v.dtype.is_handle)
        written = {aliases.of(v).root or v for v in written}
        for number, (var, (scope, size)) in enumerate(memory.items()):
            is_marked = scope.startswith("shared") or (scope == "global" and var in written)
            self.roots.append(Root(number, var.name, var, scope, smallest.get(var, 1), size, is_marked))
        by_data = {root.data: root for root in self.roots}
        self._root_of = {var: by_data[root] for var, root in views.items() if root in by_data}
        self._aliases = aliases
        for data in barriers:
            self._barriers_in(self.root_of(data))

    def _barriers_in(self, root: Root | None) -> None:
        """Record memory that holds barriers."""
        if root is None or root.number in self.barriers or not root.scope.startswith("shared"):
            return
        size = None if root.size is None else tir.const_int(root.size)
        if size is None or self.barrier_count + size // 8 > MOST_BARRIERS:
            message = f"`{root.name}` has barriers, and how many is not known, or more than {MOST_BARRIERS}"
            raise CompileError(error("E0749", message, root.data.span, help="leave the checks out: --no-check"))
        self.barriers[root.number] = self.barrier_count
        self.barrier_count += size // 8

    def root_of(self, data: tir.Var) -> Root | None:
        """Return the memory that a data variable points into; None if unknown, or if the emulation added it."""
        known = self._root_of.get(data)
        if known is None:
            root = self._aliases.of(data).root
            known = next((r for r in self.roots if r.data is root), None)
        return known

    # ------------------------------------------------------------ sites

    def site(self, node: Node, stmt: Stmt, what: str, root: Root | None = None) -> int:
        """The number of a place: of `node` in the source, or of the statement as it is printed."""
        span = node.span or stmt.span or self._printed(stmt)
        key = (id(span.source), span.start, span.end, what, None if root is None else root.number)
        number = self._site_numbers.get(key)
        if number is None:
            number = self._site_numbers[key] = len(self.sites)
            self.sites.append(Site(span, what, root, bool(node.span or stmt.span)))
        return number

    def _printed(self, stmt: Stmt) -> Span:
        text = str(stmt).splitlines()[0]
        source = self._texts.setdefault(text, Source(f"{self.kernel.name} (as lowered)", text))
        return Span(source, 0, len(text))


def note(kind: int, site: int, thread: Expr, other_site: int, other: Expr) -> Stmt:
    """Return the statement that reports a finding."""
    args = (c.const(kind), c.const(site), thread, c.const(0, INT64), c.const(other_site), other)
    return tir.Evaluate(tir.Call(DType.of("void"), tir.Op(NOTE), args))


def _bytes(buffer: tir.Buffer) -> Expr:
    size: Expr = c.const(buffer.dtype.bytes * buffer.dtype.lanes, INT64)
    for dim in buffer.shape:
        size = c.mul(size, c.cast(INT64, dim))
    return size
