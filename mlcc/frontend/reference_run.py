"""Run a program by something else than compiled code, for `mlcc run --compare-with`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mlcc.errors import CompileError, error
from mlcc.frontend.compare import ModelRejected
from mlcc.frontend.source import read_module, suffix_of

if TYPE_CHECKING:
    import numpy as np

INTERPRETER = "interp"
FRAMEWORKS = {"torch": ".pt2", "onnx": ".onnx"}
Reference = Callable[[str, Sequence[Any]], list[Any]]  # from a function and arguments in order to all results


def reference_run(kind: str, path: str) -> tuple[str, Reference]:
    """Return the name of a reference and its run of the functions of a file.

    `kind` is `interp` for the interpreter, `torch` or `onnx` for the framework of the file itself, or the path of the
    model that the file was imported from. A framework executes code in a model with the user's rights.
    Raises CompileError E1077 if there is no such reference, or its package is missing.
    """
    if kind == INTERPRETER:
        return "the interpreter", _interpreted(path)
    from mlcc.frontend.runners import RUNNERS, framework_runner

    model, suffix = path if kind in FRAMEWORKS else kind, FRAMEWORKS.get(kind)
    if suffix is not None and suffix_of(path) != suffix:
        text = f"{path} is no model that {kind} runs ({suffix})"
        help = f"name the model that it was imported from: --compare-with model{suffix}; or the interpreter: interp"
        raise CompileError(error("E1077", text, help=help))
    if suffix_of(model) not in RUNNERS:
        help = f"known are {INTERPRETER}, {', '.join(FRAMEWORKS)}, and files {', '.join(RUNNERS)}"
        raise CompileError(error("E1077", f"nothing runs {kind} to compare with", help=help))
    runner = framework_runner(model)

    def run(func: str, arguments: Sequence[Any]) -> list[Any]:
        try:
            return runner.run([_stored(a) for a in arguments])
        except ModelRejected as exc:
            raise CompileError(error("E1077", f"{runner.name} does not run {model} on these arrays: {exc}")) from None

    return runner.name, run


def _interpreted(path: str) -> Reference:
    def run(func: str, arguments: Sequence[Any]) -> list[Any]:
        from mlcc.interp import run_function

        return [run_function(read_module(path), func, list(arguments))]

    return run


def _stored(value: Any) -> np.ndarray:
    """Return an argument as an array in the storage type of its dtype."""
    import numpy as np

    return value.bits if hasattr(value, "bits") else np.asarray(value)
