"""Compile LLVM IR text to machine code by llvmlite. All text that reaches LLVM is parsed and verified here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mlcc.errors import CompileError, error
from mlcc.machine.cpu import features_of
from mlcc.machine.limited_memory import memory_is_limited, run_apart
from mlcc.machine.target import LlvmTarget, baseline_cpu
from mlcc.machine.triples import is_bare_metal
from mlcc.targets.llvm.codegen import workaround_avx512_masked_store as lone_lanes
from mlcc.targets.llvm.codegen.native_functions import NATIVE_PREFIX
from mlcc.targets.llvm.object import machines, unlocked
from mlcc.targets.llvm.object.assembly import join_assembly
from mlcc.targets.llvm.object.passes import Code, codegen_level, optimise, run_pipeline

_lock = threading.Lock()
# what LLVM does not assume of a baseline CPU: RV64GC, with floats passed in registers
_BASELINE = {"riscv64": ("+m", "+a", "+f", "+d", "+c")}
_ABI = {"riscv64": "lp64d"}


@dataclass(frozen=True, slots=True)
class Machine:
    """A CPU or GPU to generate code for; `features` are LLVM's, each with its sign: `+avx2`."""

    triple: str = "x86_64-unknown-linux-gnu"
    cpu: str = "x86-64"
    features: tuple[str, ...] = ()

    @property
    def is_gpu(self) -> bool:
        """True for code of NVIDIA GPUs: `asm`, which is PTX, is the only output."""
        return self.triple.startswith("nvptx")

    @property
    def enabled(self) -> frozenset[str]:
        """Return the features that the CPU is known to have, by LLVM's names."""
        return features_of(self.triple, self.cpu, self.features)

    @property
    def function_attrs(self) -> str:
        """Return the attributes of every function.

        The CPU is only tuned for, and the last attribute prevents LLVM from halving vectors on some AVX-512 CPUs.
        """
        attrs = f'nounwind "tune-cpu"="{self.cpu}"'
        return f'{attrs} "prefer-vector-width"="512"' if "avx512f" in self.enabled else attrs

    def check(self) -> None:
        """Raise CompileError for a triple, CPU or feature that is not tested."""
        machines.check(self.triple, self.cpu, self.features)

    @staticmethod
    def of(target: LlvmTarget) -> Machine:
        """Return the machine of a target; the native CPU is as LLVM detects it. Raises CompileError."""
        full = target.resolved()
        machine = Machine(machines.normal_triple(full.triple), full.cpu, full.features)
        if not target.is_native:
            machine.check()
        return machine


@dataclass(frozen=True, slots=True)
class Compiled:
    """The results of one compilation; those not requested are empty."""

    obj: bytes = b""
    asm: str = ""
    llvm_ir: str = ""


def compile_text(
    text: str, machine: Machine, level: int = 2, emit: frozenset[str] = frozenset({"obj"}), kernels: Sequence[str] = (),
    workaround: Callable[[list[str], Callable[[], str]], str | None] | None = None,
) -> Compiled:  # fmt: skip
    """Compile a module at an optimisation level of 0 to 3. `emit` picks among obj, asm and llvm-ir (optimised).

    `kernels` are modules of checked native kernels to link in; they are compiled in a child process only (`native`).
    `mend` may give another text for the optimised one (by its second argument), whose functions have these names.
    Equal text gives equal bytes. `machine` must be a checked one: LLVM ends the process on some combinations. Raises
    RuntimeError (our own bug) for text that LLVM does not accept. Where memory is limited, LLVM runs in a process of
    its own, and CompileError E0016 says that it got too little.
    """
    if memory_is_limited() and not kernels:  # those have their own process
        return run_apart(lambda: _compile(text, machine, level, emit, kernels, workaround))
    return _compile(text, machine, level, emit, kernels, workaround)


def _compile(
    text: str, machine: Machine, level: int, emit: frozenset[str], kernels: Sequence[str],
    mend: Callable[[list[str], Callable[[], str]], str | None] | None,
) -> Compiled:  # fmt: skip
    import llvmlite.binding as llvm

    with _lock:  # one at a time; `compile_unit` is for many
        tm = target_machine(machine, level)
        context = llvm.create_context()
        module = llvm.parse_assembly(text, context)
        module.triple = machine.triple
        module.data_layout = str(tm.target_data)
        for kernel in kernels:
            module.link_in(llvm.parse_assembly(kernel, context))
        for function in module.functions if kernels else ():
            if function.name.startswith(NATIVE_PREFIX) and not function.is_declaration:
                function.linkage = "internal"
        module.verify()
        _keep_out_of_red_zone(module, machine)
        run_pipeline(llvm, tm, module, level, vectorize=level >= 2 and not machine.is_gpu)
        module = _apply_workarounds(module, machine, context)
        if mend is not None:
            optimised = module
            changed = mend([f.name for f in module.functions], lambda: str(optimised))
            if changed is not None:
                module = llvm.parse_assembly(changed, context)
                module.verify()
        return Compiled(
            tm.emit_object(module) if "obj" in emit else b"",
            tm.emit_assembly(module) if "asm" in emit else "",
            str(module) if "llvm-ir" in emit else "",
        )


def target_machine(machine: Machine, level: int) -> Any:
    """Return llvmlite's TargetMachine: position-independent code, small code model.

    Such code runs wherever it is linked to, also on bare metal at high addresses: it needs no global offset table for
    what is in the object, and reaches that within 2 GiB of itself.

    LLVM is given the features instead of the CPU's name, which may imply features that the manifest does not list.
    """
    import llvmlite.binding as llvm

    if machine.is_gpu:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        gpu = _code_generator(machine.triple)
        return gpu.create_target_machine(cpu=machine.cpu, features=",".join(machine.features), opt=level)
    if machine.triple == llvm.get_default_triple():
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    else:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        llvm.initialize_native_target()
    llvm.initialize_native_asmparser()  # for the instruction that asks the CPU (`cpu_features`)
    target = _code_generator(machine.triple)
    arch = machine.triple.partition("-")[0]
    features = [*_BASELINE.get(arch, ()), *(f"+{f}" for f in sorted(machine.enabled)), *machine.features]
    baseline = baseline_cpu(machine.triple)
    return target.create_target_machine(
        cpu=baseline, features=",".join(features), opt=level, reloc="pic", codemodel="small",
        abiname=_ABI.get(arch, ""),
    )  # fmt: skip


def _code_generator(triple: str) -> Any:
    """Return llvmlite's Target for a triple. Raises CompileError E0705 if this build of LLVM has none."""
    import llvmlite.binding as llvm

    try:
        return llvm.Target.from_triple(triple)
    except RuntimeError as exc:
        message = f"the installed llvmlite has no code generator for `{triple}`: {exc}"
        help = "install llvmlite from PyPI, whose wheels have them all"
        raise CompileError(error("E0705", message, help=help)) from None


def compile_unit(text: str, machine: Machine, level: int, code: Code, tm: Any = None) -> bytes:
    """Compile a complete module to an object, with the passes for its kind of code.

    Threads may call this concurrently. `tm` is a reusable result of `target_machine` for this thread and level.

    Raises RuntimeError (our own bug) for text that LLVM does not accept.
    """
    import llvmlite.binding as llvm

    tm = tm or target_machine(machine, codegen_level(level, code))
    module = _optimise_text(llvm, text, machine, level, code, tm, llvm.create_context())
    try:
        return unlocked.emit(tm, module)
    finally:
        unlocked.close(module)


def assembly(units: Sequence[tuple[str, Code]], machine: Machine, level: int) -> str:
    """Compile units to assembly, one by one like `compile_unit`.

    Raises RuntimeError, or CompileError as `compile_text` does.
    """
    import llvmlite.binding as llvm

    def emitted() -> str:
        texts = []
        for text, code in units:
            tm = target_machine(machine, codegen_level(level, code))
            module = _optimise_text(llvm, text, machine, level, code, tm, llvm.create_context())
            texts.append(tm.emit_assembly(module))
        return join_assembly(texts)

    return run_apart(emitted) if memory_is_limited() else emitted()


def linked_ir(units: Sequence[tuple[str, Code]], machine: Machine, level: int) -> str:
    """Return the LLVM IR of units, optimised one by one and linked. Raises what `assembly` raises."""
    import llvmlite.binding as llvm

    def linked() -> str:
        context = llvm.create_context()
        result: Any = None
        for text, code in units:
            tm = target_machine(machine, codegen_level(level, code))
            module = _optimise_text(llvm, text, machine, level, code, tm, context)
            if result is None:
                result = module
            else:
                result.link_in(module)
        return str(result)

    return run_apart(linked) if memory_is_limited() else linked()


def _optimise_text(llvm: Any, text: str, machine: Machine, level: int, code: Code, tm: Any, context: Any) -> Any:
    module = unlocked.parse(text, context)
    module.triple = machine.triple
    module.data_layout = str(tm.target_data)
    unlocked.verify(module)
    _keep_out_of_red_zone(module, machine)
    optimise(llvm, tm, module, level, code)
    return _apply_workarounds(module, machine, context)


def _keep_out_of_red_zone(module: Any, machine: Machine) -> None:
    """Have functions for bare metal x86-64 use no memory below the stack pointer: interrupts overwrite it."""
    if machine.triple.startswith("x86_64") and is_bare_metal(machine.triple):
        for function in module.functions:
            if not function.is_declaration:
                function.add_function_attribute("noredzone")


def _apply_workarounds(module: Any, machine: Machine, context: Any) -> Any:
    """Return the optimised module with workarounds for LLVM's miscompiles. Function attributes may enable AVX-512."""
    if not machine.triple.startswith("x86_64") or not lone_lanes.has_masked_stores(f.name for f in module.functions):
        return module
    text = str(module)
    if "avx512f" not in machine.enabled and "+avx512f" not in text:  # what versions of kernels may use
        return module
    rewritten = lone_lanes.replace_masked_stores(text)
    if rewritten is None:
        return module
    patched = unlocked.parse(rewritten, context)
    unlocked.verify(patched)
    return patched
