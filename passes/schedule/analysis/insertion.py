"""Insertion points for a block in the body of a loop: after all of its producers, before all of its consumers."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from mlcc.ir import tir
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.tree import Body, Tree

LAST, FIRST = -1, -2


@dataclass(frozen=True, slots=True)
class InsertionRange:
    """The legal positions, `first` to `last`, among the statements of a body for a block to be inserted.

    `below` are the outermost blocks in the body.
    """

    first: int
    last: int
    below: list[tir.Block]


def insertion_range(
    tree: Tree, block: tir.Block, body: Body, producers: Collection[tir.Block], consumers: Collection[tir.Block]
) -> InsertionRange:
    """Return the range of legal insertion points of `block` in `body`.

    Refuses (E0650) a body in which a consumer stands before, or in one statement with, a producer.
    """
    below: list[tir.Block] = []
    first, last = 0, len(body)
    producer = consumer = None
    for at, stmt in enumerate(body):
        inside = [r.block for r in tree.child_realizes(stmt)]
        below += inside
        for other in inside:
            if other in producers:
                first, producer = at + 1, other
            if other in consumers and last == len(body) and consumer is None:
                last, consumer = at, other
    if first > last:
        assert producer is not None and consumer is not None
        raise Refusal(
            "E0650",
            f"block `{block.name}` cannot be placed there: it reads what `{producer.name}` computes, and "
            f"`{consumer.name}`, which reads what it computes, is not after that",
            (block, producer, consumer),
        )
    return InsertionRange(first, last, below)


def insertion_position(allowed: InsertionRange, index: int, loop: tir.For) -> int:
    """Return the position that `index` names. Refuses (E0650) an illegal one."""
    if index == LAST:
        return allowed.last
    if index == FIRST:
        return allowed.first
    if allowed.first <= index <= allowed.last:
        return index
    legal = [str(i) for i in range(allowed.first, allowed.last + 1)]
    raise Refusal(
        "E0650",
        f"index={index} is not a legal position among the statements of loop `{loop.var.name}`",
        loop,
        help=f"legal values: index={' or '.join(legal)}; index=-1 is the last of these, index=-2 the first",
    )
