"""A launch plan in memory: kernels, constants, and the operations of each function.

An operation is a Python function of the run and the values known so far: symbols and other scalars by name and, inside
a program, the addresses of its buffers. `reader` builds operations from the JSON in an artifact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mlcc.runtime.launch.device import Extents, KernelSpec
from mlcc.runtime.launch.scalars import Compute, Values
from mlcc.runtime.manifest import PackedSpec

VERSION = 2
POINTER_ALIGNMENT = 16  # of kernel pointers
Operation = Callable[["Runner", Values], None]
Location = Callable[["Runner", Values], int]


class Runner(Protocol):
    """The interface of a run (`run.Run`) that its operations use."""

    @property
    def args(self) -> Sequence[int]:
        """Return the addresses of the arguments."""

    @property
    def constants(self) -> Sequence[int]:
        """Return the addresses of the constants."""

    @property
    def work(self) -> int:
        """Return the address of the workspace."""

    def launch(self, kernel: Kernel, grid: Extents, block: Extents, shared: int, args: list[Any]) -> None: ...

    def copy(self, target: int, source: int, size: int) -> None: ...

    def realigned(self, address: int, size: int, filled: bool) -> int:
        """Allocate an aligned substitute for misaligned memory, with a copy of it if `filled`."""

    def fail(self, code: int) -> None:
        """Raise the failure of a check."""

    def flag(self, address: int) -> bool:
        """Read a bool from device memory."""

    def measure(self, values: Values, name: str, address: int, code: int) -> None:
        """Bind a name to the int64 at an address; fail with `code` if it is negative."""

    def packed(self, spec: PackedSpec, args: tuple[PackedArgument, ...], values: Values) -> None:
        """Call a packed function."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of the plan. `word` is the number of its error record, -1 for none; `asserts` are its error codes."""

    name: str
    spec: KernelSpec
    asserts: tuple[int, ...]
    word: int


@dataclass(frozen=True, slots=True)
class PackedArgument:
    """An argument of a packed function. `kind` is tensor, int, float, bool, shape or str; it uses some other fields."""

    kind: str
    place: Location | None = None
    dtype: str = ""
    dims: tuple[Compute, ...] = ()
    value: Compute | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class FunctionPlan:
    """A function of the plan: expressions computed at entry, then steps.

    `floats` are the indices and names of float arguments. `shifts` maps an argument to the bytes between the kernel's
    pointer and its first element. `values` are the non-tensor results, `actual` the data-dependent extents of others.
    `is_static`: the operations of a run only depend on symbols and addresses.
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
    words: int  # number of error records
