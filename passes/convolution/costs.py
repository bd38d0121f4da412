"""A cost model for convolutions and transposes in different layouts, in cycles of one core."""

from __future__ import annotations

from math import prod
from typing import Any

from mlcc.ir import relax, tir
from mlcc.machine.cpu_tables import CpuFacts
from mlcc.passes.auto_schedule.tiles import best_tile

TRANSPOSE_CYCLES = 0.75  # cycles per transposed element
COPY_CYCLES = 0.5  # cycles per element copied in order
USUAL_BATCH, USUAL_IMAGE = 1, 56  # the batch size and the other extents that are assumed where unknown


def channels_last(layout: str) -> str:
    """Return the layout with the channels last: NHWC for NCHW, and so on for other ranks."""
    return f"N{''.join(x for x in layout if x not in 'NC')}C"


def extents(info: Any) -> list[int]:
    """Return the extents of a tensor of known rank, with guesses for unknown ones."""
    known = map(tir.const_int, info.dims or ())
    return [n if n is not None else USUAL_IMAGE if dim else USUAL_BATCH for dim, n in enumerate(known)]


def transpose_cycles(info: Any) -> float:
    """Estimate the cycles of transposing a tensor."""
    return prod(extents(info)) * TRANSPOSE_CYCLES


def convolution_cycles(call: relax.Call, last: str, facts: CpuFacts) -> float:
    """Estimate the cycles of a convolution whose results are contiguous along `last`: C, or the last spatial axis.

    The estimate counts multiply-adds in the register tile that the schedule rules would choose, at the efficiency of
    that tile, and copies where the tile does not divide the columns of an image.
    """
    attrs: Any = call.attrs
    result: Any = call.struct_info
    out_extents = dict(zip(attrs["out_layout"], extents(result), strict=True))
    weight_extents = dict(zip(attrs["kernel_layout"], extents(call.args[1].struct_info), strict=True))
    lanes = facts.lanes(max(result.dtype.bits, 32) // 8)
    spatial_axes = [x for x in attrs["out_layout"] if x not in "NC"]
    multiply_adds: int = (
        prod(out_extents.values()) * weight_extents["I"] * prod(weight_extents[x] for x in spatial_axes)
    )
    channels = max(out_extents["C"] // max(attrs["groups"], 1), 1)  # channels computed from the same data
    if attrs["groups"] > 1 and channels == 1:
        efficiency = best_tile(facts, None, out_extents[last], lanes).efficiency(None, out_extents[last])
    elif last == "C":
        efficiency = max(
            best_tile(facts, out_extents[x], channels, lanes).efficiency(out_extents[x], channels)
            for x in (*spatial_axes, "N")
        )
    else:
        tile = best_tile(facts, channels, out_extents[last], lanes)
        efficiency = tile.efficiency(channels, out_extents[last])
        if out_extents[last] % tile.columns:  # data and result are copied through padded memory
            copied = prod(out_extents.values()) + prod(extents(call.args[0].struct_info))
            return multiply_adds / (2 * lanes * efficiency) + COPY_CYCLES * copied
    return multiply_adds / (2 * lanes * efficiency)
