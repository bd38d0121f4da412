"""The options of `torch.compile(model, backend="mlcc", options={...})`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from mlcc.driver import run_passes
from mlcc.ir.module import IRModule
from mlcc.passes.manage.manager import Pipeline


@dataclass(frozen=True, slots=True)
class Options:
    """Options for compiling graphs of `torch.compile`."""

    opt_level: int | None = None  # of `mlcc.build`
    target: str = "llvm{cpu=native}"
    strict: bool = False  # raise for a graph that cannot be compiled, which PyTorch would run instead
    freeze: bool = False  # bind parameters as constants: later changes of them are not seen

    pipeline: str | Pipeline | Callable[[IRModule], IRModule] | None = None  # of passes before those of `mlcc.build`

    def apply_pipeline(self, module: IRModule) -> IRModule:
        """Run the pipeline on a module."""
        if self.pipeline is None:
            return module
        if callable(self.pipeline):
            return self.pipeline(module)
        return run_passes(module, self.pipeline, target=self.target)

    @staticmethod
    def of(given: Mapping[str, Any] | None) -> Options:
        """Create the options from a mapping. Raises ValueError for an unknown option."""
        known = [f.name for f in fields(Options)]
        for name in given or {}:
            if name not in known:
                raise ValueError(f"the mlcc backend has no option {name!r}; the options are {', '.join(known)}")
        return Options(**(given or {}))
