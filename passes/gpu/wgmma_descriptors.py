"""Encode the shared memory descriptors of `wgmma`: `ptx_wgmma_descriptor(pointer, leading, stride, width)` becomes 64
bits.

The format is that of the PTX ISA ("Matrix Descriptor Format"): addresses and distances in units of 16 bytes, and the
swizzle mode. `leading` and `stride` are the distances in bytes that the ISA calls by these names. `width` is that of a
swizzle in bytes, 0 for none; -1 stands for the swizzle of the buffer (`swizzle`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mlcc.errors import CompileError, error
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.node import replace
from mlcc.ir.tir import Expr
from mlcc.passes.gpu.matrix_calls import matrix_call_error
from mlcc.passes.gpu.swizzle import Permutation, swizzled_buffers
from mlcc.passes.gpu.wgmma_layout import MODES
from mlcc.passes.lowering.mutator import TirMutator
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.manage.stages import FLAT

_BITS = DType.of("uint64")
_LARGEST = 0x3FFFF  # bytes, the range of a 14-bit descriptor field


def encode_descriptors(func: tir.PrimFunc) -> tir.PrimFunc:
    """Return `func` (flat loop code without views) with descriptors as arithmetic on addresses (`ptx_shared_address`).
    Raises CompileError E0773 and E0774.
    """
    return replace(func, body=_Encoder(swizzled_buffers(func.body)).body(func.body))


class _Encoder(TirMutator):
    def __init__(self, known: Mapping[tir.Var, tuple[tir.Buffer, Permutation]]) -> None:
        self._known = known

    def expr_call(self, node: tir.Call) -> Expr:
        if node.op != tir.Op("tir.ptx_wgmma_descriptor"):
            return super().expr_call(node)
        pointer, leading, stride, width = node.args
        data_arg = pointer.args[1] if isinstance(pointer, tir.Call) and len(pointer.args) == 5 else pointer
        scope = data_arg.pointer.scope if isinstance(data_arg, tir.Var) and data_arg.pointer is not None else ""
        if not isinstance(data_arg, tir.Var) or not scope.startswith("shared"):
            raise matrix_call_error(node, "the matrix is not in shared memory")
        wanted = tir.const_int(width)
        if wanted == -1:
            wanted = self._width(node, data_arg)
        if wanted not in MODES:
            raise matrix_call_error(node, f"{wanted} is not a swizzle width", "it must be 128, 64, 32, or 0 for none")
        address = tir.Call(DType.of("uint32"), tir.Op("tir.ptx_shared_address"), (pointer,), span=node.span)
        total = _encode_field(c.cast(_BITS, address))
        fixed = MODES[wanted] << 62
        for value, shift in ((leading, 16), (stride, 32)):
            known = tir.const_int(value)
            if known is None:
                total = _op(
                    "bitwise_or", total, _op("shift_left", _encode_field(c.cast(_BITS, value)), c.const(shift, _BITS))
                )
                continue
            if not (0 <= known <= _LARGEST and known % 16 == 0):
                raise matrix_call_error(
                    node, f"a distance is {known} bytes", "distances must be multiples of 16 below 262144"
                )
            fixed |= known >> 4 << shift
        return _op("bitwise_or", total, c.const(fixed, _BITS))

    def _width(self, node: tir.Call, data: tir.Var) -> int:
        if data not in self._known:
            help = "annotate the block that fills it with `permuted_layout`"
            message = f"`{data.name}` is read by `wgmma`, which needs a swizzled layout"
            raise CompileError(error("E0774", message, node.span, help=help))
        buffer, order = self._known[data]
        if not order.is_by_address:
            help = "`transform_layout` makes rows of 128 bytes: `lambda i, j: (j // 64, i, j % 64)` of 16-bit elements"
            message = f"`{buffer.name}` has rows of {order.row} bytes; `wgmma` reads rows of {order.width}"
            raise CompileError(error("E0774", message, node.span, help=help))
        return order.width


def _encode_field(value: Expr) -> Expr:
    """Return bits 4 to 17 of a value."""
    return _op("shift_right", _op("bitwise_and", value, c.const(_LARGEST, _BITS)), c.const(4, _BITS))


def _op(name: str, a: Expr, b: Expr) -> Expr:
    return tir.Call(_BITS, tir.Op(f"tir.{name}"), (a, b))


@dataclass(frozen=True)
class EncodeDescriptors(LoweringStep):
    """Encode the shared memory descriptors of warpgroup products.

    Before:  T.ptx_wgmma_descriptor(S.data, 16, 1024, 128)
    After:   the 64 bits, over the address of S
    """

    name: ClassVar[str] = "encode-descriptors"
    takes: ClassVar[str] = FLAT
    gives: ClassVar[str] = FLAT

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return encode_descriptors(func)
