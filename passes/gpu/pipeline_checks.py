"""Legality of a software pipeline: reordering its parts must respect all dependences of the loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.intset import Interval, eval_set, from_range
from mlcc.errors import CompileError, Label, error
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.visit import substitute
from mlcc.passes.lowering.accesses import is_pure
from mlcc.passes.lowering.effects import memory_accesses
from mlcc.passes.lowering.mutator import Body
from mlcc.passes.lowering.pipeline_parts import PipelinePlan
from mlcc.passes.lowering.unroll import nested_bodies


@dataclass(frozen=True, slots=True)
class PartAccess:
    """An access by a part to memory `data`, at `index` (None: unknown) inside `loops`."""

    data: tir.Var
    writes: bool
    index: tir.Expr | None
    loops: tuple[tir.For, ...]


def part_accesses(part: Body) -> list[PartAccess]:
    """Return all accesses of a part, except those of memory that it allocates itself."""
    accesses: list[PartAccess] = []
    allocated: set[tir.Var] = set()
    _collect(part, (), accesses, allocated)
    return [t for t in accesses if t.data not in allocated]


def _collect(body: Body, loops: tuple[tir.For, ...], accesses: list[PartAccess], allocated: set[tir.Var]) -> None:
    for stmt in body:
        if isinstance(stmt, tir.AllocBuffer):
            allocated.add(stmt.buffer.data)
        inner = (*loops, stmt) if isinstance(stmt, tir.For) else loops
        nested = nested_bodies(stmt)
        for deeper in nested:
            _collect(deeper, inner, accesses, allocated)
        if not nested:
            accesses += [PartAccess(t.data, t.writes, t.index, loops) for t in memory_accesses(stmt)]
        elif isinstance(stmt, (tir.IfThenElse, tir.While)):
            accesses += [PartAccess(t.data, t.writes, t.index, loops) for t in memory_accesses(stmt.condition)]
        elif isinstance(stmt, tir.For):
            accesses += [PartAccess(t.data, t.writes, t.index, loops) for t in memory_accesses((stmt.min, stmt.extent))]  # type: ignore[arg-type]


def check_dependences(
    loop: tir.For, plan: PipelinePlan, parts: Sequence[list[PartAccess]], private: set[tir.Var]
) -> None:
    """Raise CompileError E0771 if the pipeline reorders two dependent parts. `private` memory is versioned per
    iteration."""
    stage, order = plan.stage, plan.order
    for second, theirs in enumerate(parts):
        for first, ours in enumerate(parts[:second]):
            for mine, other in _conflicts(ours, theirs):
                ahead = stage[second] - stage[first]
                swapped = (ahead, order[second]) < (0, order[first])
                reversed_pairs = [(mine, other, 0)] if swapped else []
                if mine.data not in private:
                    for d in range(1, abs(ahead) + 1):
                        if (ahead, order[second]) > (d, order[first]):
                            reversed_pairs.append((other, mine, d))
                        if (-ahead, order[first]) > (d, order[second]):
                            reversed_pairs.append((mine, other, d))
                if not all(are_disjoint(loop, early, late, distance) for early, late, distance in reversed_pairs):
                    raise _dependence_error(loop, plan, first, second, mine.data)


def _conflicts(ours: list[PartAccess], theirs: list[PartAccess]) -> list[tuple[PartAccess, PartAccess]]:
    return [(a, b) for a in ours for b in theirs if a.data is b.data and (a.writes or b.writes)]


def are_disjoint(loop: tir.For, early: PartAccess, late: PartAccess, distance: int) -> bool:
    """Return True if the ranges of `early` in an iteration and of `late` `distance` iterations later are disjoint."""
    if early.index is None or late.index is None:
        return False
    analyzer = Analyzer()
    analyzer.bind(loop.var, tir.Range(loop.min, loop.extent))
    here = _range(early, analyzer)
    there = _range(late, analyzer)
    if here is None or there is None:
        return False
    later = c.add(loop.var, distance)
    low, high = (substitute(bound, {loop.var: later}) for bound in there)
    return analyzer.prove(c.less(here[1], low)) or analyzer.prove(c.less(high, here[0]))


def _range(touch: PartAccess, analyzer: Analyzer) -> tuple[tir.Expr, tir.Expr] | None:
    """Return the least and the greatest index of an access in one iteration of the pipelined loop, or None."""
    assert touch.index is not None
    if not is_pure(touch.index):
        return None
    domains = {f.var: from_range(tir.Range(f.min, f.extent)) for f in touch.loops}
    index: tir.Expr = touch.index
    reach = 0
    if isinstance(index, tir.Ramp):
        step = tir.const_int(index.stride)
        if step is None or step < 0:
            return None
        reach = step * (index.lanes - 1)
        index = index.base
    elif index.dtype.lanes > 1:
        return None
    interval: Interval = eval_set(index, domains, analyzer)
    if interval.low is None or interval.high is None:
        return None
    return interval.low, c.add(interval.high, reach)


def _dependence_error(loop: tir.For, plan: PipelinePlan, first: int, second: int, data: tir.Var) -> CompileError:
    message = f"the loop `{loop.var.name}` cannot be pipelined: its parts {first} and {second} would be reordered"
    help = (
        f"part {first} has stage {plan.stage[first]} and position {plan.order[first]}, part {second} has stage "
        f"{plan.stage[second]} and position {plan.order[second]}; the part that comes first needs the lower stage, or "
        "the same stage and the lower position"
    )
    related = () if data.span is None else (Label(data.span, f"both access `{data.name}`, and one of them writes it"),)
    return CompileError(error("E0771", f"{message}, and both use `{data.name}`", loop.span, help=help, related=related))
