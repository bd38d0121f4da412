"""JAX: XLA for CPUs, weights as constants."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

os.environ["JAX_PLATFORMS"] = "cpu"
import jax  # noqa: E402

from bench.speed.peers.base import Kept, Peer, Ready, Work  # noqa: E402
from bench.speed.peers.jax_function import jax_function  # noqa: E402


class Jax:
    def versions(self) -> dict[str, str]:
        import jaxlib

        return {"jax": jax.__version__, "jaxlib": jaxlib.__version__}

    def prepare(self, work: Work) -> Ready:
        given = [jax.device_put(work.inputs[n]) for n in work.graph.params if n in work.inputs]
        function: Any = jax.jit(jax_function(work)).lower(*given).compile()
        kept = Kept(lambda: function(*given).block_until_ready())
        return Ready(kept, lambda: np.asarray(kept.value))


def make(threads: int) -> Peer:
    return Jax()  # as many threads as the process has CPUs
