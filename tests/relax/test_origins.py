"""Comments after bindings stay with the kernels that the bindings become."""

from __future__ import annotations

from pathlib import Path

import pytest

import mlcc
from mlcc.cli.main import run
from mlcc.frontend.location import SourceLocation, spans
from mlcc.relax.origins import kernel_origins, kernels_matching, origin, origins_of

TEXT = """
@R.function
def main(x: R.Tensor((64, 256), "float32"), w: R.Tensor((256, 256), "float32")):
    with R.dataflow():
        a = R.matmul(x, w)  # layer.0 (Linear) net.py:3
        b = R.nn.relu(a)  # layer.1 (ReLU) net.py:4
        c = R.matmul(b, w)  # layer.2 (Linear) net.py:5
        d = R.nn.relu(c)  # layer.3 (ReLU) net.py:6
        e = R.nn.softmax(d)
        R.output(e)
    return e
"""


def test_a_fused_kernel_comes_from_what_does_most_of_its_work() -> None:
    lowered = mlcc.run_passes(mlcc.parse(TEXT), "fuse,lower-to-tir,fuse-tir")
    expected = "layer.0 (Linear) net.py:3; layer.2 (Linear) net.py:5 and 2 more"
    assert kernel_origins(lowered) == {"fused_matmul_relu": expected}


def test_kernels_are_found_by_path() -> None:
    lowered = mlcc.run_passes(mlcc.parse(TEXT), "fuse,lower-to-tir,fuse-tir")
    for path in ("layer.0", "layer.3", "layer.*", "*", "layer.[02]"):
        assert kernels_matching(lowered, f"@{path}") == ["fused_matmul_relu"]
    assert (
        kernels_matching(lowered, "@layer")
        == kernels_matching(lowered, "@layer.4")
        == kernels_matching(lowered, "layer.0")
        == []
    )
    assert kernels_matching(lowered, "*soft*") == ["softmax"] and kernels_matching(lowered, "@*soft*") == []


def test_schedules_name_kernels_by_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net, low, script = (str(tmp_path / name) for name in ("net.mlc", "low.mlc", "s.mls"))
    Path(net).write_text(TEXT)
    assert run(["passes", net, "-p", "fuse,lower-to-tir,fuse-tir", "-o", low]) == 0
    assert Path(low).read_text().count("# layer.0 (Linear) net.py:3\n") == 1  # the comment stays with the call
    Path(script).write_text('sch.parallel(sch.get_loops(sch.get_block("compute", "@layer.0"))[0])\n')
    for words in (["--script", script], ["--script", script, "--func", "@layer.2"]):
        assert run(["schedule", low, *words, "-o", str(tmp_path / "out.mlc")]) == 0
        assert "T.parallel(" in (tmp_path / "out.mlc").read_text()
    Path(script).write_text('sch.work_on("@layer.9")\n')
    assert run(["schedule", low, "--script", script]) == 1
    assert "E0616" in (said := capsys.readouterr().err) and "no TensorIR function comes from `@layer.9`" in said


def test_bindings_of_one_node_have_its_comment_once() -> None:
    text = TEXT.replace(
        "a = R.matmul(x, w)  #", "a_t = R.permute_dims(w)  # layer.0\n        a = R.matmul(x, a_t)\n  #"
    )
    module = mlcc.parse(text)
    known = {b.var.name: origin(b.span) for block in module["main"].body.blocks for b in block.bindings}
    assert known == {"a_t": "layer.0", "a": "layer.0", "b": "layer.1 (ReLU) net.py:4", "c": known["c"],
                     "d": known["d"], "e": ""}  # fmt: skip
    assert origins_of(module["main"].body.blocks[0].bindings[1]) == ["layer.0"]


def test_versions_come_from_where_their_function_does() -> None:
    lowered = mlcc.run_passes(mlcc.parse(TEXT), "fuse,lower-to-tir,fuse-tir,version-kernels")
    found = {name for name in lowered.functions if name.startswith("fused_matmul_relu")}
    assert len(found) > 1
    assert set(kernel_origins(lowered)) == found


def test_places_of_a_model_are_origins() -> None:
    known, unknown = spans(
        "net.pt2", [SourceLocation("aten.relu", "relu_1", "layer.1", "ReLU", "net.py:4"), SourceLocation("Relu", "r")]
    )
    assert origin(known) == "layer.1 (ReLU) net.py:4"
    assert not origin(unknown) and not origin(None)


def test_reports_name_it(tmp_path, capsys) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "net.mlc"
    path.write_text(TEXT)
    assert run(["passes", str(path), "--why-schedule", "-o", str(tmp_path / "out.mlc")]) == 0
    assert "  from layer.0 (Linear) net.py:3; layer.2" in capsys.readouterr().err
    assert run(["compile", str(path), "--time", "-o", str(tmp_path / "net.o")]) == 0
    assert "# layer.0 (Linear) net.py:3" in capsys.readouterr().err
