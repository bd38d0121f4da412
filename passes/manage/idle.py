"""Warn of passes that had nothing to work on: a wrong order of passes looks like success otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from mlcc.errors import Diagnostic, Severity, error
from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.passes import PASSES
from mlcc.passes.manage.manager import Observer, Pass

# the folders of passes that work on TensorIR functions; those of the other folders work on graphs
_OF_KERNELS = ("auto_schedule", "gpu", "lowering", "schedule")
# passes that look for operators, not for calls of TensorIR functions
_OF_OPERATORS = frozenset(
    {
        "adjust-matmul-order", "auto-layout", "broadcast-operands", "combine-parallel-matmul", "convert-layout",
        "decompose", "ewise-fma", "fold-batch-norm", "fuse-attention", "fuse-dense-add", "fuse-matmul-add",
        "integer-products", "lower-to-tir", "quantize-weights", "recognize-operators", "to-mixed-precision",
    }
)  # fmt: skip
# passes of folders of graphs that work on functions of both kinds
_OF_ANY_FUNCTION = ("dead-code", "remove-unused-functions")


@dataclass
class Idle(Observer):
    """Collect a warning (W0501) for each pass that changed nothing and had nothing to work on.

    `names`: warn about these passes only, since some passes of a named pipeline never have work.
    """

    names: frozenset[str] | None = None
    found: list[Diagnostic] = field(default_factory=list)
    _ran: set[str] = field(default_factory=set)

    def after(self, at: int, current: Pass, before: IRModule, module: IRModule) -> None:
        self._ran.add(current.name)
        if self.names is not None and current.name not in self.names:
            return
        if current.name == "fuse-tir" and "fuse" in self._ran:
            return  # `fuse` may find nothing to fuse
        if module.functions == before.functions and module.attrs == before.attrs:  # functions compare by identity
            reason = _reason(current.name, before)
            if reason is not None:
                message = f"`{current.name}` changed nothing: {reason[0]}"
                self.found.append(replace(error("W0501", message, help=reason[1]), severity=Severity.WARNING))


def _reason(name: str, module: IRModule) -> tuple[str, str] | None:
    """Return why there is nothing for a pass in a module, and what to do; None if there may be something."""
    operators = any(_operators(module))
    graphs = any(isinstance(f, relax.Function) for f in module.functions.values())
    kernels = any(isinstance(f, tir.PrimFunc) for f in module.functions.values())
    if not _folder(name):
        return None
    if _folder(name) in _OF_KERNELS:
        if kernels:
            return None
        return "it works on TensorIR functions, and the module has none", "run `lower-to-tir` before it"
    if kernels and name in _OF_ANY_FUNCTION:
        return None
    if not graphs:
        return "it works on graphs, the relax functions, and the module has none", "leave it out"
    if name == "fuse-tir":
        groups = any("Primitive" in f.attrs for f in module.functions.values())
        return None if groups else ("no function is a group that `fuse` made", "run `lower-to-tir,fuse` before it")
    if name in _OF_OPERATORS and not operators:
        if name == "lower-to-tir":
            return "no operators are left to lower", "leave it out"
        return "it looks for operators, and none are left", "run it before `lower-to-tir`"
    return None


def _folder(name: str) -> str:
    """The folder of mlcc's that a pass is from; empty for a pass from outside."""
    place = PASSES.get(name)
    if not isinstance(place, str) or not place.startswith("mlcc.passes."):
        return ""
    return place.removeprefix("mlcc.passes.").partition(".")[0]


def _operators(module: IRModule) -> Iterator[str]:
    """The operators that the module's graphs call, those that call functions excepted."""
    from mlcc.ops.signature import signature
    from mlcc.relax.queries import all_bindings

    for func in module.functions.values():
        for binding, _ in all_bindings(func.body) if isinstance(func, relax.Function) else ():
            value = getattr(binding, "value", None)
            if isinstance(value, relax.Call) and isinstance(value.op, tir.Op):
                known = signature(value.op.name)
                if known is None or not known.params or known.params[0].kind != "func":
                    yield value.op.name
