"""Layout rewriting: store weights in the order in which the kernel reads them."""

from __future__ import annotations

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import tir
from mlcc.ir.node import find, walk
from mlcc.ir.visit import substitute
from mlcc.passes.schedule.analysis.bindings import bindings
from mlcc.passes.schedule.handles import BlockRV
from mlcc.passes.schedule.schedule import Schedule
from mlcc.passes.schedule.tree import Tree
from mlcc.tune.postproc.postproc import Postproc
from mlcc.tune.postproc.suggest_index_map import suggest_index_map
from mlcc.tune.schedulable import functions_with_blocks
from mlcc.tune.schedule_rule.analysis import python_value

_ReadLayout = tuple[tir.Block, int, tir.IndexMap]  # a block, the index of its read, and the suggested layout


class RewriteLayout(Postproc):
    """Converts layout-free buffers (`layout_free_buffers`, `layout_free_placeholders`) to their reader's layout, by a
    copy block with the annotation `meta_schedule.layout_rewrite_preproc`. TVM: `RewriteLayout`."""

    def apply(self, sch: Schedule) -> bool:
        for name in functions_with_blocks(sch):
            for buffer in _free_buffers(sch.state.func(name)):
                _rewrite(sch, name, buffer)
        return True


def _free_buffers(func: tir.PrimFunc) -> list[tir.Buffer]:
    places = python_value(func.attrs.get("layout_free_buffers")) or []
    assert isinstance(places, list)
    buffers = [func.buffers[at] for at in places]
    for block in find(func.body, tir.Block):
        buffers += block.annotations.get("layout_free_placeholders", ())
    return list(dict.fromkeys(buffer for buffer in buffers if buffer is not None))


def _rewrite(sch: Schedule, name: str, buffer: tir.Buffer) -> None:
    chain = _copies(sch.state.func(name), buffer)
    if not chain:
        reading = _suggested_read_layout(sch.state.tree(name), buffer)
        if reading is not None:
            block, index, layout = reading
            reader = sch.get_block(block.name, name)
            _add_copy(sch, reader, index)
            sch.transform_layout(reader, ("read", index), layout, None)
        return
    last = sch.get(sch.get_block(chain[-1], name))
    reading = _suggested_read_layout(sch.state.tree(name), last.writes[0].buffer)
    if reading is None:
        return
    block, index, layout = reading
    sch.transform_layout(sch.get_block(block.name, name), ("read", index), layout, None)
    for at in reversed(range(len(chain))):
        copied = sch.get_block(chain[at], name)
        if at == 0:
            _add_copy(sch, copied, 0)
        sch.transform_layout(copied, ("read", 0), layout, None)


def _add_copy(sch: Schedule, reader: BlockRV, index: int) -> None:
    copied = sch.cache_read(reader, index, "global")
    sch.annotate(copied, "meta_schedule.layout_rewrite_preproc", True)


def _copies(func: tir.PrimFunc, buffer: tir.Buffer) -> list[str]:
    """Return the names of a chain of copy blocks: the first copies the buffer, the others the predecessor's result."""
    copies: list[str] = []
    for block in find(func.body, tir.Block):
        if block.init is None and len(block.reads) == len(block.writes) == 1 and block.reads[0].buffer is buffer:
            copies.append(block.name)
            buffer = block.writes[0].buffer
    return copies


def _suggested_read_layout(tree: Tree, buffer: tir.Buffer) -> _ReadLayout | None:
    """Return the last block that loads the buffer, with the layout that its loops suggest; None if there is none."""
    reading: _ReadLayout | None = None
    analyzer = Analyzer()
    for realize in tree.realizes:
        block = realize.block
        values = bindings(realize)
        for load in _own_loads(block, buffer):
            indices = [substitute(index, values) for index in load.indices]
            layout = suggest_index_map(buffer, indices, tree.all_loops_above(block), realize.predicate, analyzer)
            index = next((at for at, read in enumerate(block.reads) if read.buffer is buffer), None)
            reading = None if layout is None or index is None else (block, index, layout)
    return reading


def _own_loads(block: tir.Block, buffer: tir.Buffer) -> list[tir.BufferLoad]:
    """Return the loads of a buffer in a block, without those in nested blocks."""
    if any(True for _ in find(block.body, tir.BlockRealize)):
        return []
    return [n for n in walk(block.body) if isinstance(n, tir.BufferLoad) and n.buffer is buffer]
