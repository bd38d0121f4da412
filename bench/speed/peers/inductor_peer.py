"""PyTorch with torch.compile, which needs a C++ compiler."""

from __future__ import annotations

from typing import Any

import torch

from bench.speed.peers.base import Peer, Work
from bench.speed.peers.torch_peer import Torch


class Inductor(Torch):
    def model(self, work: Work) -> Any:
        torch._dynamo.reset()
        return torch.compile(super().model(work), options={"freezing": True})


def make(threads: int) -> Peer:
    return Inductor(threads)
