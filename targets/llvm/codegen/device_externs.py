"""Functions of C in code for a GPU, which has no library of them: by the intrinsic that is the same, or own formulas.

Emulated kernels use them too, so that they compute what a device does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcc.errors import did_you_mean
from mlcc.ir import tir
from mlcc.targets.llvm.codegen import vmath
from mlcc.targets.llvm.codegen.ir_text import Value
from mlcc.targets.llvm.codegen.libm import LIBM
from mlcc.targets.llvm.codegen.refuse import unsupported

if TYPE_CHECKING:
    from mlcc.targets.llvm.codegen.emitter import Emitter

_SAME = {name: name for name in (*vmath.UNARY, *vmath.ROUNDING, *vmath.BINARY, "fabs", "copysign", "fma", "ldexp")}
_SAME |= {"rint": "nearbyint", **{name: name for name in vmath.C_ONLY}}
# C's name -> the intrinsic or formula that computes it, and the bits of its floats
EXTERNS = {
    name: (same, bits) for base, same in _SAME.items() for name, bits in ((base, 64), (f"{base}f", 32)) if name in LIBM
}


def extern(e: Emitter, node: tir.Call) -> Value:
    """call_extern(name, ...) of a function of libm. Raises CompileError for others."""
    name = node.args[0].value if node.args and isinstance(node.args[0], tir.StringImm) else ""
    same, bits = EXTERNS.get(name, ("", 0))
    if not same or node.dtype.kind != "float" or node.dtype.bits != bits:
        near = did_you_mean(name, EXTERNS)
        help = "a kernel can call functions of libm that have their like on a device" + (f"; {near}" if near else "")
        message = f"the extern `{name}` cannot be called inside a kernel as {node.dtype}"
        raise unsupported(message, node.span, help=help)
    args = node.args[1:]
    if same not in vmath.C_ONLY:
        return e.CALLS[same](e, tir.Call(node.dtype, tir.Op(f"tir.{same}"), args, span=node.span))
    count = len(LIBM[name]) - 1
    if len(args) != count or any(a.dtype is not node.dtype for a in args):
        help = f"`{name}` takes {count} argument{'s' * (count > 1)} of {node.dtype}"
        raise unsupported(f"the extern `{name}` is called with others", node.span, help=help)
    return vmath.call(e, same, [e.expr(a) for a in args], node.dtype.lanes)
