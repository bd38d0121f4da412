"""Finding the pass that changes numbers: the module runs before the first pass and after each one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from mlcc.errors import CompileError, did_you_mean, error, render
from mlcc.ir import relax, tir
from mlcc.ir.effects import WRITE, effects
from mlcc.ir.module import Func, IRModule
from mlcc.passes.lowering.narrow_floats import promoted_module
from mlcc.passes.lowering.work_estimate import module_work
from mlcc.passes.manage.manager import Observer, Pass, Pipeline
from mlcc.passes.manage.stages import STEP

if TYPE_CHECKING:
    import numpy as np

Write = Callable[[str], None]


Compiled = Callable[[IRModule, str, "list[np.ndarray]"], "list[np.ndarray]"]


class _Missing(CompileError):
    """Some parameters have no array."""


class CheckEach(Observer):
    """Runs a function of the module on given arrays around every pass and compares the results with the first ones.

    Up to `limit` operations the interpreter runs it, past that `compiled`, if there is one, which is to check accesses
    as the interpreter does; the report says which. What is lowered in part `emulated` runs, if there is one: code of
    one thread among many.
    `guilty` is the first pass after which a result left the tolerance. Arrays that a pass has bound as constants are
    not passed; where some are bound by a pass and not given, checking begins behind it. Of a TIR function the results
    are the buffers that it writes; those need no array.
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
        self.guilty: str | None = None
        self._expected: list[np.ndarray] | None = None
        self._interpret = True
        self._last = 0

    def start(self, pipeline: Pipeline, module: IRModule) -> None:
        self._last = len(pipeline.passes) - 1
        self._begin(module, "", is_last=self._last < 0)

    def _begin(self, module: IRModule, behind: str, is_last: bool) -> None:
        """Get the results that all others are compared with, unless arrays are missing that a pass may yet bind."""
        work = module_work(module, self.func, self._shapes(module))
        within = self.limit > 0 if work is None else work <= self.limit
        self._interpret = self.compiled is None or within
        try:
            self._expected = self._run(module)
        except _Missing:
            if is_last:
                raise
            return
        about = "its sizes are not known here" if work is None else f"it takes about {work} operations"
        how = "interpreted" if self._interpret else f"compiled, its accesses checked (--sanitize), since {about}"
        self.write(f"check-each: `{self.func}` is {how}{behind}\n")

    def after(self, at: int, current: Pass, before: IRModule, module: IRModule) -> None:
        if self._expected is None:
            self._begin(module, f"; checking begins behind {current.name}", is_last=at == self._last)
            return
        if module.functions == before.functions:
            self.write(f"check-each: {current.name}: the same module\n")
            return
        problem = self._difference(self._run(module), self._expected)
        self.write(f"check-each: {current.name}: {problem or 'the same numbers'}\n")
        if problem and self.guilty is None:
            self.guilty = current.name
            message = f"`{current}` is the first pass that changes what `{self.func}` computes"
            self.write(render(error("E0511", message, help=problem)) + "\n")

    def _run(self, module: IRModule) -> list[np.ndarray]:
        func = module.functions.get(self.func)
        if func is None:
            help = did_you_mean(self.func, module)
            raise CompileError(error("E0512", f"the module has no function `{self.func}` to run", help=help))
        arrays, results = self._arrays(func, module)
        module = promoted_module(module)  # what functions of operators mean until then
        if self.emulated is not None and STEP in module.attrs:
            returned = self.emulated(module, self.func, arrays)
        elif self.compiled is not None and not self._interpret:
            returned = self.compiled(module, self.func, arrays)
        else:
            from mlcc.interp import run_function

            returned = run_function(module, self.func, arrays)
        return results or _flat(returned)

    def _shapes(self, module: IRModule) -> list[tuple[int, ...] | None]:
        """The shapes of the arguments that are given."""
        func = module.functions.get(self.func)
        given = [self.inputs.get(name) for name, _ in _parameters(func)] if func is not None else []
        return [None if array is None else array.shape for array in given]

    def _arrays(self, func: Func, module: IRModule) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The arguments by name, and those of them that the call fills."""
        arrays: list[np.ndarray] = []
        filled = []
        wrong = []
        written = _written(func, module)
        for name, buffer in _parameters(func):
            given = self.inputs.get(name)
            is_result = buffer is not None and buffer.data in written
            if given is None and is_result and buffer is not None:
                given = _zeros(buffer)
            if given is None:
                wrong.append(error("E0512", f"no array for parameter `{name}` of `{self.func}`", func.span))
                continue
            arrays.append(given.copy() if is_result else given)
            if is_result:
                filled.append(arrays[-1])
        if wrong:
            raise _Missing(wrong)
        return arrays, filled

    def _difference(self, results: list[np.ndarray], expected: list[np.ndarray]) -> str | None:
        """Describe the largest difference between results, or return None if all are within the tolerance."""
        import numpy as np

        if len(results) != len(expected):
            return f"{len(results)} results instead of {len(expected)}"
        for number, (got, want) in enumerate(zip(results, expected, strict=True)):
            if got.shape != want.shape:
                return f"result {number} has shape {list(got.shape)} instead of {list(want.shape)}"
            close = np.isclose(_wide(got), _wide(want), rtol=self.rtol, atol=self.atol, equal_nan=True)
            if not close.all():
                gap = np.where(close, 0, np.abs(_wide(got) - _wide(want)))
                worst = tuple(int(i) for i in np.unravel_index(np.nan_to_num(gap, nan=np.inf).argmax(), gap.shape))
                return (
                    f"{int((~close).sum())} of {close.size} elements of result {number} differ; "
                    f"worst at {list(worst)}: {got[worst]} instead of {want[worst]}"
                )
        return None


def _wide(array: np.ndarray) -> np.ndarray:
    import numpy as np

    return array.astype(np.float64)


def _parameters(func: Func) -> list[tuple[str, tir.Buffer | None]]:
    """The names under which parameters take arrays, with the buffers of a TIR function."""
    if isinstance(func, relax.Function):
        return [(p.name, None) for p in func.params]
    pairs = zip(func.params, func.buffers, strict=True)
    return [(b.name if b is not None else p.name, b) for p, b in pairs]


def _written(func: Func, module: IRModule) -> set[tir.Var]:
    """The data of the buffers that a TIR function writes, itself or through views of them."""
    if not isinstance(func, tir.PrimFunc):
        return set()
    return {data for data, use in effects(func, certain=True, functions=module.functions).items() if use & WRITE}


def _zeros(buffer: tir.Buffer) -> np.ndarray | None:
    """An array for a buffer of known shape."""
    import numpy as np

    from mlcc.ir.tensor_data import storage_dtype

    dims = [tir.const_int(d) for d in buffer.shape]
    return None if None in dims else np.zeros(dims, storage_dtype(buffer.dtype))  # type: ignore[arg-type]


def _flat(value: Any) -> list[np.ndarray]:
    import numpy as np

    if isinstance(value, (tuple, list)):
        return [a for v in value for a in _flat(v)]
    return [np.asarray(value)]
