"""mlcc: a compiler driver for tensor programs written as text. Importing it is cheap: parts load on first use."""

# what has no underscore is offered by editors that complete `mlcc.`
import importlib as _importlib
import os as _os
from typing import Any as _Any

__version__ = "0.1.0"

# In a checkout with nothing installed, mlcc.passes is ../passes, and so on.
_root = _os.path.dirname(_os.path.dirname(_os.path.abspath(__file__)))
if _os.path.isfile(_os.path.join(_root, "setup.cfg")) and _os.path.isdir(_os.path.join(_root, "passes")):
    __path__.append(_root)

_PUBLIC = {
    "CallError": "mlcc.errors",
    "CompileError": "mlcc.errors",
    "LoadError": "mlcc.errors",
    "MachineError": "mlcc.errors",
    "MlccError": "mlcc.errors",
    "Artifact": "mlcc.targets.artifact",
    "Executable": "mlcc.runtime.executable",
    "IRModule": "mlcc.ir.module",
    "Pipeline": "mlcc.passes.manage.manager",
    "Target": "mlcc.machine.target",
    "assert_structural_equal": "mlcc.ir.equal",
    "structural_equal": "mlcc.ir.equal",
    "parse": "mlcc.grammar.parser",
    "script": "mlcc.grammar.printer.printer",
    "run_passes": "mlcc.driver",
    "build": "mlcc.driver",
    "lint": "mlcc.verify",
    "load": "mlcc.loading",
    "load_arrays": "mlcc.array_files",
    "save_arrays": "mlcc.array_files",
    "arguments_by_name": "mlcc.call_by_name",
    "apply_schedule": "mlcc.passes.schedule.mls.run",
    "Schedule": "mlcc.passes.schedule.schedule",
    "get_num_threads": "mlcc.runtime.threads",
    "set_num_threads": "mlcc.runtime.threads",
    "register_func": "mlcc.runtime.registry",
    "register_tensor_intrin": "mlcc.passes.schedule.tensor_intrin",
}
_MODULES = ("frontend", "ir", "lang", "relax", "runtime", "te", "tune")


_MEANT = {  # names of other packages
    "compile": "mlcc.build(mod) compiles a module",
    "jit": "mlcc.build(mod) compiles a module",
    "tir": "mlcc.parse(text) reads TensorIR, mlcc.Schedule(mod) schedules it; mlcc.lang.tvm has TVM's names",
    "cpu": "the target of mlcc.build decides where code runs; mlcc.lang.tvm has TVM's names",
    "transform": "mlcc.run_passes(mod, 'fuse,lower-to-tir') runs passes",
    "nd": "arrays are those of NumPy, or of any library that speaks DLPack",
    "device": "what is compiled for a GPU runs on the current CUDA device",
    "from_onnx": "it is mlcc.frontend.from_onnx",
    "from_pytorch": "it is mlcc.frontend.from_exported_program",
    "Module": "it is mlcc.IRModule",
}


def __getattr__(name: str) -> _Any:
    where = _PUBLIC.get(name)
    if where is not None:
        value = getattr(_importlib.import_module(where), name)
        globals()[name] = value
        return value
    if name in _MODULES:
        return _importlib.import_module(f"mlcc.{name}")
    hint = _MEANT.get(name)
    raise AttributeError(f"module 'mlcc' has no attribute {name!r}" + (f": {hint}" if hint else ""))


def __dir__() -> list[str]:
    return sorted([*_PUBLIC, *_MODULES, *(name for name in globals() if name.startswith("__"))])
