"""State that the functions of one object share during code generation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from mlcc.errors import Diagnostic, Span
from mlcc.ir import tir
from mlcc.ir.versions import cpu_of, version_names
from mlcc.runtime.abi import ALIGNMENT
from mlcc.targets.llvm.codegen.ir_text import ModuleText
from mlcc.targets.llvm.codegen.native_functions import NativeFunction
from mlcc.targets.llvm.codegen.signature import Kernel
from mlcc.targets.llvm.codegen.versions import Version
from mlcc.targets.plan.context import Planning
from mlcc.targets.plan.exports import error_code_for

# `i32 @mlcc_packed_call(i32 slot, ptr args, i32 count)` calls the packed function bound to a slot with `count` pointers
# to DLTensors; it returns 0 or an error code. The host part defines it if a slot is used.
PACKED_CALL = "mlcc_packed_call"
CONSTANTS = "mlcc_unnamed_prefix_constants"  # the symbol of the data section with the weights


def constants_declaration(is_far: bool) -> str:
    """Return the declaration of CONSTANTS. Unless `is_far`, code reaches the symbol by a 32-bit displacement."""
    return f"external {'' if is_far else 'hidden '}constant [0 x i8], align {ALIGNMENT}"


@dataclass(frozen=True, slots=True)
class EmitOptions:
    """Options of code generation.

    `contract` allows contraction of a multiplication and an addition to `fma`; `fast_math` allows reassociation,
    products with reciprocals in place of divisions, and loss of the sign of zero. `allow_extern` names the symbols that
    `call_extern` may call besides the known ones of libm. `stack_bytes` limits the buffers of a kernel on the
    stack; others are in the workspace. Parallel loops run on at most `num_cores` threads (0: the number of cores at run
    time). `sanitize`: check every access (`sanitized`). `profile`: time the calls of kernels (`host.profile_counters`)
    and log them (`execution_log`). `freestanding`: there is no allocator and there are no threads.
    """

    contract: bool = True
    fast_math: bool = False
    allow_extern: frozenset[str] = frozenset()
    stack_bytes: int = 16 * 1024
    num_cores: int = 0
    sanitize: bool = False
    profile: bool = False
    freestanding: bool = False


@dataclass(frozen=True, slots=True)
class ProfiledCall:
    """A timed call of a kernel in a host function, with the names of the kernel's symbols."""

    function: str
    kernel: str
    symbols: tuple[str, ...]
    span: Span | None


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """An event of the execution log of a profiled object (`execution_log`).

    `kind` is `kernel`, `packed`, `copy`, `loop` (a parallel one, on the thread that runs the kernel) or `part` (of its
    iterations, on any thread). `name` is that of the kernel or packed function, `span` the place in the text.
    """

    kind: str
    name: str
    function: str = ""
    span: Span | None = None


@dataclass(slots=True)
class ModuleContext:
    """The state of one module: declarations that its functions need, in order of first use.

    `functions` are the PrimFuncs by name, `kernels` the emitted ones. `features` are LLVM's names of CPU features
    (`avx2`, `f16c`). `packed` maps names of packed functions to slots, `errors` maps (kind, message) to error codes;
    the kind is the name of a Python exception, or `INDEX`. `natives` are the functions of native kernels, `externs` the
    used symbols of `allow_extern` (without those of `libm.ALLOWED`). `emitting` are the names of the kernels in
    progress, `problems` the errors in the innermost one. `formulas` replace elementary functions of float32.
    `finished` is called with the name of every kernel that is complete.

    `least` is the version for the object's own CPU; `versions` are those for other CPUs, the best last. `cpu` (None for
    the object's own), `features` and `function_attrs` are those of the current kernel. `direct` maps names to
    kernels that other kernels call without the dispatcher.
    """

    module: ModuleText
    functions: Mapping[str, tir.PrimFunc] = field(default_factory=dict)
    features: frozenset[str] = frozenset()
    options: EmitOptions = EmitOptions()
    function_attrs: str = "nounwind"
    natives: Mapping[str, NativeFunction] = field(default_factory=dict)
    kernels: dict[str, Kernel] = field(default_factory=dict)
    packed: dict[str, int] = field(default_factory=dict)
    errors: dict[tuple[str, str], int] = field(default_factory=dict)
    externs: dict[str, None] = field(default_factory=dict)
    emitting: list[str] = field(default_factory=list)
    problems: list[Diagnostic] = field(default_factory=list)
    formulas: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    finished: Callable[[str], None] = lambda name: None
    least: Version = Version()
    versions: Mapping[str, Version] = field(default_factory=dict)
    cpu: str | None = None
    direct: dict[str, Kernel] = field(default_factory=dict)
    profiled: list[ProfiledCall] = field(default_factory=list)
    events: list[LoggedEvent] = field(default_factory=list)

    def packed_slot(self, name: str) -> int:
        """Return the slot of a packed function, numbered from 0 in order of first use."""
        return self.packed.setdefault(name, len(self.packed))

    def error_code(self, kind: str, message: str) -> int:
        """Return the error code of a message; equal messages share one. `mlcc.runtime.abi` has the kinds of codes."""
        return error_code_for(self.errors, kind, message)

    @property
    def architecture(self) -> str:
        """Return the architecture of the module's triple."""
        return self.module.triple.partition("-")[0]

    @property
    def is_x86(self) -> bool:
        return self.architecture in ("x86_64", "")  # without a triple: this machine, in tests

    @property
    def is_gpu(self) -> bool:
        """True for code of a GPU thread, which has no libm, few vector operations and little private memory."""
        return self.module.triple.startswith("nvptx")

    @property
    def has_fma(self) -> bool:
        return "fma" in self.features or not self.is_x86

    @property
    def has_libm(self) -> bool:
        """True if arguments that no formula covers are left to libm."""
        return not (self.is_gpu or self.options.freestanding)

    @property
    def has_rounding(self) -> bool:
        """True if the machine has instructions that round floats to integral values."""
        return "sse4.1" in self.features if self.is_x86 else self.architecture != "riscv64"

    @property
    def converted_floats(self) -> frozenset[str]:
        """The dtypes narrower than float32 that the machine has conversion instructions for."""
        if self.is_gpu:
            return frozenset({"float16", "bfloat16"}) if "bf16" in self.features else frozenset({"float16"})
        needed = {"x86_64": "f16c", "": "f16c", "riscv64": "zfh"}.get(self.architecture)
        return frozenset({"float16"}) if needed is None or needed in self.features else frozenset()

    def kernel(self, name: str) -> Kernel:
        """Return the kernel of a PrimFunc of the module, emitted on first use. Raises CompileError."""
        from mlcc.targets.llvm.codegen.kernel import emit_kernel

        name = self._own_version(name)
        kernel = self.kernels.get(name) or emit_kernel(name, self)
        return self.direct.get(name, kernel) if self.emitting else kernel

    def _own_version(self, name: str) -> str:
        """Return the name of a kernel's version for the CPU of the current kernel, or `name` if there is none."""
        if self.cpu is None or name not in self.functions:
            return name
        versions = version_names(self.functions[name])
        return next((v for v in versions if v in self.functions and cpu_of(self.functions[v]) == self.cpu), name)

    @contextmanager
    def for_cpu(self, cpu: str | None) -> Iterator[None]:
        """Emit code for the CPU of a version, or for the object's own (None)."""
        if cpu == self.cpu:
            yield
            return
        module = self.module
        saved = self.cpu, self.features, self.function_attrs, module.suffix, module.helper_attrs
        version = self.least if cpu is None else self.versions[cpu]
        self.cpu, self.features, self.function_attrs = cpu, version.features, version.function_attrs
        module.suffix, module.helper_attrs = ("", "") if cpu is None else (version.suffix, version.helper_attrs)
        try:
            yield
        finally:
            self.cpu, self.features, self.function_attrs, module.suffix, module.helper_attrs = saved


Shared = Planning[ModuleContext]
