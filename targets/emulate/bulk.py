"""Lower bulk copies to loads and stores that run immediately; their bytes complete at the barrier.

A kernel receives the run-time part of a tensor map as numbers (`encode_as_numbers` of `mlcc.runtime.launch`); the rest
is static. Elements are moved as unsigned integers. Checks attribute the stores of a load to the copy engine: threads
must wait at the barrier before they use the data.
"""

from __future__ import annotations

from collections.abc import Mapping

from mlcc.errors import CompileError, error
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT64, DType
from mlcc.ir.tir import Expr, ForKind, Stmt
from mlcc.passes.gpu.tensor_map import MapForm
from mlcc.runtime.launch.tensor_map import MAX_DIMS
from mlcc.targets.emulate.barriers import COMPLETE_TX, barrier_operation
from mlcc.targets.emulate.checks import COPIED
from mlcc.targets.emulate.collectives import name_of

Maps = Mapping[tir.Var, MapForm]
_MAP_WORDS = 2 * MAX_DIMS  # int64 numbers: the address, extents, strides


def bulk_copy(node: tir.Call, maps: Maps, thread: Expr) -> list[Stmt] | None:
    """Return the statements of a bulk copy; None for other calls."""
    match name_of(node):
        case "tir.ptx_cp_async_bulk":
            return _linear_copy(node, thread)
        case "tir.ptx_cp_async_bulk_tensor":
            return _tensor_load(node, maps, thread)
        case "tir.ptx_cp_async_bulk_tensor_store":
            return _box(node, maps, 3).statements(store=True)
    return None


def _linear_copy(node: tir.Call, thread: Expr) -> list[Stmt]:
    """ptx_cp_async_bulk(shared pointer, offset, global pointer, offset, bytes, barrier)."""
    size = node.dtype.element.bytes
    target, source = (_view(name, node.args[at], node.dtype) for name, at in (("to", 0), ("given", 2)))
    i = tir.Var("i", INT64)
    indices = (c.add(c.cast(INT64, node.args[at]), i) for at in (1, 3))
    move = _store_element(node, target.buffer, next(indices), c.load(source.buffer, next(indices)))
    count = c.floordiv(c.cast(INT64, node.args[4]), size)
    loop = tir.For(i, c.const(0, INT64), count, ForKind.SERIAL, (move,))
    completion = barrier_operation(COMPLETE_TX, node.args[5], node.args[4], thread, span=node.span)
    return [target, source, _by_copy_engine(node.args[5], (loop,)), completion]


def _tensor_load(node: tir.Call, maps: Maps, thread: Expr) -> list[Stmt]:
    """ptx_cp_async_bulk_tensor(shared pointer, offset, map, barrier, pointer of the tensor, coordinates...)."""
    box, barrier = _box(node, maps, 4), node.args[3]
    completion = barrier_operation(COMPLETE_TX, barrier, c.const(box.map.box_bytes, INT64), thread, span=node.span)
    return [_by_copy_engine(barrier, tuple(box.statements(store=False))), completion]


def _by_copy_engine(barrier: Expr, body: tuple[Stmt, ...]) -> Stmt:
    return tir.AttrStmt(c.const(0), COPIED, barrier_operation(COMPLETE_TX, barrier, c.const(0), c.const(0)).value, body)  # type: ignore[attr-defined]


class _Box:
    """A box of a tensor; its coordinates follow the tensor's pointer, which is argument `tensor_arg`."""

    def __init__(self, node: tir.Call, form: MapForm, tensor_arg: int) -> None:
        self.node = node
        self.map = form
        rank = len(form.box)
        self.bits = DType.of(f"uint{8 * form.dtype.bytes}")
        self.map_words = tir.DeclBuffer(c.make_buffer("map", (_MAP_WORDS,), INT64, "local"), node.args[2])
        self.tensor = _view("tensor", node.args[tensor_arg], form.dtype)
        self.shared = _view("box", node.args[0], form.dtype)
        self.corner = [c.cast(INT64, a) for a in node.args[tensor_arg + 1 :]]
        if len(self.corner) != rank:
            text = f"`T.{name_of(node)[4:]}` has {len(self.corner)} coordinates, but its tensor has {rank} dimensions"
            raise CompileError(error("E0777", text, node.span))

    def statements(self, store: bool) -> list[Stmt]:
        form, size = self.map, self.map.dtype.bytes
        loops = [tir.Var(f"i{d}", INT64) for d in range(len(form.box))]
        inside: Expr = tir.TRUE
        tensor_index = box_index = c.const(0, INT64)
        factor = 1
        for d, (var, corner) in enumerate(zip(loops, self.corner, strict=True)):
            coordinate = c.add(corner, c.mul(var, form.steps[d]))
            extent = c.load(self.map_words.buffer, 1 + d)
            inside = c.logical_and(inside, c.logical_and(c.greater_equal(coordinate, 0), c.less(coordinate, extent)))
            stride: Expr = c.const(1, INT64)
            if d:
                stride = c.floordiv(c.load(self.map_words.buffer, MAX_DIMS + d), size)
            tensor_index = c.add(tensor_index, c.mul(coordinate, stride))
            box_index = c.add(box_index, c.mul(var, factor))
            factor *= form.counts[d]
        shared_index = self._swizzled(c.add(c.cast(INT64, self.node.args[1]), box_index))
        if store:
            move: Stmt = _store_element(
                self.node, self.tensor.buffer, tensor_index, c.load(self.shared.buffer, shared_index)
            )
            move = tir.IfThenElse(inside, (move,))
        else:
            loaded = tir.BufferLoad(self.bits, self.tensor.buffer, (tensor_index,), span=self.node.span)
            padded = tir.Call(self.bits, tir.Op("tir.if_then_else"), (inside, loaded, c.const(0, self.bits)))
            move = _store_element(self.node, self.shared.buffer, shared_index, padded)
        for var, count in zip(loops, form.counts, strict=True):
            move = tir.For(var, c.const(0, INT64), c.const(count, INT64), ForKind.SERIAL, (move,))
        return [self.map_words, self.tensor, self.shared, move]

    def _swizzled(self, index: Expr) -> Expr:
        """Return the swizzled index of an element in shared memory aligned to 1024 bytes.

        Chunks of 16 bytes are permuted by the number of their 128-byte row (PTX ISA, "Swizzling modes").
        """
        if not self.map.swizzle:
            return index
        byte = c.mul(index, self.map.dtype.bytes)
        row = _bits("bitwise_and", c.floordiv(byte, 128), self.map.swizzle // 16 - 1)
        swizzled = tir.Call(INT64, tir.Op("tir.bitwise_xor"), (byte, c.mul(row, 16)))
        return c.floordiv(swizzled, self.map.dtype.bytes)


def _box(node: tir.Call, maps: Maps, tensor_arg: int) -> _Box:
    form = maps.get(node.args[2]) if isinstance(node.args[2], tir.Var) else None
    if form is None:
        raise CompileError(error("E0777", f"`T.{name_of(node)[4:]}` takes a tensor map", node.span))
    return _Box(node, form, tensor_arg)


def _store_element(node: tir.Call, target: tir.Buffer, index: Expr, value: Expr) -> Stmt:
    if isinstance(value, tir.BufferLoad):
        value = tir.BufferLoad(value.dtype, value.buffer, value.indices, span=node.span)
    return tir.BufferStore(target, value, (index,), span=node.span)


def _bits(name: str, value: Expr, mask: int) -> Expr:
    return tir.Call(INT64, tir.Op(f"tir.{name}"), (value, c.const(mask, INT64)))


def _view(name: str, pointer: Expr, dtype: DType) -> tir.DeclBuffer:
    bits = DType.of(f"uint{8 * dtype.element.bytes}")
    return tir.DeclBuffer(c.make_buffer(name, (1 << 40,), bits, "local"), pointer)
