"""Completion of the regions of enclosing blocks after a step.

A primitive declares the accesses of the blocks that it creates or rewrites. An enclosing block (of `blockize` or
`tensorize`, or one of the program) may then access another buffer inside; its regions are completed here, after
every step.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mlcc.arith.regions import BlockAccess
from mlcc.ir import tir
from mlcc.ir.node import children, replace, walk
from mlcc.passes.schedule.tree import Body, Stmt, Tree


def complete_regions(func: tir.PrimFunc, before: Tree) -> tuple[tir.PrimFunc, dict[tir.Block, tir.Block]]:
    """Return `func` with each block declaring all buffers accessed inside it, and the map from old blocks to new.

    Statements that existed `before` the step are complete as they are. A buffer that the author of a block left out
    there may stay left out in blocks of its name.
    """
    completion = _Completion(func.root, before)
    body = completion.body(func.body)
    return (replace(func, body=body), completion.new_blocks) if completion.new_blocks else (func, {})


class _Completion:
    """Complete the regions of blocks, inner ones first. The root block and the parts of a partitioned loop declare
    none.
    """

    def __init__(self, root: tir.Block | None, before: Tree) -> None:
        self._root, self._before = root, before
        self.new_blocks: dict[tir.Block, tir.Block] = {}

    def body(self, body: Body) -> Body:
        """The statements of a body; the tuple itself where none changes."""
        stmts = tuple(stmt if stmt in self._before else self._stmt(stmt) for stmt in body)
        return stmts if any(new is not old for new, old in zip(stmts, body, strict=True)) else body

    def _stmt(self, stmt: Stmt) -> Stmt:
        match stmt:
            case tir.BlockRealize(block=block):
                return stmt if self._before.has_block(block) else replace(stmt, block=self._block(block))
            case tir.IfThenElse(then_body=then, else_body=other):
                otherwise = None if other is None else self.body(other)
                return replace(stmt, then_body=self.body(then), else_body=otherwise)
            case tir.For() | tir.While() | tir.AttrStmt():
                return replace(stmt, body=self.body(stmt.body))
        return stmt

    def _block(self, block: tir.Block) -> tir.Block:
        init = None if block.init is None else self.body(block.init)
        new_block = replace(block, init=init, body=self.body(block.body))
        if block is not self._root and (
            block.iter_vars or block.reads or block.writes
        ):  # a plain scope declares nothing
            new_block = self._completed(new_block)
        if new_block is not block:
            self.new_blocks[block] = new_block
        return new_block

    def _completed(self, block: tir.Block) -> tir.Block:
        missing = _undeclared(block)
        if any(missing):
            left_out = self._left_out(block.name)
            missing = missing[0] - left_out, missing[1] - left_out
        if not any(missing):
            return block
        more = {b for buffers in missing for b in buffers}
        access = BlockAccess({b.data: b for b in more}).collect(replace(block, reads=(), writes=()))
        writes = tuple(r for r in access.writes.as_regions() if r.buffer in missing[0])
        reads = tuple(r for r in access.read_regions(block) if r.buffer in missing[1])
        return replace(block, reads=(*block.reads, *reads), writes=(*block.writes, *writes))

    def _left_out(self, name: str) -> set[tir.Buffer]:
        """Return the buffers that blocks of this name left undeclared before the step."""
        blocks = (n for s in self._before.func.body for n in walk(s) if isinstance(n, tir.Block) and n.name == name)
        return {buffer for block in blocks for buffers in _undeclared(block) for buffer in buffers}


def _undeclared(block: tir.Block) -> tuple[set[tir.Buffer], set[tir.Buffer]]:
    """Return the buffers that a block writes, and those that it reads, without declaring it."""
    read, written = _accessed_buffers(block)
    stated = {r.buffer.data for r in block.writes}
    return _not_declared(written, stated, block), _not_declared(
        read, stated | {r.buffer.data for r in block.reads}, block
    )


def _not_declared(touched: Iterable[tir.Buffer], stated: set[tir.Var], block: tir.Block) -> set[tir.Buffer]:
    own = {b.data for b in block.alloc_buffers} | {m.buffer.data for m in block.match_buffers}
    return {b for b in touched if b.data not in stated and b.data not in own}


def _accessed_buffers(block: tir.Block) -> tuple[set[tir.Buffer], set[tir.Buffer]]:
    """Return the outer buffers that a block reads and writes, in itself or in nested blocks."""
    read: set[tir.Buffer] = set()
    written: set[tir.Buffer] = set()
    allocated: set[tir.Var] = set()
    stack: list[Any] = [*(block.init or ()), *block.body, *(axis.dom for axis in block.iter_vars)]
    while stack:
        node = stack.pop()
        match node:
            case tir.Block(reads=reads, writes=writes):
                read |= {r.buffer for r in reads}
                written |= {r.buffer for r in writes}
                continue
            case tir.Buffer():
                continue
            case tir.BufferLoad(buffer=buffer):
                read.add(buffer)
            case tir.BufferStore(buffer=buffer):
                written.add(buffer)
            case tir.AllocBuffer(buffer=buffer) | tir.DeclBuffer(buffer=buffer):
                allocated.add(buffer.data)
        stack += children(node)
    return {b for b in read if b.data not in allocated}, {b for b in written if b.data not in allocated}
