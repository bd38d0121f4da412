"""ONNX Runtime, with inputs and outputs bound ahead."""

from __future__ import annotations

import numpy as np
import onnxruntime

from bench.speed.peers.base import Peer, Ready, Work, onnx_bytes


class OnnxRuntime:
    def __init__(self, threads: int) -> None:
        self.options = onnxruntime.SessionOptions()
        self.options.intra_op_num_threads = threads
        self.options.inter_op_num_threads = 1
        self.options.log_severity_level = 3

    def versions(self) -> dict[str, str]:
        import onnx

        return {"onnxruntime": onnxruntime.__version__, "onnx": onnx.__version__}

    def prepare(self, work: Work) -> Ready:
        session = onnxruntime.InferenceSession(onnx_bytes(work), self.options, providers=["CPUExecutionProvider"])
        binding = session.io_binding()
        for name, value in work.inputs.items():
            binding.bind_cpu_input(name, value)
        shape = next(n.shape for n in work.graph.nodes if n.out == work.graph.result)
        out = np.empty(shape, np.float32)
        binding.bind_output(work.graph.result, "cpu", 0, np.float32, out.shape, out.ctypes.data)
        return Ready(
            lambda: session.run_with_iobinding(binding), lambda: out, plain=lambda: session.run(None, work.inputs)
        )


def make(threads: int) -> Peer:
    return OnnxRuntime(threads)
