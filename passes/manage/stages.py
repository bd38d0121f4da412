"""The lowering stage of a module's PrimFuncs, as recorded in its attributes."""

from __future__ import annotations

from mlcc.ir.module import IRModule

# attributes of a module: the form of its PrimFuncs, the step that made it, the target of all steps so far
STAGE, STEP, TARGET = "mlcc.stage", "mlcc.step", "mlcc.target"
SANITIZED = "mlcc.sanitized"  # set for modules lowered with access checks
BLOCKS = "blocks"  # the default: loops around blocks, buffers of any rank
LOOPS = "loops"  # no blocks; buffers of any rank
FLAT = "flat"  # no blocks; one index per access
KERNELS = "kernels"  # kernels are functions, which host code launches


def stage_of(module: IRModule) -> str:
    """Return the lowering stage of a module's PrimFuncs."""
    return str(module.attrs.get(STAGE, BLOCKS))
