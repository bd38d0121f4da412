"""Packages that importers are checked with; a test that needs one that is missing is skipped."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.frontend.vision import import_torchvision


def _package(name: str, load: Callable[[], Any] | None = None) -> Any:
    @pytest.fixture(scope="session", name=name)
    def package() -> Any:
        """The package, or a skip."""
        try:
            return importlib.import_module(name) if load is None else load()
        except ImportError:
            pytest.skip(f"{name} is not installed (extra `[models]`)")

    return package


torch = _package("torch")
torchvision = _package("torchvision", import_torchvision)
timm = _package("timm", lambda: import_torchvision() and importlib.import_module("timm"))
transformers = _package("transformers", lambda: import_torchvision() and importlib.import_module("transformers"))
onnx = _package("onnx")
onnxruntime = _package("onnxruntime")
onnxscript = _package("onnxscript")
safetensors = _package("safetensors")
