"""State that the functions of one C file share while they are printed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mlcc.errors import CompileError, Span, did_you_mean, error
from mlcc.ir import tir
from mlcc.passes.lowering.stage import placed
from mlcc.progress import working
from mlcc.recursion import deep_recursion
from mlcc.targets.c.helpers import Helpers
from mlcc.targets.c.reserved import WORDS, is_reserved
from mlcc.targets.plan.context import Planning
from mlcc.targets.plan.exports import error_code_for
from mlcc.targets.plan.signature import KernelSignature
from mlcc.targets.source.dialect import refuse
from mlcc.targets.source.names import identifier


@dataclass(frozen=True, slots=True)
class CKernel:
    """A printed kernel: its C name, and what calling it takes. `fails`: it returns an error code, not void.

    Parameters are those of the PrimFunc, then an int64_t per symbol, then a pointer to the result if there is one, then
    `workspace` if `workspace` is not 0.
    """

    name: str
    signature: KernelSignature
    workspace: tir.Expr
    fails: bool

    @property
    def takes_workspace(self) -> bool:
        return tir.const_int(self.workspace) != 0


@dataclass(slots=True)
class FileContext:
    """The state of one file: kernels printed so far, helper functions in use, error codes, packed functions.

    `functions` are the PrimFuncs by name; `stack_bytes` bounds the temporaries of a kernel on the stack; `allow_extern`
    names C functions that the program may call besides those of libm.
    """

    functions: Mapping[str, tir.PrimFunc] = field(default_factory=dict)
    stack_bytes: int = 16 * 1024
    allow_extern: frozenset[str] = frozenset()
    helpers: Helpers = field(default_factory=Helpers)
    kernels: dict[str, CKernel] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)  # of kernels, callees first
    packed: dict[str, int] = field(default_factory=dict)
    errors: dict[tuple[str, str], int] = field(default_factory=dict)
    externs: dict[str, None] = field(default_factory=dict)
    prototypes: dict[str, str] = field(default_factory=dict)  # of allowed externs
    names: set[str] = field(default_factory=set)  # of functions and constants in the file
    emitting: list[str] = field(default_factory=list)
    has_faults: bool = False
    debug_lines: bool = False  # `#line` directives say which statement a line comes from

    def packed_slot(self, name: str) -> int:
        """Return the slot of a packed function, numbered from 0 in order of first use."""
        return self.packed.setdefault(name, len(self.packed))

    def error_code(self, kind: str, message: str) -> int:
        """Return the error code of a message; equal messages share one."""
        return error_code_for(self.errors, kind, message)

    def global_name(self, hint: str) -> str:
        """Return a name that is unique in the file."""
        base = unique = identifier(hint, WORDS)
        number = 1
        while unique in self.names or is_reserved(unique):
            unique, number = f"{base}_{number}", number + 1
        self.names.add(unique)
        return unique

    def declare_extern(self, symbol: str, prototype: str, span: Span | None) -> None:
        """Declare a C function that the program calls. Raises CompileError for a second prototype."""
        known = self.prototypes.setdefault(symbol, prototype)
        self.externs.setdefault(symbol)
        if known != prototype:
            raise refuse(f"`{symbol}` is called as `{known}` and as `{prototype}`", span)

    def kernel(self, name: str) -> CKernel:
        """Return the kernel of a PrimFunc of the module, printed on first use. Raises CompileError."""
        from mlcc.targets.c.kernel import print_kernel

        known = self.kernels.get(name)
        if known is not None:
            return known
        func = self.functions.get(name)
        if func is None:
            hint = did_you_mean(name, self.functions)
            raise CompileError(error("E0702", f"the module has no PrimFunc `{name}`", help=hint))
        if name in self.emitting:
            chain = " -> ".join([*self.emitting[self.emitting.index(name) :], name])
            raise CompileError(error("E0703", f"PrimFuncs call each other in a circle: {chain}", func.span))
        self.emitting.append(name)
        try:
            with deep_recursion(), working("emit", name, len(self.kernels), len(self.functions)):
                kernel, text = print_kernel(name, func, self)
        except CompileError as exc:
            raise CompileError([placed(diagnostic, func) for diagnostic in exc.diagnostics]) from None
        finally:
            self.emitting.pop()
        self.kernels[name] = kernel
        self.texts.append(text)
        return kernel


Shared = Planning[FileContext]
