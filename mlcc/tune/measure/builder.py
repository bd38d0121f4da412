"""The process that compiles candidates: LLVM may crash there, or never finish, and the tuner goes on."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace

from mlcc.errors import MlccError
from mlcc.ir import tir
from mlcc.tune.measure.check import ErrorBound
from mlcc.tune.measure.depth import error_bound
from mlcc.tune.measure.kernel import Argument, Kernel
from mlcc.tune.measure.kernel_code import Recipe, arguments_of, build_kernel
from mlcc.tune.measure.serve import serve

_KEPT = 512  # kernels that are remembered by their digests


@dataclass(frozen=True)
class Build:
    """Compile a scheduled function within so much CPU time."""

    func: tir.PrimFunc
    recipe: Recipe
    seconds: float = 30.0


@dataclass(frozen=True)
class Judge:
    """Compile an unscheduled function to judge candidates by, and find what its arguments are."""

    func: tir.PrimFunc
    recipe: Recipe
    seconds: float = 30.0


@dataclass(frozen=True)
class Built:
    """A kernel, or why there is none; `arguments` and `bound` are for those that judge."""

    kernel: Kernel | None
    why: str = ""
    arguments: tuple[Argument, ...] = ()
    bound: ErrorBound = ErrorBound()


def main(reading: int, writing: int) -> None:
    """Answer requests until the pipe ends."""
    kept: OrderedDict[str, Kernel] = OrderedDict()
    serve(reading, writing, lambda request: _answer(request, kept))


def _answer(request: Build | Judge, kept: OrderedDict[str, Kernel]) -> Built:
    try:
        if isinstance(request, Judge):
            recipe = replace(request.recipe, level=1, known=frozenset())
            kernel = build_kernel(request.func, recipe)
            sizes = recipe.sizes
            return Built(kernel, "", arguments_of(request.func, sizes), error_bound(request.func, sizes))
        kernel = build_kernel(request.func, request.recipe, kept.get)
        kept[kernel.digest] = kernel
        if len(kept) > _KEPT:
            kept.popitem(last=False)
        return Built(kernel)
    except MlccError as exc:
        first = exc.diagnostics[0]
        return Built(None, f"{first.code}: {first.message}")
    except RecursionError:
        return Built(None, "it is nested too deeply")
    except Exception as exc:  # noqa: BLE001 - a mistake of ours; the tuner is told
        return Built(None, f"{type(exc).__name__}: {exc}")
