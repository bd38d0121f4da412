"""The compile process: LLVM may crash or hang in it without affecting the tuner."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace

from mlcc.errors import MlccError
from mlcc.ir import tir
from mlcc.tune.measure.check import ErrorBound
from mlcc.tune.measure.kernel import Argument, Kernel
from mlcc.tune.measure.kernel_code import CompileOptions, build_kernel, kernel_arguments
from mlcc.tune.measure.serve import serve
from mlcc.tune.measure.tolerance import error_bound

_MAX_CACHED = 512  # kernels cached by digest


@dataclass(frozen=True)
class BuildRequest:
    """A request to compile a scheduled function within `seconds` of CPU time."""

    func: tir.PrimFunc
    recipe: CompileOptions
    seconds: float = 30.0


@dataclass(frozen=True)
class ReferenceRequest:
    """A request to compile the unscheduled function as the reference, and to describe its arguments."""

    func: tir.PrimFunc
    recipe: CompileOptions
    seconds: float = 30.0


@dataclass(frozen=True)
class BuildAnswer:
    """A compiled kernel, or why compilation failed; `arguments` and `bound` are set for references."""

    kernel: Kernel | None
    why: str = ""
    arguments: tuple[Argument, ...] = ()
    bound: ErrorBound = ErrorBound()


def main(reading: int, writing: int) -> None:
    """Answer requests until the pipe ends."""
    cache: OrderedDict[str, Kernel] = OrderedDict()
    serve(reading, writing, lambda request: _answer(request, cache))


def _answer(request: BuildRequest | ReferenceRequest, cache: OrderedDict[str, Kernel]) -> BuildAnswer:
    try:
        if isinstance(request, ReferenceRequest):
            recipe = replace(request.recipe, level=1, known=frozenset())
            kernel = build_kernel(request.func, recipe)
            sizes = recipe.sizes
            return BuildAnswer(kernel, "", kernel_arguments(request.func, sizes), error_bound(request.func, sizes))
        kernel = build_kernel(request.func, request.recipe, cache.get)
        cache[kernel.digest] = kernel
        if len(cache) > _MAX_CACHED:
            cache.popitem(last=False)
        return BuildAnswer(kernel)
    except MlccError as exc:
        first = exc.diagnostics[0]
        return BuildAnswer(None, f"{first.code}: {first.message}")
    except RecursionError:
        return BuildAnswer(None, "it is nested too deeply")
    except Exception as exc:  # noqa: BLE001 - an internal error; it is reported to the tuner
        return BuildAnswer(None, f"{type(exc).__name__}: {exc}")
