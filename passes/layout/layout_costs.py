"""A cost model for convolutions and transposes in different layouts, in cycles of one core."""

from __future__ import annotations

from math import prod
from typing import Any

from mlcc.ir import relax, tir
from mlcc.machine.cpu_tables import CpuFacts
from mlcc.passes.auto_schedule.tiles import best_tile

TRANSPOSE_CYCLES = 0.75  # cycles per transposed element
COPY_CYCLES = 0.5  # cycles per element copied in order
USUAL_BATCH, USUAL_IMAGE = 1, 56  # assumed values of unknown sizes


def channels_last(letters: str) -> str:
    """Return the layout with the channels last: NHWC for NCHW, and so on for other ranks."""
    return f"N{''.join(x for x in letters if x not in 'NC')}C"


def extents(info: Any) -> list[int]:
    """Return the extents of a tensor of known rank, with guesses for unknown ones."""
    known = map(tir.const_int, info.dims or ())
    return [n if n is not None else USUAL_IMAGE if at else USUAL_BATCH for at, n in enumerate(known)]


def transpose_cycles(info: Any) -> float:
    return prod(extents(info)) * TRANSPOSE_CYCLES


def convolution_cycles(call: relax.Call, last: str, facts: CpuFacts) -> float:
    """Estimate the cycles of a convolution whose results are contiguous along `last`: C, or the last spatial axis.

    The estimate counts the multiplications in the register tile that rules choose for it, including the tile's waste,
    and copies where the tile does not divide the columns of an image.
    """
    attrs: Any = call.attrs
    result: Any = call.struct_info
    out = dict(zip(attrs["out_layout"], extents(result), strict=True))
    weight = dict(zip(attrs["kernel_layout"], extents(call.args[1].struct_info), strict=True))
    lanes = facts.lanes(max(result.dtype.bits, 32) // 8)
    space = [x for x in attrs["out_layout"] if x not in "NC"]
    work: int = prod(out.values()) * weight["I"] * prod(weight[x] for x in space)
    channels = max(out["C"] // max(attrs["groups"], 1), 1)  # channels computed from the same data
    if attrs["groups"] > 1 and channels == 1:
        efficiency = best_tile(facts, None, out[last], lanes).efficiency(None, out[last])
    elif last == "C":
        efficiency = max(best_tile(facts, out[x], channels, lanes).efficiency(out[x], channels) for x in (*space, "N"))
    else:
        tile = best_tile(facts, channels, out[last], lanes)
        efficiency = tile.efficiency(channels, out[last])
        if out[last] % tile.columns:  # data and result are copied through padded memory
            copied = prod(out.values()) + prod(extents(call.args[0].struct_info))
            return work / (2 * lanes * efficiency) + COPY_CYCLES * copied
    return work / (2 * lanes * efficiency)
