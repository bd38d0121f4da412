"""Lower TensorIR for GPUs: kernels as the code of one thread, and host code that launches them (see `device`).

The steps are passes, one module each; `mlcc.targets.cuda.backend` lists them in order.
"""

from mlcc.passes.gpu.device import BLOCK, GRID, DeviceKernel, DeviceProgram

__all__ = ["BLOCK", "GRID", "DeviceKernel", "DeviceProgram"]
