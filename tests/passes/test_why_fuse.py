"""`--why-fuse` says for every edge what `fuse` does with it, and its word holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import mlcc
from mlcc.cli.main import run
from mlcc.errors import CompileError
from mlcc.ir import relax
from mlcc.passes.fusion.fuse import Kinds, fused_groups
from mlcc.passes.fusion.why_fuse import explain
from mlcc.passes.manage.manager import Pipeline
from mlcc.relax.queries import all_bindings, used_vars
from tests.generate import graphs

TEXT = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 8), "float32"), b: R.Tensor((8,), "float32")):
        with R.dataflow():
            a = R.matmul(x, w)
            c = R.add(a, b)
            d = R.matmul(c, w)
            s = R.sum(d, axis=[1], keepdims=True)
            e = R.divide(d, s)
            p = R.permute_dims(e)
            q = R.exp(e)
            z = R.call_dps_packed("env.f", (e,), R.Tensor((4, 8), "float32"))
            r = R.tanh(p)
            R.output(q, z, r)
        h = R.tanh(q)
        return (h, z, r)
"""
EDGES = {
    ("a", "c"): "fused: one kernel of 2 operations",
    ("c", "d"): "in a kernel that is out-fusable, fuses only with element-wise or broadcast operations; `d`",
    ("d", "s"): "`s` (reduction) is on the way from it to `e`",
    ("d", "e"): "`s` (reduction) is on the way from it to `e`",
    ("s", "e"): "`s` is a reduction, which ends its kernel",
    ("e", "p"): "(`p`, `q`, `z`) do not join: if fused, `e` would be computed twice",
    ("e", "q"): "would be computed twice",
    ("e", "z"): "`z` is opaque",
    ("p", "r"): "fused: one kernel of 2 operations",
    ("q", "h"): "`h` is bound outside dataflow blocks",
}


def explanations(text: str) -> dict[tuple[str, str], str]:
    """What is said of each edge, by the names of its ends."""
    found = re.findall(r"^  (\S+) = [^:]* -> (\S+) = [^:]*: (.*)$", text, re.M)
    return {(a, b): why for a, b, why in found}


def test_every_edge_has_its_reason() -> None:
    got = explanations(explain(mlcc.parse(TEXT)))
    assert set(got) == set(EDGES)
    for edge, part in EDGES.items():
        assert part in got[edge], edge
        assert got[edge].startswith("fused") == part.startswith("fused")


def test_functions_left_alone_have_a_reason() -> None:
    module = mlcc.run_passes(mlcc.parse(TEXT), "fuse")
    text = explain(module)
    assert "fused_matmul_add:\n  left alone: it has the attribute Primitive" in text
    assert "main:\n  left alone: level 0" in explain(module, level=0)
    offloaded = mlcc.parse(TEXT)
    offloaded["main"] = offloaded["main"].with_attr("Codegen", "dnnl")
    assert "it belongs to `dnnl`" in explain(offloaded)


@pytest.mark.parametrize("part", range(2))
def test_its_word_holds(part: int) -> None:
    """Generated modules: an edge is said to fuse exactly if its ends are in one group, and all edges come up."""
    for seed in range(part, 40, 2):
        module = mlcc.run_passes(graphs.module(seed, graphs.Options(packed=True)), "normalize,lower-to-tir")
        text = explain(module)
        kinds = Kinds(module)
        count = fused = 0
        for func in module.functions.values():
            if not isinstance(func, relax.Function):
                continue
            for block in {b: None for _, b in all_bindings(func.body) if isinstance(b, relax.DataflowBlock)}:
                groups = fused_groups(block, kinds)[1]
                at = {b.var: i for i, b in enumerate(block.bindings)}
                for i, binding in enumerate(block.bindings):
                    for var in set(used_vars(binding.value)) & set(at):  # type: ignore[attr-defined]
                        count += 1
                        fused += groups[at[var]] is groups[i]
        assert len(re.findall(": fused: ", text)) == fused, f"seed {seed}"
        assert len(re.findall(r": (?:fused|not fused): (?!.*different|.*outside dataflow blocks)", text)) >= count


def test_the_command_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.mlc"
    path.write_text(TEXT)
    assert run(["passes", str(path), "-p", "fuse", "--why-fuse"]) == 0
    got = capsys.readouterr()
    assert explanations(got.err)["a", "c"] == "fused: one kernel of 2 operations"
    assert "fused_matmul_add" in got.out
    assert run(["passes", str(path), "-p", "dead-code", "--why-fuse"]) == 0
    assert "no pass `fuse`" in capsys.readouterr().err


@pytest.mark.parametrize("level", ["-1", "4", "1.0", "true", '"2"'])
def test_levels_that_there_are_not(level: str) -> None:
    with pytest.raises(CompileError) as caught:
        Pipeline.parse(f"fuse{{level={level}}}")
    (found,) = caught.value.diagnostics
    assert found.code == "E0503"
    assert found.primary.text == "0 or 1 or 2 or 3 expected"
