"""Mutated .safetensors, .onnx and .pt2 files end with a documented exit code and a diagnostic."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

import mlcc
from tests.fuzz import model_files

ROOT = Path(__file__).parents[2]
SEED = os.environ.get("MLCC_FUZZ_SEED", "1")
NET = """@R.function
def main(x: R.Tensor((2, 3), "float32"), w: R.Tensor((3, 4), "float32"), b: R.Tensor((4,), "uint16")):
    return R.add(R.matmul(x, w), R.astype(b, "float32"))
"""


def _weights(folder: Path) -> None:
    """Files of .safetensors, and a text that takes what is in them."""
    (folder / "net.mlc").write_text(NET)
    np.savez(folder / "x.npz", x=np.ones((2, 3), "float32"))
    arrays = {"w": np.ones((3, 4), "float32"), "b": np.zeros(4, "uint16")}
    mlcc.save_arrays(folder / "seed.safetensors", arrays)
    more = {"w": np.ones((3, 4), "float32"), "empty": np.zeros((0, 2), "int64"), "one": np.array(True)}
    mlcc.save_arrays(folder / "seed_kinds.safetensors", more)


def _onnx(folder: Path) -> None:
    import onnx

    from tests.frontend.onnx_models import FLOAT, model, node, value

    body = onnx.helper.make_graph(
        [node("Add", ["v", "x"], ["u"]), node("Identity", ["go"], ["on"])], "body",
        [value("i", "int64", []), value("go", "bool", []), value("v", FLOAT, [2, 3])],
        [value("on", "bool", []), value("u", FLOAT, [2, 3])],
    )  # fmt: skip
    nodes = [
        node("Loop", ["n", "", "x"], ["l"], body=body),
        node("MatMul", ["l", "w"], ["m"]),
        node("Shape", ["m"], ["s"]),
        node("Reshape", ["m", "s"], ["r"]),
        node("Softmax", ["r"], axis=1),
    ]
    inputs = {"x": (FLOAT, [2, 3]), "n": ("int64", [])}
    onnx.save(model(nodes, inputs, {"y": (FLOAT, None)}, {"w": np.ones((3, 4), "float32")}), folder / "seed.onnx")


def _pt2(folder: Path) -> None:
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(3, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))
            return self.linear(y).relu().view(x.shape[0], 2, 2).sum(-1)

    batch = torch.export.Dim("b", max=64)
    program = torch.export.export(Net().eval(), (torch.ones(2, 3),), dynamic_shapes=({0: batch},))
    torch.export.save(program, folder / "seed.pt2")


def write_seeds(folder: Path) -> None:
    """Write the files that are mutated, and what the commands need beside them."""
    _weights(folder)
    for package, write in (("onnx", _onnx), ("torch", _pt2)):
        if importlib.util.find_spec(package) is not None:
            write(folder)


def test_mutated_model_files_end_in_diagnostics(fuzz_seconds: float, tmp_path: Path) -> None:
    write_seeds(tmp_path)
    command = [sys.executable, "-W", "ignore", "-m", "tests.fuzz.model_files", str(tmp_path), SEED, str(fuzz_seconds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=fuzz_seconds * 3 + 120, cwd=ROOT)
    if done.returncode:
        end = f"the process ended with {done.returncode}: {done.stderr[-2000:]}"
        raise AssertionError(f"{end}\n{model_files.reduce_left(tmp_path)}")
    findings = [line for line in done.stdout.splitlines() if not line.startswith("done")]
    assert not findings, "\n".join(findings)
    ran = int(done.stdout.split("done ")[1])
    print(f"\n{ran} mutated model files")
    assert ran > fuzz_seconds / 2  # or the campaign shows little
