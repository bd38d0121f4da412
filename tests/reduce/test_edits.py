"""Edits of reductions on generated programs: what verification lets pass is a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcc.errors import MlccError
from mlcc.grammar.parser import parse
from mlcc.ir import relax, tir
from mlcc.ir.equal import structural_equal
from mlcc.ir.module import IRModule
from mlcc.ir.node import walk
from mlcc.reduce.delta import Edit, reduce_with
from mlcc.reduce.loops import DropStatements, SimplifyExpressions, UnwrapStatements
from mlcc.reduce.program import Program
from mlcc.reduce.reducer import EDITS, Reducer, as_read
from mlcc.reduce.steps import DropPasses
from mlcc.verify import check
from tests.generate import functions, graphs


def program(seed: int, is_graph: bool) -> Program:
    module = graphs.module(seed) if is_graph else IRModule.from_expr(functions.prim_func(seed))
    return Program(module, ("fuse", "dead-code"), ("a = 1", "b = 2", "c = 3"))


def is_valid(candidate: Program) -> bool:
    try:
        check(candidate.module, build=True)
    except MlccError:
        return False
    return True


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: f"{EDITS.index(edit)}-{type(edit).__name__}")
@given(seed=st.integers(0, 1 << 30), is_graph=st.booleans(), share=st.floats(0, 1))
def test_a_valid_candidate_is_a_text(edit: Edit, seed: int, is_graph: bool, share: float) -> None:
    before = program(seed, is_graph)
    places = edit.sites(before)
    for chosen in (places, places[: int(len(places) * share)], places[-1:], places[:1]):
        try:
            candidate = edit.apply(before, chosen) if chosen else None
        except MlccError:
            continue
        read = as_read(candidate) if candidate is not None and is_valid(candidate) else None
        if read is not None:
            assert structural_equal(parse(read.module.script()), read.module, map_free_vars=True)


NEST = """
@T.prim_func
def main(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8,), "float32")):
    for i, k in T.grid(8, 4):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk] * T.float32(2)
"""


def test_steps_of_lowering_are_left_out_from_the_end() -> None:
    passes = ("canonicalize", "realize-blocks", "dead-code", "flatten-buffers", "partition-loops{limit=3}")
    before = Program(parse(NEST), passes)

    def without(*chosen: int) -> tuple[str, ...] | None:
        candidate = DropPasses().apply(before, chosen)
        return None if candidate is None else candidate.passes

    assert without(1) is None
    assert without(3) is None
    assert without(1, 3) is None
    assert without(4) == passes[:4]
    assert without(3, 4, 0) == ("realize-blocks", "dead-code")
    assert without(*range(5)) == ()


def test_what_stands_in_the_place_of_something_has_its_span() -> None:
    before = Program(parse(NEST, name="nest.mlc"))
    known = set(walk(before.module["main"]))

    def new(edit: Edit, site: tuple[str, tir.Stmt], kind: type) -> list[Any]:
        candidate = edit.apply(before, [site])
        assert candidate is not None
        return [node for node in walk(candidate.module["main"]) if isinstance(node, kind) and node not in known]

    for _, old, simpler in SimplifyExpressions().sites(before):
        assert old.span is None or simpler.span is not None
    statements = [site for site in DropStatements().sites(before) if site[1].span is not None]
    assert len(statements) == 5
    for site in statements:
        assert all(node.span is not None for node in new(DropStatements(), site, tir.Evaluate))
    for site in statements:
        if isinstance(site[1], tir.For):
            (realize,) = (node for node in new(UnwrapStatements(), site, tir.BlockRealize) if node.values)
            assert all(value.span is not None for value in realize.values)


@given(seed=st.integers(0, 1 << 30), is_graph=st.booleans())
def test_whatever_may_go_is_gone(seed: int, is_graph: bool) -> None:
    """With any valid program kept, next to nothing is left."""
    reducer = Reducer(program(seed, is_graph), lambda candidate: "fails", "fails", 600)
    best = reducer.run()
    assert reducer.is_finished
    assert best.passes == ()
    assert best.script == ()
    (func,) = best.module.functions.values()
    assert sum(1 for node in walk(func) if isinstance(node, (relax.Binding, tir.Stmt))) <= 1
    assert structural_equal(parse(best.module.script()), best.module)


class _Items:
    """Removes items of the script, any number at once."""

    def sites(self, program: Program) -> Sequence[int]:
        return range(len(program.script or ()))

    def apply(self, program: Program, chosen: Sequence[int]) -> Program | None:
        lines = program.script or ()
        return Program(program.module, None, tuple(line for i, line in enumerate(lines) if i not in chosen))


@given(needed=st.sets(st.integers(0, 199), max_size=5), count=st.integers(1, 200))
def test_delta_debugging_finds_what_is_needed(needed: set[int], count: int) -> None:
    """As in the paper: a set of items, each of which is needed, and few tests for few of them."""
    needed = {n for n in needed if n < count}
    tests = 0

    def accept(candidate: Program) -> Program | None:
        nonlocal tests
        tests += 1
        return candidate if needed <= set(map(int, candidate.script or ())) else None

    start = Program(IRModule(), None, tuple(map(str, range(count))))
    assert set(map(int, reduce_with(_Items(), start, accept).script or ())) == needed
    assert tests <= 4 * (len(needed) + 1) * (count.bit_length() + 1)
