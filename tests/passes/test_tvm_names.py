"""TVM's names of passes: the table agrees with docs/passes.md and, where it is installed, with TVM itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import mlcc
from mlcc.options.typed import kebab
from mlcc.passes import PASSES
from mlcc.passes.tvm_names import COUNTERPARTS, OTHERWISE, hint

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "passes.md").read_text()


def test_the_page_has_the_same_names() -> None:
    rows = re.findall(r"^\| `([a-z][a-z-]+)(?:\{.*?\})?` \|.*\| ([^|]*) \|$", PAGE, re.M)
    pairs = {(name, ours) for ours, cell in rows if ours in PASSES for name in re.findall(r"\b[A-Z]\w+", cell)}
    assert {*pairs, ("InjectPermutedLayout", "swizzle-shared")} == {*COUNTERPARTS.items()} | {
        ("InjectPermutedLayout", "plan-swizzle")  # the two together are TVM's one
    }


def test_every_counterpart_is_a_pass() -> None:
    assert {*COUNTERPARTS.values()} <= {*PASSES}
    assert not {*COUNTERPARTS} & {*OTHERWISE}
    for name in (*COUNTERPARTS, *OTHERWISE):
        for spelled in (name, f"relax.transform.{name}", f"tvm.tir.transform.{name}", kebab(name), name.lower()):
            assert name in (hint(spelled) or ""), spelled


def test_other_names_have_none() -> None:
    for name in ("fuse", "Fuse", "LegalizeOpss", "", "transform"):
        assert hint(name) is None


def test_tvm_has_them() -> None:
    pytest.importorskip("tvm")
    from tvm import relax, s_tir, tirx

    known = {n for module in (relax, s_tir, tirx) for n in dir(module.transform)}
    known |= {"ApplyDefaultSchedule", "PatternMatchingRewriter", "RemoveUnusedFunctions"}  # of dlight and of relax.dpl
    assert {*COUNTERPARTS, *OTHERWISE} <= known


def test_messages_name_the_counterpart() -> None:
    mod = mlcc.parse('@R.function\ndef main(x: R.Tensor((4,), "float32")):\n    return x\n')
    for name, ours in COUNTERPARTS.items():
        with pytest.raises(mlcc.CompileError, match="E0501") as caught:
            mlcc.run_passes(mod, name)
        assert f"`{ours}`" in (caught.value.diagnostics[0].help or "")
