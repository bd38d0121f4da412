"""What becomes of a schedule for a GPU: refused with a reason, or the numbers of the program without one.

Kernels run by emulation with checks on (races, barriers, bounds, shared memory that nobody wrote). A share of the PTX
goes through ptxas, and a share of the printed C through a C++ compiler.
"""

from __future__ import annotations

import math
import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import mlcc
from mlcc.interp import run_prim_func
from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.machine.gpu_tables import GpuFacts
from mlcc.passes.auto_schedule.gpu.bind_threads import bind_module
from mlcc.passes.gpu import BLOCK
from mlcc.passes.gpu.device import DeviceKernel
from mlcc.targets.cuda.ptxas import PtxasError, assemble, find_ptxas, version
from mlcc.targets.source import emit_source
from tests.fuzz.emulated import ARCHS
from tests.fuzz.optimised import differs
from tests.fuzz.schedules import Finding
from tests.interop.schedule.numbers import inputs, main_of
from tests.targets.arguments import duplicate

ASSEMBLED, COMPILED = 0.4, 0.04  # of the modules
HOST_THREADS = 128  # of a block, to run as threads of this machine: their barriers take time with each
SIZES = (8, 70)  # the most that sizes are that the program does not know


def judge(first: IRModule, last: IRModule, seed: int, counts: Counter[str]) -> None:
    """Counts what became of `last`, a schedule of `first`. Raises Finding."""
    rng = random.Random(seed)
    arch = rng.choice(ARCHS)
    try:
        artifact = mlcc.build(last, f"cuda{{arch={arch}}}", opt_level=0)
        emulated = mlcc.load(artifact, emulate=True)
    except mlcc.CompileError as exc:
        found = exc.diagnostics[0]
        if not found.message or not found.code.startswith("E"):
            raise Finding("lowering refuses it without a reason") from None
        counts[f"refused by lowering {found.code}: {found.message.split('`')[-1][:60].strip()}"] += 1
        return
    except Exception as exc:
        raise Finding(f"lowering fails: {type(exc).__name__}: {exc}") from None
    before = main_of(first)
    symbolic = any(not isinstance(d, int) for b in before.buffers if b for d in map(_size, b.shape))
    for turn, most in enumerate(SIZES if symbolic else SIZES[:1]):
        given = inputs(before, seed + turn, most)
        want = duplicate(given)
        run_prim_func(before, want)
        _same(artifact, emulated, given, want, counts)
    kernels = artifact.launch.kernels
    if rng.random() < ASSEMBLED:
        _assembled(artifact.code.text, arch, counts)
    _printed(
        kernels, before, bind_module(last, GpuFacts.of("cuda")), not symbolic and rng.random() < COMPILED, counts, seed
    )
    counts["equal, by threads" if _threads(kernels) > 1 else "equal, by one thread"] += 1


def _size(dim: Any) -> Any:
    return getattr(dim, "value", None)


def _threads(kernels: Any) -> int:
    return max((_size(e) or 2 for k in kernels for e in k.extents.values()), default=1)


def _same(artifact: Any, emulated: Any, given: list[Any], want: list[Any], counts: Counter[str]) -> None:
    have = duplicate(given)
    try:
        with np.errstate(all="ignore"):
            emulated["main"](*have)
    except mlcc.CallError as exc:
        found = exc.diagnostics[0]
        if all(
            "by two blocks" in d.message for d in exc.diagnostics
        ):  # each computes what both need: see if it is that
            counts["blocks write the same to global memory"] += 1
            _same(artifact, mlcc.load(artifact, emulate=True, check=False), given, want, counts)
            return
        raise Finding(f"threads do wrong {found.code}: {exc}") from None
    except Exception as exc:
        raise Finding(f"running fails: {type(exc).__name__}: {exc}") from None
    for a, b in zip(have, want, strict=True):
        said = differs(a, b) if isinstance(a, np.ndarray) else ""
        if said:
            raise Finding(f"kernels give other numbers: {said}")


def _assembled(text: str, arch: str, counts: Counter[str]) -> None:
    program = find_ptxas()
    if program is None or version(program) < (13, 0):
        return
    try:
        made = assemble(text, arch)
    except PtxasError as exc:
        raise Finding(f"ptxas refuses it: {exc}") from None
    counts["assembled"] += 1
    counts["assembled, with spills"] += any(k.spill_stores or k.spill_loads for k in made.values())


def _printed(
    kernels: tuple[DeviceKernel, ...], before: Any, last: IRModule, run: bool, counts: Counter[str], seed: int
) -> None:
    try:
        text = emit_source(kernels, "cuda-c")
    except mlcc.CompileError as exc:
        counts[f"not printed as C {exc.diagnostics[0].code}"] += 1
        return
    except Exception as exc:
        raise Finding(f"printing C fails: {type(exc).__name__}: {exc}") from None
    counts["printed as C"] += 1
    if "asm volatile" in text:
        return  # what no CPU has
    if not run or len(kernels) != 1 or any(_size(e) is None for e in kernels[0].extents.values()):
        return
    if math.prod(tir.const_int(e) or 1 for axis, e in kernels[0].extents.items() if axis in BLOCK) > HOST_THREADS:
        return
    from tests.gpu.sources import Compiled

    own = {b.name for b in before.buffers if b}
    if any(str(b.dtype) == "bfloat16" or b.name not in own for b in kernels[0].buffers if b):
        return  # no such type there, or memory between kernels
    given = inputs(before, seed)
    want, have = duplicate(given), duplicate(given)
    run_prim_func(before, want)
    with tempfile.TemporaryDirectory(prefix="mlcc-fuzz-") as folder:
        try:
            Compiled(last, "cuda-c", Path(folder))("main", *have)
        except AssertionError as exc:
            raise Finding(f"C does not compile: {exc}") from None
    for a, b in zip(have, want, strict=True):
        said = differs(a, b) if isinstance(a, np.ndarray) else ""
        if said:
            raise Finding(f"compiled C gives other numbers: {said}")
    counts["C compiled and equal"] += 1
