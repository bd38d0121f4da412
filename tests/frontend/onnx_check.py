"""Importing ONNX models and comparing them with the reference evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np

import mlcc
from mlcc.frontend.onnx.translate import translate
from tests.frontend.aten_check import compare


def check(model: Any, *inputs: Any, opt_level: int = 1, expected: Any = None) -> Any:
    """The module of the model, built and compared with `expected`, or with what the reference evaluator gives."""
    module = translate(model)
    run = mlcc.load(mlcc.build(mlcc.parse(mlcc.script(module)), target="llvm{cpu=native}", opt_level=opt_level))["main"]
    if expected is None:
        from onnx.reference import ReferenceEvaluator

        names = [given.name for given in model.graph.input]
        expected = ReferenceEvaluator(model).run(None, dict(zip(names, inputs, strict=False)))
    found = run(*inputs)
    found = list(found) if isinstance(found, (list, tuple)) else [found]
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        compare(np.asarray(mine), np.asarray(theirs))
    return module
