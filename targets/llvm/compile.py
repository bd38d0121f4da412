"""LLVM IR text to machine code, by llvmlite. Only here does text reach LLVM, parsed and verified first."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from mlcc.errors import CompileError, did_you_mean, error

# triples whose objects are tested; anything else might reach one of LLVM's fatal errors, which end the process
TRIPLES = ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu")
CPUS = {
    "x86_64": (
        "generic", "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "nehalem", "sandybridge", "haswell", "broadwell",
        "skylake", "skylake-avx512", "cascadelake", "icelake-server", "sapphirerapids", "znver1", "znver2", "znver3",
        "znver4", "znver5",
    ),
    "aarch64": ("generic", "cortex-a53", "cortex-a72", "cortex-a76", "neoverse-n1", "neoverse-v1", "neoverse-n2"),
}  # fmt: skip
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Machine:
    """A CPU to generate code for; `features` are LLVM's, each with its sign: `+avx2`."""

    triple: str = TRIPLES[0]
    cpu: str = "x86-64"
    features: tuple[str, ...] = ()

    def check(self) -> None:
        """Raises CompileError for a triple or CPU that is not among the tested ones."""
        if self.triple not in TRIPLES:
            raise CompileError(error("E0705", f"unknown triple `{self.triple}`", help=_known(self.triple, TRIPLES)))
        cpus = CPUS[self.triple.split("-")[0]]
        if self.cpu not in cpus:
            raise CompileError(
                error("E0706", f"unknown CPU `{self.cpu}` for {self.triple}", help=_known(self.cpu, cpus))
            )


def _known(word: str, words: tuple[str, ...]) -> str:
    return did_you_mean(word, words) or f"known are {', '.join(words)}"


@dataclass(frozen=True, slots=True)
class Compiled:
    """The results of one compilation; those not asked for are empty."""

    obj: bytes = b""
    asm: str = ""
    llvm_ir: str = ""


def compile_text(text: str, machine: Machine, level: int = 2, emit: frozenset[str] = frozenset({"obj"})) -> Compiled:
    """Compile a module at an optimisation level of 0 to 3. `emit` picks among obj, asm and llvm-ir (optimised).

    Equal text gives equal bytes. Raises CompileError for an untested machine, and RuntimeError (our own bug) for text
    that LLVM does not accept.
    """
    import llvmlite.binding as llvm

    machine.check()
    with _lock:  # LLVM's option state is global
        tm = target_machine(machine, level)
        module = llvm.parse_assembly(text, llvm.create_context())
        module.triple = machine.triple
        module.data_layout = str(tm.target_data)
        module.verify()
        _optimise(llvm, tm, module, level)
        return Compiled(
            tm.emit_object(module) if "obj" in emit else b"",
            tm.emit_assembly(module) if "asm" in emit else "",
            str(module) if "llvm-ir" in emit else "",
        )


def target_machine(machine: Machine, level: int) -> Any:
    """llvmlite's TargetMachine: position-independent code, small code model."""
    import llvmlite.binding as llvm

    if machine.triple == llvm.get_default_triple():
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    else:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(machine.triple)
    return target.create_target_machine(
        cpu=machine.cpu, features=",".join(machine.features), opt=level, reloc="pic", codemodel="small"
    )


def _optimise(llvm: Any, tm: Any, module: Any, level: int) -> None:
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = options.slp_vectorization = level >= 2
    builder = llvm.create_pass_builder(tm, options)
    builder.getModulePassManager().run(module, builder)
