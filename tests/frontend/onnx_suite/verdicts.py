"""What becomes of a case: passed, refused with a reason, wrong numbers, or a crash."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import mlcc
from mlcc.errors import CompileError, MlccError
from mlcc.frontend.onnx.translate import translate
from mlcc.interp import run_function
from mlcc.ir.dtypes import DType
from mlcc.ir.module import IRModule
from mlcc.ir.narrow_floats import decode, is_narrow
from tests.frontend.onnx_suite.cases import SuiteCase

# What the suite computes step by step in narrow floats is rounded at each; here an operator rounds once.
TOLERANCE = {"bfloat16": (2**-6, 2**-7), "float16": (2**-9, 2**-10)}
_CANCELLED = 1e-6  # of the largest element: what sums of single precision leave where they come to 0

Run = Callable[..., Any]


class State(enum.Enum):
    """How a case ends."""

    PASSED = "passed"
    REFUSED = "refused"
    WRONG = "wrong numbers"
    CRASHED = "crashed"


@dataclass(frozen=True)
class Verdict:
    """The end of a case in one mode."""

    case: SuiteCase
    mode: str
    state: State
    reason: str = ""


def interpreted(module: IRModule) -> Run:
    """The module run by the interpreter."""
    return lambda *inputs: run_function(module, "main", inputs)


def compiled(opt_level: int) -> Callable[[IRModule], Run]:
    """The module run as code of that level."""

    def build(module: IRModule) -> Run:
        built = mlcc.build(mlcc.parse(mlcc.script(module)), target="llvm{cpu=native}", opt_level=opt_level)
        return mlcc.load(built)["main"]  # type: ignore[no-any-return]

    return build


def judge(case: SuiteCase, mode: str, build: Callable[[IRModule], Run] = interpreted) -> Verdict:
    """Import the case, run it, and compare with the outputs that come with it."""
    try:
        model, data = case.in_mode(mode)
        run = build(translate(model))
        for inputs, outputs in data:
            found = run(*(_stored(value) for value in _flat(inputs)))
            wrong = _difference(_flat([found]), _flat(outputs), case)
            if wrong:
                return Verdict(case, mode, State.WRONG, wrong)
    except CompileError as problem:
        return Verdict(case, mode, State.REFUSED, "; ".join(d.message for d in problem.diagnostics))
    except MlccError as problem:
        return Verdict(case, mode, State.WRONG, f"{type(problem).__name__}: {problem}")
    except Exception as problem:  # noqa: BLE001 what an importer must never end in
        return Verdict(case, mode, State.CRASHED, f"{type(problem).__name__}: {problem}")
    return Verdict(case, mode, State.PASSED)


def _flat(values: Any) -> list[Any]:
    if isinstance(values, (list, tuple)):
        return [leaf for part in values for leaf in _flat(part)]
    if hasattr(values, "data_type"):  # a TensorProto, of elements that NumPy lacks
        from onnx import numpy_helper

        return [numpy_helper.to_array(values)]
    return [values]


def _stored(value: Any) -> Any:
    """An input as mlcc takes it: types that NumPy lacks as their bits."""
    array = np.asarray(value)
    return array if array.dtype.isbuiltin == 1 else array.view(f"uint{8 * array.dtype.itemsize}")


def _difference(found: list[Any], expected: list[Any], case: SuiteCase) -> str:
    """The first difference in words, or nothing."""
    if len(found) != len(expected):
        return f"{len(found)} outputs, not {len(expected)}"
    for at, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
        mine, theirs = np.asarray(mine), np.asarray(theirs)
        theirs_dtype = theirs.dtype
        if mine.shape != theirs.shape:
            return f"output {at} has shape {mine.shape}, not {theirs.shape}"
        if theirs.dtype.isbuiltin != 1:
            dtype = DType.of(str(theirs.dtype))
            mine, theirs = (decode(mine, dtype) if is_narrow(dtype) else mine), theirs.astype("float32")
        elif mine.dtype != theirs.dtype:
            return f"output {at} is {mine.dtype}, not {theirs.dtype}"
        rtol, atol = TOLERANCE.get(str(theirs_dtype), (case.rtol, max(case.atol, _CANCELLED * _largest(theirs))))
        if not np.allclose(mine, theirs, rtol=rtol, atol=atol, equal_nan=True):
            return f"output {at} is off by {_worst(mine, theirs):.3g}"
    return ""


def _largest(values: np.ndarray) -> float:
    if values.dtype.kind != "f":
        return 0.0
    return float(np.max(np.abs(values), initial=0, where=np.isfinite(values)))


def _worst(mine: np.ndarray, theirs: np.ndarray) -> float:
    with np.errstate(all="ignore"):
        apart = np.abs(mine.astype("float64") - theirs.astype("float64"))
    return float(np.max(np.where(np.isnan(apart), np.inf, apart), initial=0))
