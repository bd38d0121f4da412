"""Importing graphs of torch.fx and comparing them with PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlcc
from mlcc.frontend import from_fx
from tests.frontend.aten_check import compare_all


def check(model: Any, *inputs: Any, info: Sequence[Any] | None = None, again: Sequence[tuple[Any, ...]] = ()) -> Any:
    """Trace the model, import and build it, and compare with PyTorch on `inputs` and on each of `again`.

    Returns the module. `info` describes the inputs, by default by themselves.
    """
    import torch

    graph = torch.fx.symbolic_trace(model.eval())
    module = from_fx(graph, inputs if info is None else info)
    run = mlcc.load(mlcc.build(mlcc.parse(mlcc.script(module)), target="llvm{cpu=native}", opt_level=1))["main"]
    for given in (inputs, *again):
        with torch.no_grad():
            compare_all(run(*given), model(*given))
    return module
