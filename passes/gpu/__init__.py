"""TensorIR for GPUs: kernels as the code of one thread, and host code that launches them (see `device`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mlcc.arith.empty_reduction import with_empty_inits
from mlcc.ir import tir
from mlcc.ir.deep import deep_recursion
from mlcc.passes.gpu.allreduce import lower_allreduce
from mlcc.passes.gpu.async_copy import inject_async_copies
from mlcc.passes.gpu.barriers import place_barriers
from mlcc.passes.gpu.bind_views import bind_views
from mlcc.passes.gpu.bulk_barriers import lower_bulk_tiles
from mlcc.passes.gpu.bulk_tiles import bulk_tiles
from mlcc.passes.gpu.cross_thread import combine_threads
from mlcc.passes.gpu.device import BLOCK, GRID, DeviceKernel, DeviceProgram
from mlcc.passes.gpu.dynamic import dynamic_shared
from mlcc.passes.gpu.kernels import form_kernels
from mlcc.passes.gpu.matrix_calls import expand_matrix_calls
from mlcc.passes.gpu.narrow import narrow_func, narrow_kernel
from mlcc.passes.gpu.own_memory import share_out_memory
from mlcc.passes.gpu.permuted import permute_shared, plan_permuted
from mlcc.passes.gpu.pipeline import pipeline_loops
from mlcc.passes.gpu.split import split_host_device
from mlcc.passes.gpu.sync import insert_barriers
from mlcc.passes.gpu.views import resolve_views
from mlcc.passes.gpu.virtual_threads import inject_virtual_threads
from mlcc.passes.gpu.warp_memory import lower_warp_memory
from mlcc.passes.gpu.wgmma_descriptors import encode_descriptors
from mlcc.passes.gpu.wgmma_groups import group_products
from mlcc.passes.gpu.wmma import lower_wmma
from mlcc.passes.lowering.compact import compact_buffers
from mlcc.passes.lowering.divisions import simplify_divisions
from mlcc.passes.lowering.flatten import flatten_buffers
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.realize import realize_blocks
from mlcc.passes.lowering.unroll import unroll_loops
from mlcc.passes.lowering.vectorize import vectorize_loops

__all__ = ["BLOCK", "GRID", "DeviceKernel", "DeviceProgram", "lower_gpu"]


def lower_gpu(
    name: str, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc] | None = None, unroll: bool = True
) -> DeviceProgram:
    """The program of a PrimFunc with thread-bound loops or launch scopes; kernels are called `{name}_kernel` and on.

    `functions` are the PrimFuncs of the module. Without `unroll`, loops marked for it stay, for whoever reads the code.
    Raises CompileError.
    """
    options = LowerOptions(unroll_limit=1024, vector_lanes=16, vector_bytes=16)
    with deep_recursion():
        func = realize_blocks(combine_threads(with_empty_inits(func)), kernels=True)
        func = lower_allreduce(form_kernels(share_out_memory(func)))
        func = bulk_tiles(plan_permuted(compact_buffers(simplify_divisions(func))))
        func = resolve_views(flatten_buffers(bind_views(func), functions or {}))
        func = lower_wmma(lower_warp_memory(inject_virtual_threads(pipeline_loops(func))))
        func = place_barriers(func)
        func = group_products(insert_barriers(narrow_func(resolve_views(expand_matrix_calls(func)))))
        func = permute_shared(encode_descriptors(inject_async_copies(vectorize_loops(func, options))))
        func = lower_bulk_tiles(func)
        func = unroll_loops(func, options.unroll_limit) if unroll else func
        made = split_host_device(name, func)
        return replace(made, kernels=tuple(dynamic_shared(narrow_kernel(kernel)) for kernel in made.kernels))
