"""Calls of operators that accumulate many terms, with the error that float32 accumulation and one rounding may make.

`calls(dtype, seed)` draws one call of each such operator; its longest reduction has up to some 10,000 terms. The values
are such that a sum kept in a 16- or 8-bit float stops growing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import mlcc
from mlcc import ops
from mlcc.ir import relax
from mlcc.ir.dtypes import DType
from mlcc.ir.module import IRModule
from mlcc.ir.narrow_floats import decode, encode
from tests.ops.cases import Case, Mine, T

LENGTHS = (513, 1000, 2049, 4096, 10_000)
ROUNDOFF = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float8_e4m3fn": 2.0**-4, "float8_e5m2": 2.0**-3}
LEAST = {"float16": 2.0**-25, "bfloat16": 2.0**-134, "float8_e4m3fn": 2.0**-10, "float8_e5m2": 2.0**-17}
GREATEST = {"float16": 65504.0, "bfloat16": 2.0**127, "float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}
FLOAT32_ROUNDOFF = 2.0**-24


@dataclass(frozen=True)
class Long(T):
    """A tensor and how its elements are distributed."""

    values: str = "positive"
    below: int = 0


@dataclass(frozen=True)
class LongCall:
    """A call whose results are sums of up to `terms` terms. Where `linear`, the float32 error is relative to the sum
    of the terms' magnitudes, else to the greatest result."""

    case: Case
    dtype: str
    seed: str
    terms: int
    linear: bool

    def __str__(self) -> str:
        return f"{self.case} # {self.seed}"

    def module(self) -> IRModule:
        """The module whose `main` is the call."""
        return Mine().module(self.case)

    def arrays(self) -> list[np.ndarray]:
        """The stored elements of each tensor."""
        rng = np.random.default_rng(list(self.seed.encode()))
        return [_elements(t, rng) for t in _tensors(self.case)]

    def expected(self, arrays: list[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Each result in float64, and how far from it one in the call's dtype may be."""
        call = Mine().call(self.case)
        op = ops.get(call.op.name)
        assert op is not None and op.impl.numpy is not None
        values = [decode(a, DType.of(t.dtype)) for a, t in zip(arrays, _tensors(self.case), strict=True)]
        values = [v.astype("float64") if v.dtype.kind == "f" else v for v in values]
        exact = _results(op.impl.numpy(call, *_filled(call.args, values)))
        size = _results(op.impl.numpy(call, *_filled(call.args, [np.abs(v) for v in values]))) if self.linear else exact
        found = []
        for value, magnitude in zip(exact, size, strict=True):
            most = magnitude if self.linear else np.max(np.abs(value), initial=0.0)
            error = 2 * (self.terms + 16) * FLOAT32_ROUNDOFF * most
            rounding = ROUNDOFF[self.dtype] * (np.abs(value) + error) + LEAST[self.dtype]
            found.append((value, error + rounding))
        return found

    def wrong(self, got: Any, arrays: list[np.ndarray]) -> str:
        """What is wrong with the results of the call; nothing where all are within the bound."""
        results = list(got) if isinstance(got, (tuple, list)) else [got]
        for value, (exact, bound) in zip(results, self.expected(arrays), strict=True):
            have = decode(np.asarray(value), DType.of(self.dtype)).astype("float64")
            off = ~(np.abs(have - exact) <= bound) & (np.abs(exact) + bound < GREATEST[self.dtype])
            if off.any():
                at = np.unravel_index(np.argmax(off), off.shape)
                limit = np.broadcast_to(bound, off.shape)[at]
                return f"{have[at]!r} for {exact[at]!r} at {[int(i) for i in at]}, allowed {limit:.3g}"
        return ""


def _results(made: Any) -> list[np.ndarray]:
    return [np.asarray(v, "float64") for v in (made if isinstance(made, tuple) else (made,))]


def _tensors(case: Case) -> list[T]:
    def found(value: Any) -> Iterator[T]:
        if isinstance(value, T):
            yield value
        elif isinstance(value, (tuple, list)):
            for item in value:
                yield from found(item)

    return list(found(case.args))


def _filled(args: tuple[relax.Expr, ...], arrays: list[np.ndarray]) -> list[Any]:
    """The arguments of a call, arrays in the place of its tensors."""
    rest = iter(arrays)

    def value(arg: relax.Expr) -> Any:
        if isinstance(arg, relax.Tuple):
            return tuple(value(f) for f in arg.fields)
        if isinstance(arg, relax.ShapeExpr):
            return tuple(v.value for v in arg.values)
        return arg.value.value if isinstance(arg, relax.PrimValue) else next(rest)

    return [value(a) for a in args]


def _elements(tensor: T, rng: np.random.Generator) -> np.ndarray:
    assert tensor.shape is not None and tensor.dtype is not None
    dtype, shape = DType.of(tensor.dtype), tensor.shape
    kind = tensor.values if isinstance(tensor, Long) else "positive"
    if dtype.is_int:
        return rng.integers(0, getattr(tensor, "below", 1), shape).astype(tensor.dtype)
    match kind:
        case "any":
            values = rng.normal(0.25, 1, shape)
        case "small":
            values = rng.uniform(0.25, 1, shape) / 64
        case "factor":  # one step above 1 or below: a product walks at random
            step = 2 * ROUNDOFF[tensor.dtype]
            values = np.where(rng.random(shape) < 1 / 3, 1 + step, 1 - step / 2)
        case "score":
            values = rng.uniform(-2, 2, shape)
        case _:
            values = rng.uniform(0.5, 1.5, shape)
    return encode(values, dtype)


# ---------------------------------------------------------------- calls

Make = Callable[[Callable[..., Long], int, random.Random], Case]
LINEAR: dict[str, Make] = {
    "sum": lambda t, n, r: Case("sum", (t((2, n)), 1)),
    "mean": lambda t, n, r: Case("mean", (t((n, 2)), 0)),
    "prod": lambda t, n, r: Case("prod", (t((2, n), "factor"), 1)),
    "collapse_sum_to": lambda t, n, r: Case("collapse_sum_to", (t((n, 3)), (1, 3))),
    "matmul": lambda t, n, r: Case("matmul", (t((3, n)), t((n, 5)))),
    "matmul-vectors": lambda t, n, r: Case("matmul", (t((n,)), t((n,)))),
    "nn.dense": lambda t, n, r: Case("nn.dense", (t((2, n)), t((3, n)))),
    "einsum": lambda t, n, r: Case("einsum", ([t((2, n)), t((n, 3))], "ij,jk->ik")),
    "einsum-sum": lambda t, n, r: Case("einsum", ([t((n, 3))], "ij->j")),
    "cumsum": lambda t, n, r: Case("cumsum", (t((2, n)), 1)),
    "cumsum-flat": lambda t, n, r: Case("cumsum", (t((2, n // 2)), None)),
    "cumprod": lambda t, n, r: Case("cumprod", (t((n, 2), "factor"), 0)),
    "nn.conv1d": lambda t, n, r: Case("nn.conv1d", (t((1, n // 3, 5)), t((2, n // 3, 3)))),
    "nn.conv2d": lambda t, n, r: Case("nn.conv2d", (t((1, n // 9, 4, 4)), t((3, n // 9, 3, 3))), {"padding": 1}),
    "nn.conv3d": lambda t, n, r: Case("nn.conv3d", (t((1, n // 27, 3, 3, 3)), t((2, n // 27, 3, 3, 3)))),
    "nn.conv1d_transpose": lambda t, n, r: Case("nn.conv1d_transpose", (t((1, n // 3, 5)), t((n // 3, 2, 3)))),
    "nn.conv2d_transpose": lambda t, n, r: Case("nn.conv2d_transpose", (t((1, n // 9, 3, 3)), t((n // 9, 2, 3, 3)))),
    "nn.conv3d_transpose": lambda t, n, r: Case(
        "nn.conv3d_transpose", (t((1, n // 8, 2, 2, 2)), t((n // 8, 1, 2, 2, 2)))
    ),
    "nn.avg_pool1d": lambda t, n, r: Case("nn.avg_pool1d", (t((1, 2, n)), n)),
    "nn.avg_pool2d": lambda t, n, r: Case("nn.avg_pool2d", (t((1, 1, 30, n // 30)), (30, n // 30))),
    "nn.avg_pool3d": lambda t, n, r: Case("nn.avg_pool3d", (t((1, 1, 5, 6, n // 30)), (5, 6, n // 30))),
    "nn.adaptive_avg_pool1d": lambda t, n, r: Case("nn.adaptive_avg_pool1d", (t((1, 2, n)), 1)),
    "nn.adaptive_avg_pool2d": lambda t, n, r: Case("nn.adaptive_avg_pool2d", (t((1, 2, 30, n // 30)), 1)),
    "nn.adaptive_avg_pool3d": lambda t, n, r: Case("nn.adaptive_avg_pool3d", (t((1, 1, 5, 6, n // 30)), 1)),
    "scatter_elements": lambda t, n, r: Case(
        "scatter_elements", (t((3,)), t((n,), dtype="int64", below=3), t((n,)), 0, "add")
    ),
    "scatter_nd": lambda t, n, r: Case(
        "scatter_nd", (t((3, 2)), t((n, 1), dtype="int64", below=3), t((n, 2)), "add")
    ),
    "index_put": lambda t, n, r: Case("index_put", (t((3,)), (t((n,), dtype="int64", below=3),), t((n,)), True)),
    "grad.take_backward": lambda t, n, r: Case(
        "grad.take_backward", (t((2, n)), t((2, 3)), t((n,), dtype="int32", below=3), 1)
    ),
}  # fmt: skip
OTHERS: dict[str, Make] = {
    "variance": lambda t, n, r: Case("variance", (t((2, n), "any"), 1)),
    "std": lambda t, n, r: Case("std", (t((n, 2), "any"), 0)),
    "nn.softmax": lambda t, n, r: Case("nn.softmax", (t((2, n), "score"),), {"axis": -1}),
    "nn.log_softmax": lambda t, n, r: Case("nn.log_softmax", (t((2, n), "score"),), {"axis": -1}),
    "nn.layer_norm": lambda t, n, r: Case("nn.layer_norm", (t((2, n), "any"), t((n,)), t((n,)), (-1,))),
    "nn.rms_norm": lambda t, n, r: Case("nn.rms_norm", (t((2, n), "any"), t((n,)), (-1,))),
    "nn.group_norm": lambda t, n, r: Case(
        "nn.group_norm", (t((1, 4, n // 2), "any"), t((4,)), t((4,))),
        {"num_groups": 2, "channel_axis": 1, "axes": [2]},
    ),
    "nn.instance_norm": lambda t, n, r: Case(
        "nn.instance_norm", (t((1, 2, n), "any"), t((2,)), t((2,))), {"channel_axis": 1, "axes": [2]}
    ),
    "nn.batch_norm": lambda t, n, r: Case(
        "nn.batch_norm", (t((2, 2, n // 2), "any"), t((2,)), t((2,)), t((2,)), t((2,))),
        {"axis": 1, "training": True, "epsilon": 1e-5},
    ),
    "nn.attention": lambda t, n, r: Case(
        "nn.attention", (t((1, 3, 2, 8), "score"), t((1, n, 2, 8), "score"), t((1, n, 2, 4)))
    ),
    "nn.attention-wide": lambda t, n, r: Case(
        "nn.attention", (t((1, 2, 1, n), "small"), t((1, 3, 1, n)), t((1, 3, 1, 4)))
    ),
    "nn.attention_bias": lambda t, n, r: Case(
        "nn.attention_bias",
        (t((1, 2, 1, 8), "score"), t((1, n, 1, 8), "score"), t((1, n, 1, 4)), t((1, 1, 2, n), "score")),
        {"causal_mask": "BottomRight"},
    ),
    "nn.cross_entropy_with_logits": lambda t, n, r: Case(
        "nn.cross_entropy_with_logits", (t((2, n)), t((2, n)))
    ),
    "nn.nll_loss": lambda t, n, r: Case(
        "nn.nll_loss", (t((n, 3)), t((n,), dtype="int64", below=3), t((3,))), {"reduction": r.choice(("mean", "sum"))}
    ),
}  # fmt: skip


def calls(dtype: str, seed: int, names: set[str] | None = None) -> list[LongCall]:
    """One call of each operator that accumulates, of those that are named."""
    made = []
    for name, make in (LINEAR | OTHERS).items():
        text = f"{name}-{dtype}-{seed}"
        rng = random.Random(text)
        terms = rng.choice(LENGTHS)
        if names is not None and name not in names:
            continue

        def t(shape: Any, values: str = "positive", dtype: str = dtype, below: int = 0) -> Long:
            return Long(tuple(shape), dtype, -1, values, below)

        made.append(LongCall(make(t, terms, rng), dtype, text, terms, name in LINEAR))
    return made


def differences(chosen: list[LongCall], target: str, level: int) -> list[str]:
    """What is wrong with calls that are compiled together; those for a GPU are emulated."""
    functions = {f"f{i}": c.module()["main"].with_attr("global_symbol", f"f{i}") for i, c in enumerate(chosen)}
    artifact = mlcc.build(IRModule(functions), target, opt_level=level)
    executable = mlcc.load(artifact, emulate=True) if target.startswith("cuda") else mlcc.load(artifact)
    wrong = []
    for index, call in enumerate(chosen):
        arrays = call.arrays()
        found = call.wrong(executable[f"f{index}"](*arrays), arrays)
        wrong += [f"{call} on {target} at -O{level}: {found}"] if found else []
    return wrong
