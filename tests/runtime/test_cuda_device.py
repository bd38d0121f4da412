"""An NVIDIA GPU as a device: what it asks of the driver, and what becomes of the driver's errors."""

from __future__ import annotations

import ctypes
import struct
import threading
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.errors import CallError, LoadError, MachineError
from mlcc.runtime.cuda.device import CudaDevice
from mlcc.runtime.cuda.driver import ArgumentBlock
from mlcc.runtime.launch.device import KernelSpec
from tests.launch.texts import MLP, built
from tests.runtime.devices import array
from tests.runtime.fake_driver import FakeDriver


def add_kernel(grid: Any, block: Any, shared: int, x: int, y: int, z: int, n: int) -> None:
    array(z, (n,))[:] = array(x, (n,)) + array(y, (n,))


def scale_kernel(grid: Any, block: Any, shared: int, x: int, y: int, *scalars: float) -> None:
    n, f = sorted(scalars, key=lambda v: isinstance(v, float))
    assert isinstance(n, int)
    array(y, (n,))[:] = array(x, (n,)) * np.float32(f)


KERNELS = {"add_kernel": add_kernel, "scale_kernel": scale_kernel}
ARTIFACT = built(MLP)
X, Y = np.arange(6, dtype=np.float32), np.ones(6, np.float32)
WANT = (X + Y + X) + (X + Y)


@pytest.fixture
def driver() -> FakeDriver:
    return FakeDriver(KERNELS)


@pytest.fixture
def device(driver: FakeDriver) -> CudaDevice:
    return CudaDevice(driver)


@pytest.fixture
def exe(device: CudaDevice) -> Any:
    return mlcc.load(ARTIFACT, device=device)


def test_a_plan_runs_over_the_driver(exe: Any, driver: FakeDriver) -> None:
    np.testing.assert_array_equal(exe["main"](X, Y), WANT)
    launches = driver.called("launch")
    assert [entry[1:4] for entry in launches] == [("add_kernel", (1, 1, 1), (64, 1, 1))] * 3
    assert all(entry[5] == 77 for entry in launches)  # its own stream
    assert driver.called("load")[0][1].startswith(b"//") and b".entry" in driver.called("load")[0][1]
    out = np.zeros_like(X)
    exe["scale"](X, out, 0.1)
    np.testing.assert_array_equal(out, X * np.float32(0.1))


def test_memory_and_workspace_are_kept_between_calls(exe: Any, driver: FakeDriver) -> None:
    exe["main"](X, Y)
    before = len(driver.called("alloc"))
    for _ in range(3):
        np.testing.assert_array_equal(exe["main"](X, Y), WANT)
    assert len(driver.called("alloc")) == before and not driver.called("free")


def test_arrays_of_the_device_stay_there(exe: Any, driver: FakeDriver) -> None:
    x, y = exe.to_device(X), exe.to_device(Y)
    driver.log.clear()
    z = exe["main"](x, y)
    w = exe["main"](z, y)
    assert not driver.called("copy_in") and not driver.called("copy_out") and not driver.called("synchronize")
    np.testing.assert_array_equal(w.numpy(), (WANT + Y + WANT) + (WANT + Y))
    assert z.__dlpack_device__() == (2, 0) and z.shape == (6,) and z.dtype == "float32"


class Foreign:
    """An array of another library on a device."""

    def __init__(self, tensor: np.ndarray, device: tuple[int, int] = (2, 0)) -> None:
        self.array, self.device = tensor, device
        self.streams: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, stream: Any = None, max_version: Any = None) -> Any:
        self.streams.append(stream)
        return self.array.__dlpack__() if max_version is None else self.array.__dlpack__(max_version=max_version)


def test_arrays_of_other_libraries_are_borrowed(exe: Any, driver: FakeDriver) -> None:
    raw = np.zeros(4 * 6 + 32, np.uint8)
    start = -raw.ctypes.data % 16
    x = Foreign(raw[start : start + 24].view(np.float32))
    x.array[:] = X
    y = exe.to_device(Y)
    driver.log.clear()
    np.testing.assert_array_equal(exe["main"](x, y).numpy(), WANT)
    assert x.streams == [77] and not driver.called("copy_in") and not driver.called("copy")
    shifted = Foreign(raw[start + 4 : start + 28].view(np.float32))  # not aligned for kernels
    shifted.array[:] = X
    np.testing.assert_array_equal(exe["main"](shifted, y).numpy(), WANT)
    assert [entry[1] for entry in driver.called("copy")] == [24]
    assert exe.host_copies == 0
    wide = Foreign(np.stack([X, X], 1)[:, 0])  # with gaps
    np.testing.assert_array_equal(exe["main"](wide, y).numpy(), WANT)
    assert exe.host_copies == 1
    out = Foreign(np.zeros((6, 2), np.float32)[:, 1])
    assert exe["main"](exe.to_device(X), y, out=out) is out
    np.testing.assert_array_equal(out.array, WANT)
    with pytest.raises(CallError, match="E0867"):
        exe["main"](Foreign(X, (2, 1)), y)


def test_calls_of_several_launches_replay_as_a_graph(exe: Any, driver: FakeDriver) -> None:
    out = np.zeros_like(X)
    x = X.copy()
    call = exe["main"].bind(x, Y, out=out)
    for step in range(4):
        x[:] = X + step
        call()
        np.testing.assert_array_equal(out, (x + Y + x) + (x + Y))
    assert len(driver.called("begin_capture")) == 1 and len(driver.called("replay")) == 3
    timing = exe.time_evaluator("main", number=3, repeat=2)(X, Y)
    assert len(timing.times) == 2 and timing.median > 0
    scaled = exe["scale"].bind(X, out, 2.0)
    for _ in range(3):
        scaled()
    assert len(driver.called("begin_capture")) == 2  # of the timing; one launch alone is no graph


def test_a_driver_that_makes_no_graph_of_it_launches(exe: Any, driver: FakeDriver) -> None:
    driver.faults["end_capture"] = ["STREAM_CAPTURE_INVALIDATED"]
    call = exe["main"].bind(X, Y)
    for _ in range(4):
        np.testing.assert_array_equal(call(), WANT)
    assert len(driver.called("begin_capture")) == 1 and not driver.called("replay")
    without = mlcc.load(ARTIFACT, device=CudaDevice(FakeDriver(KERNELS, graphs=False)))["main"].bind(X, Y)
    for _ in range(3):
        np.testing.assert_array_equal(without(), WANT)


# ---------------------------------------------------------------- errors


def test_out_of_memory_gives_back_what_is_kept_and_says_what_is_missing(exe: Any, driver: FakeDriver) -> None:
    exe["main"](X, Y)
    driver.faults["alloc"] = ["OUT_OF_MEMORY"]
    big = np.ones(10_000, np.float32)
    assert exe["main"](big, big)[0] == 5  # once more, with the kept blocks given back
    assert driver.called("free")
    driver.room = 1000
    bigger = np.ones(100_000, np.float32)
    with pytest.raises(CallError, match=r"E0865.*390\.6 KiB.*are free"):
        exe["main"](bigger, bigger)
    driver.room = 1 << 30
    np.testing.assert_array_equal(exe["main"](X, Y), WANT)


def test_a_failed_kernel_takes_the_context_and_later_calls_work(exe: Any, driver: FakeDriver) -> None:
    kept = exe.to_device(X)
    call = exe["main"].bind(X, Y)
    call()
    driver.faults["synchronize"] = ["ILLEGAL_ADDRESS"]
    with pytest.raises(CallError, match=r"E0866.*ILLEGAL_ADDRESS.*`add_kernel`"):
        exe["main"](X, Y)
    assert driver.called("reset") and len(driver.called("retain")) == 2
    np.testing.assert_array_equal(exe["main"](X, Y), WANT)
    np.testing.assert_array_equal(call(), WANT)  # bound before
    assert len(driver.called("load")) == 2
    with pytest.raises(CallError, match="lost"):
        exe["main"](kept, kept)
    with pytest.raises(CallError, match="lost"):
        kept.numpy()


def test_a_context_that_cannot_be_made_anew_is_said_every_time(exe: Any, driver: FakeDriver) -> None:
    driver.faults["synchronize"] = ["ILLEGAL_ADDRESS"]
    driver.reset_helps = False
    with pytest.raises(CallError, match="E0866"):
        exe["main"](X, Y)
    for _ in range(2):
        with pytest.raises(CallError, match="restart the process"):
            exe["main"](X, Y)


def test_a_refused_launch_leaves_everything_in_order(exe: Any, driver: FakeDriver) -> None:
    driver.faults["launch"] = ["LAUNCH_OUT_OF_RESOURCES"]
    with pytest.raises(CallError, match=r"E0864.*LAUNCH_OUT_OF_RESOURCES.*`add_kernel`"):
        exe["main"](X, Y)
    assert not driver.called("reset")
    np.testing.assert_array_equal(exe["main"](X, Y), WANT)


def test_launches_that_the_device_cannot_do_say_why(device: CudaDevice, driver: FakeDriver) -> None:
    spec = KernelSpec("scale_kernel", ("ptr", "ptr", "int64", "float32"), shared=1024, dynamic_shared=-1)
    kernel = device.load_module(b"", {"k": spec})["k"]
    args = (0, 0, 0, 1.0)
    for grid, block, shared, words in (
        ((1, 1, 1), (2048, 1, 1), 0, r"2048 x 1 x 1 threads.*1024 in all"),
        ((1, 70000, 1), (1, 1, 1), 0, "grid of 1 x 70000 x 1"),
        ((1, 1, 1), (1, 1, 1), 99 << 10, r"100\.0 KiB of shared memory.*99\.0 KiB"),
    ):
        with pytest.raises(CallError, match=words):
            device.launch(kernel, grid, block, shared, args)
    assert not driver.called("launch")
    for size in (1024, 60 << 10, 50 << 10, 64 << 10):
        device.launch(kernel, (1, 1, 1), (1, 1, 1), size, args)
    asked = [entry[2] for entry in driver.called("set_dynamic_shared")]
    assert asked == [60 << 10, 64 << 10]  # above 48 KiB, and only when it grows


def test_code_that_the_driver_refuses(driver: FakeDriver) -> None:
    driver.faults["load"] = ["INVALID_PTX"]
    with pytest.raises(LoadError, match=r"E0863.*INVALID_PTX"):
        mlcc.load(ARTIFACT, device=CudaDevice(driver))
    with pytest.raises(LoadError, match=r"E0863.*NOT_FOUND"):
        mlcc.load(ARTIFACT, device=CudaDevice(FakeDriver({})))


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ({"compute_capability": [8, 0], "cuda": "11.0"}, ""),
        ({"compute_capability": [9, 0], "arch": "sm_90", "cuda": "11.8"}, "E0861"),
        ({"compute_capability": [8, 0], "variant": "a", "cuda": "11.8"}, "E0861"),
        ({"compute_capability": [7, 5], "variant": "f", "cuda": "11.8"}, "E0861"),
        ({"compute_capability": [8, 0], "cuda": "12.4"}, ""),
        ({"compute_capability": [8, 0], "cuda": "12.8", "driver": "570.26"}, "E0862"),
    ],
)
def test_devices_and_drivers_that_are_too_old(device: CudaDevice, target: dict[str, Any], code: str) -> None:
    if not code:
        device.require(target)
        return
    with pytest.raises(MachineError, match=code):
        device.require(target)


def test_no_device_and_a_number_too_high(driver: FakeDriver) -> None:
    with pytest.raises(MachineError, match=r"E0860.*no CUDA device 3"):
        CudaDevice(driver, 3)
    driver.devices = 0
    with pytest.raises(MachineError, match="there is none"):
        CudaDevice(driver)
    driver.devices = 1
    driver.faults["retain"] = ["DEVICE_UNAVAILABLE"]
    with pytest.raises(MachineError, match=r"cannot be used.*DEVICE_UNAVAILABLE"):
        CudaDevice(driver)


def test_every_thread_enters_the_context(exe: Any, driver: FakeDriver) -> None:
    driver.log.clear()
    made: list[Any] = []
    workers = [threading.Thread(target=lambda: made.append(exe["main"](X, Y))) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(made) == 4 and all((m == WANT).all() for m in made)
    assert len(driver.called("enter")) == 4


# ---------------------------------------------------------------- arguments of kernels


def test_arguments_are_laid_out_as_c_does() -> None:
    block = ArgumentBlock(["ptr", "int8", "int32", "bool", "float64", "float16", "bfloat16", "bytes128", "uint8"])
    block.fill([1 << 40, 255, -1, True, 2.5, 1.5, -2.0, bytes(range(128)), -1])
    places = [at for at, _, _ in block.places]
    assert places == [0, 8, 12, 16, 24, 32, 34, 64, 192]
    content = block.content
    assert struct.unpack_from("<Q", content, 0)[0] == 1 << 40
    assert content[8:9] == b"\xff" and content[12:17] == b"\xff\xff\xff\xff\x01"
    assert struct.unpack_from("<d", content, 24)[0] == 2.5
    assert struct.unpack_from("<e", content, 32)[0] == 1.5 and content[34:36] == b"\x00\xc0"
    assert content[64:192] == bytes(range(128)) and content[192] == 255
    first = ctypes.c_void_p.from_address(block.pointers).value
    assert first is not None and ctypes.c_uint64.from_address(first).value == 1 << 40
    block.fill([0, 0, 0, 0, 0.0, 1e6, 1e39, b"", 0])
    assert struct.unpack_from("<e", block.content, 32)[0] == float("inf") and block.content[34:36] == b"\x80\x7f"


def test_later_calls_with_like_arrays_are_as_the_first(exe: Any, driver: FakeDriver) -> None:
    """The short way: other content, other shapes in between, host and device arrays, both kinds at once."""
    rng = np.random.default_rng(0)
    for size in (6, 0, 9, 6, 0, 9, 6):
        x, y = rng.random(size, dtype=np.float32), rng.random(size, dtype=np.float32)
        want = (x + y + x) + (x + y)
        for a, b in ((x, y), (exe.to_device(x), y), (exe.to_device(x), exe.to_device(y))):
            got = exe["main"](a, b)
            assert isinstance(got, np.ndarray) == isinstance(a, np.ndarray)
            np.testing.assert_array_equal(np.asarray(got), want)
    for wrong in (np.zeros((6, 1), np.float32), np.zeros(6), np.zeros(5, np.float32)):
        with pytest.raises(CallError):
            exe["main"](X, wrong)
    driver.faults["synchronize"] = ["ILLEGAL_ADDRESS"]
    with pytest.raises(CallError, match="E0866"):
        exe["main"](X, Y)
    np.testing.assert_array_equal(exe["main"](X, Y), WANT)


def test_graphs_and_events_are_given_back(exe: Any, driver: FakeDriver) -> None:
    for size in range(1, 12):
        x = np.ones(size, np.float32)
        for _ in range(4):
            exe["main"](x, x)
    assert len(driver.called("begin_capture")) == 11 and len(driver.called("drop")) == 3  # eight are kept
    for _ in range(3):
        exe.time_evaluator("main", number=1, repeat=4)(X, Y)
    assert len(driver.called("event")) == 2
