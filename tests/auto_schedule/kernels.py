"""Kernels for the rules, and a check of what a rule makes of one."""

from __future__ import annotations

from typing import Any

import numpy as np

import mlcc
from mlcc.backends import facts_of
from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.passes.auto_schedule.apply_rules import RuleOutcome, schedule_module
from mlcc.passes.auto_schedule.as_script import as_script
from mlcc.verify import check

NATIVE = "llvm{cpu=native}"


def lowered(text: str, accurate: bool = False) -> IRModule:
    """A text of operators as TIR functions, fused as -O2 does; with `accurate` the functions are those of -O2, too."""
    options = "{accurate=true}" if accurate else ""
    return mlcc.run_passes(mlcc.parse(text), f"lower-to-tir{options},annotate-op-pattern,fuse,fuse-tir")


def graph(params: str, *lines: str, result: str) -> str:
    """A function `main` of operators: `graph("x: R.Tensor((4,))", "y = R.exp(x)", result="y")`."""
    body = "\n".join(f"        {line}" for line in lines)
    head = f"@R.function\ndef main({params}):\n    with R.dataflow():\n"
    return f"{head}{body}\n        R.output({result})\n    return {result}\n"


def chosen(mod: IRModule, target: str = NATIVE) -> dict[str, RuleOutcome]:
    """What the rules make of each function; a rule that breaks, and a module that is not well-formed, fail here."""
    found = {a.name: a for a in schedule_module(mod, facts_of(target))}
    for one in found.values():
        if one.broken is not None:
            raise one.broken
    return found


def scheduled(mod: IRModule, target: str = NATIVE) -> IRModule:
    """The module as `auto-schedule` leaves it; checked to be what its script gives when it is replayed."""
    found = chosen(mod, target)
    made = mlcc.run_passes(mod, "auto-schedule", target=target)
    check(made)
    facts = facts_of(target)
    replayed = mlcc.apply_schedule(mod, as_script(list(found.values()), facts, target))
    mlcc.assert_structural_equal(made, replayed)
    assert mlcc.script(made) == mlcc.script(replayed)
    return made


def arguments(mod: IRModule, name: str = "main", sizes: dict[str, int] | None = None, seed: int = 0) -> list[Any]:
    """Random arrays for the parameters of a relax function, or zeros beside them for the outputs of a TIR function."""
    func = mod[name]
    rng = np.random.default_rng(seed)
    shapes = (
        [(b.shape, b.dtype) for b in func.buffers]
        if isinstance(func, tir.PrimFunc)
        else [(p.struct_info.dims, p.struct_info.dtype) for p in func.params]
    )
    made = []
    for shape, dtype in shapes:
        known = tuple(_size(n, sizes or {}) for n in shape)
        values = rng.integers(-4, 5, known) if dtype.is_int else rng.standard_normal(known)
        made.append(values.astype(str(dtype)))
    return made


def _size(extent: tir.Expr, sizes: dict[str, int]) -> int:
    known = tir.const_int(extent)
    if known is None:
        assert isinstance(extent, tir.Var)
        return sizes[extent.name]
    return known


def assert_same_results(
    mod: IRModule, sizes: dict[str, int] | None = None, target: str = NATIVE, rtol: float = 1e-4
) -> IRModule:
    """`main` compiled as it is and as scheduled gives the same numbers; gives the scheduled module."""
    made = scheduled(mod, target)
    given = arguments(mod, sizes=sizes)
    results = []
    for module in (mod, made):
        exe = mlcc.load(mlcc.build(module, target=target, pipeline="lower-to-tir"))
        arrays = [a.copy() for a in given]
        got = exe["main"](*arrays)
        results.append(arrays if got is None else [*got] if isinstance(got, (tuple, list)) else [got])
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol)
    return made
