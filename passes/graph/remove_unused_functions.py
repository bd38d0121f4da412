"""Removal of functions that nothing calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlcc.ir.module import IRModule
from mlcc.passes.graph.dead_code import keep_reachable
from mlcc.passes.manage.manager import Pass, PassContext


@dataclass(frozen=True)
class RemoveUnusedFunctions(Pass):
    """Remove private functions that no public function calls, directly or not.

    A module without public functions is left alone.

    Before:  a private `relu` that nothing calls, `main`
    After:   `main`
    """

    name: ClassVar[str] = "remove-unused-functions"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        public = {name for name, func in module.functions.items() if not func.is_private}
        return keep_reachable(module, public) if public else module
