"""OpenVINO in float32 (left alone it computes in bfloat16 where the CPU can), for latency."""

from __future__ import annotations

import numpy as np
import openvino

from bench.speed.peers.base import Peer, Ready, Work, onnx_bytes


class OpenVino:
    def __init__(self, threads: int) -> None:
        self.core = openvino.Core()
        self.options = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": threads,
            "ENABLE_CPU_PINNING": False,
        }

    def versions(self) -> dict[str, str]:
        import onnx

        return {"onnx": onnx.__version__, "openvino": openvino.__version__}

    def prepare(self, work: Work) -> Ready:
        options = {"INFERENCE_PRECISION_HINT": work.precision, **self.options}
        compiled = self.core.compile_model(self.core.read_model(onnx_bytes(work)), "CPU", options)
        request = compiled.create_infer_request()
        for name, value in work.inputs.items():
            request.set_tensor(name, openvino.Tensor(value, shared_memory=True))
        shape = next(n.shape for n in work.graph.nodes if n.out == work.graph.result)
        out = np.empty(shape, np.float32)
        request.set_output_tensor(openvino.Tensor(out, shared_memory=True))

        def call() -> None:
            request.start_async()
            request.wait()

        given = list(work.inputs.values())
        return Ready(call, lambda: out, plain=lambda: compiled(given))


def make(threads: int) -> Peer:
    return OpenVino(threads)
