"""The calling convention of kernels, internal to one object.

    i32 @kernel(P1, ..., Pn, i64 S1, ..., i64 Sm, [ptr result,] ptr workspace)

- One parameter per parameter of the PrimFunc, in order. A buffer is a `ptr` to its data: to its first element, or,
  where `elem_offset` is a constant or a symbol, to the place from which that offset counts in elements. A caller that
  passes a pointer to the first element passes 0 for an `elem_offset` symbol. A scalar has its own LLVM type (bool is
  i8, float16 and bfloat16 are i16, their bits); other handles are `ptr`.
- One i64 per symbol: each variable that shapes, strides and offsets of the buffers introduce and that is not itself a
  parameter, in order of first occurrence (parameter by parameter; shape, then strides, then offset).
- `result`, only for a function that returns a value: where to put it.
- `workspace`: scratch memory of `Kernel.workspace` bytes, aligned to 64; may be null where that is 0.
- The value is 0, or an error code of `ModuleContext.errors`, or one that a packed function gave.

Memory of distinct buffers does not overlap. Natural alignment of the element suffices everywhere but in the workspace.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlcc.ir import tir
from mlcc.targets.llvm.codegen.types import memory_type
from mlcc.targets.plan.signature import KernelParam, KernelSignature


@dataclass(frozen=True, slots=True)
class Kernel:
    """An emitted kernel. `workspace` is how many bytes of scratch memory it needs: an int64 expression over the
    signature's symbols and scalar parameters (a constant unless temporaries have symbolic shapes)."""

    symbol: str
    signature: KernelSignature
    workspace: tir.Expr


def param_type(param: KernelParam) -> str:
    """The LLVM type of a parameter."""
    return "ptr" if param.var.dtype.is_handle else memory_type(param.var.dtype)


def llvm_params(signature: KernelSignature) -> list[tuple[str, str]]:
    """(type, name hint) of every parameter of the LLVM function."""
    params = [(param_type(p), p.buffer.name if p.buffer is not None else p.var.name) for p in signature.params]
    params += [("i64", s.name) for s in signature.symbols]
    if signature.result is not None:
        params.append(("ptr", "result"))
    return [*params, ("ptr", "workspace")]
