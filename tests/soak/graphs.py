"""Generated programs compute at every level of optimization what the reference interpreter does."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import numpy as np

import mlcc
from mlcc.interp import run_function, run_prim_func
from mlcc.ir import relax, tir
from tests.fuzz.optimised import differs
from tests.fuzz.subjects import MAKERS, Subject, subject
from tests.passes.arguments import leaves

LEVELS = (0, 1, 2, 3)
TARGETS = ("llvm{cpu=native}", "llvm", "llvm{triple=x86_64-linux-gnu cpu=x86-64-v3}")
KINDS = sorted(MAKERS)


def prepare(folder: Path) -> None:
    """Nothing is shared."""


def case(folder: Path, seed: str, number: int) -> str:
    rng = random.Random(f"graphs/{seed}/{number}")
    kind = "graph" if number % 2 else KINDS[number // 2 % len(KINDS)]
    made = subject(kind, rng.randrange(1 << 28))
    target = TARGETS[number % len(TARGETS)]
    Path("case.mlc").write_text(f"# {kind}, -t '{target}'\n{mlcc.script(made.module)}")
    found = []
    for level in LEVELS:
        try:
            exe = mlcc.load(mlcc.build(made.module, target=target, opt_level=level))
        except mlcc.CompileError as exc:
            if exc.diagnostics[0].code[:3] == "E07" or exc.diagnostics[0].code == "E0444":
                continue  # what the target does not have
            found.append(f"-O{level}: {exc}")
            continue
        for args in made.runs[:2]:
            found += [f"-O{level} differs: {text}" for text in compared(made, exe, args)]
    return "; ".join(found[:4])


def compared(made: Subject, exe: Any, args: list[Any]) -> list[str]:
    """How the results of compiled code differ from the interpreter's."""
    with np.errstate(all="ignore"):
        try:
            want: Any = _interpreted(made, copy.deepcopy(args))
        except mlcc.MlccError as exc:
            want = exc.diagnostics[0].code
        given = copy.deepcopy(args)
        try:
            result = exe["main"](*given)
            have: Any = leaves([a for a in given if isinstance(a, np.ndarray)] if made.is_kernel else result)
        except mlcc.MlccError as exc:
            have = exc.diagnostics[0].code
    if isinstance(want, str) or isinstance(have, str):
        return [] if isinstance(want, str) and isinstance(have, str) else [f"{have!r:.80} for {want!r:.80}"]
    if len(have) != len(want):
        return [f"{len(have)} results for {len(want)}"]
    return [text for h, w in zip(have, want, strict=True) for text in [differs(h, w)] if text]


def _interpreted(made: Subject, args: list[Any]) -> list[np.ndarray]:
    func = made.module["main"]
    if isinstance(func, tir.PrimFunc):
        run_prim_func(func, args)
        return leaves([a for a in args if isinstance(a, np.ndarray)])
    assert isinstance(func, relax.Function)
    return leaves(run_function(made.module, "main", args))
