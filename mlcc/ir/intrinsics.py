"""The intrinsics of TensorIR by name: how many arguments they take, of what dtype they are, what effect they have.

One table for the parser, the verifier, the interpreter and the backends. Names are those of the text, without a prefix:
`T.exp` is the op `tir.exp`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from mlcc.ir import tir
from mlcc.ir.dtypes import DType


class Effect(enum.IntEnum):
    """What evaluating a call may do; an order: what holds for a lesser effect does not hold for a greater one."""

    PURE = 0  # may be computed never, once, or often
    READ = 1  # depends on memory
    UPDATE = 2  # changes memory or the outside
    OPAQUE = 3  # ends or redirects the control flow, or is not known


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """`most` is None for any number of arguments.

    `result` says what dtype a call has: `same` (of the first argument), `explicit` (written in the text, before the
    arguments), `last` (written after them), `groups` (an int32 for each 32 bits of the longer of the first
    two), `place` (int64, of as many lanes as the first argument), or the name of a dtype. `operands` is what the
    arguments may be: `float`, `integer` (bool included), `match` (numbers that are brought to one dtype), or `any`
    (strings and handles too).
    """

    name: str
    least: int
    most: int | None
    result: str
    effect: Effect
    operands: str

    def takes(self, count: int) -> bool:
        """Whether a call may have so many arguments."""
        return self.least <= count and (self.most is None or count <= self.most)

    @property
    def arity(self) -> str:
        """The number of arguments in words: `2`, `1 or 2`, `at least 1`."""
        if self.most is None:
            return f"at least {self.least}"
        return str(self.least) if self.least == self.most else f"{self.least} to {self.most}"


# name, arguments (`2`, `1-3`, `1+`), result, effect, operands
_TABLE = """
acos 1 same pure float              acosh 1 same pure float             asin 1 same pure float
asinh 1 same pure float             atan 1 same pure float              atanh 1 same pure float
cos 1 same pure float               cosh 1 same pure float              sin 1 same pure float
sinh 1 same pure float              tan 1 same pure float               tanh 1 same pure float
exp 1 same pure float               exp2 1 same pure float              exp10 1 same pure float
log 1 same pure float               log2 1 same pure float              log10 1 same pure float
log1p 1 same pure float             sqrt 1 same pure float              rsqrt 1 same pure float
sigmoid 1 same pure float           erf 1 same pure float               fabs 1 same pure float
floor 1 same pure float             ceil 1 same pure float              trunc 1 same pure float
round 1 same pure float             nearbyint 1 same pure float
pow 2 same pure match               fmod 2 same pure match              atan2 2 same pure match
hypot 2 same pure match             copysign 2 same pure match          nextafter 2 same pure match
ldexp 2 same pure any               fma 3 same pure match
isnan 1 bool pure float             isinf 1 bool pure float             isfinite 1 bool pure float
bitwise_and 2 same pure integer     bitwise_or 2 same pure integer      bitwise_xor 2 same pure integer
bitwise_not 1 same pure integer     shift_left 2 same pure integer      shift_right 2 same pure integer
popcount 1 same pure integer        clz 1 int32 pure integer
q_multiply_shift 4 int32 pure integer                                   q_multiply_shift_per_axis 7 int32 pure any
if_then_else 3 second pure any      likely 1 same pure any              ignore_loop_partition 1 bool pure any
reinterpret 1 explicit pure any     type_annotation 0 explicit pure any undef 0 int32 read any
vectorlow 1 explicit pure any       vectorhigh 1 explicit pure any      vectorcombine 2 explicit pure any
get_active_lane_mask 2 explicit pure integer                            vscale 0 int32 pure any
checked_index 5 place pure any      mlcc_view 1+ handle pure any
mlcc_cp_async_bulk_tile 3+ void update any                              mlcc_cp_async_bulk_wait 1+ void update any
dp4a 2-3 groups pure any            dp2a 2-3 groups pure any            masked_load 2+ explicit read any
masked_store 3+ void update any
address_of 1 handle pure any        isnullptr 1 bool pure any           handle_add_byte_offset 2 handle pure any
ptr_byte_offset 3 handle pure any   buffer_offset 2 int32 pure any
tvm_access_ptr 5 handle opaque any  tvm_static_handle 0 handle opaque any
tvm_context_id 0 handle read any    lookup_param 1-4 handle update any
call_extern 1+ explicit update any  call_pure_extern 1+ explicit pure any
call_llvm_intrin 1+ explicit update any                                 call_llvm_pure_intrin 1+ explicit pure any
call_spirv_pure_glsl450 1+ explicit pure any
call_packed 1+ int32 update any     call_cpacked 1+ int32 update any    call_ffi_kernel 1+ int32 update any
call_packed_lowered 3+ int32 update any                                 call_cpacked_lowered 3+ int32 update any
tvm_call_trace_packed 1+ int32 update any
tvm_call_trace_packed_lowered 1+ int32 update any
tvm_tuple 0+ void pure any          tvm_stack_alloca 2 handle update any
tvm_stack_make_shape 0+ handle update any                               tvm_stack_make_array 6 handle update any
tvm_struct_get 3 last read any      tvm_struct_set 4 int32 update any
tvm_throw_last_error 0 void update any
tvm_thread_invariant 1 same pure any                                    tvm_thread_allreduce 4+ void update any
tvm_storage_sync 1-3 void update any                                    tvm_kernel_replace_point 0 void update any
tvm_global_barrier_kinit 0 void update any
tvm_warp_shuffle 5 second update any                                    tvm_warp_shuffle_up 5 second update any
tvm_warp_shuffle_down 5 second update any                               tvm_warp_shuffle_xor 5 second update any
tvm_warp_activemask 0 uint32 update any
tvm_load_matrix_sync 8 void update any                                  tvm_store_matrix_sync 8 void update any
tvm_mma_sync 8 void update any      tvm_bmma_sync 8 void update any     tvm_fill_fragment 6 void update any
mma_store 6 explicit update any     mma_fill 3 explicit update any      make_filter 1+ handle update any
ptx_mma 1+ explicit update any      ptx_mma_sp 1+ explicit update any   ptx_ldmatrix 1+ explicit update any
ptx_cp_async 5+ explicit update any ptx_cp_async_bulk 5+ explicit update any
ptx_commit_group 0 void update any  ptx_wait_group 1 void update any    ptx_cp_async_barrier 1 void update any
ptx_init_barrier_thread_count 2 void update any                         ptx_arrive_barrier 1 void update any
ptx_arrive_barrier_expect_tx 2 void update any                          ptx_wait_barrier 1-2 void update any
ptx_fence_barrier_init 0 void update any                                ptx_fence_proxy_async 0 void update any
ptx_cp_async_bulk_tensor 5+ explicit update any
ptx_cp_async_bulk_tensor_store 4+ explicit update any
ptx_cp_async_bulk_commit_group 0 void update any                        ptx_cp_async_bulk_wait_group 1-2 void update any
tensor_map 7+ handle pure any
ptx_wgmma_ss 13 explicit update any ptx_wgmma_rs 13 explicit update any ptx_wgmma_fence 0 void update any
ptx_wgmma_commit_group 0 void update any                                ptx_wgmma_wait_group 1 void update any
ptx_wgmma_descriptor 4 uint64 pure any                                  ptx_shared_address 1 uint32 pure any
create_barriers 1 void update any   simdgroup_load 1+ void update any   simdgroup_store 1+ void update any
make_filled_simdgroup_matrix 1+ void update any                         simdgroup_multiply_accumulate 1+ void update any
cooperative_tensor_fill 1+ void update any                              cooperative_tensor_load 1+ void update any
cooperative_tensor_store 1+ void update any
cooperative_tensor_multiply_accumulate 1+ void update any
texture2d_load 1+ explicit read any texture2d_store 1+ void update any
dma_copy 1+ void update any         dma_wait 1+ void update any         dma_start_group 1+ void update any
dma_end_group 1+ void update any    prefetch 1+ void update any         atomic_add 2+ second update any
print_buffer 5+ void update any     nd_mem_alloc_with_scope 1+ handle update any
TVMBackendAllocWorkspace 5 handle update any                            TVMBackendFreeWorkspace 3 int32 update any
TVMBackendAnyListSetPackedArg 4-5 int32 update any
TVMBackendAnyListMoveFromPackedReturn 3-4 int32 update any
anylist_getitem 2 handle read any   anylist_resetitem 2 int32 update any
anylist_setitem_call_packed 3+ int32 update any                         anylist_setitem_call_cpacked 3+ int32 update any
assume 1 bool opaque any            start_profile_intrinsic 1 void update any
end_profile_intrinsic 1 void update any
filter 2 bool pure any              selector 2 same update any
ret 0-1 same opaque any             thread_return 0 void opaque any
"""

# other names for the same intrinsic, in texts of any age
# matrices of Metal, which TVM 0.27 has in a name space of their own
METAL = (
    "simdgroup_load", "simdgroup_store", "make_filled_simdgroup_matrix", "simdgroup_multiply_accumulate",
    "cooperative_tensor_fill", "cooperative_tensor_load", "cooperative_tensor_store",
    "cooperative_tensor_multiply_accumulate",
)  # fmt: skip
ALIASES = {
    "tvm_call_packed": "call_packed", "tvm_call_cpacked": "call_cpacked", "power": "pow",
    "tvm_call_packed_lowered": "call_packed_lowered", "tvm_call_cpacked_lowered": "call_cpacked_lowered",
    **{f"metal.{name}": name for name in METAL}, "s_tir.cp_async_raw": "ptx_cp_async",
}  # fmt: skip


def _read() -> Iterator[tuple[str, Intrinsic]]:
    words = _TABLE.split()
    for at in range(0, len(words), 5):
        name, count, result, effect, operands = words[at : at + 5]
        low, _, high = count.rstrip("+").partition("-")
        most = None if count.endswith("+") else int(high or low)
        yield name, Intrinsic(name, int(low), most, result, Effect[effect.upper()], operands)


INTRINSICS: dict[str, Intrinsic] = dict(_read())


def find(name: str) -> Intrinsic | None:
    """The intrinsic of that name, with or without `tir.`, under any of its names."""
    name = name.removeprefix("tir.").removeprefix("tirx.").removeprefix("prim.")
    return INTRINSICS.get(ALIASES.get(name, name))


def effect_of(call: tir.Call) -> Effect:
    """What a call may do; calls of functions and of unknown operators may do anything."""
    found = INTRINSICS.get(call.op.name.removeprefix("tir.")) if isinstance(call.op, tir.Op) else None
    return Effect.OPAQUE if found is None else found.effect


def result_dtype(of: Intrinsic, args: tuple[tir.Expr, ...]) -> DType | None:
    """The dtype of a call, or None where the text states it."""
    if of.result == "same":
        return args[0].dtype if args else DType.of("void")
    if of.result == "second":
        return args[1].dtype
    if of.result in ("explicit", "last"):
        return None
    if of.result == "groups":
        return DType.of("int32").with_lanes(max(1, *(a.dtype.lanes * a.dtype.bits // 32 for a in args[:2])))
    if of.result == "place":
        return DType.of("int64").with_lanes(args[0].dtype.lanes)
    made = DType.of(of.result)
    if made.is_bool and args and args[0].dtype.lanes > 1:
        return made.with_lanes(args[0].dtype.lanes)
    return made
