"""The signatures of all relax operators, in the order in which a call's text gives their parameters.

One line is `name(parameter, ...)`, names without their prefix `relax.`. A parameter without a kind is an argument of
the call (any graph-level expression; a number stands for a scalar). Kinds of arguments: `exprs` (a tuple), `shape`,
`scalar`, `scalars` (a tuple), `string`, `datatype`, `func` (a function, or the name of a packed one), `rest` (all
remaining positional arguments), `types` (struct info of the results). All other kinds are attributes: `int`, `ints`,
`ints2` (N numbers, one standing for all), `pads4` (numbers before and after each of N/2 dimensions, one or N/2
standing for all), `sections`, `float`, `floats`, `bool`, `str`, `dtype`, `any`. `?` admits None; so does `??`, and
the attribute is then not there at all. A default is a literal, or the name of a parameter whose value is taken.
"""

from __future__ import annotations

_UNARY = """abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh erf exp floor isfinite isinf isnan log
    logical_not negative round rsqrt sigmoid sign sin sinh sqrt square tan tanh trunc flatten nonzero
    nn.relu nn.gelu nn.gelu_tanh nn.selu nn.silu nn.batch_flatten
    shape_of shape_to_tensor tensor_to_shape size builtin.stop_lift_params
    grad.no_grad grad.start_checkpoint grad.end_checkpoint
    inspect.tensor_byte_offset inspect.tensor_dtype_bits inspect.tensor_dtype_code inspect.tensor_dtype_lanes
    inspect.tensor_elem_offset inspect.tensor_ndim memory.ensure_zero_offset ccl.broadcast_from_worker0"""
_BINARY = """add atan2 bitwise_and bitwise_or bitwise_xor divide equal floor_divide floor_mod greater greater_equal
    left_shift less less_equal log_add_exp logical_and logical_or logical_xor maximum minimum mod multiply not_equal
    outer power right_shift subtract"""
_REDUCE = "max mean median min prod std sum variance"

_CONV = """strides: ints{n} = 1, padding: pads{m} = 0, dilation: ints{n} = 1, groups: int = 1, data_layout: str = "{d}",
    kernel_layout: str = "{k}", out_layout: str? = data_layout, out_dtype: dtype? = None"""
_CONV_TRANSPOSE = _CONV.replace("dilation", "output_padding: ints{n} = 0, dilation")
_POOL = """pool_size: ints{n} = 1, strides: ints{n} = 1, padding: pads{m} = 0, dilation: ints{n} = 1,
    ceil_mode: bool = False, count_include_pad: bool = {include}, layout: str = "{d}", out_layout: str? = layout"""
_NORM = "epsilon: float = 1e-05, center: bool = True, scale: bool = True"
_RESIZE = """roi: floats{r} = 0.0, layout: str = "{d}", method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel", rounding_method: str = "{round}", cubic_alpha: float = -0.75,
    cubic_exclude: int = 0, extrapolation_value: float = 0.0, out_dtype: dtype? = None"""
_ATTENTION = "scale: any = None, causal_mask: str? = None, window_size: int? = None"
_LAYOUTS = ((1, "NCW", "OIW", "IOW"), (2, "NCHW", "OIHW", "IOHW"), (3, "NCDHW", "OIDHW", "IODHW"))

_OTHERS = """
arange(start: scalar, end: scalar, step: scalar, dtype: dtype)
argmax(x, axis: int? = None, keepdims: bool = False)
argmin(x, axis: int? = None, keepdims: bool = False)
argsort(data, axis: int = -1, descending: bool = False, dtype: dtype = "int32")
assert_op(condition, format: string, values: rest)
astype(x, dtype: dtype)
broadcast_to(x, shape: shape)
bucketize(input_tensor, boundaries, out_int32: bool = False, right: bool = False)
builtin.alloc_tensor(shape: shape, dtype: datatype, runtime_device_index: scalar = 0, storage_scope: string = "global")
call_builtin_with_ctx(func: func, args: exprs, sinfo_args: types = None)
call_dps_packed(func: func, args: exprs, out_sinfo: types)
call_inplace_packed(func: func, args: rest, inplace_indices: ints, sinfo_args: types)
call_pure_packed(func: func, args: rest, sinfo_args: types)
call_py_func(func_name: string, args: exprs, out_sinfo: types)
call_tir(gvar: func, args: exprs, out_sinfo: types, tir_vars: shape? = None)
call_tir_inplace(gvar: func, args: exprs, inplace_indices: ints, out_sinfo: types, tir_vars: shape? = None)
call_tir_with_grad(gvar: func, args: exprs, out_sinfo: types, te_grad_name: str, te_grad_kwargs: any = None)
ccl.allgather(x, num_workers: int, in_group: bool = True)
ccl.allreduce(x, op_type: str = "sum", in_group: bool = True)
ccl.scatter_from_worker0(x, num_workers: int, axis: int = 0)
clip(x, min: scalar, max: scalar)
collapse_sum_like(data, collapse_target)
collapse_sum_to(data, shape: shape)
concat(tensors: exprs, axis: int? = 0)
cumprod(data, axis: int? = None, dtype: dtype? = None, exclusive: bool = False)
cumsum(data, axis: int? = None, dtype: dtype? = None, exclusive: bool = False)
dequantize(data, scale, zero_point, axis: int = -1, out_dtype: dtype = "float32")
dist.annotate_sharding(input, device_mesh: any, placement: any)
dist.call_tir_local_view(gvar: func, args: exprs, out_sinfo: types, tir_vars: shape? = None)
dist.redistribute(input, device_mesh: any, placement: any)
dist.redistribute_replica_to_shard(input, num_workers: int, axis: int)
dynamic_strided_slice(x, begin, end, strides)
einsum(operands: exprs, subscripts: str)
ewise_fma(x1, x2, x3)
expand_dims(x, axis: ints)
eye(n: scalar, m: scalar = n, k: scalar = 0, dtype: dtype? = "float32")
eye_like(x, k: scalar = 0, dtype: dtype? = None)
flip(data, axis: int)
full(shape: shape, fill_value, dtype: dtype? = None)
full_like(x, fill_value, dtype: dtype? = None)
gather_elements(data, indices, axis: int = 0)
gather_nd(data, indices, batch_dims: int = 0)
grad.nll_loss_backward(output_grad, predictions, targets, weights = None, reduction: str = "mean", ignore_index: int = -100)
grad.take_backward(output_grad, x, indices, axis: int? = None, mode: str = "")
hamming_window(window_size: scalar, periodic: scalar, alpha: scalar, beta: scalar, dtype: dtype)
hint_on_device(data, dst_vdevice: any, memory_scope: str = "global")
image.affine_grid(data, size: shape, align_corners: bool = True)
image.grid_sample(data, grid, method: str = "bilinear", layout: str = "NCHW", padding_mode: str = "zeros", align_corners: bool = False)
index_put(data, indices: exprs, values, accumulate: bool = False)
index_tensor(data, indices: exprs)
inspect.tensor_shape_i(tensor, axis: scalar)
inspect.tensor_stride_i(tensor, axis: scalar)
invoke_closure(closure, args: exprs, sinfo_args: types)
invoke_pure_closure(closure, args: exprs, sinfo_args: types)
layout_transform(x, index_map: any, pad_value: any = None, axis_separators: ints?? = None, input_axis_separators: ints?? = None)
make_closure(func: func, args: exprs)
matmul(x1, x2, out_dtype: dtype? = None)
memory.alloc_storage(size: shape, virtual_device_index: scalar, storage_scope: string, dtype: datatype)
memory.alloc_tensor(storage, offset: scalar, shape: shape, dtype: datatype, runtime_device_index: scalar = 0)
memory.kill_storage(storage)
memory.kill_tensor(tensor)
memory.view(data, shape: shape? = None, dtype: datatype? = None, relative_byte_offset: scalar? = None)
meshgrid(tensors: exprs, indexing: str? = "ij")
multinomial_from_uniform(prob, uniform_sample, sample_indices, dtype: dtype = "int64")
nn.attention(query, key, value, {attention})
nn.attention_bias(query, key, value, bias, {attention})
nn.attention_var_len(query, key, value, seqstart_q, seqstart_k, max_seqlen_q, max_seqlen_k, {attention})
nn.batch_norm(data, gamma, beta, moving_mean, moving_var, axis: int, {norm}, momentum: float = 0.1, training: bool = True)
nn.cross_entropy_with_logits(predictions, labels)
nn.dense(data, weight)
nn.dropout(data, rate: float = 0.5)
nn.group_norm(data, gamma, beta, num_groups: int, channel_axis: int, axes: ints, {norm})
nn.instance_norm(data, gamma, beta, channel_axis: int, axes: ints, {norm})
nn.layer_norm(data, gamma, beta, axes: ints, {norm})
nn.leakyrelu(data, alpha: float = 0.01)
nn.log_softmax(data, axis: int = -1)
nn.nll_loss(predictions, targets, weights = None, reduction: str = "mean", ignore_index: int = -100)
nn.pad(data, pad_width: ints, pad_mode: str = "constant", pad_value: float = 0.0)
nn.pixel_shuffle(data, upscale_factor: int)
nn.prelu(data, alpha, axis: int = 1)
nn.rms_norm(data, weight, axes: ints = -1, epsilon: float = 1e-05)
nn.softmax(data, axis: int = -1)
nn.softplus(data, beta: float = 1.0, threshold: float = 20.0)
null_value()
one_hot(indices, on_value: scalar, off_value: scalar, depth: int, axis: int = -1)
ones(shape: shape, dtype: dtype)
ones_like(x, dtype: dtype? = None)
permute_dims(x, axes: ints? = None)
print(format: string, values: rest)
quantize(data, scale, zero_point, axis: int = -1, out_dtype: dtype = "int8")
repeat(data, repeats: int, axis: int? = None)
reshape(x, shape: shape)
reverse_sequence(data, seq_lengths, seq_axis: int = 1, batch_axis: int = 0)
scatter_elements(data, indices, updates, axis: int = 0, reduction: str = "update")
scatter_nd(data, indices, updates, reduction: str = "update")
slice_scatter(input_tensor, src, start: scalar, end: scalar, step: scalar, axis: int = 0)
sort(data, axis: int = -1, descending: bool = False)
split(x, indices_or_sections: sections, axis: int = 0)
squeeze(x, axis: ints? = None)
stack(tensors: exprs, axis: int? = 0)
strided_slice(x, axes: scalars, begin: scalars, end: scalars, strides: scalars? = None, assume_inbound: bool = False)
take(x, indices, axis: int? = None, mode: str = "fast")
tile(data, repeats: ints)
to_vdevice(data, dst_vdevice: any)
topk(data, k: int = 1, axis: int = -1, ret_type: str = "both", largest: bool = True, dtype: dtype = "int32")
tril(x, k: scalar = 0)
triu(x, k: scalar = 0)
unique(x, sorted: scalar = True, return_index: scalar = False, return_inverse: scalar = False, return_counts: scalar = False, axis: scalar? = None)
vision.all_class_non_max_suppression(boxes, scores, max_output_boxes_per_class, iou_threshold, score_threshold, output_format: str = "onnx")
vision.get_valid_counts(data, score_threshold: float = 0.0, id_index: int = 0, score_index: int = 1)
vision.multibox_transform_loc(cls_pred, loc_pred, anchor, clip: bool = False, threshold: float = 0.0, variances: floats4 = 1.0, keep_background: bool = True, apply_softmax: bool = True)
vision.non_max_suppression(data, valid_count, indices, max_output_size: int = -1, iou_threshold: float = 0.5, force_suppress: bool = False, top_k: int = -1, coord_start: int = 2, score_index: int = 1, id_index: int = 0, return_indices: bool = True, invalid_to_bottom: bool = False, soft_nms_sigma: float = 0.0, score_threshold: float = 0.0)
vision.roi_align(data, rois, pooled_size: ints2, spatial_scale: float, sample_ratio: int = -1, aligned: bool = False, layout: str = "NCHW", mode: str = "avg")
vision.roi_pool(data, rois, pooled_size: ints2, spatial_scale: float, layout: str = "NCHW")
vm.alloc_storage(size: shape, runtime_device_index: scalar, dtype: datatype, storage_scope: string = "global")
vm.alloc_tensor(storage, offset: scalar, shape: shape, dtype: datatype, runtime_device_index: scalar = 0)
vm.call_tir_dyn(func: func, args: exprs)
vm.kill_object(obj)
where(condition, x1, x2)
wrap_param(data, dtype: dtype = "float32")
zeros(shape: shape, dtype: dtype)
zeros_like(x, dtype: dtype? = None)
"""  # noqa: E501

_POOL_ORDER = ("pool_size", "strides", "dilation", "padding", "ceil_mode", "count_include_pad", "layout", "out_layout")
_POOLS = (*(f"nn.{kind}_pool{n}d" for kind in ("max", "avg") for n in (1, 2, 3)), "grad.max_pool2d_backward",
          "grad.avg_pool2d_backward")  # fmt: skip

# Attributes that text gives in another order than a call's parameters have.
ATTR_ORDER = {
    "quantize": ("out_dtype", "axis"),
    "dequantize": ("out_dtype", "axis"),
    "nn.pad": ("pad_width", "pad_value", "pad_mode"),
    **dict.fromkeys(_POOLS, _POOL_ORDER),
}

# Names that older texts, or other spellings, use.
ALIASES = {
    "alloc_tensor": "builtin.alloc_tensor",
    "nn.leaky_relu": "nn.leakyrelu",
    "nn.flatten": "flatten",
    "concatenate": "concat",
    "transpose": "permute_dims",
    "stop_lift_params": "builtin.stop_lift_params",
}

# Parameter names that older or newer texts give in place of the table's.
PARAM_ALIASES = {
    "out_ty": "out_sinfo",
    "ty_args": "sinfo_args",
    "type_args": "sinfo_args",
    "runtime_device_ind": "runtime_device_index",
    "format_args": "values",
}


def lines() -> dict[str, str]:
    """Every operator's parameter list as text, by its name without prefix."""
    made: dict[str, str] = {}
    for name in _UNARY.split():
        made[name] = "x"
    for name in _BINARY.split():
        made[name] = "x1, x2"
    for name in _REDUCE.split():
        made[name] = "x, axis: ints? = None, keepdims: bool = False"
    for n, data, kernel, transposed in _LAYOUTS:
        sizes = {"n": n, "m": 2 * n, "d": data}
        made[f"nn.conv{n}d"] = f"data, weight, {_CONV.format(k=kernel, **sizes)}"
        made[f"nn.conv{n}d_transpose"] = f"data, weight, {_CONV_TRANSPOSE.format(k=transposed, **sizes)}"
        made[f"nn.max_pool{n}d"] = f"data, {_POOL.format(include=False, **sizes)}"
        made[f"nn.avg_pool{n}d"] = f"data, {_POOL.format(include=n != 2, **sizes)}"
        made[f"nn.adaptive_avg_pool{n}d"] = (
            f'data, output_size: ints{n}? = None, layout: str = "{data}", out_layout: str? = layout'
        )
    for kind in ("max", "avg"):
        pool = _POOL.format(n=2, m=4, d="NCHW", include=False)
        made[f"grad.{kind}_pool2d_backward"] = f"output_grad, data, {pool}"
    made["image.resize2d"] = "data, size: shape, " + _RESIZE.format(r=4, d="NCHW", round="round")
    made["image.resize3d"] = "data, size: shape, " + _RESIZE.format(r=6, d="NCDHW", round="")
    for line in _OTHERS.strip().splitlines():
        name, _, rest = line.partition("(")
        made[name] = rest[:-1].replace("{norm}", _NORM).replace("{attention}", _ATTENTION)
    return made
