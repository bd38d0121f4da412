"""Stages of a chain are inlined together: the same schedule and the same trace as one after the other."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

import mlcc
from mlcc.ir import tir
from mlcc.ir.module import IRModule
from tests.counting import calls

UNARY = ("exp", "sqrt", "negative", "abs", "nn.relu", "nn.gelu")
BINARY = ("add", "multiply", "maximum")


@st.composite
def kernels(draw: st.DrawFn) -> IRModule:
    """A fused kernel of elementwise operators, with broadcasts, transposes and a reduction among them."""
    shape = draw(st.sampled_from(['(3, "n", 3)', "(3, 4, 3)"]))
    names, lines = ["x"], []
    for i in range(draw(st.integers(2, 9))):
        recent = st.sampled_from(names[-2:])
        kind = draw(st.sampled_from(["unary"] * 4 + ["binary", "shift", "turned"]))
        if kind == "unary":
            value = f"R.{draw(st.sampled_from(UNARY))}({draw(recent)})"
        elif kind == "binary":
            value = f"R.{draw(st.sampled_from(BINARY))}({draw(recent)}, {draw(recent)})"
        elif kind == "shift":
            value = f"R.add({draw(recent)}, b)"
        else:
            value = f"R.permute_dims({draw(recent)}, axes=[2, 1, 0])"
        names.append(f"y{i}")
        lines.append(f"        y{i} = {value}")
    if draw(st.booleans()):
        lines.append(f"        z = R.sum({names[-1]}, axis=[2])")
        names.append("z")
    body = "\n".join(lines)
    text = f'@R.function\ndef main(x: R.Tensor({shape}, "float32"), b: R.Tensor((3,), "float32")):\n'
    text += f"    with R.dataflow():\n{body}\n        R.output({names[-1]})\n    return {names[-1]}\n"
    return mlcc.run_passes(mlcc.parse(text), "lower-to-tir,annotate-op-pattern,fuse,fuse-tir", verify_each=False)


@settings(max_examples=60, deadline=None)
@given(kernels())
def test_chains_are_inlined_as_one_after_the_other(module: IRModule) -> None:
    together = mlcc.run_passes(module, "auto-schedule")
    with patch("mlcc.passes.schedule.schedule.Schedule.inline_together", return_value=False):
        assert str(mlcc.run_passes(module, "auto-schedule")) == str(together)


def chain(length: int) -> mlcc.Schedule:
    """A function of as many stages, each of which reads the one before."""
    lines = ["@T.prim_func", 'def main(A0: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):']
    names = [f"A{i}" for i in range(length)] + ["C"]
    lines += [f"    {name} = T.alloc_buffer((8,))" for name in names[1:-1]]
    for source, made in zip(names, names[1:], strict=False):
        lines += ["    for i in range(8):", f'        with T.block("{made}"):']
        lines += ["            v = T.axis.spatial(8, i)", f"            {made}[v] = {source}[v] + T.float32(1)"]
    return mlcc.Schedule(mlcc.parse("\n".join(lines) + "\n"))


def test_the_trace_has_a_step_for_each() -> None:
    together, alone = chain(5), chain(5)
    blocks = [together.get_block(f"A{i}") for i in range(1, 5)]
    assert together.inline_together(blocks)
    for i in range(1, 5):
        alone.compute_inline(alone.get_block(f"A{i}"))
    assert str(together.mod) == str(alone.mod)
    again = chain(5)
    together.trace.apply_to_schedule(again, remove_postproc=False)
    assert str(again.mod) == str(alone.mod)


def test_a_refused_step_changes_nothing() -> None:
    sch = chain(3)
    before, steps = str(sch.mod), len(sch.trace.insts)
    output = sch.get_block("C")
    assert not sch.inline_together([sch.get_block("A1"), output])
    assert str(sch.mod) == before and [i.name for i in sch.trace.insts[steps:]] == ["get_block"] * 2
    assert isinstance(sch.get(output), tir.Block)


def test_a_chain_takes_calls_by_its_length() -> None:
    def inline(length: int) -> int:
        sch = chain(length)
        blocks = [sch.get_block(f"A{i}") for i in range(1, length)]
        return calls(lambda: sch.inline_together(blocks))

    inline(4)
    assert inline(96) < 4.6 * inline(24) + 1000
