"""Graphs of torch.fx: imported, built, compared with PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

import mlcc
from mlcc.frontend import detach_params, from_fx
from tests.frontend.aten_check import compare_all
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


def network(torch: Any) -> Any:
    nn = torch.nn

    class Network(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.features = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
            self.scale = nn.Parameter(torch.tensor([1.5]))
            self.last = nn.Linear(8 * 16, 5)
            torch.nn.init.normal_(self.features[1].running_mean)

        def forward(self, x: Any) -> Any:
            y = nn.functional.adaptive_avg_pool2d(self.features(x), 4)
            y = y.view(x.size(0), -1) * self.scale
            y = nn.functional.dropout(self.last(y), 0.5, self.training)
            return y.softmax(-1), x.shape[1:].numel() + x.size(0) * x.dim()

    return Network()


def test_batch_norm_is_in_the_mode_of_the_model(torch: Any) -> None:
    model = network(torch).eval()
    module = check(
        model, torch.randn(2, 3, 8, 8), info=[(("n", 3, 8, 8), "float32")], again=[(torch.randn(5, 3, 8, 8),)]
    )
    assert "training=True" not in mlcc.script(module)
    with pytest.raises(mlcc.CompileError, match="only in training"):
        from_fx(torch.fx.symbolic_trace(model.train()), [((2, 3, 8, 8), "float32")])


def test_parameters_become_inputs(torch: Any) -> None:
    model = network(torch).eval()
    x = torch.randn(2, 3, 8, 8)
    module, params = detach_params(from_fx(torch.fx.symbolic_trace(model), [x], keep_params_as_input=True))
    found = mlcc.load(mlcc.build(module, opt_level=1))["main"](x, *params["main"])
    with torch.no_grad():
        compare_all(found, model(x))


def test_sizes_that_decide(torch: Any) -> None:
    class Halves(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return x[:, : x.shape[1] // 2] + x[:, x.shape[1] // 2 :]

    graph = torch.fx.symbolic_trace(Halves())
    with pytest.raises(mlcc.CompileError, match="E1032"):
        from_fx(graph, [((3, "n"), "float32")])
    check(Halves(), torch.randn(3, 8), info=[((3, "2 * n"), "float32")], again=[(torch.randn(3, 6),)])


@pytest.mark.parametrize(
    ("info", "code", "words"),
    [
        ([], "E1031", "the graph takes input_1"),
        ([(2, 7), ((2, 7), "float32")], "E1031", "describes 2"),
        ([((2, -7), "float32")], "E1031", "input 0"),
        ([(("2 +", 7), "float32")], "E1031", "input 0"),
        ([((2, 7), "float31")], "E1031", "'float31' is not a dtype"),
        ([7], "E1031", "input 0"),
        ([((2, 8), "float32")], "E1030", "same reduction dim, but got [2, 8] X [7, 2]. (at `%linear`)"),
    ],
)
def test_descriptions_that_do_not_fit(torch: Any, info: list[Any], code: str, words: str) -> None:
    with pytest.raises(mlcc.CompileError, match=code) as problem:
        from_fx(torch.fx.symbolic_trace(torch.nn.Linear(7, 2)), info)
    assert words in str(problem.value)
