"""One step on one program, by mlcc and by TVM: both refuse, or both make the same program."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tvm

import mlcc
from mlcc.ir import tir
from mlcc.ir.equal import assert_structural_equal
from mlcc.ir.module import IRModule
from mlcc.passes.schedule.tree import child_realizes
from tests.interop.harness import from_tvm
from tests.interop.schedule.numbers import difference

Step = tuple[str, tuple[Any, ...], dict[str, Any]]


def read(text: str) -> tuple[Any, IRModule]:
    """The program as TVM has it, and as mlcc has what TVM prints."""
    made = tvm.script.from_source(text)
    module = made if isinstance(made, tvm.IRModule) else tvm.IRModule({"main": made})
    return module, from_tvm(module)


def mine(module: IRModule, step: Step) -> IRModule | None:
    """The program after the step; None if it is refused."""
    name, args, kwargs = step
    sch = mlcc.Schedule(module)
    try:
        getattr(sch, name)(*_handles(sch, args), **kwargs)
    except mlcc.CompileError:
        return None
    return sch.mod


def theirs(module: Any, step: Step) -> Any:
    """The program after the step; None if it is refused, or fails."""
    name, args, kwargs = step
    sch = tvm.s_tir.Schedule(module)
    try:
        getattr(sch, name)(*_handles(sch, args), **kwargs)
    except Exception:
        return None
    return sch.mod


def _handles(sch: Any, args: tuple[Any, ...]) -> list[Any]:
    """("loop", block, n) is the n-th loop around a block, ("block", name) the handle of a block."""
    made = []
    for arg in args:
        match arg:
            case ("loop", name, n):
                made.append(sch.get_loops(sch.get_sblock(name))[n])
            case ("block", name):
                made.append(sch.get_sblock(name))
            case _:
                made.append(arg)
    return made


def assert_agree(module: Any, mirrored: IRModule, step: Step) -> None:
    left, right = mine(mirrored, step), theirs(module, step)
    if left is None and right is not None and difference(mirrored, from_tvm(right)):
        return  # TVM's result computes something else, or is no program
    assert (left is None) == (right is None), f"{step}: refused by {'mlcc' if left is None else 'TVM'} alone"
    if left is not None:
        assert_structural_equal(left, from_tvm(right))


def blocks(module: IRModule) -> Iterator[tir.Block]:
    """The blocks of `main`, outer ones first; without those in inits, which TVM's schedules do not know."""
    func = module["main"]
    assert isinstance(func, tir.PrimFunc)
    stack = child_realizes(func.body)[::-1]
    while stack:
        block = stack.pop().block
        yield block
        stack += child_realizes(block.body)[::-1]
