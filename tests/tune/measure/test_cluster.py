"""Measuring on the workers of a Dask cluster: real processes, with TLS."""

from __future__ import annotations

import os
import signal
import threading
import time
import types
from collections.abc import Iterator
from concurrent.futures import CancelledError
from typing import Any

import pytest

from mlcc.errors import CompileError
from mlcc.tune.contracts import Status
from mlcc.tune.measure import dask_worker
from mlcc.tune.measure.cluster import DaskRunner
from tests.tune.measure.kernels import func_of, mm_relu, task_of, tiled

PRELOAD = "mlcc.tune.measure.dask_worker"


@pytest.fixture(scope="module")
def distributed() -> Any:
    return pytest.importorskip("distributed", reason="needs distributed (the extra `cluster`)")


@pytest.fixture(scope="module")
def cluster(distributed: Any) -> Iterator[Any]:
    """Two workers, each a process, that talk by TLS."""
    pytest.importorskip("cryptography", reason="needs cryptography (the extra `cluster`)")
    security = distributed.Security.temporary()
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=2, processes=True, security=security, dashboard_address=":0", preload=PRELOAD
    ) as made:  # fmt: skip
        yield made


@pytest.fixture
def runner(cluster: Any) -> Iterator[DaskRunner]:
    with DaskRunner(cluster.scheduler_address, security=cluster.security, batch=2, least=0.0002) as made:
        yield made


def test_outcomes_come_in_order(cluster: Any, runner: DaskRunner) -> None:
    assert cluster.scheduler_address.startswith("tls://")
    module = mm_relu()
    default = tiled(module, 4, 16)
    wrong = tiled(mm_relu(k=39), 4, 16)  # reads rows of another length
    candidates = [default, wrong, tiled(module, 2, 16), tiled(module, 8, 16), default]
    found = runner.measure(task_of(module), default, candidates, 3)
    assert [o.status for o in found] == [Status.OK, Status.WRONG, Status.OK, Status.OK, Status.OK]
    assert all(len(o.ratios) <= 3 for o in found)


def test_workers_may_be_killed_and_added(cluster: Any, runner: DaskRunner) -> None:
    module = mm_relu()
    default = tiled(module, 4, 16)
    pids = [info["pid"] for info in runner._client.run(lambda: {"pid": os.getpid()}).values()]
    timer = threading.Timer(0.3, os.kill, (pids[0], signal.SIGKILL))
    timer.start()
    cluster.scale(3)
    found = runner.measure(task_of(module), default, [tiled(module, n, 16) for n in (1, 2, 4, 8, 16, 32)], 3)
    timer.join()
    assert [o.status for o in found] == [Status.OK] * 6
    cluster.scale(2)


def test_a_baseline_that_cannot_be_built_is_an_error_here_as_well(runner: DaskRunner) -> None:
    import mlcc

    module = mm_relu()
    text = '@T.prim_func\ndef main(A: T.Buffer((4,), "float32")):\n    T.call_packed("f", A.data)'
    with pytest.raises(CompileError, match="E1142"):
        runner.measure(task_of(module), func_of(mlcc.parse(text)), [func_of(module)], 1)


def test_a_device_that_no_worker_is_is_an_error_at_once(cluster: Any) -> None:
    begun = time.monotonic()
    with pytest.raises(CompileError, match="no worker of the cluster has the device z80") as found:
        DaskRunner(cluster.scheduler_address, "z80", security=cluster.security)
    assert "there are `" in str(found.value) and time.monotonic() - begun < 15


class Client:
    """As much of a client as it takes to ask which workers there are."""

    scheduler = types.SimpleNamespace(address="tcp://127.0.0.1:1")

    def __init__(self, *workers: dict[str, float]) -> None:
        self.workers = {str(at): {"resources": resources} for at, resources in enumerate(workers)}

    def scheduler_info(self, n_workers: int) -> dict[str, Any]:
        return {"workers": self.workers}


def test_which_device_is_meant() -> None:
    assert DaskRunner(Client({"mlcc:a": 1.0, "GPU": 1.0}, {})).device == "a"
    assert DaskRunner(Client({"mlcc:a": 1.0}, {"mlcc:b": 1.0}), "b").device == "b"
    for workers, why in [
        ((), "no worker of the cluster offers a device"),
        (({"GPU": 1.0},), "no worker of the cluster offers a device"),
        (({"mlcc:a": 1.0}, {"mlcc:b": 1.0}), "different devices"),
    ]:
        with pytest.raises(CompileError, match=why):
            DaskRunner(Client(*workers))


def test_cpus_and_gpus_are_devices_apart() -> None:
    both = {"mlcc:a": 1.0, "mlcc:cuda sm_90 12345678": 1.0}
    assert DaskRunner(Client(both)).device == "a"
    assert DaskRunner(Client(both), gpu=True).device == "cuda sm_90 12345678"
    with pytest.raises(CompileError, match="E1143"):
        DaskRunner(Client({"mlcc:a": 1.0}), gpu=True)


@pytest.mark.parametrize(
    ("raised", "code"), [(TimeoutError("of the task"), None), (CancelledError("scheduler-connection-lost"), "E1145")]
)
def test_what_ends_a_future_ends_the_wait(raised: Exception, code: str | None) -> None:
    class Future:
        def result(self, timeout: float | None = None) -> None:
            raise raised

        def done(self) -> bool:
            return True

    runner = DaskRunner(Client({"mlcc:a": 1.0}))
    with pytest.raises(Exception) as found:  # noqa: PT011 - either kind
        runner._await(Future())
    assert found.value is raised if code is None else code in str(found.value)


def test_another_version_is_refused() -> None:
    with pytest.raises(CompileError, match="E1146"):
        dask_worker.measure("0.0.0", b"", b"")


@pytest.mark.parametrize("address", ["tcp://192.0.2.1:8786", "192.0.2.1:8786", "ws://example.org:1"])
def test_open_connections_are_refused(distributed: Any, address: str) -> None:
    with pytest.raises(CompileError, match="E1145"):
        DaskRunner(address)


def test_absent_schedulers_are_reported(distributed: Any) -> None:
    with pytest.raises(CompileError, match="E1145"):
        DaskRunner("tls://127.0.0.1:1", security=distributed.Security.temporary(), timeout=1)
