"""Loads and stores of flattened buffers by a scalar or vector index.

Contiguous lanes are one access, strides of 2 to 4 a few accesses and shuffles; others are accessed lane by lane.
Accesses assume only the element's natural alignment. Under a vector condition, only active lanes are accessed
(`masks`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.node import Node
from mlcc.targets.llvm.codegen import casts, masks
from mlcc.targets.llvm.codegen.ir_text import Value, integer, vector
from mlcc.targets.llvm.codegen.refuse import unsupported
from mlcc.targets.llvm.codegen.types import memory_type

if TYPE_CHECKING:
    from mlcc.targets.llvm.codegen.emitter import Emitter

WORD = 4  # bytes


def _index_of(buffer: tir.Buffer, indices: tuple[tir.Expr, ...], node: Node) -> tir.Expr:
    if len(indices) != 1 or buffer.strides:
        raise unsupported(f"`{buffer.name}` is not flattened", node.span)
    return indices[0]


def address(e: Emitter, buffer: tir.Buffer, index: tir.Expr) -> Value:
    """Return the address of the element at a scalar index."""
    base, *terms = e.index_parts(index)
    pointer = _element_address(e, buffer, base, inbounds=not terms)
    for term in terms:
        if buffer.dtype.lanes > 1:
            term = e.fn.binary("mul nsw", term, integer("i64", buffer.dtype.lanes))
        pointer = e.fn.gep(memory_type(buffer.dtype.element), pointer, term, flags="")
    return pointer


def _run_address(e: Emitter, buffer: tir.Buffer, index: tir.Expr, step: int) -> Value:
    """Return the address of the lowest element of a contiguous access."""
    if index.dtype.lanes == 1:
        return address(e, buffer, index)
    assert isinstance(index, tir.Ramp)
    return address(e, buffer, index.base) if step == 1 else _element_address(e, buffer, _lowest_index(e, index, step))


def _element_address(e: Emitter, buffer: tir.Buffer, index: Value, inbounds: bool = True) -> Value:
    """Return the address of an element; `inbounds`: it is known to be inside the buffer."""
    lanes = buffer.dtype.lanes
    if lanes > 1:
        index = e.fn.binary("mul nsw", index, integer("i64", lanes))
    flags = "inbounds " if inbounds else ""
    return e.fn.gep(memory_type(buffer.dtype.element), e.expr(buffer.data), index, flags=flags)


def _unit_stride(index: tir.Expr) -> int:
    """Return the stride of a ramp if it is 1 or -1, else 0."""
    stride = tir.const_int(index.stride) if isinstance(index, tir.Ramp) else None
    return stride if stride in (1, -1) else 0


def _lowest_index(e: Emitter, index: tir.Ramp, step: int) -> Value:
    """Return the lowest index of a contiguous access."""
    base = e.index(index.base)
    return base if step == 1 else e.fn.binary("sub nsw", base, integer("i64", index.lanes - 1))


def _reversed(e: Emitter, value: Value, lanes: int) -> Value:
    mask = ", ".join(f"i32 {i}" for i in reversed(range(lanes)))
    return e.fn.op(value.type, f"shufflevector {value}, {value.type} poison, <{lanes} x i32> <{mask}>")


def lane_indices(e: Emitter, index: tir.Expr) -> Value:
    """Return a vector index in 64 bits."""
    fn, lanes = e.fn, index.dtype.lanes
    if isinstance(index, tir.Ramp):
        type = vector("i64", lanes)
        steps = Value(type, "<" + ", ".join(f"i64 {i}" for i in range(lanes)) + ">")
        steps = fn.binary("mul nsw", steps, fn.splat(e.index(index.stride), lanes))
        return fn.binary("add nsw", fn.splat(e.index(index.base), lanes), steps)
    value = e.expr(index)
    if index.dtype.bits < 64:
        value = fn.convert("zext" if index.dtype.is_uint else "sext", value, vector("i64", lanes))
    return value


def _mask(e: Emitter, lanes: int) -> Value | None:
    """Return the current mask if it has as many lanes as an access, else None."""
    return e.mask if e.mask is not None and e.mask.type == vector("i1", lanes) else None


def _is_private(e: Emitter, buffer: tir.Buffer, index: tir.Expr) -> bool:
    """Return True for a constant in-bounds access to the function's own stack.

    Its inactive lanes may be read and written back, so that a small tile can be promoted to registers.
    """
    if buffer.data not in e.private or _unit_stride(index) != 1:
        return False
    base, size = tir.const_int(index.base), tir.const_int(buffer.shape[0])  # type: ignore[attr-defined]
    return base is not None and size is not None and 0 <= base <= size - index.dtype.lanes


def _masked_load(e: Emitter, buffer: tir.Buffer, index: tir.Expr, mask: Value) -> Value:
    element, lanes = buffer.dtype, index.dtype.lanes
    dtype = element.with_lanes(lanes)
    step = _unit_stride(index)
    if _is_private(e, buffer, index):
        start = _element_address(e, buffer, _lowest_index(e, index, 1))  # type: ignore[arg-type]
        return casts.from_memory(e, e.fn.load(memory_type(dtype), start, element.bytes), dtype)
    stride = _small_stride(index, element)
    if stride:
        return casts.from_memory(e, _masked_load_strided(e, buffer, index, stride, mask), dtype)  # type: ignore[arg-type]
    if not step:
        scalar = memory_type(element)
        addresses = masks.pointers(e, scalar, e.expr(buffer.data), lane_indices(e, index), lanes)
        return casts.from_memory(e, masks.gather(e, memory_type(dtype), addresses, mask, element.bytes), dtype)
    start = _element_address(e, buffer, _lowest_index(e, index, step), inbounds=False)  # type: ignore[arg-type]
    if step == 1:
        value = masks.load(e, memory_type(dtype), start, mask, element.bytes)
    else:
        value = _reversed(e, masks.load(e, memory_type(dtype), start, _reversed(e, mask, lanes), element.bytes), lanes)
    return casts.from_memory(e, value, dtype)


def _masked_store(e: Emitter, buffer: tir.Buffer, index: tir.Expr, value: Value, mask: Value) -> None:
    element, lanes = buffer.dtype, index.dtype.lanes
    step = _unit_stride(index)
    if not step:
        addresses = masks.pointers(e, memory_type(element), e.expr(buffer.data), lane_indices(e, index), lanes)
        masks.scatter(e, value, addresses, mask, element.bytes)
        return
    start = _element_address(e, buffer, _lowest_index(e, index, step), inbounds=False)  # type: ignore[arg-type]
    if _is_private(e, buffer, index):
        old = e.fn.load(value.type, start, element.bytes)
        e.fn.store(e.fn.select(mask, value, old), start, element.bytes)
        return
    if step == -1:
        value, mask = _reversed(e, value, lanes), _reversed(e, mask, lanes)
    masks.store(e, value, start, mask, element.bytes)


def _small_stride(index: tir.Expr, element: DType) -> int:
    """Return the stride of a ramp if it is small enough to load all elements in between, else 0."""
    stride = tir.const_int(index.stride) if isinstance(index, tir.Ramp) else None
    return stride if stride in (2, 3, 4) and index.dtype.lanes >= 4 and element.lanes == 1 else 0


def _load_strided(e: Emitter, buffer: tir.Buffer, index: tir.Ramp, stride: int) -> Value:
    """Load elements with a small stride: contiguous vectors from the first to the last one, then shuffles."""
    fn, lanes, element = e.fn, index.lanes, buffer.dtype
    type = vector(memory_type(element), lanes)
    last = (lanes - 1) * stride  # no vector reads beyond it
    starts = [min(at, last + 1 - lanes) for at in range(0, last + 1, lanes)]
    base, gathered = e.index(index.base), Value(type, "poison")
    done = 0
    for start in starts:
        end = start + lanes
        run = fn.load(
            type, _element_address(e, buffer, fn.binary("add nsw", base, integer("i64", start))), element.bytes
        )
        shuffle = []
        for lane in range(lanes):
            from_run = done <= lane * stride < end
            shuffle.append(f"i32 {lanes + lane * stride - start if from_run else lane}")
        gathered = fn.op(type, f"shufflevector {gathered}, {run}, <{lanes} x i32> <{', '.join(shuffle)}>")
        done = end
    return gathered


def load_words(e: Emitter, node: tir.BufferLoad) -> tuple[Value, int] | None:
    """Load the words of 4 bytes in which a load at a stride of 4 finds its bytes; return them and the bytes' first bit.

    Return None for another load, or one whose words may lie beyond the buffer.
    """
    buffer, index = node.buffer, node.indices[0] if len(node.indices) == 1 else None
    if not isinstance(index, tir.Ramp) or tir.const_int(index.stride) != WORD or buffer.dtype.bits != 8:
        return None
    size = tir.const_int(buffer.shape[0])
    if buffer.dtype.lanes > 1 or buffer.strides or size is None or size % WORD or _mask(e, index.lanes) is not None:
        return None
    coefficient, first = Analyzer().modular_set(index.base)
    if coefficient % WORD:
        return None
    first, start = first % WORD, e.index(index.base)
    if first:
        start = e.fn.binary("sub nsw", start, integer("i64", first))
    return e.fn.load(vector("i32", index.lanes), _element_address(e, buffer, start), buffer.dtype.bytes), 8 * first


def _masked_load_strided(e: Emitter, buffer: tir.Buffer, index: tir.Ramp, stride: int, mask: Value) -> Value:
    """Load elements with a small stride under a mask: masked contiguous vectors; inactive lanes are zero."""
    fn, lanes, element = e.fn, index.lanes, buffer.dtype
    type = vector(memory_type(element), lanes)
    base, gathered = e.index(index.base), Value(type, "zeroinitializer")
    for start in range(0, (lanes - 1) * stride + 1, lanes):
        lane_of = [divmod(start + n, stride) for n in range(lanes)]
        mask_lanes = ", ".join(f"i32 {lane if not off and lane < lanes else lanes}" for lane, off in lane_of)
        run_mask = fn.op(
            mask.type, f"shufflevector {mask}, {mask.type} zeroinitializer, <{lanes} x i32> <{mask_lanes}>"
        )
        first = _element_address(e, buffer, fn.binary("add nsw", base, integer("i64", start)), inbounds=False)
        run = masks.load(e, type, first, run_mask, element.bytes)
        in_run = [start <= lane * stride < start + lanes for lane in range(lanes)]
        shuffle = ", ".join(f"i32 {lanes + n * stride - start if from_run else n}" for n, from_run in enumerate(in_run))
        gathered = fn.op(type, f"shufflevector {gathered}, {run}, <{lanes} x i32> <{shuffle}>")
    return gathered


def _lane_addresses(e: Emitter, buffer: tir.Buffer, index: tir.Expr) -> list[Value]:
    """Return the address of each lane of a vector index."""
    fn, lanes = e.fn, index.dtype.lanes
    if isinstance(index, tir.Ramp):
        base, stride = e.index(index.base), e.index(index.stride)
        steps = [fn.binary("mul nsw", stride, integer("i64", i)) for i in range(lanes)]
        return [_element_address(e, buffer, fn.binary("add nsw", base, step)) for step in steps]
    value = e.expr(index)
    if index.dtype.bits < 64:
        value = fn.convert("zext" if index.dtype.is_uint else "sext", value, vector("i64", lanes))
    return [_element_address(e, buffer, fn.extract(value, i)) for i in range(lanes)]


def load(e: Emitter, node: tir.BufferLoad) -> Value:
    buffer = node.buffer
    index = _index_of(buffer, node.indices, node)
    fn, element, lanes = e.fn, buffer.dtype, index.dtype.lanes
    dtype = element.with_lanes(element.lanes * lanes)
    mask = _mask(e, lanes) if lanes > 1 and element.lanes == 1 else None
    if isinstance(index, tir.Broadcast) and index.value.dtype.lanes == 1 and element.lanes == 1:
        scalar_value = fn.load(memory_type(element), address(e, buffer, index.value), element.bytes)
        return fn.splat(casts.from_memory(e, scalar_value, element), lanes)
    if mask is not None:
        return _masked_load(e, buffer, index, mask)
    step = 1 if lanes == 1 else _unit_stride(index)
    if step:
        value = fn.load(memory_type(dtype), _run_address(e, buffer, index, step), e.alignment(buffer, index))
        if step == -1:
            value = _reversed(e, value, lanes)
        return casts.from_memory(e, value, dtype)
    stride = _small_stride(index, element)
    if stride:
        return casts.from_memory(e, _load_strided(e, buffer, index, stride), dtype)  # type: ignore[arg-type]
    loaded = Value(memory_type(dtype), "poison")
    scalar = memory_type(element.element)
    for lane, element_address in enumerate(_lane_addresses(e, buffer, index)):
        for sub_lane in range(element.lanes):
            pointer = fn.gep(scalar, element_address, integer("i64", sub_lane)) if sub_lane else element_address
            loaded = fn.insert(loaded, fn.load(scalar, pointer, element.bytes), lane * element.lanes + sub_lane)
    return casts.from_memory(e, loaded, dtype)


def store(e: Emitter, node: tir.BufferStore) -> None:
    buffer = node.buffer
    index = _index_of(buffer, node.indices, node)
    fn, element, lanes = e.fn, buffer.dtype, index.dtype.lanes
    dtype = element.with_lanes(element.lanes * lanes)
    if node.value.dtype is not dtype:
        message = f"a value of {node.value.dtype} cannot be stored in `{buffer.name}`, expected {dtype}"
        raise unsupported(message, node.span)
    value = casts.to_memory(e, e.expr(node.value), dtype)
    mask = _mask(e, lanes) if lanes > 1 and element.lanes == 1 else None
    if mask is not None:
        _masked_store(e, buffer, index, value, mask)
        return
    step = 1 if lanes == 1 else _unit_stride(index)
    if step:
        start = _run_address(e, buffer, index, step)
        if step == -1:
            if element.lanes > 1:
                raise unsupported("a reversed store of vectors is not supported", node.span)
            value = _reversed(e, value, lanes)
        fn.store(value, start, e.alignment(buffer, index))
        return
    scalar = memory_type(element.element)
    for lane, element_address in enumerate(_lane_addresses(e, buffer, index)):
        for sub_lane in range(element.lanes):
            pointer = fn.gep(scalar, element_address, integer("i64", sub_lane)) if sub_lane else element_address
            fn.store(fn.extract(value, lane * element.lanes + sub_lane), pointer, element.bytes)
