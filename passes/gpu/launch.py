"""Determine the launch of a kernel: its thread axes with their extents, and the memory read outside of their loops.

Extents are computed by the host: one that depends on loops inside the kernel is as large as it gets there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.intset import Interval, eval_set, from_range
from mlcc.errors import CompileError, Label, error
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT32, INT64
from mlcc.ir.node import Node, children, holds, walk
from mlcc.ir.tir import Expr, Stmt
from mlcc.ir.visit import substitute, used_vars
from mlcc.passes.gpu.thread_axes import AXES, thread_axis
from mlcc.passes.lowering.accesses import is_pure
from mlcc.passes.lowering.unroll import nested_bodies
from mlcc.passes.lowering.vector_legality import mentions


@dataclass(slots=True, eq=False)
class Launch:
    """The launch of a kernel: `axes` are fresh variables, in the order of AXES, with their `extents`.

    `read` is the memory (data variables) that the kernel reads, `read_outside_axes` what it reads outside of
    the loops of some axis.
    """

    axes: dict[str, tir.Var] = field(default_factory=dict)
    extents: dict[str, Expr] = field(default_factory=dict)
    read: set[tir.Var] = field(default_factory=set)
    read_outside_axes: set[tir.Var] = field(default_factory=set)

    def whole(self, tag: str, extent: Expr) -> bool:
        """Return True if a loop of this extent covers all threads of the axis."""
        most = self.extents[tag]
        return Analyzer().prove_equal(c.cast(INT64, most), c.cast(INT64, extent))


def scan_launch(kernel: Stmt) -> Launch:
    """Return the launch of a kernel, given as its outermost thread-bound statement. Raises CompileError."""
    scanner = _LaunchScanner()
    scanner.visit(kernel)
    launch = Launch()
    for tag in AXES:
        if tag in scanner.extents_by_axis:
            wide = any(dtype == INT64 for _, dtype in scanner.extents_by_axis[tag])
            launch.axes[tag] = tir.Var(tag, INT64 if wide else INT32)
            launch.extents[tag] = _greatest([extent for extent, _ in scanner.extents_by_axis[tag]])
    for data, open_axes in scanner.reads:
        launch.read.add(data)
        if len(open_axes) < len(launch.axes):
            launch.read_outside_axes.add(data)
    return launch


def _greatest(extents: list[Expr]) -> Expr:
    most = extents[0]
    for extent in extents[1:]:
        if not Analyzer().prove_equal(c.cast(INT64, most), c.cast(INT64, extent)):
            most = c.maximum(most, extent) if most.dtype is extent.dtype else c.maximum(
                c.cast(INT64, most), c.cast(INT64, extent)
            )  # fmt: skip
    return most


@dataclass(frozen=True, slots=True, eq=False)
class _OpenAxis:
    """An enclosing bound loop or scope; `dependents` are the variables that depend on its variable."""

    node: tir.For | tir.AttrStmt
    extent: Expr
    dependents: set[tir.Var]
    controls: list[Node]  # conditions and bounds inside of it, on the way down


class _LaunchScanner:
    def __init__(self) -> None:
        self.extents_by_axis: dict[str, list[tuple[Expr, object]]] = {}
        self.reads: list[tuple[tir.Var, frozenset[str]]] = []
        self._open: dict[str, _OpenAxis] = {}
        self._domains: dict[tir.Var, Interval] = {}
        self._values: dict[tir.Var, Expr] = {}
        self._inner: set[tir.Var] = set()

    def visit(self, stmt: Stmt) -> None:
        nested = nested_bodies(stmt)
        inside = {id(s) for body in nested for s in body}
        for child in children(stmt):
            if id(child) not in inside:
                self._record_loads(child)
        axis = thread_axis(stmt)
        if axis is not None:
            assert isinstance(stmt, (tir.For, tir.AttrStmt))
            self._enter_axis(stmt, *axis)
            return
        controls: list[Node] = []
        match stmt:
            case tir.Bind(var=var, value=value):
                self._bind(var, value)
            case tir.For(var=var, min=low, extent=extent):
                self._loop(var, low, extent)
                controls = [low, extent]
            case tir.IfThenElse(condition=condition) | tir.While(condition=condition):
                controls = [condition]
        for outer in self._open.values():
            outer.controls.extend(controls)
        for body in nested:
            for each in body:
                self.visit(each)
        for outer in self._open.values():
            del outer.controls[len(outer.controls) - len(controls) :]

    def _enter_axis(self, node: tir.For | tir.AttrStmt, tag: str, var: tir.Var, extent: Expr) -> None:
        outer = self._open.get(tag)
        if outer is not None:
            _check_nested_axis(node, tag, extent, outer)
        self.extents_by_axis.setdefault(tag, []).append((self._before_launch(node, extent), var.dtype))
        self._loop(var, node.min if isinstance(node, tir.For) else c.const(0, var.dtype), extent)
        if outer is None:
            self._open[tag] = _OpenAxis(node, extent, {var}, [])
        elif isinstance(outer.node, tir.AttrStmt):
            outer.dependents.add(var)
        for each in node.body:
            self.visit(each)
        if outer is None:
            del self._open[tag]

    def _loop(self, var: tir.Var, low: Expr, extent: Expr) -> None:
        self._inner.add(var)
        self._domains[var] = from_range(tir.Range(low, extent))
        for outer in self._open.values():
            if mentions(low, outer.dependents) or mentions(extent, outer.dependents):
                outer.dependents.add(var)

    def _bind(self, var: tir.Var, value: Expr) -> None:
        self._inner.add(var)
        if is_pure(value) and not value.dtype.is_handle:
            self._values[var] = substitute(value, self._values)
        for outer in self._open.values():
            if mentions(value, outer.dependents):
                outer.dependents.add(var)

    def _before_launch(self, node: Stmt, extent: Expr) -> Expr:
        """Return the extent, or an upper bound, over values that are known before the kernel starts."""
        bound = substitute(extent, self._values)
        for _ in self._domains:
            if not used_vars(bound) & self._inner:
                break
            reach = eval_set(bound, self._domains)
            if reach.high is None:
                break
            bound = substitute(reach.high, self._values)
        if used_vars(bound) & self._inner or holds(bound, tir.BufferLoad):
            text = "the number of threads is not known before the kernel starts"
            help = "bind the greatest possible extent, and put a condition inside the loop"
            raise CompileError(error("E0722", text, node.span, help=help))
        return bound

    def _record_loads(self, root: Node) -> None:
        for node in walk(root):
            if isinstance(node, tir.BufferLoad):
                self.reads.append((node.buffer.data, frozenset(self._open)))
            elif isinstance(node, tir.Let):
                self._bind(node.var, node.value)


def _check_nested_axis(node: tir.For | tir.AttrStmt, tag: str, extent: Expr, outer: _OpenAxis) -> None:
    """Check a loop bound to the axis of an enclosing one: each thread takes its share of the inner loop once."""
    places = (Label(outer.node.span, "the outer one"),)
    if not Analyzer().prove_equal(c.cast(INT64, extent), c.cast(INT64, outer.extent)):
        text = f"two nested loops bound to `{tag}` have different extents"
        raise CompileError(error("E0725", text, node.span, related=places))
    if isinstance(outer.node, tir.AttrStmt):
        return
    if any(mentions(part, outer.dependents) for part in (*node.body, *outer.controls)):
        text = f"a loop bound to `{tag}` depends on an enclosing loop bound to the same axis"
        help = "the threads of the outer loop divide the iterations of the inner one, so it must be the same for all"
        raise CompileError(error("E0725", text, node.span, related=places, help=help))
