"""Interleaved timing of whole commands and of callables."""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence


def commands(cases: dict[str, Sequence[str]], rounds: int = 15) -> dict[str, list[tuple[float, float, float]]]:
    """Run each command once per round, interleaved; return (wall ms, CPU ms, peak MiB) per run. Raises if one fails."""
    samples: dict[str, list[tuple[float, float, float]]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, argv in cases.items():
            begin = time.perf_counter()
            process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            _, status, usage = os.wait4(process.pid, 0)
            wall = time.perf_counter() - begin
            process.returncode = status  # it is waited for
            assert process.stderr is not None
            with process.stderr as said:
                if status != 0:
                    raise RuntimeError(f"{name}: {said.read().decode()[-500:]}")
            samples[name].append((wall * 1e3, (usage.ru_utime + usage.ru_stime) * 1e3, usage.ru_maxrss / 1024))
    return samples


def calls(cases: dict[str, Callable[[], object]], rounds: int = 25, least_ms: float = 2.0) -> dict[str, list[float]]:
    """Return microseconds per call; cases are interleaved, and a sample repeats the call for at least `least_ms`."""
    numbers = {}
    for name, call in cases.items():
        number = 1
        while True:
            begin = time.perf_counter()
            for _ in range(number):
                call()
            if (time.perf_counter() - begin) * 1e3 >= least_ms:
                break
            number *= 2
        numbers[name] = number
    samples: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, call in cases.items():
            begin = time.perf_counter()
            for _ in range(numbers[name]):
                call()
            samples[name].append((time.perf_counter() - begin) * 1e6 / numbers[name])
    return samples


def median_and_quartiles(samples: Sequence[float]) -> str:
    """Format the median and the interquartile range."""
    quarters = statistics.quantiles(samples, n=4)
    return f"{statistics.median(samples):9.2f}  [{quarters[0]:.2f} .. {quarters[2]:.2f}]"


def machine() -> str:
    """Return one line that describes this machine."""
    with open("/proc/cpuinfo") as info:
        model = next((line.split(":")[1].strip() for line in info if line.startswith("model name")), "unknown CPU")
    cores = len(os.sched_getaffinity(0))
    return f"{model}, {cores} cores, load {os.getloadavg()[0]:.1f}"


def prefer(process: int | str, nice: int) -> None:
    """Set the priority of a process's session, where Linux groups tasks by session and root asks."""
    with contextlib.suppress(OSError), open(f"/proc/{process}/autogroup", "w") as file:
        file.write(str(nice))


def default_level() -> int:
    """Return the default optimization level of `mlcc.build`."""
    from mlcc.passes.manage.levels import DEFAULT

    return DEFAULT
