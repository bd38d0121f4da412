"""`python -m bench.tune_pair DEFAULT TUNED INPUTS THREADS SAMPLES FIRST`: time two
objects interleaved in a fresh process.

Prints the ratios as JSON. FIRST (0 or 1) selects the object that is loaded and called first.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np

import mlcc

SAMPLE, ROUNDS = 0.002, 3  # seconds of a round; the least of so many is a sample


def ratios(
    calls: Sequence[Callable[[], object]], samples: int, clock: Callable[[], float], least: float = SAMPLE
) -> list[float]:
    """Return the time ratios of the second call to the first; rounds alternate in which call begins."""
    counts = [_count(call, clock, least) for call in calls]
    quotients = []
    for turn in range(samples):
        best = [float("inf")] * len(calls)
        for _ in range(ROUNDS):
            for at in sorted(range(len(calls)), reverse=bool(turn % 2)):
                began = clock()
                for _ in range(counts[at]):
                    calls[at]()
                best[at] = min(best[at], (clock() - began) / counts[at])
        quotients.append(best[1] / best[0])
    return quotients


def _count(call: Callable[[], object], clock: Callable[[], float], least: float) -> int:
    """Return the number of calls that take about `least` seconds, at least 1."""
    call()
    began = clock()
    call()
    return max(1, int(least / max(clock() - began, 1e-7)))


def main(argv: Sequence[str]) -> None:
    usual, tuned, inputs, threads, samples, first = argv
    mlcc.set_num_threads(int(threads))
    with np.load(inputs) as arrays:
        given = {name: np.array(arrays[name]) for name in arrays.files}
    paths = [usual, tuned]
    calls: dict[int, Callable[[], object]] = {}
    for at in (int(first), 1 - int(first)):
        function = mlcc.load(paths[at])["main"]
        values = [given[name] for name in given]
        calls[at] = lambda function=function, values=values: function(*values)  # type: ignore[misc]
    clock = time.thread_time if int(threads) == 1 else time.perf_counter
    print(json.dumps(ratios([calls[0], calls[1]], int(samples), clock)))


if __name__ == "__main__":
    main(sys.argv[1:])
