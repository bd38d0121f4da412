"""`mlcc explain TOPIC` has a page for everything, with the facts of the records."""

from __future__ import annotations

import dataclasses

import pytest
from click.testing import CliRunner

from mlcc.backends import registered_backends
from mlcc.cli.main import cli
from mlcc.codes.exit_codes import EXIT_CODES
from mlcc.passes import PASSES
from mlcc.passes.tvm_names import COUNTERPARTS
from mlcc.reference.pages import pages, topics


def test_every_topic_has_a_page() -> None:
    without = [topic for topic in topics() if not pages(topic)]
    assert not without


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ("R.nn.conv2d", 'R.nn.conv2d(data, weight, strides=1, padding=0, dilation=1, groups=1, data_layout="NCHW"'),
        ("relax.op.matmul", "out_dtype: "),
        ("R.transpose", "Also written R.transpose."),
        ("R.print", "the compiler handles its calls"),
        ("R.make_closure", "runs in the interpreter only"),
        ("R.vision.get_valid_counts", "neither compiled nor interpreted"),
        ("T.fma", "arguments: 3, numbers of one dtype"),
        ("T.tvm_call_packed", "T.call_packed"),
        ("T.axis.remap", 'vi, vj, vk = T.axis.remap("SSR", [i, j, k])\n\nSeveral axes that are loops: `S` spatial'),
        ("softmax", "R.nn.softmax(data, axis=-1)"),
        ("alloc_buffer", "T.alloc_buffer("),
        ("R.Tensor", "The type of a tensor: shape, dtype"),
        ("lower-to-tir", "check-indices: "),
        ("lower_to_tir", "check-indices: "),
        ("lower-to-tir", "In TVM: LegalizeOps."),
        ("decompose", "In TVM: DecomposeOpsForInference, DecomposeOpsForTraining."),
        ("relax.transform.LegalizeOps", "lower-to-tir: "),
        ("KillAfterLastUse", "TVM's KillAfterLastUse has no counterpart: an object plans its memory itself"),
        ("llvm", "LLVM's name of the CPU; `native` is that of this machine"),
        ("llvm", '(default "", in TVM mcpu)'),
        ("sch.split", "sch.split(loop, factors, "),
        ("-O1", "lower-to-tir{accurate=true check-indices=true}, annotate-op-pattern"),
        ("mlcc_jobs", "MLCC_JOBS: a number of threads"),
        ("exit-codes", "results differ"),
        ("cuda", "sm-count: an integer (default 0)"),
        ("e0312", "E0312: no such dtype"),
    ],
)
def test_page_states(topic: str, said: str) -> None:
    result = CliRunner().invoke(cli, ["explain", topic])
    assert result.exit_code == 0
    assert said in result.output


def test_name_of_two_things_gives_both_pages() -> None:
    operator, primitive = pages("split")
    assert operator.startswith("R.split(")
    assert primitive.startswith("sch.split(")


def test_exit_codes_are_those_of_the_command() -> None:
    from mlcc.cli import main

    named = {value for name, value in vars(main).items() if name.startswith("EXIT_") and isinstance(value, int)}
    assert named < set(EXIT_CODES)


def test_ops_lists_signatures_of_the_operators_asked_for() -> None:
    output = CliRunner().invoke(cli, ["ops", "matmul"]).output
    assert "R.matmul(x1, x2, out_dtype=None)\n" in output
    assert "R.nn.grouped_matmul(" in output
    assert "R.add(" not in output


def test_every_option_of_a_target_has_a_meaning() -> None:
    for backend in registered_backends():
        names = {field.name for field in dataclasses.fields(backend.options)} - {"kind"}
        assert set(backend.options.meanings) == names, backend.kind


def test_every_counterpart_in_tvm_is_a_pass() -> None:
    assert set(COUNTERPARTS.values()) <= set(PASSES)
    assert all(name in pages(ours)[0].rpartition("In TVM: ")[2] for name, ours in COUNTERPARTS.items())
