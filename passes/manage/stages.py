"""How far the PrimFuncs of a module are lowered, as its attributes say."""

from __future__ import annotations

from mlcc.ir.module import IRModule

STAGE, STEP = "mlcc.stage", "mlcc.step"  # attributes of a module: the form of its PrimFuncs, the step that made it
BLOCKS = "blocks"  # of a module that says nothing: loops around blocks, buffers of any rank
LOOPS = "loops"  # no blocks; buffers of any rank
FLAT = "flat"  # no blocks; one index per access
KERNELS = "kernels"  # kernels are functions, which host code launches


def stage_of(module: IRModule) -> str:
    """The form of the PrimFuncs of a module."""
    return str(module.attrs.get(STAGE, BLOCKS))
