"""A model imported, built and compared with PyTorch: what of it went wrong, in one line."""

from __future__ import annotations

import contextlib
import copy
import inspect
import io
import os
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

import mlcc
from mlcc.errors import MlccError
from tests.frontend.models import WELL_CONDITIONED, Case, departure, leaves, precise

TOLERANCE = 1e-4  # of the largest element
LIVELY = 1e-3  # of the largest element: by how much results of other inputs differ at least


@dataclass(frozen=True)
class Way:
    """How a model gets in, and what runs it."""

    via: str = "pt2"  # pt2, onnx, fx
    dynamic: bool = False
    cuda: bool = False  # emulated
    levels: tuple[int | None, ...] = (0, None)  # of optimization; None is the default


@dataclass
class Outcome:
    """What became of a model; `wrong` is "" if it computes what PyTorch does, else the stage and what it said."""

    wrong: str = ""
    operators: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)  # of stages


class _Stopped(Exception):
    """A stage failed; the message says how."""


@dataclass(frozen=True)
class _Expected:
    """A result of PyTorch, and its precise values, where it is of floats."""

    plain: np.ndarray
    precise: np.ndarray


def outcome(case: Case, way: Way | None = None) -> Outcome:
    """Import, build and run a model one way, and compare with PyTorch in float64."""
    import torch

    way, found = way or Way(), Outcome()
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        model = case.build()
        try:
            sizes = [case.inputs(i) for i in ((0, 1, 2) if way.dynamic else (0,))]
            results = _expected(case, model, sizes)
            module = _VIA[way.via](torch, case, model, way.dynamic, found)
            for level in way.levels:
                _run(module, way, level, found, zip(sizes, results, strict=True))
        except _Stopped as problem:
            found.wrong = str(problem)
    return found


def _run(module: Any, way: Way, level: int | None, found: Outcome, cases: Any) -> None:
    options = {} if level is None else {"opt_level": level}
    target = "cuda{arch=sm_90}" if way.cuda else "llvm{cpu=native}"
    with _stage(f"build -O{level}", found):
        run = mlcc.load(mlcc.build(module, target, **options), emulate=way.cuda)["main"]
    for given, expected in cases:
        with _stage(f"run -O{level}", found):
            results = leaves(run(*given))
        wrong = _difference(results, expected)
        if wrong:
            raise _Stopped(f"run -O{level}: {wrong}")


# ---------------------------------------------------------------- what PyTorch gives


def _expected(case: Case, model: Any, sizes: list[Any]) -> list[list[_Expected]]:
    """What PyTorch gives for inputs of each size. A model that would prove nothing is refused."""
    results = [_results(model, given) for given in sizes]
    floats = [r for part in results for r in part if r.plain.dtype.kind == "f"]
    rounded = max((departure(r.plain, r.precise) for r in floats), default=0.0)
    if rounded > WELL_CONDITIONED:
        raise _Stopped(f"model: float32 and float64 differ by {rounded:.1g} in PyTorch")
    others = _results(model, case.inputs(6))  # of the first size
    if all(_same(one.precise, other.precise) for one, other in zip(results[0], others, strict=True)):
        raise _Stopped("model: its results do not depend on its inputs")
    return results


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and departure(one, other) < LIVELY


def _results(model: Any, given: tuple[Any, ...]) -> list[_Expected]:
    import torch

    with torch.no_grad():
        plain = [np.asarray(leaf) for leaf in leaves(copy.deepcopy(model)(*given))]
    exact = [np.asarray(leaf) for leaf in precise(model, given)]
    return [_Expected(p, e if p.dtype.kind == "f" else p) for p, e in zip(plain, exact, strict=True)]


def _difference(found: list[Any], expected: list[_Expected]) -> str:
    """How the results depart from PyTorch's; "" if they do not."""
    if len(found) < len(expected):
        return f"{len(found)} results, expected {len(expected)}"
    for index, (mine, theirs) in enumerate(zip(found, expected, strict=False)):
        one, other = np.asarray(mine), theirs.plain
        if one.shape != other.shape or one.dtype != other.dtype:
            return f"result {index} is {one.dtype}{list(one.shape)}, expected {other.dtype}{list(other.shape)}"
        worst = departure(one, theirs.precise)
        if not worst <= TOLERANCE:
            return f"result {index} is off by {worst:.2g} of the largest element"
    return ""


# ---------------------------------------------------------------- ways in


def _by_pt2(torch: Any, case: Case, model: Any, dynamic: bool, found: Outcome) -> Any:
    from mlcc.frontend import from_pt2

    with _file("model.pt2") as path:
        with _stage("export", found), torch.no_grad():
            program = torch.export.export(model, case.inputs(0), dynamic_shapes=_shapes(case, model, dynamic))
            torch.export.save(program, path)
        found.operators.update(str(n.target) for n in program.graph.nodes if n.op == "call_function")
        with _stage("import", found):
            return from_pt2(path)


def _by_onnx(torch: Any, case: Case, model: Any, dynamic: bool, found: Outcome) -> Any:
    from mlcc.frontend import from_onnx

    with _file("model.onnx") as path:
        with _stage("export", found), torch.no_grad(), contextlib.redirect_stderr(io.StringIO()):
            shapes = _shapes(case, model, dynamic)
            made = torch.onnx.export(model, case.inputs(0), dynamo=True, dynamic_shapes=shapes, verbose=False)
            made.save(path)
        found.operators.update(node.op_type for node in made.model_proto.graph.node)
        with _stage("import", found):
            return from_onnx(path)


def _by_fx(torch: Any, case: Case, model: Any, dynamic: bool, found: Outcome) -> Any:
    from mlcc.frontend import from_fx

    with _stage("export", found):
        graph = torch.fx.symbolic_trace(model)
        with torch.no_grad():
            graph(*case.inputs(0))  # some that trace do not run
    found.operators.update(str(n.target) for n in graph.graph.nodes if n.op.startswith("call_"))
    with _stage("import", found):
        return from_fx(graph, case.inputs(0))


_Import: TypeAlias = Callable[[Any, Case, Any, bool, Outcome], Any]
_VIA: dict[str, _Import] = {"pt2": _by_pt2, "onnx": _by_onnx, "fx": _by_fx}


def _shapes(case: Case, model: Any, dynamic: bool) -> Any:
    """What may vary, as the exporter wants it for this signature."""
    if not dynamic:
        return None
    parameters = inspect.signature(model.forward).parameters.values()
    return (case.dynamic(),) if any(p.kind is p.VAR_POSITIONAL for p in parameters) else case.dynamic()


@contextlib.contextmanager
def _file(name: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield os.path.join(folder, name)


@contextlib.contextmanager
def _stage(name: str, found: Outcome) -> Iterator[None]:
    """Keep the time of a stage, and say by its name what it raises."""
    start = time.perf_counter()
    try:
        yield
    except MlccError as problem:
        raise _Stopped(f"{name}: " + "; ".join(_line(d.message) for d in problem.diagnostics)) from problem
    except Exception as problem:
        raise _Stopped(f"{name}: {type(problem).__name__}: {_line(problem)}") from problem
    finally:
        found.seconds[name] = found.seconds.get(name, 0.0) + time.perf_counter() - start


def _line(problem: object) -> str:
    return " ".join(str(problem).split())[:300]
