"""Signatures of operators: parameters with their kinds and defaults, parsed from the text in the operator's entry.

Parameters are in the order of a call's text. A parameter without a kind is an operand of the call (any graph-level
expression; a number stands for a scalar). Kinds of operands: `exprs` (a tuple), `shape`, `scalar`, `scalars` (a tuple),
`string`, `datatype`, `func` (a function, or the name of a packed one), `rest` (all remaining positional arguments),
`types` (struct info of the result, perhaps a tuple), `typelist` (struct info of several results). All other kinds are
attributes: `int`, `ints`, `ints2` (N numbers, one standing for all), `pads4` (numbers before and after each of N/2
dimensions, one or N/2 standing for all), `sections`, `float`, `floats`, `bool`, `str`, `dtype`, `any`. `?` admits None;
so does `??`, and the attribute is then absent. A default is a literal, or the name of a parameter whose value is taken.
"""

from __future__ import annotations

import ast
import functools
import re
from dataclasses import dataclass
from typing import Any

from mlcc.ops.entries import entries, entry
from mlcc.ops.family_index import FAMILY_OF

ARGUMENT_KINDS = frozenset(
    {"expr", "exprs", "shape", "scalar", "scalars", "string", "datatype", "func", "rest", "types", "typelist"}
)
ATTRIBUTE_KINDS = frozenset({"any", "int", "ints", "pads", "sections", "float", "floats", "bool", "str", "dtype"})
_KIND = re.compile(r"([a-z]+)(\d*)(\?{0,2})$")
REQUIRED: Any = type("Required", (), {"__repr__": lambda self: "REQUIRED"})()


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter. `kind` is explained above; `count` is the N of `ints2` and the like."""

    name: str
    kind: str = "expr"
    count: int = 0
    optional: bool = False  # None is a value
    hidden: bool = False  # None is not stored
    default: Any = REQUIRED
    default_from: str | None = None  # the parameter whose value is the default

    @property
    def is_attr(self) -> bool:
        """True for an attribute of the call, False for an argument."""
        return self.kind not in ARGUMENT_KINDS

    @property
    def is_types(self) -> bool:
        """True for struct info of results, which is not an argument."""
        return self.kind in ("types", "typelist")

    @property
    def required(self) -> bool:
        return self.default is REQUIRED and self.default_from is None and self.kind != "rest"


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters in the order of a call's text, and the attributes in the order in which they are printed."""

    params: tuple[Param, ...]
    attr_order: tuple[str, ...]

    def param(self, name: str) -> Param | None:
        for param in self.params:
            if param.name == name:
                return param
        return None

    @property
    def arguments(self) -> tuple[Param, ...]:
        """The parameters that are arguments of the call; struct info of results does not count."""
        return tuple(p for p in self.params if not p.is_attr and not p.is_types)


EXPANDED = ("linear", "nn.relu6")  # names that expand to calls of other operators


def short_name(name: str) -> str:
    """The operator's name without prefix: `relax.op.nn.relu`, `R.nn.relu` and `nn.relu` are one operator."""
    for prefix in ("relax.op.", "relax.", "R."):
        if name.startswith(prefix):
            name = name[len(prefix) :]
            break
    return name if name in FAMILY_OF or name in EXPANDED else aliases().get(name, name)


def names() -> tuple[str, ...]:
    """All operators, as `relax.nn.relu`, sorted."""
    return tuple(sorted(f"relax.{n}" for n in entries()))


@functools.cache
def aliases() -> dict[str, str]:
    """Other spellings of operators, without prefix."""
    return {alias: name for name, entry in entries().items() for alias in entry.aliases}


@functools.cache
def signature(name: str) -> Signature | None:
    """The signature of an operator, or None if there is none of that name."""
    short = short_name(name)
    operator_entry = None if short in EXPANDED else entry(short)
    return None if operator_entry is None else stated_signature(operator_entry)


def stated_signature(entry: Any) -> Signature:
    """Parse the signature of an entry. Raises ValueError for invalid parameters."""
    params = tuple(_parse_param(part) for part in _split_parameters(entry.parameters))
    return Signature(params, entry.attr_order or tuple(p.name for p in params if p.is_attr))


def signature_text(name: str) -> str:
    """The call of an operator as its reference writes it: `nn.relu(data)`, `sum(x, axis=None, keepdims=False)`."""
    sig = signature(name)
    parts = [] if sig is None else [_parameter_text(param) for param in sig.params]
    return f"{short_name(name)}({', '.join(parts)})"


def _parameter_text(param: Param) -> str:
    if param.kind == "rest":
        return f"*{param.name}"
    if param.required:
        return param.name
    if param.default_from is not None:
        return f"{param.name}={param.default_from}"
    return f"{param.name}=" + (f'"{param.default}"' if isinstance(param.default, str) else repr(param.default))


def _split_parameters(text: str) -> list[str]:
    """Split at commas outside quotes."""
    parts = re.findall(r'(?:[^,"]|"[^"]*")+', text)
    return [p.strip() for p in parts if p.strip()]


def _parse_param(text: str) -> Param:
    head, _, default_text = (part.strip() for part in text.partition("="))
    name, _, kind_text = (part.strip() for part in head.partition(":"))
    match = _KIND.match(kind_text or "expr")
    if match is None or match[1] not in ARGUMENT_KINDS | ATTRIBUTE_KINDS:
        raise ValueError(f"`{text}` is not a parameter of an operator")
    kind, count, marks = match.groups()
    default, default_from = REQUIRED, None
    if default_text.isidentifier() and default_text not in ("None", "True", "False"):
        default_from = default_text
    elif default_text:
        default = ast.literal_eval(default_text)
    optional = bool(marks) or default is None
    return Param(name, kind, int(count or 0), optional, marks == "??", default, default_from)
