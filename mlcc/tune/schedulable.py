"""The functions and blocks that a schedule may work on."""

from __future__ import annotations

from mlcc.ir import tir
from mlcc.passes.schedule.schedule import Schedule
from mlcc.passes.schedule.tree import child_realizes


def functions_with_blocks(sch: Schedule) -> list[str]:
    """The names of the TensorIR functions that have blocks."""
    items = sch.state.module.functions.items()
    return [name for name, func in items if isinstance(func, tir.PrimFunc) and func.root is not None]


def post_order(body: tuple[tir.Stmt, ...]) -> list[tir.Block]:
    """All blocks of a body in post-order: inner blocks before enclosing ones."""
    blocks = []
    for realize in child_realizes(body):
        blocks += [*post_order(realize.block.init or ()), *post_order(realize.block.body), realize.block]
    return blocks


def root_block(sch: Schedule, name: str) -> tir.Block:
    """The root block of a function that has blocks."""
    root = sch.state.func(name).root
    assert root is not None
    return root
