"""cache_read and cache_write against TVM's: every buffer of every block of many programs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("tvm")

from mlcc.ir.module import IRModule  # noqa: E402
from mlcc.passes.schedule.tree import Tree  # noqa: E402
from tests.interop.schedule.agree import Step, assert_agree, blocks, mine, read  # noqa: E402
from tests.interop.schedule.cache_programs import PROGRAMS  # noqa: E402

# TVM makes programs that read a cache before anything is in it
REFUSED = {
    ("blockized reduction", "cache_write", "C"), ("in place", "cache_write", "D"),
    ("reads its reader", "cache_read", "E"), ("reads its reader", "cache_read", "F"),
}  # fmt: skip
# and copies under loops where the block does not run
UNGUARDED = {
    ("nested predicates", "cache_write", "D"),
    ("nested predicates, outer variables only", "cache_write", "D"),
}  # fmt: skip


def steps(module: IRModule) -> Iterator[Step]:
    for block in blocks(module):
        for name, regions in (("cache_read", block.reads), ("cache_write", block.writes)):
            for n in range(len(regions)):
                yield name, (block.name, n, "shared" if n == 0 else "local"), {}
            yield name, (block.name, len(regions), "local"), {}
            yield name, (block.name, 0, "nowhere"), {}


@pytest.mark.parametrize("label", PROGRAMS)
def test_caches_of_every_buffer_agree(label: str) -> None:
    module, mirrored = read(PROGRAMS[label])
    for step in steps(mirrored):
        if (label, step[0], step[1][0]) in REFUSED:
            assert mine(mirrored, step) is None
        elif (label, step[0], step[1][0]) not in UNGUARDED:
            assert_agree(module, mirrored, step)


@pytest.mark.parametrize("label", PROGRAMS)
def test_caches_for_some_consumers_agree(label: str) -> None:
    """TVM ends the process on consumers that cannot be; they are refused here (tests/schedule)."""
    module, mirrored = read(PROGRAMS[label])
    tree = Tree(mirrored["main"])  # type: ignore[arg-type]
    for block in blocks(mirrored):
        for name, regions in (("cache_read", block.reads), ("cache_write", block.writes)):
            for n in range(len(regions)):
                for other in blocks(mirrored):
                    if tree.scope(tree.realize(other)) is not tree.root:
                        continue  # the block around it says that it reads the cache; TVM's does not
                    if other is tree.root or (name == "cache_write" and other is block):
                        continue
                    step: Step = (name, (block.name, n, "global"), {"consumer_blocks": [other.name]})
                    if mine(mirrored, step) is not None:
                        assert_agree(module, mirrored, step)
