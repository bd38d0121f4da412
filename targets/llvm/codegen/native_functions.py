"""Functions that a program brings along as LLVM IR (`pragma_import_llvm`), as the code that calls them knows them."""

from __future__ import annotations

from dataclasses import dataclass, field

NATIVE_PREFIX = "mlcc.native."  # of the functions of native kernels, before they become internal


@dataclass(frozen=True, slots=True)
class NativeFunction:
    """A function that a kernel's text defines: LLVM types of its result and parameters."""

    name: str
    result: str
    params: tuple[str, ...]
    varargs: bool = False

    def __str__(self) -> str:
        return f"{self.result}({', '.join((*self.params, *(['...'] if self.varargs else [])))})"


@dataclass(frozen=True, slots=True)
class Natives:
    """Checked texts, ready to be linked, the functions that they define by name, and the externs that they call."""

    texts: tuple[str, ...] = ()
    functions: dict[str, NativeFunction] = field(default_factory=dict)
    externs: tuple[str, ...] = ()
