"""The compared cases: mlcc at its optimization levels, another tree of mlcc, and peers."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.speed.session import ROOT

NATIVE, PORTABLE, GPU = "llvm{cpu=native}", "llvm", "cuda{arch=sm_90}"
PEERS = ("onnxruntime", "openvino", "jax", "inductor")
SLOW = ("inductor",)  # measured once, and not on one core
BOTH = (2, 1)  # cores


@dataclass(frozen=True)
class Case:
    """A row of the tables: `task` has the options for `child.py`, `tree` the folder of its modules."""

    name: str
    task: dict[str, Any] = field(hash=False)
    tree: Path = ROOT
    cores: tuple[int, ...] = BOTH  # the numbers of cores on which it is measured
    warm: bool = False  # with the cache of an earlier run
    once: bool = False  # so slow that it is sampled only once

    @property
    def program(self) -> tuple[str, Path]:
        """Return the name and tree of the program whose files must be in the page cache before a measurement."""
        return str(self.task.get("peer", "mlcc")), self.tree


def mlcc_case(name: str, level: int, target: str = NATIVE, way: str = "first", **more: Any) -> Case:
    emulate = more.pop("emulate", False)
    return Case(name, {"way": way, "level": level, "target": target, "emulate": emulate}, **more)


def cpu_cases(levels: list[int], default: int, against: Path | None, peers: list[str]) -> list[Case]:
    """Return the cases for models on this machine's CPU."""
    cases = []
    for level in levels:
        cases.append(mlcc_case(f"mlcc `-O{level}`", level))
        cases.append(mlcc_case(f"mlcc `-O{level}`, portable", level, PORTABLE))
    cases.append(mlcc_case(f"`mlcc run -O{default}` again, from the cache", default, way="command", warm=True))
    if against is not None:
        name = label(against)
        cases += [mlcc_case(f"{name} `-O{level}`", level, tree=against) for level in (2, 3)]
    for peer in peers:
        slow = peer in SLOW
        cases.append(Case(peer, {"way": "peer", "peer": peer}, cores=BOTH[:1] if slow else BOTH, once=slow))
    return cases


def gpu_cases(levels: list[int], against: Path | None, emulate: bool) -> list[Case]:
    """Return the cases that need no GPU: PTX, or with `emulate` the first result of emulated kernels."""
    way = "first" if emulate else "build"
    trees = [("mlcc", ROOT), *([] if against is None else [(label(against), against)])]
    return [
        mlcc_case(f"{name} `-O{level}`", level, GPU, way, emulate=emulate, tree=tree, cores=(1,))
        for name, tree in trees
        for level in levels
    ]  # fmt: skip


def label(tree: Path) -> str:
    """Return the commit of a tree, or its folder's name."""
    asked = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=tree, capture_output=True, text=True)
    return asked.stdout.strip() if asked.returncode == 0 else tree.name
