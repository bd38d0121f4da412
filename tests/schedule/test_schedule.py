"""The schedule itself: handles, refusals that leave nothing behind, copies, traces."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

import mlcc
from tests.schedule.tools import CHAIN, MATMUL, refused, schedule


def test_the_module_given_stays_as_it_is() -> None:
    mod = mlcc.parse(MATMUL)
    before = mod["main"]
    sch = mlcc.Schedule(mod)
    block = sch.get_block("C")
    sch.decompose_reduction(block, sch.get_loops(block)[2])
    assert mod["main"] is before
    assert sch.mod["main"] is not before


def test_a_refused_step_leaves_nothing_behind() -> None:
    sch = schedule(CHAIN)
    loop = sch.get_loops("B")[0]
    func, text = sch.mod["main"], str(sch.trace)
    with refused("E0656"):
        sch.decompose_reduction("B", loop)  # the look-up of "B" goes with the step that it was for
    assert sch.mod["main"] is func and str(sch.trace) == text


def test_a_name_is_a_look_up_of_its_own() -> None:
    sch = schedule(MATMUL)
    sch.get_loops("C")
    assert [i.name for i in sch.trace.insts] == ["get_block", "get_loops"]
    with refused("E0615", "no block called `Q`.*its blocks are C, root"):
        sch.get_loops("Q")
    assert len(sch.trace) == 2


def test_handles_live_through_steps_that_keep_their_block() -> None:
    sch = schedule(MATMUL)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    sch.decompose_reduction(block, k)
    assert sch.get(block).name == "C_update"
    assert [sch.get(h).var.name for h in (i, j, k)] == ["i", "j", "k"]


def test_a_handle_of_another_schedule() -> None:
    other = schedule(MATMUL).get_block("C")
    with refused("E0611", "does not belong"):
        schedule(MATMUL).get_loops(other)


def test_copies_are_independent() -> None:
    sch = schedule(MATMUL)
    block = sch.get_block("C")
    loops = sch.get_loops(block)
    copy = sch.copy()
    copy.decompose_reduction(block, loops[2])
    assert len(copy.get_child_blocks(copy.get_block("root"))) == 2
    assert len(sch.get_child_blocks(sch.get_block("root"))) == 1
    assert sch.get(block).name == "C" and copy.get(block).name == "C_update"


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy])
def test_python_copies_keep_their_handles(how: Callable[[Any], Any]) -> None:
    sch = schedule(MATMUL)
    state = {"sch": sch, "loop": sch.get_loops("C")[0]}
    other = how(state)
    made = how(sch)
    made.split(how(state["loop"]), [None, 2])
    assert len(made.trace) == len(sch.trace) + 1
    assert sch.get(state["loop"]) is other["sch"].get(other["loop"])


def test_producers_and_consumers_are_found() -> None:
    sch = schedule(CHAIN)

    def names(handles: list[object]) -> list[str]:
        return [sch.get(h).name for h in handles]

    assert names(sch.get_producers("D")) == ["B", "C"] or names(sch.get_producers("D")) == ["C", "B"]
    assert names(sch.get_consumers("B")) == ["C", "D"]
    assert names(sch.get_output_blocks("root")) == ["D"]
    assert names(sch.get_child_blocks(sch.get_block("root"))) == ["B", "C", "D"]


def test_blocks_are_looked_up_in_one_function() -> None:
    text = "".join(MATMUL.replace("def main", f"def {name}") for name in ("f", "g"))
    sch = mlcc.Schedule(mlcc.parse(text))
    with refused("E0616", "f, g"):
        sch.get_block("C")
    with refused("E0616", "did you mean|the functions are"):
        sch.get_block("C", "h")
    sch.work_on("g")
    block = sch.get_block("C")
    f = sch.mod["f"]
    sch.decompose_reduction(block, sch.get_loops(block)[0])
    assert sch.mod["f"] is f
    assert 'func_name="g"' in str(sch.trace)


@pytest.mark.parametrize(
    ("call", "code", "words"),
    [
        (lambda s: s.get_loops(), "E0612", "missing a required argument"),
        (lambda s: s.get_loops(blok="C"), "E0612", "did you mean `block`"),
        (lambda s: s.get_loops(3), "E0613", "takes a block, not 3"),
        (lambda s: s.call("spilt"), "E0610", "did you mean `split`"),
        (lambda s: s.get_loops(s.get_loops("C")[0]), "E0613", "takes a block, not a loop"),
    ],
)
def test_arguments_that_do_not_fit(call: object, code: str, words: str) -> None:
    with refused(code, words):
        call(schedule(MATMUL))  # type: ignore[operator]


def test_a_trace_replays_and_simplifies() -> None:
    sch = schedule(MATMUL)
    block = sch.get_block("C")
    sch.get_loops("C")
    _, _, k = sch.get_loops(block)
    sch.decompose_reduction(block, k)
    again = schedule(MATMUL)
    sch.trace.apply_to_schedule(again)
    mlcc.assert_structural_equal(sch.mod, again.mod)
    assert str(again.trace) == str(sch.trace)
    small = sch.trace.simplified()
    assert [i.name for i in small.insts] == ["get_block", "get_loops", "decompose_reduction"]
    again = schedule(MATMUL)
    small.apply_to_schedule(again)
    mlcc.assert_structural_equal(sch.mod, again.mod)


def test_the_text_of_a_trace() -> None:
    sch = schedule(MATMUL)
    block = sch.get_block("C")
    loops = sch.get_loops(block)
    sch.sample_categorical([1, 2], [0.5, 0.5], decision=1)
    sch.decompose_reduction(block, loops[2])
    assert str(sch.trace) == (
        "# from tvm import tir\n"
        "def apply_trace(sch: tir.Schedule) -> None:\n"
        '    b0 = sch.get_block(name="C", func_name="main")\n'
        "    l1, l2, l3 = sch.get_loops(block=b0)\n"
        "    v4 = sch.sample_categorical(candidates=[1, 2], probs=[0.5, 0.5], decision=1)\n"
        "    b5 = sch.decompose_reduction(block=b0, loop=l3)\n"
    )


def test_documentation_and_parameters_of_primitives() -> None:
    import inspect

    assert "T.axis" not in inspect.getdoc(mlcc.Schedule.decompose_reduction)
    assert inspect.getdoc(mlcc.Schedule.decompose_reduction).startswith("Split a reduction block")
    assert list(inspect.signature(mlcc.Schedule.decompose_reduction).parameters) == ["block", "loop"]


def test_a_nest_deeper_than_python_recurses() -> None:
    sch = schedule(MATMUL)
    loops = sch.split(sch.get_loops("C")[0], [1] * 1000 + [None])
    assert len(loops) == 1001
    sch.fuse(*loops)
    assert len(sch.get_loops("C")) == 3


def test_wrong_handles_functions_and_modules_are_refused() -> None:
    sch = schedule(MATMUL)
    block = sch.get_block("C")
    other = schedule(MATMUL).get_block("C")
    for handle in (None, [], other):
        with refused("E0611", "does not belong"):
            sch.remove_rv(handle)
    sch.remove_rv(block)
    for step in (sch.get_loops, sch.remove_rv):
        with refused("E0611", "does not belong"):
            step(block)
    for name in (None, 3):
        with refused("E0613", "the name of a function"):
            sch.work_on(name)
    with refused("E0616", "no TensorIR function `mian`.*did you mean `main`"):
        sch.nest("mian")
    for wrong in (None, MATMUL):
        with pytest.raises(TypeError, match="needs a module or a function"):
            mlcc.Schedule(wrong)
    with pytest.raises(TypeError, match="a schedule script must be a string, not None"):
        mlcc.apply_schedule(sch.mod, None)
