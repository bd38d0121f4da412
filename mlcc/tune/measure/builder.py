"""The process that compiles candidates: LLVM may crash there, or never finish, and the tuner goes on."""

from __future__ import annotations

import os
import pickle
import queue
import signal
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from mlcc.errors import MlccError
from mlcc.ir import tir
from mlcc.tune.measure.check import ErrorBound
from mlcc.tune.measure.depth import error_bound
from mlcc.tune.measure.kernel import Argument, Kernel
from mlcc.tune.measure.kernel_code import Recipe, arguments_of, build_kernel
from mlcc.tune.measure.pipes import receive, send
from mlcc.tune.measure.wire import packed, unpacked

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
    """Answer requests until the pipe ends; then end at once, in the midst of work as well."""
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(reading, requests.put), daemon=True).start()
    kept: OrderedDict[str, Kernel] = OrderedDict()
    while True:
        request = unpacked(requests.get())
        signal.setitimer(signal.ITIMER_PROF, request.seconds)
        answer = _answer(request, kept)
        signal.setitimer(signal.ITIMER_PROF, 0)
        send(writing, pickle.dumps(answer))


def _listen(reading: int, take: Callable[[bytes], None]) -> None:
    while (message := receive(reading)) is not None:
        take(message)
    os._exit(0)


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


def request_bytes(request: Any) -> bytes:
    """A request as a message."""
    return packed(request)
