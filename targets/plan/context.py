"""State that the host functions of one artifact share: constants, packed functions, error codes and their messages.

Planning is target-independent; a target provides a `PlanContext`, which knows the signatures of PrimFuncs.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.ir.node import find
from mlcc.ir.tensor_data import TensorData
from mlcc.runtime.abi import ALIGNMENT, DETAIL_SHIFT, FAR_CONSTANTS, KIND_BY_NAME
from mlcc.runtime.manifest import PackedSpec
from mlcc.targets.plan.signature import KernelSignature


class PlannedKernel(Protocol):
    """The interface of a compiled PrimFunc that a plan calls: its signature and workspace size."""

    @property
    def signature(self) -> KernelSignature: ...

    @property
    def workspace(self) -> tir.Expr: ...


class PlanContext(Protocol):
    """The interface of a target's context that plans need.

    `packed` maps names of packed functions to slots, `errors` maps (kind, message) of a failed check to its code;
    `externs` are the C symbols that the artifact needs.
    """

    packed: dict[str, int]
    errors: dict[tuple[str, str], int]
    externs: dict[str, None]

    def kernel(self, name: str) -> PlannedKernel:
        """Return the signature and workspace of a PrimFunc of the module. Raises CompileError."""

    def packed_slot(self, name: str) -> int: ...

    def error_code(self, kind: str, message: str) -> int: ...


C = TypeVar("C", bound=PlanContext)


@dataclass
class Planning(Generic[C]):
    """Tables filled while functions are planned and emitted; entries are numbered in order of first use.

    `observed` are the calls that are observed (`observe`), None if none are to be.
    """

    module: IRModule
    ctx: C
    constants: list[TensorData] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    constant_bytes: int = 0
    texts: dict[tuple[str, str], int] = field(default_factory=dict)
    observed: list[dict[str, Any]] | None = None
    _by_content: dict[tuple[str, int], int] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)

    @functools.cached_property
    def has_far_constants(self) -> bool:
        """True if the constants of the module take at least `FAR_CONSTANTS` bytes, too many for 32-bit addresses."""
        sizes = {id(n.data): n.data.nbytes for f in self.module.functions.values() for n in find(f, relax.Constant)}
        return bool(sum(sizes.values()) >= FAR_CONSTANTS)

    def constant(self, data: TensorData) -> int:
        """Return the number of a constant; equal ones are stored once, at `offsets[number]` of the section."""
        assert data.sha256 is not None
        key = (data.sha256, data.nbytes)
        number = self._by_content.get(key)
        if number is None:
            number = self._by_content[key] = len(self.constants)
            self.constants.append(data)
            self.offsets.append(self.constant_bytes)
            self.constant_bytes += -(-data.nbytes // ALIGNMENT) * ALIGNMENT
        return number

    def code(self, kind: str, text: str) -> int:
        """Return the error code of a check: its kind, and a number for the message. Equal messages share one."""
        if kind == "ASSERT":
            return self.ctx.error_code("AssertionError", text)
        code = self.texts.get((kind, text))
        if code is None:
            number = self._counts[kind] = self._counts.get(kind, 0) + 1
            code = self.texts[kind, text] = KIND_BY_NAME[kind].code | number << DETAIL_SHIFT
        return code

    def packed(self, name: str, args: tuple[str, ...], results: int, style: str) -> int:
        """Return the slot of a packed function called from the graph with arguments of these kinds."""
        return self.ctx.packed_slot(f"{name}\0{json.dumps([args, results, style])}")

    def packed_specs(self) -> list[PackedSpec]:
        """Return the signature of every slot's packed function; kernels may pass any number of tensors."""
        specs = []
        for key in self.ctx.packed:
            name, _, how = key.partition("\0")
            if how:
                args, results, style = json.loads(how)
                specs.append(PackedSpec(name, tuple(args), results, style))
            else:
                specs.append(PackedSpec(name, None, 0, "dps"))
        return specs


AnyPlanning = Planning[Any]  # planning only uses the members of `PlanContext`
