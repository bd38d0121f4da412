"""Completion of a function as written: the root block, and the regions of blocks that do not state theirs."""

from __future__ import annotations

from mlcc.arith.regions import BlockAccess
from mlcc.errors import CompileError, Diagnostic, error
from mlcc.ir import tir
from mlcc.ir.node import replace
from mlcc.ir.visit import has_block

Body = tuple[tir.Stmt, ...]


def complete(func: tir.PrimFunc, root_allocs: tuple[tir.Buffer, ...] = ()) -> tir.PrimFunc:
    """Return `func` with a root block if it needs one, and with every block's reads and writes.

    A root block is put around the body if there are `root_allocs`, or if the body has blocks and is not just one block
    without axes, which then is the root itself. The root has empty regions. Raises CompileError if regions cannot be
    inferred.
    """
    body = func.body
    only = body[0] if len(body) == 1 and isinstance(body[0], tir.BlockRealize) else None
    if root_allocs or (only.block.iter_vars if only is not None else has_block(body)):
        root = tir.Block("root", (), (), (), body, alloc_buffers=root_allocs)
        body = (tir.BlockRealize((), tir.TRUE, root),)
    completer = _Completer({b.data: b for b in (*func.buffers, *root_allocs) if b is not None})
    body = completer.body(body)
    if completer.problems:
        raise CompileError(completer.problems)
    return replace(func, body=body)


class _Completer:
    """Walks down with the buffers in scope, by their data variable, and fills in regions on the way up."""

    def __init__(self, buffers: dict[tir.Var, tir.Buffer]) -> None:
        self.problems: list[Diagnostic] = []
        self._buffers = buffers
        self._outermost = True

    def body(self, body: Body) -> Body:
        statements = tuple(self._stmt(s) for s in body)
        return body if all(a is b for a, b in zip(body, statements, strict=True)) else statements

    def _stmt(self, stmt: tir.Stmt) -> tir.Stmt:
        match stmt:
            case tir.BlockRealize():
                return replace(stmt, block=self._block(stmt.block))
            case tir.IfThenElse(then_body=then, else_body=other):
                else_body = None if other is None else self.body(other)
                return replace(stmt, then_body=self.body(then), else_body=else_body)
            case tir.For() | tir.While() | tir.AttrStmt():
                return replace(stmt, body=self.body(stmt.body))
        return stmt

    def _block(self, block: tir.Block) -> tir.Block:
        own = [*block.alloc_buffers, *(m.buffer for m in block.match_buffers)]
        self._buffers.update((b.data, b) for b in own)
        outermost, self._outermost = self._outermost, False
        init = None if block.init is None else self.body(block.init)
        block = replace(block, init=init, body=self.body(block.body))
        self._outermost = outermost
        for buffer in own:
            self._buffers.pop(buffer.data, None)
        if block.reads is not None and block.writes is not None:
            return block
        access = BlockAccess(self._buffers).collect(block)
        if access.opaque.regions:
            self._refuse(block, access)
        if outermost:
            reads = writes = ()
        else:
            reads, writes = access.read_regions(block), access.writes.as_regions()
        return replace(
            block,
            reads=reads if block.reads is None else block.reads,
            writes=writes if block.writes is None else block.writes,
        )

    def _refuse(self, block: tir.Block, access: BlockAccess) -> None:
        names = ", ".join(f"`{b.name}`" for b in access.opaque.regions)
        at = access.opaque_at
        self.problems.append(
            error(
                "E0330",
                f"the regions of block `{block.name}` cannot be inferred: it uses {names} by pointer",
                (at.span if at is not None else None) or block.span,
                help="write `T.reads(...)` and `T.writes(...)` in the block",
            )
        )
