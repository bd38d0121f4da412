"""`mlcc import` on files of PyTorch and ONNX."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcc.array_files import load_arrays, save_arrays
from mlcc.cli.main import run
from mlcc.frontend.compare import difference
from mlcc.frontend.runners import OnnxReferenceRunner

WITHOUT_TORCH = """
import sys
sys.modules["torch"] = sys.modules["onnx"] = sys.modules["safetensors"] = None
from mlcc.cli.main import run
sys.exit(run(sys.argv[1:]))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def network(torch: Any) -> Any:
    torch.manual_seed(0)
    nn = torch.nn
    return nn.Sequential(nn.Linear(8, 24), nn.LayerNorm(24), nn.GELU(), nn.Linear(24, 5)).eval()


def test_pt2_files_are_imported_and_compared(folder: Path, torch: Any, capsys: pytest.CaptureFixture[str]) -> None:
    model, x = network(torch), torch.randn(3, 8)
    program = torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim("batch", max=64)},))
    torch.export.save(program, "net.pt2")
    assert run(["import", "net.pt2", "--shape", "input=b,8", "--compare", "-o", "net.mlc"]) == 0
    assert "equal to PyTorch for b=2; b=3; b=5;" in capsys.readouterr().err
    text = (folder / "net.mlc").read_text()
    assert '"tir_var_upper_bound": {"b": 64}' in text and "# 0 (Linear)" in text and 'R.data("0.weight"' in text
    save_arrays("x.npz", {"input": x.numpy()})
    save_arrays("want.npz", {"out": model(x).detach().numpy()})
    like = ["--in", "x.npz", "--expect", "want.npz", "--rtol", "1e-4", "--atol", "1e-4"]
    assert run(["run", "net.mlc", *like]) == 0
    child = [sys.executable, "-c", WITHOUT_TORCH, "run", "net.pt2", *like]
    assert subprocess.run(child, check=False).returncode == 0
    assert run(["import", "net.pt2", "--shape", "input=65,8", "-o", "net.mlc"]) == 1
    assert "E1075" in capsys.readouterr().err
    save_arrays("w.safetensors", {name: value.numpy() * 2 for name, value in model.state_dict().items()})
    model.load_state_dict({name: value * 2 for name, value in model.state_dict().items()})
    save_arrays("want.npz", {"out": model(x).detach().numpy()})
    assert run(["import", "net.pt2", "--weights", "w.safetensors", "--weights-as-inputs", "-o", "in.mlc"]) == 0
    assert run(["run", "in.mlc", "--params", "w.safetensors", *like]) == 0
    assert run(["import", "net.pt2", "--weights", "w.safetensors", "-o", "net.mlc"]) == 0
    assert run(["run", "net.mlc", *like]) == 0 and not (folder / "in.npz").exists()


def test_a_departure_is_named(folder: Path, torch: Any, capsys: pytest.CaptureFixture[str]) -> None:
    program = torch.export.export(network(torch), (torch.randn(3, 8),))
    torch.export.save(program, "net.pt2")
    (folder / "ops.py").write_text(
        "def gelu(t, self, approximate='none'):\n    return t.emit(t.op.nn.relu(self))\n"
        "CONVERTERS = {'aten.gelu.default': gelu}\n"
    )
    assert run(["import", "net.pt2", "--map", "ops.py", "--compare", "-o", "net.mlc"]) == 3
    found = capsys.readouterr().err
    assert "the first node that differs is `gelu` (aten.gelu.default), 2 (GELU)" in found
    assert not (folder / "net.mlc").exists()


def test_onnx_files_are_imported_and_compared(folder: Path, onnx: Any, capsys: pytest.CaptureFixture[str]) -> None:
    h = onnx.helper
    weight = np.random.default_rng(0).standard_normal((8, 5)).astype(np.float32)
    nodes = [h.make_node("MatMul", ["x", "w"], ["p"], "product"), h.make_node("Tanh", ["p"], ["y"], "end")]
    x, y = (h.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["n", c]) for n, c in (("x", 8), ("y", 5)))
    graph = h.make_graph(nodes, "g", [x], [y], [onnx.numpy_helper.from_array(weight, "w")])
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=10), "net.onnx")
    assert run(["import", "net.onnx", "--shape", "x=b:1..9,8", "--compare", "-o", "net.mlc"]) == 0
    assert "for b=2; b=3; b=5;" in capsys.readouterr().err
    assert set(load_arrays("net.npz")) == {"w"} and "# product" in (folder / "net.mlc").read_text()
    given = np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32)
    save_arrays("x.npz", {"x": given})
    save_arrays("want.npz", {"out": np.tanh(given @ weight)})
    for file in ("net.mlc", "net.onnx"):
        assert run(["run", file, "--in", "x.npz", "--expect", "want.npz", "--rtol", "1e-4"]) == 0
    runner = OnnxReferenceRunner("net.onnx")
    np.testing.assert_allclose(runner.run([given])[0], np.tanh(given @ weight), rtol=1e-5)
    assert list(runner.node_values([given])) == ["product"]


@pytest.mark.parametrize(("mine", "theirs", "said"), [
    ([1.0, 2.0], [1.0, 2.0001], None), ([1.0, 2.0], [1.0, 2.01], "2.0 at [1], expected 2.01"),
    ([np.nan, np.inf], [np.nan, np.inf], None), ([np.nan, 1], [0.0, 1], "nan at [0]"),
    ([1e9, 1], [np.inf, 1], "at [0], expected inf"), ([0.0, 0], [0.0, 0], None), ([1e-9, 0], [0.0, 0], "1e-09 at [0]"),
    ([], [], None), ([[1.0]], [1.0], "shape [1, 1], expected [1]"),
])  # fmt: skip
def test_differences_are_worded(mine: Any, theirs: Any, said: str | None) -> None:
    _, found = difference(np.array(mine, float), np.array(theirs, float), 1e-4)
    assert found is None if said is None else found is not None and said in found


def test_differences_of_integers_are_exact() -> None:
    a = np.array([1, 2, 3])
    assert difference(a, a, 1.0) == (0.0, None)
    assert difference(a, a + np.array([0, 0, 1]), 1.0)[1] == "3 at [2], expected 4"
    assert "dtype int64, expected float64" in str(difference(a, a.astype(float), 1.0)[1])
