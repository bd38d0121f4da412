"""LLVM's pass pipelines, by optimization level and kind of code."""

from __future__ import annotations

import enum
from typing import Any

from mlcc.targets.llvm.object import unlocked


class Code(enum.Enum):
    """The kind of code in a module.

    VECTORS: the loops of a schedule, already vectorized and unrolled. LLVM's vectorizers, its unroller and the second
    half of its pipeline are not needed; promotion to registers, and simplification and hoisting of addresses are.
    LOOPS: scalar loops, which LLVM vectorizes. HOST: the code around kernels, mostly checks; without optimisation it
    compiles in a quarter of the time, and calls are not measurably slower.
    """

    VECTORS = "vectors"
    LOOPS = "loops"
    HOST = "host"


def codegen_level(level: int, code: Code) -> int:
    """Return the optimization level of LLVM's code generator, 0 to 3."""
    if code is Code.HOST and level < 3:
        return 0
    return 3 if level >= 2 else level


def optimise(llvm: Any, tm: Any, module: Any, level: int, code: Code) -> None:
    """Run the passes of a level: at 0 hardly any, at 1 a few, at 2 those that the kind of code needs, at 3 all."""
    if level in (1, 2) and code is Code.HOST:
        run_pipeline(llvm, tm, module, 0, vectorize=False)
    elif level == 1 or (level == 2 and code is Code.VECTORS):
        _run_simplification(llvm, tm, module, level)
    else:
        run_pipeline(llvm, tm, module, 3 if level else 0, vectorize=level > 0)


def run_pipeline(llvm: Any, tm: Any, module: Any, level: int, vectorize: bool) -> None:
    """Run LLVM's default pipeline of a level, 0 to 3."""
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = options.slp_vectorization = vectorize
    builder = llvm.create_pass_builder(tm, options)
    unlocked.run_passes(builder.getModulePassManager(), module, builder)


def _run_simplification(llvm: Any, tm: Any, module: Any, level: int) -> None:
    """Inline small helpers, and run the part of LLVM's pipeline that simplifies a function."""
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = options.slp_vectorization = False
    builder = llvm.create_pass_builder(tm, options)
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    unlocked.run_passes(passes, module, builder)
    simplify = builder.getFunctionPassManager()
    for function in module.functions:
        if not function.is_declaration:
            unlocked.run_function_passes(simplify, function, builder)
