"""Random calls of every operator that has struct info and a reference, static and with symbolic extents.

`calls(name, dtype, seed)` gives one call: its extents are `Dim`, numbers that carry a name. The same call is static
(`call.static`), symbolic (`call.symbolic`: names in place of some extents) and of other sizes (`call.resized`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mlcc import ops
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import INT64, DType
from mlcc.ir.narrow_floats import encode
from tests.ops import numbers
from tests.ops.cases import Case, Const, S, T

DTYPES = (
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16",
    "uint8", "bool",
)  # fmt: skip
SIZES = (0, 1, 1, 2, 2, 3, 3, 5, 7)


class Dim(int):
    """An extent with a name: a symbolic variable in the symbolic form of a call."""

    name: str

    @staticmethod
    def of(name: str, size: int) -> Dim:
        made = Dim(size)
        made.name = name
        return made


@dataclass(frozen=True, repr=False)
class Arg(T):
    """A tensor and what its elements may be; `below` bounds those that are indices."""

    values: str = "any"
    below: int = 0


@dataclass(frozen=True)
class OpCall:
    """One call; `case` has `Dim` for the extents that may be symbolic, `names` are those that are."""

    case: Case
    dtype: str
    seed: str
    names: tuple[str, ...] = ()

    @property
    def sizes(self) -> dict[str, int]:
        return {d.name: int(d) for d in _dims((self.case.args, self.case.kwargs))}

    @property
    def static(self) -> Case:
        return self._mapped(lambda d, _: int(d))

    @property
    def symbolic(self) -> Case:
        def symbol(dim: Dim, in_shape: bool) -> Any:
            return int(dim) if dim.name not in self.names else dim.name if in_shape else S(dim.name)

        return self._mapped(symbol)

    def resized(self, sizes: dict[str, int]) -> OpCall:
        case = self._mapped(lambda d, _: Dim.of(d.name, sizes.get(d.name, int(d))))
        return replace(self, case=case)

    def _mapped(self, fn: Callable[[Dim, bool], Any]) -> Case:
        args = tuple(_map(a, fn) for a in self.case.args)
        return Case(self.case.name, args, {k: _map(v, fn) for k, v in self.case.kwargs.items()})

    def __str__(self) -> str:
        return f"{self.symbolic if self.names else self.static} {self.sizes or ''} # {self.seed}"


def _dims(value: Any) -> Iterator[Dim]:
    match value:
        case Dim():
            yield value
        case T(shape=tuple() as shape):
            yield from _dims(shape)
        case dict():
            yield from _dims(tuple(value.values()))
        case tuple() | list():
            for item in value:
                yield from _dims(item)


def _map(value: Any, fn: Callable[[Dim, bool], Any]) -> Any:
    match value:
        case Arg(shape=tuple() as shape, below=Dim() as below):
            dims = tuple(fn(d, True) if isinstance(d, Dim) else d for d in shape)
            bound = fn(below, True)
            return replace(value, shape=dims, below=bound if isinstance(bound, int) else below)
        case T(shape=tuple() as shape):
            return replace(value, shape=tuple(fn(d, True) if isinstance(d, Dim) else d for d in shape))
        case Dim():
            return fn(value, False)
        case tuple():
            return tuple(_map(v, fn) for v in value)
        case list():
            return [_map(v, fn) for v in value]
    return value


# ---------------------------------------------------------------- elements


class NoSuchElements(Exception):
    """Indices into an axis that has no places."""


def tensors(case: Case) -> list[T]:
    """The tensors that a call takes, in the order in which they become parameters."""

    def found(value: Any) -> Iterator[T]:
        if isinstance(value, T):
            yield value
        elif isinstance(value, (tuple, list)):
            for item in value:
                yield from found(item)

    return [*found(case.args), *found(tuple(case.kwargs.values()))]


def arrays(case: Case, seed: str) -> list[np.ndarray]:
    """One array of stored elements per tensor. Raises NoSuchElements."""
    rng = np.random.default_rng(list(seed.encode()))
    return [elements(a, rng) for a in tensors(case)]


def elements(arg: T, rng: np.random.Generator) -> np.ndarray:
    """Elements of one tensor: narrow floats are multiples of a quarter, on which most arithmetic is exact."""
    assert arg.shape is not None and arg.dtype is not None
    dtype, shape = DType.of(arg.dtype), arg.shape
    domain, below = (arg.values, arg.below) if isinstance(arg, Arg) else ("any", 0)
    if domain in ("place", "index"):
        if below <= 0 and np.prod(shape) > 0:
            raise NoSuchElements
        low = -below if domain == "index" and not dtype.is_uint else 0
        return rng.integers(low, max(below, 1), shape).astype(arg.dtype)
    if dtype.is_bool:
        bools = rng.integers(0, 2, shape).astype(bool)
        return np.sort(bools) if domain == "sorted" else bools
    if dtype.is_int:
        return _integers(domain, dtype, shape, rng)
    fine = dtype.bits >= 32 and rng.random() < 0.7
    values = rng.uniform(-3, 3, shape) if fine else rng.integers(-12, 13, shape) / 4
    match domain:
        case "positive":
            values = np.abs(values) + (0.25 if fine else 1.0)
        case "unit":
            values = np.clip(values / 4, -0.75, 0.75)
        case "above one":
            values = np.abs(values) + 1
        case "divisor":
            values = np.where(values < 0, -1.0, 1.0) * 2.0 ** rng.integers(-1, 3, shape)
        case "exponent":
            values = values / 2
        case "sorted":
            values = np.sort(values)
        case "part":
            values = rng.integers(0, 9, shape) / 8
    return encode(values, dtype)


def _integers(domain: str, dtype: DType, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    low = 0 if dtype.is_uint else -6
    values = rng.integers(low, 7, shape)
    if domain == "any" and rng.random() < 0.25:  # the ends of the range: sums and products wrap
        info = np.iinfo(str(dtype))
        ends = np.array([info.min, info.max, info.max - 1, info.min + 1, 0, 1], str(dtype))
        return np.asarray(ends[rng.integers(0, 6, shape)])
    match domain:
        case "positive" | "above one":
            values = np.abs(values) + 1
        case "divisor":
            values = np.where(values == 0, 1, values)
        case "exponent":
            values = np.abs(values) % 4
        case "shift":
            values = rng.integers(0, dtype.bits, shape)
        case "sorted":
            values = np.sort(values)
    return values.astype(str(dtype))


# ---------------------------------------------------------------- drawing


class Draw:
    """What a generator draws from: sizes, axes, choices."""

    def __init__(self, name: str, dtype: str, seed: str) -> None:
        self.name, self.dtype = name, dtype
        self.rng = random.Random(seed)
        self.count = 0

    def size(self, low: int = 0, high: int = 7) -> int:
        return self.rng.choice([s for s in SIZES if low <= s <= high])

    def dim(self, low: int = 0, high: int = 7) -> Dim:
        self.count += 1
        return Dim.of(f"n{self.count}", self.size(low, high))

    def shape(self, least: int = 0, most: int = 3, low: int = 0, high: int = 5) -> tuple[Any, ...]:
        """Extents, each with a name or without."""
        rank = self.rng.randint(least, most)
        return tuple(self.dim(low, high) for _ in range(rank))

    def axis(self, shape: tuple[Any, ...]) -> int:
        """Negative or not."""
        return self.rng.randrange(-len(shape), len(shape))

    def pick(self, *options: Any) -> Any:
        return self.rng.choice(options)

    def flip(self) -> bool:
        return self.rng.random() < 0.5

    def t(self, shape: Iterable[Any], values: str = "any", below: int = 0, dtype: str | None = None) -> Arg:
        return Arg(tuple(shape), dtype or self.dtype, -1, values, below)

    def number(self) -> Any:
        """A Python number of the kind of the dtype."""
        return self.pick(1.5, -0.5, 2.0) if DType.of(self.dtype).is_float else self.pick(0, 1, 3)

    def place(self, shape: Iterable[Any], below: int, *, negative: bool = False, dtypes: Any = ("int64",)) -> Arg:
        return self.t(shape, "index" if negative else "place", below, self.pick(*dtypes))

    def thinned(self, shape: tuple[Any, ...]) -> tuple[Any, ...]:
        """A shape that broadcasts to `shape`: without some leading extents, 1 for some others."""
        kept = shape[self.rng.randint(0, len(shape)) if self.flip() else 0 :]
        return tuple(1 if self.rng.random() < 0.25 else d for d in kept)


GENERATORS: dict[str, Callable[[Draw], Case]] = {}


def _for(names: str) -> Callable[[Callable[[Draw], Case]], Callable[[Draw], Case]]:
    def register(fn: Callable[[Draw], Case]) -> Callable[[Draw], Case]:
        for name in names.split():
            GENERATORS[name] = fn
        return fn

    return register


def subjects() -> list[str]:
    """The operators that have struct info and a reference, but for those that need devices which a module declares."""
    found = (op for n in ops.names() if (op := ops.get(n)) is not None and op.impl.infer and op.impl.numpy)
    return [op.short for op in found if op.short not in ("hint_on_device", "to_vdevice")]


def call(name: str, dtype: str, seed: int) -> OpCall:
    """The call of that number; the first one has symbolic extents, if the operator has any."""
    for attempt in range(10 if seed == 0 else 1):
        made = _call(name, dtype, f"{name}-{dtype}-{seed}" + f".{attempt}" * (attempt > 0))
        if made.names:
            break
    return made


def _call(name: str, dtype: str, text: str) -> OpCall:
    draw = Draw(name, dtype, text)
    made = OpCall(GENERATORS[name](draw), dtype, text)
    names = sorted(made.sizes)
    kept = names if draw.flip() else [n for n in names if draw.flip()]
    return replace(made, names=tuple(kept or names))


# ---------------------------------------------------------------- element by element

_UNIT, _POSITIVE = {"acos", "asin", "atanh"}, {"log", "log1p", "sqrt", "rsqrt"}


@_for("""abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh erf exp expm1 floor isfinite isinf isnan log
    log1p logical_not negative round rsqrt sigmoid sign sin sinh sqrt square tan tanh trunc nn.relu nn.gelu nn.gelu_tanh
    nn.selu nn.silu grad.no_grad grad.start_checkpoint grad.end_checkpoint builtin.stop_lift_params
    memory.ensure_zero_offset shape_of size zeros_like ones_like nn.dropout""")
def _unary(g: Draw) -> Case:
    values = "unit" if g.name in _UNIT else "positive" if g.name in _POSITIVE else "any"
    return Case(g.name, (g.t(g.shape(), "above one" if g.name == "acosh" else values),))


@_for("nn.leakyrelu nn.softplus nn.softmax nn.log_softmax nonzero flatten nn.batch_flatten unique")
def _rows(g: Draw) -> Case:
    shape = g.shape(2 if g.name == "nn.batch_flatten" else 1 if g.name.startswith("nn.") else 0)
    keyed = {
        "nn.leakyrelu": {"alpha": g.pick(0.25, 0.01)},
        "nn.softplus": {"beta": g.pick(1.0, 2.0), "threshold": g.pick(20.0, 1.0)},
        "nn.softmax": {"axis": g.axis(shape) if shape else -1},
        "nn.log_softmax": {"axis": g.axis(shape) if shape else -1},
    }
    return Case(g.name, (g.t(shape),), keyed.get(g.name, {}) if g.flip() else {})


_SECOND = {
    "divide": "divisor", "floor_divide": "divisor", "floor_mod": "divisor", "mod": "divisor", "power": "exponent",
    "left_shift": "shift", "right_shift": "shift",
}  # fmt: skip


@_for("""add atan2 bitwise_and bitwise_or bitwise_xor divide equal floor_divide floor_mod greater greater_equal
    left_shift less less_equal log_add_exp logical_and logical_or logical_xor maximum minimum mod multiply not_equal
    power right_shift subtract""")
def _binary(g: Draw) -> Case:
    shape = g.shape()
    first, second = (shape, g.thinned(shape)) if g.flip() else (g.thinned(shape), shape)
    low = "positive" if g.name == "power" and DType.of(g.dtype).is_float else "any"
    if g.dtype in ("float32", "int64") and g.rng.random() < 0.2 and g.name in ("add", "subtract", "multiply", "less"):
        pair = (g.t(shape), g.number())
        return Case(g.name, pair if g.flip() else pair[::-1])
    return Case(g.name, (g.t(first, low), g.t(second, _SECOND.get(g.name, "any"))))


@_for("ewise_fma where outer nn.prelu clip astype wrap_param")
def _others(g: Draw) -> Case:
    shape = g.shape()
    match g.name:
        case "ewise_fma":
            return Case(g.name, (g.t(shape), g.t(shape), g.t(shape)))
        case "where":
            parts = [shape, g.thinned(shape), g.thinned(shape)]
            g.rng.shuffle(parts)
            return Case(g.name, (g.t(parts[0], dtype="bool"), g.t(parts[1]), g.t(parts[2])))
        case "outer":
            return Case(g.name, (g.t((g.dim(),)), g.t((g.dim(),))))
        case "nn.prelu":
            shape = g.shape(1)
            axis = g.axis(shape)
            return Case(g.name, (g.t(shape), g.t((1 if g.flip() else shape[axis],)), axis))
        case "clip":
            low, high = g.pick((0, 3), (1, 2), (0, 1))
            return Case(g.name, (g.t(shape), low, high))
        case "astype":
            return Case(g.name, (g.t(shape, "positive"), g.pick(*DTYPES)))
    number = Const(1, "float16" if g.dtype == "bfloat16" else g.dtype)
    return Case(g.name, (number, g.pick("float32", "float64", "int32")))


# ---------------------------------------------------------------- creation


@_for("zeros ones full full_like arange eye eye_like tril triu hamming_window one_hot")
def _creation(g: Draw) -> Case:
    shape, offset = g.shape(), g.pick(0, 1, -1, 4)
    square = g.shape(2, 2)
    match g.name:
        case "zeros" | "ones":
            return Case(g.name, (shape, g.dtype))
        case "full":
            return Case(g.name, (shape, g.t(())), {"dtype": g.pick(None, g.dtype, "float32")})
        case "full_like":
            return Case(g.name, (g.t(shape), g.t(())), {"dtype": g.pick(None, "float32", "int32")})
        case "arange":
            start, end, step = g.pick((0, g.dim(), 1), (0, 7, 2), (9, 0, -2), (2, g.dim(2, 7), 1))
            return Case(g.name, (start, end, step, g.dtype))
        case "eye":
            return Case(g.name, (g.dim(), g.dim(), offset, g.dtype))
        case "eye_like":
            return Case(g.name, (g.t(square), offset), {"dtype": g.pick(None, "float32")})
        case "hamming_window":
            return Case(g.name, (g.pick(1, 2, 7), g.flip(), 0.5, 0.25, g.dtype))
        case "one_hot":
            depth = g.size(1)
            keyed = {"axis": g.axis((*shape, depth))}
            return Case(g.name, (g.t(shape, "place", depth), *g.pick((1.5, 0.0), (3, 1)), depth), keyed)
    return Case(g.name, (g.t((*g.shape(0, 1), *square)), offset))


# ---------------------------------------------------------------- movement


@_for("""broadcast_to permute_dims reshape expand_dims squeeze flip repeat tile collapse_sum_to collapse_sum_like
    strided_slice dynamic_strided_slice reverse_sequence layout_transform nn.pad tensor_to_shape shape_to_tensor
    slice_scatter""")
def _movement(g: Draw) -> Case:
    shape = g.shape(1)
    x, rank, axis = g.t(shape), len(shape), g.axis(shape)
    match g.name:
        case "broadcast_to":
            return Case(g.name, (g.t(g.thinned(shape)), shape))
        case "permute_dims":
            axes = g.rng.sample(range(rank), rank)
            return Case(g.name, (x, g.pick(None, tuple(a - rank if g.flip() else a for a in axes))))
        case "reshape":
            shape = g.shape(1, 3, 1)
            x = g.t(shape)
            return Case(g.name, (x, g.pick((-1,), (*shape, 1), (shape[0], -1), (1, *shape), (-1, shape[-1]))))
        case "expand_dims":
            return Case(g.name, (x, g.pick(0, -1, rank, (0, -1), (1, 2) if rank > 1 else 1)))
        case "squeeze":
            at = g.rng.randrange(rank + 1)
            return Case(g.name, (g.t((*shape[:at], 1, *shape[at:])), at - rank - 1 if g.flip() else at))
        case "flip":
            return Case(g.name, (x, axis))
        case "repeat":
            return Case(g.name, (x, g.pick(1, 2, 3), g.pick(axis, None)))
        case "tile":
            return Case(g.name, (x, tuple(g.pick(1, 2, 3) for _ in range(g.pick(1, 2, rank)))))
        case "collapse_sum_to" | "collapse_sum_like":
            to = g.thinned(shape)
            return Case(g.name, (x, to if g.name.endswith("to") else g.t(to)))
        case "strided_slice" | "dynamic_strided_slice":
            return _slice(g, shape)
        case "reverse_sequence":
            shape = g.shape(2, 3, 1)
            batch, seq = g.rng.sample(range(len(shape)), 2)
            lengths = g.place((shape[batch],), shape[seq], dtypes=("int32", "int64"))
            return Case(g.name, (g.t(shape), lengths), {"seq_axis": seq, "batch_axis": batch})
        case "layout_transform":
            rows = g.dim()
            return Case(g.name, (g.t((rows, 4)), g.pick(_turned, _split_columns)))
        case "nn.pad":
            width = tuple(g.pick(0, 1, 2) for _ in range(2 * rank))
            mode = g.pick("constant", "constant", "replicate", "circular", "reflect")
            if mode != "constant":
                x = g.t(tuple(Dim.of(d.name, d + 2) for d in shape))
            return Case(g.name, (x, width), {"pad_value": g.pick(0.0, 2.0), "pad_mode": mode})
        case "tensor_to_shape":
            return Case(g.name, (g.t((g.size(1, 3),), "place", 5),))
        case "shape_to_tensor":
            dims = tuple(tir.IntImm(INT64, int(d)) for d in shape)
            return Case(g.name, (relax.ShapeExpr(dims, relax.ShapeStructInfo(dims, rank)),))
    shape = (*shape, 7)
    start, end, step = g.pick((1, 7, 2), (0, 7, 1), (2, 5, 3))
    source = (*shape[:-1], len(range(start, end, step)))
    return Case(g.name, (g.t(shape), g.t(source), start, end, step, g.pick(-1, len(shape) - 1)))


def _turned(i: Any, j: Any) -> Any:
    return j, i


def _split_columns(i: Any, j: Any) -> Any:
    return i, j // 2, j % 2


def _slice(g: Draw, shape: tuple[Any, ...]) -> Case:
    axes = sorted(g.rng.sample(range(len(shape)), g.rng.randint(1, len(shape))))
    steps = [g.pick(1, 1, 2, 3, -1, -2) for _ in axes]
    begins, ends = ([g.rng.randint(-6, 7) for _ in axes] for _ in range(2))
    if g.name == "strided_slice":
        return Case(g.name, (g.t(shape), axes, begins, ends, steps))
    given = [[1] * len(shape) for _ in range(3)]
    return Case(g.name, (g.t(shape), *(Const(v, "int64") for v in given)))


@_for("concat stack split meshgrid")
def _joins(g: Draw) -> Case:
    shape = g.shape(1)
    axis = g.axis(shape)
    match g.name:
        case "concat":
            others = []
            for _ in range(g.pick(1, 2, 3)):
                other = list(shape)
                other[axis] = g.dim(0, 5)
                others.append(g.t(other))
            return Case(g.name, (others, axis))
        case "stack":
            return Case(g.name, ([g.t(shape) for _ in range(g.pick(1, 2, 3))], g.axis((*shape, 1))))
        case "meshgrid":
            rows = [g.t((g.dim(),)) for _ in range(g.pick(2, 3))]
            return Case(g.name, (rows,), {"indexing": g.pick("ij", "ij", "xy")})
    wide = list(shape)
    wide[axis] = g.pick(4, 6, 7)
    return Case(g.name, (g.t(wide), g.pick(1, 2, 3, (1, 3), (2, 2), (0, 9)), axis))


# ---------------------------------------------------------------- rows


@_for("sum max min prod mean variance std argmax argmin median")
def _reductions(g: Draw) -> Case:
    shape = g.shape(1, 3, 0 if g.rng.random() < 0.2 else 1)
    axis: Any = g.pick(None, g.axis(shape))
    if g.name not in ("argmax", "argmin", "median") and len(shape) > 1 and g.flip():
        axis = tuple(a - len(shape) if g.flip() else a for a in g.rng.sample(range(len(shape)), 2))
    values = "exponent" if g.name == "prod" else "any"
    return Case(g.name, (g.t(shape, values), axis), {"keepdims": g.flip()})


@_for("cumsum cumprod sort argsort topk bucketize multinomial_from_uniform")
def _scans(g: Draw) -> Case:
    shape = g.shape(1)
    axis = g.axis(shape)
    match g.name:
        case "cumsum" | "cumprod":
            x = g.t(shape, "exponent" if g.name == "cumprod" else "any")
            return Case(g.name, (x, g.pick(None, axis)), {"exclusive": g.flip(), "dtype": g.pick(None, None, "int64")})
        case "sort":
            return Case(g.name, (g.t(shape), axis, g.flip()))
        case "argsort":
            return Case(g.name, (g.t(shape), axis, g.flip(), g.pick("int32", "int64")))
        case "topk":
            shape = g.shape(1, 2, 3)
            kind = g.pick("both", "values", "indices")
            return Case(g.name, (g.t(shape), g.pick(1, 2, 3), g.axis(shape), kind, g.flip(), g.pick("int32", "int64")))
        case "bucketize":
            keyed = {"out_int32": g.flip(), "right": g.flip()}
            return Case(g.name, (g.t(shape), g.t((g.dim(),), "sorted")), keyed)
    rows, count = g.dim(1, 3), g.dim(0, 5)
    parts = (g.t((rows, g.dim(1, 5)), "part"), g.t((count, 1), "part"), g.place((count, 1), rows))
    return Case(g.name, parts, {"dtype": g.pick("int64", "int32")})


# ---------------------------------------------------------------- places

_INT = ("int64", "int32")


@_for("take gather_elements gather_nd index_tensor scatter_elements scatter_reduce scatter_nd index_put")
def _places(g: Draw) -> Case:
    shape = g.shape(2, 3, 1)
    x, axis, count = g.t(shape), g.axis(shape), g.dim(0, 5)
    match g.name:
        case "take":
            mode = g.pick("fast", "clip", "wrap")
            return Case(g.name, (x, g.place(g.shape(0, 2), shape[axis], dtypes=_INT), axis), {"mode": mode})
        case "gather_elements" | "scatter_elements" | "scatter_reduce":
            at = list(shape)
            at[axis] = count
            indices = g.place(at, shape[axis], negative=g.name.startswith("scatter"), dtypes=_INT)
            if g.name == "gather_elements":
                return Case(g.name, (x, indices, axis))
            if g.name == "scatter_reduce":
                how = g.pick("sum", "mean", "mean", "prod", "amin", "amax")
                return Case(g.name, (x, indices, g.t(at), axis, how, g.flip()))
            how = g.pick("update", "add", "mul", "min", "max")
            return Case(g.name, (x, indices, g.t(at), axis, how))
        case "gather_nd" | "scatter_nd":
            depth = g.rng.randint(1, len(shape))
            indices = g.place((count, depth), min(shape[:depth]), dtypes=("int64",))
            if g.name == "gather_nd":
                return Case(g.name, (x, indices))
            updates = g.t((count, *shape[depth:]))
            return Case(g.name, (x, indices, updates, g.pick("update", "add", "mul", "min", "max")))
        case "index_tensor":
            return Case(g.name, (x, [g.place((count,), d, dtypes=_INT) for d in shape[: g.pick(1, 2)]]))
    depth = g.rng.randint(1, len(shape))
    places = tuple(g.place((count,), d, dtypes=_INT) for d in shape[:depth])
    return Case(g.name, (x, places, g.t(g.thinned((count, *shape[depth:]))), g.flip()))


# ---------------------------------------------------------------- products


@_for("matmul nn.dense nn.grouped_matmul einsum")
def _products(g: Draw) -> Case:
    n, k, m = g.dim(), g.dim(), g.dim()
    if g.name == "nn.grouped_matmul":
        groups = g.dim(1, 4)
        ends = sorted(g.rng.randint(0, n) for _ in range(groups))
        return Case(g.name, (g.t((n, k)), g.t((groups, k, m)), Const(ends, g.pick("int32", "int64"))))
    if g.name == "nn.dense":
        return Case(g.name, (g.t((n, k)), g.t((m, k))))
    if g.name == "einsum":
        text, *shapes = g.pick(
            ("ij,jk->ik", (n, k), (k, m)), ("ij->ji", (n, m)), ("ij->", (n, m)), ("i,j->ij", (n,), (m,)),
            ("bij,bjk->bik", (2, n, k), (2, k, m)), ("...j,jk->...k", (3, n, k), (k, m)), ("ii->i", (n, n)),
        )  # fmt: skip
        return Case(g.name, ([g.t(s) for s in shapes], text))
    batch = g.shape(0, 2, 1, 3)
    left, right = g.pick(((k,), (k,)), ((n, k), (k,)), ((k,), (*batch, k, m)), ((*batch, n, k), (k, m)),
                         ((*batch, n, k), (*batch, k, m)), ((*g.thinned(batch), n, k), (*batch, k, m)))  # fmt: skip
    wide = g.pick(None, None, {"int8": "int32", "uint8": "int32", "float16": "float32"}.get(g.dtype))
    return Case(g.name, (g.t(left), g.t(right)), {"out_dtype": wide} if wide else {})


# ---------------------------------------------------------------- networks


@_for("nn.layer_norm nn.rms_norm nn.group_norm nn.instance_norm nn.batch_norm nn.cross_entropy_with_logits")
def _norms(g: Draw) -> Case:
    batch, channels, rest = g.dim(0, 3), g.dim(1, 5), g.dim(1, 5)
    x = g.t((batch, channels, rest))
    per = g.t((channels,))
    switches = {"center": g.flip(), "scale": g.flip()}
    match g.name:
        case "nn.layer_norm" | "nn.rms_norm":
            axes, shape = g.pick(((-1,), (rest,)), ((1, 2), (channels, rest)), ((2,), (rest,)))
            if g.name == "nn.rms_norm":
                return Case(g.name, (x, g.t(shape), axes))
            return Case(g.name, (x, g.t(shape), g.t(shape), axes), switches)
        case "nn.group_norm":
            return Case(
                g.name, (g.t((batch, 4, rest)), g.t((4,)), g.t((4,))),
                {"num_groups": g.pick(1, 2, 4), "channel_axis": 1, "axes": [2], **switches},
            )  # fmt: skip
        case "nn.instance_norm":
            return Case(g.name, (x, per, per), {"channel_axis": 1, "axes": [2], **switches})
        case "nn.batch_norm":
            positive = g.t((channels,), "positive")
            x = g.t((Dim.of(batch.name, max(batch, 1)), channels, rest))
            return Case(g.name, (x, per, per, per, positive), {"axis": 1, "training": g.flip(), **switches})
    shape = g.pick((batch, channels), (channels,))
    return Case(g.name, (g.t(shape), g.t(shape)))


_LAYOUTS = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}
_KERNELS = {1: ("OIW", "WIO"), 2: ("OIHW", "HWIO"), 3: ("OIDHW", "DHWIO")}


def _laid(layout: str, letters: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(letters[c] for c in layout)


@_for("nn.conv1d nn.conv2d nn.conv3d")
def _convolutions(g: Draw) -> Case:
    n = int(g.name[-2])
    groups = g.pick(1, 1, 2)
    data, kernel = g.pick(*_LAYOUTS[n]), g.pick(*_KERNELS[n])
    places = {c: g.dim(3, 7 if n == 1 else 5) for c in "DHW"}
    x = g.t(_laid(data, {"N": g.dim(0, 2), "C": 2 * groups, **places}))
    weights = g.t(_laid(kernel, {"O": 2 * groups, "I": 2, **{c: g.pick(1, 2, 3) for c in "DHW"}}))
    keyed = {"groups": groups, "padding": g.pick(0, 1), "strides": g.pick(1, 1, 2), "dilation": g.pick(1, 1, 1)}
    return Case(g.name, (x, weights), {**keyed, "data_layout": data, "kernel_layout": kernel})


@_for(" ".join(f"nn.{k}_pool{n}d" for k in ("max", "avg", "adaptive_avg") for n in (1, 2, 3)))
def _pools(g: Draw) -> Case:
    n = int(g.name[-2])
    layout = g.pick(*_LAYOUTS[n])
    x = g.t(_laid(layout, {"N": g.dim(0, 2), "C": g.dim(1, 3), **{c: g.dim(3, 7 if n == 1 else 5) for c in "DHW"}}))
    if "adaptive" in g.name:
        return Case(g.name, (x, g.pick(1, 2, 3)), {"layout": layout})
    keyed = {"ceil_mode": g.flip(), "count_include_pad": g.flip(), "layout": layout}
    return Case(g.name, (x, g.pick(1, 2, 3), g.pick(1, 2), g.pick(0, 0, 1)), keyed)


@_for("nn.conv1d_transpose nn.conv2d_transpose nn.conv3d_transpose")
def _transposed(g: Draw) -> Case:
    n = int(g.name[len("nn.conv")])
    groups, stride = g.pick(1, 1, 2), g.pick(1, 2, 3)
    data = g.pick(*_LAYOUTS[n])
    places = {c: g.dim(2, 5 if n == 1 else 3) for c in "DHW"}
    x = g.t(_laid(data, {"N": g.dim(0, 2), "C": 2 * groups, **places}))
    kernel = _LAYOUTS[n][0].replace("NC", "IO")
    weights = g.t(_laid(kernel, {"I": 2 * groups, "O": 2, **{c: g.pick(2, 3) for c in "DHW"}}))
    keyed = {"groups": groups, "padding": g.pick(0, 0, 1), "strides": stride, "output_padding": g.pick(0, stride - 1)}
    return Case(g.name, (x, weights), {**keyed, "data_layout": data, "kernel_layout": kernel})


@_for("nn.attention nn.attention_bias")
def _attention(g: Draw) -> Case:
    batch, query, key, heads, depth = g.dim(0, 2), g.dim(1, 5), g.dim(1, 5), g.dim(1, 3), g.dim(1, 3)
    parts = [g.t((batch, query, heads, depth)), g.t((batch, key, heads, depth)), g.t((batch, key, heads, g.dim(1, 3)))]
    if g.name == "nn.attention_bias":
        parts.append(g.t((batch, g.pick(heads, 1), g.pick(query, 1), key)))
    keyed = {"scale": g.pick(None, 0.25), "causal_mask": g.pick(None, "TopLeft", "BottomRight")}
    return Case(g.name, tuple(parts), keyed)


@_for("quantize dequantize")
def _quantized(g: Draw) -> Case:
    rows, channels = g.dim(), g.dim(1)
    axis, per = g.pick((-1, channels), (1, channels), (0, rows))
    if g.name == "quantize":
        parts = g.t((rows, channels)), g.t((per,), "divisor", dtype="float32"), g.place((per,), 5, dtypes=("int8",))
        return Case(g.name, parts, {"axis": axis, "out_dtype": g.pick("int8", "uint8", "int16")})
    parts = g.t((rows, channels)), g.t((per,), "divisor", dtype="float32"), g.place((per,), 5, dtypes=(g.dtype,))
    return Case(g.name, parts, {"axis": axis, "out_dtype": g.pick("float32", "float16")})


@_for("nn.nll_loss nn.pixel_shuffle grad.take_backward image.resize2d")
def _images(g: Draw) -> Case:
    batch, classes, rest = g.dim(1, 3), g.dim(2, 5), g.dim(1, 3)
    match g.name:
        case "nn.nll_loss":
            shape, at = g.pick(((batch, classes, rest), (batch, rest)), ((batch, classes), (batch,)))
            parts = [g.t(shape), g.place(at, classes, dtypes=_INT)]
            parts += [g.t((classes,), "positive")] if g.flip() else []
            return Case(
                g.name, tuple(parts), {"reduction": g.pick("mean", "sum", "none"), "ignore_index": g.pick(-100, 1)}
            )
        case "nn.pixel_shuffle":
            return Case(g.name, (g.t((g.dim(0, 2), 8, g.dim(), g.dim())), 2))
        case "grad.take_backward":
            count = g.dim(0, 5)
            given = g.t((batch, count)), g.t((batch, classes)), g.place((count,), classes, dtypes=_INT)
            return Case(g.name, (*given, g.pick(1, -1)))
    layout = g.pick("NCHW", "NHWC")
    x = g.t(_laid(layout, {"N": batch, "C": rest, "H": g.dim(1, 5), "W": g.dim(1, 5)}))
    modes = g.pick(
        {"method": "linear"}, {"method": "linear", "coordinate_transformation_mode": "align_corners"},
        {"method": "cubic", "cubic_alpha": -0.5},
        {"method": "nearest_neighbor", "coordinate_transformation_mode": "asymmetric", "rounding_method": "floor"},
    )  # fmt: skip
    if not DType.of(g.dtype).is_float:  # others are rounded toward zero, where the last bit decides
        modes = {"method": "nearest_neighbor"}
    return Case(g.name, (x, (g.size(1), g.size(1))), {**modes, "layout": layout})


@_for("random.bits random.uniform random.normal random.integers")
def _random(g: Draw) -> Case:
    keyed: dict[str, Any] = {"dtype": g.dtype}
    if g.name == "random.integers":
        keyed |= g.pick({"low": 0, "high": 7}, {"low": -5, "high": 100}, {"low": 0, "high": 2**32})
    return Case(g.name, (g.t((2,), dtype="int64"), g.shape()), keyed)


@_for("signal.dft")
def _transforms(g: Draw) -> Case:
    shape = g.shape(1, 3, 1)
    length = () if g.flip() else (g.pick(1, 4, 6),)
    inverse = g.flip()
    keyed = {"axis": g.rng.randrange(len(shape)), "inverse": inverse, "onesided": not inverse and g.flip()}
    return Case(g.name, (g.t((*shape, g.pick(1, 2))), *length), keyed)


@_for("nn.lstm nn.gru nn.rnn nn.lstm_steps nn.gru_steps nn.rnn_steps")
def _recurrent(g: Draw) -> Case:
    kind = g.name[len("nn.") :].removesuffix("_steps")
    gates, acts = {"lstm": (4, 3), "gru": (3, 2), "rnn": (1, 1)}[kind]
    direction = g.pick("forward", "reverse", "bidirectional")
    count, hidden = 1 + (direction == "bidirectional"), g.pick(1, 2, 5, 17)
    steps, batch, inputs = g.dim(0, 5), g.dim(), g.dim(1, 3)
    given = [g.t((steps, batch, inputs), "part"), g.t((count, gates * hidden, inputs), "part")]
    if g.name.endswith("_steps"):
        given = [g.t((steps, batch, count * gates * hidden))]
    given += [g.t((count, gates * hidden, hidden), "part"), g.t((count, 2 * gates * hidden))]
    given += [g.t((count, batch, hidden))] * (1 + (kind == "lstm"))
    if g.flip():
        given.append(g.place((batch,), steps + 1, dtypes=("int32", "int64")))
        given += [g.t((count, 3 * hidden))] if kind == "lstm" and g.flip() else []
    keyed: dict[str, Any] = {"direction": direction, "clip": g.pick(None, 0.5)}
    if g.flip():
        names = ("tanh", "sigmoid", "hard_sigmoid(0.25, 0.5)", "softsign", "scaled_tanh(0.5, 2)")  # nothing grows
        keyed["activations"] = ", ".join(g.pick(*names) for _ in range(acts * g.pick(1, count)))
    if kind != "rnn":
        keyed[{"lstm": "input_forget", "gru": "linear_before_reset"}[kind]] = g.flip()
    return Case(g.name, tuple(given), keyed)


@_for("vision.multiclass_nms vision.multiclass_nms_padded vision.valid_rows")
def _detection(g: Draw) -> Case:
    if g.name == "vision.valid_rows":
        return Case(g.name, (g.t(g.shape(1)), g.t((), "place", 9, "int64")))
    batch, classes, count = g.dim(0, 2), g.dim(1, 3), g.dim()
    limits = [Const(g.pick(0, 1, 2, 9), "int64"), Const(g.pick(0.0, 0.25, 0.5), "float32")]
    limits += [Const(g.pick(0.0, 0.25, -1.0), "float32")] if g.flip() else []
    given = g.t((batch, count, 4)), g.t((batch, classes, count), "part")
    return Case(g.name, (*given, *limits), {"center_point_box": g.flip()})


def corpus() -> list[OpCall]:
    """The calls with fixed shapes of `tests.ops.numbers`."""
    return [OpCall(case, _dtype(case), "") for case in numbers.CASES]


def _dtype(case: Case) -> str:
    """The dtype that a known case is about."""
    return next((a.dtype for a in tensors(case) if a.dtype), "float32")
