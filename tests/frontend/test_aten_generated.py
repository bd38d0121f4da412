"""ATen operators on generated operands: shapes, dtypes, views and scalars, many in a module, each against PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.frontend.operator_check import Case, check_cases

EACH = 24  # operators in a module
DTYPES = ("float32", "float32", "float64", "int64", "int32", "uint8", "bool", "float16")
UNARY = [
    "abs",
    "neg",
    "ceil",
    "floor",
    "trunc",
    "round",
    "sign",
    "relu",
    "exp",
    "sigmoid",
    "tanh",
    "cos",
    "square",
    "logical_not",
    "isnan",
]
BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "maximum",
    "minimum",
    "fmod",
    "remainder",
    "atan2",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "logical_and",
    "logical_xor",
    "pow",
]
REDUCTIONS = [
    "sum",
    "mean",
    "amax",
    "amin",
    "prod",
    "any",
    "all",
    "argmax",
    "argmin",
    "std",
    "var",
    "logsumexp",
    "cumsum",
    "softmax",
]
SCALARS = (0, 1, -1, 2, 3, 0.5, -1.5, 2.0, True)


def tensor(torch: Any, random: Random, shape: list[int], dtype: str) -> Any:
    """A tensor of small numbers: products and powers stay within every dtype."""
    seeded = torch.Generator().manual_seed(random.randrange(1 << 30))
    if dtype == "bool":
        return torch.rand(shape, generator=seeded) > 0.5
    if dtype.startswith("float"):
        return (torch.randn(shape, generator=seeded) * 2).to(getattr(torch, dtype))
    return torch.randint(0 if dtype == "uint8" else -4, 5, shape, generator=seeded).to(getattr(torch, dtype))


def shape_of(random: Random) -> list[int]:
    return [random.choice((0, 1, 2, 3, 3, 4, 5, 7)) for _ in range(random.randint(0, 4))]


def view_of(torch: Any, random: Random, shape: list[int]) -> tuple[str, Callable[[Any], Any]]:
    """A view, said in words: another order of dimensions, every other element, one of several, or broadcast."""
    rank = len(shape)
    at = random.randrange(rank) if rank else 0
    order = random.sample(range(rank), rank)
    start, step, stop = random.randint(-3, 2), random.randint(1, 3), random.randint(-2, 6)
    choices: list[tuple[str, Callable[[Any], Any]]] = [
        ("", lambda x: x),
        (f".permute{tuple(order)}", lambda x: x.permute(order)),
        (f".unsqueeze({at})", lambda x: x.unsqueeze(at)),
        (".flatten()", lambda x: x.flatten()),
        (".reshape(-1, 1)", lambda x: x.reshape(-1, 1)),
    ]
    if rank:
        choices += [
            (f".movedim({at}, -1)[..., {start}:{stop}:{step}]", lambda x: x.movedim(at, -1)[..., start:stop:step]),
            (f".flip({at})", lambda x: x.flip(at)),
            (f".select({at}, -1)", lambda x: x.select(at, -1)),
            (f".narrow({at}, 0, 1)", lambda x: x.narrow(at, 0, 1)),
            (f".roll(1, {at})", lambda x: x.roll(1, at)),
            (f".chunk(2, {at})[0]", lambda x: x.chunk(2, at)[0]),
            (f".unfold({at}, 2, 1)", lambda x: x.unfold(at, 2, 1)),
            (f".expand(2, {('-1, ' * rank)[:-2]})", lambda x: x.expand(2, *[-1] * rank)),
        ]
    return random.choice(choices)


def elementwise(torch: Any, random: Random) -> tuple[str, Case]:
    shape, dtype = shape_of(random), random.choice(DTYPES)
    said, view = view_of(torch, random, shape)
    name, x = random.choice(UNARY), tensor(torch, random, shape, dtype)
    return f"{name}({dtype}{shape}{said})", (lambda a: getattr(torch, name)(view(a)), [x])


def arithmetic(torch: Any, random: Random) -> tuple[str, Case]:
    shape, name = shape_of(random), random.choice(BINARY)
    left, right = random.choice(DTYPES), random.choice(DTYPES)
    of, x = getattr(torch, name), tensor(torch, random, shape, left)
    if random.random() < 0.3:
        number = random.choice(SCALARS)
        return f"{name}({left}{shape}, {number})", (lambda a: of(a, number), [x])
    other = [1 if random.random() < 0.3 else n for n in shape[random.randint(0, len(shape)) :]]
    y = tensor(torch, random, other, right)
    return f"{name}({left}{shape}, {right}{other})", (of, [x, y])


def reduction(torch: Any, random: Random) -> tuple[str, Case]:
    shape, dtype, name = shape_of(random) or [3], random.choice(DTYPES), random.choice(REDUCTIONS)
    x, dim, keep = tensor(torch, random, shape, dtype), random.randrange(-len(shape), len(shape)), random.random() < 0.5
    said, view = view_of(torch, random, shape)
    options = {} if name in ("cumsum", "softmax") else {"keepdim": keep}
    dims: Any = dim
    if name in ("sum", "mean", "amax", "amin", "std", "var", "logsumexp") and random.random() < 0.5:
        dims = tuple(random.sample(range(len(shape)), random.randint(1, len(shape))))
    return f"{name}({dtype}{shape}{said}, {dims}, {options})", (
        lambda a: getattr(torch, name)(view(a), dims, **options), [x]
    )  # fmt: skip


def views(torch: Any, random: Random) -> tuple[str, Case]:
    shape, dtype = shape_of(random), random.choice(DTYPES)
    made = [view_of(torch, random, shape) for _ in range(3)]

    def apply(a: Any) -> Any:
        for _, view in made:
            a = view(a)
        return a.contiguous()

    return f"{dtype}{shape}{''.join(said for said, _ in made)}", (apply, [tensor(torch, random, shape, dtype)])


def indexing(torch: Any, random: Random) -> tuple[str, Case]:
    shape, dtype = [n + 1 for n in shape_of(random)] or [4], random.choice(DTYPES)
    x, dim = tensor(torch, random, shape, dtype), random.randrange(len(shape))
    count = random.randint(0, 4)
    index = torch.tensor([random.randrange(-shape[dim], shape[dim]) for _ in range(count)], dtype=torch.int64)
    inside = index % shape[dim]
    spread = inside.reshape([-1 if i == dim else 1 for i in range(len(shape))])
    wide = spread.expand([count if i == dim else n for i, n in enumerate(shape)])
    value = tensor(torch, random, [count if i == dim else n for i, n in enumerate(shape)], dtype)
    before = (slice(None),) * dim
    choices: list[tuple[str, Case]] = [
        ("index", (lambda a, i: a[(*before, i)], [x, index])),
        ("index_select", (lambda a, i: a.index_select(dim, i), [x, inside])),
        ("gather", (lambda a, i: a.gather(dim, i), [x, wide])),
        ("take_along", (lambda a, i: torch.take_along_dim(a, i, dim), [x, wide])),
        ("scatter_add", (lambda a, i, v: a.scatter_add(dim, i, v), [x, wide, value])),
        ("index_add", (lambda a, i, v: a.index_add(dim, i, v), [x, inside, value])),
        ("index_fill", (lambda a, i: a.index_fill(dim, i, 1), [x, inside])),
        ("where", (lambda a: torch.where(a > 0, a, -a), [x])),
        ("masked_fill", (lambda a: a.masked_fill(a > 0, 1), [x])),
    ]
    name, case = random.choice(choices)
    return f"{name}({dtype}{shape}, dim {dim}, {index.tolist()})", case


FAMILIES = (elementwise, arithmetic, reduction, views, indexing)


def generated(torch: Any, random: Random) -> Iterator[tuple[str, Case]]:
    """Cases that PyTorch itself computes, to finite numbers: what it refuses is left out.

    Tracing refuses more than computing does: it rejects a dimension out of range where the tensor has no elements.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    while True:
        name, (function, tensors) = random.choice(FAMILIES)(torch, random)
        try:
            result = function(*tensors)
            with FakeTensorMode() as fake:
                function(*map(fake.from_tensor, tensors))
        except (RuntimeError, IndexError, TypeError, ValueError):
            continue
        if not result.is_floating_point() or result.isfinite().all():
            yield name, (function, tensors)


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 1 << 30))
def test_generated_calls_agree(torch: Any, seed: int) -> None:
    source = generated(torch, Random(seed))
    cases: dict[str, Case] = {}
    while len(cases) < EACH:
        name, case = next(source)
        cases[name] = case
    check_cases(cases)
