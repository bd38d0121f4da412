"""The primitives `set_scope`, `storage_align`, `unsafe_set_dtype` and `widen`: how a buffer lies in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.node import replace
from mlcc.passes.schedule.analysis.block_access import defining_block
from mlcc.passes.schedule.analysis.uses import uses
from mlcc.passes.schedule.buffers import BufferArg
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.registry import primitive
from mlcc.passes.schedule.state import BlockRef, State
from mlcc.passes.schedule.storage import check_scope
from mlcc.passes.schedule.substitution import TrackedSubstitute
from mlcc.passes.schedule.tree import Rebuild, Tree

ALIGN = "buffer_dim_align"


@primitive()
def set_scope(state: State, block: BlockRef, buffer_index: BufferArg, storage_scope: str) -> None:
    """Put a buffer that a block writes into memory of another scope; `B` becomes `B_shared`.

    Refused for what is no storage scope (E0641), and for a buffer that no block allocates (E0679).
    """
    buffer = _written_buffer(state, block, buffer_index)
    if buffer.scope == (storage_scope or "global"):
        return
    check_scope(storage_scope)
    site = _allocating_block(block, buffer, "the scope")

    def moved(old: tir.Buffer) -> tir.Buffer:
        name = f"{old.name}_{storage_scope}"
        pointer = tir.PointerType(old.dtype if old.data.pointer is None else old.data.pointer.dtype, storage_scope)
        return replace(old, name=name, data=tir.Var(name, old.data.dtype, pointer))

    _replace_buffer(state, block, site, TrackedSubstitute(_replacements_with_views(block.tree, buffer, moved)))


@primitive()
def storage_align(state: State, block: BlockRef, buffer_index: BufferArg, axis: int, factor: int, offset: int) -> None:
    """Require the stride of an axis of a buffer that a block writes to be k * factor + offset for some k.

    Kept as the annotation `buffer_dim_align` until memory is laid out. Refused for an axis that the buffer does not
    have or a factor that is not positive (E0680), and for a buffer that no block allocates (E0679).
    """
    old = block.block
    buffer = _written_buffer(state, block, buffer_index)
    index = buffer_index.of(old, "write").index
    if factor <= 0:
        raise Refusal("E0680", f"the factor is {factor}, and must be positive", old)
    rank = len(buffer.shape)
    if not -rank <= axis < rank:
        help = f"its axes are 0 to {rank - 1}, or from the last one -1 to {-rank}" if rank else None
        raise Refusal("E0680", f"buffer `{buffer.name}` has {rank} axes, and axis {axis} is out of range", old, help)
    _allocating_block(block, buffer, "the strides")
    known = old.annotations.get(ALIGN, ())
    if not _is_alignment(known):
        raise Refusal(
            "E0680", f"block `{old.name}` has an annotation `{ALIGN}` that is not a list of four integers", old
        )
    alignment = (index, axis % rank, factor, offset)
    at = next((n for n, entry in enumerate(known) if entry[:2] == alignment[:2]), len(known))
    edit = Rebuild(block.tree)
    annotations = old.annotations.with_item(ALIGN, (*known[:at], alignment, *known[at + 1 :]))
    edit.put_block(old, replace(old, annotations=annotations))
    state.update(block.func_name, edit)


@primitive()
def unsafe_set_dtype(state: State, block: BlockRef, buffer_index: BufferArg, dtype: str) -> None:
    """Store a buffer that a block writes as `dtype`, cast on the way in and on the way out: results may be less exact.

    Refused for what is no scalar type of data (E0683), and for a buffer that no block allocates (E0679).
    """
    buffer = _written_buffer(state, block, buffer_index)
    new_dtype = _data_type(dtype)
    if buffer.dtype is new_dtype:
        return
    _store_as(state, block, buffer, new_dtype, _Retype)


@primitive()
def widen(state: State, block: BlockRef, buffer_index: BufferArg, dtype: str) -> None:
    """Store a buffer that a block writes in a type that can represent every value of its own, such as float16 as
    float32; results stay the same.

    Refused for a type that does not hold every value, or is none (E0683), and for a buffer that no block allocates
    (E0679). TVM has no such primitive; its `unsafe_set_dtype` takes any type.
    """
    buffer = _written_buffer(state, block, buffer_index)
    new_dtype = _data_type(dtype)
    if not _holds_all_values(new_dtype, buffer.dtype):
        message = f"{dtype} does not hold every value of `{buffer.name}`, which is {buffer.dtype}"
        raise Refusal("E0683", message, help="`unsafe_set_dtype` accepts a type that rounds")
    if buffer.dtype is new_dtype:
        return
    _store_as(state, block, buffer, new_dtype, _Widen)


def _store_as(state: State, block: BlockRef, buffer: tir.Buffer, dtype: DType, change: type[_Retype]) -> None:
    """Change the type of the buffer and of its views by `change`. Raises Refusal E0679 if no block allocates it."""
    site = _allocating_block(block, buffer, "the type")

    def retyped(old: tir.Buffer) -> tir.Buffer:
        return replace(old, dtype=dtype, data=tir.Var(old.data.name, old.data.dtype, tir.PointerType(dtype, old.scope)))

    _replace_buffer(state, block, site, change(_replacements_with_views(block.tree, buffer, retyped)))


_MANTISSA_BITS = {"float": {16: 11, 32: 24, 64: 53}, "bfloat": {16: 8}}


def _holds_all_values(new: DType, old: DType) -> bool:
    """Return True if every value of `old` is one of `new`."""
    if new is old:
        return True
    if old.is_int and new.is_int:
        return new.bits > old.bits and (old.is_uint or not new.is_uint)
    mantissa = _MANTISSA_BITS.get(new.kind, {}).get(new.bits, 0)
    if old.is_int:
        return mantissa >= old.bits - (not old.is_uint)
    return old.is_float and new.kind == "float" and new.bits > old.bits and (new.bits > 16 or old.bits == 8)


def _written_buffer(state: State, block: BlockRef, given: BufferArg) -> tir.Buffer:
    place = given.of(block.block, "write")
    state.recorded["buffer_index"] = place.index
    return place.buffer


def _allocating_block(block: BlockRef, buffer: tir.Buffer, what: str) -> tir.Block:
    """Return the block that allocates `buffer`. Refuse (E0679) a buffer that no block allocates."""
    site, allocates = defining_block(block.tree, block.block, buffer)
    if site is not None and allocates:
        return site
    name = block.block.name
    if site is None:
        why = "a parameter of the function, whose memory is the caller's"
        help = f'`sch.cache_write("{name}", {_index(block, buffer)}, scope)` makes a new buffer for it'
    else:
        why, help = f"a view that block `{site.name}` matches", "name the buffer that it is a view of"
    raise Refusal("E0679", f"cannot change {what} of `{buffer.name}`: it is {why}", block.block, help)


def _index(block: BlockRef, buffer: tir.Buffer) -> int:
    return next(n for n, region in enumerate(block.block.writes) if region.buffer is buffer)


def _data_type(text: str) -> DType:
    try:
        dtype = DType.of(text)
    except ValueError:
        dtype = None
    if dtype is None or dtype.lanes != 1 or dtype.is_handle or dtype.is_void:
        raise Refusal("E0683", f"{text!r} is not a data type", help='for example "float16", "int8", "bfloat16"')
    return dtype


def _replacements_with_views(
    tree: Tree, buffer: tir.Buffer, change: Callable[[tir.Buffer], tir.Buffer]
) -> dict[Any, Any]:
    """Return the replacements of the buffer, of all views of it, and of their data variables."""
    new_buffers: dict[Any, Any] = {buffer: change(buffer)}
    for realize in tree.realizes:
        for match in realize.block.match_buffers:
            if match.source.buffer in new_buffers:
                new_buffers.setdefault(match.buffer, change(match.buffer))
    return {**new_buffers, **{old.data: new.data for old, new in new_buffers.items()}}


def _replace_buffer(state: State, block: BlockRef, site: tir.Block, rewriter: TrackedSubstitute) -> None:
    tree = block.tree
    edit = Rebuild(tree)
    rewriter.keep(stmt for stmt in site.body if rewriter.replaced.isdisjoint(uses(tree, stmt).objects))
    edit.put_block(site, rewriter.visit(site))
    state.update(block.func_name, edit, rewriter.reuse)


class _Retype(TrackedSubstitute):
    """Cast the values of the replaced buffers: to the new type when stored, to the old one when loaded."""

    def __init__(self, replacements: Mapping[Any, Any]) -> None:
        super().__init__(replacements)
        self._changed = {new for new in replacements.values() if isinstance(new, tir.Buffer)}

    def rewrite(self, node: Any) -> Any:
        match node:
            case tir.BufferLoad(dtype=dtype, buffer=buffer) if buffer in self._changed:
                return tir.Cast(dtype, replace(node, dtype=buffer.dtype.with_lanes(dtype.lanes)))
            case tir.BufferStore(buffer=buffer, value=value) if buffer in self._changed:
                return replace(node, value=tir.Cast(buffer.dtype.with_lanes(value.dtype.lanes), value))
        return node


class _Widen(_Retype):
    """A retyping to a wider type: expressions may use the loaded values without a cast back."""

    def __init__(self, replacements: Mapping[Any, Any]) -> None:
        super().__init__(replacements)
        self._old = {new: old.dtype for old, new in replacements.items() if isinstance(new, tir.Buffer)}

    def rewrite(self, node: Any) -> Any:
        match node:
            case tir.Cast(dtype=dtype, value=tir.Cast(dtype=old, value=tir.BufferLoad(buffer=buffer) as load)) if (
                self._old.get(buffer) is old.element
            ):
                return load if load.dtype is dtype else replace(node, value=load)
        return super().rewrite(node)


def _is_alignment(value: Any) -> bool:
    return isinstance(value, tuple) and all(
        isinstance(entry, tuple) and len(entry) == 4 and all(isinstance(n, int) for n in entry) for entry in value
    )
