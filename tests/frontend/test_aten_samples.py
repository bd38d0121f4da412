"""Samples of PyTorch's own operator database: a seeded share, all operators with `--all-cases`."""

from __future__ import annotations

import importlib.util
import random
import sys
import types
import unittest
from typing import Any

from mlcc.errors import CompileError
from tests.frontend.operator_check import Case, check_cases

SHARE, SAMPLES = 16, 3
# Operators that say so when they are refused, or whose samples are no functions of tensors alone
LEFT_OUT = ("linalg", "fft", "sparse", "rand", "multinomial", "bernoulli", "normal", "jiterator", "complex", "empty",
            "svd", "qr", "cholesky", "inverse", "det", "polygamma", "bessel", "dropout", "ops.", "torch_")  # fmt: skip


def _database() -> list[Any]:
    """The operators; PyTorch's test utilities import expecttest for a base class that samples do not need."""
    if importlib.util.find_spec("expecttest") is None:
        stub = types.ModuleType("expecttest")
        stub.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stub
    methods = importlib.import_module("torch.testing._internal.common_methods_invocations")
    return [info for info in methods.op_db if not any(part in info.name for part in LEFT_OUT)]


def test_samples_of_the_database_agree(torch: Any, all_cases: bool) -> None:
    torch.manual_seed(1)
    database = _database()
    chosen = database if all_cases else random.Random(3).sample(database, SHARE)
    refused, wrong = [], []
    for info in chosen:
        if torch.float32 not in info.dtypes:
            continue
        try:
            samples = list(info.sample_inputs("cpu", torch.float32, requires_grad=False))
            cases = dict(_case(torch, info, sample, at) for at, sample in enumerate(samples[:SAMPLES]))
            check_cases(cases)
        except CompileError as problem:
            refused.append(f"{info.name}: {problem.diagnostics[0].message}")
        except AssertionError as problem:
            wrong.append(f"{info.name}: {problem}")
        except Exception as problem:  # what PyTorch itself does not export
            refused.append(f"{info.name}: {type(problem).__name__}: {str(problem)[:120]}")
    print(f"{len(chosen) - len(refused) - len(wrong)} of {len(chosen)} operators, refused:", *refused, sep="\n  ")
    assert not wrong, "\n".join(wrong)


def _case(torch: Any, info: Any, sample: Any, at: int) -> tuple[str, Case]:
    """A sample as a function of its tensors."""
    leaves, spec = torch.utils._pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [n for n, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def function(*tensors: Any) -> Any:
        filled = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        first, args, kwargs = torch.utils._pytree.tree_unflatten(filled, spec)
        return info.op(first, *args, **kwargs)

    return f"{info.name} {at}", (function, [leaves[place].detach() for place in places])
