"""The tuner's side of a Dask worker: reports the worker's machine, and measures batches with a local runner.

    dask worker tls://SCHEDULER:8786 --nthreads 1 --preload mlcc.tune.measure.dask_worker

Candidates run in processes that the runner forks: one that crashes, or takes all memory, ends neither the worker nor
what other tasks of it do. Nothing here needs Dask itself.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

from mlcc.machine.device import device_key
from mlcc.machine.target import CudaTarget, Target

if TYPE_CHECKING:
    from mlcc.tune.contracts import Outcome, Runner

TAG = "mlcc:"  # of resources, before the device key

_lock = threading.Lock()
_runners: dict[tuple[str, bytes], Runner] = {}  # at most one: for the last kind of target and options


async def dask_setup(worker: Any) -> None:
    """Offer this machine, and its GPU if there is one, as a resource of the worker; Dask calls it for `--preload`."""
    await worker.set_resources(**dict.fromkeys(tags(), 1.0))


def dask_teardown(worker: Any) -> None:
    """End the processes of the runner, as the worker ends."""
    close()


def tags() -> list[str]:
    """Return the resource names of this machine's devices."""
    from mlcc.errors import MachineError

    names = [TAG + device_key(Target.parse("llvm"))]
    with contextlib.suppress(MachineError):
        names.append(TAG + device_key(Target.parse("cuda{arch=native}")))
    return names


def measure(version: str, options: bytes, request: bytes) -> list[Outcome]:
    """The outcomes of a batch; `options` are those of the runner of the target, `request` what its `measure` takes,
    packed.

    Raises CompileError: E1146 where another version of mlcc asks, others as the runner does.
    """
    import mlcc
    from mlcc.errors import CompileError, error
    from mlcc.tune.measure.serialize import deserialize

    if version != mlcc.__version__:
        message = f"the tuner has mlcc {version}, but the worker has mlcc {mlcc.__version__}"
        raise CompileError(error("E1146", message, help="install one version on all machines"))
    task, *rest = deserialize(request)
    key = task.target.kind, options
    with _lock:
        if key not in _runners:
            _close()
            _runners[key] = _runner(task.target, **deserialize(options))
        return _runners[key].measure(task, *rest)


def _runner(target: Target, **options: Any) -> Runner:
    """Return a runner for a target on the worker's machine."""
    from mlcc.tune.measure.gpu import GpuRunner
    from mlcc.tune.measure.local import LocalRunner

    return GpuRunner(**options) if isinstance(target, CudaTarget) else LocalRunner(**options)


def close() -> None:
    """End the processes of the runner."""
    with _lock:
        _close()


def _close() -> None:
    while _runners:
        _runners.popitem()[1].close()
