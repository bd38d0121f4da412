"""One competitor in its own process, which prepares workloads and takes samples on request.

Requests and answers are lines of JSON: from standard input, and to what was standard output when the process began
(libraries print to the new one, which is standard error). `python -m bench.speed.worker PEER THREADS`.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from typing import Any

from bench.compile.child import peak_bytes
from bench.measure import prefer

OURS = ("mlcc", "portable")
PEERS = (*OURS, "numpy", "torch", "inductor", "onnxruntime", "openvino", "jax", "tvm", "iree")


SETTLE = 0.03  # seconds until the system has spread the threads of a process that was stopped over the cores


class Worker:
    """The state between requests."""

    def __init__(self, peer: str, threads: int) -> None:
        from bench.speed.peers.base import Peer

        module = importlib.import_module(f"bench.speed.peers.{peer}_peer")
        self.peer: Peer = module.make(threads)
        self.settle = SETTLE if threads > 1 else 0.0
        self.ready: Any = None
        self.work: Any = None  # some peers hold the arrays' addresses only

    def versions(self) -> dict[str, str]:
        return self.peer.versions()

    def load(
        self, path: str, graph: dict[str, Any], source: str, folder: str, trials: int, level: int, onnx: str = "",
        precision: str = "f32", dtype: str = "",
    ) -> dict[str, Any]:  # fmt: skip
        """Prepare a workload whose arrays are at `path`; return the time that took and the error of the result.

        `memory`: by how many bytes the process grew, at its peak, until the first call was over.
        """
        import numpy as np

        from bench.speed.graph import Graph
        from bench.speed.peers.base import Work

        with np.load(path) as arrays:
            kinds: dict[str, dict[str, Any]] = {"inputs": {}, "weights": {}, "expected": {}}
            for key in arrays.files:
                kind, _, name = key.partition("/")
                kinds[kind][name] = np.array(arrays[key])
        work = Work(
            Graph.of(graph), source, kinds["inputs"], kinds["weights"], folder, trials, onnx, level, precision,
            dtype,
        )  # fmt: skip
        self.ready = None
        before = forget_peak()
        began = time.perf_counter()
        self.ready, self.work = self.peer.prepare(work), work
        prepared = time.perf_counter() - began
        self.ready.call()
        memory = peak_bytes() - before
        got, want = self.ready.result(), kinds["expected"]["out"]
        if got.shape != want.shape:
            raise ValueError(f"the result has shape {got.shape}, not {want.shape}")
        off = float(np.abs(got.astype(np.float64) - want).max(initial=0) / max(1e-30, np.abs(want).max(initial=0)))
        size = 0 if self.ready.size is None else self.ready.size()
        return {"prepare": prepared, "off": off, "note": self.ready.note, "size": size, "memory": memory}

    def sample(self, least: float, number: int = 0, plain: bool = False) -> dict[str, Any]:
        """Seconds per call, by the clock and of CPU time; as many calls as take `least` seconds, if no number is given.

        `plain` asks for calls that return new arrays, if the peer has those. `waited` is the share of the sample in
        which threads of this process were ready but had no CPU.
        """
        call = (plain and self.ready.plain) or self.ready.call
        with before_others():
            settled = time.perf_counter() + self.settle
            call()  # what a pause cooled down
            while time.perf_counter() < settled:
                call()
            if not number:
                number, spent = 1, self._spend(call, 1)[0]
                while spent < least:
                    number = max(number + 1, int(number * min(16.0, 1.2 * least / max(spent, 1e-7))))
                    spent = self._spend(call, number)[0]
            before = waiting()
            wall, cpu = self._spend(call, number)
            return {"wall": wall / number, "cpu": cpu / number, "number": number, "waited": (waiting() - before) / wall}

    def after(self, pause: float, count: int) -> dict[str, Any]:
        """Return seconds of single calls after a pause of the caller, or after some milliseconds of calls."""
        call, spent = self.ready.call, []
        with before_others():
            settled = time.perf_counter() + self.settle
            call()
            while time.perf_counter() < settled:
                call()
            for _ in range(count):
                if pause:
                    time.sleep(pause)
                began = time.perf_counter()
                call()
                spent.append(time.perf_counter() - began)
        return {"seconds": spent}

    def native(self) -> dict[str, Any]:
        """Return the seconds of a call measured in native code, if the peer supports it."""
        with before_others():
            return {"native": None if self.ready.native is None else self.ready.native()}

    @staticmethod
    def _spend(call: Any, number: int) -> tuple[float, float]:
        cpu, began = time.process_time(), time.perf_counter()
        for _ in range(number):
            call()
        return time.perf_counter() - began, time.process_time() - cpu


def forget_peak() -> int:
    """Make the peak memory of this process what it has now, and return that in bytes (the old peak, if not on Linux).

    Source: proc(5), `clear_refs`.
    """
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return peak_bytes()


def waiting() -> float:
    """Return the seconds that all threads have spent waiting for a CPU, or 0 if the system does not report it."""
    total = 0
    with contextlib.suppress(OSError):
        for thread in os.listdir("/proc/self/task"):
            with contextlib.suppress(OSError), open(f"/proc/self/task/{thread}/schedstat") as file:
                total += int(file.read().split()[1])
    return total * 1e-9


@contextlib.contextmanager
def before_others() -> Iterator[None]:
    """Raise the priority of this process's session, if Linux groups tasks by session and the user is root."""
    prefer("self", -15)
    try:
        yield
    finally:
        prefer("self", 0)


def _die_with_parent() -> None:
    """Request a signal when the parent dies, since a stopped process would outlive a killed parent."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def main() -> None:
    _die_with_parent()
    if os.environ.get("BENCH_TRACEBACKS"):
        import faulthandler

        faulthandler.enable()
    peer, threads = sys.argv[1], int(sys.argv[2])
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-threads:])
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def answer(**fields: Any) -> None:
        answers.write(json.dumps(fields) + "\n")

    try:
        worker = Worker(peer, threads)
        answer(ok=True, **worker.versions())
    except ImportError as exc:
        answer(ok=False, missing=True, error=str(exc))
        return
    except Exception as exc:
        answer(ok=False, error=_short(exc))
        return
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer(ok=True, **getattr(worker, request.pop("do"))(**request))
        except Exception as exc:
            if os.environ.get("BENCH_TRACEBACKS"):
                traceback.print_exc()
            answer(ok=False, error=_short(exc))


def _short(exc: Exception) -> str:
    text = next((line for line in str(exc).splitlines() if line.strip()), "")
    return f"{type(exc).__name__}: {text}"[:300]


if __name__ == "__main__":
    main()
