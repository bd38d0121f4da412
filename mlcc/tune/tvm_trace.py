"""Traces of TVM's databases as schedule scripts: TVM keeps them as lists of instructions in JSON."""

from __future__ import annotations

import json
from typing import Any

from mlcc.tune.tvm_workload import UnsupportedContent

# instruction -> primitive, handle parameters (`*` takes all remaining inputs), attribute parameters
_STEPS: dict[str, tuple[str, str, str]] = {
    "GetSBlock": ("get_block", "", "name func_name"),
    "GetBlock": ("get_block", "", "name func_name"),
    "GetLoops": ("get_loops", "block", ""),
    "GetChildBlocks": ("get_child_blocks", "block_or_loop", ""),
    "GetProducers": ("get_producers", "block", ""),
    "GetConsumers": ("get_consumers", "block", ""),
    "SampleCategorical": ("sample_categorical", "", "candidates probs"),
    "SamplePerfectTile": ("sample_perfect_tile", "loop", "n max_innermost_factor"),
    "SamplePartitionedTile": ("sample_partitioned_tile", "loop", "n partition_pos innerpart_factor"),
    "SampleComputeLocation": ("sample_compute_location", "block", ""),
    "Fuse": ("fuse", "*", "preserve_unit_iters"),
    "Split": ("split", "loop *factors", "preserve_unit_iters disable_predication"),
    "Reorder": ("reorder", "*", ""),
    "ReorderBlockIterVar": ("reorder_block_iter_var", "block", "new_order"),
    "AddUnitLoop": ("add_unit_loop", "block_or_loop", ""),
    "Parallel": ("parallel", "loop", ""),
    "Vectorize": ("vectorize", "loop", ""),
    "Bind": ("bind", "loop", "thread_axis"),
    "Unroll": ("unroll", "loop", ""),
    "CacheRead": ("cache_read", "block *consumer_blocks", "read_buffer_index storage_scope"),
    "CacheWrite": ("cache_write", "block *consumer_blocks", "write_buffer_index storage_scope"),
    "ComputeAt": ("compute_at", "block loop", "preserve_unit_loops index"),
    "ReverseComputeAt": ("reverse_compute_at", "block loop", "preserve_unit_loops index"),
    "ComputeInline": ("compute_inline", "block", ""),
    "ReverseComputeInline": ("reverse_compute_inline", "block", ""),
    "DecomposeReduction": ("decompose_reduction", "block loop", ""),
    "RFactor": ("rfactor", "loop", "factor_axis"),
    "Annotate": ("annotate", "block_or_loop ann_val", "ann_key"),
    "Unannotate": ("unannotate", "block_or_loop", "ann_key"),
    "StorageAlign": ("storage_align", "block", "buffer_index axis factor offset"),
    "SetScope": ("set_scope", "block", "buffer_index storage_scope"),
    "Blockize": ("blockize", "target", "preserve_unit_iters"),
    "Tensorize": ("tensorize", "block_or_loop", "tensor_intrin preserve_unit_iters"),
    "PadEinsum": ("pad_einsum", "block", "padding"),
    "EnterPostproc": ("enter_postproc", "", ""),
}
_BOOLS = {"preserve_unit_iters", "preserve_unit_loops", "disable_predication"}
_LIST_RESULTS = {
    "GetLoops",
    "GetChildBlocks",
    "GetProducers",
    "GetConsumers",
    "SamplePerfectTile",
    "SamplePartitionedTile",
    "Split",
}


def trace_script(trace: Any) -> str:
    """The `.mls` text of a trace. Raises NotRead for an instruction that has no counterpart."""
    instructions, decisions = trace
    decided = {int(at): decision for at, decision in decisions}
    lines = [_line(inst, decided.get(at)) for at, inst in enumerate(instructions)]
    return "\n".join(["def apply_trace(sch):", *(f"    {line}" for line in lines or ["pass"])]) + "\n"


def _line(inst: Any, decision: Any) -> str:
    name, inputs, attrs, outputs = inst
    if name not in _STEPS:
        raise UnsupportedContent(f"a trace has an instruction {name}")
    primitive, handles, others = _STEPS[name]
    given = _handles(handles.split(), [_handle_text(value) for value in inputs])
    given += [
        f"{key}={_literal(bool(value) if key in _BOOLS else value)}"
        for key, value in zip(others.split(), attrs, strict=False)
    ]
    given += [f"decision={_literal(decision)}"] if decision is not None else []
    call = f"sch.{primitive}({', '.join(given)})"
    if not outputs:
        return call
    comma = "," if len(outputs) == 1 and name in _LIST_RESULTS else ""
    return f"{', '.join(outputs)}{comma} = {call}"


def _handles(parameters: list[str], values: list[str]) -> list[str]:
    """Print the handle arguments; the last parameter may take a list, or the remaining inputs."""
    arguments = []
    for at, parameter in enumerate(parameters):
        if parameter == "*":
            arguments += values[at:]
        elif parameter.startswith("*"):
            left = values[at:]
            is_list = len(left) == 1 and left[0].startswith("[")
            listed = left[0] if is_list else f"[{', '.join(left)}]"
            arguments += [f"{parameter[1:]}={listed}"] if left else []
        elif at < len(values):
            arguments.append(f"{parameter}={values[at]}")
    return arguments


def _handle_text(value: Any) -> str:
    """Print an instruction's input: handle names are unquoted, string literals are already quoted."""
    if isinstance(value, list):
        return f"[{', '.join(map(_handle_text, value))}]"
    return value if isinstance(value, str) else _literal(value)


def _literal(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) else repr(value)
