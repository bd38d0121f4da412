"""Assign the bulk copies (`bulk_tiles`) in asynchronous pipeline stages to slots.

Each iteration has its tile in its own slot, and threads wait for it before its first use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT32
from mlcc.ir.node import find, replace
from mlcc.ir.tir import Expr, Stmt
from mlcc.passes.gpu.bulk_tiles import KEY, SLOT, SLOTS, TILE, WAIT, bulk_wait, is_call
from mlcc.passes.lowering.mutator import Body, TirMutator


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile that part `writer` copies into memory `data`; part `user` is the first one that uses it."""

    key: int
    data: tir.Var
    writer: int
    user: int


def find_tiles(
    parts: Sequence[Body], asynchronous: Sequence[int], private: Set[tir.Var],
    users: Callable[[tir.Var, int], Sequence[int]],
) -> list[Tile]:  # fmt: skip
    """Return the tiles of asynchronous parts in memory that is private to an iteration.

    `users` returns the parts that use memory, except for its writer, in order. All other tiles, and unused ones, are
    waited for at the copy."""
    tiles: list[Tile] = []
    for part in asynchronous:
        for call in (n for s in parts[part] for n in find(s, tir.Call) if n.op == tir.Op(TILE)):
            data, key = call.args[0], tir.const_int(call.args[KEY])
            if not isinstance(data, tir.Var) or data not in private or key is None:
                continue
            tiles += [Tile(key, data, part, user) for user in users(data, part)[:1]]
    return tiles


def copies_only_tiles(part: Body) -> bool:
    """Return True if no store of a part writes shared memory, so that the copy engine makes all its copies."""
    stores = (n for s in part for n in find(s, tir.BufferStore))
    return not any(n.buffer.scope.startswith("shared") for n in stores)


class SlotAssigner(TirMutator):
    """Rewrite a part: give its tiles (by key) their slots, and drop their waits, which move to the first use."""

    def __init__(self, slots: Mapping[int, tuple[Expr, int]]) -> None:
        self._slots = slots

    def expr(self, node: Expr) -> Expr:
        return node

    def stmt_evaluate(self, node: tir.Evaluate) -> Stmt | list[Stmt]:
        call = node.value
        if is_call(node, WAIT) and isinstance(call, tir.Call) and tir.const_int(call.args[0]) in self._slots:
            return []
        if not is_call(node, TILE) or not isinstance(call, tir.Call):
            return node
        slot = self._slots.get(tir.const_int(call.args[KEY]) or 0)
        if slot is None:
            return node
        args = list(call.args)
        args[SLOT], args[SLOTS] = slot[0], c.const(slot[1], INT32)
        return tir.Evaluate(replace(call, args=tuple(args)), span=node.span)


def tile_waits(tiles: Sequence[Tile], slots: Mapping[int, tuple[Expr, int]]) -> list[Stmt]:
    """Return the waits for the tiles of one iteration."""
    return [bulk_wait(c.const(t.key, INT32), slots[t.key][0]) for t in tiles]
