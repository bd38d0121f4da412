"""Many operators of PyTorch in one exported module, imported, built once, and each result compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import mlcc
from mlcc.frontend import from_exported_program

Case = tuple[Callable[..., Any], Sequence[Any]]  # a function of tensors, and the tensors
TOLERANCE = {"float64": 1e-9, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}


def check_cases(cases: Mapping[str, Case], opt_level: int = 1, sizes: Sequence[int] = ()) -> None:
    """Export all functions as one module, build it, and compare each result with PyTorch's.

    With `sizes` the first extent of every tensor that has the extent 3 there is symbolic, and the built module is run
    with each of these instead, too.
    """
    import torch

    model = _model(torch, cases)
    flat = [x for _, tensors in cases.values() for x in tensors]
    dynamic = tuple(_dynamic(torch, x) for x in flat) if sizes else None
    exported = torch.export.export(model, tuple(flat), dynamic_shapes=None if dynamic is None else {"tensors": dynamic})
    module = from_exported_program(exported)
    run = mlcc.load(mlcc.build(mlcc.parse(mlcc.script(module)), target="llvm{cpu=native}", opt_level=opt_level))["main"]
    for size in (3, *sizes):
        given = [_resized(torch, x, size) if sizes else x for x in flat]
        expected = model(*given)
        found = run(*given)
        expected = _leaves(expected)
        found = _leaves(found)
        names = _names(model, cases, given)
        compared = [(name, differs(*pair)) for name, *pair in zip(names, found, expected, strict=True)]
        wrong = [f"{name} (size {size}): {problem}" for name, problem in compared if problem is not None]
        assert not wrong, "\n".join(wrong)


def _model(torch: Any, cases: Mapping[str, Case]) -> Any:
    class All(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, *tensors: Any) -> Any:
            made, at = [], 0
            for function, given in cases.values():
                made.append(function(*tensors[at : at + len(given)]))
                at += len(given)
            return tuple(made)

    return All().eval()


def _names(model: Any, cases: Mapping[str, Case], given: Sequence[Any]) -> list[str]:
    results = model(*given)
    return [name for name, result in zip(cases, results, strict=True) for _ in _leaves(result)]


def _dynamic(torch: Any, tensor: Any) -> Any:
    return {0: torch.export.Dim.AUTO} if tensor.ndim and tensor.shape[0] == 3 else None


def _resized(torch: Any, tensor: Any, size: int) -> Any:
    if not tensor.ndim or tensor.shape[0] != 3:
        return tensor
    return tensor.repeat([-(-size // 3), *[1] * (tensor.ndim - 1)])[:size].contiguous()


def _leaves(results: Any) -> list[Any]:
    if isinstance(results, (list, tuple)):
        return [leaf for part in results for leaf in _leaves(part)]
    return [results]


def differs(mine: Any, theirs: Any) -> str | None:
    """What is wrong with a result; None if nothing is."""
    dtype = str(theirs.dtype).removeprefix("torch.")
    if dtype == "bfloat16":
        theirs = theirs.float()
        mine = np.asarray(mine)
        if mine.dtype == np.uint16:
            mine = (mine.astype(np.uint32) << 16).view(np.float32)
    one, two = np.asarray(mine), np.asarray(theirs)
    if one.shape != two.shape or (dtype != "bfloat16" and one.dtype != two.dtype):
        return f"{one.dtype} {one.shape} instead of {two.dtype} {two.shape}"
    if two.dtype.kind not in "fc":
        return None if np.array_equal(one, two) else f"{one} instead of {two}"
    one, two = one.astype("float64"), two.astype("float64")
    largest = np.max(np.abs(two), initial=0, where=np.isfinite(two))
    tolerance = TOLERANCE[dtype]
    close = np.isclose(one, two, rtol=tolerance, atol=tolerance * min(largest, 1), equal_nan=True)
    if np.all(close):
        return None
    at = tuple(np.argwhere(~close)[0])
    return f"{one[at]} instead of {two[at]} at {tuple(map(int, at))}, {np.sum(~close)} of {close.size} differ"
