"""All operators as functions: `op.add(x, y)`, `op.nn.softmax(x, axis=-1)`.

Written by scripts/stubs.py from what is there at run time.
"""

from collections.abc import Sequence as _Sequence
from typing import Any as _Any
from typing import Protocol as _Protocol
from typing import TypeAlias as _TypeAlias

from mlcc.ir import relax as _relax
from mlcc.ir import tir as _tir
from mlcc.ir.dtypes import DType as _DType
from mlcc.relax.calls import call_dps_packed as call_dps_packed
from mlcc.relax.calls import call_pure_packed as call_pure_packed
from mlcc.relax.calls import call_tir as call_tir
from mlcc.relax.calls import call_tir_inplace as call_tir_inplace
from mlcc.relax.op_call import call as call
from mlcc.te.scalar import Value as _Value

class _Array(_Protocol):
    """A tensor of NumPy or another library."""
    def __dlpack__(self, *args: _Any, **kwargs: _Any) -> _Any: ...

_Scalar: _TypeAlias = int | float | _relax.Expr | _tir.Expr | _Value
_Expr: _TypeAlias = _Scalar | _Array
_Exprs: _TypeAlias = _relax.Expr | _Sequence[_Expr]
_Shape: _TypeAlias = _relax.Expr | _Sequence[_Scalar]
_Info: _TypeAlias = _relax.StructInfo | _Sequence[_relax.StructInfo]
_Dtype: _TypeAlias = str | type | _DType

def abs(x: _Expr) -> _relax.Call: ...
def acos(x: _Expr) -> _relax.Call: ...
def acosh(x: _Expr) -> _relax.Call: ...
def add(x1: _Expr, x2: _Expr) -> _relax.Call: ...
def alloc_tensor(
    shape: _Shape,
    dtype: _Dtype,
    runtime_device_index: _Scalar = 0,
    storage_scope: str = "global",
) -> _relax.Call: ...
def arange(start: _Scalar, end: _Scalar, step: _Scalar, dtype: _Dtype) -> _relax.Call: ...
def argmax(x: _Expr, axis: int | None = None, keepdims: bool = False) -> _relax.Call: ...
def argmin(x: _Expr, axis: int | None = None, keepdims: bool = False) -> _relax.Call: ...
def argsort(data: _Expr, axis: int = -1, descending: bool = False, dtype: _Dtype = "int32") -> _relax.Call: ...
def asin(x: _Expr) -> _relax.Call: ...
def asinh(x: _Expr) -> _relax.Call: ...
def assert_op(condition: _Expr, format: str, *values: _Expr) -> _relax.Call: ...
def astype(x: _Expr, dtype: _Dtype) -> _relax.Call: ...
def atan(x: _Expr) -> _relax.Call: ...
def atan2(x1: _Expr, x2: _Expr) -> _relax.Call: ...
def atanh(x: _Expr) -> _relax.Call: ...
def bitwise_and(x1: _Expr, x2: _Expr) -> _relax.Call: ...
def bitwise_not(x: _Expr) -> _relax.Call: ...
def bitwise_or(x1: _Expr, x2: _Expr) -> _relax.Call: ...
def bitwise_xor(x1: _Expr, x2: _Expr) -> _relax.Call: ...
def broadcast_to(x: _Expr, shape: _Shape) -> _relax.Call: ...
def bucketize(input_tensor: _Expr, boundaries: _Expr, out_int32: bool = False, right: bool = False) -> _relax.Call: ...
def call_builtin_with_ctx(func: str | _relax.Expr, args: _Exprs, sinfo_args: _Info | None = None) -> _relax.Call: ...
def call_inplace_packed(
    func: str | _relax.Expr,
    *args: _Expr,
    inplace_indices: int | _Sequence[int],
    sinfo_args: _Info,
) -> _relax.Call: ...
def call_py_func(func_name: str, args: _Exprs, out_sinfo: _Info) -> _relax.Call: ...
def call_tir_with_grad(
    gvar: str | _relax.Expr,
    args: _Exprs,
    out_sinfo: _Info,
    te_grad_name: str,
    te_grad_kwargs: _Any = None,
) -> _relax.Call: ...
def ceil(x: _Expr) -> _relax.Call: ...
def clip(x: _Expr, min: _Scalar, max: _Scalar) -> _relax.Call: ...
def collapse_sum_like(data: _Expr, collapse_target: _Expr) -> _relax.Call: ...
def collapse_sum_to(data: _Expr, shape: _Shape) -> _relax.Call: ...
def concat(tensors: _Exprs, axis: int | None = 0) -> _relax.Call: ...
def concatenate(tensors: _Exprs, axis: int | None = 0) -> _relax.Call: ...
def cos(x: _Expr) -> _relax.Call: ...
def cosh(x: _Expr) -> _relax.Call: ...
def cumprod(data: _Expr, axis: int | None = None, dtype: _Dtype | None = None, exclusive: bool = False) -> _relax.Call: ...
def cumsum(data: _Expr, axis: int | None = None, dtype: _Dtype | None = None, exclusive: bool = False) -> _relax.Call: ...
def dequantize(
    data: _Expr,
    scale: _Expr,
    zero_point: _Expr,
    axis: int = -1,
    out_dtype: _Dtype = "float32",
) -> _relax.Call: ...
def divide(x1: _Expr, x2: _Expr) -> _relax.Call: ...
def dynamic_strided_slice(x: _Expr, begin: _Expr, end: _Expr, strides: _Expr) -> _relax.Call: ...
def einsum(operands: _Exprs, subscripts: str) -> _relax.Call: ...
def equal(x1: _Expr, x2: _Expr) -> _relax.Call: ...
def erf(x: _Expr) -> _relax.Call: ...
def ewise_fma(x1: _Expr, x2: _Expr, x3: _Expr) -> _relax.Call: ...
def exp(x: _Expr) -> _relax.Call: ...
def expand_dims(x: _Expr, axis: int | _Sequence[int]) -> _relax.Call: ...
def expm1(x: _Expr) -> _relax.Call: ...
def eye(n: _Scalar, m: _Scalar | None = None, k: _Scalar = 0, dtype: _Dtype | None = "float32") -> _relax.Call: ...
def eye_like(x: _Expr, k: _Scalar = 0, dtype: _Dtype | None = None) -> _relax.Call: ...
def flatten(x: _Expr) -> _relax.Call: ...
def flip(data: _Expr, axis: int) -> _relax.Call: ...
def floor(x: _Expr) -> _relax.Call: ...
def floor_divide(x1: _Expr, x2: _Expr) -> _relax.Call: ...
def floor_mod(x1: _Expr, x2: _Expr) -> _relax.Call: ...
def full(shape: _Shape, fill_value: _Expr, dtype: _Dtype | None = None) -> _relax.Call: ...
def full_like(x: _Expr, fill_value: _Expr, dtype: _Dtype | None = None) -> _relax.Call: ...
def gather_elements(data: _Expr, indices: _Expr, axis: int = 0) -> _relax.Call: ...
def gather_nd(data: _Expr, indices: _Expr, batch_dims: int = 0) -> _relax.Call: ...
def greater(x1: _Expr, x2: _Expr) -> _relax.Call: ...
def greater_equal(x1: _Expr, x2: _Expr) -> _relax.Call: ...
def hamming_window(
    window_size: _Scalar,
    periodic: _Scalar,
    alpha: _Scalar,
    beta: _Scalar,
    dtype: _Dtype,
) -> _relax.Call: ...
def hint_on_device(data: _Expr, dst_vdevice: _Any, memory_scope: str = "global") -> _relax.Call: ...
def index_put(data: _Expr, indices: _Exprs, values: _Expr, accumulate: bool = False) -> _relax.Call: ...
def index_tensor(data: _Expr, indices: _Exprs) -> _relax.Call: ...
def invoke_closure(closure: _Expr, args: _Exprs, sinfo_args: _Info) -> _relax.Call: ...
def invoke_pure_closure(closure: _Expr, args: _Exprs, sinfo_args: _Info) -> _relax.Call: ...
def isfinite(x: _Expr) -> _relax.Call: ...
def isinf(x: _Expr) -> _relax.Call: ...
def isnan(x: _Expr) -> _relax.Call: ...
def layout_transform(
    x: _Expr,
    index_map: _Any,
    pad_value: _Any = None,
    axis_separators: int | _Sequence[int] | None = None,
    input_axis_separators: int | _Sequence[int] | None = None,
) -> _relax.Call: ...
def left_shift(x1: _Expr, x2: _Expr) -> _relax.Call: ...
def less(x1: _Expr, x2: _Expr) -> _relax.Call: ...
def less_equal(x1: _Expr, x2: _Expr) -> _relax.Call: ...
def log(x: _Expr) -> _relax.Call: ...
def log1p(x: _Expr) -> _relax.Call: ...
def log_add_exp(x1: _Expr, x2: _Expr) -> _relax.Call: ...
def logical_and(x1: _Expr, x2: _Expr) -> _relax.Call: ...
def logical_not(x: _Expr) -> _relax.Call: ...
def logical_or(x1: _Expr, x2: _Expr) -> _relax.Call: ...
def logical_xor(x1: _Expr, x2: _Expr) -> _relax.Call: ...
def make_closure(func: str | _relax.Expr, args: _Exprs) -> _relax.Call: ...
def matmul(x1: _Expr, x2: _Expr, out_dtype: _Dtype | None = None) -> _relax.Call: ...
def max(x: _Expr, axis: int | _Sequence[int] | None = None, keepdims: bool = False) -> _relax.Call: ...
def maximum(x1: _Expr, x2: _Expr) -> _relax.Call: ...
def mean(x: _Expr, axis: int | _Sequence[int] | None = None, keepdims: bool = False) -> _relax.Call: ...
def median(x: _Expr, axis: int | _Sequence[int] | None = None, keepdims: bool = False) -> _relax.Call: ...
def meshgrid(tensors: _Exprs, indexing: str | None = "ij") -> _relax.Call: ...
def min(x: _Expr, axis: int | _Sequence[int] | None = None, keepdims: bool = False) -> _relax.Call: ...
def minimum(x1: _Expr, x2: _Expr) -> _relax.Call: ...
def mod(x1: _Expr, x2: _Expr) -> _relax.Call: ...
def multinomial_from_uniform(
    prob: _Expr,
    uniform_sample: _Expr,
    sample_indices: _Expr,
    dtype: _Dtype = "int64",
) -> _relax.Call: ...
def multiply(x1: _Expr, x2: _Expr) -> _relax.Call: ...
def negative(x: _Expr) -> _relax.Call: ...
def nonzero(x: _Expr) -> _relax.Call: ...
def not_equal(x1: _Expr, x2: _Expr) -> _relax.Call: ...
def null_value() -> _relax.Call: ...
def one_hot(indices: _Expr, on_value: _Scalar, off_value: _Scalar, depth: int, axis: int = -1) -> _relax.Call: ...
def ones(shape: _Shape, dtype: _Dtype) -> _relax.Call: ...
def ones_like(x: _Expr, dtype: _Dtype | None = None) -> _relax.Call: ...
def outer(x1: _Expr, x2: _Expr) -> _relax.Call: ...
def permute_dims(x: _Expr, axes: int | _Sequence[int] | None = None) -> _relax.Call: ...
def power(x1: _Expr, x2: _Expr) -> _relax.Call: ...
def print(format: str, *values: _Expr) -> _relax.Call: ...
def prod(x: _Expr, axis: int | _Sequence[int] | None = None, keepdims: bool = False) -> _relax.Call: ...
def quantize(data: _Expr, scale: _Expr, zero_point: _Expr, axis: int = -1, out_dtype: _Dtype = "int8") -> _relax.Call: ...
def repeat(data: _Expr, repeats: int, axis: int | None = None) -> _relax.Call: ...
def reshape(x: _Expr, shape: _Shape) -> _relax.Call: ...
def reverse_sequence(data: _Expr, seq_lengths: _Expr, seq_axis: int = 1, batch_axis: int = 0) -> _relax.Call: ...
def right_shift(x1: _Expr, x2: _Expr) -> _relax.Call: ...
def round(x: _Expr) -> _relax.Call: ...
def rsqrt(x: _Expr) -> _relax.Call: ...
def scatter_elements(
    data: _Expr,
    indices: _Expr,
    updates: _Expr,
    axis: int = 0,
    reduction: str = "update",
) -> _relax.Call: ...
def scatter_nd(data: _Expr, indices: _Expr, updates: _Expr, reduction: str = "update") -> _relax.Call: ...
def scatter_reduce(
    data: _Expr,
    indices: _Expr,
    updates: _Expr,
    axis: int = 0,
    reduce: str = "sum",
    include_self: bool = True,
) -> _relax.Call: ...
def shape_of(x: _Expr) -> _relax.Call: ...
def shape_to_tensor(x: _Expr) -> _relax.Call: ...
def sigmoid(x: _Expr) -> _relax.Call: ...
def sign(x: _Expr) -> _relax.Call: ...
def sin(x: _Expr) -> _relax.Call: ...
def sinh(x: _Expr) -> _relax.Call: ...
def size(x: _Expr) -> _relax.Call: ...
def slice_scatter(
    input_tensor: _Expr,
    src: _Expr,
    start: _Scalar,
    end: _Scalar,
    step: _Scalar,
    axis: int = 0,
) -> _relax.Call: ...
def sort(data: _Expr, axis: int = -1, descending: bool = False) -> _relax.Call: ...
def split(x: _Expr, indices_or_sections: int | _Sequence[int], axis: int = 0) -> _relax.Call: ...
def sqrt(x: _Expr) -> _relax.Call: ...
def square(x: _Expr) -> _relax.Call: ...
def squeeze(x: _Expr, axis: int | _Sequence[int] | None = None) -> _relax.Call: ...
def stack(tensors: _Exprs, axis: int | None = 0) -> _relax.Call: ...
def std(x: _Expr, axis: int | _Sequence[int] | None = None, keepdims: bool = False) -> _relax.Call: ...
def stop_lift_params(x: _Expr) -> _relax.Call: ...
def strided_slice(
    x: _Expr,
    axes: _relax.Expr | _Sequence[_Scalar],
    begin: _relax.Expr | _Sequence[_Scalar],
    end: _relax.Expr | _Sequence[_Scalar],
    strides: _relax.Expr | _Sequence[_Scalar] | None = None,
    assume_inbound: bool = False,
) -> _relax.Call: ...
def subtract(x1: _Expr, x2: _Expr) -> _relax.Call: ...
def sum(x: _Expr, axis: int | _Sequence[int] | None = None, keepdims: bool = False) -> _relax.Call: ...
def take(x: _Expr, indices: _Expr, axis: int | None = None, mode: str = "fast") -> _relax.Call: ...
def tan(x: _Expr) -> _relax.Call: ...
def tanh(x: _Expr) -> _relax.Call: ...
def tensor_to_shape(x: _Expr) -> _relax.Call: ...
def tile(data: _Expr, repeats: int | _Sequence[int]) -> _relax.Call: ...
def to_vdevice(data: _Expr, dst_vdevice: _Any) -> _relax.Call: ...
def topk(
    data: _Expr,
    k: int = 1,
    axis: int = -1,
    ret_type: str = "both",
    largest: bool = True,
    dtype: _Dtype = "int32",
) -> _relax.Call: ...
def transpose(x: _Expr, axes: int | _Sequence[int] | None = None) -> _relax.Call: ...
def tril(x: _Expr, k: _Scalar = 0) -> _relax.Call: ...
def triu(x: _Expr, k: _Scalar = 0) -> _relax.Call: ...
def trunc(x: _Expr) -> _relax.Call: ...
def unique(
    x: _Expr,
    sorted: _Scalar = True,
    return_index: _Scalar = False,
    return_inverse: _Scalar = False,
    return_counts: _Scalar = False,
    axis: _Scalar | None = None,
) -> _relax.Call: ...
def unpack_bits(data: _Expr, axis: int = -1, bits: int = 4, out_dtype: _Dtype = "uint8") -> _relax.Call: ...
def variance(x: _Expr, axis: int | _Sequence[int] | None = None, keepdims: bool = False) -> _relax.Call: ...
def where(condition: _Expr, x1: _Expr, x2: _Expr) -> _relax.Call: ...
def wrap_param(data: _Expr, dtype: _Dtype = "float32") -> _relax.Call: ...
def zeros(shape: _Shape, dtype: _Dtype) -> _relax.Call: ...
def zeros_like(x: _Expr, dtype: _Dtype | None = None) -> _relax.Call: ...

class _builtin:
    """The operators `builtin.*`."""
    @staticmethod
    def alloc_tensor(
        shape: _Shape,
        dtype: _Dtype,
        runtime_device_index: _Scalar = 0,
        storage_scope: str = "global",
    ) -> _relax.Call: ...
    @staticmethod
    def stop_lift_params(x: _Expr) -> _relax.Call: ...

builtin: _builtin

class _ccl:
    """The operators `ccl.*`."""
    @staticmethod
    def allgather(x: _Expr, num_workers: int, in_group: bool = True) -> _relax.Call: ...
    @staticmethod
    def allreduce(x: _Expr, op_type: str = "sum", in_group: bool = True) -> _relax.Call: ...
    @staticmethod
    def broadcast_from_worker0(x: _Expr) -> _relax.Call: ...
    @staticmethod
    def scatter_from_worker0(x: _Expr, num_workers: int, axis: int = 0) -> _relax.Call: ...

ccl: _ccl

class _dist:
    """The operators `dist.*`."""
    @staticmethod
    def annotate_sharding(input: _Expr, device_mesh: _Any, placement: _Any) -> _relax.Call: ...
    @staticmethod
    def call_tir_local_view(
        gvar: str | _relax.Expr,
        args: _Exprs,
        out_sinfo: _Info,
        tir_vars: _Shape | None = None,
    ) -> _relax.Call: ...
    @staticmethod
    def redistribute(input: _Expr, device_mesh: _Any, placement: _Any) -> _relax.Call: ...
    @staticmethod
    def redistribute_replica_to_shard(input: _Expr, num_workers: int, axis: int) -> _relax.Call: ...

dist: _dist

class _grad:
    """The operators `grad.*`."""
    @staticmethod
    def avg_pool2d_backward(
        output_grad: _Expr,
        data: _Expr,
        pool_size: int | _Sequence[int] = 1,
        strides: int | _Sequence[int] = 1,
        padding: int | _Sequence[int] = 0,
        dilation: int | _Sequence[int] = 1,
        ceil_mode: bool = False,
        count_include_pad: bool = False,
        layout: str = "NCHW",
        out_layout: str | None = None,
    ) -> _relax.Call: ...
    @staticmethod
    def end_checkpoint(x: _Expr) -> _relax.Call: ...
    @staticmethod
    def max_pool2d_backward(
        output_grad: _Expr,
        data: _Expr,
        pool_size: int | _Sequence[int] = 1,
        strides: int | _Sequence[int] = 1,
        padding: int | _Sequence[int] = 0,
        dilation: int | _Sequence[int] = 1,
        ceil_mode: bool = False,
        count_include_pad: bool = False,
        layout: str = "NCHW",
        out_layout: str | None = None,
    ) -> _relax.Call: ...
    @staticmethod
    def nll_loss_backward(
        output_grad: _Expr,
        predictions: _Expr,
        targets: _Expr,
        weights: _Expr | None = None,
        reduction: str = "mean",
        ignore_index: int = -100,
    ) -> _relax.Call: ...
    @staticmethod
    def no_grad(x: _Expr) -> _relax.Call: ...
    @staticmethod
    def start_checkpoint(x: _Expr) -> _relax.Call: ...
    @staticmethod
    def take_backward(
        output_grad: _Expr,
        x: _Expr,
        indices: _Expr,
        axis: int | None = None,
        mode: str = "",
    ) -> _relax.Call: ...

grad: _grad

class _image:
    """The operators `image.*`."""
    @staticmethod
    def affine_grid(data: _Expr, size: _Shape, align_corners: bool = True) -> _relax.Call: ...
    @staticmethod
    def grid_sample(
        data: _Expr,
        grid: _Expr,
        method: str = "bilinear",
        layout: str = "NCHW",
        padding_mode: str = "zeros",
        align_corners: bool = False,
    ) -> _relax.Call: ...
    @staticmethod
    def resize2d(
        data: _Expr,
        size: _Shape,
        roi: float | _Sequence[float] = 0.0,
        layout: str = "NCHW",
        method: str = "linear",
        coordinate_transformation_mode: str = "half_pixel",
        rounding_method: str = "round",
        cubic_alpha: float = -0.75,
        cubic_exclude: int = 0,
        extrapolation_value: float = 0.0,
        out_dtype: _Dtype | None = None,
    ) -> _relax.Call: ...
    @staticmethod
    def resize3d(
        data: _Expr,
        size: _Shape,
        roi: float | _Sequence[float] = 0.0,
        layout: str = "NCDHW",
        method: str = "linear",
        coordinate_transformation_mode: str = "half_pixel",
        rounding_method: str = "",
        cubic_alpha: float = -0.75,
        cubic_exclude: int = 0,
        extrapolation_value: float = 0.0,
        out_dtype: _Dtype | None = None,
    ) -> _relax.Call: ...

image: _image

class _inspect:
    """The operators `inspect.*`."""
    @staticmethod
    def tensor_byte_offset(x: _Expr) -> _relax.Call: ...
    @staticmethod
    def tensor_dtype_bits(x: _Expr) -> _relax.Call: ...
    @staticmethod
    def tensor_dtype_code(x: _Expr) -> _relax.Call: ...
    @staticmethod
    def tensor_dtype_lanes(x: _Expr) -> _relax.Call: ...
    @staticmethod
    def tensor_elem_offset(x: _Expr) -> _relax.Call: ...
    @staticmethod
    def tensor_ndim(x: _Expr) -> _relax.Call: ...
    @staticmethod
    def tensor_shape_i(tensor: _Expr, axis: _Scalar) -> _relax.Call: ...
    @staticmethod
    def tensor_stride_i(tensor: _Expr, axis: _Scalar) -> _relax.Call: ...

inspect: _inspect

class _memory:
    """The operators `memory.*`."""
    @staticmethod
    def alloc_storage(size: _Shape, virtual_device_index: _Scalar, storage_scope: str, dtype: _Dtype) -> _relax.Call: ...
    @staticmethod
    def alloc_tensor(
        storage: _Expr,
        offset: _Scalar,
        shape: _Shape,
        dtype: _Dtype,
        runtime_device_index: _Scalar = 0,
    ) -> _relax.Call: ...
    @staticmethod
    def ensure_zero_offset(x: _Expr) -> _relax.Call: ...
    @staticmethod
    def kill_storage(storage: _Expr) -> _relax.Call: ...
    @staticmethod
    def kill_tensor(tensor: _Expr) -> _relax.Call: ...
    @staticmethod
    def view(
        data: _Expr,
        shape: _Shape | None = None,
        dtype: _Dtype | None = None,
        relative_byte_offset: _Scalar | None = None,
    ) -> _relax.Call: ...

memory: _memory

class _nn:
    """The operators `nn.*`."""
    @staticmethod
    def adaptive_avg_pool1d(
        data: _Expr,
        output_size: int | _Sequence[int] | None = None,
        layout: str = "NCW",
        out_layout: str | None = None,
    ) -> _relax.Call: ...
    @staticmethod
    def adaptive_avg_pool2d(
        data: _Expr,
        output_size: int | _Sequence[int] | None = None,
        layout: str = "NCHW",
        out_layout: str | None = None,
    ) -> _relax.Call: ...
    @staticmethod
    def adaptive_avg_pool3d(
        data: _Expr,
        output_size: int | _Sequence[int] | None = None,
        layout: str = "NCDHW",
        out_layout: str | None = None,
    ) -> _relax.Call: ...
    @staticmethod
    def attention(
        query: _Expr,
        key: _Expr,
        value: _Expr,
        scale: _Any = None,
        causal_mask: str | None = None,
        window_size: int | None = None,
    ) -> _relax.Call: ...
    @staticmethod
    def attention_bias(
        query: _Expr,
        key: _Expr,
        value: _Expr,
        bias: _Expr,
        scale: _Any = None,
        causal_mask: str | None = None,
        window_size: int | None = None,
    ) -> _relax.Call: ...
    @staticmethod
    def attention_var_len(
        query: _Expr,
        key: _Expr,
        value: _Expr,
        seqstart_q: _Expr,
        seqstart_k: _Expr,
        max_seqlen_q: _Expr,
        max_seqlen_k: _Expr,
        scale: _Any = None,
        causal_mask: str | None = None,
        window_size: int | None = None,
    ) -> _relax.Call: ...
    @staticmethod
    def avg_pool1d(
        data: _Expr,
        pool_size: int | _Sequence[int] = 1,
        strides: int | _Sequence[int] = 1,
        padding: int | _Sequence[int] = 0,
        dilation: int | _Sequence[int] = 1,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        layout: str = "NCW",
        out_layout: str | None = None,
    ) -> _relax.Call: ...
    @staticmethod
    def avg_pool2d(
        data: _Expr,
        pool_size: int | _Sequence[int] = 1,
        strides: int | _Sequence[int] = 1,
        padding: int | _Sequence[int] = 0,
        dilation: int | _Sequence[int] = 1,
        ceil_mode: bool = False,
        count_include_pad: bool = False,
        layout: str = "NCHW",
        out_layout: str | None = None,
    ) -> _relax.Call: ...
    @staticmethod
    def avg_pool3d(
        data: _Expr,
        pool_size: int | _Sequence[int] = 1,
        strides: int | _Sequence[int] = 1,
        padding: int | _Sequence[int] = 0,
        dilation: int | _Sequence[int] = 1,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        layout: str = "NCDHW",
        out_layout: str | None = None,
    ) -> _relax.Call: ...
    @staticmethod
    def batch_flatten(x: _Expr) -> _relax.Call: ...
    @staticmethod
    def batch_norm(
        data: _Expr,
        gamma: _Expr,
        beta: _Expr,
        moving_mean: _Expr,
        moving_var: _Expr,
        axis: int,
        epsilon: float = 1e-05,
        center: bool = True,
        scale: bool = True,
        momentum: float = 0.1,
        training: bool = True,
    ) -> _relax.Call: ...
    @staticmethod
    def conv1d(
        data: _Expr,
        weight: _Expr,
        strides: int | _Sequence[int] = 1,
        padding: int | _Sequence[int] = 0,
        dilation: int | _Sequence[int] = 1,
        groups: int = 1,
        data_layout: str = "NCW",
        kernel_layout: str = "OIW",
        out_layout: str | None = None,
        out_dtype: _Dtype | None = None,
    ) -> _relax.Call: ...
    @staticmethod
    def conv1d_transpose(
        data: _Expr,
        weight: _Expr,
        strides: int | _Sequence[int] = 1,
        padding: int | _Sequence[int] = 0,
        output_padding: int | _Sequence[int] = 0,
        dilation: int | _Sequence[int] = 1,
        groups: int = 1,
        data_layout: str = "NCW",
        kernel_layout: str = "IOW",
        out_layout: str | None = None,
        out_dtype: _Dtype | None = None,
    ) -> _relax.Call: ...
    @staticmethod
    def conv2d(
        data: _Expr,
        weight: _Expr,
        strides: int | _Sequence[int] = 1,
        padding: int | _Sequence[int] = 0,
        dilation: int | _Sequence[int] = 1,
        groups: int = 1,
        data_layout: str = "NCHW",
        kernel_layout: str = "OIHW",
        out_layout: str | None = None,
        out_dtype: _Dtype | None = None,
    ) -> _relax.Call: ...
    @staticmethod
    def conv2d_transpose(
        data: _Expr,
        weight: _Expr,
        strides: int | _Sequence[int] = 1,
        padding: int | _Sequence[int] = 0,
        output_padding: int | _Sequence[int] = 0,
        dilation: int | _Sequence[int] = 1,
        groups: int = 1,
        data_layout: str = "NCHW",
        kernel_layout: str = "IOHW",
        out_layout: str | None = None,
        out_dtype: _Dtype | None = None,
    ) -> _relax.Call: ...
    @staticmethod
    def conv3d(
        data: _Expr,
        weight: _Expr,
        strides: int | _Sequence[int] = 1,
        padding: int | _Sequence[int] = 0,
        dilation: int | _Sequence[int] = 1,
        groups: int = 1,
        data_layout: str = "NCDHW",
        kernel_layout: str = "OIDHW",
        out_layout: str | None = None,
        out_dtype: _Dtype | None = None,
    ) -> _relax.Call: ...
    @staticmethod
    def conv3d_transpose(
        data: _Expr,
        weight: _Expr,
        strides: int | _Sequence[int] = 1,
        padding: int | _Sequence[int] = 0,
        output_padding: int | _Sequence[int] = 0,
        dilation: int | _Sequence[int] = 1,
        groups: int = 1,
        data_layout: str = "NCDHW",
        kernel_layout: str = "IODHW",
        out_layout: str | None = None,
        out_dtype: _Dtype | None = None,
    ) -> _relax.Call: ...
    @staticmethod
    def cross_entropy_with_logits(predictions: _Expr, labels: _Expr) -> _relax.Call: ...
    @staticmethod
    def dense(data: _Expr, weight: _Expr) -> _relax.Call: ...
    @staticmethod
    def dropout(data: _Expr, rate: float = 0.5) -> _relax.Call: ...
    @staticmethod
    def flatten(x: _Expr) -> _relax.Call: ...
    @staticmethod
    def gelu(x: _Expr) -> _relax.Call: ...
    @staticmethod
    def gelu_tanh(x: _Expr) -> _relax.Call: ...
    @staticmethod
    def group_norm(
        data: _Expr,
        gamma: _Expr,
        beta: _Expr,
        num_groups: int,
        channel_axis: int,
        axes: int | _Sequence[int],
        epsilon: float = 1e-05,
        center: bool = True,
        scale: bool = True,
    ) -> _relax.Call: ...
    @staticmethod
    def grouped_matmul(data: _Expr, weights: _Expr, ends: _Expr) -> _relax.Call: ...
    @staticmethod
    def gru(
        x: _Expr,
        w: _Expr,
        r: _Expr,
        b: _Expr,
        h0: _Expr,
        lengths: _Expr | None = None,
        direction: str = "forward",
        activations: str = "sigmoid, tanh",
        clip: float | None = None,
        linear_before_reset: bool = False,
    ) -> _relax.Call: ...
    @staticmethod
    def gru_steps(
        gates: _Expr,
        r: _Expr,
        b: _Expr,
        h0: _Expr,
        lengths: _Expr | None = None,
        direction: str = "forward",
        activations: str = "sigmoid, tanh",
        clip: float | None = None,
        linear_before_reset: bool = False,
    ) -> _relax.Call: ...
    @staticmethod
    def instance_norm(
        data: _Expr,
        gamma: _Expr,
        beta: _Expr,
        channel_axis: int,
        axes: int | _Sequence[int],
        epsilon: float = 1e-05,
        center: bool = True,
        scale: bool = True,
    ) -> _relax.Call: ...
    @staticmethod
    def layer_norm(
        data: _Expr,
        gamma: _Expr,
        beta: _Expr,
        axes: int | _Sequence[int],
        epsilon: float = 1e-05,
        center: bool = True,
        scale: bool = True,
    ) -> _relax.Call: ...
    @staticmethod
    def leaky_relu(data: _Expr, alpha: float = 0.01) -> _relax.Call: ...
    @staticmethod
    def leakyrelu(data: _Expr, alpha: float = 0.01) -> _relax.Call: ...
    @staticmethod
    def log_softmax(data: _Expr, axis: int = -1) -> _relax.Call: ...
    @staticmethod
    def lstm(
        x: _Expr,
        w: _Expr,
        r: _Expr,
        b: _Expr,
        h0: _Expr,
        c0: _Expr,
        lengths: _Expr | None = None,
        peepholes: _Expr | None = None,
        direction: str = "forward",
        activations: str = "sigmoid, tanh, tanh",
        clip: float | None = None,
        input_forget: bool = False,
    ) -> _relax.Call: ...
    @staticmethod
    def lstm_steps(
        gates: _Expr,
        r: _Expr,
        b: _Expr,
        h0: _Expr,
        c0: _Expr,
        lengths: _Expr | None = None,
        peepholes: _Expr | None = None,
        direction: str = "forward",
        activations: str = "sigmoid, tanh, tanh",
        clip: float | None = None,
        input_forget: bool = False,
    ) -> _relax.Call: ...
    @staticmethod
    def max_pool1d(
        data: _Expr,
        pool_size: int | _Sequence[int] = 1,
        strides: int | _Sequence[int] = 1,
        padding: int | _Sequence[int] = 0,
        dilation: int | _Sequence[int] = 1,
        ceil_mode: bool = False,
        count_include_pad: bool = False,
        layout: str = "NCW",
        out_layout: str | None = None,
    ) -> _relax.Call: ...
    @staticmethod
    def max_pool2d(
        data: _Expr,
        pool_size: int | _Sequence[int] = 1,
        strides: int | _Sequence[int] = 1,
        padding: int | _Sequence[int] = 0,
        dilation: int | _Sequence[int] = 1,
        ceil_mode: bool = False,
        count_include_pad: bool = False,
        layout: str = "NCHW",
        out_layout: str | None = None,
    ) -> _relax.Call: ...
    @staticmethod
    def max_pool3d(
        data: _Expr,
        pool_size: int | _Sequence[int] = 1,
        strides: int | _Sequence[int] = 1,
        padding: int | _Sequence[int] = 0,
        dilation: int | _Sequence[int] = 1,
        ceil_mode: bool = False,
        count_include_pad: bool = False,
        layout: str = "NCDHW",
        out_layout: str | None = None,
    ) -> _relax.Call: ...
    @staticmethod
    def nll_loss(
        predictions: _Expr,
        targets: _Expr,
        weights: _Expr | None = None,
        reduction: str = "mean",
        ignore_index: int = -100,
    ) -> _relax.Call: ...
    @staticmethod
    def pad(
        data: _Expr,
        pad_width: int | _Sequence[int],
        pad_mode: str = "constant",
        pad_value: float = 0.0,
    ) -> _relax.Call: ...
    @staticmethod
    def pixel_shuffle(data: _Expr, upscale_factor: int) -> _relax.Call: ...
    @staticmethod
    def prelu(data: _Expr, alpha: _Expr, axis: int = 1) -> _relax.Call: ...
    @staticmethod
    def relu(x: _Expr) -> _relax.Call: ...
    @staticmethod
    def rms_norm(data: _Expr, weight: _Expr, axes: int | _Sequence[int] = -1, epsilon: float = 1e-05) -> _relax.Call: ...
    @staticmethod
    def rnn(
        x: _Expr,
        w: _Expr,
        r: _Expr,
        b: _Expr,
        h0: _Expr,
        lengths: _Expr | None = None,
        direction: str = "forward",
        activations: str = "tanh",
        clip: float | None = None,
    ) -> _relax.Call: ...
    @staticmethod
    def rnn_steps(
        gates: _Expr,
        r: _Expr,
        b: _Expr,
        h0: _Expr,
        lengths: _Expr | None = None,
        direction: str = "forward",
        activations: str = "tanh",
        clip: float | None = None,
    ) -> _relax.Call: ...
    @staticmethod
    def selu(x: _Expr) -> _relax.Call: ...
    @staticmethod
    def silu(x: _Expr) -> _relax.Call: ...
    @staticmethod
    def softmax(data: _Expr, axis: int = -1) -> _relax.Call: ...
    @staticmethod
    def softplus(data: _Expr, beta: float = 1.0, threshold: float = 20.0) -> _relax.Call: ...

nn: _nn

class _random:
    """The operators `random.*`."""
    @staticmethod
    def bits(key: _Expr, shape: _Shape, dtype: _Dtype = "uint32") -> _relax.Call: ...
    @staticmethod
    def integers(key: _Expr, shape: _Shape, low: int, high: int, dtype: _Dtype = "int64") -> _relax.Call: ...
    @staticmethod
    def normal(key: _Expr, shape: _Shape, dtype: _Dtype = "float32") -> _relax.Call: ...
    @staticmethod
    def uniform(key: _Expr, shape: _Shape, dtype: _Dtype = "float32") -> _relax.Call: ...

random: _random

class _signal:
    """The operators `signal.*`."""
    @staticmethod
    def dft(
        x: _Expr,
        length: _Scalar | None = None,
        axis: int = -2,
        inverse: bool = False,
        onesided: bool = False,
    ) -> _relax.Call: ...

signal: _signal

class _vision:
    """The operators `vision.*`."""
    @staticmethod
    def all_class_non_max_suppression(
        boxes: _Expr,
        scores: _Expr,
        max_output_boxes_per_class: _Expr,
        iou_threshold: _Expr,
        score_threshold: _Expr,
        output_format: str = "onnx",
    ) -> _relax.Call: ...
    @staticmethod
    def get_valid_counts(
        data: _Expr,
        score_threshold: float = 0.0,
        id_index: int = 0,
        score_index: int = 1,
    ) -> _relax.Call: ...
    @staticmethod
    def multibox_transform_loc(
        cls_pred: _Expr,
        loc_pred: _Expr,
        anchor: _Expr,
        clip: bool = False,
        threshold: float = 0.0,
        variances: float | _Sequence[float] = 1.0,
        keep_background: bool = True,
        apply_softmax: bool = True,
    ) -> _relax.Call: ...
    @staticmethod
    def multiclass_nms(
        boxes: _Expr,
        scores: _Expr,
        max_output_boxes_per_class: _Expr,
        iou_threshold: _Expr,
        score_threshold: _Expr | None = None,
        center_point_box: bool = False,
    ) -> _relax.Call: ...
    @staticmethod
    def multiclass_nms_padded(
        boxes: _Expr,
        scores: _Expr,
        max_output_boxes_per_class: _Expr,
        iou_threshold: _Expr,
        score_threshold: _Expr | None = None,
        center_point_box: bool = False,
    ) -> _relax.Call: ...
    @staticmethod
    def non_max_suppression(
        data: _Expr,
        valid_count: _Expr,
        indices: _Expr,
        max_output_size: int = -1,
        iou_threshold: float = 0.5,
        force_suppress: bool = False,
        top_k: int = -1,
        coord_start: int = 2,
        score_index: int = 1,
        id_index: int = 0,
        return_indices: bool = True,
        invalid_to_bottom: bool = False,
        soft_nms_sigma: float = 0.0,
        score_threshold: float = 0.0,
    ) -> _relax.Call: ...
    @staticmethod
    def roi_align(
        data: _Expr,
        rois: _Expr,
        pooled_size: int | _Sequence[int],
        spatial_scale: float,
        sample_ratio: int = -1,
        aligned: bool = False,
        layout: str = "NCHW",
        mode: str = "avg",
    ) -> _relax.Call: ...
    @staticmethod
    def roi_pool(
        data: _Expr,
        rois: _Expr,
        pooled_size: int | _Sequence[int],
        spatial_scale: float,
        layout: str = "NCHW",
    ) -> _relax.Call: ...
    @staticmethod
    def valid_rows(data: _Expr, count: _Expr) -> _relax.Call: ...

vision: _vision

class _vm:
    """The operators `vm.*`."""
    @staticmethod
    def alloc_storage(
        size: _Shape,
        runtime_device_index: _Scalar,
        dtype: _Dtype,
        storage_scope: str = "global",
    ) -> _relax.Call: ...
    @staticmethod
    def alloc_tensor(
        storage: _Expr,
        offset: _Scalar,
        shape: _Shape,
        dtype: _Dtype,
        runtime_device_index: _Scalar = 0,
    ) -> _relax.Call: ...
    @staticmethod
    def call_tir_dyn(func: str | _relax.Expr, args: _Exprs) -> _relax.Call: ...
    @staticmethod
    def kill_object(obj: _Expr) -> _relax.Call: ...

vm: _vm
