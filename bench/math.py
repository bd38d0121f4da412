"""Elementary functions: nanoseconds per element against NumPy, compilation cost per function, and maximum errors.

python -m bench math                      # times
python -m bench math --ulps --every 1     # the greatest error over all 2**32 floats (every one)
python -m bench math --ulps --write       # put the table of errors into docs/math.md
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench import ulps
from bench.measure import calls, machine

PLACE = Path(__file__).resolve().parent.parent / "docs" / "math.md"
MARKS = ("<!-- errors: python -m bench math --ulps --write -->", "<!-- end of errors -->")
BINARY = ("pow", "atan2", "hypot")
UNARY = tuple(n for n in ulps.TRUTH if n not in (*BINARY, "fmod"))
COUNT = 128 * 1024
LOOPS = ("T.vectorized", "T.serial")
CPUS = ("native", "x86-64")
_CHUNK = 1 << 16

KERNEL = """
@T.prim_func
def f({params}):
    T.func_attr({{"tir.noalias": True}})
    for i in {loop}({count}):
        B[i] = {value}
"""


def kernel(name: str, dtype: str, count: int, cpu: str = "native", loop: str = "T.serial") -> Any:
    """Compile a function over `count` elements; an empty `name` stands for x + 1."""
    import mlcc

    buffers = ["A", "C"] if name in BINARY else ["A"]
    args = ", ".join(f"{b}[i]" for b in buffers)
    value = f"T.{name}({args})" if name else f"A[i] + T.{dtype}(1)"
    params = ", ".join(f'{b}: T.Buffer(({count},), "{dtype}")' for b in [*buffers, "B"])
    text = KERNEL.format(params=params, loop=loop, count=count, value=value)
    target = "llvm{cpu=native}" if cpu == "native" else f"llvm{{cpu={cpu}}}"
    return mlcc.build(mlcc.parse(text), target=target)


def _numpy(name: str) -> Any:
    """Return NumPy's equivalent, in the dtype of the array, or None if there is none."""
    if name in ("erf", "exp10"):
        return None
    return ulps.TRUTH[name] if name != "sigmoid" else lambda x: 1 / (1 + np.exp(-x))


def times() -> None:
    """Time a vectorized and a scalar loop over an array of softmax size; report NumPy's time over the first."""
    import mlcc

    print(f"elementary functions, ns per element; {machine()}")
    for dtype in ("float32", "float64"):
        for name in (*UNARY, *BINARY):
            rng = np.random.default_rng(0)
            args = [(rng.random(COUNT) * 0.9 + 0.05).astype(dtype) for _ in range(2 if name in BINARY else 1)]
            if name == "acosh":
                args[0] += 1
            out = np.empty(COUNT, dtype)
            bound = [mlcc.load(kernel(name, dtype, COUNT, loop=loop))["f"].bind(*args, out) for loop in LOOPS]
            cases = dict(zip(LOOPS, bound, strict=True))
            reference = _numpy(name)
            if reference is not None:
                cases["numpy"] = lambda r=reference, a=args: r(*a)
            medians = {k: statistics.median(v) * 1e3 / COUNT for k, v in calls(cases, rounds=21, least_ms=1).items()}
            line = f"{dtype} {name:8} " + "  ".join(f"{k} {v:6.2f}" for k, v in medians.items())
            print(line + (f"  {medians['numpy'] / medians['T.vectorized']:6.2f} x" if reference else ""), flush=True)


def compile_times() -> None:
    """Measure the milliseconds that a function adds to the compilation of a kernel."""
    names = ("", "exp", "tanh", "erf", "log", "sin", "pow")
    samples: dict[str, list[float]] = {n: [] for n in names}
    for count in range(7):
        for name in names:
            begin = time.perf_counter()
            kernel(name, "float32", 1024 + count)
            samples[name].append((time.perf_counter() - begin) * 1e3)
    base = statistics.median(samples[""])
    print(f"compiling a kernel of x + 1: {base:.0f} ms; with a function:")
    for name in names[1:]:
        print(f"  {name:8} {statistics.median(samples[name]) - base:+6.1f} ms")


# ---------------------------------------------------------------- errors


def worst(name: str, dtype: str, cpu: str, every: int) -> float:
    """Return the maximum error: for float32 over every `every`th bit pattern, for float64 over random ones."""
    import mlcc

    f = mlcc.load(kernel(name, dtype, _CHUNK, cpu))["f"]
    most = 0.0
    chunks = max(1, 2**32 // (every * _CHUNK)) if dtype == "float32" and name not in BINARY else 32
    for number in range(chunks):
        if dtype == "float32" and name not in BINARY:
            start = number * _CHUNK * every + number % every
            bits = start + np.arange(_CHUNK, dtype=np.uint64) * every
            args = [bits.astype(np.uint32).view(np.float32)]
        else:
            draw = ulps.usual if number % 2 else ulps.anywhere
            args = [draw(dtype, _CHUNK, 2 * number + k) for k in range(2 if name in BINARY else 1)]
            if name == "pow":
                args[0] = np.abs(args[0])
        out = np.empty(_CHUNK, dtype)
        f(*args, out)
        most = max(most, _worst_of(name, args, out))
    return most


def _worst_of(name: str, args: list[np.ndarray[Any, Any]], out: np.ndarray[Any, Any]) -> float:
    """Return the maximum error, computed only where the result is furthest from the rounded reference."""
    with np.errstate(all="ignore"):
        truth = ulps.TRUTH[name](*(a.astype(ulps.wide(str(out.dtype))) for a in args))
        near = truth.astype(out.dtype)
        kind = np.int32 if out.dtype == np.float32 else np.int64
        steps = np.abs((out.view(kind).astype(np.int64) - near.view(kind)).astype(np.float64))
        steps[np.isnan(out) & np.isnan(near)] = 0
        chosen = steps >= steps.max()
        return float(ulps.distance(out[chosen], truth[chosen]).max())


def errors(every: int, write: bool, only: list[str]) -> None:
    """Return the table of maximum errors."""
    rows = [
        "| function | float32, with fma | without | float64, with fma | without |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name in only or (*UNARY, *BINARY):
        worst_errors = [worst(name, dtype, cpu, every) for dtype in ("float32", "float64") for cpu in CPUS]
        rows.append(f"| {name} | " + " | ".join(f"{v:.2f}" for v in worst_errors) + " |")
        print(rows[-1], flush=True)
    if write:
        text = PLACE.read_text()
        head, _, rest = text.partition(MARKS[0])
        _, _, tail = rest.partition(MARKS[1])
        PLACE.write_text("\n".join([head + MARKS[0], "", *rows, "", MARKS[1] + tail]))


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench math", description=__doc__)
    parser.add_argument("--ulps", action="store_true", help="maximum errors instead of times")
    parser.add_argument("--every", type=int, default=509, help="check every Nth float32")
    parser.add_argument("--only", default="", help="functions to measure, such as exp,log; nothing is written")
    parser.add_argument("--write", action="store_true", help="write the table into docs/math.md")
    options = parser.parse_args(argv or [])
    if options.ulps:
        errors(options.every, options.write and not options.only, options.only.split(",") if options.only else [])
    else:
        compile_times()
        times()
