"""The GPU of the machine, for tests that are marked `gpu`."""

from __future__ import annotations

import pytest

from mlcc.errors import MlccError
from mlcc.machine.gpu import best_for
from mlcc.runtime.cuda import default_device
from mlcc.runtime.cuda.device import CudaDevice


@pytest.fixture(scope="session")
def gpu() -> CudaDevice:
    """The device that artifacts run on; the test is skipped where there is none, with the reason."""
    try:
        return default_device()
    except MlccError as exc:
        pytest.skip(exc.diagnostics[0].message)


@pytest.fixture(scope="session")
def target(gpu: CudaDevice) -> str:
    """The best architecture that mlcc generates code for and the device runs."""
    return f"cuda{{arch={best_for(gpu.capability)}}}"
