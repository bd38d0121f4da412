"""A roofline of a kernel launch on a GPU: the least time that each of its resources needs, and which one bounds it.

After Williams, Waterman and Patterson, "Roofline" (2009), with a ceiling for each resource. Blocks are dealt to
multiprocessors in equal numbers; those beyond the occupancy wait for the next wave. Each multiprocessor has its own
arithmetic units, tensor cores, shared memory and path to the L2 cache. Memory transfers each sector once, as if caches
kept all that is used again; L1 caches are left out. Latency is that of the requests of global memory by one warp, as
many in flight as `gpu_rates` says, for each wave.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from mlcc.machine.gpu_rates import (
    IN_FLIGHT,
    LATENCY,
    LAUNCH_SECONDS,
    PASSES_PER_CLOCK,
    SECTORS_OF_ONE,
    SECTORS_PER_CLOCK,
    GpuRates,
)
from mlcc.machine.gpu_tables import GpuFacts
from mlcc.targets.emulate.analysis import BANKS, SECTOR, WORD
from mlcc.targets.emulate.operations import Operations


@dataclass(frozen=True, slots=True)
class Traffic:
    """The memory traffic of one launch: requests and sectors of global memory and passes over the banks of shared
    memory, each of a block, and the distinct bytes of global memory that the launch touches."""

    requests: float
    sectors: float
    passes: float
    bytes: float


@dataclass(frozen=True, slots=True)
class Roofline:
    """`bounds` are seconds by resource; the launch takes at least `seconds`, and `bound` is the longest of them.

    `flops` are floating-point operations of the launch (on tensor cores also of integers), `bytes` those of `Traffic`,
    `waves` how often the GPU is filled with blocks.
    """

    flops: float
    bytes: float
    waves: int
    bounds: Mapping[str, float]
    bound: str
    seconds: float


def roofline(
    facts: GpuFacts, operations: Operations, traffic: Traffic, blocks: int, threads: int, blocks_per_sm: int
) -> Roofline | None:
    """Estimate a launch of `blocks` blocks; None if a multiprocessor cannot hold even one."""
    if not blocks_per_sm or not blocks:
        return None
    rates = GpuRates.of(facts)
    waves = math.ceil(blocks / (facts.sm_count * blocks_per_sm))
    warps = -(-threads // facts.warp)
    latency = traffic.requests / warps * LATENCY["global"] / IN_FLIGHT
    passes = traffic.passes + operations.operand_bytes * threads / (BANKS * WORD)
    sectors = traffic.sectors + sum(operations.bulk.values()) / SECTOR
    tensor = sum(n / rates.tensor(operand, groups) for (operand, groups), n in operations.tensor.items())
    clocks_per_block = {
        "arithmetic": sum(n / rates.lanes[kind] for kind, n in operations.results.items()) * threads,
        "tensor cores": tensor * threads,
        "shared memory": passes / PASSES_PER_CLOCK,
    }
    blocks_of_one = math.ceil(blocks / facts.sm_count)
    l2_clocks = sectors * max(blocks / facts.sm_count / SECTORS_PER_CLOCK, blocks_of_one / SECTORS_OF_ONE)
    bounds = {name: blocks_of_one * clocks / rates.hertz for name, clocks in clocks_per_block.items()}
    bounds["L2 cache"] = l2_clocks / rates.hertz
    bounds["memory"] = traffic.bytes / rates.bytes_per_second
    bounds["latency"] = waves * latency / rates.hertz
    longest = max(bounds, key=lambda name: bounds[name])
    bounds["launch"] = LAUNCH_SECONDS
    bound = longest if bounds[longest] > LAUNCH_SECONDS else "launch"
    flops = (operations.flops + sum(operations.tensor.values())) * blocks * threads
    return Roofline(flops, traffic.bytes, waves, bounds, bound, LAUNCH_SECONDS + bounds[longest])
