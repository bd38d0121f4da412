"""transform_layout and set_axis_separator: another order and shape for the elements of a buffer."""

from __future__ import annotations

from typing import Any

from mlcc.arith import index_map as im
from mlcc.arith.analyzer import Analyzer
from mlcc.arith.bounds import INF
from mlcc.arith.index_map import IndexMapError
from mlcc.arith.iter_map import iter_map_simplify
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT32, DType
from mlcc.ir.node import replace, walk
from mlcc.ir.visit import used_vars
from mlcc.passes.schedule.analysis.block_access import defining_block
from mlcc.passes.schedule.buffers import BufferArg
from mlcc.passes.schedule.index_maps import IndexMapArg, index_map_text, resolve_sampled
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.registry import primitive
from mlcc.passes.schedule.rewrite.layout_padding import PaddingPlan, plan_padding
from mlcc.passes.schedule.rewrite.layout_rewrite import LayoutRewriter
from mlcc.passes.schedule.state import BlockRef, State
from mlcc.passes.schedule.substitution import TrackedSubstitute
from mlcc.passes.schedule.tree import Rebuild
from mlcc.verify.scope import matched_vars


@primitive()
def transform_layout(
    state: State, block: BlockRef, buffer: BufferArg, index_map: IndexMapArg, pad_value: Any = None,
    assume_injective_transform: bool = False,
) -> None:  # fmt: skip
    """Store a buffer that the block reads or writes under other indices: `lambda i, j: (j, i // 4, i % 4)`.

    All accesses in the function follow. A parameter's shape changes with it: callers then pass what the map makes of
    their array. If the new shape has room that no element goes to, `pad_value` (a constant, or a function of the new
    indices) is stored there: where the writer runs over the buffer in order, in its own loops, else in a block after
    it; of a parameter that is only read it is taken for granted, in a block of `T.assume`.

    Refused: a map that does not go with the buffer or is not injective, or by which a parameter of (n, m) becomes one
    of ((n + 7) // 8, m, 8) while no other parameter tells `n` (E0670; TVM leaves `n` undefined), padding without
    `pad_value` (E0671), a view (E0672). TVM: `transform_layout`.
    """
    tree = block.tree
    place = buffer.of(block.block)
    old = place.buffer
    site = _definition_site(block, old)
    dtype = old.shape[0].dtype if old.shape else INT32
    given, separators = index_map.separated(len(old.shape), dtype)
    mapping, recorded = resolve_sampled(block, map_with_dtype(given, dtype), separators)
    state.recorded.update(buffer=place.pair, index_map=recorded)
    analyzer = shape_analyzer(tree.func)
    padding: tir.Expr = c.const(False)
    back: tir.IndexMap | None = None
    try:
        shape = im.map_shape(mapping, old.shape, analyzer)
        if not assume_injective_transform:
            ranges = [tir.Range(c.const(0, d.dtype), d) for d in old.shape]
            back, padding = _inverse_map(mapping, ranges, analyzer)
            _check_injective(mapping, back, ranges)
    except IndexMapError as exc:
        raise Refusal(
            "E0670", f"`{old.name}` cannot be stored with the map {index_map_text(mapping)}: {exc}", block.block
        ) from None
    pad = None if pad_value is None else _pad_value(pad_value, mapping, old, dtype)
    state.recorded["pad_value"] = pad
    if tir.const_int(padding) != 0 and pad is None:
        old_text, new_text = (", ".join(map(str, s)) for s in (old.shape, shape))
        raise Refusal(
            "E0671",
            f"`{old.name}` of ({old_text}) becomes ({new_text}), and the places where {padding} get no element",
            block.block,
            "set `pad_value=` for these places, or use a map without padding",
        )
    new = replace(old, shape=shape, axis_separators=separators or old.axis_separators)
    plan = PaddingPlan() if pad is None or back is None else plan_padding(site, old, new, back, padding, pad, analyzer)
    rewriter = LayoutRewriter(site, old, new, mapping, plan)
    _check_views(site, old)
    new_site = rewriter.block(site)
    _check_sizes_known(tree.func, block.block, old, new, new_site)
    _replace_site(state, block, site, old, new, new_site, rewriter.reuse)


@primitive()
def set_axis_separator(state: State, block: BlockRef, buffer: BufferArg, axis_separators: list[int]) -> None:
    """Set where the dimensions of a buffer are grouped into axes of memory: `[1]` makes the first dimension one axis
    and the others together another.

    Refused: positions that do not rise from 0 to the number of dimensions (E0670), a view (E0672).
    TVM: `set_axis_separator`.
    """
    place = buffer.of(block.block)
    old = place.buffer
    site = _definition_site(block, old)
    state.recorded["buffer"] = place.pair
    marks = tuple(axis_separators)
    if any(not 0 <= m <= len(old.shape) for m in marks) or any(a > b for a, b in zip(marks, marks[1:], strict=False)):
        raise Refusal(
            "E0670", f"`{old.name}` has {len(old.shape)} dimensions; {list(marks)} do not divide them in order"
        )
    new = replace(old, axis_separators=marks)
    replaced: dict[Any, Any] = {old: new}
    for node in walk(site):
        if isinstance(node, tir.MatchBufferRegion) and node.source.buffer is old:
            same = len(node.buffer.shape) == len(old.shape)
            replaced[node.buffer] = replace(node.buffer, axis_separators=marks if same else (0,) * len(marks))
    rewriter = TrackedSubstitute(replaced)
    _replace_site(state, block, site, old, new, rewriter.visit(site), rewriter.reuse)


def shape_analyzer(func: tir.PrimFunc) -> Analyzer:
    """Return an analyzer that knows that sizes of parameters are not negative."""
    analyzer = Analyzer()
    for buffer in func.buffers:
        for size in buffer.shape if buffer is not None else ():
            if isinstance(size, tir.Var):
                analyzer.bind_bound(size, 0, INF)
    return analyzer


def map_with_dtype(given: tir.IndexMap, dtype: DType) -> tir.IndexMap:
    """The map with indices of another dtype, and results of it too."""
    if all(v.dtype is dtype for v in given.indices):
        return given
    fresh = tuple(tir.Var(v.name, dtype) for v in given.indices)
    back = None if given.inverse is None else map_with_dtype(given.inverse, dtype)
    return tir.IndexMap(fresh, tuple(c.cast(dtype, r) for r in im.map_indices(given, fresh)), back)


def _inverse_map(mapping: tir.IndexMap, ranges: list[tir.Range], analyzer: Analyzer) -> tuple[tir.IndexMap, tir.Expr]:
    """Return the inverse map and the condition of padding: derived if possible, else the inverse given with the map.

    Raises IndexMapError.
    """
    try:
        return im.non_surjective_inverse(replace(mapping, inverse=None), ranges, analyzer)
    except IndexMapError:
        if mapping.inverse is None:
            raise
        return im.non_surjective_inverse(mapping, ranges, analyzer)


def _check_injective(mapping: tir.IndexMap, back: tir.IndexMap, ranges: list[tir.Range]) -> None:
    """Check that the inverse map undoes the map. Raises IndexMapError."""
    iters = dict(zip(mapping.indices, ranges, strict=True))
    analyzer = Analyzer()
    for var, span in iters.items():
        analyzer.bind(var, span)
    mapped = im.map_indices(mapping, mapping.indices, analyzer)
    recovered = iter_map_simplify(im.map_indices(back, mapped, analyzer), iters)
    for var, value in zip(mapping.indices, recovered, strict=True):
        if not analyzer.prove_equal(var, value):
            raise IndexMapError(f"elements with the same `{value}` are stored in one place for every `{var}`")


def _definition_site(block: BlockRef, buffer: tir.Buffer) -> tir.Block:
    """Return the block that contains all accesses: the one that allocates the buffer, the root for a parameter."""
    site, allocated = defining_block(block.tree, block.block, buffer)
    if site is not None and not allocated:
        message = f"`{buffer.name}` is a view that block `{site.name}` takes of another buffer"
        raise Refusal("E0672", message, (site, block.block), "change the layout of the buffer that it is a view of")
    site = site or block.tree.root
    assert site is not None
    return site


def _check_sizes_known(
    func: tir.PrimFunc, block: tir.Block, old: tir.Buffer, new: tir.Buffer, new_site: tir.Block
) -> None:
    """Refuse (E0670) a parameter of a shape from which a size that the function uses can no longer be told."""
    if old not in func.buffers:
        return
    buffers = [new if buffer is old else buffer for buffer in func.buffers if buffer is not None]
    known = {*func.params, *(var for buffer in buffers for var in matched_vars(buffer))}
    used = used_vars((new_site, *(size for buffer in buffers for size in buffer.shape)))
    lost = [var for var in matched_vars(old) if var not in known and var in used]
    if lost:
        shape = ", ".join(map(str, new.shape))
        raise Refusal(
            "E0670", f"the size `{lost[0].name}` is known only from the shape of `{old.name}`, which would become"
            f" ({shape})", block, "change the layout of a copy, which `cache_read` or `cache_write` makes",
        )  # fmt: skip


def _check_views(site: tir.Block, buffer: tir.Buffer) -> None:
    for node in walk(site):
        if isinstance(node, tir.Block):
            for match in node.match_buffers:
                if match.source.buffer is buffer:
                    message = f"block `{node.name}` takes `{match.buffer.name}` as a view of `{buffer.name}`"
                    raise Refusal("E0672", message, node, "change the layout before blocks take views")


def _pad_value(given: Any, mapping: tir.IndexMap, buffer: tir.Buffer, dtype: Any) -> tir.IndexMap:
    """The value for padding as a map from the new indices to one result."""
    ndim = len(mapping.result)
    given = getattr(given, "expr", given)
    if isinstance(given, (bool, int, float, tir.Expr)):
        value = given
        if isinstance(value, (int, float)):
            value = _element(value, buffer)
        pad_map = tir.IndexMap(tuple(tir.Var(f"indices_{i}", dtype) for i in range(ndim)), (value,))
    else:
        pad_map = _pad_function(given, ndim, dtype, buffer)
    if len(pad_map.result) != 1:
        raise Refusal("E0671", f"the padding of `{buffer.name}` must be one value, not {len(pad_map.result)}")
    value = pad_map.result[0]
    if isinstance(value, tir.IntImm) and value.dtype.is_int and buffer.dtype.is_int and value.dtype is not buffer.dtype:
        # a literal in source code has the width of the neighboring indices
        value = _element(value.value, buffer)
        pad_map = replace(pad_map, result=(value,))
    if value.dtype is not buffer.dtype:
        raise Refusal("E0671", f"`{buffer.name}` has elements of {buffer.dtype}, but the padding is {value.dtype}")
    if any(isinstance(n, tir.BufferLoad) and n.buffer is not buffer for n in walk(value)):
        raise Refusal("E0671", f"the padding of `{buffer.name}` must not read another buffer")
    return pad_map


def _element(value: float, buffer: tir.Buffer) -> tir.Expr:
    try:
        return c.const(value, buffer.dtype)
    except ValueError as exc:
        raise Refusal("E0671", f"the padding of `{buffer.name}`: {exc}") from None


def _pad_function(given: Any, ndim: int, dtype: Any, buffer: tir.Buffer) -> tir.IndexMap:
    if isinstance(given, tir.IndexMap):
        return IndexMapArg(given).of(ndim, dtype)

    def one(*indices: Any) -> Any:
        result = given(*indices)
        if isinstance(result, (list, tuple)) and len(result) == 1:
            result = result[0]
        return result

    if buffer.dtype.is_int:
        return IndexMapArg(given).of(ndim, dtype)
    variables = tuple(tir.Var(f"indices_{i}", dtype) for i in range(ndim))
    try:
        value = one(*variables) if callable(given) else given
    except (TypeError, ValueError, ArithmeticError) as exc:
        raise Refusal("E0671", f"the padding of `{buffer.name}` as a function of {ndim} indices: {exc}") from None
    value = getattr(value, "expr", value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = c.const(value, buffer.dtype)
    if not isinstance(value, tir.Expr):
        raise Refusal(
            "E0671", f"the padding of `{buffer.name}` must be a value or a function of indices, not {value!r}"
        )
    return tir.IndexMap(variables, (value,))


def _replace_site(
    state: State, block: BlockRef, site: tir.Block, old: tir.Buffer, new: tir.Buffer, new_site: tir.Block,
    reuse: dict[tir.Block, tir.Block],
) -> None:  # fmt: skip
    tree = block.tree
    edit = Rebuild(tree)
    edit.put_block(site, new_site)
    func = edit.build()
    if old in tree.func.buffers:
        func = replace(func, buffers=tuple(new if b is old else b for b in func.buffers))
    state.update(block.func_name, func, {**edit.reuse, **reuse, site: new_site})
