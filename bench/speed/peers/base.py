"""The interface of adapters to peers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from bench.speed.graph import Graph

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Work:
    """A workload to prepare: its operators, and its text for who reads that; weights may be folded and packed."""

    graph: Graph
    source: str
    inputs: Arrays
    weights: Arrays
    folder: str  # for what is worth keeping between runs
    trials: int  # of tuners
    onnx: str = ""  # the file of the model, if it is written already
    level: int = 0  # of mlcc
    precision: str = "f32"  # that OpenVINO is told to compute in
    dtype: str = ""  # of inputs, weights and results for mlcc and PyTorch, if it is not that of the model


@dataclass(frozen=True)
class Ready:
    """A prepared workload: `call` computes it once on the inputs, `result` reads what the last call made.

    `call` writes to memory that is there already, if the peer can; `plain` takes arrays and returns new ones.
    """

    call: Callable[[], object]
    result: Callable[[], np.ndarray]
    native: Callable[[], float] | None = None  # seconds of a call without the call's overhead
    note: str = ""
    size: Callable[[], int] | None = None  # bytes of what is shipped, weights included
    plain: Callable[[], object] | None = None


class Peer(Protocol):
    """A competitor, told on how many threads to run."""

    def versions(self) -> dict[str, str]:
        """The versions of the peer's packages, by name."""

    def prepare(self, work: Work) -> Ready:
        """Compile the workload. Raises whatever the peer raises where it cannot."""


def onnx_bytes(work: Work) -> bytes:
    """The workload as an ONNX model."""
    if work.onnx:
        return Path(work.onnx).read_bytes()
    from bench.speed.peers.onnx_model import onnx_model

    return onnx_model(work)


class Kept:
    """The result of the last call of a function that returns its result."""

    __slots__ = ("function", "value")

    def __init__(self, function: Callable[[], object]) -> None:
        self.function = function
        self.value: object = None

    def __call__(self) -> None:
        self.value = self.function()
