"""The dependence graph of a scope: which child blocks depend on which earlier ones, and the writers of buffers."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from mlcc.ir import tir
from mlcc.passes.schedule.analysis.block_access import with_regions
from mlcc.passes.schedule.tree import Tree


class DepKind(enum.Enum):
    """The kind of a dependence on an earlier block, over one buffer: flow, output or anti."""

    RAW = "read after write"
    WAW = "write after write"
    WAR = "write after read"


@dataclass(frozen=True, slots=True, eq=False)
class Dep:
    """A dependence of `dst` on the earlier block `src`, over `buffer`."""

    src: tir.Block
    dst: tir.Block
    kind: DepKind
    buffer: tir.Buffer


class ScopeInfo:
    """The outermost blocks below one block, in order, and their dependencies.

    By buffers, not by regions: two blocks that write different halves of a buffer depend on each other.
    """

    def __init__(self, block: tir.Block, realizes: list[tir.BlockRealize]) -> None:
        self.block = block
        self.realizes = realizes
        self.deps: list[Dep] = []
        self.by_src: dict[tir.Block, list[Dep]] = {}
        self.by_dst: dict[tir.Block, list[Dep]] = {}
        self.readers: dict[tir.Buffer, list[tir.Block]] = {}
        self.writers: dict[tir.Buffer, list[tir.Block]] = {}
        for realize in realizes:
            self._add(realize.block)

    @property
    def blocks(self) -> list[tir.Block]:
        return [r.block for r in self.realizes]

    def _add(self, block: tir.Block) -> None:
        declared = with_regions(block)  # with the regions that a plain scope does not declare
        for region in declared.reads:
            self.readers.setdefault(region.buffer, []).append(block)
        for region in declared.writes:
            self.writers.setdefault(region.buffer, []).append(block)
        for regions, others, kind in (
            (declared.reads, self.writers, DepKind.RAW),
            (declared.writes, self.writers, DepKind.WAW),
            (declared.writes, self.readers, DepKind.WAR),
        ):
            for region in regions:
                for other in others.get(region.buffer, ()):
                    if other is not block:
                        self._add_dep(Dep(other, block, kind, region.buffer))

    def _add_dep(self, dep: Dep) -> None:
        self.deps.append(dep)
        self.by_src.setdefault(dep.src, []).append(dep)
        self.by_dst.setdefault(dep.dst, []).append(dep)

    def sources(self, block: tir.Block) -> list[Dep]:
        """Return the dependences of `block` on earlier blocks."""
        return self.by_dst.get(block, [])

    def dependents(self, block: tir.Block) -> list[Dep]:
        """Return the dependences of later blocks on `block`."""
        return self.by_src.get(block, [])


def scope_info(tree: Tree, block: tir.Block) -> ScopeInfo:
    """Return the dependence graph of the children of `block`, memoized."""
    key = ("scope", block)
    info = tree.cache.get(key)
    if info is None:
        info = tree.cache[key] = ScopeInfo(block, tree.child_realizes(block))
    return info


_FLOW = (DepKind.RAW, DepKind.WAW)


def producers(tree: Tree, block: tir.Block) -> list[tir.Block]:
    """Return the earlier blocks of its scope that write a buffer which `block` accesses; none for the root block."""
    scope = tree.scope(block)
    if scope is None:
        return []
    return list(dict.fromkeys(d.src for d in scope_info(tree, scope).sources(block) if d.kind in _FLOW))


def consumers(tree: Tree, block: tir.Block) -> list[tir.Block]:
    """Return the later blocks of its scope that access a buffer which `block` writes; none for the root block."""
    scope = tree.scope(block)
    if scope is None:
        return []
    return list(dict.fromkeys(d.dst for d in scope_info(tree, scope).dependents(block) if d.kind in _FLOW))


def finished_before(tree: Tree, stmt: tir.Stmt, blocks: Iterable[tir.Block]) -> set[tir.Block]:
    """Return those of `blocks` that stand before the first block in `stmt`, in the order of the text."""
    places = {id(r.block): at for at, r in enumerate(tree.realizes)}
    start = min((places[id(r.block)] for r in tree.child_realizes(stmt)), default=0)
    return {block for block in blocks if places[id(block)] < start}


def is_output(tree: Tree, block: tir.Block, scope: tir.Block) -> bool:
    """Return True if `block` writes a buffer that `scope` does not allocate."""
    return escaping_write(block, scope) is not None


def escaping_write(block: tir.Block, scope: tir.Block) -> tir.Buffer | None:
    """Return the first buffer that `block` writes and `scope` does not allocate."""
    return next((w.buffer for w in block.writes if w.buffer not in scope.alloc_buffers), None)


def output_blocks(tree: Tree, scope: tir.Block) -> list[tir.Block]:
    """Return all blocks below `scope`, nested ones too, that write a buffer not allocated by the enclosing block."""
    outputs = []
    stack = list(reversed(tree.child_realizes(scope)))
    while stack:
        block = stack.pop().block
        around = tree.scope(block)
        if around is not None and is_output(tree, block, around):
            outputs.append(block)
        stack.extend(reversed(tree.child_realizes(block)))
    return outputs
