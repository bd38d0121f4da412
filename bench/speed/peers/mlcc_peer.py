"""mlcc: the text at -O3 with its weights bound, called by a bound call."""

from __future__ import annotations

import os
import tempfile

import numpy as np

import mlcc
from bench.speed.peers.base import Peer, Ready, Work

# where a workload's text, weights and object are left, for a look with the command line
LEVEL = int(os.environ.get("BENCH_LEVEL", "3"))


class Mlcc:
    def __init__(self, threads: int) -> None:
        os.environ["MLCC_NUM_THREADS"] = str(threads)

    def versions(self) -> dict[str, str]:
        import llvmlite

        return {"mlcc": mlcc.__version__, "llvmlite": llvmlite.__version__}

    def prepare(self, work: Work) -> Ready:
        module = mlcc.parse(work.source)
        if work.weights:
            with tempfile.TemporaryDirectory() as folder:
                np.savez(f"{folder}/weights.npz", **work.weights)
                module = mlcc.run_passes(module, "bind-params{params=weights.npz}", folder=folder)
        executable = mlcc.load(mlcc.build(module, target="llvm{cpu=native}", opt_level=LEVEL))
        given = [work.inputs[name] for name in work.graph.params if name in work.inputs]
        shape = next(n.shape for n in work.graph.nodes if n.out == work.graph.result)
        out = np.empty(shape, np.float32)
        function = executable["main"]
        return Ready(
            function.bind(*given, out=out),
            lambda: out,
            lambda: executable.time_evaluator("main", number=1, repeat=5, min_seconds=2e-3)(*given).median,
        )


def make(threads: int) -> Peer:
    return Mlcc(threads)
