"""`torch.compile(model, backend="mlcc")`, compared with PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import mlcc
import mlcc.frontend
from tests.frontend.aten_check import compare

STRICT = {"strict": True, "opt_level": 1}


@pytest.fixture(autouse=True)
def fresh(torch: Any) -> Iterator[None]:
    """No graph of another test is left."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def compile(model: Any, **options: Any) -> Any:
    import torch

    dynamic = options.pop("dynamic", None)
    return torch.compile(model, backend="mlcc", dynamic=dynamic, options={**STRICT, **options})


def check(compiled: Any, model: Any, *inputs: Any) -> None:
    """Equal results, with the strides of PyTorch's."""
    found, expected = compiled(*inputs), model(*inputs)
    if not isinstance(expected, (tuple, list)):
        found, expected = [found], [expected]
    for mine, theirs in zip(found, expected, strict=True):
        assert type(mine) is type(theirs)
        if not hasattr(theirs, "shape"):
            assert mine == theirs
            continue
        assert mine.dtype == theirs.dtype
        if 0 not in theirs.shape:
            moved = [d for d, extent in enumerate(theirs.shape) if extent > 1]
            assert [mine.stride(d) for d in moved] == [theirs.stride(d) for d in moved]
        compare(np.asarray(mine.detach().float()), np.asarray(theirs.detach().float()))


def perceptron(torch: Any) -> Any:
    class Perceptron(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = torch.nn.Linear(7, 16), torch.nn.Linear(16, 3)
            self.register_buffer("calls", torch.zeros(3))
            self.table = torch.arange(3.0)

        def forward(self, x: Any, scale: float = 1.5) -> Any:
            y = self.last(torch.relu(self.first(x))) * scale + self.table
            return y, x.shape[0] * 2 + 1, y.transpose(0, 1) + 1, None

    return Perceptron().eval()


@pytest.mark.parametrize("freeze", [False, True])
def test_static_and_dynamic_shapes_agree(torch: Any, freeze: bool) -> None:
    model = perceptron(torch)
    compiled = compile(model, freeze=freeze)
    for rows in (3, 4, 7, 1, 0):  # static, then with a symbol, then those that PyTorch has graphs of their own for
        check(compiled, model, torch.randn(rows, 7))
        check(compiled, model, torch.randn(rows, 7), 2.5)


def test_parameters_that_change_are_seen(torch: Any) -> None:
    model = perceptron(torch)
    compiled = compile(model)
    x = torch.randn(3, 7)
    check(compiled, model, x)
    model.last.weight.mul_(2)
    check(compiled, model, x)
    model.last.weight.data = torch.randn(3, 16)
    check(compiled, model, x)


def test_buffers_and_inputs_that_are_written_to(torch: Any) -> None:
    class Counting(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("sum", torch.zeros(4))

        def forward(self, x: Any, into: Any) -> Any:
            self.sum += x.sum(0)
            into[1].copy_(x[0])
            return self.sum * 2

    model, twin = Counting().eval(), Counting().eval()
    compiled = compile(model)
    for rows in (3, 5):
        x = torch.randn(rows, 4)
        mine, theirs = torch.zeros(3, 4), torch.zeros(3, 4)
        compare(np.asarray(compiled(x, mine)), np.asarray(twin(x, theirs)))
        compare(np.asarray(mine), np.asarray(theirs))
        compare(np.asarray(model.sum), np.asarray(twin.sum))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_results_that_are_views_share_memory(torch: Any, dtype: str) -> None:
    def parts(x: Any) -> Any:
        first, second = (x + 1).chunk(2, 1)
        return x[1:], first, second, second[1:]

    compiled = compile(parts)
    for rows in (3, 5):
        x = torch.randn(rows, 4).to(getattr(torch, dtype))
        check(compiled, parts, x)
        rest, _, second, low = compiled(x)
        x[1, 0] = 7
        second[1, 0] = 8
        assert rest[0, 0] == 7
        assert low[0, 0] == 8


def test_writes_inside_a_graph(torch: Any) -> None:
    def steps(x: Any) -> Any:
        y = x * 2
        y[:, 1:] += 1
        y[0].relu_()
        return y.add_(x)

    check(compile(steps), steps, torch.randn(3, 4))


def test_graph_breaks_and_recompilation_agree(torch: Any) -> None:
    def broken(x: Any, flag: bool) -> Any:
        y = torch.relu(x)
        torch._dynamo.graph_break()
        return y + 1 if flag else y * float(y.sum() > 0)

    compiled = compile(broken)
    for flag in (True, False):
        check(compiled, broken, torch.randn(3, 4), flag)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32", "bool"])
def test_every_dtype_agrees(torch: Any, dtype: str) -> None:
    def select(x: Any, y: Any) -> Any:
        return torch.where(x > y, x, y), torch.cat([x, y])

    x, y = (torch.randint(0, 2, (3, 4)).to(getattr(torch, dtype)) for _ in range(2))
    check(compile(select), select, x, y)


def test_operands_that_are_not_contiguous(torch: Any) -> None:
    def add(x: Any, y: Any) -> Any:
        return x + y

    wide = torch.randn(6, 8)
    check(compile(add), add, wide.t()[::2], wide[:4, :6])
    check(compile(add), add, torch.randn(1, 6).expand(4, 6), wide[:4, 1:7])
    image = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    check(compile(add), add, image, image)


def test_gradients_agree(torch: Any) -> None:
    model = perceptron(torch)
    compiled = compile(model)
    with torch.enable_grad():
        for _ in range(2):
            grads = []
            for run in (compiled, model):
                x = torch.linspace(-1, 1, 21).reshape(3, 7).requires_grad_()
                model.zero_grad()
                run(x)[0].square().sum().backward()
                grads.append([x.grad, *(p.grad.clone() for p in model.parameters())])
            for mine, theirs in zip(*grads, strict=True):
                compare(np.asarray(mine), np.asarray(theirs))


def test_unsupported_operators_are_run_by_pytorch(torch: Any) -> None:
    def bessel(x: Any) -> Any:
        return torch.special.bessel_j0(x).abs() + 1

    x = torch.randn(3, 8)
    with pytest.warns(UserWarning, match=r"is run by PyTorch: .*aten\.special_bessel_j0.*test_torch_compile.py"):
        found = torch.compile(bessel, backend="mlcc")(x)
    compare(np.asarray(found), np.asarray(bessel(x)))
    torch._dynamo.reset()
    with pytest.raises(Exception, match="E1001"):
        compile(bessel)(x)


def test_randomness_stays_with_pytorch(torch: Any) -> None:
    dropout = torch.nn.Dropout().train()
    compiled = torch.compile(dropout, backend="mlcc")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = compiled(torch.ones(1000))
    assert 300 < (found == 0).sum() < 700


def test_wrong_options(torch: Any) -> None:
    with pytest.raises(Exception, match="no option 'level'; the options are opt_level"):
        torch.compile(torch.relu, backend="mlcc", options={"level": 3})(torch.ones(3))
    with pytest.raises(Exception, match="no mode"):
        torch.compile(torch.relu, backend="mlcc", mode="max-autotune")(torch.ones(3))


def test_tvms_relax_dynamo_is_a_backend(torch: Any) -> None:
    seen = []

    def look(module: mlcc.IRModule) -> mlcc.IRModule:
        seen.append(module)
        return module

    model = perceptron(torch)
    for pipeline in (None, "fold-constants", look):
        torch._dynamo.reset()
        check(torch.compile(model, backend=mlcc.frontend.relax_dynamo(pipeline)), model, torch.randn(3, 7))
    assert len(seen) == 1


def test_graph_breaks_give_several_subgraphs(torch: Any) -> None:
    model = perceptron(torch)

    def both(x: Any) -> Any:
        y = model(x)[0]
        torch._dynamo.graph_break()
        return y * 2

    x = torch.randn(3, 7)
    mod = mlcc.frontend.dynamo_capture_subgraphs(both, x)
    run = mlcc.load(mlcc.build(mod, opt_level=1))
    found = run["subgraph_1"](run["subgraph_0"](x.numpy()))
    compare(np.asarray(found), np.asarray(both(x)))
    kept, params = mlcc.frontend.detach_params(
        mlcc.frontend.dynamo_capture_subgraphs(model, x, keep_params_as_input=True)
    )
    run = mlcc.load(mlcc.build(kept, opt_level=1))
    found = run["subgraph_0"](x.numpy(), *params["subgraph_0"])[0]
    compare(np.asarray(found), np.asarray(model(x)[0]))
