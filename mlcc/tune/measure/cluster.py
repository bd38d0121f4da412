"""A runner on the workers of a Dask cluster (`pip install 'mlcc[cluster]'`); see `dask_worker` for what those do."""

from __future__ import annotations

import contextlib
import ipaddress
import time
from collections.abc import Sequence
from concurrent.futures import CancelledError
from typing import Any
from urllib.parse import urlsplit

import mlcc
from mlcc.errors import CompileError, error
from mlcc.ir import tir
from mlcc.machine.device import gpu_runs, is_gpu
from mlcc.machine.target import CudaTarget
from mlcc.tune.contracts import Outcome, Status, Task
from mlcc.tune.measure import dask_worker
from mlcc.tune.measure.closeable import Closeable
from mlcc.tune.measure.dask_worker import TAG
from mlcc.tune.measure.serialize import serialize

_POLL_SECONDS = 2.0  # seconds between checks of the available workers
_RETRIES = 2  # of a batch whose worker was killed


class DaskRunner(Closeable):
    """Builds, checks and times candidates on the workers of a cluster; see `contracts.Runner`.

    `cluster` is a Dask client, or the address of a scheduler: tls://host:port, with the certificates of `security`
    (distributed.Security) or of Dask's configuration; tcp:// for this machine alone. All workers must be of one
    `device` (a device key), a CPU or, with `gpu`, a GPU; it may be omitted if all workers offer the same.
    They measure `batch` candidates at a time; workers may come and go, but `patience` seconds without any are an error.
    `timeout` is for the connection, `options` are those of `LocalRunner`, or `GpuRunner`. A context manager.

    Raises CompileError: E1143 for a device that no worker has, E1144 without Dask, E1145 where the connection is open
    to all, or there is none.
    """

    def __init__(
        self, cluster: Any, device: str | None = None, *, gpu: bool = False, security: Any = None, batch: int = 8,
        patience: float = 60.0, timeout: float = 20.0, **options: Any,
    ) -> None:  # fmt: skip
        self._is_ours = isinstance(cluster, str)
        self._client = _connect(cluster, security, timeout) if self._is_ours else _check_client(cluster)
        self._gpu = gpu
        self._batch = batch
        self._patience = patience
        self._options = serialize(options)
        try:
            self.device = self._choose_device(device)
        except BaseException:
            self.close()
            raise

    def measure(
        self, task: Task, baseline: tir.PrimFunc, candidates: Sequence[tir.PrimFunc], samples: int
    ) -> list[Outcome]:
        """The outcomes of `candidates` in order. Raises CompileError as `LocalRunner` does, and E1143 where no worker
        is left, or the workers' GPU does not run code for the target."""
        if isinstance(task.target, CudaTarget) and not gpu_runs(self.device, task.target):
            raise CompileError(error("E1143", f"the workers' {self.device} does not run code for {task.target}"))
        parts = [candidates[at : at + self._batch] for at in range(0, len(candidates), self._batch)]
        futures = [self._submit(serialize((task, baseline, part, samples))) for part in parts]
        try:
            outcomes = [self._outcomes(future, part) for future, part in zip(futures, parts, strict=True)]
        finally:
            with contextlib.suppress(Exception):
                self._client.cancel(futures)
        return [outcome for part in outcomes for outcome in part]

    def close(self) -> None:
        """Close the connection, if this runner opened it."""
        if self._is_ours:
            self._client.close()

    # ------------------------------------------------------------ tasks

    def _submit(self, request: bytes) -> Any:
        return self._client.submit(
            dask_worker.measure, mlcc.__version__, self._options, request, resources={TAG + self.device: 1}, pure=False
        )

    def _outcomes(self, future: Any, candidates: Sequence[tir.PrimFunc]) -> list[Outcome]:
        """Wait for the outcomes of a batch; a batch that kills its workers counts as crashed."""
        from distributed import KilledWorker

        for _ in range(_RETRIES):
            try:
                return list(self._await(future))
            except KilledWorker:
                future.retry()
        try:
            return list(self._await(future))
        except KilledWorker:
            return [Outcome(Status.CRASH, why="the measuring worker was killed")] * len(candidates)

    def _await(self, future: Any) -> Any:
        """Wait for a future. Raises CompileError E1143 if no suitable worker appears in time, E1145 if the scheduler is
        lost."""
        since = time.monotonic()
        while True:
            try:
                return future.result(timeout=_POLL_SECONDS)
            except TimeoutError:
                if future.done():
                    return future.result()  # it has just finished, or the task raised TimeoutError
            except CancelledError:
                raise CompileError(error("E1145", "the connection to the scheduler was lost")) from None
            if self.device in self._devices():
                since = time.monotonic()
            elif time.monotonic() - since > self._patience:
                raise _no_such_device(self.device, self._devices())

    # ------------------------------------------------------------ devices

    def _devices(self) -> dict[str, int]:
        """Return the keys of the CPUs (or GPUs) that workers offer, with their counts."""
        counts: dict[str, int] = {}
        for worker in self._client.scheduler_info(n_workers=-1)["workers"].values():
            for name in worker["resources"]:
                key = name.removeprefix(TAG)
                if name.startswith(TAG) and is_gpu(key) == self._gpu:
                    counts[key] = counts.get(key, 0) + 1
        return counts

    def _choose_device(self, device: str | None) -> str:
        known = self._devices()
        if device is None and len(known) == 1:
            return next(iter(known))
        if device is None or device not in known:
            raise _no_such_device(device, known)
        return device


def _no_such_device(device: str | None, known: dict[str, int]) -> CompileError:
    """E1143: no worker has the device, or the device is ambiguous."""
    if device is None and known:
        message = "the workers of the cluster have different devices"
    else:
        message = (
            f"no worker of the cluster has the device {device}"
            if device
            else "no worker of the cluster offers a device"
        )
    there = ", ".join(f"`{key}` ({count})" for key, count in sorted(known.items()))
    help = f"there are {there}" if known else "start workers with --preload mlcc.tune.measure.dask_worker"
    return CompileError(error("E1143", message, help=help))


# ---------------------------------------------------------------- connections


def _connect(address: str, security: Any, timeout: float) -> Any:
    """Connect to the scheduler at an address."""
    try:
        from distributed import Client
    except ImportError:
        help = "pip install 'mlcc[cluster]'"
        raise CompileError(error("E1144", "clusters need Dask, which is not installed", help=help)) from None
    _refuse_insecure(address)
    try:
        return Client(address, security=security, timeout=timeout, set_as_default=False)
    except (OSError, TypeError, ValueError, RuntimeError) as exc:
        raise CompileError(error("E1145", f"there is no connection to {address}: {exc}")) from None


def _check_client(client: Any) -> Any:
    _refuse_insecure(client.scheduler.address)
    return client


def _refuse_insecure(address: str) -> None:
    """Refuse an unencrypted connection over a network. Raises CompileError E1145."""
    parts = urlsplit(address if "://" in address else f"tcp://{address}")
    if parts.scheme in ("tls", "inproc") or (parts.scheme in ("tcp", "ws") and _is_loopback(parts.hostname or "")):
        return
    message = f"the connection to {address} is neither encrypted nor on this machine"
    help = "anyone who can reach a scheduler can run code on its workers: use tls://, with certificates for all sides"
    raise CompileError(error("E1145", message, help=help))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
