"""cache_read and cache_write: a copy of a buffer in other memory between the block that writes it and its readers."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.intset import from_range, to_range, union
from mlcc.arith.regions import full_region
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import children, walk
from mlcc.ir.tir import Range
from mlcc.ir.visit import used_vars
from mlcc.passes.schedule.analysis.block_access import exact_region, with_regions
from mlcc.passes.schedule.analysis.checks import scope_root
from mlcc.passes.schedule.analysis.region_cover import region_cover_violation, region_text, uncovered_inputs
from mlcc.passes.schedule.analysis.scope import producers, scope_info
from mlcc.passes.schedule.buffers import BufferArg, region_of
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.registry import primitive
from mlcc.passes.schedule.rewrite.cache_stage import (
    InsertionPoint,
    buffer_in_scope,
    clipped_region,
    copy_stage,
    covers_relaxed_region,
    dependents,
    insertion_point_after,
    nested_guard,
    only_writer,
    outer_guard,
    overhanging_dims,
    relaxed_region,
)
from mlcc.passes.schedule.rewrite.retarget import SAME_INDEXING, Retarget, shifted_indexing
from mlcc.passes.schedule.state import BlockRef, State
from mlcc.passes.schedule.storage import check_scope
from mlcc.passes.schedule.tree import Rebuild, Tree, child_realizes


@primitive()
def cache_read(
    state: State, block: BlockRef, read_buffer_index: BufferArg, storage_scope: str,
    consumer_blocks: list[BlockRef] | None = None,
) -> BlockRef:  # fmt: skip
    """Copy a buffer that a block reads to a cache in other memory, and let its readers read that.

    Before:  B[vi] = A[vi] * 2
    After:   for ax0 in T.serial(n): A_shared[v0] = A[v0]        # the block "A_shared", which is returned
             B[vi] = A_shared[vi] * 2

    The copy stands where the scope begins, or right before the first reader if a block of the scope writes the buffer:
    then, inside a loop that holds both, it copies what one iteration has written. `consumer_blocks` are the readers
    that take the cache; all do by default. Refused if several blocks write the buffer (E0640), for an unknown scope
    (E0641), if readers read more than was written before (E0642), and if they use the pointer of a buffer of which
    only a part is cached (E0643).
    """
    check_scope(storage_scope)
    tree, node = block.tree, block.block
    place = read_buffer_index.of(node, "read")
    buffer = place.buffer
    consumers = _record_arguments(state, "read_buffer_index", place.index, consumer_blocks)
    scope = scope_root(tree, node)
    check_reads_covered(tree, scope, buffer)

    guard: tir.Expr = tir.TRUE
    writer = only_writer(tree, scope, buffer)
    if writer is not None and consumers and _all_before(tree, scope, [node, *consumers], writer):
        writer = None  # they read what was there before
    if writer is None:
        spot = InsertionPoint(scope, scope.body[0])
        region = _input_region(tree, scope, node, buffer, consumers)
    else:
        written = region_of(writer.writes, buffer, writer)
        assert written is not None
        spot = insertion_point_after(tree, scope, writer, consumers or dependents(tree, scope, writer))
        region = relaxed_region(tree, writer, exact_region(writer, written, writing=True), spot.holder)
        guard = outer_guard(tree, writer, spot.holder)
        _check_written(tree, writer, region, spot)
        _check_readers_after(tree, scope, buffer, writer, spot, consumers)

    partial = spot.holder is scope and _depends_on_outer_loops(tree, region)
    compact = spot.holder is scope and not partial
    if compact:
        _check_one_region(tree, scope, buffer)
        users = list(consumers) or [r.block for r in tree.child_realizes(scope.body)]
        _check_no_pointer_into(region, users)
    cache = buffer_in_scope(buffer, storage_scope, tuple(s.extent for s in region.region) if compact else None)
    overhanging = overhanging_dims(tree, scope, region) if spot.holder is scope else ()
    stage = copy_stage(region, buffer, cache, storage_scope, compact, guard, partial, overhanging)
    retarget = Retarget(
        buffer, cache,
        applies_to=lambda b: b is not scope and (not consumers or b in consumers),
        skips=lambda b: region_of(b.writes, buffer, b) is not None,
        indexing=shifted_indexing([s.min for s in region.region]) if compact else SAME_INDEXING,
    )  # fmt: skip
    edit = Rebuild(tree)
    for realize in tree.child_realizes(scope.body):
        rewritten = retarget.visit(realize)
        if rewritten is not realize:
            edit.put(realize, rewritten)
    spot.insert(edit, stage)
    edit.allocate(scope, cache)
    state.update(block.func_name, edit, reuse=retarget.reuse)
    return state.block_ref(block.func_name, stage.block)


@primitive()
def cache_write(
    state: State, block: BlockRef, write_buffer_index: BufferArg, storage_scope: str,
    consumer_blocks: list[BlockRef] | None = None,
) -> BlockRef:  # fmt: skip
    """Let a block write to a cache in other memory, and copy that to the buffer afterwards.

    Before:  B[vi] = A[vi] * 2
    After:   B_local[vi] = A[vi] * 2
             for ax0 in T.serial(n): B[v0] = B_local[v0]        # the block "B_local", which is returned

    The copy stands right before the first block that reads the buffer, inside a loop if both are in it, else where the
    scope ends. `consumer_blocks` read the cache, too. Refused if other blocks write the buffer (E0640), for an unknown
    scope (E0641), if the cache would be read where it has not been written (E0642), and if the block uses the pointer
    of a buffer of which only a part is cached (E0643).
    """
    check_scope(storage_scope)
    tree, node = block.tree, block.block
    place = write_buffer_index.of(node, "write")
    buffer = place.buffer
    consumers = _record_arguments(state, "write_buffer_index", place.index, consumer_blocks)
    scope = scope_root(tree, node)
    only_writer(tree, scope, buffer)
    check_no_prior_value(tree, node, buffer)
    for ref in consumer_blocks or ():
        _check_reads_cache(tree, node, buffer, ref.block)

    written = region_of(node.writes, buffer, node)
    assert written is not None
    written = exact_region(node, written, writing=True)
    spot = insertion_point_after(tree, scope, node, [b for b in dependents(tree, scope, node) if b not in consumers])
    guard = nested_guard(node, buffer, writing=True)
    region = relaxed_region(tree, node, written, spot.holder, guard)
    _check_written(tree, node, region, spot, guard)
    partial = spot.holder is scope and _depends_on_outer_loops(tree, region)
    compact = spot.holder is scope and not partial
    if compact:
        _check_one_region(tree, scope, buffer)
        _check_no_pointer_into(region, [node, *consumers])
    cache = buffer_in_scope(buffer, storage_scope, tuple(s.extent for s in region.region) if compact else None)
    outer = outer_guard(tree, node, spot.holder)
    stage = copy_stage(region, cache, buffer, storage_scope, compact, outer, partial)
    inside = {n for n in walk(node) if isinstance(n, tir.Block)}
    retarget = Retarget(
        buffer, cache,
        applies_to=lambda b: b in inside or b in consumers,
        indexing=shifted_indexing([s.min for s in region.region]) if compact else SAME_INDEXING,
        stores=True,
    )  # fmt: skip
    edit = Rebuild(tree)
    for target in (node, *(b for b in consumers if tree.scope(b) is scope)):
        edit.put(tree.realize(target), retarget.visit(tree.realize(target)))
    spot.insert(edit, stage)
    edit.allocate(scope, cache)
    state.update(block.func_name, edit, reuse=retarget.reuse)
    return state.block_ref(block.func_name, stage.block)


def _record_arguments(state: State, name: str, index: int, consumers: list[BlockRef] | None) -> dict[tir.Block, None]:
    """Record the arguments for the trace. Return the consumers and the blocks directly inside them."""
    state.recorded[name] = index
    if not consumers:
        state.recorded["consumer_blocks"] = None
    blocks: dict[tir.Block, None] = {}
    for ref in consumers or ():
        blocks[ref.block] = None
        blocks.update((r.block, None) for r in child_realizes(ref.block.body))
    return blocks


def _input_region(
    tree: Tree, scope: tir.Block, block: tir.Block, buffer: tir.Buffer, consumers: Iterable[tir.Block]
) -> tir.BufferRegion:
    """Return the region to copy of a buffer that enters the scope.

    It is the region that blocks inside `block` read under their predicates, else the one that the scope declares, else
    the whole buffer.
    """
    read = region_of(block.reads, buffer, block)
    assert read is not None
    users = set(consumers) or set(scope_info(tree, scope).readers.get(buffer, ()))
    if users <= {block, *(r.block for r in child_realizes(block.body))}:
        guard = nested_guard(block, buffer, writing=False)
        if tir.const_int(guard) != 1:
            return relaxed_region(tree, block, read, scope, guard)
    stated = region_of(scope.reads, buffer, scope)
    inside = scope_info(tree, scope).readers.get(buffer, ())
    if stated is not None or scope is tree.root or not inside or not _is_written(tree, buffer):
        return full_region(buffer) if stated is None else clipped_region(stated)
    # a scope that does not declare what it reads, as in a partitioned loop: the rest may not be written yet
    regions = [exact_region(b, r, writing=False) for b in inside for r in with_regions(b).reads if r.buffer is buffer]
    whole = [relaxed_region(tree, b, r, scope) for b, r in zip(inside, regions, strict=True)]
    for reader, region, part in zip(inside, regions, whole, strict=True):
        if not covers_relaxed_region(tree, reader, region, scope):
            raise Refusal(
                "E0642", f"block `{reader.name}` does not read all of {_region_text(part)}, and the copy would, where"
                " nobody may have written", reader,
            )  # fmt: skip
    analyzer = Analyzer()
    spans = [[from_range(span) for span in part.region] for part in whole]
    joined = [reduce(lambda a, b: union(a, b, analyzer), column) for column in zip(*spans, strict=True)]
    shape = [Range(c.const(0, n.dtype), n) for n in buffer.shape]
    return tir.BufferRegion(buffer, tuple(to_range(i, n, analyzer) for i, n in zip(joined, shape, strict=True)))


def _is_written(tree: Tree, buffer: tir.Buffer) -> bool:
    return any(w.buffer is buffer for realize in tree.realizes for w in realize.block.writes)


def _depends_on_outer_loops(tree: Tree, region: tir.BufferRegion) -> bool:
    """Return True if the region depends on loops around the scope."""
    return any(tree.loop(var) is not None for span in region.region for var in used_vars((span.min, span.extent)))


def _region_text(region: tir.BufferRegion) -> str:
    return region_text(region.buffer, [from_range(s) for s in region.region])


# ---------------------------------------------------------------- checks


def check_reads_covered(tree: Tree, scope: tir.Block, buffer: tir.Buffer) -> None:
    """Refuse (E0642) if some block of the scope reads more of `buffer` than blocks there have written, or the scope
    more than blocks before it.
    """
    for block in scope_info(tree, scope).readers.get(buffer, ()):
        violation = region_cover_violation(tree, block)
        if violation is not None:
            words, marks = violation
            raise Refusal("E0642", f"a cache of `{buffer.name}` would be read where nothing is in it: {words}", marks)
    violation = uncovered_inputs(tree, scope, buffer)
    if violation is not None:
        words, marks = violation
        raise Refusal("E0642", f"the copy would read `{buffer.name}` where nothing is in it: {words}", marks)


def _check_written(
    tree: Tree, writer: tir.Block, region: tir.BufferRegion, spot: InsertionPoint, guard: tir.Expr = tir.TRUE
) -> None:
    """Refuse (E0642) a copy of elements that the writer may not write."""
    written = region_of(writer.writes, region.buffer, writer)
    assert written is not None
    own = exact_region(writer, written, writing=True)
    if not covers_relaxed_region(tree, writer, own, spot.holder, guard) or not _inner_cover(
        tree, writer, region.buffer
    ):
        raise Refusal(
            "E0642", f"block `{writer.name}` may leave out some of {_region_text(region)}, so the copy would contain"
            " garbage", writer,
        )  # fmt: skip


def _inner_cover(tree: Tree, block: tir.Block, buffer: tir.Buffer) -> bool:
    """Return True if the blocks inside write a region without gaps.

    Loops whose extent varies between iterations may leave gaps, and the region of an enclosing block may cover more.
    """
    varying = {a.var for r in tree.realizes for a in r.block.iter_vars} | {loop.var for loop in tree.loops}
    for realize in tree.child_realizes(block):
        written = region_of(realize.block.writes, buffer, realize.block)
        if written is None:
            continue
        ends = [end for loop in tree.loops_above(realize) for end in (loop.min, loop.extent)]
        if used_vars(tuple(ends)) & varying or not _inner_cover(tree, realize.block, buffer):
            return False
    return True


def _check_readers_after(
    tree: Tree, scope: tir.Block, buffer: tir.Buffer, writer: tir.Block, spot: InsertionPoint,
    consumers: dict[tir.Block, None],
) -> None:  # fmt: skip
    """Refuse (E0642) a reader of the cache that runs before it is filled."""
    blocks = scope_info(tree, scope).blocks
    for block in blocks[: blocks.index(writer)]:
        takes = not consumers or block in consumers
        if takes and region_of(block.reads, buffer, block) is not None:
            rest = [b.name for b in blocks[blocks.index(writer) + 1 :] if region_of(b.reads, buffer, b) is not None]
            help = f"name those that come later: `consumer_blocks=[{', '.join(map(repr, rest))}]`" if rest else None
            raise Refusal(
                "E0642", f"`{block.name}` reads `{buffer.name}` before `{writer.name}` writes it, where the cache would"
                " still be empty", (block, writer), help,
            )  # fmt: skip


def _check_one_region(tree: Tree, scope: tir.Block, buffer: tir.Buffer) -> None:
    for realize in tree.child_realizes(scope.body):
        region_of(realize.block.reads, buffer, realize.block)


def _all_before(tree: Tree, scope: tir.Block, blocks: Iterable[tir.Block], other: tir.Block) -> bool:
    """Return True if the blocks are in statements of the scope before the one that holds `other`."""

    def position(block: tir.Block) -> int:
        stmt: tir.Stmt | None = tree.realize(block)
        while stmt is not None and tree.parent(stmt) is not scope:
            stmt = tree.parent(stmt)
        return next((n for n, s in enumerate(scope.body) if s is stmt), len(scope.body))

    return all(position(block) < position(other) for block in blocks)


def check_no_prior_value(tree: Tree, block: tir.Block, buffer: tir.Buffer) -> None:
    """Refuse (E0642) a block that continues from the previous contents of the buffer."""
    if (
        block.init is None
        and region_of(block.reads, buffer, block) is not None
        and not _reads_only_own_writes(tree, block, buffer)
    ):
        raise Refusal(
            "E0642", f"block `{block.name}` reads `{buffer.name}`, which it writes, and the cache would be empty when"
            " it does", block, f'copy it in and out: `sch.cache_inplace("{block.name}", "{buffer.name}", scope)`',
        )  # fmt: skip


def _reads_only_own_writes(tree: Tree, block: tir.Block, buffer: tir.Buffer) -> bool:
    """Return True if a block reads only elements of a buffer that blocks inside it have written before."""
    inner = [r.block for r in tree.child_realizes(block)]
    readers = [b for b in inner if region_of(b.reads, buffer, b) is not None]
    if not readers or any(region_of(b.writes, buffer, b) is not None for b in readers):
        return False
    known = {id(n) for b in inner for n in walk(b)}
    if any(isinstance(n, tir.BufferLoad) and n.buffer is buffer and id(n) not in known for n in walk(block.body)):
        return False
    return all(
        any(region_of(p.writes, buffer, p) is not None for p in producers(tree, b))
        and region_cover_violation(tree, b) is None
        for b in readers
    )


def _check_reads_cache(tree: Tree, writer: tir.Block, buffer: tir.Buffer, consumer: tir.Block) -> None:
    """Refuse (E0642) a consumer that would read what `writer` has not written."""
    scope = tree.scope(writer)
    assert scope is not None
    if tree.scope(consumer) is not scope:
        help = f"consumers can be {_names(dependents(tree, scope, writer))}"
        raise Refusal("E0642", f"`{consumer.name}` is not in the scope of `{writer.name}`", consumer, help)
    if region_of(consumer.reads, buffer, consumer) is None:
        return
    if consumer is not writer and consumer not in dependents(tree, scope, writer):
        raise Refusal(
            "E0642", f"`{consumer.name}` reads `{buffer.name}` before `{writer.name}` writes it", (consumer, writer)
        )
    violation = region_cover_violation(tree, consumer)
    if violation is not None:
        words, marks = violation
        raise Refusal("E0642", f"a cache of `{buffer.name}` would be read where nothing is in it: {words}", marks)


def _names(blocks: Iterable[tir.Block]) -> str:
    return ", ".join(f"`{b.name}`" for b in dict.fromkeys(blocks)) or "none"


def _check_no_pointer_into(region: tir.BufferRegion, blocks: Iterable[tir.Block]) -> None:
    """Refuse (E0643) a use of the buffer's pointer if the cache begins elsewhere, or has other strides."""
    buffer = region.buffer
    whole = all(
        tir.const_int(s.min) == 0 and (s.extent is n or tir.const_int(s.extent) == tir.const_int(n) is not None)
        for s, n in zip(region.region, buffer.shape, strict=True)
    )
    if whole:
        return
    for block in blocks:
        if any(n is buffer.data for n in _expressions(block)):
            raise Refusal(
                "E0643", f"block `{block.name}` uses `{buffer.name}` by its pointer, and the cache would hold only"
                f" {region_text(buffer, [from_range(s) for s in region.region])}", block,
            )  # fmt: skip


def _expressions(block: tir.Block) -> Iterable[object]:
    """Yield all nodes in a block except the parts of buffers."""
    stack: list[object] = [block]
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, tir.Buffer):
            stack.extend(children(node))
