"""Measure the machine's peak rates: fused multiply-adds a second, and bytes a second from each memory level.

Both by microbenchmarks in LLVM IR, in CPU time of the thread; the best of several samples counts.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from mlcc.machine.host import caches, cpu_features

LEVELS = ("L1", "L2", "L3", "DRAM")


@dataclass(frozen=True)
class PeakRates:
    """Operations a second (a multiply-add is two), and for each level its name, bytes a second and capacity in bytes.

    The last level, main memory, has no capacity (None): every working set fits.
    """

    flops: float
    levels: tuple[tuple[str, float, int | None], ...]

    def seconds(self, operations: float, traffic: float) -> tuple[float, float]:
        """Return the minimum time of the arithmetic, and of the traffic from the smallest level that it fits."""
        return operations / self.flops, traffic / self._smallest(traffic)[1]

    def level(self, traffic: float) -> str:
        """Return the name of the smallest level that the traffic fits."""
        return self._smallest(traffic)[0]

    def _smallest(self, traffic: float) -> tuple[str, float, int | None]:
        """Return the first level with room for the traffic, or the last one."""
        fitting = (level for level in self.levels if level[2] is None or traffic <= level[2])
        return next(fitting, self.levels[-1])

    def max_with(self, other: PeakRates | None) -> PeakRates:
        """The maximum rates of two measurements of one machine."""
        if other is None:
            return self
        pairs = zip(self.levels, other.levels, strict=True)
        levels = tuple((name, max(speed, before), size) for (name, speed, size), (_, before, _) in pairs)
        return PeakRates(max(self.flops, other.flops), levels)

    def data(self) -> list[Any]:
        """Return the values as JSON data, which `of` reads back."""
        return [self.flops, [list(level) for level in self.levels]]

    @staticmethod
    def of(data: list[Any]) -> PeakRates:
        """Build the rates from plain data."""
        flops, levels = data
        return PeakRates(flops, tuple((name, speed, size) for name, speed, size in levels))


def vector_lanes() -> int:
    """Return the number of float32 lanes in this CPU's widest vectors."""
    have = set(cpu_features())
    return 16 if "+avx512f" in have else 8 if "+avx2" in have else 4


def _fma_loop(width: int, chains: int) -> str:
    """Return LLVM IR of `run(i64 count, ptr out)`: FMAs in `chains` independent accumulators."""
    t = f"<{width} x float>"
    one = ", ".join(["float 1.0"] * width)
    lines = [f"declare {t} @llvm.fma.v{width}f32({t}, {t}, {t})"]
    lines += ["define void @run(i64 %count, ptr %out) {", "entry:", "  %seed = load float, ptr %out"]
    lines += [f"  %first = insertelement {t} <{one}>, float %seed, i32 0", "  br label %loop", "loop:"]
    lines += ["  %i = phi i64 [ 0, %entry ], [ %next, %loop ]"]
    lines += [f"  %a{c} = phi {t} [ %first, %entry ], [ %b{c}, %loop ]" for c in range(chains)]
    lines += [f"  %b{c} = call {t} @llvm.fma.v{width}f32({t} %a{c}, {t} %first, {t} %first)" for c in range(chains)]
    lines += ["  %next = add i64 %i, 1", "  %more = icmp ult i64 %next, %count"]
    lines += ["  br i1 %more, label %loop, label %done", "done:"]
    total = "%b0"
    for c in range(1, chains):
        lines += [f"  %s{c} = fadd {t} {total}, %b{c}"]
        total = f"%s{c}"
    return "\n".join([*lines, f"  store {t} {total}, ptr %out, align 4", "  ret void", "}"])


def _read_loop(width: int, chains: int) -> str:
    """Return LLVM IR of `run(i64 times, i64 vectors, ptr data, ptr out)`, which sums all vectors; their number is a
    multiple of `chains`."""
    t = f"<{width} x float>"
    lines = ["define void @run(i64 %times, i64 %count, ptr %data, ptr %out) {", "entry:", "  br label %again"]
    lines += ["again:", "  %j = phi i64 [ 0, %entry ], [ %after, %swept ]", "  br label %loop", "loop:"]
    lines += ["  %i = phi i64 [ 0, %again ], [ %next, %loop ]"]
    lines += [f"  %a{c} = phi {t} [ zeroinitializer, %again ], [ %b{c}, %loop ]" for c in range(chains)]
    for c in range(chains):
        lines += [f"  %i{c} = add i64 %i, {c}", f"  %p{c} = getelementptr {t}, ptr %data, i64 %i{c}"]
        lines += [f"  %v{c} = load {t}, ptr %p{c}, align 64", f"  %b{c} = fadd {t} %a{c}, %v{c}"]
    lines += [f"  %next = add i64 %i, {chains}", "  %more = icmp ult i64 %next, %count"]
    lines += ["  br i1 %more, label %loop, label %swept", "swept:"]
    total = "%b0"
    for c in range(1, chains):
        lines += [f"  %s{c} = fadd {t} {total}, %b{c}"]
        total = f"%s{c}"
    lines += [f"  store {t} {total}, ptr %out, align 4", "  %after = add i64 %j, 1"]
    lines += ["  %left = icmp ult i64 %after, %times", "  br i1 %left, label %again, label %done", "done:"]
    return "\n".join([*lines, "  ret void", "}"])


class _CompiledFunction:
    """One compiled function, kept alive with its engine."""

    def __init__(self, text: str, *types: type) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        features = ",".join(cpu_features())
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=features, opt=2, jit=True
        )
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
        self._engine.finalize_object()
        self.run = ctypes.CFUNCTYPE(None, *types)(self._engine.get_function_address("run"))


def _best_rate(threads: int, task: Callable[[int], float], repeat: int = 12) -> float:
    """Return the best total rate of concurrent threads in units per second of CPU time; `task` returns its units."""
    best = 0.0
    for _ in range(repeat):
        speeds = [0.0] * threads
        gate = threading.Barrier(threads)

        def work(index: int, speeds: list[float] = speeds, gate: threading.Barrier = gate) -> None:
            gate.wait()
            began = time.thread_time()
            done = task(index)
            speeds[index] = done / max(1e-9, time.thread_time() - began)

        running = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        best = max(best, sum(speeds))
    return best


def _aligned(size: int) -> np.ndarray:
    raw = np.empty(size + 64, np.uint8)
    raw.fill(0)  # untouched pages would all be one page of zeros
    start = -raw.ctypes.data % 64
    return raw[start : start + size]


def measure(threads: int) -> PeakRates:
    """Measure the peak rates, which takes about two seconds."""
    width = vector_lanes()
    chains = 16
    fma = _CompiledFunction(_fma_loop(width, chains), ctypes.c_int64, ctypes.c_void_p)
    count = 400_000
    outs = [_aligned(4 * width) for _ in range(threads)]

    def multiply_add(index: int) -> float:
        fma.run(count, outs[index].ctypes.data)
        return 2.0 * width * chains * count

    flops = _best_rate(threads, multiply_add)
    sizes = caches()
    # a level's rate is measured with data that fill a part of it
    cache_levels = (("L1", sizes.l1, 2), ("L2", sizes.l2, 2), ("L3", sizes.l3, 4 * threads))
    read = _CompiledFunction(_read_loop(width, 8), ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
    levels: list[tuple[str, float, int | None]] = []
    for name, capacity, share in (*cache_levels, ("DRAM", None, 0)):
        size = max(256 << 20, 4 * sizes.l3) // threads if capacity is None else capacity // share
        size -= size % (4 * width * 8)
        data = [_aligned(size) for _ in range(threads)]
        times = max(1, (256 << 20) // size)

        def sweep(index: int, data: list[np.ndarray] = data, size: int = size, times: int = times) -> float:
            read.run(times, size // (4 * width), data[index].ctypes.data, outs[index].ctypes.data)
            return float(times) * size

        # a private level exists once per thread
        total_capacity = capacity * threads if name in ("L1", "L2") and capacity is not None else capacity
        levels.append((name, _best_rate(threads, sweep, 4 if name == "DRAM" else 12), total_capacity))
    return PeakRates(flops, tuple(levels))
