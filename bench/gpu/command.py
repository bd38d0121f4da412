"""`python -m bench gpu [--quick] [--only NAME] [--level N]`: interleaved samples, timed by events of one stream."""

from __future__ import annotations

import argparse
import datetime
import statistics
from pathlib import Path
from typing import Any

import numpy as np

import mlcc
from bench.gpu.peers import Once, peers
from bench.gpu.workloads import Workload, reference, widened, workloads
from bench.measure import default_level
from mlcc.errors import MlccError
from mlcc.machine.gpu import best_for
from mlcc.runtime.cuda import default_device
from mlcc.runtime.cuda.device import CudaDevice

PAGE = Path(__file__).resolve().parents[2] / "docs" / "gpu-speed.md"
START, END = "<!-- figures -->", "<!-- end of figures -->"
_LEAST = 5e-3  # seconds of a sample


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench gpu", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds; nothing is recorded")
    parser.add_argument("--only", default="", help="workloads whose names contain this")
    parser.add_argument("--level", type=int, default=default_level(), help="optimization level")
    parser.add_argument("--rounds", type=int, default=15)
    asked = parser.parse_args(argv)
    try:
        device = default_device()
    except MlccError as exc:
        print(f"skipped: {exc.diagnostics[0].message}")
        return 0
    rounds = 3 if asked.quick else asked.rounds
    bandwidth = copy_bandwidth(device, 1 << (24 if asked.quick else 30), rounds)
    print(f"{describe(device)}; copies at {bandwidth / 1e9:.0f} GB/s", flush=True)
    lines = []
    for work in workloads(asked.quick):
        if asked.only in work.name and work.runs_on(device.capability):
            lines.append(one(work, device, asked.level, rounds, bandwidth))
            print(lines[-1], flush=True)
    if not asked.quick and not asked.only:
        record(lines, describe(device), bandwidth, asked.level)
    return 0


def describe(device: CudaDevice) -> str:
    major, minor = device.capability
    cuda = ".".join(map(str, device.version))
    return f"{device.name} (compute capability {major}.{minor}, driver for CUDA {cuda}, {device.driver.package})"


def copy_bandwidth(device: CudaDevice, size: int, rounds: int) -> float:
    """Measure the bytes per second read and written by copies within the device."""
    source, target = device.alloc(size), device.alloc(size)
    try:
        times = sample({"copy": lambda: device.copy(target, source, size)}, device, rounds)["copy"]
    finally:
        device.free(source)
        device.free(target)
    return 2 * size / statistics.median(times)


def sample(cases: dict[str, Once], device: CudaDevice, rounds: int) -> dict[str, list[float]]:
    """Return seconds per run of interleaved cases, repeated until a sample is long enough."""
    counts = {}
    for name, once in cases.items():
        once()
        device.synchronize()
        start = device.record()
        once()
        spent = device.elapsed(start, device.record())
        counts[name] = max(1, int(_LEAST / max(spent, 1e-7)))
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, once in cases.items():
            start = device.record()
            for _ in range(counts[name]):
                once()
            times[name].append(device.elapsed(start, device.record()) / counts[name])
    return times


def one(work: Workload, device: CudaDevice, level: int, rounds: int, bandwidth: float) -> str:
    """Return a line of the table."""
    target = f"cuda{{arch={best_for(device.capability)}}}"
    try:
        exe: Any = mlcc.load(mlcc.build(work.module(), target=target, opt_level=level), device=device)
    except MlccError as exc:
        return f"| {work.name} | not built: {exc.diagnostics[0].message} | | | | |"
    arrays = work.arrays()
    given = [exe.to_device(a) for a in arrays]
    call = exe["main"].bind(*given)
    have, want = widened(call().numpy()[:4]), reference(work, arrays)
    scale = np.abs(want).max()
    wrong = float(np.abs(have - want).max() / scale)
    cases: dict[str, Once] = {"mlcc": call, **dict(peers(work, given, device.stream))}
    medians = {name: statistics.median(times) for name, times in sample(cases, device, rounds).items()}
    mine = medians.pop("mlcc")
    rate = f"{work.flops / mine / 1e12:.1f} TFLOP/s" if work.flops else f"{work.bytes / mine / 1e9:.0f} GB/s"
    best = min(medians.values(), default=None)
    if work.flops:
        part = "no peer here" if best is None else f"{best / mine:.2f} x the best peer"
    else:
        part = f"{work.bytes / mine / bandwidth:.2f} x the copy bandwidth"
    others = ", ".join(f"{name} {seconds * 1e6:.0f} us" for name, seconds in medians.items()) or "none"
    return f"| {work.name} | {mine * 1e6:.0f} us | {rate} | {part} (asked: {work.goal}) | {others} | {wrong:.1e} |"


def record(lines: list[str], device: str, bandwidth: float, level: int) -> None:
    """Update the figures in docs/gpu-speed.md."""
    head = (
        f"{datetime.date.today().isoformat()}, {device}, `-O{level}`, copies at {bandwidth / 1e9:.0f} GB/s:\n\n"
        "| workload | time | rate | beside | peers | greatest error |\n| --- | --- | --- | --- | --- | --- |\n"
    )
    text = PAGE.read_text()
    before, _, rest = text.partition(START)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{START}\n{head}{chr(10).join(lines)}\n{END}{after}")
    print(f"recorded in {PAGE}")
