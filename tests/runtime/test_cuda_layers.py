"""The two packages for the CUDA driver, each against a stand-in for it: what is called, and what errors become."""

from __future__ import annotations

import ctypes
import enum
import sys
import types
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.errors import MachineError
from mlcc.runtime.cuda import find_driver
from mlcc.runtime.cuda.device import CudaDevice
from mlcc.runtime.cuda.driver import ArgumentBlock, Driver, DriverError
from tests.runtime.fake_driver import LIMITS
from tests.runtime.test_cuda_device import ARTIFACT, KERNELS, WANT, X, Y


class Code(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_INVALID_PTX = 218
    CUDA_ERROR_ILLEGAL_ADDRESS = 700


def run(name: str, grid: Any, block: Any, shared: int, address: int, forms: list[Any]) -> None:
    """Launch a kernel of the tests with arguments that lie one after the other at `address`."""
    values = [form.unpack(ctypes.string_at(address + at, form.size))[0] for at, form, _ in forms]
    KERNELS[name](grid, block, shared, *values)


def places(name: str) -> list[Any]:
    return ArgumentBlock(ARTIFACT.plan["kernels"][name]["params"]).places


class Bindings(types.ModuleType):
    """`cuda.bindings.driver` over host memory: functions give (code, results...)."""

    def __init__(self) -> None:
        super().__init__("cuda.bindings.driver")
        self.log: list[tuple[Any, ...]] = []
        self.fails: dict[str, Code] = {}
        self.live: dict[int, Any] = {}
        self.noted: list[Any] | None = None
        self.CUdevice_attribute = self.CUfunction_attribute = int
        self.CUjit_option = enum.IntEnum("CUjit_option", {
            "CU_JIT_ERROR_LOG_BUFFER": 5, "CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES": 6,
        })  # fmt: skip
        self.CUstreamCaptureMode = enum.IntEnum("CUstreamCaptureMode", {"CU_STREAM_CAPTURE_MODE_THREAD_LOCAL": 1})

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*args: Any) -> tuple[Any, ...]:
            self.log.append((name, *args))
            if name in self.fails:
                if name == "cuModuleLoadDataEx":
                    args[3][0][:7] = b"line 1\0"
                return (self.fails.pop(name), None)
            made = self.does(name, args)
            return (Code.CUDA_SUCCESS, *(() if made is None else made if isinstance(made, tuple) else (made,)))

        return call

    def does(self, name: str, args: tuple[Any, ...]) -> Any:
        def later(work: Any) -> None:
            if self.noted is None:
                work()
            else:
                self.noted.append(work)

        match name:
            case "cuGetErrorString":
                return b"said in words"
            case "cuDriverGetVersion":
                return 12040
            case "cuDeviceGetCount":
                return 1
            case "cuDeviceGet":
                return args[0]
            case "cuDeviceGetName":
                return b"a stand-in\0\0\0"
            case "cuDeviceGetAttribute":
                return LIMITS[args[0]]
            case "cuDevicePrimaryCtxRetain" | "cuEventCreate":
                return len(self.log)
            case "cuStreamCreate":
                return 9
            case "cuMemAlloc":
                memory = ctypes.create_string_buffer(args[0] + 256)
                address = -(-ctypes.addressof(memory) // 256) * 256
                self.live[address] = memory
                return address
            case "cuMemFree":
                del self.live[args[0]]
            case "cuMemGetInfo":
                return 5, 10
            case "cuMemcpyHtoD" | "cuMemcpyDtoHAsync":
                ctypes.memmove(*args[:3])
            case "cuMemcpyDtoDAsync":
                later(lambda: ctypes.memmove(*args[:3]))
            case "cuMemsetD8Async":
                later(lambda: ctypes.memset(*args[:3]))
            case "cuEventElapsedTime":
                return 1.5
            case "cuModuleLoadDataEx":
                assert args[0].endswith(b"\0") and args[1] == len(args[2]) == len(args[3]) == 2
                return 1
            case "cuModuleGetFunction":
                return args[1].decode()
            case "cuLaunchKernel":
                cells = (ctypes.c_uint64 * len(places(args[0]))).from_address(args[9])
                later(lambda: run(args[0], args[1:4], args[4:7], args[7], cells[0], places(args[0])))
            case "cuStreamBeginCapture":
                self.noted = []
            case "cuStreamEndCapture":
                noted, self.noted = self.noted, None
                return ([*(noted or ())],)
            case "cuGraphInstantiate":
                return (args[0],)
            case "cuGraphLaunch":
                for work in args[0]:
                    work()
        return None


class Error(Exception):
    pass


class Pycuda(types.ModuleType):
    """`pycuda.driver` over host memory."""

    def __init__(self) -> None:
        super().__init__("pycuda.driver")
        self.Error = Error
        self.bindings = Bindings()
        self.fails: dict[str, Exception] = {}
        self.current: Any = None
        module = self

        class Device:
            def __init__(self, number: int) -> None:
                self.number = number

            def __eq__(self, other: object) -> bool:
                return isinstance(other, Device) and other.number == self.number

            @staticmethod
            def count() -> int:
                return 1

            def name(self) -> str:
                return "a stand-in"

            def get_attribute(self, kind: Any) -> int:
                return LIMITS[kind]

            def retain_primary_context(self) -> Any:
                return Context()

        class Context:
            def push(self) -> None:
                module.current = self

            @staticmethod
            def pop() -> None:
                module.current = None

            def detach(self) -> None:
                module.current = None

            @staticmethod
            def get_current() -> Any:
                return module.current

            @staticmethod
            def get_device() -> Device:
                return Device(0)

        class Stream:
            handle = 9

            def synchronize(self) -> None:
                module.check("synchronize")

        class Event:
            def record(self, stream: Any) -> Event:
                assert isinstance(stream, Stream)
                return self

            def synchronize(self) -> None:
                pass

            def time_since(self, other: Any) -> float:
                return 1.5

        class Function:
            def __init__(self, name: str) -> None:
                self.name = name

            def set_attribute(self, kind: Any, value: int) -> None:
                pass

            def _launch_kernel(self, grid: Any, block: Any, content: bytes, shared: int, stream: Any) -> None:
                module.check("launch")
                held = ctypes.create_string_buffer(content, len(content))
                run(self.name, grid, block, shared, ctypes.addressof(held), places(self.name))

        self.Device, self.Context, self.Stream, self.Event = Device, Context, Stream, Event
        self.device_attribute = types.SimpleNamespace(values={n: n for n in LIMITS})
        self.function_attribute = types.SimpleNamespace(values={8: 8})
        self.function = Function

    def check(self, name: str) -> None:
        if name in self.fails:
            raise self.fails.pop(name)

    def init(self) -> None:
        self.check("init")

    def get_driver_version(self) -> int:
        return 12040

    def mem_alloc(self, size: int) -> Any:
        self.check("mem_alloc")
        address = self.bindings.does("cuMemAlloc", (size,))

        class Allocation(int):
            def free(self) -> None:
                pass

        return Allocation(address)

    def mem_get_info(self) -> tuple[int, int]:
        return 5, 10

    def memcpy_htod(self, target: int, source: Any) -> None:
        ctypes.memmove(target, source, len(source))

    def memcpy_dtoh_async(self, target: Any, source: int, stream: Any) -> None:
        ctypes.memmove(target, source, len(target))

    def memcpy_dtod_async(self, target: int, source: int, size: int, stream: Any) -> None:
        ctypes.memmove(target, source, size)

    def memset_d8_async(self, target: int, value: int, size: int, stream: Any) -> None:
        ctypes.memset(target, value, size)

    def module_from_buffer(self, code: bytes) -> Any:
        self.check("module_from_buffer")
        return types.SimpleNamespace(get_function=self.function)


@pytest.fixture(params=["bindings", "pycuda"])
def layer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stand-in in the place of a package; the other is not installed."""
    for name in ("cuda", "cuda.bindings", "cuda.bindings.driver", "pycuda", "pycuda.driver"):
        monkeypatch.setitem(sys.modules, name, None)
    if request.param == "bindings":
        made: Any = Bindings()
        parent = types.ModuleType("cuda.bindings")
        parent.driver = made  # type: ignore[attr-defined]
        for name, module in (("cuda", types.ModuleType("cuda")), ("cuda.bindings", parent)):
            monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setitem(sys.modules, "cuda.bindings.driver", made)
    else:
        made = Pycuda()
        parent = types.ModuleType("pycuda")
        parent.driver = made  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "pycuda", parent)
        monkeypatch.setitem(sys.modules, "pycuda.driver", made)
    return made


def test_a_plan_runs_over_each_package(layer: Any) -> None:
    driver: Driver = find_driver()
    device = CudaDevice(driver)
    assert device.name == "a stand-in" and device.version == (12, 4) and device.capability == (8, 6)
    exe: Any = mlcc.load(ARTIFACT, device=device)
    for _ in range(4):
        np.testing.assert_array_equal(exe["main"](X, Y), WANT)
    x = exe.to_device(X)
    np.testing.assert_array_equal(exe["main"](x, exe.to_device(Y)).numpy(), WANT)
    assert exe.time_evaluator("main", number=1, repeat=1)(X, Y).times == (0.0015,)
    assert device.memory_info() == (5, 10)


def test_errors_of_each_package_keep_their_names(layer: Any) -> None:
    driver = find_driver()
    CudaDevice(driver)
    if isinstance(layer, Bindings):
        layer.fails = {"cuMemAlloc": Code.CUDA_ERROR_OUT_OF_MEMORY, "cuModuleLoadDataEx": Code.CUDA_ERROR_INVALID_PTX,
                       "cuStreamSynchronize": Code.CUDA_ERROR_ILLEGAL_ADDRESS}  # fmt: skip
    else:
        layer.fails = {"mem_alloc": Error("cuMemAlloc failed: out of memory"),
                       "module_from_buffer": Error("line 1"),
                       "synchronize": Error("an illegal memory access was encountered")}  # fmt: skip
    with pytest.raises(DriverError) as caught:
        driver.alloc(8)
    assert caught.value.name == "OUT_OF_MEMORY"
    with pytest.raises(DriverError, match="line 1"):
        driver.load(b"")
    with pytest.raises(DriverError) as caught:
        driver.synchronize(9)
    assert caught.value.name == "ILLEGAL_ADDRESS"


def test_a_package_without_a_driver_or_device(layer: Any) -> None:
    if isinstance(layer, Bindings):
        layer.fails = {"cuInit": Code.CUDA_ERROR_OUT_OF_MEMORY}
    else:
        layer.fails = {"init": Error("no CUDA-capable device")}
    with pytest.raises(MachineError, match="E0860") as caught:
        find_driver()
    assert "finds no device" in str(caught.value) and "not installed" in str(caught.value)


def test_missing_packages_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cuda", "cuda.bindings", "pycuda", "pycuda.driver"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MachineError, match=r"E0860.*cuda-bindings is not installed"):
        find_driver()
    monkeypatch.setenv("MLCC_CUDA_DRIVER", "rocm")
    with pytest.raises(MachineError, match="names no package"):
        find_driver()


def test_names_of_the_real_package() -> None:
    """Every function that the layer calls is there."""
    import re
    from pathlib import Path

    cuda = pytest.importorskip("cuda.bindings.driver")
    import mlcc.runtime.cuda.with_bindings as layer

    text = Path(layer.__file__).read_text()
    names = set(re.findall(r'"(cu[A-Z]\w+)"', text))
    assert len(names) > 20 and all(hasattr(cuda, name) for name in names)
    assert cuda.CUdevice_attribute(97).name == "CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"
    assert cuda.CUfunction_attribute(8).name == "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"
    assert hasattr(cuda.CUstreamCaptureMode, "CU_STREAM_CAPTURE_MODE_THREAD_LOCAL")
    for number in LIMITS:
        assert cuda.CUdevice_attribute(number)
