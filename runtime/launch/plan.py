"""A launch plan in memory: for each function the operations that a run carries out, with kernels and constants.

An operation is a function of the run and of the values known so far: symbols and other scalars by name and, inside a
program, the addresses of its buffers. `reader` makes them of the JSON that an artifact holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mlcc.runtime.launch.device import Extents, KernelSpec
from mlcc.runtime.launch.scalars import Compute, Values
from mlcc.runtime.manifest import PackedSpec

VERSION = 2
POINTER_ALIGNMENT = 16  # of what kernels are passed
Operation = Callable[["Runner", Values], None]
Place = Callable[["Runner", Values], int]


class Runner(Protocol):
    """The interface of a run (`run.Run`) that its operations use."""

    @property
    def args(self) -> Sequence[int]:
        """The addresses of the arguments."""

    @property
    def constants(self) -> Sequence[int]:
        """The addresses of the constants."""

    @property
    def work(self) -> int:
        """The address of the workspace."""

    def launch(self, kernel: Kernel, grid: Extents, block: Extents, shared: int, args: list[Any]) -> None: ...

    def copy(self, target: int, source: int, size: int) -> None: ...

    def realigned(self, address: int, size: int, filled: bool) -> int:
        """An aligned stand-in for memory that a kernel takes."""

    def fail(self, code: int) -> None:
        """A check of the program does not hold."""

    def flag(self, address: int) -> bool:
        """A bool in the device's memory."""

    def measure(self, values: Values, name: str, address: int, code: int) -> None:
        """Give a name the int64 at an address."""

    def packed(self, spec: PackedSpec, args: tuple[PackedArgument, ...], values: Values) -> None:
        """Call a packed function."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of the plan. `word` is the number of its error record, -1 if it has no assertions; `asserts` are the
    codes of these."""

    name: str
    spec: KernelSpec
    asserts: tuple[int, ...]
    word: int


@dataclass(frozen=True, slots=True)
class PackedArgument:
    """`kind` is tensor, int, float, bool, shape or str; the rest as the kind needs."""

    kind: str
    place: Place | None = None
    dtype: str = ""
    dims: tuple[Compute, ...] = ()
    value: Compute | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class FunctionPlan:
    """One function: what is computed at entry, then its steps.

    `floats` are the places of scalar arguments with their names, `shifts` those of tensors whose kernels take a pointer
    so many bytes before the first element. `values` and `actual` are the results that are no tensors, and the extents
    that others turned out to have. `is_static`: what a run does follows from the symbols and addresses alone.
    """

    places: tuple[tuple[str, Compute], ...]
    workspace: Compute
    floats: tuple[tuple[int, str], ...]
    shifts: Mapping[int, Compute]
    steps: tuple[Operation, ...]
    values: tuple[tuple[int, Compute], ...]
    actual: Mapping[int, tuple[Compute, ...]]
    measured: tuple[str, ...]
    is_static: bool


@dataclass(frozen=True, slots=True)
class ConstantSpec:
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Plan:
    functions: Mapping[str, FunctionPlan]
    kernels: Mapping[str, Kernel]
    constants: tuple[ConstantSpec, ...]
    errors: Mapping[int, str]
    words: int  # how many kernels have an error record
