"""Call overhead of an almost empty kernel, and of the digits model at batch sizes 1 and 64.

Measured as a plain call, a bound call, inside native code, and in NumPy.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from bench.measure import calls, machine, median_and_quartiles

DIGITS = Path(__file__).resolve().parent.parent / "samples" / "digits"


NOTHING = """
@R.function
def main(x: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
    return R.add(x, x)
"""


def overhead() -> None:
    """Measure calls of a kernel that adds 16 numbers."""
    import numpy as np

    import mlcc

    x, y = np.ones(16, np.float32), np.empty(16, np.float32)
    exe = mlcc.load(mlcc.build(mlcc.parse(NOTHING), target="llvm{cpu=native}"))
    function = exe["main"]
    times = calls({
        "an empty Python function": lambda: None,
        "numpy.add(x, x)": lambda: np.add(x, x),
        "bound call": function.bind(x, out=y),
        "exe['main'](x)": lambda: function(x),
        "exe['main'](x, out=y)": lambda: function(x, out=y),
    })  # fmt: skip
    print(f"calls of 16 additions, us; {machine()}")
    for name, samples in times.items():
        print(f"{name:28} {median_and_quartiles(samples)}")
    print(f"{'native':28} {exe.time_evaluator('main', number=10000)(x).median * 1e6:9.4f}")


def main() -> None:
    overhead()
    import numpy as np

    import mlcc
    from mlcc.driver import parse_file

    weights = np.load(DIGITS / "mlp.npz")
    w0, b0, w1, b1 = (weights[n] for n in ("w0", "b0", "w1", "b1"))
    exe = mlcc.load(mlcc.build(parse_file(str(DIGITS / "mlp.mlc")), target="llvm{cpu=native}"))
    print(f"calls of the digits model, us; {machine()}")
    for batch in (1, 64):
        x = np.random.default_rng(0).random((batch, 64), dtype=np.float32)
        y = np.empty((batch, 10), np.float32)
        main_function = exe["main"]
        times = calls({
            "numpy": lambda x=x: np.maximum(x @ w0.T + b0, 0) @ w1.T + b1,
            "exe['main'](x)": lambda x=x, f=main_function: f(x),
            "bound call": main_function.bind(x, out=y),
        })  # fmt: skip
        base = statistics.median(times["numpy"])
        native = exe.time_evaluator("main", number=200)(x).median * 1e6
        for name, samples in times.items():
            print(
                f"batch {batch:3} {name:18} {median_and_quartiles(samples)}   "
                f"{base / statistics.median(samples):6.2f} x numpy"
            )
        print(f"batch {batch:3} {'native':18} {native:9.2f}")
