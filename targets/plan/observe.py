"""Observation points: after each call of a kernel or packed function, a plan hands all its tensors to an observer.

The observer is the packed function `OBSERVER`, called as `observer(site, phase, *tensors)`. `site` is an index into
`observed` of the manifest, which says what was called, where, and which tensors it writes. In the phase `AFTER` the
tensors are those of the entry, in order; in the phase `BEFORE` those that the call changes in place.
"""

from __future__ import annotations

import re
from typing import Any

from mlcc.errors import Span
from mlcc.ir import tir
from mlcc.ir.dtypes import INT64
from mlcc.ir.effects import WRITE, effects
from mlcc.passes.lowering.match_buffer import compact_strides
from mlcc.relax.origins import place_facts
from mlcc.runtime.observer import AFTER, BEFORE, OBSERVER
from mlcc.targets.plan.context import AnyPlanning
from mlcc.targets.plan.steps import (
    Branch,
    CallKernel,
    CallPacked,
    Copy,
    HostFunction,
    Loop,
    Memory,
    MemoryKind,
    Scalar,
    Step,
    Tensor,
)

_BINDING = re.compile(r"\s*(\w+)(?:\s*:[^=]*)? = ")


def add_observers(plan: HostFunction, shared: AnyPlanning) -> None:
    """Insert calls of the observer into a plan whose memory is not assigned yet; none unless `shared` asks for them."""
    if shared.observed is not None:
        plan.steps = _Observers(plan, shared, shared.observed).steps(plan.steps)


def _is_compact(buffer: tir.Buffer) -> bool:
    """Return True if a parameter of a public PrimFunc is known to be compact, as a caller's tensor is handed over."""
    strides = [tir.const_int(s) for s in buffer.strides]
    compact = [tir.const_int(s) for s in compact_strides(buffer.shape)]
    offset = 0 if buffer.elem_offset is None else tir.const_int(buffer.elem_offset)
    return offset == 0 and (not strides or (None not in strides and strides == compact))


class _Observers:
    def __init__(self, plan: HostFunction, shared: AnyPlanning, sites: list[dict[str, Any]]) -> None:
        self.plan = plan
        self.shared = shared
        self.sites = sites
        self._written: set[Memory] = set()
        self._params = {leaf_at: leaf.name for leaf_at, leaf in enumerate(plan.inputs())}

    def steps(self, steps: list[Step]) -> list[Step]:
        """Return steps with observers around calls."""
        extended: list[Step] = []
        for step in steps:
            match step:
                case CallKernel():
                    extended += self._kernel(step)
                    continue
                case CallPacked():
                    extended += self._packed(step)
                    continue
                case Copy(target=target):
                    self._written.add(target.memory.root())
                case Branch():
                    step.then_steps = self.steps(step.then_steps)
                    step.else_steps = self.steps(step.else_steps)
                case Loop():
                    step.steps = self.steps(step.steps)
            extended.append(step)
        return extended

    def _kernel(self, step: CallKernel) -> list[Step]:
        func = self.shared.module.functions[step.kernel]
        assert isinstance(func, tir.PrimFunc)
        uses = effects(func, functions=self.shared.module.functions)
        tensors: list[tuple[str, Tensor, bool]] = []
        for buffer, arg in zip(func.buffers, step.args, strict=True):
            if buffer is None or not isinstance(arg, Tensor) or arg.dtype.lanes != 1:
                continue
            if self.plan.kind == "relax" or _is_compact(buffer):
                tensors.append((self._name(arg, buffer.name), arg, bool(uses.get(buffer.data, 0) & WRITE)))
        return self._around(step, "kernel", step.kernel, step.span, tensors)

    def _packed(self, step: CallPacked) -> list[Step]:
        spec = self.shared.packed_specs()[step.slot]
        first = len(step.args) - spec.results
        tensors = [
            (self._name(arg, f"argument {at}" if at < first else f"result {at - first}"), arg, at >= first)
            for at, arg in enumerate(step.args)
            if isinstance(arg, Tensor) and arg.dtype.lanes == 1
        ]
        return self._around(step, "packed", spec.name, None, tensors)

    def _name(self, tensor: Tensor, otherwise: str) -> str:
        memory = tensor.memory.root()
        return self._params.get(memory.index, otherwise) if memory.place is MemoryKind.ARGUMENT else otherwise

    def _around(
        self, step: Step, kind: str, name: str, span: Span | None, tensors: list[tuple[str, Tensor, bool]]
    ) -> list[Step]:
        site: dict[str, Any] = {"function": self.plan.name, "kind": kind, "name": name}
        if span is not None:
            site |= {**place_facts(span), "start": span.start, "end": span.end}
            if "line" in site:
                binding = _BINDING.match(span.source.line(site["line"]))
                site |= {"binding": binding[1]} if binding is not None else {}
        in_place = [t for _, t, is_written in tensors if is_written and t.memory.root() in self._written]
        site["tensors"] = [
            {
                "name": label, "dtype": str(t.dtype), "written": is_written, "place": t.memory.root().place.value,
                "number": t.memory.root().index,
                "in_place": any(t is other for other in in_place),
            }
            for label, t, is_written in tensors
        ]  # fmt: skip
        number = len(self.sites)
        self.sites.append(site)
        self._written.update(t.memory.root() for _, t, is_written in tensors if is_written)
        before = [self._call(number, BEFORE, in_place)] if in_place else []
        return [*before, step, self._call(number, AFTER, [t for _, t, _ in tensors])]

    def _call(self, site: int, phase: int, tensors: list[Tensor]) -> CallPacked:
        kinds = ("int", "int", *("tensor" for _ in tensors))
        slot = self.shared.packed(OBSERVER, kinds, 0, "dps")
        return CallPacked(slot, (Scalar(tir.IntImm(INT64, site)), Scalar(tir.IntImm(INT64, phase)), *tensors))
