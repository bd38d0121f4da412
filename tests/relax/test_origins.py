"""Comments after bindings stay with the kernels that the bindings become."""

from __future__ import annotations

import mlcc
from mlcc.cli.main import run
from mlcc.frontend.place import Place, spans
from mlcc.relax.origins import kernel_origins, origin

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


def test_a_fused_kernel_comes_from_its_last_operator() -> None:
    lowered = mlcc.run_passes(mlcc.parse(TEXT), "fuse,lower-to-tir,fuse-tir")
    assert kernel_origins(lowered) == {"fused_matmul_relu": "layer.1 (ReLU) net.py:4; layer.3 (ReLU) net.py:6"}


def test_versions_come_from_where_their_function_does() -> None:
    lowered = mlcc.run_passes(mlcc.parse(TEXT), "fuse,lower-to-tir,fuse-tir,version-kernels")
    found = {name for name in lowered.functions if name.startswith("fused_matmul_relu")}
    assert len(found) > 1
    assert set(kernel_origins(lowered)) == found


def test_places_of_a_model_are_origins() -> None:
    known, unknown = spans("net.pt2", [Place("aten.relu", "relu_1", "layer.1", "ReLU", "net.py:4"), Place("Relu", "r")])
    assert origin(known) == "layer.1 (ReLU) net.py:4"
    assert not origin(unknown) and not origin(None)


def test_reports_name_it(tmp_path, capsys) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "net.mlc"
    path.write_text(TEXT)
    assert run(["passes", str(path), "--why-schedule", "-o", str(tmp_path / "out.mlc")]) == 0
    assert "  from layer.1 (ReLU) net.py:4; layer.3" in capsys.readouterr().err
    assert run(["compile", str(path), "--time", "-o", str(tmp_path / "net.o")]) == 0
    assert "# layer.1 (ReLU) net.py:4" in capsys.readouterr().err
