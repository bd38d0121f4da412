"""Elementwise operators, reductions, scans, sorting and data movement beside NumPy and PyTorch, one by one.

`python -m bench ops [--only WORDS] [--sizes 1e3,1e5,1e7] [--threads N] [--level N] [--slower]`: microseconds of a call
with results in memory that is there already, where the library can, and how many times as fast mlcc is as the better of
the two. Calls are interleaved in one process. Results are compared before they are timed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.measure import calls, default_level, machine

Array = np.ndarray[Any, Any]
SIZES = {
    1_000: ((25, 40), (10, 10, 10)),
    100_000: ((250, 400), (40, 50, 50)),
    10_000_000: ((2500, 4000), (200, 250, 200)),
}
FLOAT, INT, BOOL = "float32", "int32", "bool"


@dataclass(frozen=True)
class Case:
    """An operator: its expression over parameters `a`, `b`, `c`, their dtypes and what the peers call.

    `rank` 1, 2 or 3 says which shape of a size the operands have. Peers get the operands and `out`, memory for the
    result. In `value`, `{n}` is the last extent of the first operand.
    """

    name: str
    value: str
    numpy: Callable[..., Any] | None
    torch: Callable[..., Any] | None
    dtypes: tuple[str, ...] = (FLOAT,)
    rank: int = 1
    low: float = -2.0  # of the operands, which are uniform
    high: float = 2.0
    shapes: Callable[..., list[tuple[int, ...]]] | None = None  # of operands with shapes of their own
    largest: int = 10_000_000

    def operand_shapes(self, size: int) -> list[tuple[int, ...]]:
        shape = (size,) if self.rank == 1 else SIZES[size][self.rank - 2]
        return [shape] * len(self.dtypes) if self.shapes is None else self.shapes(*shape)

    def source(self, size: int) -> str:
        shapes = self.operand_shapes(size)
        params = ", ".join(
            f'{name}: R.Tensor({shape}, "{dtype}")'
            for name, shape, dtype in zip("abc", shapes, self.dtypes, strict=False)
        )
        value = self.value.format(n=shapes[0][-1])
        return (
            f"@R.function\ndef main({params}):\n    with R.dataflow():\n        y = {value}\n"
            "        R.output(y)\n    return y\n"
        )

    def operands(self, size: int) -> list[Array]:
        random = np.random.default_rng(0)
        made = []
        for shape, dtype in zip(self.operand_shapes(size), self.dtypes, strict=True):
            values = random.uniform(self.low, self.high, shape)
            made.append(values > 0 if dtype == BOOL else values.astype(dtype))
        return made


def cases() -> list[Case]:
    """Return all cases; those of PyTorch are left out where it is missing."""
    try:
        import torch as t
    except ImportError:
        t = None  # type: ignore[assignment]

    def peer(make: Callable[[Any], Callable[..., Any]]) -> Callable[..., Any] | None:
        return None if t is None else make(t)

    def unary(name: str, numpy: Any, torch: str = "", **more: Any) -> Case:
        call = None if numpy is None else lambda a, out: numpy(a, out=out)
        return Case(
            name, f"R.{name}(a)", call, peer(lambda t: lambda a, out: getattr(t, torch or name)(a, out=out)), **more
        )

    def binary(
        name: str, numpy: Any, torch: str, dtypes: tuple[str, ...] = (FLOAT, FLOAT), tag: str = "", **more: Any
    ) -> Case:
        return Case(
            f"{name}{tag}", f"R.{name}(a, b)", lambda a, b, out: numpy(a, b, out=out),
            peer(lambda t: lambda a, b, out: getattr(t, torch)(a, b, out=out)), dtypes, **more,
        )  # fmt: skip

    def reduction(name: str, numpy: Any, torch: str, dtype: str = FLOAT) -> list[Case]:
        made = []
        for tag, axis, rank in (("all", None, 1), ("rows", 1, 2), ("columns", 0, 2), ("middle", 1, 3)):

            def np_call(a: Array, out: Any, axis: Any = axis) -> Any:
                return numpy(a, axis=axis, out=out) if axis is not None else numpy(a)

            def torch_make(t: Any, axis: Any = axis) -> Callable[..., Any]:
                function = getattr(t, torch)
                if axis is None:
                    return lambda a, out: function(a)
                return lambda a, out: function(a, axis, out=out)

            given = "" if axis is None else f", axis={axis}"
            tagged = f"{name} {tag}" + ("" if dtype == FLOAT else f" {dtype}")
            made.append(Case(tagged, f"R.{name}(a{given})", np_call, peer(torch_make), (dtype,), rank))
        return made

    def scan(name: str, numpy: Any, dtype: str = FLOAT, low: float = -2.0, high: float = 2.0) -> list[Case]:
        return [
            Case(
                f"{name} {tag}", f"R.{name}(a, axis={axis})",
                lambda a, out, axis=axis: numpy(a, axis=axis, out=out),
                peer(lambda t, axis=axis: lambda a, out: getattr(t, name)(a, axis, out=out)),
                (dtype,), rank, low, high,
            )
            for tag, axis, rank in (("flat", 0, 1), ("rows", 1, 2), ("columns", 0, 2))
        ]  # fmt: skip

    def np_sort(a: Array, out: Any) -> Any:
        np.copyto(out, a)
        out.sort(axis=-1)
        return out

    def np_topk(a: Array, out: Any) -> Any:
        found = np.argpartition(a, a.shape[-1] - 10, axis=-1)[..., -10:]
        return -np.sort(-np.take_along_axis(a, found, -1), axis=-1)

    def values(name: str, *more: int) -> Callable[..., Any] | None:
        """Call a function of PyTorch that returns values and indices: the values count."""
        return peer(lambda t: lambda a, out: getattr(t, name)(a, *more)[0])

    rows = lambda m, n: [(m, n), (m, n)]  # noqa: E731
    return [
        unary("exp", np.exp), unary("log", np.log, low=0.01), unary("tanh", np.tanh), unary("erf", None, "erf"),
        unary("sqrt", np.sqrt, low=0.01), unary("sigmoid", None), unary("sin", np.sin), unary("abs", np.abs),
        Case("nn.relu", "R.nn.relu(a)", lambda a, out: np.maximum(a, np.float32(0), out=out),
             peer(lambda t: lambda a, out: t.clamp(a, min=0, out=out))),
        Case("nn.gelu", "R.nn.gelu(a)", None, peer(lambda t: lambda a, out: t.nn.functional.gelu(a))),
        Case("nn.silu", "R.nn.silu(a)", None, peer(lambda t: lambda a, out: t.nn.functional.silu(a))),
        binary("power", np.power, "pow", low=0.01),
        binary("add", np.add, "add"), binary("multiply", np.multiply, "mul"),
        binary("divide", np.divide, "div", low=0.1),
        binary("add", np.add, "add", (INT, INT), " int32", low=-1000, high=1000),
        binary("multiply", np.multiply, "mul", (INT, INT), " int32", low=-1000, high=1000),
        binary("logical_and", np.logical_and, "logical_and", (BOOL, BOOL)),
        binary("greater", np.greater, "gt"),
        Case("where", "R.where(a, b, c)", lambda a, b, c, out: np.where(a, b, c),
             peer(lambda t: lambda a, b, c, out: t.where(a, b, c)), (BOOL, FLOAT, FLOAT)),
        Case("astype int32", 'R.astype(a, "int32")', lambda a, out: np.copyto(out, a, casting="unsafe") or out,
             peer(lambda t: lambda a, out: out.copy_(a)), low=-1000, high=1000),
        *reduction("sum", np.sum, "sum"), *reduction("mean", np.mean, "mean"), *reduction("max", np.max, "amax"),
        *reduction("argmax", np.argmax, "argmax"), *reduction("argmin", np.argmin, "argmin"),
        Case("sum all int32", "R.sum(a)", lambda a, out: np.sum(a, dtype=np.int32),
             peer(lambda t: lambda a, out: t.sum(a, dtype=t.int32)), (INT,), low=-1000, high=1000),
        Case("max all int32", "R.max(a)", lambda a, out: np.max(a), peer(lambda t: lambda a, out: t.max(a)), (INT,),
             low=-1000, high=1000),
        *scan("cumsum", np.cumsum), *scan("cumprod", np.cumprod, low=0.99, high=1.01),
        *(Case(f"nn.{name} rows", f"R.nn.{name}(a, axis=-1)", None,
               peer(lambda t, name=name: lambda a, out: getattr(t, name)(a, -1)), rank=2)
          for name in ("softmax", "log_softmax")),
        Case("nn.layer_norm rows", "R.nn.layer_norm(a, b, c, axes=-1)", None,
             peer(lambda t: lambda a, b, c, out: t.nn.functional.layer_norm(a, b.shape, b, c)), (FLOAT,) * 3, 2,
             shapes=lambda m, n: [(m, n), (n,), (n,)]),
        Case("sort flat", "R.sort(a)", np_sort, values("sort"), largest=100_000),
        Case("sort rows", "R.sort(a)", np_sort, values("sort"), rank=2),
        Case("sort rows int32", "R.sort(a)", np_sort, values("sort"), (INT,), rank=2, low=-1e6, high=1e6),
        Case("argsort rows", "R.argsort(a)", lambda a, out: np.argsort(a, -1, kind="stable"),
             peer(lambda t: lambda a, out: t.argsort(a, stable=True)), rank=2),
        Case("topk 10 rows", 'R.topk(a, k=10, ret_type="values")', np_topk, values("topk", 10), rank=2),
        Case("topk 10 flat", 'R.topk(a, k=10, ret_type="values")', np_topk, values("topk", 10)),
        Case("concat first", "R.concat((a, b), axis=0)", lambda a, b, out: np.concatenate((a, b), 0, out=out),
             peer(lambda t: lambda a, b, out: t.cat((a, b), 0, out=out)), (FLOAT, FLOAT), 2, shapes=rows),
        Case("concat last", "R.concat((a, b), axis=1)", lambda a, b, out: np.concatenate((a, b), 1, out=out),
             peer(lambda t: lambda a, b, out: t.cat((a, b), 1, out=out)), (FLOAT, FLOAT), 2, shapes=rows),
        Case("split last", "R.split(a, 2, axis=1)[1]", lambda a, out: np.copyto(out, a[:, a.shape[1] // 2 :]) or out,
             peer(lambda t: lambda a, out: out.copy_(t.split(a, a.shape[1] // 2, 1)[1])), rank=2),
        Case("transpose", "R.permute_dims(a)", lambda a, out: np.copyto(out, a.T) or out,
             peer(lambda t: lambda a, out: out.copy_(a.T)), rank=2),
        Case("transpose 0 2 1", "R.permute_dims(a, axes=[0, 2, 1])",
             lambda a, out: np.copyto(out, a.transpose(0, 2, 1)) or out,
             peer(lambda t: lambda a, out: out.copy_(a.permute(0, 2, 1))), rank=3),
        Case("take rows", "R.take(a, b, axis=0)", lambda a, b, out: np.take(a, b, 0, out=out, mode="clip"),
             peer(lambda t: lambda a, b, out: t.index_select(a, 0, b, out=out)), (FLOAT, INT), 2, 0, 25,
             shapes=lambda m, n: [(m, n), (m,)]),
        Case("gather_elements", "R.gather_elements(a, b, axis=1)", lambda a, b, out: np.take_along_axis(a, b, 1),
             peer(lambda t: lambda a, b, out: t.gather(a, 1, b, out=out)), (FLOAT, "int64"), 2, 0, 40, shapes=rows),
        Case("one_hot", "R.one_hot(a, R.prim_value(T.float32(1)), R.prim_value(T.float32(0)), depth={n}, axis=-1)",
             None, peer(lambda t: lambda a, out, *rest: t.nn.functional.one_hot(a, out.shape[-1])),
             ("int64",), 2, 0, 25, shapes=lambda m, n: [(m,)]),
    ]  # fmt: skip


def prepare(case: Case, size: int, level: int) -> dict[str, Callable[[], object]]:
    """Return a call of each competitor that computes what NumPy, or PyTorch without it, does."""
    import mlcc

    operands = case.operands(size)
    exe = mlcc.load(mlcc.build(mlcc.parse(case.source(size)), target="llvm{cpu=native}", opt_level=level))
    result = exe["main"](*operands)
    made: dict[str, Callable[[], object]] = {"mlcc": exe["main"].bind(*operands, out=result)}
    if case.numpy is not None:
        numpy, array = case.numpy, np.empty_like(result)
        if array.dtype.kind == "i":
            array = array.astype(np.asarray(numpy(*operands, out=None)).dtype) if "arg" in case.name else array
        _compare(case, result, numpy(*operands, out=array))
        made["numpy"] = lambda: numpy(*operands, out=array)
    if case.torch is not None:
        import torch

        peer, tensors = case.torch, [torch.from_numpy(a) for a in operands]
        wide = "arg" in case.name
        place = torch.from_numpy(result.astype(np.int64) if wide else result.copy())
        _compare(case, result, peer(*tensors, out=place).numpy())
        made["torch"] = lambda: peer(*tensors, out=place)
    return made


def _compare(case: Case, got: Any, want: Any) -> None:
    got, want = np.asarray(got).astype(np.float64), np.asarray(want).astype(np.float64)
    off = np.abs(got.reshape(want.shape) - want).max(initial=0.0) / max(1.0, np.abs(want).max(initial=0.0))
    if not off < 2e-3:
        raise ValueError(f"{case.name}: off by {off:.1e}")


def main(argv: list[str] | None = None) -> None:
    options = _arguments(argv or [])
    import mlcc

    mlcc.set_num_threads(options.threads)
    peers = ["numpy"]
    try:
        import torch

        torch.set_num_threads(options.threads)
        peers.append("torch")
    except ImportError:
        print("torch is skipped: not installed")
    words = options.only.split(",") if options.only else [""]
    sizes = [int(float(s)) for s in options.sizes.split(",")]
    print(f"us of a call, {options.threads} threads; {machine()}")
    print(f"{'operator':22} {'elements':>9} {'mlcc':>10} {'numpy':>10} {'torch':>10}   best / mlcc")
    for case in (c for c in cases() if any(w in c.name for w in words)):
        for size in (s for s in sizes if s <= case.largest):
            try:
                found = calls(prepare(case, size, options.level), rounds=9, least_ms=1.0)
            except Exception as exc:
                print(f"{case.name:22} {size:9}  {type(exc).__name__}: {str(exc).splitlines()[0]}", flush=True)
                continue
            medians = {name: statistics.median(samples) for name, samples in found.items()}
            ratio = min(medians[p] for p in peers if p in medians) / medians["mlcc"]
            if ratio < 1 or not options.slower:
                cells = " ".join(
                    f"{medians[p]:10.1f}" if p in medians else f"{'-':>10}" for p in ("mlcc", "numpy", "torch")
                )
                print(f"{case.name:22} {size:9} {cells}   {ratio:6.2f} x", flush=True)


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench ops", description=__doc__)
    parser.add_argument("--only", help="operators whose names contain one of these, separated by commas")
    parser.add_argument("--sizes", default="1e3,1e5,1e7", help="numbers of elements, of these; default: %(default)s")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--level", type=int, default=default_level(), help="optimization level; default: %(default)s")
    parser.add_argument("--slower", action="store_true", help="only where mlcc is slower")
    return parser.parse_args(argv)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(sys.argv[1:])
