"""Every case once on the GPU, for compute-sanitizer to look on: `python -m tests.hardware.sanitized`."""

from __future__ import annotations

import sys

import numpy as np

import mlcc
from tests.hardware.cases import CASES


def main() -> int:
    wrong = 0
    for name, case in CASES.items():
        args = case.arrays()
        want = mlcc.load(mlcc.build(case.module()))["main"](*args)
        got = mlcc.load(mlcc.build(case.module(), target="cuda{arch=native}"))["main"](*args)
        same = np.allclose(got, want, rtol=case.tolerance, atol=case.tolerance)
        wrong += not same
        print(f"{name}: {'equal' if same else 'DIFFERENT'}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
