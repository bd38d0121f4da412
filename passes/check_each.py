"""Finding the pass that changes numbers: the module runs before the first pass and after each one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mlcc.errors import CompileError, did_you_mean, error
from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.passes.manager import Observer, Pass, Pipeline
from mlcc.passes.work import module_work

if TYPE_CHECKING:
    import numpy as np

Write = Callable[[str], None]


class CheckEach(Observer):
    """Runs a function of the module on given arrays around every pass and compares the results with the first ones.

    Up to `limit` operations the interpreter runs it, past that compiled code; the report says which. `guilty` is the
    first pass after which a result left the tolerance. Arrays that a pass has bound as constants are not passed.
    """

    def __init__(
        self, inputs: dict[str, np.ndarray], func: str = "main", rtol: float = 1e-4, atol: float = 1e-5,
        limit: int = 10_000_000, write: Write | None = None,
    ) -> None:  # fmt: skip
        self.inputs = inputs
        self.func = func
        self.rtol = rtol
        self.atol = atol
        self.limit = limit
        self.write = write or (lambda text: None)
        self.guilty: str | None = None
        self._expected: list[np.ndarray] = []
        self._runner = ""

    def start(self, pipeline: Pipeline, module: IRModule) -> None:
        work = module_work(module, self.func)
        self._runner = "interpreter" if work is None or work <= self.limit else "compiled"
        self._expected = self._run(module)
        how = "interpreted" if self._runner == "interpreter" else f"compiled, since it takes about {work} operations"
        self.write(f"check-each: `{self.func}` is {how}\n")

    def after(self, at: int, current: Pass, before: IRModule, module: IRModule) -> None:
        if module.functions == before.functions:
            self.write(f"check-each: {current.name}: the same module\n")
            return
        problem = self._difference(self._run(module))
        self.write(f"check-each: {current.name}: {problem or 'the same numbers'}\n")
        if problem and self.guilty is None:
            self.guilty = current.name
            self.write(f"check-each: `{current}` is the first pass that changes the numbers of `{self.func}`\n")

    def _run(self, module: IRModule) -> list[np.ndarray]:
        func = module.functions.get(self.func)
        if func is None:
            help = did_you_mean(self.func, module)
            raise CompileError(error("E0512", f"the module has no function `{self.func}` to run", help=help))
        names = _names(func)
        outputs = _outputs(func)
        wanted = names[: len(names) - outputs] if outputs else names
        missing = [
            error("E0512", f"no array for parameter `{n}` of `{self.func}`") for n in wanted if n not in self.inputs
        ]
        if missing:
            raise CompileError(missing)
        arrays = [self.inputs[n] for n in wanted]
        if self._runner == "compiled":
            return self._compiled(module, arrays)
        from mlcc.interp import run

        return _flat(run(module, self.func, arrays))

    def _compiled(self, module: IRModule, arrays: list[Any]) -> list[np.ndarray]:
        raise NotImplementedError

    def _difference(self, results: list[np.ndarray]) -> str | None:
        """What differs most, in words; None if all is within the tolerance."""
        import numpy as np

        if len(results) != len(self._expected):
            return f"{len(results)} results instead of {len(self._expected)}"
        for number, (got, want) in enumerate(zip(results, self._expected, strict=True)):
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


def _names(func: Any) -> list[str]:
    """The names under which a function's parameters take arrays."""
    if isinstance(func, relax.Function):
        return [p.name for p in func.params]
    return [b.name if b is not None else p.name for p, b in zip(func.params, func.buffers, strict=True)]


def _outputs(func: Any) -> int:
    """How many parameters at the end are only written: they need no array."""
    if not isinstance(func, tir.PrimFunc):
        return 0
    return 0


def _flat(value: Any) -> list[np.ndarray]:
    import numpy as np

    if isinstance(value, (tuple, list)):
        return [a for v in value for a in _flat(v)]
    return [np.asarray(value)]
