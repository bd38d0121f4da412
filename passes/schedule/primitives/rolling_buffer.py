"""rolling_buffer: keep only the window of an intermediate buffer that is in use, and compute each element once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.intset import eval_range, eval_set, from_range, point, to_range
from mlcc.arith.regions import BlockAccess
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import replace
from mlcc.ir.visit import Rewriter, substitute
from mlcc.passes.schedule.analysis.bindings import bindings
from mlcc.passes.schedule.analysis.block_access import write_region
from mlcc.passes.schedule.analysis.checks import check_not_output, scope_root
from mlcc.passes.schedule.analysis.scope import DepKind, consumers, scope_info
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.registry import primitive
from mlcc.passes.schedule.state import BlockRef, State
from mlcc.passes.schedule.tree import Rebuild, Tree


@dataclass(frozen=True, slots=True)
class _Window:
    """Per dimension of the buffer: the loop that moves the window on (None: none does), and by how much two windows
    in a row overlap. `axis` is the dimension that is folded to `extent` elements."""

    axis: int
    extent: tir.Expr
    movers: tuple[tir.Var | None, ...]
    overlaps: tuple[int, ...]


@primitive()
def rolling_buffer(state: State, block: BlockRef, write_buffer_index: int) -> None:
    """Fold a buffer that a block writes window by window, such as rows `i * 2 .. i * 2 + 3` for each `i`, to the size
    of one window, addressed modulo that size; elements of the overlap are not computed again.

    The block writes an intermediate buffer inside a loop that holds all its readers, typically after `compute_at`. The
    outermost loop that moves the window with an overlap decides the dimension. Refused: an output (E0658), other
    dependencies than of readers on this writer (E0681), no such loop or window (E0682).
    TVM: `rolling_buffer`, which does not check that the loops are serial and start at 0.
    """
    tree, writer = block.tree, block.block
    region = write_region(writer, write_buffer_index)
    scope = scope_root(tree, writer)
    check_not_output(tree, writer, scope)
    _check_dependencies(tree, writer, scope)
    loop = _common_loop(tree, writer, region.buffer)
    window = _window(block, region, _relaxed(tree, writer, region, loop))
    _check_movers(tree, writer, region, window)
    rewriter = _WindowFolder(tree, scope, region.buffer, window)
    new_scope: tir.Block = rewriter.visit(scope)
    edit = Rebuild(tree)
    edit.put_block(scope, new_scope)
    state.update(block.func_name, edit, rewriter.reuse)


def _check_dependencies(tree: Tree, writer: tir.Block, scope: tir.Block) -> None:
    info = scope_info(tree, scope)
    for dep in (*info.sources(writer), *info.dependents(writer)):
        if dep.kind is not DepKind.RAW:
            other = dep.src if dep.dst is writer else dep.dst
            message = (
                f"block `{writer.name}` and block `{other.name}` write to the same buffer, or one overwrites what "
            )
            raise Refusal("E0681", message + "the other has read", (writer, other))


def _common_loop(tree: Tree, writer: tir.Block, buffer: tir.Buffer) -> tir.For:
    """The innermost loop around the writer and all its readers."""
    readers = consumers(tree, writer)
    for at in tree.ancestors(tree.realize(writer)):
        if all(tree.is_under(tree.realize(r), at) for r in readers):
            if isinstance(at, tir.For):
                return at
            break
    names = ", ".join(f"`{r.name}`" for r in readers)
    help = (
        f'first compute it where it is used, such as by `sch.compute_at("{writer.name}", loop)` with a loop of {names}'
    )
    raise Refusal(
        "E0682", f"block `{writer.name}` and its readers {names} are not in a common loop", (writer, *readers), help
    )


def _relaxed(tree: Tree, writer: tir.Block, region: tir.BufferRegion, loop: tir.For) -> list[tir.Range]:
    """Return the region that one iteration of `loop` writes."""
    values = bindings(tree.realize(writer))
    domains = {}
    for at in reversed(tree.loops_above(writer)):
        if at is loop:
            break
        domains[at.var] = from_range(tir.Range(at.min, at.extent))
    analyzer = Analyzer()
    spans = []
    for span, size in zip(region.region, region.buffer.shape, strict=True):
        ends = from_range(tir.Range(substitute(span.min, values), substitute(span.extent, values)))
        assert ends.low is not None and ends.high is not None
        whole = tir.Range(c.const(0, size.dtype), size)
        spans.append(to_range(eval_range(ends.low, ends.high, domains, analyzer), whole, analyzer))
    return spans


def _window(block: BlockRef, region: tir.BufferRegion, spans: list[tir.Range]) -> _Window:
    """Return the window that rolls over the buffer. Refuse (E0682) if there is none."""
    movers: list[tir.Var | None] = []
    overlaps: list[int] = []
    for span in spans:
        var, stride = _moving_loop(span.min)
        extent = tir.const_int(span.extent)
        if stride is None or (var is not None and extent is None):
            raise _no_window(block, region, spans)
        overlap = extent - stride if var is not None and extent is not None else 0
        movers.append(var if overlap > 0 else None)
        overlaps.append(max(overlap, 0))
    for loop in block.tree.loops_above(block.block):
        if loop.var in movers:
            axis = movers.index(loop.var)
            return _Window(axis, spans[axis].extent, tuple(movers), tuple(overlaps))
    raise _no_window(block, region, spans)


def _no_window(block: BlockRef, region: tir.BufferRegion, spans: list[tir.Range]) -> Refusal:
    shown = ", ".join(f"{s.min} .. +{s.extent}" for s in spans)
    return Refusal(
        "E0682",
        f"no loop moves an overlapping window over `{region.buffer.name}`: block `{block.block.name}` writes {shown} "
        "in each iteration, and a window has the form `i * stride .. + size`, its constant size above the stride",
        block.block,
    )


def _moving_loop(low: tir.Expr) -> tuple[tir.Var | None, int | None]:
    """The variable and the stride of `i`, `i * s` or `i * s // d`; (None, 0) for a constant, (None, None) else."""
    match low:
        case tir.IntImm():
            return None, 0
        case tir.Var():
            return low, 1
        case tir.Mul(lhs=tir.Var() as var, rhs=tir.IntImm(value=stride)):
            return var, stride
        case tir.FloorDiv(lhs=tir.Mul(lhs=tir.Var() as var, rhs=tir.IntImm(value=stride)), rhs=tir.IntImm(value=by)):
            return var, -(-stride // by)
    return None, None


def _check_movers(tree: Tree, writer: tir.Block, region: tir.BufferRegion, window: _Window) -> None:
    """Refuse (E0682) loops and indices under which an iteration does not leave the overlap that the next one needs.

    The loops that move the window are serial from 0, and each moved dimension is indexed by the axis of its position.
    """
    for at in tree.loops_above(writer):
        if at.var in window.movers and (at.kind is not tir.ForKind.SERIAL or tir.const_int(at.min) != 0):
            how = "is not serial" if at.kind is not tir.ForKind.SERIAL else "does not start at 0"
            message = f"loop `{at.var.name}` moves the window over `{region.buffer.name}`, and {how}"
            raise Refusal("E0682", message, (at, writer))
    for index, (mover, span) in enumerate(zip(window.movers, region.region, strict=True)):
        if mover is None:
            continue
        axis = writer.iter_vars[index].var if index < len(writer.iter_vars) else None
        if span.min is not axis or tir.const_int(span.extent) != 1:
            raise Refusal(
                "E0682",
                f"dimension {index} of `{region.buffer.name}` must be indexed by axis {index} of block `{writer.name}`",
                writer,
            )


class _WindowFolder(Rewriter):
    """Access the buffer modulo the window everywhere in the scope, and guard its writer."""

    def __init__(self, tree: Tree, scope: tir.Block, buffer: tir.Buffer, window: _Window) -> None:
        super().__init__()
        self.reuse: dict[tir.Block, tir.Block] = {}
        self._scope, self._old, self._window = scope, buffer, window
        shape = list(buffer.shape)
        shape[window.axis] = window.extent
        self._new = replace(buffer, shape=tuple(shape))
        self._stored = False

    def visit(self, node: Any) -> Any:
        if isinstance(node, tir.Block):
            rewritten = self._block(node, super().visit(node))
            self.reuse[node] = rewritten
            return rewritten
        return super().visit(node)

    def rewrite(self, node: Any) -> Any:
        match node:
            case tir.BufferStore(buffer=buffer) if buffer is self._old:
                self._stored = True
                return replace(node, buffer=self._new, indices=self._indices(node.indices))
            case tir.BufferLoad(buffer=buffer) if buffer is self._old:
                return replace(node, buffer=self._new, indices=self._indices(node.indices))
            case tir.BlockRealize() if self._stored:
                self._stored = False
                return replace(node, predicate=self._guard(node))
        return node

    def _indices(self, indices: tuple[tir.Expr, ...]) -> tuple[tir.Expr, ...]:
        axis = self._window.axis
        return tuple(c.floormod(e, self._window.extent) if i == axis else e for i, e in enumerate(indices))

    def _block(self, old: tir.Block, new: tir.Block) -> tir.Block:
        if old is self._scope:
            allocs = tuple(self._new if b is self._old else b for b in new.alloc_buffers)
            return replace(new, alloc_buffers=allocs)
        # iterations of the folded dimension depend on each other, so its axes must not be reordered (as in TVM, in
        # every block of the scope)
        axes = tuple(
            replace(a, kind=tir.IterKind.OPAQUE) if i == self._window.axis else a for i, a in enumerate(new.iter_vars)
        )
        access = BlockAccess({self._new.data: self._new}).collect(new)
        accessed = {"reads": access.reads.as_regions(), "writes": access.writes.as_regions()}
        for name in ("reads", "writes"):
            mine = next((r for r in accessed[name] if r.buffer is self._new), None)
            regions = getattr(new, name)
            accessed[name] = tuple(mine if mine is not None and r.buffer is self._old else r for r in regions)
        return replace(new, iter_vars=axes, **accessed)

    def _guard(self, realize: tir.BlockRealize) -> tir.Expr:
        """Compute an element only where the window before has not."""
        condition = realize.predicate
        for index, (mover, overlap) in enumerate(zip(self._window.movers, self._window.overlaps, strict=True)):
            if mover is None:
                continue
            start = c.const(0, mover.dtype)
            place = eval_set(realize.values[index], {mover: point(start)}).low
            assert place is not None
            first = c.less(mover, 1)
            condition = c.logical_and(condition, c.logical_or(first, c.greater_equal(place, overlap)))
            condition = Analyzer().simplify(condition)
        return condition
