"""The models, and the files that a process reads for each."""

from __future__ import annotations

import functools
import importlib.util
import json
from pathlib import Path
from typing import Any

import mlcc
from bench.speed.peers.base import Work
from bench.speed.session import ROOT, write_arrays
from bench.speed.texts import encoder, lenet, mlp, mobilenet_v2, resnet18
from bench.speed.workloads import Workload
from mlcc.driver import write_module

MODELS = (
    Workload("mlp", functools.partial(mlp, 1)),
    Workload("lenet", lenet),
    Workload("encoder", functools.partial(encoder, 1, 256, 4, 1024, 128)),
    Workload("gpt_block", functools.partial(encoder, 1, 768, 12, 3072, 64, causal=True)),
    Workload("resnet18", resnet18),
    Workload("mobilenet_v2", mobilenet_v2),
)
SAMPLES = {  # with sizes that only a call knows: what is compiled for GPUs
    "resnet18 (sample)": ROOT / "samples" / "resnet" / "resnet18.mlc",
    "lenet (sample)": ROOT / "samples" / "lenet" / "lenet.mlc",
    "decoder (sample)": ROOT / "samples" / "decoder" / "decoder.mlc",
}


def files(model: Workload, folder: Path) -> dict[str, str]:
    """Return the paths by kind, writing missing files; the weights are beside the text."""
    kept = write_arrays(model, folder)
    at = {kind: folder / f"{model.name}.{end}" for kind, end in ENDS.items()}
    text, graph, onnx = at["text"], at["graph"], at["onnx"]
    if any(not p.exists() or p.stat().st_mtime < kept.stat().st_mtime for p in (text, graph)):
        graph.write_text(json.dumps(model.graph.plain()))
        parsed = mlcc.parse(model.text.source)
        weights = f"bind-params{{params={model.name}.weights.npz}}"
        write_module(mlcc.run_passes(parsed, weights, folder=str(folder)), str(text))
        onnx.unlink(missing_ok=True)
    if not onnx.exists() and importlib.util.find_spec("onnx"):
        from bench.speed.peers.onnx_model import onnx_model

        inputs, weights_of = model.arrays()
        onnx.write_bytes(onnx_model(Work(model.graph, "", inputs, weights_of, str(folder), 0)))
    return {**{kind: str(path) for kind, path in at.items()}, "expected": str(kept)}


ENDS: dict[str, Any] = {
    "text": "bound.mlc", "inputs": "in.npz", "weights": "weights.npz", "graph": "graph.json", "onnx": "onnx",
}  # fmt: skip
