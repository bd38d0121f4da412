"""Check every access of sanitized code by shadow memory, which the code itself allocates.

For buffers of the function's own, a byte of shadow memory for each element says whether it was written. Parallel loops
run serially; for memory that their iterations share, shadow memory holds the numbers of the iterations that last wrote
and read each element, at each depth of nested parallel loops. Iterations are numbered through the whole call, so that
what an earlier loop left behind is less than the first number (`base`) of a loop that runs.

A check stands around the index, which it gives back: `T.sanitize_view` (the element of a view is inside the memory),
`sanitize_read` and `sanitize_write` (it was written, it is now), `sanitize_shared_read` and `sanitize_shared_write` (no
other iteration touched it). All take (index, data, memory that this points into, bytes of an element), then bytes for
which there is a cell of shadow memory, or of the memory, then shadow memory, numbers of iterations and texts of errors
(`mlcc.targets.llvm.codegen.sanitized` has each).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT64, DType
from mlcc.ir.equal import structural_equal
from mlcc.ir.intrinsics import called
from mlcc.ir.module import IRModule
from mlcc.ir.node import EMPTY, Node, children, replace, walk
from mlcc.ir.tir import Expr, ForKind, Stmt
from mlcc.passes.lowering.aliases import Aliases
from mlcc.passes.lowering.flatten import flat_buffer
from mlcc.passes.lowering.mutator import Body, TirMutator
from mlcc.passes.lowering.new_outputs import NEW_OUTPUTS
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.sanitized_indices import PRIVATE_LOOPS, location_text
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.manage.stages import FLAT

Access = tir.BufferLoad | tir.BufferStore
A = TypeVar("A", bound=Access)
Check = tuple[tir.Op, tuple[Expr, ...]]  # an operator, and its arguments after the index
_BYTE = DType.of("uint8")


@dataclass(frozen=True)
class InsertAccessChecks(LoweringStep):
    """Check by shadow memory that what is read was written, and that iterations of parallel loops do not meet.

    Before:  L = T.decl_buffer((8,), "float32"); ...; B[i] = L[i]
    After:   L_written = T.decl_buffer((8,), "uint8")  (cleared, and set where L is written); ...
             B[i] = L[T.sanitize_read(i, L.data, L.data, 4, 4, L_written.data, "... never written ...")]
    """

    name: ClassVar[str] = "insert-access-checks"
    takes: ClassVar[str] = FLAT
    gives: ClassVar[str] = FLAT

    def lower_named(
        self, name: str, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions,
        module: IRModule,
    ) -> Mapping[str, tir.PrimFunc]:  # fmt: skip
        return {name: replace(func, body=_CheckInserter(func, name).function())}


@dataclass(frozen=True, slots=True, eq=False)
class ParallelLoop:
    """A parallel loop that runs serially: `current` is the number of the current iteration, counted from `base` on.
    `shared_mark` is the number that marks an element as read by several iterations.
    """

    name: str
    base: tir.Var
    current: tir.Var
    shared_mark: tir.Var


@dataclass(slots=True, eq=False)
class Shadow:
    """Shadow memory of the allocation behind the data variable `root`, one entry for each `granule` of bytes.

    `written` tells which granules are initialized. `marks` has, by depth of parallel loops, the last writers and
    readers. `size` is in bytes; the flat buffer `buffer` spans all of them.
    """

    buffer: tir.Buffer
    root: tir.Var
    name: str
    granule: int
    size: Expr
    written: tir.Buffer | None = None
    marks: dict[int, tuple[tir.Buffer, tir.Buffer]] = field(default_factory=dict)

    def spans_all(self, buffer: tir.Buffer) -> bool:
        """Return True if a flat buffer spans the whole allocation, so that its bounds are those of the memory."""
        own = self.buffer
        same = buffer.data is self.root and buffer.dtype == own.dtype
        return buffer is own or (same and structural_equal(buffer.shape, own.shape))


# ---------------------------------------------------------------- shadow memory


class _CheckInserter(TirMutator):
    def __init__(self, func: tir.PrimFunc, name: str) -> None:
        self._func = func
        self._name = name
        self._private_loops: dict[tir.Var, int] = {}  # by root, the number of loops it could be moved into
        self._new_outputs = (
            tir.const_int(func.attrs.get(NEW_OUTPUTS)) or 0
        )  # how many of the last buffers nothing wrote before
        self._aliases = Aliases()
        self._shadows: dict[tir.Var, Shadow] = {}  # by root
        self._loops: list[ParallelLoop] = []  # the parallel loops around
        self._iteration_number = c.make_buffer("iterations", (1,), INT64)
        self._numbers_iterations = False
        self._granules: dict[tir.Var, int] = {}
        self._escaped: set[tir.Var] = set()
        self._shared: dict[tir.Var, set[int]] = {}  # by root, the depths of parallel loops whose iterations may meet

    def function(self) -> Body:
        """Return the new body."""
        self._collect_facts()
        head: list[Stmt] = []
        buffers = [b for b in self._func.buffers if b is not None]
        for number, buffer in enumerate(buffers):
            fresh = number >= len(buffers) - self._new_outputs
            head += self._allocate_shadow(flat_buffer(buffer), buffer.data, fresh, 0)
        body = self.body(self._func.body)
        if self._numbers_iterations:
            head = [tir.AllocBuffer(self._iteration_number), c.store(self._iteration_number, 1, 0), *head]
        return (*head, *body)

    # ------------------------------------------------------------ survey of accesses

    def _collect_facts(self) -> None:
        """Find the roots, their smallest elements, what is passed on, and who shares what."""
        aliases = self._aliases
        for param, buffer in zip(self._func.params, self._func.buffers, strict=True):
            if buffer is not None:
                aliases.bind(param, buffer.data)
        touched: dict[tuple[tir.Var, tir.For], bool] = {}
        inside: dict[tir.Var, int] = {}
        for stmt, loops in _statements(self._func.body, ()):
            match stmt:
                case tir.AllocBuffer(buffer=buffer, annotations=notes):
                    inside[buffer.data] = len(loops)
                    self._private_loops[buffer.data] = tir.const_int(notes.get(PRIVATE_LOOPS)) or 0
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
            if written and depth >= inside.get(root, 0) + self._private_loops.get(root, 0):
                self._shared.setdefault(root, set()).add(depth)

    def _granule(self, buffer: tir.Buffer) -> None:
        root = self._aliases.of(buffer.data).root
        if root is not None:
            self._granules[root] = min(self._granules.get(root, 1 << 10), buffer.dtype.bytes)

    # ------------------------------------------------------------ new statements

    def _allocate_shadow(self, buffer: tir.Buffer, root: tir.Var, unwritten: bool, depth: int) -> list[Stmt]:
        """Return statements that allocate and clear the shadow memory of an allocation in `depth` parallel loops."""
        root = self._aliases.of(root).root or root
        granule = self._granules.get(root, buffer.dtype.bytes)
        cells: Expr = c.const(buffer.dtype.bytes * buffer.dtype.lanes // granule, INT64)
        for dim in buffer.shape:
            cells = c.mul(cells, c.cast(INT64, dim))
        shadow = Shadow(buffer, root, buffer.name, granule, c.mul(cells, granule))
        self._shadows[root] = shadow
        zeroing: list[Stmt] = []
        if unwritten and root not in self._escaped:
            shadow.written = c.make_buffer(f"{buffer.name}_written", (cells,), _BYTE)
            zeroing += _allocate_zeroed(shadow.written)
        for shared in sorted(self._shared.get(root, ())):
            if shared >= depth:
                pair = tuple(c.make_buffer(f"{buffer.name}_{word}", (cells,), INT64) for word in ("writer", "reader"))
                shadow.marks[shared] = pair[0], pair[1]
                zeroing += [*_allocate_zeroed(pair[0]), *_allocate_zeroed(pair[1])]
        return zeroing

    def stmt_alloc(self, node: tir.AllocBuffer) -> Stmt | list[Stmt]:
        node = replace(node, annotations=node.annotations.without(PRIVATE_LOOPS))
        return [node, *self._allocate_shadow(node.buffer, node.buffer.data, True, len(self._loops))]

    def stmt_for(self, node: tir.For) -> Stmt | list[Stmt]:
        start, extent = self.expr(node.min), self.expr(node.extent)
        step = None if node.step is None else self.expr(node.step)
        node = replace(node, min=start, extent=extent, step=step, annotations=EMPTY)
        if node.kind is not ForKind.PARALLEL:
            return replace(node, kind=ForKind.SERIAL, body=self.body(node.body))
        self._numbers_iterations = True
        base, current, shared_mark = (tir.Var(f"{node.var.name}_{word}", INT64) for word in ("base", "me", "many"))
        number = c.add(base, c.sub(c.cast(INT64, node.var), c.cast(INT64, node.min)))
        self._loops.append(ParallelLoop(node.var.name, base, current, shared_mark))
        body = (tir.Bind(current, number), *self.body(node.body))
        self._loops.pop()
        size = c.maximum(c.cast(INT64, node.extent), 0)
        return [
            tir.Bind(base, c.load(self._iteration_number, 0)), tir.Bind(shared_mark, c.add(base, size)),
            c.store(self._iteration_number, c.add(c.add(base, size), 1), 0),
            replace(node, kind=ForKind.SERIAL, body=body),
        ]  # fmt: skip

    # ------------------------------------------------------------ accesses

    def expr_call(self, node: tir.Call) -> Expr:
        if not called(node).place:
            return super().expr_call(node)
        args = (
            replace(a, indices=self.exprs(a.indices)) if isinstance(a, tir.BufferLoad) else self.expr(a)
            for a in node.args
        )
        return replace(node, args=tuple(args))

    def expr_load(self, node: tir.BufferLoad) -> Expr:
        load = super().expr_load(node)
        shadow = self._shadow(node)
        if shadow is None:
            return load
        assert isinstance(load, tir.BufferLoad)
        checks = self._view_checks(node, shadow)
        if shadow.written is not None:
            text = f"`{node.buffer.name}` is read where it was never written, at element \x01"
            checks.append(
                self._check("read", node, shadow, shadow.granule, shadow.written.data, self._text(node, text))
            )
        for loop, (writer, reader) in self._shared_loops(shadow):
            text = _race_text(node, loop, "read in one iteration and written in another")
            last = (writer.data, reader.data, loop.base, loop.current, loop.shared_mark)
            checks.append(self._check("shared_read", node, shadow, shadow.granule, *last, self._text(node, text)))
        return _with_checks(load, checks)

    def stmt_store(self, node: tir.BufferStore) -> Stmt | list[Stmt]:
        store = super().stmt_store(node)
        shadow = self._shadow(node)
        if shadow is None:
            return store
        assert isinstance(store, tir.BufferStore)
        first: list[Stmt] = []
        loops = self._shared_loops(shadow)
        known: tuple[Expr, ...] = ()
        if loops and not store.value.dtype.is_handle and store.buffer.dtype.lanes == 1:
            value = tir.Var("value", store.value.dtype)
            first.append(tir.Bind(value, store.value))
            store, known = replace(store, value=value), (value,)
        checks = self._view_checks(node, shadow)
        for loop, (writer, reader) in loops:
            texts = (
                self._text(node, _race_text(node, loop, how))
                for how in ("written in two iterations", "read in one iteration and written in another")
            )
            last = (writer.data, reader.data, loop.base, loop.current, *texts, *known)
            checks.append(self._check("shared_write", node, shadow, shadow.granule, *last))
        if shadow.written is not None:
            checks.append(self._check("write", node, shadow, shadow.granule, shadow.written.data))
        return [*first, _with_checks(store, checks)]

    def _shadow(self, node: Access) -> Shadow | None:
        """Return the shadow of the accessed memory; None if it has none."""
        root = self._aliases.of(node.buffer.data).root
        return None if root is None or len(node.indices) != 1 else self._shadows.get(root)

    def _shared_loops(self, shadow: Shadow) -> list[tuple[ParallelLoop, tuple[tir.Buffer, tir.Buffer]]]:
        """Return the surrounding parallel loops whose iterations share the memory, each with its marks."""
        return [(loop, shadow.marks[depth]) for depth, loop in enumerate(self._loops) if depth in shadow.marks]

    def _view_checks(self, node: Access, shadow: Shadow) -> list[Check]:
        """Return the check that an access stays within the memory; none if the dimension check implies it."""
        if shadow.spans_all(node.buffer):
            return []
        text = f"element \x01 of `{node.buffer.name}` is outside the memory of `{shadow.name}`"
        return [self._check("view", node, shadow, shadow.size, self._text(node, text))]

    def _check(self, what: str, node: Access, shadow: Shadow, *args: Expr | int) -> Check:
        size = node.buffer.dtype.bytes * node.buffer.dtype.lanes
        operands = (c.as_expr(arg) for arg in (node.buffer.data, shadow.root, size, *args))
        return tir.Op(f"tir.sanitize_{what}"), tuple(operands)

    def _text(self, node: Access, text: str) -> tir.StringImm:
        return tir.StringImm(f"{location_text(node.span, self._name)}: {text}")


def _with_checks(access: A, checks: list[Check]) -> A:
    """Return the access with its index wrapped in the checks, the first one innermost."""
    (index,) = access.indices
    if not checks:
        return access
    if isinstance(index, tir.Broadcast) and index.value.dtype.lanes == 1:
        one = _wrap_index(index.value, checks)
        return replace(access, indices=(tir.Broadcast(one.dtype.with_lanes(index.dtype.lanes), one, index.lanes),))
    return replace(access, indices=(_wrap_index(index, checks),))


def _wrap_index(index: Expr, checks: list[Check]) -> Expr:
    checked = c.cast(INT64.with_lanes(index.dtype.lanes), index)
    for op, args in checks:
        checked = tir.Call(checked.dtype, op, (checked, *args), span=index.span)
    return checked


def _race_text(node: Access, loop: ParallelLoop, how: str) -> str:
    return f"element \x01 of `{node.buffer.name}` is {how} of the parallel loop `{loop.name}`"


def _allocate_zeroed(buffer: tir.Buffer) -> list[Stmt]:
    var = tir.Var("cell", INT64)
    zero = c.const(0, buffer.dtype)
    fill = tir.For(var, c.const(0, INT64), buffer.shape[0], ForKind.SERIAL, (c.store(buffer, zero, var),))
    return [tir.AllocBuffer(buffer), fill]


def _statements(body: Body, loops: tuple[tir.For, ...]) -> Iterator[tuple[Stmt, tuple[tir.For, ...]]]:
    """Yield all statements in order, each with the parallel loops around it."""
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
    """Yield the statement and its expressions, without nested statements."""
    stack: list[Node] = [stmt]
    while stack:
        node = stack.pop()
        yield node
        stack += [n for n in children(node) if not isinstance(n, tir.Stmt)]


def _escaping(arg: Expr, call: tir.Call) -> Iterator[tir.Var]:
    """Yield the pointers that an argument passes to a call; those in a nested call belong to that call."""
    if isinstance(arg, tir.Var) and arg.dtype.is_handle:
        yield arg
    elif isinstance(arg, tir.BufferLoad) and called(call).place:
        yield arg.buffer.data


def _handles(node: Expr) -> Iterator[tir.Var]:
    for part in walk(node):
        if isinstance(part, tir.Var) and part.dtype.is_handle:
            yield part
        elif isinstance(part, tir.Buffer):
            yield part.data
