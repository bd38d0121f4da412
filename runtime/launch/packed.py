"""Call packed functions of a launch plan: those registered for the device get its arrays, others copies on the host.

Outputs of a host function are copied back to the device; `Loaded.host_copies` counts both directions.
"""

from __future__ import annotations

import contextlib
from typing import Any, Protocol

import numpy as np

from mlcc.errors import CallError, MlccError, error
from mlcc.runtime import registry
from mlcc.runtime.abi import STORAGE, dtype_code, element_bytes
from mlcc.runtime.dlpack import DeviceArgument, Tensor, of_array, view
from mlcc.runtime.launch.device import Device
from mlcc.runtime.launch.device_array import DeviceArray, locate
from mlcc.runtime.launch.loaded import LoadedPlan
from mlcc.runtime.launch.plan import PackedArgument, Runner
from mlcc.runtime.launch.scalars import Values
from mlcc.runtime.manifest import PackedSpec
from mlcc.runtime.packed import store_results


class CallingRun(Runner, Protocol):
    """The run that calls a packed function."""

    @property
    def device(self) -> Device: ...

    @property
    def loaded(self) -> LoadedPlan: ...


def call_packed(run: CallingRun, spec: PackedSpec, args: tuple[PackedArgument, ...], values: Values) -> None:
    """Call a packed function by its name. Raises CallError, or what the function raises."""
    function = registry.get_func(spec.name, run.device.kind)
    on_device = function is not None
    function = function or registry.get_func(spec.name)
    if function is None:
        raise registry.missing(spec.name)
    first_output = len(args) - spec.results
    inputs = [_value(run, a, values, on_device) for a in args[:first_output]]
    outputs = [_tensor(run, a, values) for a in args[first_output:]]
    try:
        if on_device:
            _call_on_device(run, spec, function, inputs, outputs)
        else:
            _call_on_host(run, spec, function, inputs, outputs)
    except Exception as exc:
        if not isinstance(exc, MlccError) and not hasattr(exc, "mlcc_packed"):
            with contextlib.suppress(AttributeError, TypeError):
                exc.mlcc_packed = spec.name  # type: ignore[attr-defined]
        raise


def _tensor(run: CallingRun, arg: PackedArgument, values: Values) -> Tensor:
    assert arg.place is not None
    shape = tuple(d(values) for d in arg.dims)
    return Tensor(arg.place(run, values), shape, None, dtype_code(arg.dtype), False, run)


def _value(run: CallingRun, arg: PackedArgument, values: Values, on_device: bool) -> Any:
    """Return an input for the function."""
    if arg.kind == "tensor":
        tensor = _tensor(run, arg, values)
        return DeviceArray(run.device, tensor, None) if on_device else view(of_host(run, tensor, True))
    if arg.kind == "shape":
        return tuple(d(values) for d in arg.dims)
    if arg.kind == "str":
        return arg.text
    assert arg.value is not None
    value = arg.value(values)
    return bool(value) if arg.kind == "bool" else float(value) if arg.kind == "float" else int(value)


def of_host(run: CallingRun, tensor: Tensor, filled: bool) -> Tensor:
    """Allocate a tensor in host memory, with a copy of the contents if `filled`."""
    name, _, lanes = tensor.dtype.partition("x")
    array = np.empty((*tensor.shape, int(lanes)) if lanes else tensor.shape, STORAGE.get(name, name))
    if filled:
        run.loaded.host_copies += 1
        if array.nbytes:
            run.device.copy_out(of_array(array).address, tensor.address, array.nbytes)
    return Tensor(of_array(array).address, tensor.shape, None, tensor.code, False, array)


def _call_on_host(run: CallingRun, spec: PackedSpec, function: Any, inputs: list[Any], targets: list[Tensor]) -> None:
    outputs = [of_host(run, p, False) for p in targets]
    if spec.style == "dps":
        function(*inputs, *(view(t) for t in outputs))
    else:
        store_results(spec.name, function(*inputs), outputs)
    for place, output in zip(targets, outputs, strict=True):
        run.loaded.host_copies += 1
        if output.owner.nbytes:
            run.device.copy_in(place.address, output.address, output.owner.nbytes)


def _call_on_device(run: CallingRun, spec: PackedSpec, function: Any, inputs: list[Any], targets: list[Tensor]) -> None:
    outputs = [DeviceArray(run.device, p, None) for p in targets]
    if spec.style == "dps":
        function(*inputs, *outputs)
        return
    result = function(*inputs)
    results = list(result) if isinstance(result, (tuple, list)) and len(targets) != 1 else [result]
    if len(results) != len(targets) and targets:
        text = f"packed function `{spec.name}` returned {len(results)} values, expected {len(targets)}"
        raise CallError(error("E0812", text))
    for value, target in zip(results, targets, strict=False):
        _store_result(run, spec.name, locate(value, run.device), target)


def _store_result(run: CallingRun, name: str, value: Any, target: Tensor) -> None:
    """Copy a result of a device function to its target."""
    if not isinstance(value, DeviceArgument):
        output = of_host(run, target, False)
        store_results(name, value, [output])
        run.loaded.host_copies += 1
        run.device.copy_in(target.address, output.address, output.owner.nbytes)
        return
    source = value.tensor
    if source.shape != target.shape or source.code != target.code or source.strides is not None:
        have, want = f"{source.dtype}{list(source.shape)}", f"{target.dtype}{list(target.shape)}"
        raise CallError(error("E0812", f"packed function `{name}` returned a {have}, expected a compact {want}"))
    run.device.copy(target.address, source.address, int(np.prod(target.shape)) * element_bytes(target.code))
