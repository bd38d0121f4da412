"""Calls of operators with arrays for their tensors, and what the NumPy reference makes of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlcc.ir import relax, tir
from mlcc.ir.dtypes import DType
from mlcc.ir.narrow_floats import decode, encode
from mlcc.ops import get
from tests.ops import numbers_nn
from tests.ops.cases import Case, Const, T

# Cases whose arrays are drawn from positive numbers, or from [-1, 1], or are indices below a bound.
POSITIVE = {"log", "sqrt", "rsqrt", "power", "log_add_exp", "acosh", "floor_mod", "floor_divide", "mod", "divide"}
UNIT = {"acos", "asin", "atanh"}
PLACES = {
    "take", "one_hot", "left_shift", "right_shift", "gather_elements", "gather_nd", "index_tensor", "index_put",
    "scatter_elements", "scatter_nd", "reverse_sequence", "multinomial_from_uniform",
}  # fmt: skip


def words(text: str) -> list[str]:
    return text.split()


CASES = [
    *(Case(u, (T((3, 5)),)) for u in words("""
        abs acos acosh asin asinh atan atanh ceil cos cosh erf exp
        floor isfinite isinf isnan log negative round rsqrt sigmoid
        sign sin sinh sqrt square tan tanh trunc nn.relu nn.gelu
        nn.gelu_tanh nn.selu nn.silu nn.softplus nn.leakyrelu""")),
    *(Case(u, (T((3, 5), "int32"),)) for u in words("abs bitwise_not negative sign square nn.relu")),
    *(Case(u, (T((3, 5), "float16"),)) for u in words("abs exp tanh erf nn.gelu isnan")),
    *(Case(b, (T((3, 5)), T((5,)))) for b in words("""
        add atan2 divide equal floor_divide floor_mod greater
        greater_equal less less_equal log_add_exp maximum minimum mod
        multiply not_equal power subtract""")),
    *(Case(b, (T((3, 1), "int32"), T((4,), "int32"))) for b in words("""
        add bitwise_and bitwise_or bitwise_xor divide floor_divide
        floor_mod left_shift right_shift maximum mod multiply subtract""")),
    *(Case(b, (T((3,), "bool"), T((3,), "bool"))) for b in ("logical_and", "logical_or", "logical_xor")),
    Case("logical_not", (T((3,), "bool"),)),
    Case("add", (T((2, 3)), 2.0)),
    Case("subtract", (2.0, T((2, 3)))),
    Case("where", (T((3,), "bool"), T((2, 3)), T((2, 1)))),
    Case("ewise_fma", (T((2, 3)), T((2, 3)), T((2, 3)))),
    Case("clip", (T((2, 3)), -0.5, 0.5)),
    Case("nn.prelu", (T((2, 3)), T((3,)))),
    Case("nn.prelu", (T((2, 3, 4)), T((1,)), -1)),
    Case("sum", (T((2, 0, 3), "int32"), 1)),
    Case("prod", (T((2, 0, 3), "bool"), -2), {"keepdims": True}),
    Case("astype", (T((2, 3)), "int32")),
    Case("astype", (T((2, 3), "int32"), "float16")),
    Case("full", ((2, 3), Const(1.5, "float32"), "int32")),
    Case("full", ((2, 3), T(()))),
    Case("zeros", ((2, 3), "int8")),
    Case("ones_like", (T((2, 3)),)),
    Case("full_like", (T((2, 3)), Const(7.0, "float32"))),
    Case("arange", (1, 10, 2)),
    Case("arange", (10, 0, -3)),
    Case("arange", (0.0, 1.0, 0.25)),
    Case("eye", (3, 4, 1)),
    Case("tril", (T((4, 3)), 1)),
    Case("triu", (T((2, 3, 3)), -1)),
    Case("one_hot", (T((4,), "int64"), 2.0, -1.0, 5)),
    Case("one_hot", (T((2, 3), "int32"), 1, 0, 4), {"axis": 0}),
    Case("permute_dims", (T((2, 3, 4)), (2, 0, 1))),
    Case("reshape", (T((2, 3, 4)), (4, -1))),
    Case("expand_dims", (T((2, 3)), (0, -1))),
    Case("squeeze", (T((2, 1, 3)), 1)),
    Case("broadcast_to", (T((2, 1)), (4, 2, 3))),
    Case("flatten", (T((2, 3)),)),
    Case("concat", ([T((2, 3)), T((2, 4)), T((2, 1))], 1)),
    Case("stack", ([T((2, 3)), T((2, 3))], -1)),
    Case("split", (T((7, 3)), 3, 0)),
    Case("split", (T((7, 3)), [1, 4], 0)),
    Case("split", (T((7, 3)), [1, 9], 0)),
    Case("flip", (T((2, 3)), 1)),
    Case("repeat", (T((2, 3)), 2, 1)),
    Case("repeat", (T((2, 3)), 2)),
    Case("tile", (T((2, 3)), (2, 1, 2))),
    Case("strided_slice", (T((8, 9)), [0, 1], [1, 2], [7, 8], [2, 3])),
    Case("strided_slice", (T((8,)), [0], [-1], [0], [-2])),
    Case("strided_slice", (T((8,)), [0], [-3], [100])),
    Case("take", (T((8, 9)), T((3,), "int64"), 1)),
    Case("take", (T((8,)), T((3, 2), "int32"))),
    Case("take", (T((8, 9)), T((3,), "int64"), 1), {"mode": "clip"}),
    Case("take", (T((8, 9)), T((3,), "int64"), 1), {"mode": "wrap"}),
    *(Case(r, (T((3, 4, 5)), a), {"keepdims": k}) for r in words("sum prod max min mean variance std")
      for a, k in (((0, 2), False), (1, True), (None, False))),
    *(Case(r, (T((3, 4)), a), {"keepdims": k}) for r in ("argmax", "argmin") for a, k in ((1, False), (None, True))),
    Case("sum", (T((3, 4), "bool"), 0)),
    Case("sum", (T((3, 4), "int8"), 0)),
    Case("mean", (T((3, 4), "int32"), 0)),
    Case("matmul", (T((3, 4)), T((4, 5)))),
    Case("matmul", (T((4,)), T((2, 4, 5)))),
    Case("matmul", (T((2, 1, 3, 4)), T((5, 4, 2)))),
    Case("matmul", (T((3, 4)), T((4,)))),
    Case("matmul", (T((4,)), T((4,)))),
    Case("matmul", (T((3, 4), "int8"), T((4, 5), "int8"), "int32")),
    Case("outer", (T((2,)), T((3,)))),
    Case("nn.softmax", (T((2, 3, 4)), 1)),
    Case("nn.log_softmax", (T((2, 3)),)),
    Case("nn.dropout", (T((2, 3)),)),
    Case("nn.layer_norm", (T((2, 3, 4)), T((3, 4)), T((3, 4)), (1, 2))),
    Case("nn.rms_norm", (T((2, 3)), T((3,)), -1)),
    *(Case("nn.batch_norm", (T((2, 4, 5)), T((4,)), T((4,)), T((4,)), T((4,))), {"axis": 1, "training": t})
      for t in (True, False)),
    Case("nn.instance_norm", (T((2, 4, 5)), T((4,)), T((4,))), {"channel_axis": 1, "axes": [2]}),
    Case("nn.group_norm", (T((2, 4, 5, 3)), T((4,)), T((4,))), {"num_groups": 2, "channel_axis": 1, "axes": [2, 3]}),
    Case("nn.group_norm", (T((2, 4, 5), "float16"), T((4,), "float16"), T((4,), "float16")),
         {"num_groups": 2, "channel_axis": 1, "axes": [2]}),
    Case("nn.adaptive_avg_pool2d", (T((1, 2, 8, 9)), (3, 4))),
    Case("nn.adaptive_avg_pool2d", (T((1, 2, 8, 9)), (4, 3))),
    Case("nn.adaptive_avg_pool1d", (T((1, 2, 8)), 3)),
    Case("nn.conv3d", (T((1, 2, 4, 5, 4)), T((3, 2, 2, 3, 2))), {"padding": 1, "strides": (1, 2, 1)}),
    Case("nn.conv1d", (T((1, 4, 9)), T((6, 2, 3))), {"groups": 2}),
    Case("nn.pad", (T((2, 3)), (1, 0, 2, 1)), {"pad_value": 2.5}),
    Case("nn.cross_entropy_with_logits", (T((2, 3)), T((2, 3)))),
    Case("nn.batch_flatten", (T((2, 3, 4)),)),
    Case("nn.conv1d", (T((2, 3, 9)), T((4, 3, 3))), {"strides": 2, "padding": 1}),
    Case("nn.conv2d", (T((2, 3, 8, 9)), T((4, 3, 3, 2))), {"padding": (1, 2), "strides": (2, 1)}),
    Case("nn.conv2d", (T((1, 4, 8, 9)), T((6, 2, 3, 3))), {"groups": 2, "dilation": 2}),
    Case("nn.conv2d", (T((1, 8, 9, 3)), T((4, 3, 3, 3))), {"data_layout": "NHWC", "kernel_layout": "OHWI"}),
    Case("nn.conv2d", (T((1, 8, 9, 3)), T((3, 3, 3, 4))), {"data_layout": "NHWC", "kernel_layout": "HWIO"}),
    *(Case(f"nn.{k}_pool2d", (T((1, 2, 8, 9)), *a), o) for k in ("max", "avg") for a, o in (
        (((2, 3), 2), {}), ((3, 2, 1), {}), ((3, 2, 1), {"ceil_mode": True}), ((2, 1, 0), {"dilation": 2}),
        ((3, 2, 1), {"count_include_pad": True}))),
    Case("nn.max_pool1d", (T((1, 2, 9)), 3, 2)),
    Case("gather_elements", (T((4, 3)), T((5, 3), "int64"))),
    Case("gather_elements", (T((4, 3)), T((4, 7), "int32"), -1)),
    Case("gather_nd", (T((3, 4, 5)), T((6, 2), "int64"))),
    Case("gather_nd", (T((3, 4, 5)), T((3, 6, 1), "int64")), {"batch_dims": 1}),
    Case("index_tensor", (T((3, 4, 5)), [T((2, 1), "int64"), T((3,), "int64")])),
    Case("reverse_sequence", (T((3, 4, 2)), T((3,), "int32"))),
    *(Case("scatter_elements", (T((4, 3)), T((5, 3), "int64"), T((5, 3)), 0, r))
      for r in ("update", "add", "mul", "min", "max", "mean")),
    *(Case("scatter_nd", (T((4, 3)), T((5, 1), "int64"), T((5, 3)), r)) for r in ("update", "add", "max")),
    Case("slice_scatter", (T((8, 3)), T((3, 3)), 1, 7, 2)),
    Case("index_put", (T((4, 3)), (T((5,), "int64"), T((5,), "int32")), T((5,)))),
    Case("index_put", (T((4, 3)), (T((5,), "int64"), T((5,), "int64")), T((5,)), True)),
    *(Case("sort", (T((3, 40), t), -1, d)) for t in ("float32", "int32") for d in (False, True)),
    *(Case("sort", (T((17, 20), t), -1, d)) for t in ("float32", "int32") for d in (False, True)),
    *(Case("argsort", (T((2, 70), t), 1, d)) for t in ("float32", "int32") for d in (False, True)),
    *(Case("argsort", (T((40, 3), t), 0, d)) for t in ("float32", "int32") for d in (False, True)),
    *(Case("topk", (T((3, 40), t), k, 1)) for t in ("float32", "int32") for k in (3, 20)),
    Case("topk", (T((3, 4)), 2, 0, "indices", False, "int64")),
    *(Case("median", (T((4, 5)), a, k)) for a in (None, 0, -1) for k in (False, True)),
    *(Case(s, (T((4, 5)), a, None, x)) for s in ("cumsum", "cumprod") for a in (None, 0, -1) for x in (False, True)),
    Case("cumsum", (T((4, 5), "int8"), 1, "int32")),
    Case("meshgrid", ([T((2,)), T((3,)), T((4,))],), {"indexing": "xy"}),
    Case("collapse_sum_to", (T((2, 3, 4)), (3, 1))),
    Case("collapse_sum_like", (T((2, 3, 4)), T((3, 4)))),
    Case("hamming_window", (9, True, 0.54, 0.46, "float32")),
    Case("einsum", ([T((2, 3, 4)), T((4, 5))], "...j,jk->...k")),
    Case("einsum", ([T((3, 3)), T((3,))], "ii,i->i")),
    Case("layout_transform", (T((7, 4)), lambda i, j: (i // 4, j, i % 4)), {"pad_value": 2.0}),
    Case("nn.avg_pool3d", (T((1, 2, 4, 5, 6)), 2, 2)),
    *numbers_nn.CASES,
]  # fmt: skip


def arrays(case: Case, params: list[relax.Var]) -> list[np.ndarray]:
    """One array per tensor of the call, as stored elements."""
    rng = np.random.default_rng(len(str(case)))
    made = []
    drawn = numbers_nn.DRAWN.get(case.name, {})
    for at, param in enumerate(params):
        info = param.struct_info
        assert isinstance(info, relax.TensorStructInfo) and info.dtype is not None
        shape = tuple(tir.const_int(d) or 0 for d in info.dims or ())
        if at in drawn:
            made.append(encode(drawn[at](rng, shape), info.dtype))
        else:
            made.append(_array(case, shape, info.dtype, rng))
    return made


def _array(case: Case, shape: tuple[int, ...], dtype: DType, rng: np.random.Generator) -> np.ndarray:
    if dtype.is_bool:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.is_int:
        low, high = (0, 3) if case.name in PLACES else (-5, 6)
        values = rng.integers(low, high, shape)
        return (np.where(values == 0, 1, values) if case.name in POSITIVE else values).astype(str(dtype))
    values = rng.uniform(-3, 3, shape)
    if case.name in POSITIVE:
        values = np.abs(values) + 1.25
    elif case.name in UNIT:
        values = values / 4
    return encode(values, dtype)


def expected(call: relax.Call, given: dict[relax.Var, np.ndarray]) -> list[Any]:
    """What the NumPy reference gives, as values in the dtypes that the struct info says; its shapes are checked."""
    op = get(call.op.name)
    assert op is not None and op.impl.numpy is not None
    result = op.impl.numpy(call, *(_value(a, given) for a in call.args))
    infos = call.struct_info.fields if isinstance(call.struct_info, relax.TupleStructInfo) else (call.struct_info,)
    results = result if isinstance(call.struct_info, relax.TupleStructInfo) else (result,)
    return [_checked(value, info) for value, info in zip(results, infos, strict=True)]


def _checked(value: Any, info: relax.StructInfo | None) -> Any:
    match info:
        case relax.TensorStructInfo(dims=dims, ndim=ndim, dtype=dtype):
            shape = np.shape(value)
            assert dtype is not None and len(shape) == ndim, "the number of dimensions that inference says"
            if dims is not None:
                assert shape == tuple(tir.const_int(d) for d in dims), "the shape that inference says"
            with np.errstate(all="ignore"):
                return decode(encode(value, dtype), dtype)
        case relax.ShapeStructInfo(values=values):
            dims = tuple(int(d) for d in value)
            assert values is None or dims == tuple(tir.const_int(v) for v in values), "the shape that inference says"
            return np.array(dims, "int64")
    return np.asarray(value)


def _value(expr: relax.Expr, given: dict[relax.Var, np.ndarray]) -> Any:
    match expr:
        case relax.Tuple(fields=fields):
            return tuple(_value(f, given) for f in fields)
        case relax.Constant(data=data):
            return data.array
        case relax.PrimValue(value=tir.IntImm(value=value) | tir.FloatImm(value=value)):
            return value
        case relax.ShapeExpr(values=values):
            return tuple(tir.const_int(v) for v in values)
        case relax.Var(struct_info=relax.TensorStructInfo(dtype=dtype)):
            assert dtype is not None
            return decode(given[expr], dtype)
    raise AssertionError(expr)
