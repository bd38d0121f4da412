"""The Metal Shading Language (3.1), as Apple's GPUs compile it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mlcc.errors import Span
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.targets.llvm.codegen.vmath import coefficients
from mlcc.targets.source.dialect import Dialect, Param, refuse
from mlcc.targets.source.tensor_cores import copied_bytes

_VECTORS = {
    "int8": "char", "uint8": "uchar", "bool": "uchar", "int16": "short", "uint16": "ushort", "int32": "int",
    "uint32": "uint", "int64": "long", "uint64": "ulong", "float16": "half", "bfloat16": "bfloat", "float32": "float",
}  # fmt: skip
_ADDRESS_SPACES = {"global": "device", "shared": "threadgroup", "shared.dyn": "threadgroup", "local": "thread"}
_PRECISE_NAMES = """
    acos acosh asin asinh atan atanh cos cosh sin sinh tan tanh exp exp2 exp10 log log2 log10 sqrt rsqrt pow
    fmod atan2
"""
_PRECISE = frozenset(_PRECISE_NAMES.split())
_MATH = frozenset(("fabs", "floor", "ceil", "trunc", "copysign", "fma", "nextafter"))
_OTHER_MATH = {"round": "rint", "nearbyint": "rint"}
_SYNC = {
    "shared": "threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup)",
    "shared.dyn": "threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup)",
    "warp": "simdgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup)",
}
_SHUFFLES = {
    "tvm_warp_shuffle": "simd_shuffle", "tvm_warp_shuffle_up": "simd_shuffle_up",
    "tvm_warp_shuffle_down": "simd_shuffle_down", "tvm_warp_shuffle_xor": "simd_shuffle_xor",
}  # fmt: skip


def _polynomial(x: str, terms: Sequence[float]) -> str:
    """Return a polynomial by Horner's rule; the coefficient of lowest degree comes first."""
    value = f"{terms[-1]!r}f"
    for number in reversed(terms[:-1]):
        value = f"fma({value}, {x}, {number!r}f)"
    return value


# float functions that are missing in Metal's library
_MISSING_FUNCTIONS = {
    "erf_f": (
        "float", "float x", "const float a = fabs(x), z = a * a, t = (a > 4.0f ? 4.0f : a) - 2.0f;\n"
        f"  const float near = fma({_polynomial('z', coefficients.ERF['float'])}, a, a);\n"
        f"  const float far = 1.0f - precise::exp({_polynomial('t', coefficients.ERFC['float'])});\n"
        "  return x != x ? x : copysign(a < 0.921875f ? near : far, x);",
    ),
    "log1p_f": (
        "float", "float x", "const float u = 1.0f + x;\n"
        "  return u == 1.0f || u == INFINITY ? x : precise::log(u) * (x / (u - 1.0f));",
    ),
    "hypot_f": (
        "float", "float x, float y",
        "const float a = fabs(x), b = fabs(y), high = a < b ? b : a, low = a < b ? a : b;\n"
        "  if (high == INFINITY || low == INFINITY) return INFINITY;\n"
        "  const float r = low / high;\n"
        "  return high == 0.0f ? high : high * precise::sqrt(fma(r, r, 1.0f));",
    ),
}  # fmt: skip


# a kernel cannot end a single thread: element 0 is accessed even if the dimension is empty
_CHECK_BODY = """if (ulong({place}) < ulong(extent)) return {place};
  int none = 0;
  while (!atomic_compare_exchange_weak_explicit((device atomic_int*)record, &none, number, memory_order_relaxed,
                                                memory_order_relaxed)) {{
    if (none != 0) return 0;
  }}
  ((device long*)record)[1] = index;
  ((device long*)record)[2] = extent;
  return 0;"""
_CHECK_SIGNATURE = ("long", "long index, long extent, int number, device int* record")
_CHECK_HELPERS = {
    "checked_index": (*_CHECK_SIGNATURE, _CHECK_BODY.format(place="index")),
    "checked_from_end": (
        *_CHECK_SIGNATURE,
        "const long place = index < 0 ? index + extent : index;\n  " + _CHECK_BODY.format(place="place"),
    ),
}  # fmt: skip


class Metal(Dialect):
    name = "Metal"
    words = Dialect.words | {
        "kernel", "device", "threadgroup", "thread", "constant", "metal", "block", "position", "dynamic_shared",
        "fragment", "vertex", "sampler", "texture", "uint2", "uint3", "uint4", "as_type",
    }  # fmt: skip
    inline = "static inline"
    shared = "threadgroup"
    types = {
        "bool": "uchar", "int8": "char", "uint8": "uchar", "int16": "short", "uint16": "ushort", "int32": "int",
        "uint32": "uint", "int64": "long", "uint64": "ulong", "float16": "half", "bfloat16": "bfloat",
        "float32": "float",
    }  # fmt: skip
    long_suffix = "l"
    helpers = {**_MISSING_FUNCTIONS, **_CHECK_HELPERS}

    # ------------------------------------------------------------ types

    def vector(self, dtype: DType, lanes: int) -> str | None:
        return f"{_VECTORS[str(dtype)]}{lanes}" if lanes in (2, 4) and str(dtype) in _VECTORS else None

    def make_vector(self, dtype: DType, lanes: Sequence[str]) -> str:
        return f"{self.vector(dtype, len(lanes))}({', '.join(lanes)})"

    def lane(self, vector: str, dtype: DType, lanes: int, lane: int) -> str:
        return f"{vector}.{'xyzw'[lane]}"

    def pointer(self, type: str, scope: str, const: bool = False) -> str:
        return f"{_ADDRESS_SPACES[scope]} {'const ' if const else ''}{type}*"

    # ------------------------------------------------------------ values

    def from_memory(self, text: str, dtype: DType) -> str:
        return f"float({text})"

    def to_memory(self, text: str, dtype: DType, source: DType) -> str:
        return f"{self.memory(dtype)}({text})"

    # ------------------------------------------------------------ functions

    def use(self, helper: str) -> str:
        return helper if helper == "as_type" else super().use(helper)  # Metal's own

    def math(self, name: str, dtype: DType, span: Span | None) -> str:
        if name in _PRECISE:
            return f"precise::{name}"
        if f"{name}_f" in _MISSING_FUNCTIONS:
            return self.use(f"{name}_f")
        function = _OTHER_MATH.get(name, name if name in _MATH else None)
        if function is None:
            raise refuse(f"Metal has no `{name}`", span, "compute it in another kernel or on the host")
        return function

    def intrinsic(self, name: str, args: Sequence[str], node: tir.Call) -> str | None:
        if name == "tvm_storage_sync":
            return _SYNC.get(args[0])
        if name in _SHUFFLES:
            if tir.const_int(node.args[3]) != 32:
                raise refuse("Metal shuffles within all 32 threads of a SIMD group only", node.span)
            if node.dtype.bits == 64:  # in two halves: shuffles take at most 32 bits
                halves = f"{_SHUFFLES[name]}(as_type<uint2>({args[1]}), {args[2]})"
                return f"as_type<{self.memory(node.dtype, node.span)}>({halves})"
            return f"{_SHUFFLES[name]}({args[1]}, {args[2]})"
        if name in ("popcount", "clz"):
            return f"{name}({args[0]})"
        if name == "ptx_cp_async":
            return _copy_directly(args, node)
        if name in ("ptx_commit_group", "ptx_wait_group"):
            return ""  # copies complete immediately
        if name.startswith(("ptx_mma", "ptx_ldmatrix", "ptx_wgmma")):
            help = "schedule for a GPU without tensor cores: -t 'cuda{arch=sm_75}'"
            raise refuse("Metal has no instructions of NVIDIA's tensor cores", node.span, help)
        return f"ldexp({args[0]}, {args[1]})" if name == "ldexp" else None

    # ------------------------------------------------------------ kernels

    def head(
        self, name: str, params: Sequence[Param], threads: int | None, axes: Mapping[str, str], dynamic: int
    ) -> list[str]:
        declarations = [_parameter(p, at) for at, p in enumerate(params)]
        attributes = {
            "blockIdx": "uint3 block [[threadgroup_position_in_grid]]",
            "threadIdx": "uint3 position [[thread_position_in_threadgroup]]",
        }
        if dynamic:
            declarations.append("threadgroup uchar* dynamic_shared [[threadgroup(0)]]")
        declarations += [attribute for axis, attribute in attributes.items() if any(a.startswith(axis) for a in axes)]
        bounds = [] if threads is None else [f"[[max_total_threads_per_threadgroup({threads})]]"]
        lines = [
            *bounds,
            f"kernel void {name}(",
            *(f"    {x}," for x in declarations[:-1]),
            f"    {declarations[-1]}) {{",
        ]
        source = {"blockIdx": "block", "threadIdx": "position"}
        return [*lines, *(f"  const int {v} = int({source[a[:-2]]}{a[-2:]});" for a, v in axes.items())]

    def includes(self) -> list[str]:
        return ["#include <metal_stdlib>", "using namespace metal;"]


def _copy_directly(args: Sequence[str], node: tir.Call) -> str:
    """Print an asynchronous copy as a load and a store; it stores zeros if its condition is false."""
    type = {4: "uint", 8: "uint2", 16: "uint4"}[copied_bytes(node)]
    target = f"*(threadgroup {type}*)({args[0]} + ({args[1]}))"
    source = f"*(device const {type}*)({args[2]} + ({args[3]}))"
    return f"{target} = {source}" if len(args) == 5 else f"{target} = ({args[5]}) ? {source} : {type}(0)"


def _parameter(param: Param, at: int) -> str:
    attribute = f"[[buffer({at})]]"
    if not param.is_pointer:
        return f"constant {param.type}& {param.name} {attribute}"
    return f"device {'const ' if param.const else ''}{param.type}* {param.name} {attribute}"
