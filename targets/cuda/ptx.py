"""Compile kernels to PTX: `emit_ptx`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mlcc.errors import CompileError, error
from mlcc.ir import tir
from mlcc.machine.gpu import Arch
from mlcc.machine.gpu_tables import GpuFacts
from mlcc.machine.limited_memory import llvm_library
from mlcc.machine.target import CudaTarget
from mlcc.passes.gpu.device import DeviceKernel
from mlcc.passes.gpu.shared_layout import dynamic_alignment
from mlcc.progress import working
from mlcc.targets.cuda.approximate import EXACT_ENOUGH, FAST
from mlcc.targets.cuda.context import DeviceContext
from mlcc.targets.cuda.kernel import KernelFacts, emit_kernel
from mlcc.targets.cuda.workaround_nvptx_bswap import replace_vector_bswap
from mlcc.targets.llvm.codegen.context import EmitOptions
from mlcc.targets.llvm.codegen.ir_text import ModuleText
from mlcc.targets.llvm.object.compile import Machine, compile_text

TRIPLE = "nvptx64-nvidia-cuda"
OLDEST_LLVM = (22,)


@dataclass(frozen=True, slots=True)
class PtxModule:
    """The PTX of some kernels. `kernels` are their facts by name; `llvm_ir` is the IR before LLVM's passes, or after
    them if `emit_ptx` was called with `optimised`."""

    text: str
    arch: Arch
    kernels: Mapping[str, KernelFacts]
    llvm_ir: str

    @property
    def requirements(self) -> dict[str, object]:
        """Return the requirements of the code for a manifest: PTX ISA, compute capability, CUDA version, driver."""
        cuda, driver = self.arch.driver
        return {
            "arch": self.arch.name, "ptx_isa": ".".join(map(str, self.arch.isa)), "runs_on": self.arch.runs_on,
            "compute_capability": list(self.arch.capability), "variant": self.arch.variant, "cuda": cuda,
            "driver": driver,
        }  # fmt: skip


def emit_ptx(
    kernels: Sequence[DeviceKernel], target: CudaTarget | str, *, opt_level: int = 3, optimised: bool = False,
    debug_lines: bool = False,
) -> PtxModule:  # fmt: skip
    """Compile kernels to one PTX module; with `debug_lines` it has `.loc` directives for the spans of statements.

    Raises CompileError (E0730 to E0732).
    """
    target = CudaTarget.parse(target)
    arch = Arch.of(target.resolved().arch)
    check_llvm()
    module = ModuleText(TRIPLE, debug_lines=debug_lines)
    options = EmitOptions(fast_math=target.fast_math)
    formulas = FAST if target.fast_math else EXACT_ENOUGH
    ctx = DeviceContext(module, features=arch.abilities, options=options, arch=arch, formulas=formulas)
    ctx.shared_alignment = max((dynamic_alignment(k.body) for k in kernels), default=ctx.shared_alignment)
    facts = []
    for at, kernel in enumerate(kernels):
        with working("emit", kernel.name, at, len(kernels)):
            facts.append(emit_kernel(kernel, ctx))
    _check_shared(kernels, facts, GpuFacts.of(target).shared_per_block)
    features: tuple[str, ...] = ()
    if ctx.isa > arch.isa:
        arch = replace(arch, isa=ctx.isa)
        features = (f"+ptx{ctx.isa[0]}{ctx.isa[1]}",)
    given = module.text()
    emit = frozenset({"asm", "llvm-ir"}) if optimised else frozenset({"asm"})
    with working("LLVM"):
        compiled = compile_text(
            given, Machine(TRIPLE, arch.name, features), opt_level, emit, workaround=replace_vector_bswap
        )
    return PtxModule(compiled.asm, arch, {f.name: f for f in facts}, compiled.llvm_ir if optimised else given)


def check_llvm() -> None:
    """Raise CompileError E0731 for an LLVM older than the tested one.

    It lacks architectures, and would emit calls of unknown intrinsics as calls of external functions.
    """
    import llvmlite

    llvm = llvm_library()
    if llvm.llvm_version_info < OLDEST_LLVM:
        has = ".".join(map(str, llvm.llvm_version_info))
        message = f"PTX needs LLVM {OLDEST_LLVM[0]}; llvmlite {llvmlite.__version__} has {has}"
        raise CompileError(error("E0731", message, help="python -m pip install 'llvmlite>=0.50'"))


def _check_shared(kernels: Sequence[DeviceKernel], facts: Sequence[KernelFacts], limit: int) -> None:
    """Raise CompileError E0732 for a kernel whose blocks need more shared memory than the device has for one."""
    for kernel, kernel_facts in zip(kernels, facts, strict=True):
        size = kernel_facts.static_shared + (tir.const_int(kernel.dynamic_shared) or 0)
        if size > limit:
            message = f"`{kernel.name}` needs {size} bytes of shared memory per block"
            raise CompileError(error("E0732", message, text=f"the device has {limit}", help="use smaller tiles"))
