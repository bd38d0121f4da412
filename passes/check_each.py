"""Find the pass that changes results: run the module before the first pass and after each one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from mlcc.errors import CompileError, did_you_mean, error, render
from mlcc.ir import relax, tir
from mlcc.ir.effects import WRITE, effects
from mlcc.ir.module import Func, IRModule
from mlcc.passes.lowering.narrow_floats import promote_module
from mlcc.passes.lowering.work_estimate import module_work
from mlcc.passes.manage.manager import Observer, Pass, Pipeline
from mlcc.passes.manage.stages import STEP

if TYPE_CHECKING:
    import numpy as np

Write = Callable[[str], None]


Compiled = Callable[[IRModule, str, "list[np.ndarray]"], "list[np.ndarray]"]


class _MissingArrays(CompileError):
    """Some parameters have no array."""


class CheckEach(Observer):
    """Run a function of the module before and after every pass, and compare its results with the first ones.

    The interpreter runs it if it takes at most `limit` operations; otherwise `compiled` does, if given, which must
    check accesses as the interpreter does. The report says which. `emulated`, if given, runs modules that are partly
    lowered to code of one thread among many.

    `culprit` is the first pass after which a result is outside the tolerance, `culprit_at` its number from 0. Arrays
    that a pass has bound as constants are not passed; where a pass binds parameters that have no array, checking begins
    after it. The results of a TIR function are the buffers that it writes; those need no array.
    """

    def __init__(
        self, inputs: Mapping[str, np.ndarray], func: str = "main", rtol: float = 1e-4, atol: float = 1e-5,
        limit: int = 10_000_000, write: Write | None = None, compiled: Compiled | None = None,
        emulated: Compiled | None = None,
    ) -> None:  # fmt: skip
        self.inputs = inputs
        self.func = func
        self.rtol = rtol
        self.atol = atol
        self.limit = limit
        self.write = write or (lambda text: None)
        self.compiled = compiled
        self.emulated = emulated
        self.culprit: str | None = None
        self.culprit_at = 0
        self.expected: list[np.ndarray] | None = None
        self._interpret = True
        self._last = 0

    def start(self, pipeline: Pipeline, module: IRModule) -> None:
        self._last = len(pipeline.passes) - 1
        self._begin(module, "", is_last=self._last < 0)

    def _begin(self, module: IRModule, behind: str, is_last: bool) -> None:
        """Compute the reference results, unless arrays are missing that a later pass may bind."""
        why_compiled = self.choose_runner(module)
        try:
            self.expected = self.results(module)
        except _MissingArrays:
            if is_last:
                raise
            return
        how = f"compiled, its accesses checked (--sanitize), since {why_compiled}" if why_compiled else "interpreted"
        self.write(f"check-each: `{self.func}` is {how}{behind}\n")

    def choose_runner(self, module: IRModule) -> str | None:
        """Choose what runs this module and those made of it; return the reason if that is compiled code."""
        work = module_work(module, self.func, self._shapes(module))
        within_limit = self.limit > 0 if work is None else work <= self.limit
        self._interpret = self.compiled is None or within_limit
        if self._interpret:
            return None
        return "its sizes are not known here" if work is None else f"it takes about {work} operations"

    def after(self, at: int, current: Pass, before: IRModule, module: IRModule) -> None:
        if self.expected is None:
            self._begin(module, f"; checking begins after {current.name}", is_last=at == self._last)
            return
        if module.functions == before.functions:
            self.write(f"check-each: {current.name}: module unchanged\n")
            return
        problem = self.difference(self.results(module), self.expected)
        self.write(f"check-each: {current.name}: {problem or 'results unchanged'}\n")
        if problem and self.culprit is None:
            self.culprit, self.culprit_at = current.name, at
            message = f"`{current}` is the first pass that changes the results of `{self.func}`"
            self.write(render(error("E0511", message, help=problem)) + "\n")

    def compare(self, results: Any) -> str | None:
        """Return how results differ from those expected; None if they do not."""
        return self.difference(results, self.expected)

    def results(self, module: IRModule) -> list[np.ndarray]:
        """Return the results of the function in a module. Raises CompileError E0512 for arrays that are missing."""
        arrays, results = self.arguments(module)
        module = promote_module(module)  # lowered operators compute narrow floats in float32
        if self.emulated is not None and STEP in module.attrs:
            returned = self.emulated(module, self.func, arrays)
        elif self.compiled is not None and not self._interpret:
            returned = self.compiled(module, self.func, arrays)
        else:
            from mlcc.interp import run_function

            returned = run_function(module, self.func, arrays)
        return results or _flatten(returned)

    def _shapes(self, module: IRModule) -> list[tuple[int, ...] | None]:
        """Return the shapes of the given arguments, None for those without an array."""
        func = module.functions.get(self.func)
        given = [self.inputs.get(name) for name, _ in _parameters(func)] if func is not None else []
        return [None if array is None else array.shape for array in given]

    def arguments(self, module: IRModule) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return the arguments of the function by parameter name, and those of them that the call writes."""
        func = module.functions.get(self.func)
        if func is None:
            help = did_you_mean(self.func, module)
            raise CompileError(error("E0512", f"the module has no function `{self.func}` to run", help=help))
        arrays: list[np.ndarray] = []
        outputs = []
        errors = []
        written = _written_data(func, module)
        for name, buffer in _parameters(func):
            array = self.inputs.get(name)
            is_result = buffer is not None and buffer.data in written
            if array is None and is_result and buffer is not None:
                array = _zeros(buffer)
            if array is None:
                errors.append(error("E0512", f"no array for parameter `{name}` of `{self.func}`", func.span))
                continue
            arrays.append(array.copy() if is_result else array)
            if is_result:
                outputs.append(arrays[-1])
        if errors:
            raise _MissingArrays(errors)
        return arrays, outputs

    def difference(self, results: Any, expected: Any) -> str | None:
        """Describe the largest difference between results, or return None if all are within the tolerance.

        Results are arrays, or nested tuples and lists of arrays.
        """
        import numpy as np

        results, expected = _flatten(results), _flatten(expected)
        if len(results) != len(expected):
            return f"{len(results)} results instead of {len(expected)}"
        for number, (got, want) in enumerate(zip(results, expected, strict=True)):
            if got.shape != want.shape:
                return f"result {number} has shape {list(got.shape)} instead of {list(want.shape)}"
            close = np.isclose(_as_float64(got), _as_float64(want), rtol=self.rtol, atol=self.atol, equal_nan=True)
            if not close.all():
                deviation = np.where(close, 0, np.abs(_as_float64(got) - _as_float64(want)))
                flat = int(np.nan_to_num(deviation, nan=np.inf).argmax())
                position = tuple(int(i) for i in np.unravel_index(flat, deviation.shape))
                return (
                    f"{int((~close).sum())} of {close.size} elements of result {number} differ; "
                    f"worst at {list(position)}: {got[position]} instead of {want[position]}"
                )
        return None


def _as_float64(array: np.ndarray) -> np.ndarray:
    import numpy as np

    return array.astype(np.float64)


def _parameters(func: Func) -> list[tuple[str, tir.Buffer | None]]:
    """Return the names under which parameters take arrays, with the buffers of a TIR function."""
    if isinstance(func, relax.Function):
        return [(p.name, None) for p in func.params]
    pairs = zip(func.params, func.buffers, strict=True)
    return [(b.name if b is not None else p.name, b) for p, b in pairs]


def _written_data(func: Func, module: IRModule) -> set[tir.Var]:
    """Return the data variables of the buffers that a TIR function writes, directly or through views."""
    if not isinstance(func, tir.PrimFunc):
        return set()
    return {data for data, use in effects(func, certain=True, functions=module.functions).items() if use & WRITE}


def _zeros(buffer: tir.Buffer) -> np.ndarray | None:
    """Return an array of zeros for a buffer of known shape."""
    import numpy as np

    from mlcc.ir.tensor_data import storage_dtype

    dims = [tir.const_int(d) for d in buffer.shape]
    return None if None in dims else np.zeros(dims, storage_dtype(buffer.dtype))  # type: ignore[arg-type]


def _flatten(value: Any) -> list[np.ndarray]:
    import numpy as np

    if isinstance(value, (tuple, list)):
        return [a for v in value for a in _flatten(v)]
    return [np.asarray(value)]
