"""Indices in the data that lie outside: every way of running a program refuses the same ones, and nothing is touched
outside of the tensors."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.errors import CallError
from mlcc.interp import run_function
from mlcc.ir.module import IRModule
from tests.runtime.guarded import guarded

X = 'x: R.Tensor((7, 5), "float32")'
FUNCTIONS = f"""
@R.function
def take({X}, i: R.Tensor((2, 3), "DTYPE")):
    return R.take(x, i, axis=0)

@R.function
def take_last({X}, i: R.Tensor((3,), "DTYPE")):
    return R.take(x, i, axis=1)

@R.function
def take_flat(x: R.Tensor((7,), "float32"), i: R.Tensor((3,), "DTYPE")):
    return R.take(x, i)

@R.function
def take_clip({X}, i: R.Tensor((3,), "DTYPE")):
    return R.take(x, i, axis=0, mode="clip")

@R.function
def take_wrap({X}, i: R.Tensor((3,), "DTYPE")):
    return R.take(x, i, axis=0, mode="wrap")

@R.function
def take_of_nothing(x: R.Tensor(("n", 5), "float32"), i: R.Tensor((3,), "DTYPE")):
    return R.take(x, i, axis=0, mode="clip")

@R.function
def take_symbolic(x: R.Tensor(("n", "m"), "float32"), i: R.Tensor(("k",), "DTYPE")):
    return R.take(x, i, axis=0)

@R.function
def take_of_sum({X}, i: R.Tensor((3,), "DTYPE")):
    with R.dataflow():
        a = R.add(x, x)
        b = R.nn.relu(a)
        c = R.take(b, i, axis=0)
        d = R.add(c, c)
        e = R.nn.relu(d)
        R.output(e)
    return e

@R.function
def mean_of_take({X}, i: R.Tensor((3,), "DTYPE")):
    with R.dataflow():
        a = R.take(x, i, axis=0)
        b = R.mean(a, axis=[1])
        R.output(b)
    return b

@R.function
def gather_elements({X}, i: R.Tensor((4, 5), "DTYPE")):
    return R.gather_elements(x, i, axis=0)

@R.function
def gather_last({X}, i: R.Tensor((7, 2), "DTYPE")):
    return R.gather_elements(x, i, axis=-1)

@R.function
def index_tensor({X}, i: R.Tensor((4, 1), "DTYPE"), j: R.Tensor((3,), "DTYPE")):
    return R.index_tensor(x, (i, j))

@R.function
def index_rows({X}, i: R.Tensor((4,), "DTYPE")):
    return R.index_tensor(x, (i,))

@R.function
def scatter_add({X}, i: R.Tensor((4, 5), "DTYPE"), u: R.Tensor((4, 5), "float32")):
    return R.scatter_elements(x, i, u, axis=0, reduction="add")

@R.function
def scatter_then({X}, i: R.Tensor((4, 5), "DTYPE"), u: R.Tensor((4, 5), "float32")):
    with R.dataflow():
        a = R.multiply(x, x)
        b = R.scatter_elements(a, i, u, axis=0, reduction="max")
        c = R.nn.relu(b)
        R.output(c)
    return c

@R.function
def scatter_nd({X}, i: R.Tensor((4, 2), "DTYPE"), u: R.Tensor((4,), "float32")):
    return R.scatter_nd(x, i, u, reduction="add")

@R.function
def scatter_rows({X}, i: R.Tensor((4, 1), "DTYPE"), u: R.Tensor((4, 5), "float32")):
    return R.scatter_nd(x, i, u, reduction="add")

@R.function
def index_put({X}, i: R.Tensor((4,), "DTYPE"), j: R.Tensor((4,), "DTYPE"), u: R.Tensor((4,), "float32")):
    return R.index_put(x, (i, j), u, accumulate=True)

@R.function
def nll_loss({X}, i: R.Tensor((7,), "DTYPE")):
    return R.nn.nll_loss(x, i, reduction="none", ignore_index=3)

@R.function
def nll_loss_mean({X}, i: R.Tensor((7,), "DTYPE"), w: R.Tensor((5,), "float32")):
    return R.nn.nll_loss(x, i, w, reduction="mean", ignore_index=-100)

@R.function
def gather_nd({X}, k: R.Tensor((4, 2), "int64")):
    return R.gather_nd(x, k)

@R.function
def gather_batches({X}, k: R.Tensor((7, 3, 1), "int64")):
    return R.gather_nd(x, k, batch_dims=1)

@R.function
def slices({X}, b: R.Tensor((2,), "int64"), e: R.Tensor((2,), "int64"), s: R.Tensor((2,), "int64")):
    return R.dynamic_strided_slice(x, b, e, s)

@R.function
def reversed({X}, i: R.Tensor((7,), "DTYPE")):
    return R.reverse_sequence(x, i, seq_axis=1, batch_axis=0)

@R.function
def one_hot(i: R.Tensor((5,), "DTYPE")):
    return R.one_hot(i, R.prim_value(T.float32(1)), R.prim_value(T.float32(0)), depth=6, axis=-1)

@R.function
def two_takes({X}, i: R.Tensor((3,), "DTYPE"), j: R.Tensor((3,), "DTYPE")):
    with R.dataflow():
        a = R.take(x, i, axis=0)
        b = R.take(x, j, axis=0)
        c = R.add(a, b)
        R.output(c)
    return c
"""
INDICES = ("i", "j", "k", "b", "e", "s")
CPU, GPU = "llvm{cpu=native}", "cuda{arch=sm_80}"
WAYS = [
    (CPU, 0, "int32"), (CPU, 1, "int64"), (CPU, 2, "uint8"), (CPU, 2, "int32"), (CPU, 3, "int64"), ("llvm", 3, "int8"),
    (GPU, 0, "int32"), (GPU, 1, "uint8"), (GPU, 2, "int64"), (GPU, 3, "int32"),
    (CPU, 0, "uint64"), (CPU, 2, "uint64"), (GPU, 2, "uint64"), (CPU, 3, "uint32"),
]  # fmt: skip
_Way = Callable[..., Any]


def module(dtype: str) -> IRModule:
    text = FUNCTIONS.replace("DTYPE", dtype)
    if dtype not in ("int32", "int64"):  # what takes other dtypes only
        text = re.sub(r"@R.function\ndef (slices|gather_nd|gather_batches)\(.*?\n\n", "", text, flags=re.S)
    return mlcc.parse(text)


def extents(dtype: str, name: str, param: str) -> tuple[int, int]:
    """How many elements an index of a function picks from, and from where on it counts."""
    count = {"take_last": 5, "gather_last": 5, "gather_batches": 5, "nll_loss": 5, "nll_loss_mean": 5, "one_hot": 6}
    size = count.get(name, 5 if param == "j" and name in ("index_tensor", "index_put") else 7)
    return size, 0 if dtype.startswith("uint") or name.startswith("nll") else -size


def arguments(func: Any, name: str, dtype: str, rng: np.random.Generator) -> dict[str, np.ndarray[Any, Any]]:
    made: dict[str, np.ndarray[Any, Any]] = {}
    for param in func.params:
        info = param.struct_info
        shape = tuple(getattr(d, "value", 3) for d in info.dims)
        if name == "take_symbolic" and param.name == "x":
            shape = (7, 4)
        elif name == "take_of_nothing" and param.name == "x":
            shape = (int(rng.integers(2)) * 7, 5)
        if param.name not in INDICES:
            made[param.name] = rng.normal(size=shape).astype(str(info.dtype))
            continue
        size, least = extents(dtype if str(info.dtype) == dtype else "int64", name, param.name)
        values = rng.integers(least, size, shape)
        if name.startswith(("scatter_nd", "index_put", "gather_nd")) and values.ndim == 2:
            values %= 5
        made[param.name] = values.astype(str(info.dtype))
        if param.name == "s":
            made[param.name] = rng.choice([-3, -1, 1, 2, 4], shape).astype(np.int64)
    return made


def corrupted(values: np.ndarray[Any, Any], size: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    info = np.iinfo(values.dtype)
    near = [size, size + 1, size + 1000, -size - 1, -size - 2, -1, int(info.max), int(info.min), int(info.max) - size]
    made = values.copy()
    fitting = [v for v in near if info.min <= v <= info.max]
    made.flat[rng.integers(values.size)] = fitting[rng.integers(len(fitting))]
    return made


def outcome(run: _Way, args: list[np.ndarray[Any, Any]]) -> Any:
    """The result, or the error with the operator, the index and the extent that it names."""
    held = [guarded(a) for a in args]
    try:
        made = run(*(h.array for h in held))
    except CallError as problem:
        if "E0818" not in str(problem):
            raise
        found = re.search(r"`(R\.[\w.]+)`.*?index (-?\d+) is .*? (\d+)$", str(problem).splitlines()[0])
        assert found is not None, str(problem)
        return found.groups()
    finally:
        for h in held:
            h.check()
    return np.asarray(made)


def agree(name: str, got: Any, wanted: Any, what: str) -> None:
    if isinstance(wanted, tuple):
        assert isinstance(got, tuple), f"{name} {what}: no error, wanted {wanted}"
        assert got[0] == wanted[0] and got[2] == wanted[2], f"{name} {what}: {got} for {wanted}"
        return
    assert not isinstance(got, tuple), f"{name} {what}: {got}"
    np.testing.assert_allclose(got, wanted, 1e-5, 1e-5, err_msg=f"{name} {what}")


def cases(module: IRModule, dtype: str, count: int) -> Iterator[tuple[str, list[np.ndarray[Any, Any]]]]:
    for name, func in module.functions.items():
        rng = np.random.default_rng(zlib.crc32(f"{name} {dtype}".encode()))
        for number in range(count):
            args = arguments(func, name, dtype, rng)
            if number % 4:
                for param in rng.choice([p for p in args if p in INDICES], 1):
                    args[param] = corrupted(args[param], extents(dtype, name, param)[0], rng)
            yield name, list(args.values())


@pytest.mark.parametrize(("target", "level", "dtype"), WAYS)
def test_the_same_calls_fail(target: str, level: int, dtype: str) -> None:
    program = module(dtype)
    artifact = mlcc.build(program, target=target, opt_level=level)
    exe = mlcc.load(artifact, emulate=True) if target.startswith("cuda") else mlcc.load(artifact)
    failed = set()
    for name, args in cases(program, dtype, 24 if target.startswith("llvm") else 8):
        wanted = outcome(lambda *a, f=name: run_function(program, f, a), args)
        got = outcome(exe[name], args)
        agree(name, got, wanted, f"{[a.tolist() for a in args if a.dtype.kind in 'iu']}")
        failed |= {name} if isinstance(wanted, tuple) else set()
    never = {"take_clip", "take_wrap", "slices", "reversed", "one_hot"}
    assert failed >= {name for name in program.functions if name not in never | {"take_of_nothing"}}
    assert not failed & never


OTHERS = """
@R.function
def align(x: R.Tensor((2, 3, 8, 8), "float32"), r: R.Tensor((4, 5), "float32")):
    return R.vision.roi_align(x, r, (2, 2), 1.0, 2)

@R.function
def pool(x: R.Tensor((2, 3, 8, 8), "float32"), r: R.Tensor((4, 5), "float32")):
    return R.vision.roi_pool(x, r, (2, 2), 1.0)

@R.function
def draw(p: R.Tensor((3, 4), "float32"), u: R.Tensor((4, 1), "float32"), i: R.Tensor((4, 1), "int64")):
    return R.multinomial_from_uniform(p, u, i)

@R.function
def loss_backward(g: R.Tensor((4,), "float32"), x: R.Tensor((4, 5), "float32"), t: R.Tensor((4,), "int64")):
    return R.grad.nll_loss_backward(g, x, t, reduction="none")

@R.function
def take_backward(g: R.Tensor((4, 5), "float32"), x: R.Tensor((7, 5), "float32"), t: R.Tensor((4,), "int64")):
    return R.grad.take_backward(g, x, t, axis=0)

@R.function
def number(x: R.Tensor((7, 5), "float32"), k: R.Prim("int64")):
    return R.take(x, k, axis=0)

@R.function
def constant(x: R.Tensor(("n", 5), "float32")):
    return R.take(x, R.const([0, -2], "int64"), axis=0)
"""


@pytest.mark.parametrize(("target", "level"), [(CPU, 0), (CPU, 2), (CPU, 3), (GPU, 0), (GPU, 2)])
def test_other_operators_refuse_indices_outside(target: str, level: int) -> None:
    program = mlcc.parse(OTHERS)
    artifact = mlcc.build(program, target=target, opt_level=level)
    exe = mlcc.load(artifact, emulate=True) if target == GPU else mlcc.load(artifact)
    rng = np.random.default_rng(1)

    def floats(*shape: int) -> Any:
        return rng.random(shape).astype(np.float32)

    def regions(image: float) -> Any:
        made = np.array([[0, 0, 0, 4, 4], [1, 1, 1, 6, 6], [image, 2, 2, 7, 7], [1, 0, 0, 7, 7]], np.float32)
        return [floats(2, 3, 8, 8), made]

    chances = np.full((3, 4), 0.25, np.float32)
    calls: list[tuple[str, list[Any], bool]] = [
        *((name, regions(v), bad) for name in ("align", "pool") for v, bad in ((0, False), (2, True), (-1, True))),
        ("align", regions(1e30), True),
        *(("draw", [chances, floats(4, 1), np.array([[0], [v], [2], [1]])], v in (3, -1)) for v in (0, 3, -1)),
        *(("loss_backward", [floats(4), floats(4, 5), np.array([0, v, 4, 1])], v not in (2, -100))
          for v in (2, -100, 5, -1)),
        *(("take_backward", [floats(4, 5), floats(7, 5), np.array([0, v, 6, 1])], False) for v in (2, -1, -7, 7, -8)),
        *(("number", [floats(7, 5), k], not -7 <= k < 7) for k in (0, 6, -7, 7, -8, 2**63 - 1, -(2**63))),
        *(("constant", [floats(n, 5)], n < 2) for n in (3, 2, 1, 0)),
    ]  # fmt: skip
    for name, args, bad in calls:
        wanted = _value(lambda f=name, a=args: run_function(program, f, a))
        got = _value(lambda f=name, a=args: exe[f](*a))
        assert isinstance(wanted, str) == bad, (name, args, wanted)
        if bad and name == "loss_backward" and level >= 2 and not isinstance(got, str):
            continue  # the weight of a class that no element has is not asked for
        if bad:
            assert isinstance(got, str), (name, args, got)
            assert got.partition("index ")[2].split()[0] == wanted.partition("index ")[2].split()[0], (got, wanted)
        else:
            np.testing.assert_allclose(got, wanted, 1e-4, 1e-5, err_msg=name)


def _value(run: _Way) -> Any:
    try:
        return np.asarray(run())
    except CallError as problem:
        assert "E0818" in str(problem)
        return str(problem).splitlines()[0]
