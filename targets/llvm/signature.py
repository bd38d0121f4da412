"""How a kernel is called: the internal convention between emitted functions of one object.

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
from mlcc.ir.dtypes import DType
from mlcc.passes.lowering.symbols import symbols_of
from mlcc.targets.llvm.types import memory_type


@dataclass(frozen=True, slots=True)
class KernelParam:
    """A parameter: its variable, its LLVM type, and its buffer if it has one."""

    var: tir.Var
    type: str
    buffer: tir.Buffer | None = None


@dataclass(frozen=True, slots=True)
class KernelSignature:
    """What a caller has to pass; see the module's text for the order."""

    params: tuple[KernelParam, ...]
    symbols: tuple[tir.Var, ...]
    result: DType | None = None

    def llvm_params(self) -> list[tuple[str, str]]:
        """(type, name hint) of every parameter of the LLVM function."""
        made = [(p.type, p.buffer.name if p.buffer is not None else p.var.name) for p in self.params]
        made += [("i64", s.name) for s in self.symbols]
        if self.result is not None:
            made.append(("ptr", "result"))
        return [*made, ("ptr", "workspace")]


@dataclass(frozen=True, slots=True)
class Kernel:
    """An emitted kernel. `workspace` is how many bytes of scratch memory it needs: an int64 expression over the
    signature's symbols and scalar parameters (a constant unless temporaries have symbolic shapes)."""

    symbol: str
    signature: KernelSignature
    workspace: tir.Expr


def signature(func: tir.PrimFunc) -> KernelSignature:
    """The calling convention of a PrimFunc."""
    params = tuple(
        KernelParam(var, "ptr" if var.dtype.is_handle else memory_type(var.dtype), buffer)
        for var, buffer in zip(func.params, func.buffers, strict=True)
    )
    return KernelSignature(params, symbols_of(func), func.ret_dtype)
