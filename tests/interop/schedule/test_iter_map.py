"""Iteration maps are TVM's, digit by digit: block bindings are spelled by them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any

import pytest

tvm = pytest.importorskip("tvm")

from mlcc.arith.iter_map import detect_iter_map, iter_map_simplify  # noqa: E402
from tests.interop.schedule.iter_cases import LEVELS, Case, digits, refuted, scheduled, spelled  # noqa: E402

sym = tvm.sym.iter_affine_map


def both_results(case: Case, level: str, trivial: bool) -> tuple[str, str]:
    """What mlcc and TVM make of a case."""
    mine = detect_iter_map(
        [case.mine(b) for b in case.bindings],
        case.my_iters,
        case.mine(case.predicate),
        level,
        None,
        trivial,  # type: ignore[arg-type]
    )
    try:
        theirs = sym.detect_iter_map(
            [case.theirs(b) for b in case.bindings], case.their_iters, case.theirs(case.predicate),
            check_level=level if level != "none" else sym.IterMapLevel.NoCheck, simplify_trivial_iterators=trivial,
        )  # fmt: skip
    except tvm.error.InternalError:
        return "; ".join(spelled(i) for i in mine.indices), ""
    one = "; ".join(spelled(i) for i in mine.indices)
    claim = [spelled(a.extent) for index in theirs.indices for a in index.args] if level != "none" else None
    meant = [spelled(sym.normalize_iter_map_to_expr(index)) for index in theirs.indices]
    if meant and one != "; ".join(spelled(i) for i in theirs.indices) and refuted(case, meant, claim):
        return one, one
    if any(re.search(rf"\b({'|'.join(case.loops)})\b", spelled(index.base)) for index in theirs.indices):
        return "; ".join(spelled(i) for i in mine.indices), ""  # a remainder that TVM takes for a constant
    one, two = ("; ".join(spelled(i) for i in found.indices) for found in (mine, theirs))
    if mine and theirs.indices:
        one += spelled(mine.padding_predicate)
        two += spelled(sym.normalize_iter_map_to_expr(theirs.padding_predicate))
    return one, two


def simplified(case: Case, level: str, trivial: bool) -> tuple[str, str]:
    mine = iter_map_simplify(
        [case.mine(b) for b in case.bindings],
        case.my_iters,
        case.mine(case.predicate),
        level,
        None,
        trivial,  # type: ignore[arg-type]
    )
    theirs: Any = [case.theirs(b) for b in case.bindings]
    with contextlib.suppress(tvm.error.InternalError):
        theirs = sym.iter_map_simplify(
            theirs, case.their_iters, case.theirs(case.predicate),
            check_level=level if level != "none" else sym.IterMapLevel.NoCheck, simplify_trivial_iterators=trivial,
        )  # fmt: skip
    one, two = [*map(spelled, mine)], [*map(spelled, theirs)]
    return ("", "") if one != two and refuted(case, two, None) else ("; ".join(one), "; ".join(two))


@pytest.mark.parametrize("compared", [both_results, simplified])
@pytest.mark.parametrize("cases", [scheduled, digits])
def test_random_maps_agree(
    cases: Callable[[int], Case], compared: Callable[[Case, str, bool], tuple[str, str]], all_cases: bool
) -> None:
    count, different = 6000 if all_cases else 200, []
    for seed in range(count):
        case = cases(seed)
        one, two = compared(case, LEVELS[seed % 3], seed % 7 != 0)
        if one != two:
            different.append(f"{seed} {LEVELS[seed % 3]} {case}:\n  {one}\n  {two}")
    assert len(different) <= count * 0.015, f"{len(different)}\n" + "\n".join(different)
