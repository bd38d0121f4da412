"""NVIDIA's real Python package over a driver library of our own (libcuda.c): kernels run by emulation.

What the stand-ins for the packages cannot show is whether the packages are called as they are: argument types, what
comes back, how structures are passed. Here the package is the real one, and what lies under it is a shared library that
hands each call of the driver's API to `StubDriver`. The library is found as any driver is, so the process that uses it
must be started with its folder in LD_LIBRARY_PATH (`environment`).
"""

from __future__ import annotations

import atexit
import ctypes
import os
import struct
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mlcc.runtime import manifest
from mlcc.runtime.launch.device import SCALARS, KernelSpec
from mlcc.runtime.launch.reader import read_plan
from mlcc.targets.cuda.artifact import CudaArtifact
from mlcc.targets.emulate.device import EmulatedDevice
from tests.runtime.fake_driver import LIMITS

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
HOOK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint64))
SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, INVALID_PTX, NOT_FOUND = 0, 1, 2, 218, 500
TEXTS = {
    SUCCESS: b"no error", INVALID_VALUE: b"invalid argument", OUT_OF_MEMORY: b"out of memory",
    INVALID_PTX: b"a PTX JIT compilation failed", NOT_FOUND: b"named symbol not found",
    700: b"an illegal memory access was encountered", 719: b"unspecified launch failure",
}  # fmt: skip
NAME = b"an emulated GPU"


class Failure(Exception):
    """A function of the driver returns this code."""

    def __init__(self, code: int) -> None:
        self.code = code


def build(folder: Path, compiler: str = "cc") -> Path:
    """The library, as the system looks for it. Raises CalledProcessError."""
    made = folder / "libcuda.so.1"
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(made), str(HERE / "libcuda.c"), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    (folder / "libcuda.so").symlink_to(made.name)
    return made


def environment(folder: Path, package: str) -> dict[str, str]:
    """That of a process in which the library is the driver, for a package as MLCC_CUDA_DRIVER names it."""
    path = os.pathsep.join(p for p in (str(folder), os.environ.get("LD_LIBRARY_PATH", "")) if p)
    return {**os.environ, "LD_LIBRARY_PATH": path, "PYTHONPATH": str(ROOT), "MLCC_CUDA_DRIVER": package}


class StubDriver:
    """The driver: host memory, `attributes` of its one device, modules from what was handed to `expect` before.

    Calls are counted in `calls`. `faults` maps a function to the codes that its next calls return.
    """

    def __init__(self, attributes: Mapping[int, int] = LIMITS, room: int = 1 << 30) -> None:
        self.calls: dict[str, int] = {}
        self.faults: dict[str, list[int]] = {}
        self.log = b""  # of the compiler, where a module is refused
        self._attributes = attributes
        self._room = room
        self._live: dict[int, Any] = {}
        self._expected: CudaArtifact | None = None
        self._objects: list[Any] = [None]  # by handle
        self._noted: list[Callable[[], None]] | None = None
        self._clock = 0.0
        self._current: list[int] = []  # contexts
        self._failed: Exception | None = None
        self._hook = HOOK(self._called)
        library = ctypes.CDLL("libcuda.so.1")
        library.stub_set_hook(self._hook)
        atexit.register(library.stub_set_hook, None)  # what is destroyed later has nobody to tell

    def expect(self, artifact: CudaArtifact) -> None:
        """The module that is loaded next is this artifact's."""
        self._expected = artifact

    def check(self) -> None:
        """Raise what went wrong inside of a call, where it could not be raised."""
        if self._failed is not None:
            raise self._failed

    def _called(self, name: bytes, args: Any) -> int:
        function = name.decode()
        self.calls[function] = self.calls.get(function, 0) + 1
        try:
            if waiting := self.faults.get(function):
                raise Failure(waiting.pop(0))
            getattr(self, function)(args)
        except Failure as exc:
            return exc.code
        except Exception as exc:
            self._failed = exc
            return 999
        return SUCCESS

    def _handle(self, what: Any) -> int:
        self._objects.append(what)
        return len(self._objects) - 1

    def _do(self, work: Callable[[], Any]) -> None:
        if self._noted is None:
            work()
        else:
            self._noted.append(work)

    # ------------------------------------------------------------ the driver's API, by its names

    def cuInit(self, a: Any) -> None:
        pass

    def cuDriverGetVersion(self, a: Any) -> None:
        put(a[0], ctypes.c_int, 13000)

    def cuDeviceGetCount(self, a: Any) -> None:
        put(a[0], ctypes.c_int, 1)

    def cuDeviceGet(self, a: Any) -> None:
        if low(a[1]) != 0:
            raise Failure(101)
        put(a[0], ctypes.c_int, 0)

    def cuDeviceGetName(self, a: Any) -> None:
        ctypes.memmove(a[0], NAME + b"\0", len(NAME) + 1)

    def cuDeviceGetAttribute(self, a: Any) -> None:
        put(a[0], ctypes.c_int, self._attributes[low(a[1])])

    def cuDevicePrimaryCtxRetain(self, a: Any) -> None:
        put(a[0], ctypes.c_uint64, self._handle("context"))

    def cuDevicePrimaryCtxReset(self, a: Any) -> None:
        self._live.clear()

    def cuCtxSetCurrent(self, a: Any) -> None:
        self._is(a[0], str)

    def cuMemAlloc(self, a: Any) -> None:
        size = a[1]
        if size > self._room or not size:
            raise Failure(OUT_OF_MEMORY if size else INVALID_VALUE)
        memory = ctypes.create_string_buffer(size + 256)
        address = -(-ctypes.addressof(memory) // 256) * 256
        self._live[address] = memory
        put(a[0], ctypes.c_uint64, address)

    def cuMemFree(self, a: Any) -> None:
        if self._live.pop(a[0], None) is None:
            raise Failure(INVALID_VALUE)

    def cuMemGetInfo(self, a: Any) -> None:
        put(a[0], ctypes.c_uint64, self._room)
        put(a[1], ctypes.c_uint64, 1 << 30)

    def cuMemcpyHtoD(self, a: Any) -> None:
        ctypes.memmove(a[0], a[1], a[2])

    def cuMemcpyDtoHAsync(self, a: Any) -> None:
        self._is(a[3], str)
        ctypes.memmove(a[0], a[1], a[2])

    def cuMemcpyDtoDAsync(self, a: Any) -> None:
        target, source, size = a[0], a[1], a[2]
        self._do(lambda: ctypes.memmove(target, source, size))

    def cuMemsetD8Async(self, a: Any) -> None:
        target, value, size = a[0], a[1] & 0xFF, a[2]
        self._do(lambda: ctypes.memset(target, value, size))

    def cuStreamCreate(self, a: Any) -> None:
        put(a[0], ctypes.c_uint64, self._handle("stream"))

    def cuStreamSynchronize(self, a: Any) -> None:
        self._is(a[0], str)

    def cuEventCreate(self, a: Any) -> None:
        put(a[0], ctypes.c_uint64, self._handle([0.0]))

    def cuEventRecord(self, a: Any) -> None:
        self._clock += 1.0
        self._is(a[0], list)[0] = self._clock

    def cuEventSynchronize(self, a: Any) -> None:
        self._is(a[0], list)

    def cuEventElapsedTime(self, a: Any) -> None:
        put(a[0], ctypes.c_float, self._is(a[2], list)[0] - self._is(a[1], list)[0])

    def cuModuleLoadDataEx(self, a: Any) -> None:
        code = ctypes.string_at(a[1])
        if self._expected is None or b".entry" not in code:
            options = ctypes.cast(a[3], ctypes.POINTER(ctypes.c_uint32))
            values = words(a[4])
            for number in range(low(a[2])):
                if options[number] == 5:  # CU_JIT_ERROR_LOG_BUFFER
                    ctypes.memmove(values[number], self.log + b"\0", len(self.log) + 1)
            raise Failure(INVALID_PTX)
        device = EmulatedDevice(self._expected.launch.kernels, check=False)
        specs = kernel_specs(self._expected)
        kernels = device.load_module(code, specs)
        functions = {spec.name: (device, kernels[name], spec) for name, spec in specs.items()}
        put(a[0], ctypes.c_uint64, self._handle(functions))

    def cuModuleGetFunction(self, a: Any) -> None:
        functions = self._is(a[1], dict)
        name = ctypes.string_at(a[2]).decode()
        if name not in functions:
            raise Failure(NOT_FOUND)
        put(a[0], ctypes.c_uint64, self._handle(functions[name]))

    def cuFuncSetAttribute(self, a: Any) -> None:
        self._is(a[0], tuple)
        if (low(a[1]), low(a[2]) <= LIMITS[97]) != (8, True):
            raise Failure(INVALID_VALUE)

    def cuLaunchKernel(self, a: Any) -> None:
        device, kernel, spec = self._is(a[0], tuple)
        self._is(a[8], str)
        grid, block, shared = tuple(map(low, a[1:4])), tuple(map(low, a[4:7])), low(a[7])
        places = words(a[9]) if a[9] else in_one_piece(a[10], spec.params)
        values = [read(kind, places[n]) for n, kind in enumerate(spec.params)]
        self._do(lambda: device.launch(kernel, grid, block, shared, values))

    def cuStreamBeginCapture(self, a: Any) -> None:
        self._is(a[0], str)
        self._noted = []

    def cuStreamEndCapture(self, a: Any) -> None:
        noted, self._noted = self._noted, None
        put(a[1], ctypes.c_uint64, self._handle(noted))

    def cuGraphInstantiateWithFlags(self, a: Any) -> None:
        put(a[0], ctypes.c_uint64, self._handle(self._is(a[1], list)))

    cuGraphInstantiate = cuGraphInstantiateWithFlags

    def cuGraphDestroy(self, a: Any) -> None:
        self._is(a[0], list)

    cuGraphExecDestroy = cuGraphDestroy

    def cuGraphLaunch(self, a: Any) -> None:
        for work in self._is(a[0], list):
            work()

    # what pycuda calls besides

    def cuCtxPushCurrent(self, a: Any) -> None:
        self._is(a[0], str)
        self._current.append(a[0])

    def cuCtxPopCurrent(self, a: Any) -> None:
        if not self._current:
            raise Failure(201)
        put(a[0], ctypes.c_uint64, self._current.pop())

    def cuCtxGetDevice(self, a: Any) -> None:
        if not self._current:
            raise Failure(201)
        put(a[0], ctypes.c_int, 0)

    def cuCtxGetApiVersion(self, a: Any) -> None:
        put(a[1], ctypes.c_uint, 3020)

    def cuGone(self, a: Any) -> None:
        self._is(a[0], object)

    cuEventDestroy = cuStreamDestroy = cuModuleUnload = cuCtxDetach = cuGone

    def cuCtxSynchronize(self, a: Any) -> None:
        pass

    cuDevicePrimaryCtxRelease = cuCtxSynchronize

    def cuGetErrorString(self, a: Any) -> None:
        text = TEXTS.get(low(a[0]), b"unknown error")
        self._kept = ctypes.create_string_buffer(text)
        put(a[1], ctypes.c_uint64, ctypes.addressof(self._kept))

    def _is(self, handle: int, kind: type) -> Any:
        """What a handle stands for, which must be of this kind."""
        if not 0 < handle < len(self._objects) or not isinstance(self._objects[handle], kind):
            raise Failure(INVALID_VALUE)
        return self._objects[handle]


def put(address: int, kind: Any, value: Any) -> None:
    kind.from_address(address).value = value


def words(address: int) -> Any:
    return ctypes.cast(address, ctypes.POINTER(ctypes.c_uint64))


def in_one_piece(extra: int, params: tuple[str, ...]) -> list[int]:
    """Where the arguments lie that a launch has in one piece: {1, piece, 2, address of its size, 0}. Each begins at a
    multiple of its size, structures at one of 64."""
    given = words(extra)
    if (given[0], given[2], given[4]) != (1, 2, 0):
        raise Failure(INVALID_VALUE)
    places, at = [], 0
    for kind in params:
        size = int(kind[5:]) if kind.startswith("bytes") else form_of(kind).size
        align = 64 if kind.startswith("bytes") else size
        at = -(-at // align) * align
        places.append(given[1] + at)
        at += size
    if words(given[3])[0] < at:
        raise Failure(INVALID_VALUE)
    return places


def low(word: int) -> int:
    return word & 0xFFFFFFFF


def kernel_specs(artifact: CudaArtifact) -> dict[str, KernelSpec]:
    """What the launch plan says of the kernels, by name."""
    facts = manifest.read(artifact.manifest)
    return {k.name: k.spec for k in read_plan(artifact.plan, facts.functions, facts.packed).kernels.values()}


def read(kind: str, address: int) -> Any:
    """An argument of a launch."""
    if kind.startswith("bytes"):
        return ctypes.string_at(address, int(kind[5:]))
    form = form_of(kind)
    return form.unpack(ctypes.string_at(address, form.size))[0]


def form_of(kind: str) -> struct.Struct:
    return struct.Struct("<" + ("Q" if kind == "ptr" else SCALARS[kind]))
