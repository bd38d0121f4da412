"""Graphs of torch.fx: imported, built, compared with PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

import mlcc
from mlcc.frontend import from_fx
from tests.frontend.fx_check import check


def perceptron(torch: Any) -> Any:
    class Perceptron(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = torch.nn.Linear(7, 16), torch.nn.Linear(16, 3)

        def forward(self, x: Any, unused: Any = None) -> Any:
            y = torch.nn.functional.relu(self.first(x))
            return {"both": (y, self.last(y)), "size": x.shape[0], "sum": y}

    return Perceptron()


def test_modules_functions_defaults_and_nested_results(torch: Any) -> None:
    module = check(perceptron(torch), torch.randn(2, 7))
    text = mlcc.script(module)
    assert "first.weight" in text
    assert "R.Tuple(R.Tuple(" in text


def test_symbols_are_the_callers(torch: Any) -> None:
    graph = torch.fx.symbolic_trace(torch.nn.Linear(7, 2))
    rows = mlcc.ir.tir.Var("rows", mlcc.ir.dtypes.INT64)
    for extent in ("rows", rows, mlcc.te.var("rows", "int64")):
        assert '("rows", "2 * rows + 3", 7' in mlcc.script(from_fx(graph, [((extent, "2 * rows + 3", 7), "float32")]))
    check(
        torch.nn.Linear(7, 2),
        torch.randn(5, 7),
        info=[(("rows", 7), torch.float32)],
        again=[(torch.randn(1, 7),), (torch.randn(0, 7),)],
    )


@pytest.mark.parametrize(
    ("info", "code", "words"),
    [
        ([], "E1031", "the graph takes input_1"),
        ([(2, 7), ((2, 7), "float32")], "E1031", "2 are described"),
        ([((2, -7), "float32")], "E1031", "input 0"),
        ([(("2 +", 7), "float32")], "E1031", "input 0"),
        ([((2, 7), "float31")], "E1031", "'float31' is no dtype"),
        ([7], "E1031", "input 0"),
        ([((2, 8), "float32")], "E1030", "same reduction dim, but got [2, 8] X [7, 2]. (at `%linear`)"),
    ],
)
def test_descriptions_that_do_not_fit(torch: Any, info: list[Any], code: str, words: str) -> None:
    with pytest.raises(mlcc.CompileError, match=code) as problem:
        from_fx(torch.fx.symbolic_trace(torch.nn.Linear(7, 2)), info)
    assert words in str(problem.value)
