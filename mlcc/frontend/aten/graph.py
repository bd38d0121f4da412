"""A program of PyTorch as plain data: ATen operators by name, values with the shapes that the exporter states.

A `.pt2` file, a live `ExportedProgram`, and a graph of `torch.compile` all become this; nothing here needs torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from mlcc.frontend.location import SourceLocation

if TYPE_CHECKING:
    import numpy as np

Extent: TypeAlias = int | str  # a number, or an expression over symbols as sympy prints it: `2*s77 + 1`


@dataclass(frozen=True, slots=True)
class Ref:
    """A value of the graph by its name: a tensor, or a number that is known at run time."""

    name: str


@dataclass(frozen=True, slots=True)
class SymbolicNumber:
    """A number as an expression over symbols: `s77//2`."""

    text: str


@dataclass(frozen=True, slots=True)
class Subgraph:
    """A graph as an argument: the branches of `torch.cond`, the body of `while_loop`."""

    graph: Graph


# None, bool, int, float, str (dtypes, devices and modes, too), Ref, Symbolic, Inner, and tuples of these
Argument: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class TensorMeta:
    """Metadata of a tensor, as the exporter states it."""

    dtype: str  # as mlcc calls it: `float32`, `bfloat16`, `bool`
    shape: tuple[Extent, ...]
    strides: tuple[Extent, ...] | None = None  # in elements; None if not stated


@dataclass(frozen=True, slots=True)
class NumberMeta:
    """Metadata of a number that is known at run time only, as the exporter states it."""

    dtype: str  # `int64`, `float64` or `bool`
    value: Extent | float | None = None  # the number, or the expression that it is: `2*s77`, `s77 > 5`


Meta: TypeAlias = TensorMeta | NumberMeta


@dataclass(frozen=True, slots=True)
class AtenNode:
    """A call of an operator."""

    target: str  # `aten.conv2d.default`, `operator.add`, `higher_order.cond`
    # By the names of the operator's schema, where defaults may be absent; `arg0`, `arg1`, ... without a schema
    arguments: Mapping[str, Argument]
    outputs: tuple[str | None, ...]  # names of the results; None for an unused one
    place: SourceLocation
    is_list: bool = False  # the operator returns a list or tuple, possibly of one element
    casts: bool = False  # the result is cast to the stated dtype, as in-place operators do


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes in execution order."""

    inputs: tuple[str, ...]  # "" for one that is a constant
    nodes: tuple[AtenNode, ...]
    outputs: tuple[Argument, ...]
    values: Mapping[str, Meta]


@dataclass(frozen=True, slots=True)
class Weight:
    """A tensor stored in the program. `load` returns its elements in mlcc's storage type, memory-mapped if possible.

    Weights of the same `storage` share memory; those that also have the same `layout` are the same tensor.
    """

    dtype: str
    shape: tuple[int, ...]
    load: Callable[[], np.ndarray] = field(compare=False)
    storage: str = field(default="", compare=False)
    layout: tuple[int, ...] = ()  # strides and offset, in elements


@dataclass(frozen=True, slots=True)
class Input:
    """An input of the outermost graph."""

    value: str  # its name in the graph
    kind: str  # user, parameter, buffer, constant
    target: str = ""  # the name of the weight
    constant: Argument = None  # the number that a user input was exported with; None for tensors
    persistent: bool = True


@dataclass(frozen=True, slots=True)
class Output:
    """An output of the outermost graph."""

    value: Argument
    kind: str  # user, buffer_mutation, user_input_mutation, other kinds as torch calls them
    target: str = ""  # the buffer or input whose new value it is


@dataclass(frozen=True, slots=True)
class Program:
    """A graph with its inputs, outputs and weights."""

    name: str
    graph: Graph
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    weights: Mapping[str, Weight]
    ranges: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)  # least and greatest value of a symbol
