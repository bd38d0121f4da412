"""Packages that importers are checked with; a test that needs one that is missing is skipped."""

from __future__ import annotations

import importlib
from typing import Any

import pytest


def _package(name: str) -> Any:
    @pytest.fixture(scope="session", name=name)
    def package() -> Any:
        """The package, or a skip."""
        try:
            return importlib.import_module(name)
        except ImportError:
            pytest.skip(f"{name} is not installed (extra `[frontend]`)")

    return package


torch = _package("torch")
torchvision = _package("torchvision")
timm = _package("timm")
transformers = _package("transformers")
onnx = _package("onnx")
onnxruntime = _package("onnxruntime")
onnxscript = _package("onnxscript")
safetensors = _package("safetensors")
