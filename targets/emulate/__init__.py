"""GPU kernels on a CPU: emulation of grids, blocks, warps and barriers by code that the llvm target compiles."""

from __future__ import annotations

from mlcc.targets.emulate.program import run_program

__all__ = ["run_program"]
