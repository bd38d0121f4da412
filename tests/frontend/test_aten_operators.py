"""ATen operators one by one: many in a module, each result compared with PyTorch's."""

from __future__ import annotations

import math
from typing import Any

from tests.frontend.operator_check import Case, check_cases

NAN, INF = math.nan, math.inf


def _floats(torch: Any) -> Any:
    """Numbers of all kinds, among them those with rules of their own."""
    special = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-8, -1e-8, 30.0, -30.0, NAN, INF, -INF]
    return torch.tensor(special + torch.linspace(-4, 4, 32).tolist())


def _unary(torch: Any) -> dict[str, Any]:
    names = (
        "acos acosh asin asinh atan atanh cos cosh erf exp expm1 log log1p rsqrt sigmoid sin sinh sqrt tan tanh "
        "abs neg ceil floor trunc round frac sign signbit isnan isinf isfinite isposinf isneginf logical_not "
        "reciprocal exp2 log2 log10 erfc deg2rad rad2deg sinc square nan_to_num relu positive sgn"
    )
    made = {name: getattr(torch, name) for name in names.split()}
    f = torch.nn.functional
    made |= {
        "round2": lambda x: torch.round(x, decimals=2),
        "round-1": lambda x: torch.round(x * 100, decimals=-1),
        "nan_to_num values": lambda x: torch.nan_to_num(x, 2.0, 3.0, -4.0),
        "logit": lambda x: torch.logit(x, eps=0.1),
        "gelu": f.gelu,
        "gelu tanh": lambda x: f.gelu(x, approximate="tanh"),
        "silu": f.silu,
        "selu": f.selu,
        "elu": lambda x: f.elu(x, 0.7),
        "celu": lambda x: f.celu(x, 0.7),
        "leaky": lambda x: f.leaky_relu(x, 0.2),
        "hardtanh": lambda x: f.hardtanh(x, -0.5, 2),
        "relu6": f.relu6,
        "hardsigmoid": f.hardsigmoid,
        "hardswish": f.hardswish,
        "mish": f.mish,
        "softplus": lambda x: f.softplus(x, 2, 5),
        "softsign": f.softsign,
        "tanhshrink": f.tanhshrink,
        "softshrink": lambda x: f.softshrink(x, 0.3),
        "hardshrink": lambda x: f.hardshrink(x, 0.3),
        "logsigmoid": f.logsigmoid,
        "threshold": lambda x: f.threshold(x, 0.1, 20.0),
        "clamp": lambda x: x.clamp(-1, 1.5),
        "clamp min": lambda x: x.clamp(min=0.25),
        "clamp max": lambda x: x.clamp_max(0.25),
        "clamp crossed": lambda x: x.clamp(2, -1),
        "masked_fill": lambda x: x.masked_fill(x > 0, -3),
        **{f"pow {p}": _power(p) for p in (0, 1, 2, 3, 4, 0.5, -0.5, -1, -2, 1.7, -3)},
        "pow of 2": lambda x: 2**x,
        "rsub": lambda x: 3 - x,
        "add alpha": lambda x: torch.add(x, x, alpha=2.5),
        "div floor": lambda x: torch.div(x, 0.7, rounding_mode="floor"),
        "remainder": lambda x: x % 0.7,
        "div trunc": lambda x: torch.div(x, -0.7, rounding_mode="trunc"),
        "floor_divide": lambda x: x // -0.7,
        "fmod": lambda x: torch.fmod(x, 0.7),
        "remainder negative": lambda x: torch.remainder(x, -0.7),
        "where scalar": lambda x: torch.where(x > 0, x, 2),
        "eq": lambda x: x == 1,
        "ne": lambda x: x != 1,
    }
    made.pop("relu")  # NaN
    return made


def _power(exponent: float) -> Any:
    return lambda x: x**exponent


def test_functions_of_floats_agree(torch: Any) -> None:
    given = _floats(torch)
    cases: dict[str, Case] = {name: (function, [given]) for name, function in _unary(torch).items()}
    finite = given[given.isfinite()]
    for name in (
        "relu",
        "gelu",
        "gelu tanh",
    ):
        # R.nn.relu of NaN is 0; PyTorch's gelu of an infinity depends on its place
        cases[name] = (getattr(torch.nn.functional, name.split()[0]), [finite])
    check_cases(cases)


def test_functions_of_integers_and_bools(torch: Any) -> None:
    names = (
        "abs neg ceil floor round sign isnan isinf isfinite logical_not reciprocal exp sqrt sigmoid square bitwise_not"
    )
    ints = {
        dtype: torch.tensor([0, 1, 2, 3, 7, 100, -1, -5], dtype=torch.int64).to(dtype)
        for dtype in (torch.int8, torch.int32, torch.int64, torch.uint8)
    }
    cases: dict[str, Case] = {
        f"{name} {dtype}": (getattr(torch, name), [x]) for name in names.split() for dtype, x in ints.items()
    }
    for name in ["isnan", "logical_not", "exp", "sqrt", "sigmoid", "bitwise_not"]:
        cases[f"{name} bool"] = (getattr(torch, name), [torch.tensor([True, False])])
    for name, function in {
        "x + 1": lambda x: x + 1,
        "x + 1.5": lambda x: x + 1.5,
        "x + True": lambda x: x + True,
        "2 - x": lambda x: 2 - x,
        "x / 2": lambda x: x / 2,
        "x // 2": lambda x: x // 2,
        "x // -2": lambda x: x // -2,
        "x % 3": lambda x: x % 3,
        "x % -3": lambda x: x % -3,
        "fmod": lambda x: torch.fmod(x, -3),
        "x**2": lambda x: x**2,
        "x**5": lambda x: x**5,
        "div trunc": lambda x: torch.div(x, -2, rounding_mode="trunc"),
        "x**0.5": lambda x: x**0.5,
        "x > 1.5": lambda x: x > 1.5,
        "clamp": lambda x: x.clamp(1, 3),
        "clamp 1.5": lambda x: x.clamp(max=1.5),
        "x**x": lambda x: x**x,
        "x << 1": lambda x: x << 1,
        "x >> 1": lambda x: x >> 1,
        "x & 5": lambda x: x & 5,
        "sum": lambda x: x.sum(),
        "prod": lambda x: x.prod(),
        "cumsum": lambda x: x.cumsum(0),
        "max": lambda x: x.max(),
        "argmin": lambda x: x.argmin(),
        "any": lambda x: x.any(),
        "all": lambda x: x.all(),
        "norm": lambda x: x.float().norm(),
        "masked": lambda x: x.masked_fill(x > 2, 9),
        "where": lambda x: torch.where(x > 2, x, 0.5),
    }.items():
        for dtype, x in ints.items():
            cases[f"{name} {dtype}"] = (function, [x])
    check_cases(cases)


def test_two_operands_of_all_dtypes_and_ranks(torch: Any) -> None:
    dtypes = [
        torch.bool,
        torch.uint8,
        torch.int8,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
    ]
    cases: dict[str, Case] = {}
    for one in dtypes:
        for two in dtypes:
            x = torch.tensor([[3, 1, 2], [1, 5, 2]]).to(one)
            for rank, y in (("tensor", torch.tensor([2, 1, 4]).to(two)), ("scalar", torch.tensor(2).to(two))):
                cases[f"{one} {rank} {two}"] = (torch.add, [x, y])
            if one != two:
                cases[f"{one} < {two}"] = (torch.lt, [x, y])
    check_cases(cases)


def test_binary_operators_agree_on_special_floats(torch: Any) -> None:
    given = _floats(torch)
    x, y = (v.reshape(-1) for v in torch.meshgrid(given[:16], given[:16], indexing="ij"))
    names = (
        "add sub mul div maximum minimum fmax fmin atan2 pow remainder fmod floor_divide eq ne lt le gt ge logical_and "
        "logical_or logical_xor hypot copysign logaddexp logaddexp2 xlogy ldexp isclose heaviside"
    )
    cases: dict[str, Case] = {name: (getattr(torch, name), [x, y]) for name in names.split()}
    cases.pop("ldexp")
    cases |= {
        "addcmul": (lambda x, y: torch.addcmul(x, x, y, value=0.5), [x, y]),
        "addcdiv": (lambda x, y: torch.addcdiv(x, x, y, value=0.5), [x, y]),
        "lerp": (lambda x, y: torch.lerp(x, y, 0.3), [given, given + 1]),
        "lerp tensor": (torch.lerp, [given, given + 1, given]),
        "clamp tensors": (lambda x, y: x.clamp(y, y + 1), [x, y]),
        "div floor": (lambda x, y: torch.div(x, y, rounding_mode="floor"), [x, y]),
        "isclose nan": (lambda x, y: torch.isclose(x, y, equal_nan=True), [x, y]),
        "sub alpha": (lambda x, y: torch.sub(x, y, alpha=3), [x, y]),
        "prelu": (torch.nn.functional.prelu, [torch.randn(2, 3, 4), torch.randn(3)]),
        "prelu one": (torch.nn.functional.prelu, [torch.randn(2, 3, 4), torch.randn(1)]),
    }
    check_cases(cases)


def test_shapes_and_slices_agree(torch: Any) -> None:
    x = torch.arange(2 * 6 * 4).reshape(2, 6, 4).float()
    functions = {
        "view": lambda x: x.view(3, -1),
        "flatten": lambda x: x.flatten(1),
        "unflatten": lambda x: x.unflatten(1, (2, 3)),
        "unsqueeze": lambda x: x.unsqueeze(-2),
        "squeeze": lambda x: x[:1].squeeze(0),
        "squeeze none": lambda x: x.squeeze(1),
        "permute": lambda x: x.permute(2, 0, -2),
        "transpose": lambda x: x.transpose(-1, 0),
        "t": lambda x: x[0].t(),
        "mT": lambda x: x.mT,
        "movedim": lambda x: x.movedim((0, 1), (2, 0)),
        "flip": lambda x: x.flip(0, -1),
        "rot90": lambda x: x.rot90(1, (1, 2)),
        "rot270": lambda x: x.rot90(3, (0, 2)),
        "rot180": lambda x: x.rot90(2),
        "slice": lambda x: x[:, 1:-1:2],
        "slice far": lambda x: x[:, -100:100, 3:],
        "slice none": lambda x: x[:, 5:2],
        "select": lambda x: x[:, -1],
        "select 2": lambda x: x.select(2, 1),
        "narrow": lambda x: x.narrow(1, 2, 3),
        "narrow negative": lambda x: x.narrow(1, -4, 3),
        "split": lambda x: x.split(4, 1),
        "sizes": lambda x: x.split([1, 5], 1),
        "chunk": lambda x: x.chunk(4, 1),
        "chunk more": lambda x: x.chunk(5, 0),
        "unbind": lambda x: x.unbind(-1),
        "tensor_split": lambda x: x.tensor_split(4, 1),
        "tensor_split at": lambda x: x.tensor_split((1, 3), 1),
        "diagonal": lambda x: x.diagonal(1, 1, 2),
        "diagonal below": lambda x: x.diagonal(-2, -1, 0),
        "unfold": lambda x: x.unfold(1, 3, 2),
        "cat": lambda x: torch.cat([x, x + 1], -1),
        "stack": lambda x: torch.stack([x, x], -1),
        "cat promotes": lambda x: torch.cat([x, x.long()], 1),
        "repeat": lambda x: x.repeat(2, 1, 3, 1),
        "tile": lambda x: x.tile(2),
        "repeat_interleave": lambda x: x.repeat_interleave(3, -1),
        "repeat_interleave all": lambda x: x.repeat_interleave(2),
        "roll": lambda x: x.roll((1, -3), (0, 1)),
        "roll all": lambda x: x.roll(5),
        "diff": lambda x: x.diff(2, 1),
        "diff bool": lambda x: (x > 10).diff(),
        "diff with": lambda x: x.diff(prepend=x[..., :1]),
        "expand": lambda x: x[:, :1].expand(2, 3, -1),
        "expand_as": lambda x: x[0].expand_as(x),
        "broadcast_tensors": lambda x: torch.broadcast_tensors(x, x[0]),
        "pixel_shuffle": lambda x: torch.pixel_shuffle(x.reshape(2, 4, 3, 2), 2),
        "hstack": lambda x: torch.hstack([x, x]),
        "pixel_unshuffle": lambda x: torch.pixel_unshuffle(x.reshape(2, 1, 6, 4), 2),
        "vstack": lambda x: torch.vstack([x, x]),
        "channel_shuffle": lambda x: torch.nn.functional.channel_shuffle(x, 3),
        "atleast": lambda x: torch.atleast_2d(x[0, 0]),
        "block_diag": lambda x: torch.block_diag(x[0], x[1]),
        "meshgrid": lambda x: torch.meshgrid(x[0, 0], x[0, 1], indexing="xy"),
        "diag_embed": lambda x: torch.diag_embed(x),
        "diag_embed 1": lambda x: torch.diag_embed(x, 1, 0, 2),
        "tril": lambda x: x.tril(-1),
        "triu": lambda x: x.triu(1),
        "view_as": lambda x: x.view_as(x),
        "ravel": lambda x: x.ravel(),
        "empty slice sum": lambda x: x[:, 5:2].sum(1),
        "swapaxes": lambda x: x.swapaxes(0, 1),
        "stack one": lambda x: torch.stack([x]),
    }
    check_cases({name: (function, [x]) for name, function in functions.items()})


def test_new_tensors_agree(torch: Any) -> None:
    x = torch.randn(2, 3)
    functions = {
        "full": lambda x: torch.full((2, 3), 1.5),
        "full int": lambda x: torch.full((2,), 3),
        "zeros": lambda x: torch.zeros(2, 3),
        "full bool": lambda x: torch.full((2,), True),
        "ones": lambda x: torch.ones(2, dtype=torch.int32),
        "full_like": lambda x: torch.full_like(x, -INF),
        "zeros_like": lambda x: torch.zeros_like(x, dtype=torch.int8),
        "new_full": lambda x: x.new_full((2,), 7),
        "new_zeros": lambda x: x.new_zeros(3),
        "new_ones": lambda x: x.new_ones(3),
        "arange": lambda x: torch.arange(7),
        "arange step": lambda x: torch.arange(9, 0, -2),
        "arange half": lambda x: torch.arange(0, 2, 0.3),
        "arange float": lambda x: torch.arange(1.5, 6),
        "arange as": lambda x: torch.arange(5, dtype=torch.float16),
        "linspace": lambda x: torch.linspace(-1, 2, 7),
        "logspace": lambda x: torch.logspace(0, 2, 5),
        "eye": lambda x: torch.eye(3, 4),
        "eye int": lambda x: torch.eye(3, dtype=torch.int64),
        "tril_indices": lambda x: torch.tril_indices(4, 3, -1),
        "triu_indices": lambda x: torch.triu_indices(4, 3),
        "scalar": lambda x: torch.scalar_tensor(2.5),
        "to": lambda x: x.to(torch.int32),
        "half": lambda x: x.half(),
        "long": lambda x: (x * 3).long(),
        "bool": lambda x: x.bool(),
        "type_as": lambda x: x.type_as(x.double()),
        "float bool": lambda x: (x > 0).float(),
        "hann": lambda x: torch.hann_window(7),
        "hamming": lambda x: torch.hamming_window(6, False),
        "blackman": lambda x: torch.blackman_window(5),
        "complement": lambda x: ~(x > 0),
        "bfloat16": lambda x: x.bfloat16(),
    }
    check_cases({name: (function, [x]) for name, function in functions.items()})


def test_reductions_agree(torch: Any) -> None:
    x = torch.randn(2, 5, 4)
    odd = x.clone()
    odd[0, 1, 2], odd[1, 3, :] = NAN, INF
    functions = {
        "sum": lambda x: x.sum(),
        "sum dim": lambda x: x.sum(-1),
        "sum dims": lambda x: x.sum((0, 2), keepdim=True),
        "sum bool": lambda x: (x > 0).sum(1),
        "sum as": lambda x: x.sum(1, dtype=torch.float64),
        "mean": lambda x: x.mean((1, 2)),
        "mean all": lambda x: x.mean(),
        "prod": lambda x: x.prod(1),
        "nansum": lambda x: x.nansum(1),
        "nanmean": lambda x: x.nanmean(1),
        "any": lambda x: (x > 1).any(1),
        "all": lambda x: (x > -1).all(-1, keepdim=True),
        "any all": lambda x: (x > 9).any(),
        "any dims": lambda x: (x > 1).any((0, 1)),
        "amax": lambda x: x.amax((0, 2)),
        "amin": lambda x: x.amin(1, keepdim=True),
        "max": lambda x: x.max(),
        "min": lambda x: x.min(),
        "max dim": lambda x: x.max(1),
        "min dim": lambda x: x.min(-1, keepdim=True),
        "argmax": lambda x: x.argmax(1),
        "argmin": lambda x: x.argmin(),
        "argmax keep": lambda x: x.argmax(0, keepdim=True),
        "aminmax": lambda x: torch.aminmax(x, dim=1),
        "logsumexp": lambda x: x.logsumexp(1),
        "logsumexp keep": lambda x: x.logsumexp((0, 2), True),
        "norm": lambda x: x.norm(),
        "norm 1": lambda x: x.norm(1, -1),
        "norm inf": lambda x: torch.linalg.vector_norm(x, INF, 1),
        "norm 3": lambda x: torch.linalg.vector_norm(x, 3, (0, 1), True),
        "norm 0": lambda x: torch.linalg.vector_norm(x, 0),
        "normalize": lambda x: torch.nn.functional.normalize(x, dim=-1),
        "var": lambda x: x.var(1),
        "std": lambda x: x.std(),
        "var 0": lambda x: x.var((0, 2), correction=0, keepdim=True),
        "std biased": lambda x: x.std(1, unbiased=False),
        "var_mean": lambda x: torch.var_mean(x, 1),
        "std_mean": lambda x: torch.std_mean(x, 1, keepdim=True),
        "cumsum": lambda x: x.cumsum(1),
        "cumprod": lambda x: x.cumprod(-1),
        "count": lambda x: (x > 0).long().count_nonzero(1),
        "softmax": lambda x: x.softmax(1),
        "softmax as": lambda x: x.softmax(1, dtype=torch.float64),
        "log_softmax": lambda x: x.log_softmax(-1),
        "softmin": lambda x: torch.nn.functional.softmin(x, 1),
        "glu": lambda x: torch.nn.functional.glu(x, -1),
        "dist": lambda x: torch.dist(x, x * 2),
        "trace": lambda x: torch.trace(x[0]),
        "cumsum bool": lambda x: (x > 0).cumsum(1),
        "sum of none": lambda x: x.sum(dim=[]),
    }
    cases: dict[str, Case] = {name: (function, [x]) for name, function in functions.items()}
    for name in [
        "sum dim",
        "mean",
        "any",
        "amax",
        "amin",
        "max",
        "max dim",
        "min dim",
        "argmax",
        "argmin",
        "nansum",
        "norm inf",
        "aminmax",
        "argmax keep",
    ]:
        cases[f"{name} of NaN"] = (functions[name], [odd])
    for name in ["sum", "mean all", "max dim", "amax", "argmax", "var", "cumsum", "softmax", "logsumexp"]:
        cases[f"{name} of a number"] = (_at_axis_0(torch, name), [torch.tensor(2.5)])
    cases["softmax of no bools"] = (lambda x: x.softmax(0), [torch.zeros(0, 3, dtype=torch.bool)])
    check_cases(cases)


def _at_axis_0(torch: Any, name: str) -> Any:
    return {
        "sum": torch.sum,
        "mean all": torch.mean,
        "max dim": lambda x: x.max(0),
        "amax": torch.amax,
        "argmax": torch.argmax,
        "var": lambda x: x.var(correction=0),
        "cumsum": lambda x: x.cumsum(0),
        "softmax": lambda x: x.softmax(0),
        "logsumexp": lambda x: x.logsumexp(0),
    }[name]


def test_products_agree(torch: Any) -> None:
    r = torch.randn
    cases: dict[str, Case] = {
        f"matmul {one} {two}": (torch.matmul, [r(one), r(two)])
        for one, two in (
            ((4,), (4,)),
            ((3, 4), (4,)),
            ((4,), (4, 5)),
            ((3, 4), (4, 5)),
            ((2, 3, 4), (4, 5)),
            ((2, 3, 4), (4,)),
            ((4,), (2, 4, 5)),
            ((2, 3, 4), (2, 4, 5)),
            ((6, 1, 3, 4), (2, 4, 5)),
            ((0, 4), (4, 5)),
            ((3, 0), (0, 5)),
        )
    }
    for equation, shapes in {
        "ij,jk->ik": [(2, 3), (3, 4)],
        "ij,kj->ik": [(2, 3), (4, 3)],
        "bij,bjk->bik": [(2, 3, 4), (2, 4, 5)],
        "ij->ji": [(2, 3)],
        "bhqd,bhkd->bhqk": [(2, 3, 4, 5), (2, 3, 6, 5)],
        "i,i->": [(4,), (4,)],
        "i,j->ij": [(3,), (4,)],
        "ii->i": [(3, 3)],
        "...ij,...jk->...ik": [(2, 3, 4), (4, 5)],
        "ij": [(3, 2)],
        "ij,jk": [(2, 3), (3, 4)],
        "bqhd,bkhd->bhqk": [(2, 3, 4, 5), (2, 6, 4, 5)],
        "ij,ij->i": [(2, 3), (2, 3)],
        "a,ab,b->": [(2,), (2, 3), (3,)],
        "iij->j": [(3, 3, 2)],
        "bld,de->ble": [(2, 3, 4), (4, 5)],
        "...a,...b->...ab": [(2, 3), (2, 4)],
        "ij->": [(2, 3)],
        "bn,bnd->bd": [(2, 3), (2, 3, 4)],
        "ij,jk->k": [(2, 3), (3, 4)],
    }.items():
        cases[f"einsum {equation}"] = (_einsum(torch, equation), [r(shape) for shape in shapes])
    f = torch.nn.functional
    cases |= {
        "linear": (f.linear, [r(2, 3, 4), r(5, 4), r(5)]),
        "linear vector": (f.linear, [r(4), r(5, 4)]),
        "linear 1": (f.linear, [r(2, 4), r(4)]),
        "addmm": (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), [r(5), r(3, 4), r(4, 5)]),
        "addmm 0": (lambda c, a, b: torch.addmm(c, a, b, beta=0), [r(5) * NAN, r(3, 4), r(4, 5)]),
        "baddbmm": (lambda c, a, b: torch.baddbmm(c, a, b, alpha=0.1), [r(2, 3, 5), r(2, 3, 4), r(2, 4, 5)]),
        "addbmm": (torch.addbmm, [r(3, 5), r(2, 3, 4), r(2, 4, 5)]),
        "addmv": (torch.addmv, [r(3), r(3, 4), r(4)]),
        "addr": (torch.addr, [r(3, 4), r(3), r(4)]),
        "bmm": (torch.bmm, [r(2, 3, 4), r(2, 4, 5)]),
        "mv": (torch.mv, [r(3, 4), r(4)]),
        "outer": (torch.outer, [r(3), r(4)]),
        "dot": (torch.dot, [r(4), r(4)]),
        "inner": (torch.inner, [r(2, 4), r(3, 4)]),
        "kron": (torch.kron, [r(2, 3), r(4, 2)]),
        "tensordot": (lambda a, b: torch.tensordot(a, b, dims=([1, 2], [0, 2])), [r(2, 3, 4), r(3, 5, 4)]),
        "cross": (torch.linalg.cross, [r(2, 3), r(2, 3)]),
        "bilinear": (f.bilinear, [r(2, 3), r(2, 4), r(5, 3, 4), r(5)]),
        "mm int": (torch.mm, [torch.arange(6).reshape(2, 3), torch.arange(6).reshape(3, 2)]),
        "vecdot": (torch.linalg.vecdot, [r(2, 3), r(2, 3)]),
        "chain": (lambda a, b, c: torch.linalg.multi_dot([a, b, c]), [r(2, 3), r(3, 4), r(4, 2)]),
        "matrix_power": (lambda x: torch.matrix_power(x, 3), [r(3, 3)]),
    }
    check_cases(cases)


def _einsum(torch: Any, equation: str) -> Any:
    return lambda *operands: torch.einsum(equation, *operands)


def test_a_first_extent_that_is_symbolic(torch: Any) -> None:
    f, r = torch.nn.functional, torch.randn
    x, image, words = r(3, 4, 6), r(3, 4, 6, 6), torch.randint(0, 9, (3, 5))
    w, b = r(8, 6), r(8)
    functions = {
        "linear": lambda x: f.linear(x, w, b),
        "view": lambda x: x.view(x.shape[0], -1),
        "flatten": lambda x: x.flatten(0, 1),
        "heads": lambda x: x.view(x.shape[0], 4, 2, 3).transpose(1, 2),
        "slice": lambda x: x[1:],
        "slice back": lambda x: x[:-1],
        "slice step": lambda x: x[::2],
        "select": lambda x: x[-1],
        "cat": lambda x: torch.cat([x, x[:1]]),
        "stack": lambda x: torch.stack([x, x]),
        "softmax": lambda x: x.softmax(0),
        "mean": lambda x: x.mean(0),
        "var": lambda x: x.var(0, correction=0),
        "layer": lambda x: f.layer_norm(x, (6,)),
        "expand": lambda x: x[:1].expand(x.shape[0], -1, -1),
        "repeat": lambda x: x.repeat(2, 1, 1),
        "arange": lambda x: torch.arange(x.shape[0]),
        "zeros": lambda x: torch.zeros(x.shape[0], 2),
        "full": lambda x: x.new_full((x.shape[0],), 2.0),
        "times extent": lambda x: x * x.shape[0],
        "mask": lambda x: torch.ones(x.shape[0], x.shape[0]).tril(),
        "causal": lambda x: torch.arange(x.shape[0])[:, None] >= torch.arange(x.shape[0]),
        "attention": lambda x: f.scaled_dot_product_attention(x[None], x[None], x[None]),
        "cumsum": lambda x: x.cumsum(0),
        "attention along": lambda x: f.scaled_dot_product_attention(*[x.transpose(0, 1)] * 3, is_causal=True),
        "flip": lambda x: x.flip(0),
        "einsum": lambda x: torch.einsum("bij,bkj->bik", x, x),
        "einsum outer": lambda x: torch.einsum("aij,bij->ab", x, x),
        "roll": lambda x: x.roll(1, 0),
        "pad": lambda x: f.pad(x, (1, 1, 0, 0, 1, 2)),
        "sort": lambda x: x.sort(0),
        "argmax": lambda x: x.argmax(0),
        "max": lambda x: x.max(0),
        "split": lambda x: x.split(2, 1),
        "chunk": lambda x: x.chunk(2, -1),
        "unbind": lambda x: x.unbind(1),
        "where": lambda x: x.where(x > 0, 0),
        "gather": lambda x: x.gather(1, (x > 0).long()),
        "index": lambda x: x[torch.arange(x.shape[0]) // 2],
        "topk": lambda x: x.topk(2, -1),
        "index_put": lambda x: x.index_put((torch.arange(x.shape[0]), torch.tensor([1])), torch.zeros(6)),
        "diff": lambda x: x.diff(dim=0),
        "meshgrid": lambda x: torch.meshgrid(x[:, 0, 0], x[0, 0], indexing="ij"),
        "unfold": lambda x: x.unfold(1, 2, 1),
        "norm": lambda x: x.norm(dim=0),
        "one_hot": lambda x: f.one_hot((x[:, 0, 0] > 0).long(), 3),
        "logsumexp": lambda x: x.logsumexp(0),
        "matmul": lambda x: x @ x.mT,
        "scatter": lambda x: x.scatter(1, (x > 0).long(), 2.0),
        "tril": lambda x: x.tril(),
        "movedim": lambda x: x.movedim(0, -1),
        "batch statistics": lambda x: f.batch_norm(x, None, None, training=True),
        "group": lambda x: f.group_norm(x, 2),
        "cdist": lambda x: torch.cdist(x, x),
        "narrow": lambda x: x.narrow(0, 1, x.shape[0] - 1),
        "diagonal": lambda x: x.diagonal(dim1=1, dim2=2),
        "repeat_interleave": lambda x: x.repeat_interleave(2, 0),
    }
    cases: dict[str, Case] = {name: (function, [x]) for name, function in functions.items()}
    kernel = r(8, 4, 3, 3)
    cases |= {
        "conv": (lambda x: f.conv2d(x, kernel, padding=1), [image]),
        "pool": (lambda x: f.max_pool2d(x, 2), [image]),
        "pool places": (lambda x: f.max_pool2d(x, 2, return_indices=True), [image]),
        "avg": (lambda x: f.avg_pool2d(x, 3, 2, 1), [image]),
        "resize": (lambda x: f.interpolate(x, scale_factor=2, mode="bilinear"), [image]),
        "adaptive": (lambda x: f.adaptive_avg_pool2d(x, 4), [image]),
        "pixels": (lambda x: torch.pixel_shuffle(x, 2), [image]),
        "embedding": (lambda i: f.embedding(i, r(9, 4).fill_(1.5)), [words]),
        "nearest": (lambda x: f.interpolate(x, size=(9, 4)), [image]),
    }
    cases.pop("embedding")
    check_cases(cases, sizes=(1, 7))
