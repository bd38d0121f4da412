"""read_at and write_at: one opaque copying block in a loop, for all that the loop's body uses of a buffer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.intset import Interval, eval_range, from_range, union
from mlcc.arith.region_bound import strict_bound, union_lower_bound
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT32
from mlcc.ir.node import Attrs, walk
from mlcc.ir.tir import TRUE, Expr, ForKind, IterKind, Range
from mlcc.ir.visit import substitute, used_vars
from mlcc.passes.schedule.analysis.bindings import analyzer_of, bindings, loop_domain, vars_of
from mlcc.passes.schedule.analysis.block_access import exact_region
from mlcc.passes.schedule.analysis.checks import scope_root
from mlcc.passes.schedule.analysis.region_cover import covers, over_loops, region_text
from mlcc.passes.schedule.buffers import BufferArg, region_of
from mlcc.passes.schedule.primitives.layout import shape_analyzer
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.registry import primitive
from mlcc.passes.schedule.rewrite.cache_stage import buffer_in_scope
from mlcc.passes.schedule.rewrite.retarget import Retarget
from mlcc.passes.schedule.state import BlockRef, LoopRef, State
from mlcc.passes.schedule.storage import check_scope
from mlcc.passes.schedule.tree import Rebuild, Tree, child_realizes


@primitive()
def read_at(state: State, loop: LoopRef, block: BlockRef, read_buffer_index: BufferArg, storage_scope: str) -> BlockRef:
    """Copy, in each iteration of a loop, what its body reads of a buffer to a cache; one block does, marked auto_copy.

    Before:  for i in range(16):
                 for j in range(8): B[i, j] = A[i, j]
    After:   for i in range(16):
                 A_shared[i, 0:8] = A[i, 0:8]        # the block "A_shared", which is returned
                 for j in range(8): B[i, j] = A_shared[i, j]

    `block` says which buffer. Refused if the loop's body does not read it, or writes it after reading (E0644), for an
    unknown scope (E0641), and if the scope of the loop is no pipeline (E0659). A copy that would leave the buffer
    (E0644) is refused too; TVM makes it.
    """
    place = read_buffer_index.of(block.block, "read")
    state.recorded["read_buffer_index"] = place.index
    return _insert_copy(state, loop, place.buffer, storage_scope, reading=True)


@primitive()
def write_at(
    state: State, loop: LoopRef, block: BlockRef, write_buffer_index: BufferArg, storage_scope: str
) -> BlockRef:
    """Let the body of a loop write a buffer to a cache, and copy that to the buffer where each iteration ends.

    Before:  for i in range(16):
                 for j in range(8): B[i, j] = A[i, j]
    After:   for i in range(16):
                 for j in range(8): B_local[i, j] = A[i, j]
                 B[i, 0:8] = B_local[i, 0:8]        # the block "B_local", which is returned

    `block` says which buffer. Refused if the loop's body does not write it, reads it after the last write, or before
    the first one, or leaves gaps in what it writes (E0644), for an unknown scope (E0641), and if the scope of the loop
    is no pipeline (E0659).
    """
    place = write_buffer_index.of(block.block, "write")
    state.recorded["write_buffer_index"] = place.index
    return _insert_copy(state, loop, place.buffer, storage_scope, reading=False)


def _insert_copy(state: State, ref: LoopRef, buffer: tir.Buffer, storage: str, reading: bool) -> BlockRef:
    check_scope(storage)
    tree, loop = ref.tree, ref.loop
    scope = scope_root(tree, loop, require_stage_pipeline=True)
    uses = _uses(loop, buffer)
    at = _position(loop, buffer, uses, reading)
    cache = buffer_in_scope(buffer, storage)
    # all threads of a shared memory may read it; each copies back what it has written itself
    spans = _accessed_region(tree, loop, buffer, cache.scope if reading else "global", reading)
    _check_inside(tree, loop, buffer, spans, reading)
    if not reading:
        _check_written(tree, loop, buffer, spans)
    source, target = (buffer, cache) if reading else (cache, buffer)
    copy = _copy_block(tree, loop, spans, source, target, f"{buffer.name}_{storage}")

    edit = Rebuild(tree)
    reuse: dict[tir.Block, tir.Block] = {}
    for stmt in loop.body[at:] if reading else loop.body[:at]:
        for realize in child_realizes((stmt,)):
            inside = {n for n in walk(realize) if isinstance(n, tir.Block)}
            retarget = Retarget(buffer, cache, applies_to=inside.__contains__, stores=True)
            rewritten = retarget.visit(realize)
            if rewritten is not realize:
                edit.put(realize, rewritten)
            reuse |= retarget.reuse
    if at < len(loop.body):
        edit.before(loop.body[at], copy)
    else:
        edit.after(loop.body[-1], copy)
    edit.allocate(scope, cache)
    state.update(ref.func_name, edit, reuse=reuse)
    return state.block_ref(ref.func_name, copy.block)


# ---------------------------------------------------------------- where


@dataclass(frozen=True, slots=True)
class _Use:
    """A block of the loop's body that uses the buffer, and in which statement of the body it is."""

    position: int
    block: tir.Block
    reads: bool
    writes: bool


def _uses(loop: tir.For, buffer: tir.Buffer) -> list[_Use]:
    uses = []
    for n, stmt in enumerate(loop.body):
        for realize in child_realizes((stmt,)):
            block = realize.block
            reads = region_of(block.reads, buffer, block) is not None
            writes = region_of(block.writes, buffer, block) is not None
            if reads or writes:
                uses.append(_Use(n, block, reads, writes))
    return uses


def _position(loop: tir.For, buffer: tir.Buffer, uses: list[_Use], reading: bool) -> int:
    """Return the index in the body at which the copy is inserted. Refuses (E0644) uses in another order."""
    where = f"the loop `{loop.var.name}`"
    readers, writers = [u for u in uses if u.reads], [u for u in uses if u.writes]
    users = readers if reading else writers
    if not users:
        verb = "reads" if reading else "writes"
        raise Refusal("E0644", f"nothing in {where} {verb} `{buffer.name}`", loop)
    if reading:
        first, late = readers[0], [u for u in writers if u.position >= readers[0].position]
        if late:
            raise _order_refusal(where, buffer, late[0].block, "writes", "after", first.block, "reads")
        return first.position
    last, late = writers[-1], [u for u in readers if u.position > writers[-1].position]
    if late:
        raise _order_refusal(where, buffer, late[0].block, "reads", "after", last.block, "has written")
    first = uses[0]
    if first.reads and not (first.writes and first.block.init is not None):
        raise Refusal(
            "E0644", f"in {where} block `{first.block.name}` reads `{buffer.name}` before anything there writes it,"
            " and the cache would be empty", first.block,
        )  # fmt: skip
    return last.position + 1


def _order_refusal(
    where: str, buffer: tir.Buffer, one: tir.Block, verb: str, when: str, other: tir.Block, has: str
) -> Refusal:
    words = f"in {where} block `{one.name}` {verb} `{buffer.name}` {when} block `{other.name}` {has} it"
    return Refusal("E0644", words, (one, other), "use a loop further inside")


# ---------------------------------------------------------------- what


def _accessed_region(tree: Tree, loop: tir.For, buffer: tir.Buffer, storage: str, reading: bool) -> list[Range]:
    """Return the region of the buffer that one iteration of the loop reads, or writes."""
    analyzer = shape_analyzer(tree.func)
    box: list[Interval] | None = None
    for realize in child_realizes(loop.body):
        block = realize.block
        region = region_of(block.reads if reading else block.writes, buffer, block)
        if region is None:
            continue
        if not reading:
            region = exact_region(block, region, writing=True)
        domain = loop_domain(tree, tree.parent(realize), loop, storage)
        intervals = {var: from_range(span) for var, span in domain.items()}
        values = bindings(realize)
        accessed = []
        for span in region.region:
            low = substitute(span.min, values)
            last = c.add(low, c.sub(substitute(span.extent, values), 1))
            accessed.append(eval_range(low, analyzer.simplify(last), intervals, analyzer))
        box = accessed if box is None else [union(a, b, analyzer) for a, b in zip(box, accessed, strict=True)]
    assert box is not None
    return [_range(i, extent, analyzer) for i, extent in zip(box, buffer.shape, strict=True)]


def _check_inside(tree: Tree, loop: tir.For, buffer: tir.Buffer, spans: list[Range], reading: bool) -> None:
    """Refuse (E0644) a copy that leaves the buffer, as for blocks under a condition, or the region declared by an
    enclosing block.
    """
    around = [at for at in tree.ancestors(loop) if isinstance(at, tir.Block)]
    analyzer = shape_analyzer(tree.func)
    known = used_vars(tuple(size for b in tree.func.buffers if b is not None for size in b.shape))
    domain: dict[tir.Var, Interval] = {}
    for at in [loop, *tree.ancestors(loop)][::-1]:
        ranges = {a.var: a.dom for a in at.iter_vars} if isinstance(at, tir.Block) else {}
        if isinstance(at, tir.For):
            ranges = {at.var: Range(at.min, at.extent)}
        for var, span in ranges.items():
            analyzer.bind(var, span)
            domain[var] = from_range(span)
    known |= domain.keys()

    def may_be_negative(value: Expr) -> bool:
        value = analyzer.simplify(value)
        if analyzer.bound(value).min >= 0:
            return False
        least = eval_range(value, value, domain, analyzer).low  # n - i - 1 is 0 where i is n - 1
        return least is None or not analyzer.prove(c.less_equal(0, least))

    def leaves(low: Expr, high: Expr, inside: Range) -> bool:
        """Return True if the range low : high may leave `inside`."""
        end = c.add(inside.min, inside.extent)
        if not all(vars_of(e) <= known for e in (low, high, inside.min, end)):
            return False
        return may_be_negative(c.sub(low, inside.min)) or may_be_negative(c.sub(end, high))

    for n, (span, extent) in enumerate(zip(spans, buffer.shape, strict=True)):
        end = c.add(span.min, span.extent)
        words = f"the copy in loop `{loop.var.name}` would leave"
        region = f"and the region is {span.min} : {analyzer.simplify(end)}"
        help = "use a loop further outside, or a nest without the condition"
        if leaves(span.min, end, Range(c.const(0, extent.dtype), extent)):
            words = f"{words} `{buffer.name}`: dimension {n} has {extent} elements, {region}"
            raise Refusal("E0644", words, loop, help)
        for block in around:
            stated = region_of(block.reads if reading else block.writes, buffer, block)
            if stated is not None and leaves(span.min, end, stated.region[n]):
                part = f"{stated.region[n].min} : {c.add(stated.region[n].min, stated.region[n].extent)}"
                words = (
                    f"{words} the region of `{buffer.name}` in block `{block.name}`: in dimension {n} {part}, {region}"
                )
                raise Refusal("E0644", words, loop, help)


def _check_written(tree: Tree, loop: tir.For, buffer: tir.Buffer, spans: list[Range]) -> None:
    """Refuse (E0644) a copy of elements that an iteration of the loop may leave out: nothing may be in the cache."""
    analyzer = analyzer_of(tree)
    boxes: list[list[Interval]] = []
    writers = []
    for realize in child_realizes(loop.body):
        region = region_of(realize.block.writes, buffer, realize.block)
        if region is not None:
            writers.append(realize.block)
            written = over_loops(realize, exact_region(realize.block, region, writing=True).region)
            domain = loop_domain(tree, tree.parent(realize), loop)
            box = strict_bound(written, domain, realize.predicate, analyzer)
            if box is not None:
                boxes.append(box)
    copied = [from_range(span) for span in spans]
    if not spans or boxes and covers(buffer.shape, union_lower_bound(boxes), copied, analyzer):
        return
    names = " and ".join(f"`{b.name}`" for b in dict.fromkeys(writers))
    words = f"in one iteration of `{loop.var.name}` {names} may leave out some of {region_text(buffer, copied)}"
    raise Refusal(
        "E0644", f"{words}, so the copy would contain garbage", (loop, *writers), "use a loop further outside"
    )


def _range(interval: Interval, extent: Expr, analyzer: Analyzer) -> Range:
    if interval.low is None or interval.high is None:
        return Range(c.const(0, extent.dtype), extent)
    low = analyzer.simplify(interval.low)
    return Range(low, analyzer.simplify(c.sub(c.add(interval.high, 1), low)))


def _loops_outside_axes(tree: Tree, loop: tir.For) -> Iterator[tir.For]:
    """Return `loop` and the loops above it, up to the block whose axes they drive."""
    for at in (loop, *tree.ancestors(loop)):
        if isinstance(at, tir.Block) and at.iter_vars:
            return
        if isinstance(at, tir.For):
            yield at


def _copy_block(
    tree: Tree, loop: tir.For, spans: list[Range], source: tir.Buffer, target: tir.Buffer, name: str
) -> tir.BlockRealize:
    """The block, with an axis for each loop on which the spans depend."""
    ranges = {at.var: Range(at.min, at.extent) for at in _loops_outside_axes(tree, loop)}
    axes: dict[tir.Var, tir.IterVar] = {}
    for var in (n for span in spans for n in walk(span) if isinstance(n, tir.Var)):
        if var in ranges and var not in axes:
            axes[var] = tir.IterVar(tir.Var(f"v{len(axes)}", var.dtype), ranges[var], IterKind.SPATIAL)
    own = {var: axis.var for var, axis in axes.items()}
    region = tuple(Range(substitute(s.min, own), substitute(s.extent, own)) for s in spans)
    # a constant extent fits 32 bits, whatever the buffer's shape is in
    dtypes = [INT32 if isinstance(span.extent, tir.IntImm) else span.extent.dtype for span in region]
    loops = [tir.Var(f"ax{n}", dtype) for n, dtype in enumerate(dtypes)]
    at = tuple(c.add(span.min, var) for span, var in zip(region, loops, strict=True))
    body: tir.Stmt = tir.BufferStore(target, tir.BufferLoad(source.dtype, source, at), at)
    for var, span in reversed(list(zip(loops, region, strict=True))):
        body = tir.For(var, c.const(0, var.dtype), c.cast(var.dtype, span.extent), ForKind.SERIAL, (body,))
    block = tir.Block(
        name, tuple(axes.values()), (tir.BufferRegion(source, region),), (tir.BufferRegion(target, region),), (body,),
        annotations=Attrs({"auto_copy": True}),
    )  # fmt: skip
    return tir.BlockRealize(tuple(axes), TRUE, block)
