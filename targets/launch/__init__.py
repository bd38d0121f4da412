"""Launch plans: the host part of device code as data, the steps that the host runs for each public function.

`plan_module` builds a plan from a lowered module, with the kernels that it launches; `docs/cuda.md` describes its JSON.
The runtime (`mlcc.runtime.launch.plan`) executes it on any device, hardware or emulated.
"""

from __future__ import annotations

from mlcc.targets.launch.module import LaunchModule, plan_module

__all__ = ["LaunchModule", "plan_module"]
