"""Peak rates of a target's GPU for performance models: clocks, memory bandwidth, and operations per clock.

Rates per multiprocessor and clock are those of the CUDA programming guide ("Arithmetic Instructions", throughput of
native instructions); rates of tensor cores are of dense products, from NVIDIA's architecture white papers. Clock and
bandwidth are those of the device that `gpu_tables` names, at its boost clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mlcc.machine.gpu_tables import GpuFacts

LAUNCH_SECONDS = 3e-6  # of an empty launch
SECTORS_PER_CLOCK = 1.0  # of the L2 cache, per multiprocessor with all of them busy
SECTORS_OF_ONE = 2.0  # at most, of one multiprocessor
PASSES_PER_CLOCK = 1.0  # of shared memory, 128 bytes each
LATENCY: Mapping[str, int] = {"global": 500, "shared": 30}  # of a load, in clocks
IN_FLIGHT = 4  # outstanding requests of a warp
MMA_ON_HOPPER = 0.63  # share of the rate of `wgmma` that `mma.sync` reaches on sm_90 on average (arXiv:2402.13499)

# capability -> MHz, GB/s; results per clock of float32, float64 and int32; float16 operations of tensor cores per clock
# (a multiply-add counts as two), those of float64
_TABLE: dict[tuple[int, int], tuple[int, int, int, int, int, int, int]] = {
    (7, 5): (1590, 320, 64, 2, 64, 1024, 0),  # T4
    (8, 0): (1410, 2039, 64, 32, 64, 2048, 128),  # A100, 80 GB
    (8, 6): (1740, 696, 128, 2, 64, 1024, 4),  # A40
    (8, 7): (1300, 205, 128, 2, 64, 2048, 4),  # Orin
    (8, 9): (2520, 1008, 128, 2, 64, 512, 4),  # RTX 4090: half the rate with float32 sums
    (9, 0): (1830, 3352, 128, 64, 64, 4096, 256),  # H100, SXM
    (10, 0): (1850, 8000, 128, 64, 64, 8192, 128),  # B200
    (10, 3): (1850, 8000, 128, 2, 64, 8192, 4),  # B300
    (11, 0): (1570, 273, 128, 2, 64, 4096, 4),  # Thor
    (12, 0): (2410, 1792, 128, 2, 64, 512, 4),  # RTX 5090: half the rate with float32 sums
    (12, 1): (2420, 273, 128, 2, 64, 512, 4),  # GB10
}
# operand type of tensor cores -> rate as a multiple of that of float16
_TENSOR = {"f16": 1.0, "bf16": 1.0, "tf32": 0.5, "s8": 2.0, "u8": 2.0, "e4m3": 2.0, "e5m2": 2.0}


@dataclass(frozen=True, slots=True)
class GpuRates:
    """Rates of a GPU. `lanes` are results per multiprocessor and clock by kind of operation (`float32`, `float64`,
    `int32`); `tensor_f16` and `tensor_f64` are tensor core operations per multiprocessor and clock."""

    hertz: float
    bytes_per_second: float
    lanes: Mapping[str, int]
    tensor_f16: int
    tensor_f64: int
    is_hopper: bool

    @staticmethod
    def of(facts: GpuFacts) -> GpuRates:
        """Return the rates of the usual device of an architecture."""
        mhz, gb, f32, f64, i32, tensor, tensor64 = _TABLE[facts.arch.capability]
        lanes = {"float32": f32, "float64": f64, "int32": i32}
        return GpuRates(mhz * 1e6, gb * 1e9, lanes, tensor, tensor64, facts.arch.capability == (9, 0))

    def tensor(self, operand: str, by_warpgroups: bool) -> float:
        """Return the tensor core operations per multiprocessor and clock for operands of a type (PTX's name)."""
        if operand == "f64":
            return float(self.tensor_f64)
        full = self.tensor_f16 * _TENSOR[operand]
        return full * MMA_ON_HOPPER if self.is_hopper and not by_warpgroups else full
