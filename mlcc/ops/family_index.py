"""Index from operators (names without prefix) to the file of `mlcc/ops` that defines them.

Written by scripts/stubs.py from what is there at run time.
"""

_TABLE = """
unary abs acos acosh asin asinh atan atanh bitwise_not ceil clip cos cosh erf exp expm1 floor isfinite isinf isnan log
unary log1p logical_not negative nn.gelu nn.gelu_tanh nn.leakyrelu nn.prelu nn.relu nn.selu nn.silu nn.softplus round
unary rsqrt sigmoid sign sin sinh sqrt square tan tanh trunc
binary add atan2 bitwise_and bitwise_or bitwise_xor divide equal ewise_fma floor_divide floor_mod greater greater_equal
binary left_shift less less_equal log_add_exp logical_and logical_or logical_xor maximum minimum mod multiply not_equal
binary power right_shift subtract where
create arange astype eye eye_like full full_like hamming_window one_hot ones ones_like tril triu zeros zeros_like
manipulate broadcast_to expand_dims flatten flip permute_dims repeat reshape squeeze tile
join concat meshgrid split stack
index strided_slice take
reduce argmax argmin collapse_sum_like collapse_sum_to max mean min prod std sum variance
linalg matmul nn.dense outer
nn nn.batch_flatten nn.cross_entropy_with_logits nn.dropout nn.log_softmax nn.pixel_shuffle nn.softmax
norm nn.batch_norm nn.group_norm nn.instance_norm nn.layer_norm nn.rms_norm
pad nn.pad
conv nn.conv1d nn.conv2d nn.conv3d
conv_transpose nn.conv1d_transpose nn.conv2d_transpose nn.conv3d_transpose
pool nn.adaptive_avg_pool1d nn.adaptive_avg_pool2d nn.adaptive_avg_pool3d nn.avg_pool1d nn.avg_pool2d nn.avg_pool3d
pool nn.max_pool1d nn.max_pool2d nn.max_pool3d
attention nn.attention nn.attention_bias nn.attention_var_len
loss grad.nll_loss_backward nn.nll_loss
resize image.resize2d image.resize3d
sample image.affine_grid image.grid_sample
region vision.all_class_non_max_suppression vision.get_valid_counts vision.multibox_transform_loc
region vision.non_max_suppression vision.roi_align vision.roi_pool
detection vision.multiclass_nms vision.multiclass_nms_padded vision.valid_rows
quantize dequantize quantize
packed unpack_bits
grad grad.avg_pool2d_backward grad.max_pool2d_backward grad.take_backward
builtin assert_op builtin.alloc_tensor builtin.stop_lift_params call_builtin_with_ctx call_dps_packed
builtin call_inplace_packed call_pure_packed call_py_func call_tir call_tir_inplace call_tir_with_grad
builtin dist.annotate_sharding dist.call_tir_local_view dist.redistribute dist.redistribute_replica_to_shard
builtin grad.end_checkpoint grad.no_grad grad.start_checkpoint hint_on_device inspect.tensor_byte_offset
builtin inspect.tensor_dtype_bits inspect.tensor_dtype_code inspect.tensor_dtype_lanes inspect.tensor_elem_offset
builtin inspect.tensor_ndim inspect.tensor_shape_i inspect.tensor_stride_i invoke_closure invoke_pure_closure
builtin make_closure memory.alloc_storage memory.alloc_tensor memory.ensure_zero_offset memory.kill_storage
builtin memory.kill_tensor memory.view null_value print shape_of shape_to_tensor size tensor_to_shape to_vdevice
builtin vm.alloc_storage vm.alloc_tensor vm.call_tir_dyn vm.kill_object wrap_param
gather dynamic_strided_slice gather_elements gather_nd index_tensor reverse_sequence
scatter index_put scatter_elements scatter_nd slice_scatter
scatter_reduce scatter_reduce
scan bucketize cumprod cumsum multinomial_from_uniform
sort argsort median sort topk
einsum einsum
grouped nn.grouped_matmul
sets nonzero unique
layout layout_transform
ccl ccl.allgather ccl.allreduce ccl.broadcast_from_worker0 ccl.scatter_from_worker0
recurrent nn.gru nn.gru_steps nn.lstm nn.lstm_steps nn.rnn nn.rnn_steps
random random.bits random.integers random.normal random.uniform
signal signal.dft
"""
FAMILY_OF = {name: line.split()[0] for line in _TABLE.strip().splitlines() for name in line.split()[1:]}
