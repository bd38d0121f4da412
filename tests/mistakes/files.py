"""Mistakes with files: of another kind, damaged, or elsewhere."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np

from tests.mistakes.case import NET, Case

_ZIP = io.BytesIO()
with zipfile.ZipFile(_ZIP, "w") as _file:
    _file.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
_PYTHON = """\
import torch
import torch.nn as nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        with torch.no_grad():
            return self.fc(x)
"""
_SCRIPTED = "from tvm.script import ir as I, relax as R\n\n" + NET + "\nmod = Net\nmod.show()\n"
_WITH_WEIGHTS = """\
@R.function
def main(x: R.Tensor((8,), "float32")):
    y = R.add(x, metadata["relax.expr.Constant"][0])
    return y
"""


def _object_array() -> None:
    np.savez("a.npz", x=np.array([{}], dtype=object), w=np.ones((8, 16), "float32"))


def _cut() -> None:
    from mlcc.cli.main import run

    run(["compile", "net.mlc", "-o", "net.o"])
    Path("net.o").write_bytes(Path("net.o").read_bytes()[:1000])


def _cut_arrays() -> None:
    Path("a.npz").write_bytes(Path("net.npz").read_bytes()[:200])


def _save_npy() -> None:
    np.save("x.npy", np.ones((4, 8), "float32"))


CASES = [
    Case("PyTorch's .pt", "mlcc compile net.pt -o net.o", {"net.pt": _ZIP.getvalue()}),
    Case("state_dict", "mlcc import weights.pth -o net.mlc", {"weights.pth": _ZIP.getvalue()}),
    Case("a damaged .pt2", "mlcc compile net.pt2 -o net.o", {"net.pt2": _ZIP.getvalue()}),
    Case("a Python program", "mlcc compile net.py -o net.o", {"net.py": _PYTHON}),
    Case("Python with TVM's script", "mlcc compile net.py -o net.o", {"net.py": _SCRIPTED}),
    Case("notebook", "mlcc check net.ipynb", {"net.ipynb": '{"cells": [], "metadata": {}, "nbformat": 4}\n'}),
    Case("a damaged .onnx", "mlcc compile net.onnx -o net.o", {"net.onnx": b"\x08\x07\x12garbage\xff\xff"}),
    Case("TensorFlow", "mlcc import net.pb -o net.mlc", {"net.pb": b"\x0a\x00"}),
    Case("gguf", "mlcc import net.gguf -o net.mlc", {"net.gguf": b"GGUF"}),
    Case("JSON", "mlcc check net.json", {"net.json": '{"model": "net"}\n'}),
    Case("weights for a model", "mlcc compile net.npz -o net.o"),
    Case("source in C", "mlcc check net.c", {"net.c": "#include <stdio.h>\nint main(void) { return 0; }\n"}),
    Case("empty", "mlcc check a.mlc", {"a.mlc": ""}),
    Case("comments only", "mlcc check a.mlc", {"a.mlc": "# nothing yet\n"}),
    Case("several files, one empty", "mlcc check net.mlc b.mlc kernel.mlc", {"b.mlc": ""}),
    Case("UTF-16", "mlcc check a.mlc", {"a.mlc": NET.encode("utf-16")}),
    Case("Latin-1", "mlcc check a.mlc", {"a.mlc": ("# naïve\n" + NET).encode("latin-1")}),
    Case("an object as a text", "mlcc check a.mlc", {"a.mlc": b"\x7fELF\x02\x01\x01\x00\x00"}),
    Case("a text as an object", "mlcc run net.o --in net.npz", {"net.o": NET}),
    Case("a cut object", "mlcc run net.o --in net.npz", prepare=_cut),
    Case("a cut .npz", "mlcc run net.mlc --in a.npz", prepare=_cut_arrays),
    Case("a text as .npz", "mlcc run net.mlc --in a.npz", {"a.npz": "x = [1, 2]\n"}),
    Case("objects of Python", "mlcc run net.mlc --in a.npz", prepare=_object_array),
    Case(".csv", "mlcc run net.mlc --in x.csv", {"x.csv": "1,2,3\n"}),
    Case(".pt as arrays", "mlcc run net.mlc --in x.pt", {"x.pt": _ZIP.getvalue()}),
    Case("a damaged .safetensors", "mlcc run net.mlc --in a.safetensors", {"a.safetensors": b"\xff" * 16}),
    Case("weights left behind", "mlcc compile a.mlc -o a.o", {"a.mlc": _WITH_WEIGHTS}),
    Case("a schedule as a module", "mlcc compile a.mls -o a.o", {"a.mls": 'b = sch.get_block("C")\n'}),
    Case("a module as a schedule", "mlcc schedule kernel.mlc --script net.mlc -o out.mlc"),
    Case("a merge conflict", "mlcc check a.mlc", {"a.mlc": "<<<<<<< HEAD\n" + NET + "=======\n>>>>>>> other\n"}),
    Case("Markdown", "mlcc check a.mlc", {"a.mlc": "```python\n" + NET + "```\n"}),
]
