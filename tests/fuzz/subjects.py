"""What the -O3 campaign compiles: generated programs of many kinds, with arguments for some sizes.

`subject(kind, seed)` gives one; kinds are the names of MAKERS.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

import mlcc
from mlcc.errors import CompileError
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.module import IRModule
from mlcc.ir.narrow_floats import encode
from tests.auto_schedule.kernels import graph
from tests.auto_schedule.products import EPILOGUES, FORMS, Product
from tests.fuzz.children import NoSubject
from tests.generate import functions, graphs, lanes, op_calls
from tests.ops.coverage import function
from tests.ops.numbers import expected
from tests.passes.arguments import arguments as graph_arguments
from tests.passes.networks import Network
from tests.targets.arguments import arguments as kernel_arguments

EXTENTS = (1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 31, 32, 33, 47, 64, 65)
AXES = (1, 1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 33)  # of programs with many of them
FLOATS = ("float32", "float32", "float64", "float16", "bfloat16")


@dataclass
class Subject:
    """A module with a function `main`, and lists of arguments. A TIR function writes into its arguments."""

    module: IRModule
    runs: list[list[Any]]
    note: str = ""

    @property
    def is_kernel(self) -> bool:
        return isinstance(self.module["main"], tir.PrimFunc)

    @property
    def is_narrow(self) -> bool:
        """Whether it takes floats of 16 bits."""
        return "float16" in self.module.script()


def subject(kind: str, seed: int) -> Subject:
    """The subject of that number. Raises NoSubject."""
    return MAKERS[kind](random.Random(f"{kind}/{seed}"), seed)


# ---------------------------------------------------------------- kinds


@contextmanager
def _wider(module: Any, name: str, sizes: tuple[int, ...]) -> Iterator[None]:
    """A generator that draws extents from others."""
    before = getattr(module, name)
    setattr(module, name, sizes)
    try:
        yield
    finally:
        setattr(module, name, before)


def _operator(rng: random.Random, seed: int) -> Subject:
    """A call of an operator, static or of symbolic extents with several sizes."""
    name, dtype = rng.choice(sorted(op_calls.GENERATORS)), rng.choice(op_calls.DTYPES)
    small = seed % 3 == 0 or "3d" in name
    with _wider(op_calls, "SIZES", op_calls.SIZES if small else AXES):
        call = op_calls.call(name, dtype, seed)
    symbolic = bool(call.names) and rng.random() < 0.5
    try:
        side, module = function(call.symbolic if symbolic else call.static)
    except CompileError:
        raise NoSubject from None
    runs = []
    for sizes in [call.sizes] + [dict.fromkeys(call.names, s) for s in (0, 1, 5, 19)] * symbolic:
        resized = call.resized(sizes)
        try:
            alone, _ = function(resized.static)
            arrays = op_calls.arrays(resized.static, call.seed)
            if any(a.size > 1 << 16 for a in arrays):
                continue
            expected(alone.made, dict(zip(alone.params, arrays, strict=True)))
        except (op_calls.NoSuchElements, CompileError, ValueError, IndexError, ZeroDivisionError):
            continue  # no sizes for this call, or places that are in no tensor
        extra = side.params[side.given :] if symbolic else []
        for param in extra:
            (var,) = param.struct_info.dims  # type: ignore[union-attr]
            arrays.append(np.zeros(sizes.get(var.name, call.sizes[var.name]), "int8"))
        runs.append(arrays)
    return Subject(module, runs, str(call))


def _graph(rng: random.Random, seed: int) -> Subject:
    extents = rng.choice([(1, 2, 3, 4, 5, 8), (0, 1, 3, 17), (1, 16, 31, 64), (7, 8, 13, 33)])
    module = graphs.module(seed, graphs.Options(packed=False, extents=extents))
    func: Any = module["main"]
    return Subject(module, [graph_arguments(func, random.Random(seed * 7 + turn)) for turn in range(3)])


def _network(rng: random.Random, seed: int) -> Subject:
    made = Network(seed)
    return Subject(mlcc.parse(made.text()), [made.inputs()])


def _product(rng: random.Random, seed: int) -> Subject:
    form = rng.choice(FORMS)
    letters = sorted(set(form) - set(",->"))
    while True:
        sizes: dict[str, int | str] = {x: rng.choice(EXTENTS if x not in "bh" else AXES[:5]) for x in letters}
        if rng.random() < 0.04:
            sizes[rng.choice(letters)] = 0
        work = 1
        for size in sizes.values():
            work *= int(size)
        if work <= 1 << 19:
            break
    known = dict(sizes)
    for x in letters:
        if rng.random() < 0.15:
            sizes[x] = f"n{x}"
    dtype = rng.choice([*FLOATS[:4], "int32", "int8", "uint8", "int64", "int16"])
    out = {"int8": "int32", "uint8": "int32", "float16": "float32"}.get(dtype, dtype) if rng.random() < 0.7 else dtype
    case = Product(form, sizes, dtype, out, rng.choice(EPILOGUES), rng.random() < 0.1)
    runs = []
    for turn in range(3 if any(isinstance(s, str) for s in sizes.values()) else 1):
        given = {f"n{x}": int(s) if turn == 0 else rng.choice((0, 1, 2, 9, 16, 21)) for x, s in known.items()}
        runs.append(case.arrays(given, seed + turn))
    return Subject(mlcc.parse(case.text()), runs, str(case))


def _conv(rng: random.Random, seed: int) -> Subject:
    axes = rng.choice([1, 2, 2, 2, 3])
    spatial = "DHW"[3 - axes :]
    layout, kernel = rng.choice([(f"NC{spatial}", f"OI{spatial}"), (f"N{spatial}C", f"O{spatial}I"),
                                 (f"N{spatial}C", f"{spatial}IO")])  # fmt: skip
    limit = {1: 40, 2: 20, 3: 8}[axes]
    data = [rng.randint(1, limit) for _ in range(axes)]
    window = [rng.randint(1, min(n, 4)) for n in data]
    groups = rng.choice([1, 1, 1, 2, 3])
    inputs, outputs = groups * rng.choice(AXES[:9]), groups * rng.choice(AXES[:10])
    if rng.random() < 0.15:
        groups, outputs = inputs, inputs * rng.choice([1, 2])
    extents: dict[str, Any] = {"N": rng.choice([1, 1, 2]), "C": inputs, **dict(zip(spatial, data, strict=True))}
    if rng.random() < 0.2:
        extents[rng.choice(["N", spatial[-1]])] = "n"
    weights = {"O": outputs, "I": inputs // groups, **dict(zip(spatial, window, strict=True))}
    dtype = rng.choice(FLOATS)
    shape, other = (
        ", ".join(f'"{n}"' if isinstance(n, str) else str(n) for n in (table[a] for a in order))
        for table, order in ((extents, layout), (weights, kernel))
    )
    padding = [rng.choice([0, 0, 1, 2]) for _ in range(2 * axes)]
    strides = [rng.choice([1, 1, 2, 3]) for _ in range(axes)]
    dilation = [rng.choice([1, 1, 2]) if n > 2 * (w - 1) else 1 for n, w in zip(data, window, strict=True)]
    line = (
        f"y = R.nn.conv{axes}d(x, w, strides={strides}, padding={padding}, dilation={dilation}, groups={groups}, "
        f'data_layout="{layout}", kernel_layout="{kernel}")'
    )
    params, lines = f'x: R.Tensor(({shape}), "{dtype}"), w: R.Tensor(({other}), "{dtype}")', [line]
    if rng.random() < 0.6:
        bias = ", ".join(str(outputs) if a == "C" else "1" for a in layout)
        params += f', b: R.Tensor(({bias}), "{dtype}")'
        lines.append("y1 = R.add(y, b)")
        if rng.random() < 0.5:
            lines.append("y2 = R.nn.relu(y1)")
    text = graph(params, *lines, result=lines[-1].split()[0])
    try:
        module = mlcc.parse(text)
    except CompileError:
        raise NoSubject from None
    func: Any = module["main"]
    return Subject(module, [graph_arguments(func, random.Random(seed + turn)) for turn in range(2)], text)


def _rows(rng: random.Random, seed: int) -> Subject:
    """Reductions along some axes among elementwise operators."""
    rank = rng.choice([1, 2, 2, 3, 4])
    shape: list[Any] = [rng.choice(EXTENTS if rank < 3 else AXES) for _ in range(rank)]
    if rng.random() < 0.3:
        shape[rng.randrange(rank)] = "n"
    dtype = rng.choice([*FLOATS, "int32", "int8", "uint8", "bool"])
    real = "float" in dtype
    dims = ", ".join(f'"{n}"' if isinstance(n, str) else str(n) for n in shape) + ","
    params = f'x: R.Tensor(({dims}), "{dtype}")'
    lines, last = [], "x"

    def bind(value: str) -> None:
        nonlocal last
        last = f"lv{len(lines)}"
        lines.append(f"{last} = {value}")

    for _ in range(rng.randint(1, 4)):
        axis = rng.choice([-1, -1, rng.randrange(rank)])
        wide = sorted(rng.sample(range(rank), rng.randint(1, rank)))
        options = ["reduce", "reduce", "arg", "scan", "permute"]
        options += ["softmax", "norm", "unary", "statistics"] * 2 if real else ["astype"] if dtype != "bool" else []
        kind = rng.choice(options)
        if kind == "reduce":
            names = ["max", "min", "sum", "prod", "mean"] if real else ["max", "min", "sum", "prod"]
            if dtype == "bool":
                names = ["max", "min"]
            before = last
            bind(f"R.{rng.choice(names)}({last}, axis={wide}, keepdims=True)")
            if dtype != "bool":
                bind(f"R.{rng.choice(['add', 'subtract', 'maximum'])}({before}, {last})")
        elif kind == "arg":
            if dtype != "bool" and len(lines) == 0:
                bind(f"R.{rng.choice(['argmax', 'argmin'])}({last}, axis={axis}, keepdims={rng.random() < 0.5})")
                break
        elif kind == "scan":
            if dtype != "bool" and rng.random() < 0.5:
                bind(f"R.cumsum({last}, axis={axis % rank})")
        elif kind == "permute":
            order = rng.sample(range(rank), rank)
            bind(f"R.permute_dims({last}, axes={order})")
            break
        elif kind == "softmax":
            bind(f"R.nn.{rng.choice(['softmax', 'log_softmax'])}({last}, axis={axis})")
        elif kind == "statistics":
            bind(f"R.{rng.choice(['variance', 'std'])}({last}, axis={wide}, keepdims={rng.random() < 0.7})")
            break
        elif kind == "norm":
            size = shape[-1]
            if isinstance(size, int):
                for name in ("g", "b"):
                    if f" {name}:" not in params:
                        params += f', {name}: R.Tensor(({size},), "{dtype}")'
                bind(rng.choice([f"R.nn.layer_norm({last}, g, b, axes=[-1])", f"R.nn.rms_norm({last}, g, axes=[-1])"]))
        elif kind == "unary":
            bind(f"R.{rng.choice(['exp', 'tanh', 'nn.gelu', 'sigmoid', 'abs', 'negative', 'nn.silu'])}({last})")
        elif kind == "astype":
            bind(f'R.astype({last}, "float32")')
            break
    if not lines:
        raise NoSubject
    text = graph(params, *lines, result=last)
    try:
        module = mlcc.parse(text)
    except CompileError:
        raise NoSubject from None
    func: Any = module["main"]
    runs = [graph_arguments(func, random.Random(seed + turn)) for turn in range(2)]
    for size in (0, 1, 37) if "n" in shape else ():
        array = np.random.RandomState(seed + size).uniform(-1, 1, [size if n == "n" else n for n in shape])
        made = array > 0 if dtype == "bool" else encode(array if real else np.abs(array * 5), DType.of(dtype))
        runs.append([made, *runs[0][1:]])
    return Subject(module, runs, text)


def _function(rng: random.Random, seed: int) -> Subject:
    """A PrimFunc with blocks in any nest, or with none."""
    wide = seed % 2 == 0
    with _wider(functions, "EXTENTS", (1, 3, 8, 17, 33) if wide else functions.EXTENTS):
        func = functions.prim_func(seed, functions.Options(asserts=False, matched=not wide))
    return Subject(IRModule({"main": func}), [kernel_arguments(func, seed + turn)[0] for turn in range(2)])


def _lanes(rng: random.Random, seed: int) -> Subject:
    from tests.fuzz.test_lanes import arrays

    case = lanes.lanes(seed)
    module = mlcc.parse(case.text)
    func = module["main"]
    assert isinstance(func, tir.PrimFunc)
    return Subject(module, [arrays(func, case, seed)], case.text)


MAKERS: dict[str, Callable[[random.Random, int], Subject]] = {
    "operator": _operator, "graph": _graph, "network": _network, "product": _product, "conv": _conv, "rows": _rows,
    "function": _function, "lanes": _lanes,
}  # fmt: skip
