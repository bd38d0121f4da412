"""What there is to schedule in a program: its blocks with their loops, axes and buffers, in the order of the text."""

from __future__ import annotations

from dataclasses import dataclass, field

from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.ir.tir import IterKind


@dataclass(eq=False)
class LoopView:
    extent: int | None
    kind: tir.ForKind
    var: str
    dtype: str
    depth: int


@dataclass(eq=False)
class BlockView:
    """A block, with the loops above it in its scope."""

    name: str
    loops: list[LoopView]
    kinds: str  # one letter an axis
    extents: list[int | None]
    reads: list[tir.Buffer]
    writes: list[tir.Buffer]
    reduction: bool  # it has an init
    unique: bool = True  # no other block has its name
    inner: bool = False  # inside another block that is not the root


@dataclass
class View:
    """The blocks of function `main`. `root` is there even where the text does not say it."""

    blocks: list[BlockView] = field(default_factory=list)
    params: list[tir.Buffer] = field(default_factory=list)
    loops: list[LoopView] = field(default_factory=list)

    def named(self) -> list[BlockView]:
        """The blocks that a name finds."""
        return [b for b in self.blocks if b.unique]


_LETTERS = {IterKind.SPATIAL: "S", IterKind.REDUCE: "R"}


def view(module: IRModule, function: str = "main") -> View:
    func = module[function]
    assert isinstance(func, tir.PrimFunc)
    found = View(params=[b for b in func.buffers if b is not None])
    seen: dict[tir.Var, LoopView] = {}

    def visit(stmt: tir.Stmt, loops: list[LoopView], depth: int) -> None:
        if isinstance(stmt, tir.For):
            loop = LoopView(tir.const_int(stmt.extent), stmt.kind, stmt.var.name, str(stmt.var.dtype), len(loops))
            seen[stmt.var] = loop
            found.loops.append(loop)
            inside = [*loops, loop]
            for s in stmt.body:
                visit(s, inside, depth)
        elif isinstance(stmt, tir.BlockRealize):
            block = stmt.block
            if depth:
                kinds = "".join(_LETTERS.get(a.kind, "O") for a in block.iter_vars)
                extents = [tir.const_int(a.dom.extent) for a in block.iter_vars]
                reads, writes = [r.buffer for r in block.reads], [w.buffer for w in block.writes]
                made = BlockView(block.name, loops, kinds, extents, reads, writes, block.init is not None)
                made.inner = depth > 1
                found.blocks.append(made)
            for s in block.body:
                visit(s, [], depth + 1)
        elif isinstance(stmt, tir.IfThenElse):
            for s in (*stmt.then_body, *(stmt.else_body or ())):
                visit(s, loops, depth)
        elif isinstance(stmt, (tir.AttrStmt, tir.While)):
            for s in stmt.body:
                visit(s, loops, depth)

    for stmt in func.body:
        visit(stmt, [], 0)
    for block in found.blocks:
        block.unique = sum(b.name == block.name for b in found.blocks) == 1 and block.name != "root"
    return found
