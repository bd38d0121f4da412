"""The surfaces of the soak campaign: what is attacked, how many cases the long run wants, and how a case is run.

The module of a surface has

    prepare(folder)               write what its cases share into a folder; run once, in a process of its own
    case(folder, seed, number)    run one case, and return what is wrong, or nothing; raises NoSubject

A case is its seed and its number: the same two give the same case. It may write into the current folder, which is
empty when it starts and is kept if something is wrong.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Surface:
    """A surface: its name, its goal in cases over all runs, and what the goal counts.

    `per_child` cases run in one child process. `memory` is the limit of its address space in bytes, 0 for none.
    `patience`: a case that takes as many seconds hangs.
    """

    name: str
    goal: int
    counts: str
    per_child: int = 50
    memory: int = 0
    patience: float = 240.0

    @property
    def module_name(self) -> str:
        return f"tests.soak.{self.name}"

    @property
    def module(self) -> Any:
        return importlib.import_module(self.module_name)


GIB = 1 << 30
SURFACES = (
    Surface("texts", 1_000_000, "texts, mutated and generated, through the commands", 400, 3 * GIB),
    Surface("schedules", 100_000, "random schedules: text, trace, interpreter and compiled code agree", 60, 6 * GIB),
    Surface("graphs", 10_000, "programs compiled at -O0 to -O3 and compared with the interpreter", 20),
    Surface("importers", 100_000, "mutated .onnx, .pt2 and .safetensors files", 100, 4 * GIB),
    Surface("artifacts", 100_000, "corrupted objects, libraries, archives, PTX and arrays, inspected and loaded", 200,
            6 * GIB),
    Surface("threads", 5_000, "programs called by several threads at once while their number changes", 10),
    Surface("limits", 5_000, "commands in too little memory", 20),
    Surface("kills", 10_000, "commands killed by SIGKILL: outputs whole or absent, cache and database valid", 25),
    Surface("caches", 20, "rounds of 64 processes that compile into one cache, which overflows", 1, patience=900.0),
)  # fmt: skip
BY_NAME = {surface.name: surface for surface in SURFACES}
