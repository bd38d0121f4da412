"""CUDA C++, as nvcc and NVRTC compile it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mlcc.errors import Span
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.targets.source import bulk_copies, tensor_cores, wgmma
from mlcc.targets.source.dialect import Dialect, Param, refuse

_VECTORS = {
    "int8": "char", "uint8": "uchar", "bool": "uchar", "int16": "short", "uint16": "ushort", "int32": "int",
    "uint32": "uint", "int64": "longlong", "uint64": "ulonglong", "float32": "float", "float64": "double",
}  # fmt: skip
_NARROW = {"float16": ("__half2float", "__float2half_rn", "__double2half"),
           "bfloat16": ("__bfloat162float", "__float2bfloat16_rn", "__double2bfloat16")}  # fmt: skip
_MATH_NAMES = """
    acos acosh asin asinh atan atanh cos cosh sin sinh tan tanh exp exp2 exp10 log log2 log10 log1p sqrt rsqrt
    erf fabs floor ceil trunc pow fmod atan2 hypot copysign nextafter fma
"""
_MATH = frozenset(_MATH_NAMES.split())
_OTHER_MATH = {"round": "rint", "nearbyint": "rint"}
_SYNC = {"shared": "__syncthreads()", "shared.dyn": "__syncthreads()", "warp": "__syncwarp()"}
_EXTERNS = {"__exp2f": "exp2f"}  # CUDA C has no power of two that flushes denormals; its own is as exact
_SHUFFLES = {
    "tvm_warp_shuffle": "__shfl_sync", "tvm_warp_shuffle_up": "__shfl_up_sync",
    "tvm_warp_shuffle_down": "__shfl_down_sync", "tvm_warp_shuffle_xor": "__shfl_xor_sync",
}  # fmt: skip


_CHECK_BODY = """if ((unsigned long long){place} < (unsigned long long)extent) return {place};
  if (atomicCAS(record, 0, number) == 0) {{
    ((long long*)record)[1] = index;
    ((long long*)record)[2] = extent;
  }}
  if (extent < 1) asm volatile("exit;");
  return 0;"""
_CHECK_SIGNATURE = ("long long", "long long index, long long extent, int number, int* record")
_CHECK_HELPERS = {
    "checked_index": (*_CHECK_SIGNATURE, _CHECK_BODY.format(place="index")),
    "checked_from_end": (
        *_CHECK_SIGNATURE,
        "const long long place = index < 0 ? index + extent : index;\n  " + _CHECK_BODY.format(place="place"),
    ),
}  # fmt: skip


class CudaC(Dialect):
    name = "CUDA C"
    words = Dialect.words | {"threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize", "dynamic_shared", "bytes"}
    inline = "static __device__ __forceinline__"
    shared = "__shared__ __align__({})"
    in_registers = "__align__(16) "
    types = {
        "bool": "unsigned char", "int8": "signed char", "uint8": "unsigned char", "int16": "short",
        "uint16": "unsigned short", "int32": "int", "uint32": "unsigned int", "int64": "long long",
        "uint64": "unsigned long long", "float16": "__half", "bfloat16": "__nv_bfloat16", "float32": "float",
        "float64": "double",
    }  # fmt: skip
    long_suffix = "ll"
    helpers = _CHECK_HELPERS

    def __init__(self) -> None:
        super().__init__()
        self._headers: dict[str, None] = {}

    # ------------------------------------------------------------ types

    def tensor_map(self, span: Span | None = None) -> str:
        self._headers.setdefault("cuda.h")
        return "const __grid_constant__ CUtensorMap"

    def memory(self, dtype: DType, span: Span | None = None) -> str:
        if str(dtype.element) in _NARROW:
            self._headers.setdefault("cuda_fp16.h" if dtype.kind == "float" else "cuda_bf16.h")
        return super().memory(dtype, span)

    def vector(self, dtype: DType, lanes: int) -> str | None:
        if lanes * dtype.bytes not in (2, 4, 8, 16):
            return None
        scalar = _VECTORS.get(str(dtype))
        if scalar is not None and (lanes == 2 or (lanes == 4 and dtype.bytes <= 4)):
            return f"{scalar}{lanes}"
        self.use("lanes")
        return f"lanes<{self.memory(dtype)}, {lanes}>"

    def make_vector(self, dtype: DType, lanes: Sequence[str]) -> str:
        type = self.vector(dtype, len(lanes)) or ""
        listed = ", ".join(lanes)
        return f"{type}{{{{{listed}}}}}" if type.startswith("lanes<") else f"make_{type}({listed})"

    def lane(self, vector: str, dtype: DType, lanes: int, lane: int) -> str:
        type = self.vector(dtype, lanes) or ""
        return f"{vector}.at[{lane}]" if type.startswith("lanes<") else f"{vector}.{'xyzw'[lane]}"

    def pointer(self, type: str, scope: str, const: bool = False) -> str:
        return f"{'const ' if const else ''}{type}*"

    # ------------------------------------------------------------ values

    def from_memory(self, text: str, dtype: DType) -> str:
        return f"{_NARROW[str(dtype)][0]}({text})"

    def to_memory(self, text: str, dtype: DType, source: DType) -> str:
        self.memory(dtype)
        return f"{_NARROW[str(dtype)][2 if source.bits == 64 else 1]}({text})"

    # ------------------------------------------------------------ functions

    def math(self, name: str, dtype: DType, span: Span | None) -> str:
        known = _OTHER_MATH.get(name, name if name in _MATH else None)
        if known is None:
            raise refuse(f"`T.{name}` has no form in CUDA C", span)
        return known if dtype.bits == 64 else f"{known}f"

    def intrinsic(self, name: str, args: Sequence[str], node: tir.Call) -> str | None:
        if name == "tvm_storage_sync":
            return _SYNC.get(args[0])
        if name in _SHUFFLES:
            return f"{_SHUFFLES[name]}({', '.join(args[:4])})"
        if name == "tvm_warp_activemask":
            return "__activemask()"
        if name == "atomic_add":
            return f"atomicAdd({', '.join(args[:2])})"
        if name in ("popcount", "clz"):
            return _count_bits(name, args[0], node)
        if name == "ldexp":
            return f"{'ldexp' if node.dtype.bits == 64 else 'ldexpf'}({args[0]}, {args[1]})"
        if name in ("call_extern", "call_pure_extern"):
            return f"{_EXTERNS.get(args[0], args[0])}({', '.join(args[1:])})"
        asm = bulk_copies.asm_statement(name, args, node) or tensor_cores.asm_statement(name, args, node)
        return asm or wgmma.asm_statement(name, args, node, self.sums)

    def registers(self, name: str, buffer: tir.Buffer) -> list[tuple[str, str]]:
        return wgmma.registers(name, tir.const_int(buffer.shape[0]) or 0, buffer.dtype)

    # ------------------------------------------------------------ kernels

    def head(
        self, name: str, params: Sequence[Param], threads: int | None, axes: Mapping[str, str], dynamic: int
    ) -> list[str]:
        bounds = "" if threads is None else f" __launch_bounds__({threads})"
        listed = [_parameter(p) for p in params]
        lines = [f'extern "C" __global__ void{bounds} {name}({", ".join(listed)}) {{']
        lines += [f"  const int {variable} = {axis};" for axis, variable in axes.items()]
        return lines + [f"  extern __shared__ __align__({dynamic}) unsigned char dynamic_shared[];"] * bool(dynamic)

    def includes(self) -> list[str]:
        lines = [f"#include <{h}>" for h in self._headers]
        if self.uses("lanes"):
            lines += ["", "template <typename T, int N>", "struct __align__(sizeof(T) * N) lanes {", "  T at[N];", "};"]
        return lines


def _parameter(param: Param) -> str:
    if not param.is_pointer:
        return f"{param.type} {param.name}"
    restrict = " __restrict__" if param.restrict else ""
    return f"{'const ' if param.const else ''}{param.type}*{restrict} {param.name}"


def _count_bits(name: str, arg: str, node: tir.Call) -> str:
    source = node.args[0].dtype
    wide = source.bits == 64
    function = ("__popc" if name == "popcount" else "__clz") + ("ll" if wide else "")
    if source.bits < 32:  # without the sign's copies, and the zeros before them
        count = f"{function}((unsigned int)({arg}) & {(1 << source.bits) - 1}u)"
        return count if name == "popcount" else f"({count} - {32 - source.bits})"
    return f"{function}({arg})"
