"""Several threads call one program at once, with arguments of several sizes, while the number of threads changes."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import numpy as np

import mlcc
from tests.fuzz.children import NoSubject
from tests.fuzz.optimised import eager_threads
from tests.fuzz.subjects import subject
from tests.passes.arguments import leaves

KINDS = ("graph", "product", "rows", "conv", "network")
CALLERS, CALLS = 4, 12


def prepare(folder: Path) -> None:
    """Nothing is shared."""


def case(folder: Path, seed: str, number: int) -> str:
    rng = random.Random(f"threads/{seed}/{number}")
    made = subject(KINDS[number % len(KINDS)], rng.randrange(1 << 28))
    Path("case.mlc").write_text(mlcc.script(made.module))
    with eager_threads():
        try:
            main = mlcc.load(mlcc.build(made.module, target="llvm{cpu=native}", opt_level=2))["main"]
        except mlcc.CompileError:
            raise NoSubject from None
    runs = []
    for args in made.runs:
        try:
            runs.append((args, leaves(main(*args))))
        except mlcc.CallError:
            continue  # sizes that the program refuses
    if not runs:
        raise NoSubject
    found: list[str] = []
    start = threading.Barrier(CALLERS)

    def call(which: int) -> None:
        own = random.Random(f"{seed}/{number}/{which}")
        start.wait()
        for _ in range(CALLS):
            args, want = own.choice(runs)
            if own.random() < 0.2:
                mlcc.set_num_threads(own.choice((1, 2, 3, 8)))
            try:
                problem = _different(leaves(main(*args)), want)
            except Exception as exc:
                problem = f"{type(exc).__name__}: {exc}"
            if problem:
                found.append(problem)
                return

    callers = [threading.Thread(target=call, args=(n,)) for n in range(CALLERS)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    return "; ".join(found[:2])


def _different(have: list[Any], want: list[Any]) -> str:
    """Results have the same bits however many threads there are and whatever else runs."""
    for h, w in zip(have, want, strict=True):
        if h.shape != w.shape or h.tobytes() != w.tobytes():
            most = np.max(np.abs(h.astype("float64") - w.astype("float64"))) if h.shape == w.shape else "shape"
            return f"a call beside others gives other bits: {h.dtype} {h.shape}, largest difference {most}"
    return ""
