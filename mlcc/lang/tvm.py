"""Names of TVM for programs written for it: `from mlcc.lang import tvm` in place of `import tvm`.

Each stands for what mlcc has: `tvm.compile` builds and loads, `relax.transform.FuseOps()` is the pass `fuse`. Arrays
are NumPy's, with the method `numpy()`. What has no counterpart is an AttributeError that says what does its work.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

import mlcc
from mlcc.ir.module import IRModule as IRModule
from mlcc.lang import topi as _topi
from mlcc.lang.passes import bind_params, module_pass, sequential, transform
from mlcc.machine.target import Target
from mlcc.runtime.executable import Executable
from mlcc.runtime.timing import Timer


class Tensor(np.ndarray[Any, Any]):
    """An array of NumPy with TVM's method `numpy()`."""

    def numpy(self) -> np.ndarray:
        """Return a copy as an array of NumPy."""
        return np.array(self)


def tensor(values: Any, device: object = None) -> Tensor:
    """Return a copy of an array. A device is ignored: calls copy what a GPU needs."""
    return np.array(values).view(Tensor)


@dataclass(frozen=True)
class Device:
    """A device by kind and number, such as `tvm.cpu()`; the target of the build decides where code runs."""

    kind: str
    index: int = 0


def cpu(index: int = 0) -> Device:
    """Return the CPU."""
    return Device("cpu", index)


def cuda(index: int = 0) -> Device:
    """Return a GPU of NVIDIA."""
    return Device("cuda", index)


class Library:
    """What `tvm.compile` returns: functions by name, whose results have TVM's methods."""

    def __init__(self, executable: Executable) -> None:
        self.executable = executable

    @property
    def mod(self) -> Library:
        """The library itself, as the module inside TVM's executables."""
        return self

    module = mod  # of the virtual machine, in TVM

    def __getitem__(self, name: str) -> Callable[..., Any]:
        function = self.executable[name]
        return lambda *args: _results(function(*args))

    def time_evaluator(self, name: str, dev: object = None, number: int = 10, repeat: int = 5) -> Timer:
        """Return a timer of a function: `lib.time_evaluator("main", tvm.cpu())(a, b).mean` is in seconds."""
        return self.executable.time_evaluator(name, number=number, repeat=repeat)


def _results(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.view(Tensor)
    return type(value)(map(_results, value)) if isinstance(value, (tuple, list)) else value


def build(mod: Any, target: str | Target = "llvm") -> Library:
    """Compile a module, or a function, and load the result."""
    return Library(mlcc.load(mlcc.build(mod, target=target)))


def virtual_machine(executable: Library, device: object = None) -> Library:
    """Return the library: there is no virtual machine, and a compiled graph is called like any function."""
    return executable


def register_global_func(name: str, f: Callable[..., Any] | None = None, override: bool = False) -> Callable[..., Any]:
    """Register a function for packed calls; see `mlcc.register_func`."""
    return mlcc.register_func(name, f, override)


class Namespace:
    """Names of a module of TVM: those given, then those of a module of mlcc."""

    def __init__(self, path: str, module: str | None = None, /, **names: Any) -> None:
        self._path, self._module = path, module
        vars(self).update(names)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__") and self._module is not None:
            module: ModuleType = importlib.import_module(self._module)
            if hasattr(module, name):
                return getattr(module, name)
        raise AttributeError(f"mlcc has no counterpart of `{self._path}.{name}`")

    def __dir__(self) -> Sequence[str]:
        names = [] if self._module is None else dir(importlib.import_module(self._module))
        return sorted({*(n for n in vars(self) if not n.startswith("_")), *(n for n in names if not n.startswith("_"))})


def _target(text: str, host: object = None) -> Target:
    """Return a target by its text; its host is the CPU in any case."""
    return Target.parse(text)


def _script() -> Namespace:
    from mlcc.lang import ir, relax, tir

    return Namespace("tvm.script", ir=ir, tir=tir, tirx=tir, relax=relax, ir_module=ir.ir_module)


compile = build
runtime = SimpleNamespace(tensor=tensor, Tensor=Tensor, Device=Device)
nd = SimpleNamespace(array=tensor, NDArray=Tensor)
target = SimpleNamespace(Target=_target)
topi = _topi
testing = SimpleNamespace(assert_allclose=np.testing.assert_allclose)
script = _script()
te = mlcc.te
meta_schedule = mlcc.tune
register_func = register_global_func
_passes = Namespace("tvm.ir.transform", module_pass=module_pass, Sequential=sequential)
ir = Namespace(
    "tvm.ir", IRModule=IRModule, Op=mlcc.relax.Op, module=SimpleNamespace(IRModule=IRModule), transform=_passes,
    structural_equal=mlcc.structural_equal, assert_structural_equal=mlcc.assert_structural_equal,
)  # fmt: skip
_intrinsics = SimpleNamespace(register=mlcc.register_tensor_intrin)
tir = Namespace("tvm.tir", "mlcc.ir.tir", Schedule=mlcc.Schedule, transform=transform("tir"), TensorIntrin=_intrinsics)
s_tir = tir
_graph_passes = transform("relax", BindParams=bind_params)
_vm = SimpleNamespace(build=build)
relax = Namespace(
    "tvm.relax", "mlcc.relax", transform=_graph_passes, build=build, VirtualMachine=virtual_machine, vm=_vm,
    expr=Namespace("tvm.relax.expr", "mlcc.relax"),
)  # fmt: skip
transform = _passes  # type: ignore[assignment]


def __getattr__(name: str) -> Any:
    raise AttributeError(f"mlcc has no counterpart of `tvm.{name}`")
