"""Run the benchmarks named on the command line, or all of them.

Those of `OPTIONED` take options.
"""

from __future__ import annotations

import importlib
import os
import sys

NAMES = (
    "startup",
    "memory",
    "parsing",
    "calls",
    "schedules",
    "analysis",
    "threads",
    "pauses",
    "small",
    "math",
    "compile",
    "speed",
)
OPTIONED = {  # those that take options, which run alone
    "startup": "bench.startup",
    "speed": "bench.speed.command",
    "compile": "bench.compile.command",
    "memory": "bench.memory",
    "kernels": "bench.kernels",
    "pauses": "bench.pauses",
    "small": "bench.small",
    "alone": "bench.compile.alone",
    "gpu": "bench.gpu.command",
    "math": "bench.math",
    "tune": "bench.tune",
    "imports": "bench.imports",
    "ops": "bench.operators",
    "llm": "bench.language_model",
    "dynamic": "bench.dynamic",
    "cpus": "bench.cpu_models",
    "precisions": "bench.precisions.command",
    "sass": "bench.gpu.sass",
}


def main() -> int:
    pinned = [n for n in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE") if n in os.environ]
    if pinned:
        print(
            f"unset {' and '.join(pinned)}: NumPy would run with kernels that are not this machine's", file=sys.stderr
        )
        return 2
    if sys.argv[1:] and sys.argv[1] in OPTIONED:
        return importlib.import_module(OPTIONED[sys.argv[1]]).main(sys.argv[2:]) or 0
    for name in sys.argv[1:] or NAMES:
        if name not in NAMES:
            print(f"no benchmark `{name}`; there are {', '.join(NAMES)}", file=sys.stderr)
            return 2
        if name in OPTIONED:
            importlib.import_module(OPTIONED[name]).main([])
        else:
            importlib.import_module(f"bench.{name}").main()
    return 0


sys.exit(main())
