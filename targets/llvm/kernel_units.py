"""Group the functions of a module into LLVM units: kernels as they are finished, the host code at the end."""

from __future__ import annotations

from dataclasses import dataclass, field

from mlcc.targets.llvm.codegen.ir_text import FunctionText, ModuleText
from mlcc.targets.llvm.object.passes import Code
from mlcc.targets.llvm.object.units import Unit, UnitCompiler

_MIN_UNIT_SIZE = 24_000  # characters: compiling an empty unit takes 2.5 ms, as long as this much text


@dataclass
class _OpenUnit:
    """A unit that still accepts kernels."""

    kernels: list[str] = field(default_factory=list)
    functions: list[FunctionText] = field(default_factory=list)
    size: int = 0


class KernelUnits:
    """Build units from the kernels of a module as they are finished.

    Functions with scalar loops, which need more of LLVM's passes, are in other units than those with vector loops.
    Consecutive small kernels share a unit.
    """

    def __init__(self, module: ModuleText, compiler: UnitCompiler) -> None:
        self._module = module
        self._compiler = compiler
        self._open: dict[Code, _OpenUnit] = {}
        self._owned: dict[str, list[FunctionText]] = {}  # functions of unfinished kernels
        self._seen = 0

    def finished(self, name: str) -> None:
        """Add the functions of a complete kernel."""
        for function in self._module.functions[self._seen :]:
            self._owned.setdefault(function.owner, []).append(function)
        self._seen = len(self._module.functions)
        kernel_functions = self._owned.pop(name)
        for code in (Code.VECTORS, Code.LOOPS):
            functions = [f for f in kernel_functions if f.scalar_loops == (code is Code.LOOPS)]
            if functions:
                unit = self._open.setdefault(code, _OpenUnit())
                unit.kernels.append(name)
                unit.functions += functions
                unit.size += sum(f.size for f in functions)
                if unit.size >= _MIN_UNIT_SIZE:
                    self._close(code)

    def complete(self) -> None:
        """Close all units, and add the units of helpers and host code."""
        for code in tuple(self._open):
            self._close(code)
        helpers, host, separate = self._module.rest()
        if "\ndefine" in helpers:
            self._compiler.add(Unit((), helpers, Code.HOST))
        self._compiler.add(Unit((), host, Code.HOST))
        if separate:
            self._compiler.add(Unit((), separate, Code.HOST, is_separate=True))

    def _close(self, code: Code) -> None:
        unit = self._open.pop(code)
        text = self._module.part(unit.functions)
        self._compiler.add(Unit(tuple(unit.kernels), text, code))
