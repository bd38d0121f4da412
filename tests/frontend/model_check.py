"""A model imported, built and compared with PyTorch: what of it went wrong, in one line."""

from __future__ import annotations

import contextlib
import copy
import gc
import inspect
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

import mlcc
from mlcc.errors import MlccError
from tests.frontend.models import CASES, Case
from tests.frontend.vision import import_torchvision

TOLERANCE = 1e-4  # of the largest element


def outcome(case: Case, dynamic: bool = False, levels: Iterable[int | None] = (0, None)) -> str:
    """ "" if the model computes what PyTorch does; else the stage and what it said. None is the default level."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        model = case.build()
        inputs = case.inputs(0)
        try:
            with torch.no_grad():
                exported = torch.export.export(model, inputs, dynamic_shapes=_shapes(case, model) if dynamic else None)
        except Exception as problem:
            return f"export: {_line(problem)}"
        sizes = [inputs, *(case.inputs(i) for i in (1, 2))] if dynamic else [inputs]
        try:
            module = _imported(torch, exported)
        except MlccError as problem:
            return "import: " + "; ".join(_line(d.message) for d in problem.diagnostics)
        for level in levels:
            try:
                options = {} if level is None else {"opt_level": level}
                run = mlcc.load(mlcc.build(module, target="llvm{cpu=native}", **options))["main"]
            except MlccError as problem:
                return f"build -O{level}: {_line(problem)}"
            for given in sizes:
                wrong = _differs(torch, model, run, given)
                if wrong:
                    return f"run -O{level}: {wrong}"
    return ""


def _shapes(case: Case, model: Any) -> Any:
    """What may vary, as the exporter wants it for this signature."""
    parameters = inspect.signature(model.forward).parameters.values()
    return (case.dynamic(),) if any(p.kind is p.VAR_POSITIONAL for p in parameters) else case.dynamic()


def _imported(torch: Any, exported: Any) -> Any:
    """The module of the program's .pt2 file."""
    from mlcc.frontend import from_pt2

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.pt2")
        torch.export.save(exported, path)
        return from_pt2(path)


def _differs(torch: Any, model: Any, run: Any, given: tuple[Any, ...]) -> str:
    """How the results depart from PyTorch's; "" if they do not."""

    with torch.no_grad():
        expected = leaves(copy.deepcopy(model)(*given))
    try:
        found = leaves(run(*given))
    except MlccError as problem:
        return _line(problem)
    if len(found) < len(expected):
        return f"{len(found)} results, expected {len(expected)}"
    for index, (mine, theirs) in enumerate(zip(found, expected, strict=False)):
        one, other = np.asarray(mine), np.asarray(theirs)
        if one.shape != other.shape or one.dtype != other.dtype:
            return f"result {index} is {one.dtype}{list(one.shape)}, expected {other.dtype}{list(other.shape)}"
        scale = max(float(np.max(np.abs(other), initial=0)), 1e-6)
        worst = float(np.max(np.abs(one.astype("float64") - other.astype("float64")), initial=0)) / scale
        if not worst <= TOLERANCE:
            return f"result {index} is off by {worst:.2g} of the largest element"
    return ""


def leaves(value: Any) -> list[Any]:
    """The tensors and numbers in nested results."""
    if isinstance(value, (list, tuple)):
        return [leaf for part in value for leaf in leaves(part)]
    return [] if value is None else [value]


def _line(problem: object) -> str:
    return " ".join(str(problem).split())[:300]


def main(arguments: list[str]) -> None:
    """`python -m tests.frontend.model_check [--dynamic] [--fast] [--heavy] [PREFIX...]`: a line for each model, and how
    many are right. With `--fast` at the default level only."""
    with contextlib.suppress(ImportError):
        import_torchvision()
    dynamic, levels = "--dynamic" in arguments, (None,) if "--fast" in arguments else (0, None)
    starts = tuple(a for a in arguments if not a.startswith("--")) or ("",)
    wanted = [n for n, c in CASES.items() if n.startswith(starts) and (not c.heavy or "--heavy" in arguments)]
    tried = [name for name in wanted if not dynamic or CASES[name].dynamic is not None]
    right = 0
    for name in tried:
        start = time.perf_counter()
        try:
            wrong = outcome(CASES[name], dynamic, levels)
        except Exception as problem:
            wrong = f"{type(problem).__name__}: {_line(problem)}"
        right += not wrong
        gc.collect()
        print(f"{'ok  ' if not wrong else 'FAIL'} {name} {time.perf_counter() - start:.1f}s {wrong}", flush=True)
    print(f"{right} of {len(tried)} right")


if __name__ == "__main__":
    main(sys.argv[1:])
