"""TVM's meta-schedule beside ours: its target, its contexts, without the parsing of all its tensor intrinsics."""

from __future__ import annotations

import re
import sys
import types
from functools import cache
from typing import Any

import tvm

import mlcc
from mlcc.errors import CompileError
from mlcc.ir.equal import structural_equal
from mlcc.ir.module import IRModule
from mlcc.passes.schedule.schedule import Schedule
from mlcc.tune import TuneContext
from tests.interop.harness import from_tvm, to_tvm

# a target of ours, and TVM's configuration of the same
TARGETS: dict[str, dict[str, Any] | str] = {
    "llvm{num-cores=4}": {"kind": "llvm", "num-cores": 4},
    "llvm{cpu=skylake-avx512 num-cores=2}": {"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 2},
    "nvidia/tesla-p100": "nvidia/tesla-p100",
    "nvidia/nvidia-a100": "nvidia/nvidia-a100",
}
TENSOR_CORES = ("nvidia/nvidia-a100",)


def tensor_core_groups() -> list[dict[str, str]]:
    """The intrinsics of products of float16 in fragments, as TVM's default rules have them."""
    shape = "16x16x16"
    return [
        {
            "init": f"wmma_fill_{shape}_{out}", "load_a": f"wmma_load_{shape}_f16_a_shared_dyn",
            "load_b": f"wmma_load_{shape}_f16_b{trans}_shared_dyn", "compute": f"wmma_sync_{shape}_f16f16{out}{trans}",
            "store": f"wmma_store_{shape}_{out}_shared_dyn",
        }
        for out in ("f32", "f16")
        for trans in ("", "_trans")
    ]  # fmt: skip


@cache
def meta_schedule() -> Any:
    """TVM's module. Contexts import every tensor intrinsic of TVM, half a minute of parsing: only those of dot products
    and of fragments are registered, from our texts."""
    sys.modules.setdefault("tvm.s_tir.tensor_intrin", types.ModuleType("tvm.s_tir.tensor_intrin"))
    from tvm.s_tir import meta_schedule as ms

    from mlcc.passes.schedule.tensor_intrin import find_intrin

    state = Schedule(mlcc.parse("@T.prim_func\ndef main(A: T.Buffer((4,), 'int8')):\n    T.evaluate(0)\n")).state
    fragments = {name for group in tensor_core_groups() for name in group.values()}
    for name in ("dot_16x4_vnni", "dot_16x4_avx512", *sorted(fragments)):
        intrin = find_intrin(state, name)
        texts = [mlcc.script(IRModule({"main": f}), dialect="tvm") for f in (intrin.desc, intrin.impl)]
        tvm.s_tir.TensorIntrin.register(name, *(to_tvm(text)["main"] for text in texts), override=True)
    return ms


def their_context(mod: IRModule, target: str, seed: int) -> Any:
    """TVM's context of a module of ours. On newer GPUs TVM first tries tensor cores, whose intrinsics are not there."""
    ms = meta_schedule()
    config = TARGETS[target]
    space = "post-order-apply"
    if target in TENSOR_CORES:
        space = ms.space_generator.PostOrderApply(sch_rules="cuda", postprocs="cuda", mutator_probs="cuda")
    return ms.TuneContext(
        to_tvm(mlcc.script(mod, dialect="tvm")), target=tvm.target.Target(config), space_generator=space,
        rand_state=seed, num_threads=1,
    )  # fmt: skip


def our_context(mod: IRModule, target: str, seed: int) -> TuneContext:
    return TuneContext(mod, target=target, space_generator="post-order-apply", rand_state=seed)


def steps(trace: Any) -> list[str]:
    """The steps of a trace, ours or TVM's, by TVM's names, with rounded probabilities; index maps have their indices by
    number."""
    text = re.sub(r"\d+\.\d+", lambda found: f"{float(found[0]):.6f}", str(trace))
    text = text.replace("get_block(", "get_sblock(").replace("get_child_blocks(block_or_loop=", "get_child_blocks(")
    text = re.sub(r"\bi_(\d+)\b", r"i\1", text).replace(",),", "),").replace(",))", "))")
    return [line.strip() for line in text.splitlines()[2:]]


def same_module(ours: IRModule, theirs: Any) -> bool:
    """Are the modules structurally equal, as we read TVM's?"""
    return structural_equal(ours, from_tvm(theirs))


def replayed(mod: IRModule, text: str) -> Schedule | None:
    """Our schedule after the text of a trace of TVM's; None where it is refused."""
    from mlcc.errors import Source
    from mlcc.passes.schedule.mls.run import run_script

    sch = Schedule(mod, seed=1)
    try:
        run_script(sch, Source("trace.mls", text))
    except CompileError:
        return None
    return sch
