"""Operators of PyTorch on values at the ends: NaN, infinities, both zeros, denormals, integers at their limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Table = Mapping[str, Callable[..., Any]]
INF, NAN = float("inf"), float("nan")

FLOATS = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, -3.5, 1e-3, 7.25, 100.0, -100.0, 1e-40, -1e-40, 3e38, -3e38,
    89.0, -104.0, 2.0**31, -(2.0**31) - 300, 2.0**63, 1e30, INF, -INF, NAN,
]  # fmt: skip
INTEGERS = [0, 1, -1, 2, -2, 3, -3, 7, -7, 100, -100, 2**31 - 1, -(2**31), 31, 32, 33, 63]
ROWS = [
    [1, NAN, -INF, -0.0, INF], [-INF] * 5, [NAN, 2, NAN, 2, 1], [3, -1, 3, 0, 1e-40], [INF] * 5, [NAN] * 5,
    [5, 4, -3, 2, 1], [0.0, -0.0, 0.0, -0.0, 0.0],
]  # fmt: skip

_UNARY = """abs acos acosh asin asinh atan atanh ceil cos cosh erf exp exp2 expm1 floor frac isfinite isinf isnan log
log10 log1p log2 logit neg reciprocal relu round rsqrt sigmoid sign sgn signbit sin sinc sinh sqrt square tan tanh trunc
nan_to_num logical_not isposinf isneginf deg2rad rad2deg positive"""
_ACTIVATIONS = """relu6 elu selu celu silu mish softplus softsign tanhshrink hardswish hardsigmoid hardtanh hardshrink
softshrink leaky_relu logsigmoid"""
_BINARY = """add sub mul div maximum minimum fmax fmin pow atan2 hypot copysign eq ne lt le gt ge logaddexp floor_divide
logical_and logical_or logical_xor xlogy heaviside isclose"""
_OF_INTEGERS = "add sub mul maximum minimum bitwise_and bitwise_or bitwise_xor eq lt fmax fmin logical_and"
_ALONG = """max min argmax argmin median cumsum cumprod cummax cummin softmax log_softmax any all std var sort argsort
nansum nanmean logcumsumexp count_nonzero logsumexp amax amin sum mean prod"""


def unary(torch: Any) -> Table:
    """Of `FLOATS`."""
    F = torch.nn.functional
    return {
        **{name: getattr(torch, name) for name in _UNARY.split()},
        **{name: getattr(F, name) for name in _ACTIVATIONS.split()},
        "gelu_tanh": lambda x: F.gelu(x.clamp(-1e4, 1e4), approximate="tanh"),
        "threshold": lambda x: F.threshold(x, 0.1, 5.0),
        "clamp": lambda x: x.clamp(-1, 2),
        "clamp_min": lambda x: x.clamp(min=0.5),
        "clamp_max": lambda x: x.clamp(max=0.5),
        "clamp_swapped": lambda x: x.clamp(2, -1),
        "clamp_to_nan": lambda x: torch.clamp(x, torch.tensor(-1.0), torch.tensor(NAN)),
        **{f"pow({p})": lambda x, p=p: x**p for p in (2, 0.5, -0.5, 3, 0, -1, 1.3)},  # type: ignore[misc]
        **{f"rpow({b})": lambda x, b=b: torch.pow(b, x) for b in (2.0, 0.0, -2.0)},  # type: ignore[misc]
        "to_int8": lambda x: x.clamp(-100, 100).nan_to_num(0).to(torch.int8),
        "to_bool": lambda x: x.to(torch.bool),
        "to_float16": lambda x: x.to(torch.float16),
        "to_float64": lambda x: x.double().exp(),
        "times_zero": lambda x: x * 0,
        "times_zero_tensor": lambda x: x * torch.tensor(0.0),
        "minus_itself": lambda x: x - x,
        "by_itself": lambda x: x / x,
        "fmod": lambda x: torch.fmod(x, 2.0),
        "remainder": lambda x: torch.remainder(x, -2.0),
        "floor_divide": lambda x: x // 2,
        "round_decimals": lambda x: torch.round(x.clamp(-1e4, 1e4), decimals=1),
        "where": lambda x: torch.where(x > 0, x, -x),
        "masked_fill": lambda x: x.masked_fill(x > 0, NAN),
        "lerp": lambda x: torch.lerp(x, torch.ones_like(x), 0.5),
        "addcmul": lambda x: torch.addcmul(x, x, x, value=0.0),
        "addcdiv": lambda x: torch.addcdiv(x, x, x),
        "add_none": lambda x: torch.add(torch.ones_like(x), x, alpha=0),
        "entr": torch.special.entr,
    }


def binary(torch: Any) -> Table:
    """Of all pairs of `FLOATS`."""
    return {
        **{name: getattr(torch, name) for name in _BINARY.split()},
        "div_floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
        "div_trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
        "where": lambda a, b: torch.where(a > b, a, b),
    }


def of_integers(torch: Any) -> Table:
    """Of all pairs of `INTEGERS` in int32; quotients that processors trap on are left out."""

    def quotients(of: Callable[..., Any]) -> Callable[..., Any]:
        return lambda a, b: of(torch.where(b == -1, 7, a), torch.where(b == 0, 5, b))

    return {
        **{name: getattr(torch, name) for name in _OF_INTEGERS.split()},
        "div_floor": quotients(lambda a, b: torch.div(a, b, rounding_mode="floor")),
        "div_trunc": quotients(lambda a, b: torch.div(a, b, rounding_mode="trunc")),
        "remainder": quotients(torch.remainder),
        "fmod": quotients(torch.fmod),
        "div": lambda a, b: torch.div(a, b),
        "abs": lambda a, b: a.abs(),
        "neg": lambda a, b: -a,
        "sign": lambda a, b: a.sign(),
        "left": lambda a, b: torch.bitwise_left_shift(a, b.clamp(0, 31)),
        "right": lambda a, b: torch.bitwise_right_shift(a, b.clamp(0, 31)),
        "to_float": lambda a, b: a.float(),
        "to_uint8": lambda a, b: a.to(torch.uint8),
        "to_int8": lambda a, b: a.to(torch.int8),
        "square": lambda a, b: a**2,
        "pow": lambda a, b: torch.pow(a, b.clamp(0, 5)),
        "rest": lambda a, b: a % -3,
        "fmod_of": lambda a, b: torch.fmod(a, -3),
        "floor_divide": lambda a, b: a // -3,
        "not": lambda a, b: ~a,
        "clamp": lambda a, b: a.clamp(-5, 5),
    }


def of_rows(torch: Any) -> Table:
    """Of `ROWS`: reductions, sorting, pools and what is made of them."""
    F = torch.nn.functional
    norm, zeros = torch.linalg.vector_norm, torch.zeros(8, 5, dtype=torch.int64)

    def along(name: str, dim: int) -> Callable[..., Any]:
        return lambda x: getattr(torch, name)(x, dim=dim)

    return {
        **{name: along(name, 1) for name in _ALONG.split()},
        **{f"{name} of columns": along(name, 0) for name in ("amax", "amin", "sum", "argmax")},
        **{f"norm({p})": lambda x, p=p: norm(x, p, 1) for p in (2, 1, 0, INF, -INF)},  # type: ignore[misc]
        "aminmax": lambda x: torch.aminmax(x, dim=1),
        "greatest": lambda x: x.max(),
        "place": lambda x: x.argmax(),
        "topk": lambda x: torch.topk(x, 3, 1).values,
        "least": lambda x: torch.topk(x, 3, 1, largest=False).values,
        "layer_norm": lambda x: F.layer_norm(x, (5,)),
        "normalize": F.normalize,
        "max_pool1d": lambda x: F.max_pool1d(x[None], 2),
        "padded": lambda x: F.max_pool1d(x[None], 3, 2, 1),
        "avg_pool1d": lambda x: F.avg_pool1d(x[None], 2),
        "adaptive": lambda x: F.adaptive_max_pool1d(x[None], 2),
        "max_pool2d": lambda x: F.max_pool2d(x[None, None], 3, 2, 1),
        "with_indices": lambda x: F.max_pool2d(x[None, None], 2, return_indices=True),
        "adaptive2d": lambda x: F.adaptive_max_pool2d(x[None, None], 2),
        "batch_norm": lambda x: F.batch_norm(x, torch.zeros(5), torch.ones(5)),
        "matmul": lambda x: x @ x.T,
        "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
        "masked": lambda x: torch.softmax(x.masked_fill(x > 0, -INF), 1),
        "cross_entropy": lambda x: F.cross_entropy(x, zeros[:, 0], reduction="none"),
        "clamp": lambda x: x.clamp(min=x.flip(0)),
        "amax of updates": lambda x: torch.zeros(8, 5).scatter_reduce(1, zeros, x, "amax"),
        "amin of updates": lambda x: torch.zeros(8, 5).scatter_reduce(1, zeros, x, "amin", include_self=False),
        "index_add": lambda x: x.index_add(0, torch.tensor([0, 0]), x[:2]),
        "bucketize": lambda x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])),
        "isin": lambda x: torch.isin(x, torch.tensor([1.0, NAN])),
        "huber": lambda x: F.huber_loss(x, x.flip(0), reduction="none"),
        "logits": lambda x: F.binary_cross_entropy_with_logits(x, torch.ones_like(x), reduction="none"),
    }
