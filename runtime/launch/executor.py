"""Functions of a launch plan: the executor that runs them on a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc.runtime.arguments import Argument
from mlcc.runtime.launch.call import LaunchCall
from mlcc.runtime.launch.device_array import DeviceArray, locate
from mlcc.runtime.launch.fast import DeviceFastPath
from mlcc.runtime.launch.launcher import Launcher
from mlcc.runtime.launch.loaded import DeviceModule
from mlcc.runtime.launch.plan import FunctionPlan
from mlcc.runtime.launch.run import CheckFailure
from mlcc.runtime.manifest import FunctionSpec, Value
from mlcc.runtime.signature import HOST, Signature


class DevicePlacement:
    """Place arguments in host or device memory, and results on the device if an argument is there."""

    def __init__(self, module: DeviceModule) -> None:
        self.module = module

    def locate(self, value: Any) -> Any:
        return locate(value, self.module.device)

    def empty(self, value: Value, shape: tuple[int, ...], given: Sequence[Argument]) -> Any:
        if any(a.located is not None for a in given):
            return DeviceArray.empty(self.module.loaded().pool, shape, value.dtype)
        return HOST.empty(value, shape, given)


class LaunchExecutor:
    """Run a function of a launch plan, one call at a time per device."""

    def __init__(self, spec: FunctionSpec, plan: FunctionPlan, module: DeviceModule) -> None:
        self.signature = Signature(spec, DevicePlacement(module))
        self.launcher = Launcher(plan, module)
        self.device = module.device
        self.quick = DeviceFastPath.of(spec, plan)

    def call(self, args: tuple[Any, ...], out: Any) -> Any:
        """Call the function, by the fast path if the arguments are like those of an earlier call."""
        quick = self.quick
        with self.device.lock:
            if quick is None or out is not None or len(args) != quick.count:
                return self.bind(args, out)()
            key = quick.key(args, self.device)
            known = quick.known.get(key)
            if known is not None:
                try:
                    return quick.call(self.launcher, known, args)
                except CheckFailure as exc:
                    text = self.launcher.module.plan.errors.get(exc.code)
                    raise self.signature.failure(exc.code, text, numbers=exc.numbers) from None
            call = self.bind(args, None)
            result = call()
            if key is not None:
                quick.remember(key, call.values, call.workspace, call.is_on_device)
            return result

    def bind(self, args: Sequence[Any], out: Any) -> LaunchCall:
        with self.device.lock:
            return LaunchCall(self.signature, self.launcher, self.signature.bind(args, out))
