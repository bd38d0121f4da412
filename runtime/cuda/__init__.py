"""NVIDIA GPUs: a `Device` over the CUDA driver, by pycuda where that is installed, else by NVIDIA's cuda-bindings.

Imported only when an artifact for CUDA is loaded. `MLCC_CUDA_DRIVER` (`pycuda` or `bindings`) picks the package,
`MLCC_CUDA_DEVICE` the number of the device.
"""

from __future__ import annotations

import functools
import importlib
import os

from mlcc.errors import MachineError, error
from mlcc.runtime import settings
from mlcc.runtime.cuda.device import CudaDevice
from mlcc.runtime.cuda.driver import Driver, NoDriver

_LAYERS = {"pycuda": "mlcc.runtime.cuda.with_pycuda", "bindings": "mlcc.runtime.cuda.with_bindings"}


@functools.cache
def default_device() -> CudaDevice:
    """The device that artifacts run on unless another one is given. Raises MachineError E0860 where there is none,
    LoadError E0015 for a variable that names none."""
    settings.check("MLCC_CUDA_DEVICE")
    return CudaDevice(find_driver(), int(os.environ.get("MLCC_CUDA_DEVICE", "").strip() or 0))


def find_driver() -> Driver:
    """The CUDA driver by the first package that is there and works. Raises MachineError E0860: what is missing."""
    asked = os.environ.get("MLCC_CUDA_DRIVER")
    reasons = []
    for name, module in _LAYERS.items():
        if asked and asked != name:
            continue
        try:
            driver: Driver = importlib.import_module(module).open_driver()
            return driver
        except NoDriver as exc:
            reasons.append(str(exc))
    reason = "; ".join(dict.fromkeys(reasons)) or f"MLCC_CUDA_DRIVER is `{asked}`: it names no package"
    raise MachineError(
        error(
            "E0860", f"no CUDA device can be used: {reason}",
            help="the artifact needs an NVIDIA GPU, its driver, and `pip install 'mlcc[cuda]'`",
        )
    )  # fmt: skip
