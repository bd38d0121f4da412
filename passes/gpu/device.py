"""What lowering for a GPU makes of a PrimFunc: kernels, and host code that launches them.

The code of a kernel is loop code as `mlcc.passes.lowering` makes it for a CPU (no blocks, one index per access,
explicit vectors, allocations as statements), stated for one thread:

- The places of the thread in the grid are the variables of `axes`; there are no thread-bound loops, and no launch
  scopes. All threads of the grid run the body, and every loop around a barrier runs equally often in all of a block.
- Allocations have the scopes `local` (of a thread), `shared` and `shared.dyn` (of a block). Their sizes are constants;
  those of `shared.dyn` may depend on the parameters.
- What threads do together are calls: `tvm_storage_sync("shared")` is the barrier of a block, `tvm_storage_sync("warp")`
  that of a warp; `tvm_warp_shuffle`, `_up`, `_down`, `_xor` are (mask, value, lane or distance, width, 32) as in TVM;
  `ptx_*` and `mma_*` are TVM's.
- An assertion of the program that fails stores its number, counted from 1 in `asserts`, to the int32 at the last
  parameter, which the kernel has only where there are assertions. Checked indices count among them: the first that
  fails also stores the index and the extent, int64 each, 8 and 16 bytes behind (`mlcc.runtime.abi.RECORD`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.passes.gpu.tensor_map import TensorMap

VOID = DType.of("void")
GRID = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
BLOCK = ("threadIdx.x", "threadIdx.y", "threadIdx.z")


def block_barrier() -> tir.Evaluate:
    """A barrier of all threads of a block, with the arguments that TVM's has."""
    args = (tir.StringImm("shared"), c.const(False), c.const(-1))
    return tir.Evaluate(tir.Call(VOID, tir.Op("tir.tvm_storage_sync"), args))


@dataclass(frozen=True, slots=True, eq=False)
class DeviceKernel:
    """One kernel.

    `params` are pointers to global memory (those of buffers have theirs in `buffers`: flat, one element type) and
    scalars, in the order in which a launch passes them. `extents` maps the thread axes in use to how many there are:
    expressions over the scalar parameters, constants for those of a block where they are known; an axis that is missing
    has one. `axes` are the variables of these axes, int32 or int64. `dynamic_shared` is the size in bytes of all
    `shared.dyn` allocations together. `maps` are the parameters that are tensor maps, of type handle in the code: the
    argument of a launch states one (`tensor_map`).
    """

    name: str
    params: tuple[tir.Var, ...]
    buffers: tuple[tir.Buffer | None, ...]
    extents: Mapping[str, tir.Expr]
    axes: Mapping[str, tir.Var]
    body: tuple[tir.Stmt, ...]
    dynamic_shared: tir.Expr
    asserts: tuple[tuple[str, str], ...] = ()  # (kind, message) as the CPU's code has them
    attrs: Mapping[str, object] = field(default_factory=dict)
    maps: Mapping[tir.Var, TensorMap] = field(default_factory=dict)

    @property
    def dimensions(self) -> list[tir.Var]:
        """The variables that sizes of buffers are, or are products of: none of them is negative."""
        found: dict[tir.Var, None] = {}
        for buffer in self.buffers:
            stack = list(buffer.shape) if buffer is not None else []
            while stack:
                node = stack.pop()
                if isinstance(node, tir.Mul):
                    stack += [node.lhs, node.rhs]
                elif isinstance(node, tir.Cast) and node.dtype.kind == "int":
                    stack.append(node.value)
                elif isinstance(node, tir.Var) and node.dtype.kind == "int":
                    found[node] = None
        return list(found)


@dataclass(frozen=True, slots=True, eq=False)
class DeviceProgram:
    """A PrimFunc for a GPU.

    `host` is what the host does, in order: loop code whose statements are loops, conditions, bindings of scalars,
    allocations of global memory, assertions and launches. A launch is `Evaluate(Call(GlobalVar(kernel name),
    arguments))` with an argument for each parameter of the kernel, but not for that of its assertions.
    """

    func: tir.PrimFunc
    host: tuple[tir.Stmt, ...]
    kernels: tuple[DeviceKernel, ...]
