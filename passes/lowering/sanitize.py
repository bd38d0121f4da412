"""Loop code for sanitized builds: nothing is optimised, and what its accesses do can be checked.

Every index goes through `sanitize.index`, with the extent of its dimension as the text declares it. For buffers of the
function's own, a byte of shadow memory for each element says whether it was written. Parallel loops run serially; for
memory that their iterations share, shadow memory holds the numbers of the iterations that last wrote and read each
element, at each depth of nested parallel loops. Iterations are numbered through the whole call, so that what an earlier
loop left behind is less than the first number (`base`) of a loop that runs. The code generator looks at the shadow
memory before each access (`mlcc.targets.llvm.codegen.sanitized`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from mlcc.arith.empty_reduction import with_empty_inits
from mlcc.errors import Source, Span
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT64, DType
from mlcc.ir.equal import structural_equal
from mlcc.ir.intrinsics import called
from mlcc.ir.node import EMPTY, Node, children, replace, walk
from mlcc.ir.tir import Expr, ForKind, Stmt
from mlcc.passes.lowering.accesses import Collector
from mlcc.passes.lowering.aliases import Aliases
from mlcc.passes.lowering.allocation_depth import depth_of
from mlcc.passes.lowering.flatten import flat_buffer, flatten_buffers
from mlcc.passes.lowering.mutator import Body, TirMutator
from mlcc.passes.lowering.realize import realize_blocks
from mlcc.passes.lowering.threads import serial_threads
from mlcc.recursion import deep_recursion

INDEX = "sanitize.index"  # T.index(index, extent, text): the index, if it is one of its dimension
KEEP = "sanitize.keep"  # T.keep(data, ...): shadow memory that is looked at up to here, though no statement names it
FRESH = "mlcc.sanitize_fresh"  # of a function: how many of the last buffers it takes are memory that nothing wrote
FRESH_SUFFIX = ".fresh"  # of the name of such a function
_AS_LOWERED = " (as lowered)"
_BYTE = DType.of("uint8")


@dataclass(frozen=True, slots=True, eq=False)
class Parallel:
    """A parallel loop that runs serially: `me` is the number of its iteration, from `base` on; `many` is not one."""

    depth: int
    name: str
    base: tir.Var
    me: tir.Var
    many: tir.Var


@dataclass(slots=True, eq=False)
class Shadow:
    """What is kept of the memory behind the data variable `root`, for each `granule` of bytes: whether it was written
    (`written`), and by depth of parallel loops the last writers and readers (`marks`). `size` counts bytes, of which
    the flat buffer `whole` has all."""

    whole: tir.Buffer
    root: tir.Var
    name: str
    granule: int
    size: Expr
    written: tir.Buffer | None = None
    marks: dict[int, tuple[tir.Buffer, tir.Buffer]] = field(default_factory=dict)

    def is_whole(self, buffer: tir.Buffer) -> bool:
        """Whether a flat buffer is all of the memory, so that what is inside of its shape is inside of the memory."""
        whole = self.whole
        same = buffer.data is self.root and buffer.dtype == whole.dtype
        return buffer is whole or (same and structural_equal(buffer.shape, whole.shape))


@dataclass(slots=True, eq=False)
class Shadows:
    """The shadow memory of a function, by root, and its parallel loops."""

    aliases: Aliases = field(default_factory=Aliases)
    by_root: dict[tir.Var, Shadow] = field(default_factory=dict)
    loops: dict[tir.For, Parallel] = field(default_factory=dict)

    def of(self, data: tir.Var) -> Shadow | None:
        """The shadow of what a data variable points into."""
        root = self.aliases.of(data).root
        return None if root is None else self.by_root.get(root)


def place_of(span: Span | None, name: str) -> str:
    """A place in words, for texts of errors."""
    if span is None:
        return name
    if span.source.name.endswith(_AS_LOWERED):
        return f"{span.source.name}: `{span.source.text}`"
    line, column = span.source.line_col(span.start)
    return f"{span.source.name}:{line}:{column}"


def sanitized_func(
    func: tir.PrimFunc, name: str, functions: Mapping[str, tir.PrimFunc]
) -> tuple[tir.PrimFunc, Shadows]:
    """The loop code of a function that is to be checked; `functions` are the PrimFuncs that it may call. Raises
    CompileError."""
    with deep_recursion():
        made = serial_threads(realize_blocks(with_empty_inits(func)))
        own = own_temporaries(made)
        made = flatten_buffers(checked_indices(made, name.partition(FRESH_SUFFIX)[0]), functions)
        return with_shadows(made, own, tir.const_int(func.attrs.get(FRESH)) or 0)


# ---------------------------------------------------------------- indices


def checked_indices(func: tir.PrimFunc, name: str) -> tir.PrimFunc:
    """`func` (without blocks, its buffers of any rank) with every index checked against its dimension."""
    return replace(func, body=_Indices(name).body(func.body))


class _Indices(TirMutator):
    def __init__(self, name: str) -> None:
        self._name = name
        self._stmt: Stmt | None = None
        self._texts: dict[Stmt, Source] = {}

    def stmt(self, node: Stmt) -> Stmt | list[Stmt]:
        self._stmt = node
        return super().stmt(node)

    def expr_load(self, node: tir.BufferLoad) -> Expr:
        span = node.span or self._printed()
        return tir.BufferLoad(node.dtype, node.buffer, self._checked(node, span), span=span)

    def stmt_store(self, node: tir.BufferStore) -> Stmt | list[Stmt]:
        span = node.span or self._printed()
        value = self.expr(node.value)
        return tir.BufferStore(node.buffer, value, self._checked(node, span), span=span)

    def expr_call(self, node: tir.Call) -> Expr:
        if not called(node).place:
            return super().expr_call(node)
        args = tuple(
            replace(a, indices=self.exprs(a.indices)) if isinstance(a, tir.BufferLoad) else self.expr(a)
            for a in node.args
        )
        return replace(node, args=args)

    def _checked(self, node: tir.BufferLoad | tir.BufferStore, span: Span) -> tuple[Expr, ...]:
        if len(node.indices) != len(node.buffer.shape):
            return self.exprs(node.indices)
        pairs = enumerate(zip(node.indices, node.buffer.shape, strict=True))
        return tuple(self._one(node.buffer, at, index, extent, span) for at, (index, extent) in pairs)

    def _one(self, buffer: tir.Buffer, at: int, index: Expr, extent: Expr, span: Span) -> Expr:
        known, size = tir.const_int(index), tir.const_int(extent)
        if known is not None and size is not None and 0 <= known < size:
            return index
        text = f"{place_of(span, self._name)}: index \x01 is outside dimension {at} of `{buffer.name}`, which has \x02"
        args = (self.expr(index), extent, tir.StringImm(text))
        return tir.Call(index.dtype, tir.Op(INDEX), args, span=index.span)

    def _printed(self) -> Span:
        """The statement, as a place of code that no text has."""
        assert self._stmt is not None
        source = self._texts.get(self._stmt)
        if source is None:
            text = str(self._stmt).splitlines()[0]
            source = self._texts[self._stmt] = Source(f"{self._name}{_AS_LOWERED}", text)
        return Span(source, 0, len(source.text))


# ---------------------------------------------------------------- shadow memory


def own_temporaries(func: tir.PrimFunc) -> dict[tir.Var, set[tir.Var]]:
    """By data variable of an allocation, the variables of the parallel loops around which it stands though it could
    stand inside: each of their iterations then has memory of its own."""
    collector = Collector()
    collector.body(func.body)
    found: dict[tir.Var, set[tir.Var]] = {}
    for uses in collector.uses.values():
        depth = depth_of(uses, collector.jumps, collector.loose)
        if depth > len(uses.path):
            around = [stmt for stmt, _ in uses.accesses[0].path[len(uses.path) : depth]]
            loops = {s.var for s in around if isinstance(s, tir.For) and s.kind is ForKind.PARALLEL}
            found[uses.allocation.buffer.data] = loops
    return found


def with_shadows(func: tir.PrimFunc, own: dict[tir.Var, set[tir.Var]], fresh: int = 0) -> tuple[tir.PrimFunc, Shadows]:
    """`func` (flat) with shadow memory, its parallel loops serial. `own` are the temporaries of iterations
    (`own_temporaries`); the last `fresh` buffers that it takes are memory that nothing wrote before."""
    found = Shadows()
    made = _Shadowing(func, found, own, fresh)
    return replace(func, body=made.function()), found


class _Shadowing(TirMutator):
    def __init__(self, func: tir.PrimFunc, found: Shadows, own: dict[tir.Var, set[tir.Var]], fresh: int) -> None:
        self._func = func
        self._found = found
        self._own = own
        self._fresh = fresh
        self._depth = 0
        self._count = c.make_buffer("iterations", (1,), INT64)
        self._kept: list[tir.Buffer] = []  # shadow memory of the body under way
        self._granules: dict[tir.Var, int] = {}
        self._escaped: set[tir.Var] = set()
        self._shared: dict[tir.Var, set[int]] = {}  # by root, the depths of parallel loops whose iterations may meet

    def function(self) -> Body:
        """The new body."""
        self._survey()
        head: list[Stmt] = []
        buffers = [b for b in self._func.buffers if b is not None]
        for number, buffer in enumerate(buffers):
            fresh = number >= len(buffers) - self._fresh
            head += self._begin(flat_buffer(buffer), buffer.data, fresh, 0)
        kept, self._kept = self._kept, []
        body = self.body(self._func.body)
        if self._found.loops:
            head = [tir.AllocBuffer(self._count), c.store(self._count, 1, 0), *head]
        return (*head, *body, *_keep(kept))

    # ------------------------------------------------------------ what is touched where

    def _survey(self) -> None:
        """Find the roots, their smallest elements, what is passed on, and who shares what."""
        aliases = self._found.aliases
        for param, buffer in zip(self._func.params, self._func.buffers, strict=True):
            if buffer is not None:
                aliases.bind(param, buffer.data)
        touched: dict[tuple[tir.Var, tir.For], bool] = {}
        inside: dict[tir.Var, int] = {}
        for stmt, loops in _statements(self._func.body, ()):
            match stmt:
                case tir.AllocBuffer(buffer=buffer):
                    inside[buffer.data] = len(loops)
                    self._granule(buffer)
                case tir.DeclBuffer(buffer=buffer, data=data):
                    aliases.bind(buffer.data, data)
                    if aliases.of(buffer.data).root is None:
                        self._escaped |= set(_handles(data))
                    self._granule(buffer)
                    continue
                case tir.Bind(var=var, value=value) if var.dtype.is_handle:
                    aliases.bind(var, value)
                    self._escaped |= set(_handles(value)) if aliases.of(var).root is None else set()
                    continue
            for node in _own_nodes(stmt):
                if isinstance(node, (tir.BufferLoad, tir.BufferStore)):
                    self._granule(node.buffer)
                    root = aliases.of(node.buffer.data).root
                    for loop in loops:
                        if root is not None:
                            written = touched.get((root, loop), False) or isinstance(node, tir.BufferStore)
                            touched[root, loop] = written
                elif isinstance(node, tir.Call):
                    self._escaped |= {v for a in node.args for v in _escaping(a, node)}
        self._escaped = {aliases.of(v).root or v for v in self._escaped}
        depths = {loop: depth for stmt, around in _statements(self._func.body, ()) for depth, loop in enumerate(around)}
        for (root, loop), written in touched.items():
            depth = depths[loop]
            if written and depth >= inside.get(root, 0) and loop.var not in self._own.get(root, ()):
                self._shared.setdefault(root, set()).add(depth)

    def _granule(self, buffer: tir.Buffer) -> None:
        root = self._found.aliases.of(buffer.data).root
        if root is not None:
            self._granules[root] = min(self._granules.get(root, 1 << 10), buffer.dtype.bytes)

    # ------------------------------------------------------------ new statements

    def _begin(self, buffer: tir.Buffer, root: tir.Var, unwritten: bool, depth: int) -> list[Stmt]:
        """Shadow memory for memory that begins to live in `depth` parallel loops."""
        root = self._found.aliases.of(root).root or root
        granule = self._granules.get(root, buffer.dtype.bytes)
        cells: Expr = c.const(buffer.dtype.bytes * buffer.dtype.lanes // granule, INT64)
        for dim in buffer.shape:
            cells = c.mul(cells, c.cast(INT64, dim))
        shadow = Shadow(buffer, root, buffer.name, granule, c.mul(cells, granule))
        self._found.by_root[root] = shadow
        made: list[Stmt] = []
        if unwritten and root not in self._escaped:
            shadow.written = c.make_buffer(f"{buffer.name}_written", (cells,), _BYTE)
            made += _zeroed(shadow.written)
            self._kept.append(shadow.written)
        for shared in sorted(self._shared.get(root, ())):
            if shared >= depth:
                pair = tuple(c.make_buffer(f"{buffer.name}_{word}", (cells,), INT64) for word in ("writer", "reader"))
                shadow.marks[shared] = pair[0], pair[1]
                made += [*_zeroed(pair[0]), *_zeroed(pair[1])]
                self._kept += pair
        return made

    def body(self, statements: Body) -> Body:
        outer, self._kept = self._kept, []
        made = (*super().body(statements), *_keep(self._kept))
        self._kept = outer
        return made

    def stmt_alloc(self, node: tir.AllocBuffer) -> Stmt | list[Stmt]:
        return [node, *self._begin(node.buffer, node.buffer.data, True, self._depth)]

    def stmt_for(self, node: tir.For) -> Stmt | list[Stmt]:
        if node.kind is not ForKind.PARALLEL:
            return replace(node, kind=ForKind.SERIAL, body=self.body(node.body), annotations=EMPTY)
        base, me, many = (tir.Var(f"{node.var.name}_{word}", INT64) for word in ("base", "me", "many"))
        number = c.add(base, c.sub(c.cast(INT64, node.var), c.cast(INT64, node.min)))
        depth = self._depth
        self._depth += 1
        body = (tir.Bind(me, number), *self.body(node.body))
        self._depth -= 1
        loop = replace(node, kind=ForKind.SERIAL, body=body, annotations=EMPTY)
        self._found.loops[loop] = Parallel(depth, node.var.name, base, me, many)
        size = c.maximum(c.cast(INT64, node.extent), 0)
        return [
            tir.Bind(base, c.load(self._count, 0)), tir.Bind(many, c.add(base, size)),
            c.store(self._count, c.add(c.add(base, size), 1), 0), loop,
        ]  # fmt: skip

    def expr(self, node: Expr) -> Expr:
        return node


def _keep(buffers: list[tir.Buffer]) -> list[Stmt]:
    """The statement that ends the life of shadow memory."""
    args = tuple(b.data for b in buffers)
    return [tir.Evaluate(tir.Call(DType.of("void"), tir.Op(KEEP), args))] if args else []


def _zeroed(buffer: tir.Buffer) -> list[Stmt]:
    var = tir.Var("cell", INT64)
    zero = c.const(0, buffer.dtype)
    fill = tir.For(var, c.const(0, INT64), buffer.shape[0], ForKind.SERIAL, (c.store(buffer, zero, var),))
    return [tir.AllocBuffer(buffer), fill]


def _statements(body: Body, loops: tuple[tir.For, ...]) -> Iterator[tuple[Stmt, tuple[tir.For, ...]]]:
    """All statements in order, with the parallel loops around them."""
    for stmt in body:
        yield stmt, loops
        match stmt:
            case tir.For(body=inner):
                yield from _statements(inner, (*loops, stmt) if stmt.kind is ForKind.PARALLEL else loops)
            case tir.While(body=inner) | tir.AttrStmt(body=inner):
                yield from _statements(inner, loops)
            case tir.IfThenElse(then_body=then, else_body=other):
                yield from _statements((*then, *(other or ())), loops)


def _own_nodes(stmt: Stmt) -> Iterator[Node]:
    """The statement and its expressions, without statements inside it."""
    stack: list[Node] = [stmt]
    while stack:
        node = stack.pop()
        yield node
        stack += [n for n in children(node) if not isinstance(n, tir.Stmt)]


def _escaping(arg: Expr, call: tir.Call) -> Iterator[tir.Var]:
    """The pointers that an argument of a call hands on; those in a nested call are that call's."""
    if isinstance(arg, tir.Var) and arg.dtype.is_handle:
        yield arg
    elif isinstance(arg, tir.BufferLoad) and called(call).place:
        yield arg.buffer.data


def _handles(node: Expr) -> Iterator[tir.Var]:
    for found in walk(node):
        if isinstance(found, tir.Var) and found.dtype.is_handle:
            yield found
        elif isinstance(found, tir.Buffer):
            yield found.data
