"""The host part of device code as data: a launch plan says what the host does for each public function, step by step.

`plan_module` makes it from a lowered module, with the kernels that it launches; `docs/cuda.md` describes its JSON. The
runtime's runner (`mlcc.runtime.launch.plan`) carries it out over any device, hardware or emulated.
"""

from __future__ import annotations

from mlcc.targets.launch.module import LaunchModule, plan_module

__all__ = ["LaunchModule", "plan_module"]
