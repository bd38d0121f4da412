"""Passes that had nothing to work on are named (W0501); those that had something, and found it right, are not."""

from __future__ import annotations

import pytest

import mlcc
from mlcc.passes import PASSES
from mlcc.passes.manage.idle import _OF_KERNELS, _OF_OPERATORS, Idle
from mlcc.passes.manage.manager import Pipeline, run_pipeline
from tests.mistakes.case import KERNEL, NET


def idle(text: str, pipeline: str) -> list[str]:
    seen = Idle()
    run_pipeline(Pipeline.parse(pipeline), mlcc.parse(text), None, [seen])
    assert all(d.code == "W0501" and d.severity.value == "warning" and d.help for d in seen.found)
    return [d.message.split("`")[1] for d in seen.found]


@pytest.mark.parametrize(
    ("text", "pipeline", "named"),
    [
        (NET, "auto-schedule", ["auto-schedule"]),
        (NET, "fuse-tir", ["fuse-tir"]),
        (NET, "lower-to-tir,fuse,fuse-tir,auto-schedule", []),
        (NET, "lower-to-tir,lower-to-tir", ["lower-to-tir"]),
        (NET, "lower-to-tir,fold-batch-norm,convert-layout{layouts={\"nn.conv2d\":[\"NHWC\",\"OHWI\"]}}",
         ["fold-batch-norm", "convert-layout"]),
        (NET, "fold-batch-norm,canonicalize,dead-code", []),
        (KERNEL, "fuse,lower-to-tir", ["fuse", "lower-to-tir"]),
        (KERNEL, "auto-schedule", []),
        (KERNEL, "remove-unused-functions,init-empty-reductions", []),
        (KERNEL, "dead-code", []),
        (NET, "O2", []),
        (NET, "lower-to-tir,fuse{level=0},fuse-tir", []),
    ],
)  # fmt: skip
def test_what_is_named(text: str, pipeline: str, named: list[str]) -> None:
    assert idle(text, pipeline) == named


def test_the_records() -> None:
    folders = {where.removeprefix("mlcc.passes.").partition(".")[0] for where in PASSES.values()}
    assert {*_OF_KERNELS} <= folders and {*_OF_OPERATORS} <= {*PASSES}


def test_the_help_works() -> None:
    """What the warnings advise leads to pipelines without a warning."""
    assert idle(NET, "lower-to-tir,fuse,fuse-tir") == []
    assert idle(NET, "fold-batch-norm,lower-to-tir") == []
