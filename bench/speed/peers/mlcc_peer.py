"""mlcc: the text with its weights bound, compiled for this CPU, called by a bound call."""

from __future__ import annotations

import os
import tempfile

import numpy as np

import mlcc
from bench.speed.peers.base import Peer, Ready, Work
from mlcc.ir.dtypes import DType
from mlcc.ir.narrow_floats import decode, encode


class Mlcc:
    def __init__(self, threads: int, target: str) -> None:
        os.environ["MLCC_NUM_THREADS"] = str(threads)
        self.target = target

    def versions(self) -> dict[str, str]:
        import llvmlite

        return {"mlcc": mlcc.__version__, "llvmlite": llvmlite.__version__}

    def prepare(self, work: Work) -> Ready:
        if work.onnx:
            module = mlcc.frontend.from_onnx(work.onnx, dtype=work.dtype or None)
        else:
            module = mlcc.parse(work.source)
        if work.weights and not work.onnx:
            with tempfile.TemporaryDirectory() as folder:
                np.savez(f"{folder}/weights.npz", **work.weights)
                module = mlcc.run_passes(module, "bind-params{params=weights.npz}", folder=folder)
        artifact = mlcc.build(module, target=self.target, opt_level=work.level)
        executable = mlcc.load(artifact)
        dtype = DType.of(work.dtype or "float32")
        given = [encode(work.inputs[name], dtype) for name in work.graph.params if name in work.inputs]
        shape = next(n.shape for n in work.graph.nodes if n.out == work.graph.result)
        out = encode(np.zeros(shape), dtype)
        function = executable["main"]
        return Ready(
            function.bind(*given, out=out),
            lambda: decode(out, dtype),
            lambda: executable.time_evaluator("main", number=1, repeat=5, min_seconds=2e-3)(*given).median,
            size=lambda: len(artifact.emit(artifact.loadable)),
            plain=lambda: function(*given),
        )


def make(threads: int) -> Peer:
    return Mlcc(threads, "llvm{cpu=native}")
