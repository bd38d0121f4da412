"""Compile a lowered module to a CUDA artifact."""

from __future__ import annotations

import json

from mlcc.backends import BuildOptions
from mlcc.ir.module import IRModule
from mlcc.machine.gpu import Arch
from mlcc.machine.target import CudaTarget
from mlcc.targets.cuda.artifact import CudaArtifact
from mlcc.targets.cuda.ptx import PtxModule, emit_ptx
from mlcc.targets.launch import plan_module
from mlcc.targets.plan.manifest import fingerprint


def compile_module(module: IRModule, target: CudaTarget, options: BuildOptions) -> CudaArtifact:
    """Plan every public function and emit the kernels that they launch. Raises CompileError."""
    arch = Arch.of(target.resolved().arch)  # fail early
    about = {"kind": target.kind, "text": str(target), "features": []}
    launch = plan_module(module, about, options.opt_level, options.pipeline, options.observe)
    if options.only_emulated:
        code = PtxModule("", arch, {}, "")
    else:
        code = emit_ptx(launch.kernels, target, debug_lines=options.debug_lines)
    launch.facts["target"].update(code.requirements)
    for name, facts in code.kernels.items():
        launch.plan["kernels"][name]["symbol"] = facts.symbol  # the manifest shares this dictionary
    launch.facts["source"]["sha256"] = fingerprint((code.llvm_ir, json.dumps(launch.plan)))
    return CudaArtifact(code, launch, options.prefix)
