"""The fast path of a call on a device: compact arrays of shapes that were seen before, new results.

The results of checking such arguments (symbols, sizes) are cached; a call only uploads, replays a recording for the
addresses, and downloads. Anything unusual takes the general path, `Function.bind`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlcc.runtime.abi import element_bytes
from mlcc.runtime.fast import address_of, is_plain_tensor
from mlcc.runtime.launch.device import Device
from mlcc.runtime.launch.device_array import DeviceArray
from mlcc.runtime.launch.device_memory import Block
from mlcc.runtime.launch.launcher import Launcher
from mlcc.runtime.launch.plan import POINTER_ALIGNMENT, FunctionPlan
from mlcc.runtime.launch.scalars import Values
from mlcc.runtime.manifest import FunctionSpec, Value, evaluate

_MAX_CACHED = 64  # combinations of shapes
_COMPACT = 0x0001 | 0x0100  # of ndarray.flags.num: C_CONTIGUOUS, ALIGNED


@dataclass(frozen=True, slots=True)
class CachedCall:
    """The results of checking a call with arrays of certain shapes, for later calls with the same shapes."""

    values: Values
    workspace: int
    shapes: tuple[tuple[int, ...], ...]  # of the results
    sizes: tuple[int, ...]  # in bytes
    on_device: bool


class DeviceFastPath:
    """The fast path of a relax function whose parameters and results are plain tensors of NumPy dtypes."""

    def __init__(self, params: tuple[Value, ...], results: tuple[Value, ...], single: bool) -> None:
        self.count = len(params)
        self.dtypes = [np.dtype(p.dtype) for p in params]
        self.codes = [p.code for p in params]
        self.results = results
        self.result_dtypes = [np.dtype(r.dtype) for r in results]
        self.single = single
        self.known: dict[Any, CachedCall] = {}

    @staticmethod
    def of(spec: FunctionSpec, plan: FunctionPlan) -> DeviceFastPath | None:
        """Return the fast path of a function; None if its signature does not allow one."""
        if spec.kind != "relax" or spec.results is None or not plan.is_static:
            return None
        results = spec.results.fields if spec.results.kind == "tuple" else (spec.results,)
        if not results or not all(map(is_plain_tensor, (*spec.params, *results))):
            return None
        return DeviceFastPath(spec.params, results, spec.results.kind != "tuple")

    def key(self, args: tuple[Any, ...], device: Device) -> Any:
        """Return the cache key of a call: its arguments' shapes; None if one is not compact or of another dtype."""
        shapes: list[Any] = []
        for value, dtype, code in zip(args, self.dtypes, self.codes, strict=True):
            if type(value) is np.ndarray:
                if value.dtype is not dtype or value.flags.num & _COMPACT != _COMPACT:
                    return None
                shapes.append(value.shape)
            elif type(value) is DeviceArray and value.device is device and value.generation == device.generation:
                tensor = value.tensor
                if tensor.code != code or tensor.strides is not None or tensor.address % POINTER_ALIGNMENT:
                    return None
                shapes.append((tensor.shape,))
            else:
                return None
        return tuple(shapes)

    def remember(self, key: Any, values: Values, workspace: int, on_device: bool) -> None:
        """Cache the results of the full checks for a key; `on_device`: True if an argument is on the device."""
        if len(self.known) >= _MAX_CACHED:
            self.known.clear()
        shapes = tuple(tuple(evaluate(d, values) for d in r.dims) for r in self.results)
        sizes = tuple(math.prod(s) * element_bytes(r.code) for s, r in zip(shapes, self.results, strict=True))
        self.known[key] = CachedCall(values, workspace, shapes, sizes, on_device)

    def call(self, launcher: Launcher, cached: CachedCall, args: tuple[Any, ...]) -> Any:
        """Run a call with cached checks. Raises CallError, Failure."""
        loaded = launcher.module.loaded()
        device, pool = loaded.device, loaded.pool
        device.attach()
        blocks: list[Block] = []
        addresses: list[int] = []
        for value in args:
            if type(value) is DeviceArray:
                addresses.append(value.tensor.address)
                continue
            blocks.append(pool.take(value.nbytes))
            addresses.append(blocks[-1].address)
            if value.nbytes:
                device.copy_in(blocks[-1].address, address_of(value), value.nbytes)
        results: list[Any] = []
        for spec, shape, size in zip(self.results, cached.shapes, cached.sizes, strict=True):
            if cached.on_device:
                results.append(DeviceArray.empty(pool, shape, spec.dtype))
                addresses.append(results[-1].tensor.address)
            else:
                blocks.append(pool.take(size))
                addresses.append(blocks[-1].address)
        room = pool.take(cached.workspace + loaded.record_bytes)
        launcher.recorded(loaded, addresses, room.address, cached.workspace, cached.values).play(False)
        if loaded.plan.words:
            launcher.run(loaded, addresses, room.address, cached.workspace).check()
        if not cached.on_device:
            for index, (shape, dtype) in enumerate(zip(cached.shapes, self.result_dtypes, strict=True)):
                results.append(np.empty(shape, dtype))
                if results[-1].nbytes:
                    device.copy_out(address_of(results[-1]), addresses[self.count + index], results[-1].nbytes)
        return results[0] if self.single else tuple(results)
