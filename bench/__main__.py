"""Run the benchmarks named on the command line, or all of them.

`speed`, `pauses`, `math`, `kernels` and `gpu` take options.
"""

from __future__ import annotations

import importlib
import os
import sys

NAMES = ("startup", "parsing", "calls", "schedules", "analysis", "threads", "pauses", "math", "speed")


def main() -> int:
    pinned = [n for n in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE") if n in os.environ]
    if pinned:
        print(
            f"unset {' and '.join(pinned)}: NumPy would run with kernels that are not this machine's", file=sys.stderr
        )
        return 2
    if sys.argv[1:2] == ["speed"]:
        from bench.speed.command import main as speed

        return speed(sys.argv[2:])
    if sys.argv[1:2] == ["kernels"]:
        from bench.kernels import main as kernels

        return kernels(sys.argv[2:])
    if sys.argv[1:2] == ["pauses"]:
        from bench.pauses import main as pauses

        return pauses(sys.argv[2:])
    if sys.argv[1:2] == ["gpu"]:
        from bench.gpu.command import main as gpu

        return gpu(sys.argv[2:])
    if sys.argv[1:2] == ["math"]:
        from bench.math import main as math

        math(sys.argv[2:])
        return 0
    for name in sys.argv[1:] or NAMES:
        if name not in NAMES:
            print(f"no benchmark `{name}`; there are {', '.join(NAMES)}", file=sys.stderr)
            return 2
        if name == "speed":
            from bench.speed.command import main as speed

            speed([])
        else:
            importlib.import_module(f"bench.{name}").main()
    return 0


sys.exit(main())
