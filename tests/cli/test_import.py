"""`mlcc import`, and other commands on models, with a format that needs no package."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import mlcc
from mlcc.array_files import load_arrays, save_arrays
from mlcc.cli.main import run
from mlcc.frontend import runners, source
from tests.frontend.fake_model import FakeRunner, outputs, weights, write_model

X = np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(source.IMPORTERS, ".fake", "tests.frontend.fake_model:read_model")
    monkeypatch.setitem(runners.RUNNERS, ".fake", FakeRunner)
    write_model(tmp_path / "net.fake")
    save_arrays("x.npz", {"x": X})
    save_arrays("want.npz", {"out": outputs(X, weights())})
    return tmp_path


def errors(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 1) -> str:
    assert run(list(argv)) == code
    return capsys.readouterr().err


def check_results(*argv: str) -> None:
    assert run(["run", *argv, "--in", "x.npz", "--expect", "want.npz", "--rtol", "1e-4", "--atol", "1e-4"]) == 0


def test_text_and_weights_are_written(folder: Path) -> None:
    assert run(["import", "net.fake", "-o", "net.mlc"]) == 0
    text = (folder / "net.mlc").read_text()
    assert re.search(r"dense_0_matmul: .* = R.matmul\(x, .*\)  # layers\.0 \(Dense\) net\.py:10\n", text), text
    assert text.count("# layers.0 (Dense)") == 1  # not behind the second binding of the node
    assert 'R.data("layers.0.weight"' in text and "R.const([" in text and "# layers.1 (ReLU)" in text
    assert "sha256=" in text and "mlcc.data" not in text
    assert set(load_arrays("net.npz")) == {"layers.0.weight", "layers.1.weight"}
    check_results("net.mlc")
    imported = source.read_module("net.fake")
    assert mlcc.structural_equal(source.read_module("net.mlc"), imported)
    assert run(["fmt", "-i", "net.mlc"]) == 0
    assert (folder / "net.mlc").read_text().count("# layers") == text.count("# layers") == 4
    assert mlcc.structural_equal(source.read_module("net.mlc"), imported)


def test_other_commands_read_models(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "net.fake"]) == 0
    check_results("net.fake")
    assert run(["compile", "net.fake"]) == 0
    check_results("net.o")
    assert run(["passes", "net.fake", "-p", "fuse", "-o", "fused.mlc"]) == 0
    assert run(["bench", "net.fake", "--in", "x.npz", "--repeat", "2", "--number", "1"]) == 0
    assert run(["import", "net.fake"]) == 0
    assert "# mlcc.data layers.0.weight" in capsys.readouterr().out


def test_everything_unsupported_is_listed_and_nothing_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_model(folder / "bad.fake", unknown=["fft", "nms"])
    before = sorted(folder.iterdir())
    for command in (["import", "bad.fake", "-o", "bad.mlc"], ["compile", "bad.fake"]):
        found = errors(capsys, *command)
        assert found.count("E1001") == 2 and "`fft`" in found and "`nms`" in found and "layers.0 (Dense)" in found
    assert sorted(folder.iterdir()) == before
    (folder / "ops.py").write_text("def fft(t, x):\n    return x\n\nCONVERTERS = {'fft': fft, 'nms': fft}\n")
    assert run(["import", "bad.fake", "--map", "ops.py", "-o", "bad.mlc"]) == 0
    for content in ("CONVERTERS = {'fft': 1}", "import no_such_module", "raise SystemExit(0)", ""):
        (folder / "ops.py").write_text(content)
        assert "E1076" in errors(capsys, "import", "bad.fake", "--map", "ops.py")


def test_other_files_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_arrays("w.safetensors", weights())
    for argv in (["import", "w.safetensors", "-o", "net.mlc"], ["compile", "w.safetensors"], ["run", "w.safetensors"]):
        found = errors(capsys, *argv)
        assert "E1073" in found and "--weights w.safetensors" in found and "bind-params{params=w.safetensors}" in found
    for name, help in {
        "a.pt": "torch.export.save",
        "a.bin": "torch.export.save",
        "a.h5": "ONNX",
        "a.what": ".onnx",
    }.items():
        (folder / name).write_text("")
        found = errors(capsys, "import", name)
        assert "E1074" in found and help in found
    assert "E1074" in errors(capsys, "import", "net.mlc")


# ---------------------------------------------------------------- weights


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_weights_under_the_folder_stay_where_they_are(folder: Path, suffix: str) -> None:
    other = {name: array * 2 for name, array in weights().items()}
    (folder / "deep").mkdir()
    save_arrays(f"deep/w{suffix}", other)
    save_arrays("want.npz", {"out": outputs(X, other)})
    assert run(["import", "net.fake", "--weights", f"deep/w{suffix}", "-o", "net.mlc"]) == 0
    assert (folder / "net.mlc").read_text().endswith(f"# mlcc.data-file deep/w{suffix}\n")
    assert not (folder / "net.npz").exists()
    check_results("net.mlc")
    assert run(["import", "net.fake", "--weights", f"deep/w{suffix}", "-o", "deep/net.mlc"]) == 0
    check_results("deep/net.mlc")
    assert run(["import", "net.fake", "--weights", f"deep/w{suffix}", "-o", "n.mlc", "--data", "n.safetensors"]) == 0
    assert set(load_arrays("n.safetensors")) == {"layers.0.weight", "layers.1.weight"}
    check_results("n.mlc")


def test_weights_beside_the_text_need_no_line(folder: Path) -> None:
    save_arrays("net.safetensors", weights())
    assert run(["import", "net.fake", "--weights", "net.safetensors", "-o", "net.mlc"]) == 0
    assert "data-file" not in (folder / "net.mlc").read_text() and not (folder / "net.npz").exists()
    check_results("net.mlc")


def test_weights_from_elsewhere_are_copied(folder: Path) -> None:
    (folder / "away").mkdir()
    (folder / "home").mkdir()
    save_arrays("away/w.safetensors", weights())
    assert run(["import", "net.fake", "--weights", "away/w.safetensors", "-o", "home/net.mlc"]) == 0
    assert set(load_arrays("home/net.npz")) == {"layers.0.weight", "layers.1.weight"}
    check_results("home/net.mlc")


def test_weights_from_elsewhere_are_linked_on_request(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "away").mkdir()
    (folder / "home").mkdir()
    save_arrays("away/w.safetensors", weights())
    command = ["import", "net.fake", "--weights", "away/w.safetensors", "--link-weights", "-o", "home/net.mlc"]
    (folder / "home" / "w.safetensors").write_text("mine")
    assert "E1085" in errors(capsys, *command) and (folder / "home" / "w.safetensors").read_text() == "mine"
    (folder / "home" / "w.safetensors").unlink()
    for _ in range(2):
        assert run(command) == 0
        assert (folder / "home" / "w.safetensors").samefile(folder / "away" / "w.safetensors")
    assert not (folder / "home" / "net.npz").exists()
    check_results("home/net.mlc")
    assert run(["import", "net.fake", "--link-weights"]) == 2


@pytest.mark.parametrize("given", ["shards", "shards/w.safetensors.index.json"])
def test_weights_are_written_in_shards(folder: Path, given: str, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "shards").mkdir()
    where = {name: f"w-{int(name.split('.')[1])}.safetensors" for name in weights()}
    for file in set(where.values()):
        save_arrays(f"shards/{file}", {name: array * 2 for name, array in weights().items() if where[name] == file})
    (folder / "shards" / "w.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    save_arrays("want.npz", {"out": outputs(X, {name: array * 2 for name, array in weights().items()})})
    assert run(["import", "net.fake", "--weights", given, "-o", "net.mlc"]) == 0
    assert "# mlcc.data-file shards/w-0.safetensors" in (folder / "net.mlc").read_text()
    check_results("net.mlc")
    assert run(["import", "net.fake", "--weights", given, "--weights-as-inputs", "-o", "open.mlc"]) == 0
    check_results("open.mlc", "--params", given)
    assert "E1073" in errors(capsys, "import", given)


def test_weights_of_several_files_and_of_the_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = "layers.0.weight", "layers.1.weight"
    other = {name: array * 2 for name, array in weights().items() if name in (first, second)}
    save_arrays("a.safetensors", {first: other[first], "more": X})
    save_arrays("b.npz", {second: other[second]})
    save_arrays("want.npz", {"out": outputs(X, {**weights(), **other})})
    notes = errors(
        capsys, "import", "net.fake", "--weights", "a.safetensors", "--weights", "b.npz", "-o", "n.mlc", code=0
    )
    assert "keep the model's own values: `layers.0.bias`, `layers.1.bias`" in notes
    assert "no weights of these names: `more`" in notes
    lines = (folder / "n.mlc").read_text().splitlines()
    assert lines[-2:] == ["# mlcc.data-file a.safetensors", "# mlcc.data-file b.npz"]
    check_results("n.mlc")


def test_weights_that_do_not_fit(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = weights()
    for wrong in (
        {"layers.0.weight": good["layers.0.weight"][:4], "layers.1.weight": good["layers.1.weight"].astype("float64")},
        {"unheard.of": X},
        {"layers.0.weight": good["layers.0.weight"], "layers.1.weight_t": good["layers.1.weight"].T},
    ):
        save_arrays("w.npz", wrong)
        found = errors(capsys, "import", "net.fake", "--weights", "w.npz", "-o", "n.mlc")
        assert 0 < found.count("E1072") <= 2 and not (folder / "n.mlc").exists()
    write_model(folder / "empty.fake", absent=True)
    found = errors(capsys, "import", "empty.fake", "-o", "n.mlc")
    assert "E1072" in found and "4 weights have no data" in found and "--weights" in found
    save_arrays("w.npz", good)
    assert run(["import", "empty.fake", "--weights", "w.npz", "-o", "n.mlc"]) == 0
    check_results("n.mlc")


def test_files_of_others_are_not_replaced(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("net.npz", mine=X)
    before = (folder / "net.npz").read_bytes()
    assert "E0013" in errors(capsys, "import", "net.fake", "-o", "net.mlc")
    assert (folder / "net.npz").read_bytes() == before and not (folder / "net.mlc").exists()
    assert run(["import", "net.fake", "-o", "net.mlc", "--force"]) == 0
    assert run(["import", "net.fake", "-o", "net.mlc"]) == 0
    assert "E0010" in errors(capsys, "import", "net.fake", "-o", "net.fake")


def test_weights_become_inputs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["import", "net.fake", "--weights-as-inputs", "-o", "net.mlc"]) == 0
    text = (folder / "net.mlc").read_text()
    assert "p_layers_0_weight: R.Tensor((8, 8)" in text and '"num_input": 1' in text and "R.data(" not in text
    assert set(load_arrays("net.npz")) == set(weights())
    check_results("net.mlc", "--params", "net.npz")
    save_arrays("w.safetensors", {**weights(), "unused": X})
    check_results("net.mlc", "--params", "w.safetensors")
    assert run(["compile", "net.mlc"]) == 0
    check_results("net.o", "--params", "w.safetensors")
    check_results("net.mlc", "-p", "bind-params{params=net.npz},O2")
    found = errors(capsys, "run", "net.mlc", "--in", "x.npz")
    assert found.count("E0004") == 4
    (folder / "net.npz").unlink()
    assert run(["import", "net.fake", "--weights-as-inputs", "--weights", "w.safetensors", "-o", "net.mlc"]) == 0
    assert not (folder / "net.npz").exists()
    assert errors(capsys, "import", "net.fake", "--weights-as-inputs", code=2)


# ---------------------------------------------------------------- shapes


def test_shapes_name_symbols_and_fix_them(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["import", "net.fake", "--shape", "x=b,8", "--dim", "b:1..64", "-o", "net.mlc"]) == 0
    text = (folder / "net.mlc").read_text()
    assert 'x: R.Tensor(("b", 8), dtype=' in text and "s0" not in text
    assert '"tir_var_lower_bound": {"b": 1}' in text and '"tir_var_upper_bound": {"b": 64}' in text
    check_results("net.mlc")
    assert run(["import", "net.fake", "--shape", "x=3,8", "-o", "fixed.mlc"]) == 0
    assert "x: R.Tensor((3, 8), dtype=" in (folder / "fixed.mlc").read_text()
    check_results("fixed.mlc")
    assert run(["import", "net.fake", "--shape", "x=b:2..,8", "-o", "net.mlc"]) == 0
    assert '"tir_var_lower_bound": {"b": 2}' in (folder / "net.mlc").read_text()


@pytest.mark.parametrize("option", [
    "--shape=y=b,8", "--shape=x=b", "--shape=x=b,9", "--shape=x=b,c", "--shape=x", "--shape=x=b;8", "--shape==3",
    "--shape=x=-1,8", "--dim=q:1..2", "--dim=b", "--dim=s0:5..2", "--size=b", "--size=b=x",
])  # fmt: skip
def test_shapes_that_do_not_fit(folder: Path, capsys: pytest.CaptureFixture[str], option: str) -> None:
    assert "E1075" in errors(capsys, "import", "net.fake", option, "-o", "net.mlc")
    assert not (folder / "net.mlc").exists()


# ---------------------------------------------------------------- comparing


def test_models_are_compared(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = errors(capsys, "import", "net.fake", "--compare", "-o", "net.mlc", code=0)
    assert found.startswith("equal to NumPy for s0=2; s0=3; s0=5; largest difference: out0 ")
    found = errors(capsys, "import", "net.fake", "--compare", "--size", "s0=11", "-o", "net.mlc", code=0)
    assert "for s0=11;" in found
    options = ["--shape", "x=b:4..6,8", "--compare", "--weights-as-inputs"]
    assert "for b=5; b=4;" in errors(capsys, "import", "net.fake", *options, "-o", "net.mlc", code=0)
    write_model(folder / "picky.fake", refuses=[2, 3])
    found = errors(capsys, "import", "picky.fake", "--compare", "-o", "picky.mlc", code=0)
    assert "for s0=5;" in found and "note: NumPy rejects s0=2: no batch of 2" in found


def test_the_first_node_that_departs_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_model(folder / "wrong.fake", layers=4, wrong=2)
    found = errors(capsys, "import", "wrong.fake", "--compare", "-o", "wrong.mlc", code=3)
    assert "out0 differs from NumPy for s0=2: " in found
    assert "the first node that differs is `relu_2` (relu), layers.2 (ReLU): " in found
    assert not (folder / "wrong.mlc").exists()


def test_results_that_cannot_be_compared_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_model(folder / "none.fake", refuses=[2, 3, 5])
    assert errors(capsys, "import", "none.fake", "--compare", "-o", "none.mlc").count("E1077") == 3
    assert not (folder / "none.mlc").exists()
    assert "E1075" in errors(capsys, "import", "net.fake", "--compare", "--size", "q=2", "-o", "net.mlc")
