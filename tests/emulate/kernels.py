"""Helpers: kernels written as text, run by emulation."""

from __future__ import annotations

from typing import Any

import numpy as np

import mlcc
from mlcc.ir import tir
from mlcc.passes.gpu import DeviceProgram
from mlcc.targets.emulate import run_program
from tests.lower import lower_gpu

FULL = "T.uint32(0xFFFFFFFF)"


def program(text: str) -> DeviceProgram:
    """The device program of the text's only function."""
    ((name, func),) = mlcc.parse(text).functions.items()
    assert isinstance(func, tir.PrimFunc)
    return lower_gpu(str(getattr(name, "name", name)), func)


def run(text: str, *args: Any) -> None:
    """Run the text's only function in place."""
    run_program(program(text), *args)


def rand(*shape: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random(shape).astype(dtype)
