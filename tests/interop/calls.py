"""One call of every operator that TVM's text can spell, as text: parameters by dtype and shape, and the call."""

from __future__ import annotations

# `x`, `y`, `z` are float32 tensors of shape (4, 6); `m` is bool, `i` int64, `v` (6,), `s` a scalar, `b` (2, 4, 6);
# `c` is (1, 4, 8, 8), `k` (3, 4, 3, 3), `w` (1, 4, 8), `u` (3, 4, 3), `d` (1, 4, 6, 6, 6), `e` (3, 4, 3, 3, 3)
PARAMS = {
    "x": 'R.Tensor((4, 6), dtype="float32")', "y": 'R.Tensor((4, 6), dtype="float32")',
    "z": 'R.Tensor((4, 6), dtype="float32")', "m": 'R.Tensor((4, 6), dtype="bool")',
    "i": 'R.Tensor((4, 6), dtype="int64")', "j": 'R.Tensor((4, 6), dtype="int32")', "v": 'R.Tensor((6,), dtype="float32")',
    "s": 'R.Tensor((), dtype="float32")', "b": 'R.Tensor((2, 4, 6), dtype="float32")',
    "c": 'R.Tensor((1, 4, 8, 8), dtype="float32")', "k": 'R.Tensor((3, 4, 3, 3), dtype="float32")',
    "w": 'R.Tensor((1, 4, 8), dtype="float32")', "u": 'R.Tensor((3, 4, 3), dtype="float32")',
    "d": 'R.Tensor((1, 4, 6, 6, 6), dtype="float32")', "e": 'R.Tensor((3, 4, 3, 3, 3), dtype="float32")',
    "q": 'R.Tensor((2, 5, 3, 8), dtype="float32")', "l": 'R.Tensor((2,), dtype="int64")',
    "n": 'R.Tensor((3,), dtype="int64")', "t": 'R.Tuple(R.Tensor((4, 6), dtype="float32"), R.Tensor((4, 6), dtype="float32"))',
    "h": "R.Shape([4, 6])", "o": "R.Any", "g": 'R.Tensor((4,), dtype="float32")', "a": 'R.Tensor((4, 6), dtype="int8")',
    "z0": 'R.Tensor((), dtype="int8")',
}  # fmt: skip

UNARY = """abs acos acosh asin asinh atan atanh ceil cos cosh erf exp floor isfinite isinf isnan log negative round rsqrt
sigmoid sign sin sinh sqrt square tan tanh trunc nn.relu nn.gelu nn.gelu_tanh nn.selu nn.silu""".split()
BINARY = """add atan2 divide equal floor_divide floor_mod greater greater_equal less less_equal log_add_exp maximum minimum
mod multiply not_equal power subtract""".split()
INTEGER = "bitwise_and bitwise_or bitwise_xor left_shift right_shift add multiply floor_divide mod maximum".split()
REDUCE = "max mean median min prod std sum variance".split()

CALLS = [
    *(f"R.{name}(x)" for name in UNARY),
    *(f"R.{name}(x, v)" for name in BINARY),
    *(f"R.{name}(i, i)" for name in INTEGER),
    *(f"R.logical_{name}(m, m)" for name in ("and", "or", "xor")),
    *(f"R.{name}(x)" for name in REDUCE),
    *(f"R.{name}(x, axis=[1], keepdims=True)" for name in REDUCE),
    "R.logical_not(m)", "R.bitwise_not(i)", "R.clip(x, 0, 6)", "R.clip(x, -1.5, 2.5)", "R.ewise_fma(x, y, z)",
    'R.astype(x, "float16")', 'R.astype(x, dtype="int8")', "R.where(m, x, y)", "R.matmul(x, R.permute_dims(y))",
    'R.matmul(x, R.permute_dims(y, axes=[1, 0]), out_dtype="float64")', "R.outer(v, v)", "R.linear(x, y)",
    'R.einsum((x, y), subscripts="ij,ij->i")', "R.argmax(x)", "R.argmin(x, axis=1, keepdims=True)",
    "R.argsort(x)", 'R.argsort(x, axis=0, descending=True, dtype="int64")', "R.sort(x)", "R.sort(x, axis=0, descending=True)",
    "R.topk(x, k=2)", 'R.topk(x, 3, axis=0, ret_type="values", largest=False, dtype="int64")',
    "R.cumsum(x, axis=0)", 'R.cumsum(x, axis=1, dtype="float64", exclusive=True)', "R.cumprod(x, axis=0)",
    "R.broadcast_to(v, (4, 6))", "R.concat((x, y))", "R.concat((x, y), axis=1)", "R.concat(t, axis=None)",
    "R.expand_dims(x, axis=1)", "R.expand_dims(x, axis=[0, 2])", "R.flatten(x)", "R.flip(x, axis=0)", "R.permute_dims(b)",
    "R.permute_dims(b, axes=[2, 0, 1])", "R.reshape(x, (2, 12))", "R.reshape(x, (-1, 3))", "R.reshape(x, (24,))",
    "R.split(x, 2)", "R.split(x, [1, 3], axis=0)", "R.split(x, indices_or_sections=3, axis=1)", "R.squeeze(w)",
    "R.squeeze(w, axis=0)", "R.squeeze(w, axis=[0])", "R.stack((x, y))", "R.stack((x, y), axis=1)", "R.tile(x, 2)",
    "R.tile(x, (2, 1, 3))", "R.repeat(x, 2)", "R.repeat(x, 2, axis=1)", "R.take(x, l, axis=0)", 'R.take(v, l, mode="wrap")',
    "R.gather_elements(x, i, axis=1)", "R.gather_nd(b, i)", "R.strided_slice(x, axes=[0], begin=[1], end=[3])",
    "R.strided_slice(x, [0, 1], [0, 1], [4, 5], [2, 1])", "R.strided_slice(x, [0], [1], [3], assume_inbound=True)",
    "R.dynamic_strided_slice(x, l, l, l)", "R.scatter_elements(x, i, y, axis=1)",
    'R.scatter_elements(x, i, y, axis=0, reduction="add")', 'R.scatter_nd(x, i, y, reduction="update")',
    "R.collapse_sum_like(x, v)", "R.collapse_sum_to(x, (6,))", "R.meshgrid((v, g))", 'R.meshgrid((v, g), indexing="xy")',
    "R.one_hot(j, R.prim_value(T.float32(1)), R.prim_value(T.float32(0)), depth=5)",
    "R.one_hot(j, R.prim_value(T.float32(1)), R.prim_value(T.float32(0)), depth=5, axis=1)",
    'R.full((2, 3), R.const(1.0, "float32"))', 'R.full((2, 3), s, dtype="float16")', "R.full_like(x, s)",
    'R.full_like(x, s, dtype="float16")', 'R.ones((2, 3), dtype="float32")', "R.ones_like(x)", 'R.zeros((2, 3), "int32")',
    'R.zeros_like(x, dtype="float64")', 'R.eye(3, dtype="float32")', 'R.eye(3, 4, 1, dtype="int64")', "R.eye_like(x)",
    "R.eye_like(x, k=1)", "R.arange(5)", 'R.arange(1, 9, 2, dtype="float32")', "R.tril(x)", "R.tril(x, k=1)", "R.triu(x, -1)",
    'R.hamming_window(8, True, 0.54, 0.46, dtype="float32")', "R.unique(x)",
    "R.unique(x, sorted=False, return_index=True, return_inverse=True, return_counts=True, axis=0)", "R.nonzero(x)",
    "R.bucketize(x, v)", "R.bucketize(x, v, out_int32=True, right=True)", "R.size(x)", "R.shape_of(x)",
    "R.shape_to_tensor(h)", "R.tensor_to_shape(l)", "R.index_tensor(x, (l,))", "R.index_put(x, (l, l), s)",
    "R.index_put(x, (l, l), s, accumulate=True)", "R.slice_scatter(x, y, 0, 4, 1, axis=0)",
    "R.multinomial_from_uniform(x, x, i, dtype='int64')".replace("'", '"'), "R.reverse_sequence(x, l)",
    "R.nn.softmax(x)", "R.nn.softmax(x, axis=0)", "R.nn.log_softmax(x, axis=1)", "R.nn.leakyrelu(x)",
    "R.nn.leakyrelu(x, alpha=0.2)", "R.nn.softplus(x)", "R.nn.softplus(x, beta=2.0, threshold=10.0)", "R.nn.prelu(x, v)",
    "R.nn.prelu(x, v, axis=1)", "R.nn.dropout(x, rate=0.3)", "R.nn.pad(x, pad_width=[1, 1, 2, 0])",
    'R.nn.pad(x, [1, 1, 0, 0], pad_mode="reflect")', 'R.nn.pad(x, (0, 0, 1, 1), "constant", 2.5)',
    "R.nn.layer_norm(x, v, v, axes=[-1])", "R.nn.layer_norm(x, v, v, [1], epsilon=0.001, center=False, scale=False)",
    "R.nn.rms_norm(x, v, axes=-1)", "R.nn.rms_norm(x, v, axes=[1], epsilon=1e-06)",
    "R.nn.group_norm(c, g, g, num_groups=2, channel_axis=1, axes=[2, 3])", "R.nn.instance_norm(c, g, g, axes=[2, 3])",
    "R.nn.batch_norm(c, g, g, g, g, axis=1)",
    "R.nn.batch_norm(c, g, g, g, g, axis=1, epsilon=0.01, center=False, scale=True, momentum=0.2, training=False)",
    "R.nn.batch_flatten(c)", "R.nn.cross_entropy_with_logits(x, y)", "R.nn.nll_loss(x, R.argmax(y, axis=1), v)",
    'R.nn.nll_loss(x, R.argmax(y, axis=1), v, reduction="sum", ignore_index=1)', "R.nn.conv1d(w, u)",
    "R.nn.conv1d(w, u, strides=2, padding=1, dilation=1, groups=1)", "R.nn.conv2d(c, k)",
    "R.nn.conv2d(c, k, strides=(2, 1), padding=(1, 0))",
    'R.nn.conv2d(c, k, strides=1, padding=(1, 2, 3, 4), dilation=(1, 2), data_layout="NCHW", kernel_layout="OIHW")',
    'R.nn.conv2d(c, k, out_layout="NHWC", out_dtype="float16")', "R.nn.conv3d(d, e, padding=1)",
    "R.nn.conv1d_transpose(w, R.permute_dims(u, axes=[1, 0, 2]), strides=2, padding=1, output_padding=1)",
    "R.nn.conv2d_transpose(c, R.permute_dims(k, axes=[1, 0, 2, 3]), strides=(2, 2), output_padding=(1, 0))",
    "R.nn.max_pool1d(w, 2)", "R.nn.max_pool2d(c)", "R.nn.max_pool2d(c, pool_size=(2, 3), strides=2, padding=1, ceil_mode=True)",
    "R.nn.max_pool3d(d, 2, strides=2)", "R.nn.avg_pool1d(w, 2, strides=2)", "R.nn.avg_pool2d(c, (2, 2), count_include_pad=True)",
    'R.nn.avg_pool2d(c, 2, layout="NCHW", out_layout="NHWC")', "R.nn.avg_pool3d(d, pool_size=[2, 2, 2])",
    "R.nn.adaptive_avg_pool1d(w, 4)", "R.nn.adaptive_avg_pool2d(c)", "R.nn.adaptive_avg_pool2d(c, output_size=[2, 3])",
    "R.nn.adaptive_avg_pool3d(d, 2)", "R.nn.attention(q, q, q)", 'R.nn.attention(q, q, q, scale=R.prim_value(T.float32(0.5)))',
    'R.nn.attention(q, q, q, causal_mask="TopLeft", window_size=2)', "R.nn.pixel_shuffle(c, upscale_factor=2)",
    'R.image.resize2d(c, (16, 16))', 'R.image.resize2d(c, (16, 16), method="nearest_neighbor", layout="NCHW")',
    'R.image.resize2d(c, 4, coordinate_transformation_mode="align_corners", rounding_method="round", cubic_alpha=-0.5)',
    'R.quantize(x, s, z0, axis=0, out_dtype="int8")', "R.dequantize(a, s, z0)",
    'R.builtin.alloc_tensor(R.shape([2, 3]), R.dtype("float32"), R.prim_value(0))', "R.builtin.stop_lift_params(x)",
    'R.layout_transform(x, index_map=lambda a, b: (b, a))', "R.null_value()", "R.grad.no_grad(x)",
    "R.memory.view(x, R.shape([2, 12]))", "R.memory.ensure_zero_offset(x)", 'R.hint_on_device(x, R.device("cpu", 0))',
    'R.call_pure_packed("f", x, ty_args=R.Tensor((4, 6), dtype="float32"))',
    'R.call_inplace_packed("f", x, inplace_indices=[0], ty_args=R.Tensor((4, 6), dtype="float32"))',
    'R.call_dps_packed("f", (x, y), out_ty=R.Tensor((4, 6), dtype="float32"))',
    'R.call_dps_packed("f", x, out_ty=[R.Tensor((4, 6), dtype="float32"), R.Tensor((4,), dtype="int8")])',
    'R.call_packed("f", x, R.str("a"), R.prim_value(3), R.shape([2, 3]), R.dtype("int8"), ty_args=R.Any)',
    'R.call_packed("f", x, R.tuple(y, z), ty_args=[R.Tensor, R.Tuple(R.Shape(ndim=2), R.Any)])',
    'R.call_builtin_with_ctx("vm.builtin.f", (x,), ty_args=R.Tensor((4, 6), dtype="float32"))',
    "(x, (y, z))", "R.tuple()", "t[1]", "R.shape([2, 3])", 'R.const([1.0, 2.0], "float32")', 'R.const(3, "int64")',
    'R.str("a")', 'R.dtype("int8")', "R.prim_value(3)",
]  # fmt: skip


def module_text(call: str) -> str:
    """A module whose `main` binds the value of the call."""
    params = ", ".join(f"{name}: {info}" for name, info in PARAMS.items())
    return f"""
@I.ir_module
class Module:
    @R.function(pure=False)
    def main({params}):
        out = {call}
        return out
"""
