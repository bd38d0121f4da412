"""Lower bulk copies to loads and stores that run at once; the bytes complete at the barrier.

A kernel gets a tensor map as plain numbers (`mlcc.runtime.launch.tensor_map.plain`); what is fixed of it is known here.
The elements are moved as unsigned integers, bit by bit. With checks what a load writes to shared memory is the copy
engine's doing, which threads may use when they have waited at the barrier.
"""

from __future__ import annotations

from collections.abc import Mapping

from mlcc.errors import CompileError, error
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT64, DType
from mlcc.ir.tir import Expr, ForKind, Stmt
from mlcc.passes.gpu.tensor_map import MapForm
from mlcc.runtime.launch.tensor_map import MOST_DIMS
from mlcc.targets.emulate.barriers import LANDED, act
from mlcc.targets.emulate.checks import COPIED
from mlcc.targets.emulate.collectives import name_of

Maps = Mapping[tir.Var, MapForm]
_FACTS = 2 * MOST_DIMS  # int64 numbers: the address, extents, strides


def bulk_copy(node: tir.Call, maps: Maps, thread: Expr) -> list[Stmt] | None:
    """Return the statements of a bulk copy; None for other calls."""
    match name_of(node):
        case "tir.ptx_cp_async_bulk":
            return _row(node, thread)
        case "tir.ptx_cp_async_bulk_tensor":
            return _load(node, maps, thread)
        case "tir.ptx_cp_async_bulk_tensor_store":
            return _box(node, maps, 3).statements(store=True)
    return None


def _row(node: tir.Call, thread: Expr) -> list[Stmt]:
    """ptx_cp_async_bulk(shared pointer, offset, global pointer, offset, bytes, barrier)."""
    size = node.dtype.element.bytes
    to, given = (_view(name, node.args[at], node.dtype) for name, at in (("to", 0), ("given", 2)))
    i = tir.Var("i", INT64)
    places = (c.add(c.cast(INT64, node.args[at]), i) for at in (1, 3))
    move = _moved(node, to.buffer, next(places), c.load(given.buffer, next(places)))
    count = c.floordiv(c.cast(INT64, node.args[4]), size)
    loop = tir.For(i, c.const(0, INT64), count, ForKind.SERIAL, (move,))
    landed = act(LANDED, node.args[5], node.args[4], thread, span=node.span)
    return [to, given, _engine(node.args[5], (loop,)), landed]


def _load(node: tir.Call, maps: Maps, thread: Expr) -> list[Stmt]:
    """ptx_cp_async_bulk_tensor(shared pointer, offset, map, barrier, pointer of the tensor, coordinates...)."""
    box, barrier = _box(node, maps, 4), node.args[3]
    landed = act(LANDED, barrier, c.const(box.map.box_bytes, INT64), thread, span=node.span)
    return [_engine(barrier, tuple(box.statements(store=False))), landed]


def _engine(barrier: Expr, body: tuple[Stmt, ...]) -> Stmt:
    return tir.AttrStmt(c.const(0), COPIED, act(LANDED, barrier, c.const(0), c.const(0)).value, body)  # type: ignore[attr-defined]


class _Box:
    """A box of a tensor, whose coordinates follow the pointer at argument `at`."""

    def __init__(self, node: tir.Call, of: MapForm, at: int) -> None:
        self.node = node
        self.map = of
        rank = len(of.box)
        self.bits = DType.of(f"uint{8 * of.dtype.bytes}")
        self.facts = tir.DeclBuffer(c.make_buffer("map", (_FACTS,), INT64, "local"), node.args[2])
        self.tensor = _view("tensor", node.args[at], of.dtype)
        self.shared = _view("box", node.args[0], of.dtype)
        self.corner = [c.cast(INT64, a) for a in node.args[at + 1 :]]
        if len(self.corner) != rank:
            text = f"`T.{name_of(node)[4:]}` has {len(self.corner)} coordinates, and its tensor {rank} dimensions"
            raise CompileError(error("E0777", text, node.span))

    def statements(self, store: bool) -> list[Stmt]:
        of, size = self.map, self.map.dtype.bytes
        loops = [tir.Var(f"i{d}", INT64) for d in range(len(of.box))]
        inside: Expr = tir.TRUE
        place = number = c.const(0, INT64)
        factor = 1
        for d, (var, corner) in enumerate(zip(loops, self.corner, strict=True)):
            at = c.add(corner, c.mul(var, of.steps[d]))
            extent = c.load(self.facts.buffer, 1 + d)
            inside = c.logical_and(inside, c.logical_and(c.greater_equal(at, 0), c.less(at, extent)))
            stride: Expr = c.const(1, INT64)
            if d:
                stride = c.floordiv(c.load(self.facts.buffer, MOST_DIMS + d), size)
            place = c.add(place, c.mul(at, stride))
            number = c.add(number, c.mul(var, factor))
            factor *= of.counts[d]
        here = self._swizzled(c.add(c.cast(INT64, self.node.args[1]), number))
        if store:
            move: Stmt = _moved(self.node, self.tensor.buffer, place, c.load(self.shared.buffer, here))
            move = tir.IfThenElse(inside, (move,))
        else:
            given = tir.BufferLoad(self.bits, self.tensor.buffer, (place,), span=self.node.span)
            choice = tir.Call(self.bits, tir.Op("tir.if_then_else"), (inside, given, c.const(0, self.bits)))
            move = _moved(self.node, self.shared.buffer, here, choice)
        for var, count in zip(loops, of.counts, strict=True):
            move = tir.For(var, c.const(0, INT64), c.const(count, INT64), ForKind.SERIAL, (move,))
        return [self.facts, self.tensor, self.shared, move]

    def _swizzled(self, index: Expr) -> Expr:
        """Return the swizzled index of an element in shared memory aligned to 1024 bytes: pieces of 16 bytes are
        permuted by the number of the row of 128 bytes (PTX ISA, "Swizzling modes")."""
        if not self.map.swizzle:
            return index
        byte = c.mul(index, self.map.dtype.bytes)
        row = _bits("bitwise_and", c.floordiv(byte, 128), self.map.swizzle // 16 - 1)
        moved = tir.Call(INT64, tir.Op("tir.bitwise_xor"), (byte, c.mul(row, 16)))
        return c.floordiv(moved, self.map.dtype.bytes)


def _box(node: tir.Call, maps: Maps, at: int) -> _Box:
    form = maps.get(node.args[2]) if isinstance(node.args[2], tir.Var) else None
    if form is None:
        raise CompileError(error("E0777", f"`T.{name_of(node)[4:]}` takes a tensor map", node.span))
    return _Box(node, form, at)


def _moved(node: tir.Call, to: tir.Buffer, index: Expr, value: Expr) -> Stmt:
    if isinstance(value, tir.BufferLoad):
        value = tir.BufferLoad(value.dtype, value.buffer, value.indices, span=node.span)
    return tir.BufferStore(to, value, (index,), span=node.span)


def _bits(name: str, value: Expr, mask: int) -> Expr:
    return tir.Call(INT64, tir.Op(f"tir.{name}"), (value, c.const(mask, INT64)))


def _view(name: str, pointer: Expr, dtype: DType) -> tir.DeclBuffer:
    bits = DType.of(f"uint{8 * dtype.element.bytes}")
    return tir.DeclBuffer(c.make_buffer(name, (1 << 40,), bits, "local"), pointer)
