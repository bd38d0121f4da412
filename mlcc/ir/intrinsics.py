"""The intrinsics of TensorIR by name: their operands and results, their effects, and other properties that passes use.

One record each for the parser, the verifier, the interpreter, passes and backends. How something computes an intrinsic
(the interpreter in NumPy, each target in its instructions, `arith` the bounds of its result) stands there, in one table
by name. Names are those of the text, without a prefix: `T.exp` is the op `tir.exp`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mlcc.ir import tir
from mlcc.ir.dtypes import DType


class Effect(enum.IntEnum):
    """The side effects of a call, in increasing order: each allows fewer transformations than the one before."""

    PURE = 0  # may be computed never, once, or often
    READ = 1  # depends on memory
    UPDATE = 2  # changes memory or the outside
    OPAQUE = 3  # ends or redirects the control flow, or is not known


class Cost(enum.IntEnum):
    """The cost of a call, not counting its arguments."""

    INSTRUCTION = 0  # one or two of every machine, which never fault
    SHORT = 1  # so on most machines
    FUNCTION = 2


@dataclass(frozen=True, slots=True)
class Pointer:
    """An argument that points to accessed memory.

    The argument `offset` is added to the pointer, in elements (in matrices, of a fragment).
    """

    at: int
    access: str  # `r`, `w` or `rw`
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """`most` is None for any number of arguments.

    `result` says what dtype a call has: `same` (of the first argument), `explicit` (written in the text, before the
    arguments), `last` (written after them), `groups` (an int32, or a float32 where they are floats, for each 32 bits
    of the longer of the first two), `place` (int64, of as many lanes as the first argument), or the name of a dtype.
    `operands` is what the arguments may be: `float`, `integer` (bool included), `match` (numbers that are brought to
    one dtype), or `any` (strings and handles too).

    A `lanewise` intrinsic computes each lane of vectors from that lane of its arguments. One that `widens` gives the
    same but for rounding in a wider float type; one that `jumps` changes by a lot where its argument changes by a
    little. A `collective` one is for threads that run together. The first argument of an `extern` or `packed` one names
    the function that it calls. A `place` is of an element that is not accessed by it, and may be one past the last.
    What `leaves` ends the function. The result points into the memory of the argument `into`; the argument `barrier` is
    a barrier in shared memory. `pointers` are the arguments that point to what a call accesses; those of `fragments`
    are fragments of matrices.
    """

    name: str
    least: int
    most: int | None
    result: str
    effect: Effect
    operands: str
    cost: Cost = Cost.FUNCTION
    lanewise: bool = False
    widens: bool = False
    jumps: bool = False
    collective: bool = False
    extern: bool = False
    packed: bool = False
    place: bool = False
    leaves: bool = False
    into: int | None = None
    barrier: int | None = None
    pointers: tuple[Pointer, ...] = ()
    fragments: bool = False

    def takes(self, count: int) -> bool:
        """Return True if a call may have `count` arguments."""
        return self.least <= count and (self.most is None or count <= self.most)

    @property
    def offsets(self) -> tuple[tuple[int, int], ...]:
        """The positions of pointer arguments, each with the position of its offset argument."""
        return tuple((p.at, p.offset) for p in self.pointers if p.offset is not None)

    @property
    def arity(self) -> str:
        """The number of arguments in words: `2`, `1 or 2`, `at least 1`."""
        if self.most is None:
            return f"at least {self.least}"
        return str(self.least) if self.least == self.most else f"{self.least} to {self.most}"


# A line: the number of arguments (`2`, `1-3`, `1+`), result, effect, operands, further facts = the names of which all
# that holds. `6:r+7` is a pointer: argument 6, to what is read, with its offset in argument 7.
_TABLE = """
1 same pure float lanewise widens = acos acosh asin asinh atan atanh cos cosh sin sinh tan tanh exp exp2 exp10 log
    log2 log10 log1p sigmoid erf
1 same pure float lanewise short widens = sqrt rsqrt
1 same pure float lanewise instruction widens = fabs allow_reciprocal
1 same pure any lanewise instruction widens = abs assume_number
1 same pure float lanewise short widens jumps = floor ceil trunc round nearbyint
2 same pure match lanewise widens = pow atan2 hypot
2 same pure match lanewise widens jumps = fmod
2 same pure match lanewise instruction widens = copysign
2 same pure match lanewise = nextafter
2 same pure any lanewise = ldexp
3 same pure match lanewise short widens = fma
1 bool pure float lanewise instruction widens = isnan isinf isfinite
2 same pure integer lanewise instruction = bitwise_and bitwise_or bitwise_xor shift_left shift_right
1 same pure integer lanewise instruction = bitwise_not popcount
1 int32 pure integer lanewise instruction = clz
4 int32 pure integer = q_multiply_shift
7 int32 pure any = q_multiply_shift_per_axis
3 second pure any instruction = if_then_else
1 same pure any lanewise instruction = likely
1 bool pure any = ignore_loop_partition isnullptr
1 explicit pure any lanewise instruction = reinterpret
0 explicit pure any = type_annotation
0 int32 read any = undef
1 explicit pure any = vectorlow vectorhigh
2 explicit pure any = vectorcombine
2 explicit pure integer = get_active_lane_mask
0 int32 pure any = vscale
5 place pure any = checked_index
3 same update any = sanitize_index
6 same update any 1:r 2:r = sanitize_view
7 same update any 1:r 2:r 5:r = sanitize_read
6 same update any 1:r 2:r 5:w = sanitize_write
11 same update any 1:r 2:r 5:r 6:rw = sanitize_shared_read
11-12 same update any 1:r 2:r 5:rw 6:r = sanitize_shared_write
1+ handle pure any place = mlcc_view
3+ void update any 0:w+1 = mlcc_cp_async_bulk_tile
1+ void update any = mlcc_cp_async_bulk_wait simdgroup_load simdgroup_store make_filled_simdgroup_matrix
    simdgroup_multiply_accumulate cooperative_tensor_fill cooperative_tensor_load cooperative_tensor_store
    cooperative_tensor_multiply_accumulate texture2d_store dma_copy dma_wait dma_start_group dma_end_group
2-3 groups pure any = dp4a dp2a
2+ explicit read any = masked_load
3+ void update any = masked_store
1 handle pure any short place into=0 = address_of
2 handle pure any into=0 = handle_add_byte_offset
3 handle pure any into=0 = ptr_byte_offset
2 int32 pure any = buffer_offset
5 handle opaque any short into=1 = tvm_access_ptr
0 handle opaque any = tvm_static_handle
0 handle read any = tvm_context_id
1-4 handle update any = lookup_param
1+ explicit update any extern = call_extern
1+ explicit pure any extern = call_pure_extern
1+ explicit update any = call_llvm_intrin
1+ explicit pure any = call_llvm_pure_intrin call_spirv_pure_glsl450
1+ int32 update any packed = call_packed call_cpacked
1+ int32 update any = call_ffi_kernel tvm_call_trace_packed tvm_call_trace_packed_lowered
3+ int32 update any = call_packed_lowered call_cpacked_lowered anylist_setitem_call_packed
    anylist_setitem_call_cpacked
0+ void pure any = tvm_tuple
2 handle update any = tvm_stack_alloca
0+ handle update any = tvm_stack_make_shape
6 handle update any = tvm_stack_make_array
3 last read any = tvm_struct_get
4 int32 update any = tvm_struct_set
0 void update any = tvm_throw_last_error tvm_kernel_replace_point
1 same pure any = tvm_thread_invariant
4+ void update any collective = tvm_thread_allreduce
1-3 void update any collective = tvm_storage_sync
0 void update any collective = tvm_global_barrier_kinit ptx_commit_group ptx_fence_barrier_init ptx_fence_proxy_async
    ptx_cp_async_bulk_commit_group ptx_wgmma_fence ptx_wgmma_commit_group
5 second update any collective = tvm_warp_shuffle tvm_warp_shuffle_up tvm_warp_shuffle_down tvm_warp_shuffle_xor
0 uint32 update any collective = tvm_warp_activemask
8 void update any collective 0:w+4 5:r fragments = tvm_load_matrix_sync
8 void update any collective 0:r+4 5:w fragments = tvm_store_matrix_sync
8 void update any collective 0:w+1 2:r+3 4:r+5 6:r+7 fragments = tvm_mma_sync tvm_bmma_sync
6 void update any collective 0:w+4 fragments = tvm_fill_fragment
6 explicit update any collective 2:w 3:r+4 = mma_store
3 explicit update any collective 1:w+2 = mma_fill
1+ handle update any = make_filter nd_mem_alloc_with_scope
1+ explicit update any collective 6:r+7 8:r+9 10:rw+11 = ptx_mma
1+ explicit update any collective 6:r+7 8:r+9 10:rw+11 12:r+13 = ptx_mma_sp
1+ explicit update any collective 3:w+4 5:r+6 = ptx_ldmatrix
5+ explicit update any collective 0:w+1 2:r+3 = ptx_cp_async
5+ explicit update any collective 0:w+1 2:r+3 barrier=5 = ptx_cp_async_bulk
1 void update any collective barrier=0 = ptx_cp_async_barrier ptx_arrive_barrier
1 void update any collective = ptx_wait_group ptx_wgmma_wait_group
    create_barriers
2 void update any collective barrier=0 = ptx_init_barrier_thread_count ptx_arrive_barrier_expect_tx
1-2 void update any collective barrier=0 = ptx_wait_barrier
1-2 void update any collective = ptx_cp_async_bulk_wait_group
5+ explicit update any collective 0:w+1 barrier=3 = ptx_cp_async_bulk_tensor
4+ explicit update any collective 0:r+1 = ptx_cp_async_bulk_tensor_store
7+ handle pure any = tensor_map
13 explicit update any collective 8:rw+9 = ptx_wgmma_ss
13 explicit update any collective 4:r+5 8:rw+9 = ptx_wgmma_rs
4 uint64 pure any 0:r = ptx_wgmma_descriptor
1 uint32 pure any = ptx_shared_address
1+ explicit read any = texture2d_load
1+ void update any place = prefetch
2+ second update any = atomic_add
5+ void update any = print_buffer
5 handle update any = TVMBackendAllocWorkspace
3 int32 update any = TVMBackendFreeWorkspace
4-5 int32 update any = TVMBackendAnyListSetPackedArg
3-4 int32 update any = TVMBackendAnyListMoveFromPackedReturn
2 handle read any = anylist_getitem
2 int32 update any = anylist_resetitem
1 bool opaque any = assume
1 void update any = start_profile_intrinsic end_profile_intrinsic
2 bool pure any = filter
2 same update any = selector
0-1 same opaque any leaves = ret
0 void opaque any leaves = thread_return
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


_COSTS = {"instruction": Cost.INSTRUCTION, "short": Cost.SHORT}


def _read(line: str) -> Iterator[tuple[str, Intrinsic]]:
    """Yield the intrinsics of a line of the table."""
    facts, _, names = line.partition(" = ")
    count, result, effect, operands, *more = facts.split()
    low, _, high = count.rstrip("+").partition("-")
    most = None if count.endswith("+") else int(high or low)
    for name in names.split():
        yield name, Intrinsic(name, int(low), most, result, Effect[effect.upper()], operands, **_facts(more))


def _facts(words: list[str]) -> dict[str, Any]:
    """Return the optional facts as fields of the record."""
    facts: dict[str, Any] = {}
    for word in words:
        if word in _COSTS:
            facts["cost"] = _COSTS[word]
        elif ":" in word:
            at, _, access = word.partition(":")
            kind, _, offset = access.partition("+")
            pointer = Pointer(int(at), kind, int(offset) if offset else None)
            facts["pointers"] = (*facts.get("pointers", ()), pointer)
        elif "=" in word:
            field, _, at = word.partition("=")
            facts[field] = int(at)
        else:
            facts[word] = True
    return facts


def _lines() -> Iterator[str]:
    return iter(_TABLE.replace("\n    ", " ").strip().splitlines())


INTRINSICS: dict[str, Intrinsic] = dict(pair for line in _lines() for pair in _read(line))
_OF_OP = {f"tir.{name}": INTRINSICS[ALIASES.get(name, name)] for name in (*INTRINSICS, *ALIASES)}
_UNKNOWN = Intrinsic("", 0, None, "explicit", Effect.OPAQUE, "any")


def find(name: str) -> Intrinsic | None:
    """Return the intrinsic of that name, with or without `tir.`, under any of its names."""
    name = name.removeprefix("tir.").removeprefix("tirx.").removeprefix("prim.")
    return INTRINSICS.get(ALIASES.get(name, name))


def called(node: object) -> Intrinsic:
    """Return the intrinsic that a node calls; one of unknown effect for other nodes and target-specific operators."""
    if isinstance(node, tir.Call) and isinstance(node.op, tir.Op):
        return _OF_OP.get(node.op.name, _UNKNOWN)
    return _UNKNOWN


def name_of(node: object) -> str:
    """Return the name of the operator that a node calls, as in the text; empty for other nodes."""
    return node.op.name.removeprefix("tir.") if isinstance(node, tir.Call) and isinstance(node.op, tir.Op) else ""


def effect_of(call: tir.Call) -> Effect:
    """Return the effect of a call; calls of functions and of unknown operators are `OPAQUE`."""
    return called(call).effect


def result_dtype(of: Intrinsic, args: tuple[tir.Expr, ...]) -> DType | None:
    """Return the dtype of a call, or None if the text states it."""
    if of.result == "same":
        return args[0].dtype if args else DType.of("void")
    if of.result == "second":
        return args[1].dtype
    if of.result in ("explicit", "last"):
        return None
    if of.result == "groups":
        sums = DType.of("float32" if args[0].dtype.is_float else "int32")
        return sums.with_lanes(max(1, *(a.dtype.lanes * a.dtype.bits // 32 for a in args[:2])))
    if of.result == "place":
        return DType.of("int64").with_lanes(args[0].dtype.lanes)
    dtype = DType.of(of.result)
    if dtype.is_bool and args and args[0].dtype.lanes > 1:
        return dtype.with_lanes(args[0].dtype.lanes)
    return dtype
