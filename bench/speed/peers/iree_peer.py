"""IREE, with StableHLO from JAX as its input."""

from __future__ import annotations

import os
from typing import Any

import iree.compiler
import iree.runtime
import numpy as np

os.environ["JAX_PLATFORMS"] = "cpu"
import jax  # noqa: E402

from bench.speed.peers.base import Kept, Peer, Ready, Work  # noqa: E402
from bench.speed.peers.jax_function import jax_function  # noqa: E402


class Iree:
    def __init__(self, threads: int) -> None:
        self.driver = "local-sync" if threads == 1 else "local-task"
        if threads > 1:
            iree.runtime.flags.parse_flags(f"--task_topology_group_count={threads}")

    def versions(self) -> dict[str, str]:
        import importlib.metadata

        return {"iree": importlib.metadata.version("iree-base-compiler")}

    def prepare(self, work: Work) -> Ready:
        given = [work.inputs[n] for n in work.graph.params if n in work.inputs]
        text = jax.jit(jax_function(work)).lower(*given).as_text()
        code = iree.compiler.compile_str(
            text,
            input_type="stablehlo",
            target_backends=["llvm-cpu"],
            extra_args=["--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3"],
        )
        config = iree.runtime.Config(self.driver)
        context: Any = iree.runtime.SystemContext(config=config)
        context.add_vm_module(iree.runtime.VmModule.copy_buffer(context.instance, code))
        function = context.modules["jit_main"]["main"]
        arrays = [iree.runtime.asdevicearray(config.device, a) for a in given]
        kept = Kept(lambda: function(*arrays))
        return Ready(kept, lambda: np.asarray(kept.value))


def make(threads: int) -> Peer:
    return Iree(threads)
