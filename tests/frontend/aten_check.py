"""Importing a module of PyTorch and comparing it with PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np

import mlcc
from mlcc.frontend import from_exported_program

TOLERANCE = 1e-4  # of the largest element


def check(model: Any, *inputs: Any, dynamic: Any = None, again: tuple[Any, ...] = (), opt_level: int = 1) -> Any:
    """Export the model, import and build it, and compare with PyTorch on `inputs` and on each of `again`.

    Returns the module. `dynamic` is what `torch.export.export` takes as `dynamic_shapes`; `again` are tuples of inputs
    of other sizes. Outputs must depend on inputs, or random weights would hide mistakes.
    """
    import torch

    model = model.eval()
    exported = torch.export.export(model, inputs, dynamic_shapes=dynamic)
    module = from_exported_program(exported)
    run = mlcc.load(mlcc.build(mlcc.parse(mlcc.script(module)), target="llvm{cpu=native}", opt_level=opt_level))["main"]
    for given in (inputs, *again):
        with torch.no_grad():
            compare_all(run(*(g for g in given if isinstance(g, torch.Tensor))), model(*given))
    return module


def compare_all(found: Any, expected: Any) -> None:
    """Equal numbers of results, each equal."""
    for mine, theirs in zip(_flat(found), _flat(expected), strict=True):
        compare(np.asarray(mine), np.asarray(theirs))


def compare(mine: np.ndarray, theirs: np.ndarray) -> None:
    """Equal shape and dtype, floats within the tolerance."""
    assert mine.shape == theirs.shape, (mine.shape, theirs.shape)
    assert mine.dtype == theirs.dtype, (mine.dtype, theirs.dtype)
    if mine.dtype.kind not in "fc":
        np.testing.assert_array_equal(mine, theirs)
        return
    largest = max(np.max(np.abs(theirs), initial=0, where=np.isfinite(theirs)), 1e-6)
    np.testing.assert_allclose(mine, theirs, rtol=TOLERANCE, atol=TOLERANCE * largest)


def _flat(results: Any) -> list[Any]:
    if isinstance(results, dict):
        return _flat(list(results.values()))
    if isinstance(results, (list, tuple)):
        return [leaf for part in results for leaf in _flat(part)]
    return [results]
