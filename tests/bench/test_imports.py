"""The report of import times, and that its models are those of the texts by hand."""

from __future__ import annotations

from typing import Any

from bench.compile.models import MODELS as TEXTS
from bench.imports import MODELS, WAYS, report


def test_peers_are_multiples_of_mlcc_from_the_same_file() -> None:
    mlcc = {"import": 0.2, "compile": 2.0, "call": 1e-3}
    samples: dict[tuple[str, str], list[dict[str, Any]]] = {
        ("net", "mlcc, .pt2"): [{**mlcc, "call": 9.0}, mlcc, mlcc],
        ("net", "mlcc, .onnx"): [mlcc],
        ("net", "tvm, .pt2"): [{"import": 0.4, "compile": 4.2, "call": 5e-3}, {"error": "died"}],
        ("net", "onnxruntime, .onnx"): [{"import": 0.0, "compile": 1.1, "call": 5e-4}],
        ("net", "openvino, .onnx"): [{"error": "not installed"}],
    }
    text = report(samples, {"net": 1.04})
    assert "| net | mlcc, .pt2 | 0.200 s | 2.000 s | 2.200 s | 1.00 ms |" in text
    assert "| net | tvm, .pt2 | 2.00x | 2.10x | 2.09x | 5.00x |" in text
    assert "| net | onnxruntime, .onnx | in compile | 0.55x | 0.50x | 0.50x |" in text
    assert "| net | openvino, .onnx | not installed | | | |" in text and "| net | 1.04x |" in text


def test_every_model_has_a_text_by_hand() -> None:
    assert set(MODELS) <= {model.name for model in TEXTS}
    assert {suffix for _, suffix in WAYS.values()} == {"pt2", "onnx"}
