"""Programs of PyTorch from .pt2 files and live ones: the same data, no writes, names, ranges, control flow."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.frontend import from_exported_program, from_pt2
from mlcc.frontend.aten.exported import program_of
from mlcc.frontend.aten.pt2 import read_pt2
from tests.frontend.aten_check import compare

pytestmark = pytest.mark.filterwarnings("ignore")  # what PyTorch says while it exports


def exported(torch: Any, model: Any, *inputs: Any, dynamic: Any = None) -> Any:
    return torch.export.export(model.eval(), inputs, dynamic_shapes=dynamic)


def built(module: Any, level: int = 0) -> Any:
    return mlcc.load(mlcc.build(mlcc.parse(mlcc.script(module)), target="llvm", opt_level=level))["main"]


def leaves(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [leaf for part in value for leaf in leaves(part)]
    return [] if value is None else [value]


def agree(torch: Any, tmp_path: Path, model: Any, *inputs: Any, dynamic: Any = None, again: Any = ()) -> Any:
    """The module of the model's .pt2 file: equal to that of the live program, and to PyTorch in what it computes."""
    program = exported(torch, model, *inputs, dynamic=dynamic)
    path = tmp_path / "m.pt2"
    torch.export.save(program, path)
    assert read_pt2(str(path)) == program_of(program, "m.pt2")
    module = from_pt2(path)
    assert mlcc.structural_equal(module, from_exported_program(program))
    run, original = built(module), program.module()
    for given in (inputs, *again):
        copies = [x.clone() if isinstance(x, torch.Tensor) else x for x in given]
        with torch.no_grad():
            expected = leaves(copy.deepcopy(original)(*copies))
        found = leaves(run(*(x for x in given if isinstance(x, torch.Tensor))))
        for mine, theirs in zip(found, expected, strict=False):
            compare(np.asarray(mine), np.asarray(theirs))
        assert len(found) >= len(expected)
    return module


class LargeModel:
    """A model with most of what a program can have."""

    @staticmethod
    def make(torch: Any) -> Any:
        class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.layer, self.tied = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
                self.tied.weight = self.layer.weight
                self.register_buffer("cache", torch.zeros(3, 4))
                self.register_buffer("scale", torch.rand(4), persistent=False)
                self.constant = torch.tensor(2.0)

            def forward(self, x: Any, more: Any, flag: Any = None, n: int = 3) -> Any:
                h = self.layer(x) + self.tied(x)
                h[:, 1:3].relu_()
                h.add_(1)
                self.cache[1] = h.sum(0)
                more["a"].mul_(2)
                values, _ = h.max(1)
                last = h.chunk(2, 1)[1]
                masked = torch.where(h > 0, h, float("-inf"))
                scaled = h * self.scale * self.constant + torch.tensor(3.0)
                branch = torch.cond(x.shape[0] > 5, lambda h: h + 1, lambda h: h - 1, (h,))
                return values, last, masked, x.shape[0] * 2, scaled, flag, n, branch

        return Model()


def test_a_program_of_everything(torch: Any, tmp_path: Path) -> None:
    model, batch = LargeModel.make(torch).eval(), torch.export.Dim("batch", min=2, max=64)
    inputs = (torch.randn(4, 4), {"a": torch.randn(3)}, None, 3)
    program = torch.export.export(model, inputs, dynamic_shapes=({0: batch}, {"a": None}, None, None))
    path = tmp_path / "m.pt2"
    torch.export.save(program, path)
    mine = read_pt2(str(path))
    assert mine == program_of(program, "m.pt2")
    for name, weight in program_of(program).weights.items():
        np.testing.assert_array_equal(mine.weights[name].load(), weight.load())
    module = from_pt2(path, dim_names={"x.0": "batch"})
    text = module.script()
    assert 'x: R.Tensor(("batch", 4)' in text and "y_a" not in text
    assert '"mutated": ["cache", "more_a"]' in text and '"tir_var_upper_bound": {"batch": 64}' in text
    run = built(module)
    for size in (3, 7):
        x, a = torch.randn(size, 4), torch.randn(3)
        found = run(x, a)
        with torch.no_grad():
            expected = leaves(copy.deepcopy(program.module())(x, {"a": a.clone()}, None, 3))
        assert len(found) == len(expected) + 2
        for one, other in zip(found, expected, strict=False):
            compare(np.asarray(one), np.asarray(other))
        compare(np.asarray(found[-1]), np.asarray(a * 2))


def function_model(torch: Any, function: Any) -> Any:
    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("state", torch.arange(12.0).reshape(3, 4))
            self.drop = torch.nn.Dropout(0.5, inplace=True)

        def forward(self, *inputs: Any) -> Any:
            return function(self, *inputs)

    return Model()


def _bump(view: Any) -> None:
    view.mul_(2).add_(1)


WRITES = {
    "whole": lambda m, x: x.clone().add_(1).relu_(),
    "row": lambda m, x: (y := x.clone(), y[1].fill_(5), y.sum(0))[1:],
    "column": lambda m, x: (y := x * 1, _bump(y[:, 2]), y)[2],
    "steps": lambda m, x: (y := x * 1, _bump(y[::2, 1::2]), y)[2],
    "from the end": lambda m, x: (y := x * 1, _bump(y[-2:, :-1]), y)[2],
    "transposed": lambda m, x: (y := x * 1, v := y.t()[1:], v.sub_(3), y, v)[3:],
    "flat": lambda m, x: (y := x * 1, y.view(-1)[3:9].zero_(), y)[2],
    "two views": lambda m, x: (y := x * 1, a := y[0], b := y[:, 1:], b.add_(7), a, b, y.flatten())[4:],
    "unsqueezed": lambda m, x: (y := x * 1, y[None, :, None].mul_(3), y)[2],
    "diagonal": lambda m, x: (y := x * 1, y.diagonal(1).fill_(9), y)[2],
    "split": lambda m, x: (y := x * 1, p := y.split(1, 0), p[1].add_(1), p[2].neg_(), y, p[0])[4:],
    "chunk and unbind": lambda m, x: (y := x * 1, y.chunk(2, 1)[1].exp_(), y.unbind(1)[0].zero_(), y)[3],
    "masked": lambda m, x: (y := x * 1, y.masked_fill_(x > 0, -1.0), y)[2],
    "of another dtype": lambda m, x: (y := (x * 4).int(), y.add_(x > 0), y.mul_(2), y[0].copy_(x[1]), y)[4],
    "broadcast": lambda m, x: (y := x * 1, y[1:].copy_(x[0]), y[:, 0].fill_(x.sum()), y)[3],
    "reshape that copies": lambda m, x: (y := x * 1, v := y.t().reshape(-1), v.add_(1), y, v)[3:],
    "reshape that views": lambda m, x: (y := x * 1, v := y.reshape(2, 6), v.add_(1), y, v)[3:],
    "contiguous": lambda m, x: (y := x * 1, y.contiguous().add_(1), y.t().contiguous().add_(1), y)[3],
    "conversion that is none": lambda m, x: (y := x * 1, y.to(x.dtype).add_(1), y.float().add_(1), y)[3],
    "dropout that is none": lambda m, x: (y := x * 1, m.drop(y).add_(1), y)[2],
    "as_strided": lambda m, x: (y := x * 1, y.as_strided((2, 2), (5, 1), 1).add_(10), y)[2],
    "buffer": lambda m, x: (m.state.add_(x), m.state.sum(0))[1],
    "buffer row": lambda m, x: (m.state[1].copy_(x[0]), m.state * 2)[1],
    "input": lambda m, x: (x.mul_(2), x[0].zero_(), x.sum())[2],
}  # fmt: skip


@pytest.mark.parametrize("name", WRITES)
def test_writes_in_place_agree(torch: Any, tmp_path: Path, name: str) -> None:
    x = torch.arange(12.0).reshape(3, 4) - 5
    agree(torch, tmp_path, function_model(torch, WRITES[name]), x, again=((x * 3 - 7,),))


@pytest.mark.parametrize("seed", range(12))
def test_generated_chains_of_views_and_writes(torch: Any, tmp_path: Path, seed: int) -> None:
    model = function_model(torch, lambda m, x: generated(np.random.default_rng(seed), x * 1))
    x = torch.arange(24.0).reshape(2, 3, 4)
    agree(torch, tmp_path, model, x, again=((x.flip(0) - 3,),))


def views_of(value: Any, axis: int) -> list[Any]:
    """Functions that take a view of the value, along this axis where it has one."""
    views = [lambda v: v.unsqueeze(0), lambda v: v.reshape(-1)]
    if not value.dim():
        return views
    return [
        *views, lambda v: v.select(axis, -1), lambda v: v.narrow(axis, 0, max(v.shape[axis] - 1, 1)),
        lambda v: v.transpose(0, axis), lambda v: v[::2], lambda v: v.unbind(axis)[0], lambda v: v.flatten(),
        lambda v: v.split(1, axis)[-1], lambda v: v.permute(*reversed(range(v.dim()))), lambda v: v.squeeze(),
    ]  # fmt: skip


def generated(random: np.random.Generator, whole: Any) -> list[Any]:
    """A few views of views, writes through some of them, and all of them in the end."""
    values = [whole]
    for _ in range(int(random.integers(4, 12))):
        source = values[random.integers(len(values))]
        if random.random() < 0.45:
            write = [lambda v: v.add_(2), lambda v: v.mul_(3), lambda v: v.fill_(7), lambda v: v.copy_(v.sum() + v)]
            write[random.integers(len(write))](source)
            continue
        rank = source.dim()
        views = views_of(source, int(random.integers(max(rank, 1))))
        values.append(views[random.integers(len(views))](source))
    return values


def test_branches_and_loops_agree(torch: Any, tmp_path: Path) -> None:
    from torch._higher_order_ops import map, scan, while_loop

    def branches(m: Any, x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda x: (x + 1, x.sum()), lambda x: (x - 1, x.mean()), (x,))

    def counted(m: Any, x: Any) -> Any:
        return while_loop(lambda i, y: i < 5, lambda i, y: (i + 1, y * 1.5 + x), (torch.tensor(0), x))[1]

    def scanned(m: Any, x: Any) -> Any:
        return scan(lambda c, a: (torch.tanh(c + a), c * 2), x[0] * 0, x, dim=0)

    def mapped(m: Any, x: Any) -> Any:
        return map(lambda a, b: a * b + 1, x, x.sum(0))

    x = torch.randn(3, 4)
    for function in (branches, counted, scanned, mapped):
        agree(torch, tmp_path, function_model(torch, function), x, again=((-x,),))


def test_modes_are_inlined(torch: Any, tmp_path: Path) -> None:
    def forward(m: Any, x: Any) -> Any:
        y = x * 2
        with torch.no_grad():
            z = y.relu()
            with torch.enable_grad():
                z = z + y
        with torch.autocast("cpu", enabled=False):
            return z.add_(1) * x

    agree(torch, tmp_path, function_model(torch, forward), torch.randn(3, 4))


def test_numbers_that_the_data_give(torch: Any, tmp_path: Path) -> None:
    def forward(m: Any, x: Any, k: Any) -> Any:
        n = k.item()
        torch._check(n >= 0)
        torch._check(n <= x.shape[0])
        torch._check(n <= 3)
        return x[:n] * 2, x.sum() * x.max().item(), n + 1

    x, k = torch.randn(3, 4), torch.tensor([2])
    agree(torch, tmp_path, function_model(torch, forward), x, k, again=((x, torch.tensor([0])), (x, torch.tensor([3]))))


def test_numbers_computed_from_sizes_agree(torch: Any, tmp_path: Path) -> None:
    def forward(m: Any, x: Any) -> Any:
        n = x.shape[0]
        return x / n**0.5, x * (n / 3), torch.zeros(max(n, 3), n // 2 + 1) + x.mean(), n * n - 1

    n = torch.export.Dim("n", min=2, max=20)
    model = function_model(torch, forward)
    agree(
        torch,
        tmp_path,
        model,
        torch.randn(5, 4),
        dynamic=(({0: n},),),
        again=((torch.randn(2, 4),), (torch.randn(20, 4),)),
    )
