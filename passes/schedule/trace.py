"""The record of a schedule: all steps, as a script that can be replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mlcc.grammar.printer.literals import float_imm_text, plain_float, quote
from mlcc.ir import tir
from mlcc.passes.schedule.handles import BlockRV, ExprRV, Handle, LoopRV
from mlcc.passes.schedule.index_maps import IndexMapArg, index_map_text, rebind_sampled

if TYPE_CHECKING:
    from mlcc.passes.schedule.schedule import Schedule

    DecisionProvider = Callable[["Instruction", list[Any], dict[str, Any], Any], Any]


@dataclass(frozen=True, slots=True, eq=False)
class Instruction:
    """One step: a primitive, its arguments in the order of its parameters (`rest`: positional ones, of a primitive
    that takes any number), what it returned, and, for sampling, what it decided."""

    name: str
    arguments: dict[str, Any]
    rest: tuple[Any, ...]
    outputs: tuple[Handle, ...]
    single: bool = True  # one output returned bare, not in a list

    @property
    def decision(self) -> Any:
        return self.arguments.get("decision")

    @property
    def is_sampling(self) -> bool:
        return "decision" in self.arguments

    def inputs(self) -> Iterator[Handle]:
        """Return all handles that occur in the arguments."""
        yield from _handles((self.rest, self.arguments))

    def with_decision(self, decision: Any) -> Instruction:
        """Return the same sampling step with another decision."""
        arguments = {**self.arguments, "decision": decision}
        return Instruction(self.name, arguments, self.rest, self.outputs, self.single)

    def apply_to(
        self, sch: Schedule, known: dict[Handle, Handle], decision_provider: DecisionProvider | None = None
    ) -> None:
        """Apply the step to another schedule. `known` maps handles to those there, and is given this step's outputs."""
        arguments = {k: _translated(v, known) for k, v in self.arguments.items()}
        rest = tuple(_translated(v, known) for v in self.rest)
        if self.is_sampling and decision_provider is not None:
            attrs = {k: v for k, v in arguments.items() if k != "decision"}
            arguments["decision"] = decision_provider(self, list(rest), attrs, self.decision)
        result = sch.call(self.name, rest, arguments)
        outputs = () if result is None else tuple(result) if isinstance(result, list) else (result,)
        known.update(zip(self.outputs, outputs, strict=True))


# Steps that only look: without a use of what they return they can go.
PURE = frozenset({
    "get_block", "get_loops", "get_child_blocks", "get_producers", "get_consumers", "get_output_blocks",
    "sample_perfect_tile", "sample_partitioned_tile", "sample_categorical", "sample_compute_location",
})  # fmt: skip

OWN_FLAGS = frozenset({"every_step"})  # that TVM does not have: left out where they are not set


class Trace:
    """Steps in order. `str()` is a `.mls` script that gives the same module when replayed."""

    def __init__(self, insts: Iterable[Instruction] = ()) -> None:
        self.insts: list[Instruction] = list(insts)

    def __len__(self) -> int:
        return len(self.insts)

    def append(self, inst: Instruction) -> None:
        self.insts.append(inst)

    def pop(self) -> Instruction | None:
        """Drop the last step and return it."""
        return self.insts.pop() if self.insts else None

    def copy(self) -> Trace:
        return Trace(self.insts)

    @property
    def decisions(self) -> dict[Instruction, Any]:
        """Return the decision of each sampling step."""
        return {i: i.decision for i in self.insts if i.is_sampling}

    def get_decision(self, inst: Instruction) -> Any:
        """Return the decision of a sampling step, None for other steps."""
        return inst.decision

    def with_decision(self, inst: Instruction, decision: Any, remove_postproc: bool = True) -> Trace:
        """Return a trace in which `inst`, a sampling step of this one, has another decision.

        Raises ValueError if it is no sampling step of this trace.
        """
        if not inst.is_sampling or not any(i is inst for i in self.insts):
            raise ValueError(f"`{inst.name}` is not a sampling step of this trace")
        other = inst.with_decision(decision)
        return Trace(other if i is inst else i for i in self._upto(remove_postproc))

    def simplified(self, remove_postproc: bool = False) -> Trace:
        """Return the trace without queries whose results are not used."""
        kept: list[Instruction] = []
        used: set[Handle] = set()
        for inst in reversed(self._upto(remove_postproc)):
            if inst.name in PURE and not any(o in used for o in inst.outputs):
                continue
            used.update(inst.inputs())
            kept.append(inst)
        return Trace(reversed(kept))

    def apply_to_schedule(
        self, sch: Schedule, remove_postproc: bool = False,
        decision_provider: DecisionProvider | None = None,
    ) -> None:  # fmt: skip
        """Apply the steps to another schedule.

        `decision_provider(inst, inputs, attrs, decision)` may replace the decisions of sampling steps.
        """
        known: dict[Handle, Handle] = {}
        for inst in self._upto(remove_postproc):
            inst.apply_to(sch, known, decision_provider)

    def without_postproc(self) -> list[Instruction]:
        """The steps before `enter_postproc`, which follow from the decisions alone."""
        return list(self._upto(True))

    def _upto(self, remove_postproc: bool) -> list[Instruction]:
        if remove_postproc:
            for at, inst in enumerate(self.insts):
                if inst.name == "enter_postproc":
                    return self.insts[:at]
        return self.insts

    def as_python(self, defaults: bool = True) -> list[str]:
        """Return the steps as lines of text; without `defaults`, arguments equal to their default are omitted."""
        names = _HandleNames()
        return [names.line(inst, defaults) for inst in self.insts]

    def __str__(self) -> str:
        lines = self.as_python() or ["pass"]
        return "\n".join(["# from tvm import tir", "def apply_trace(sch: tir.Schedule) -> None:"] + [
            "    " + line for line in lines
        ]) + "\n"  # fmt: skip

    def __repr__(self) -> str:
        return f"<Trace of {len(self.insts)} steps>"

    def show(self) -> None:
        """Print it."""
        print(self)


def _handles(value: Any) -> Iterator[Handle]:
    if isinstance(value, ExprRV) and not value.is_leaf:
        yield from _handles((value.lhs, value.rhs))
    elif isinstance(value, Handle):
        yield value
    elif isinstance(value, IndexMapArg):
        yield from value.sampled
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _handles(item)
    elif isinstance(value, dict):
        yield from _handles(tuple(value.values()))


def _translated(value: Any, known: dict[Handle, Handle]) -> Any:
    if isinstance(value, ExprRV) and not value.is_leaf:
        return ExprRV(value.op, _translated(value.lhs, known), _translated(value.rhs, known))
    if isinstance(value, Handle):
        return known.get(value, value)
    if isinstance(value, IndexMapArg):
        return rebind_sampled(value, known) if value.sampled else value
    if isinstance(value, (list, tuple)):
        return type(value)(_translated(v, known) for v in value)
    if isinstance(value, dict):
        return {k: _translated(v, known) for k, v in value.items()}
    return value


def _is_default(primitive: str, parameter: str, value: Any) -> bool:
    from mlcc.passes.schedule import registry

    default = registry.find(primitive).signature.parameters[parameter].default
    return type(value) is type(default) and value == default


class _HandleNames:
    """The names of handles in one text: b0, l1, v2, ..., numbered in order of appearance."""

    def __init__(self) -> None:
        self._names: dict[Handle, str] = {}

    def line(self, inst: Instruction, defaults: bool = True) -> str:
        given = [self.value(v) for v in inst.rest]
        given += [
            f"{k}={self.value(v)}"
            for k, v in inst.arguments.items()
            if not (v is None and k in ("decision", "func_name", "consumer_blocks") or v is False and k in OWN_FLAGS)
            and (defaults or not _is_default(inst.name, k, v))
        ]
        call = f"sch.{inst.name}({', '.join(given)})"
        if not inst.outputs:
            return call
        outputs = ", ".join(self._name(o) for o in inst.outputs)
        if len(inst.outputs) == 1 and not inst.single:
            outputs += ","
        return f"{outputs} = {call}"

    def _name(self, handle: Handle) -> str:
        if handle not in self._names:
            letter = {BlockRV: "b", LoopRV: "l"}.get(type(handle), "v")
            self._names[handle] = f"{letter}{len(self._names)}"
        return self._names[handle]

    def value(self, value: Any, tight: bool = False) -> str:
        match value:
            case ExprRV() if not value.is_leaf:
                text = f"{self.value(value.lhs, True)} {value.op} {self.value(value.rhs, True)}"
                return f"({text})" if tight else text
            case Handle():
                return self._name(value)
            case str():
                return quote(value)
            case list():
                return f"[{', '.join(self.value(v) for v in value)}]"
            case tuple():
                return f"({', '.join(self.value(v) for v in value)}{',' if len(value) == 1 else ''})"
            case dict():
                return "{" + ", ".join(f"{quote(k)}: {self.value(v)}" for k, v in value.items()) + "}"
            case float():
                return plain_float(value)
            case tir.IndexMap():
                return index_map_text(value)
            case IndexMapArg(value=tir.IndexMap() as index_map, separators=separators, sampled=sampled):
                return index_map_text(index_map, separators, {rv.var: self._name(rv) for rv in sampled})
            case tir.IntImm(dtype=dtype, value=number):
                return str(number) if str(dtype) == "int32" else f"T.{dtype}({number})"
            case tir.FloatImm(dtype=dtype, value=number, written=written):
                return f"T.{dtype}({float_imm_text(number, written, dtype)})"
            case tir.StringImm(value=text):
                return quote(text)
        return repr(value)
