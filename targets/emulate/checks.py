"""State of the checks of one kernel: the memory that it uses, and the sites in the source that checks report.

Every access to global, shared and local memory is bounds-checked. Accesses to global and shared memory also leave marks
in shadow memory (`shadow_memory.ll`), which reveal data races: conflicting accesses by threads without a happens-before
order. Generated code reports numbers of sites and threads; `findings` turns them into diagnostics.
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

# 64-bit words of the report that a launch passes, followed by two for each root: its size in bytes, and its cells
WORDS = (
    "NOTIFY", "SHARED_CELLS", "SHARED_BYTES", "TRACE", "ROOM", "USED", "SEEN", "SITES", "ORDER", "WIDTH", "BARRIERS",
    "ORDER_BYTES", "BLOCKS", "CLASSES", "COUNTS", "CLASS_COUNTS", "LIMITS", "COMPACT", "ROOTS",
)  # fmt: skip
(
    NOTIFY, SHARED_CELLS, SHARED_BYTES, TRACE, ROOM, USED, SEEN, SITES, ORDER, WIDTH, BARRIERS, ORDER_BYTES, BLOCKS,
    CLASSES, COUNTS, CLASS_COUNTS, LIMITS, COMPACT, ROOTS,
) = range(19)  # fmt: skip
# factors of the hash by which accesses are chosen to be traced
FACTORS = ("HASH_FACTOR", "BLOCK_FACTOR", "WARP_FACTOR")
HASH_FACTOR, BLOCK_FACTOR, WARP_FACTOR = 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03, 0x8CB92BA72F3D8DD7
MARKS = 9  # int32 words per cell of shadow memory

# kinds of findings; shadow_memory.ll reports the first three
(
    WRITE_WRITE,
    READ_WRITE,
    WRITE_READ,
    UNINITIALISED,
    OUT_OF_BOUNDS,
    DIVERGED,
    MISSING_LANE,
    NEVER_COMPLETE,
    BARRIER_MISUSE,
) = range(9)
KINDS = 9
MAX_BARRIERS = 256  # barriers in shared memory that checks can distinguish
COPIED = "emulate.copied"  # key of a scope whose stores are made by the copy engine, which completes bytes at a barrier
UNCOUNTED = "emulate.uncounted"  # key of a scope whose accesses are not counted as memory requests
UNROLLED = "emulate.unrolled"  # annotation of a loop that GPU code unrolls
CLEAR = "emulate.clear"  # start of a block: mark its shared memory as uninitialised
JOIN = "emulate.join"  # T.join(first thread, count, first column): join their rows of the happens-before table
BLOCK_NUMBER = "emulate.block_number"  # T.block_number(n): begin the n-th block to run; its linear number
NOTE = "emulate.note"  # T.note(kind, site, thread, index, other site, other thread): report a finding


@dataclass(frozen=True, slots=True, eq=False)
class Root:
    """The underlying memory of views: a parameter, or a buffer that the kernel allocates.

    `granule` is the size in bytes of the smallest element accessed in it; `size` its bytes, None for a parameter. Only
    accesses to memory that `is_marked` can race; local memory and memory that is only read is not marked.
    """

    number: int
    name: str
    data: tir.Var
    scope: str
    granule: int
    size: Expr | None
    is_marked: bool = True


@dataclass(frozen=True, slots=True)
class Site:
    """A place where threads access memory or synchronise, in the source or (not `is_in_source`) in lowered code."""

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
    me: tir.Var = field(default_factory=lambda: tir.Var("me", INT32))  # number of the thread in the grid, plus 1
    clock: tir.Var = field(default_factory=lambda: tir.Var("clock", INT32))
    stamp: tir.Var = field(
        default_factory=lambda: tir.Var("stamp", INT64)
    )  # thread and clock, as the first words of a mark
    synced: tir.Var = field(
        default_factory=lambda: tir.Var("synced", INT32)
    )  # clock of the warp's last synchronisation
    report: tir.Var = field(default_factory=lambda: tir.Var("report", DType.of("handle")))
    block: tir.Var = field(default_factory=lambda: tir.Var("block", INT64))
    barriers: dict[int, int] = field(default_factory=dict)  # number of a root -> number of its first barrier
    barrier_count: int = 0
    _root_of: dict[tir.Var, Root] = field(default_factory=dict)
    _site_numbers: dict[tuple[object, ...], int] = field(default_factory=dict)
    _texts: dict[str, Source] = field(default_factory=dict)
    _aliases: Aliases = field(default_factory=Aliases)

    def find_roots(self, body: Body) -> None:
        """Collect the roots of all memory that a kernel uses."""
        aliases, memory, smallest = Aliases(), dict[tir.Var, tuple[str, Expr | None]](), dict[tir.Var, int]()
        views: dict[tir.Var, tir.Var] = {}
        written: set[tir.Var] = set()
        barriers: list[tir.Var] = []

        def record_use(buffer: tir.Buffer) -> None:
            root = aliases.of(buffer.data).root
            if root is not None:
                views[buffer.data] = root
                smallest[root] = min(smallest.get(root, 1 << 10), buffer.dtype.bytes)

        for var, buffer in zip(self.kernel.params, self.kernel.buffers, strict=True):
            if var.dtype.is_handle:
                memory[var] = "global", None
                if buffer is not None:
                    aliases.bind(buffer.data, var)
                    record_use(buffer)
        for node in (n for stmt in body for n in walk(stmt)):
            match node:
                case tir.AllocBuffer(buffer=buffer):
                    memory[buffer.data] = buffer.scope, _bytes(buffer)
                    record_use(buffer)
                case tir.DeclBuffer(buffer=buffer, data=data):
                    aliases.bind(buffer.data, data)
                    record_use(buffer)
                case tir.Bind(var=var, value=value) if var.dtype.is_handle:
                    aliases.bind(var, value)
                case tir.BufferLoad(buffer=buffer):
                    record_use(buffer)
                case tir.BufferStore(buffer=buffer):
                    record_use(buffer)
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
            self._record_barriers(self.root_of(data))

    def _record_barriers(self, root: Root | None) -> None:
        """Number the barriers in a root."""
        if root is None or root.number in self.barriers or not root.scope.startswith("shared"):
            return
        size = None if root.size is None else tir.const_int(root.size)
        if size is None or self.barrier_count + size // 8 > MAX_BARRIERS:
            message = f"`{root.name}` holds an unknown number of barriers, or more than {MAX_BARRIERS}"
            raise CompileError(error("E0749", message, root.data.span, help="run without checks: --no-check"))
        self.barriers[root.number] = self.barrier_count
        self.barrier_count += size // 8

    def root_of(self, data: tir.Var) -> Root | None:
        """Return the root that a data variable points into; None if unknown, or if the emulator allocated it."""
        known = self._root_of.get(data)
        if known is None:
            root = self._aliases.of(data).root
            known = next((r for r in self.roots if r.data is root), None)
        return known

    # ------------------------------------------------------------ sites

    def site(self, node: Node, stmt: Stmt, what: str, root: Root | None = None) -> int:
        """Return the number of the site of `node`; without a span, that of the printed statement."""
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
