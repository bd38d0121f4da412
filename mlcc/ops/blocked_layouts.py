"""Operators on layouts with split axes, such as NCHW4c: they compute in the layout without split axes.

`4c` is the inner part, of extent 4, of the axis C: channel c has the indices (c // 4, c % 4). As in TVM.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace as replace_impl
from typing import Any

from mlcc import te
from mlcc.ir import construct, relax, tir
from mlcc.ir.node import replace
from mlcc.ops import topi
from mlcc.ops.lazy import np
from mlcc.ops.registry import Impl
from mlcc.ops.shapes import Dims, Tensor, fail, int64, result, shape_text, simplify, tensor
from mlcc.ops.split_layouts import LayoutParts, is_blocked, outer_letters, parse_layout
from mlcc.te.scalar import Scalar, to_expr


def blocked_impl(
    impl: Impl, inputs: Mapping[int, str], out: str, in_place: Callable[[relax.Call], bool] = lambda call: False
) -> Impl:
    """Extend an operator to layouts with split axes; `inputs` and `out` name the attributes with layouts.

    `in_place` returns True for calls whose lowering handles the split axes itself.
    """

    def is_plain(call: relax.Call) -> bool:
        return not any(is_blocked(call.attrs[name]) for name in (*inputs.values(), out))

    def infer(call: relax.Call) -> relax.StructInfo:
        assert impl.infer is not None
        if is_plain(call):
            return impl.infer(call)
        info = impl.infer(_unsplit_call(call, inputs, out))
        assert isinstance(info, relax.TensorStructInfo)
        return _split_info(call, info, _layout_parts(call, out))

    def numpy(call: relax.Call, *arrays: Any) -> Any:
        assert impl.numpy is not None
        if is_plain(call):
            return impl.numpy(call, *arrays)
        operands = [
            _unsplit_array(a, _layout_parts(call, inputs[i])) if i in inputs else a for i, a in enumerate(arrays)
        ]
        return _split_array(
            impl.numpy(_unsplit_inferred_call(call, impl, inputs, out), *operands), _layout_parts(call, out)
        )

    def lowering(plain: Callable[..., Any] | None) -> Callable[..., Any] | None:
        if plain is None:
            return None

        def lower(call: relax.Call, *tensors: Any) -> Any:
            if is_plain(call) or in_place(call):
                return plain(call, *tensors)
            inner = _unsplit_inferred_call(call, impl, inputs, out)
            operands = [
                _unsplit_tensor(x, _layout_parts(call, inputs[i]), tensor(inner, i).dims or ()) if i in inputs else x
                for i, x in enumerate(tensors)
            ]
            return _split_tensor(plain(inner, *operands), _layout_parts(call, out), tuple(call.struct_info.dims))  # type: ignore[union-attr]

        return lower

    wrapped = replace_impl(impl, infer=infer, numpy=numpy if impl.numpy else None)
    return replace_impl(wrapped, lower=lowering(impl.lower), accurate=lowering(impl.accurate))


def _unsplit_inferred_call(call: relax.Call, impl: Impl, inputs: Mapping[int, str], out: str) -> relax.Call:
    joined = _unsplit_call(call, inputs, out)
    assert impl.infer is not None
    return replace(joined, struct_info=impl.infer(joined))


def _layout_parts(call: relax.Call, attribute: str) -> LayoutParts:
    parts = parse_layout(call.attrs[attribute])
    if parts is None:
        fail(call, "E0442", f"`{attribute}` must be a layout such as NCHW4c, not `{call.attrs[attribute]}`")
    return parts


def _unsplit_call(call: relax.Call, inputs: Mapping[int, str], out: str) -> relax.Call:
    """The call on operands without split axes."""
    attrs, args = call.attrs, list(call.args)
    for index, name in inputs.items():
        args[index] = relax.Var("joined", _unsplit_info(call, index, _layout_parts(call, name)))
    for name in {*inputs.values(), out}:
        attrs = attrs.with_item(name, outer_letters(attrs[name]))
    return replace(call, args=tuple(args), attrs=attrs)


def _unsplit_info(call: relax.Call, index: int, parts: LayoutParts) -> Tensor:
    info = tensor(call, index)
    letters = [letter for letter, factor in parts if factor is None]
    if info.ndim not in (-1, len(parts)):
        text = f"the layout has {len(parts)} dimensions, argument {index + 1} has {info.ndim}"
        fail(call, "E0445", text)
    if info.dims is None:
        return result(None, info.dtype, len(letters), info.vdevice)
    extents: dict[str, tir.Expr] = {}
    for (letter, factor), dim in zip(parts, info.dims, strict=True):
        if factor is not None and tir.const_int(dim) not in (None, factor):
            fail(call, "E0445", f"the inner part of {letter} is {factor}, the tensor is {shape_text(info.dims)}")
        size = dim if factor is None else int64(factor)
        extents[letter] = construct.mul(extents[letter], size) if letter in extents else size
    return result([simplify(extents[c]) for c in letters], info.dtype, vdevice=info.vdevice)


def _split_info(call: relax.Call, info: Tensor, parts: LayoutParts) -> Tensor:
    if info.dims is None:
        return result(None, info.dtype, len(parts), info.vdevice)
    extents = dict(zip([letter for letter, factor in parts if factor is None], info.dims, strict=True))
    factors = {letter: factor for letter, factor in parts if factor is not None}
    dims: list[tir.Expr] = []
    for letter, factor in parts:
        inner = factors.get(letter, 1)
        if factor is not None:
            dims.append(int64(factor))
        elif (tir.const_int(extents[letter]) or 0) % inner:
            fail(call, "E0445", f"the extent {tir.const_int(extents[letter])} of {letter} is not a multiple of {inner}")
        else:
            dims.append(simplify(construct.floordiv(extents[letter], int64(inner))))
    return result(dims, info.dtype, vdevice=info.vdevice)


def _axis_order(parts: LayoutParts) -> list[int]:
    """Order the axes of a split tensor so that each inner part follows its axis."""
    letters = [letter for letter, factor in parts if factor is None]
    return sorted(range(len(parts)), key=lambda i: (letters.index(parts[i][0]), parts[i][1] is not None))


def _unsplit_array(x: Any, parts: LayoutParts) -> Any:
    extents: dict[str, int] = {}
    for (letter, _), n in zip(parts, x.shape, strict=True):
        extents[letter] = extents.get(letter, 1) * n
    letters = [letter for letter, factor in parts if factor is None]
    return np.transpose(x, _axis_order(parts)).reshape([extents[c] for c in letters])


def _split_array(x: Any, parts: LayoutParts) -> Any:
    factors = {letter: factor for letter, factor in parts if factor is not None}
    letters = [letter for letter, factor in parts if factor is None]
    shape: list[int] = []
    for letter, n in zip(letters, x.shape, strict=True):
        shape += [n // factors[letter], factors[letter]] if letter in factors else [n]
    return np.transpose(x.reshape(shape), np.argsort(_axis_order(parts)))


def _unsplit_tensor(x: te.Tensor, parts: LayoutParts, dims: Dims) -> te.Tensor:
    letters = [letter for letter, factor in parts if factor is None]
    factors = {letter: factor for letter, factor in parts if factor is not None}

    def element(*i: Any) -> Any:
        at = dict(zip(letters, map(to_expr, i), strict=True))
        return x(*(Scalar(_part_index(at[letter], factors.get(letter), factor is None)) for letter, factor in parts))

    return topi.compute_ax(dims, element, "joined")


def _part_index(index: tir.Expr, inner: int | None, outer: bool) -> tir.Expr:
    if inner is None:
        return index
    return (construct.floordiv if outer else construct.floormod)(index, int64(inner))


def _split_tensor(x: te.Tensor, parts: LayoutParts, dims: Dims) -> te.Tensor:
    def element(*i: Any) -> Any:
        at: dict[str, tir.Expr] = {}
        inner: dict[str, tir.Expr] = {}
        factors: dict[str, int] = {}
        for (letter, factor), index in zip(parts, map(to_expr, i), strict=True):
            if factor is None:
                at[letter] = index
            else:
                inner[letter], factors[letter] = index, factor
        for letter, factor in factors.items():
            at[letter] = construct.add(construct.mul(at[letter], int64(factor)), inner[letter])
        return x(*(Scalar(index) for index in at.values()))

    return topi.compute_ax(dims, element, "split")


CONV_LAYOUTS = ({0: "data_layout", 1: "kernel_layout"}, "out_layout")
POOL_LAYOUTS = ({0: "layout"}, "out_layout")
