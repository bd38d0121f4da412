"""Warnings for legal code that is certainly a mistake, proven by a witness or by the function as a whole.

W0301: data races between iterations of a parallel loop. A few iterations of each access are evaluated; two that
access the same element, one of them with a store, are reported. W0302: memory of the function that is read, in
the first iteration of the enclosing loops, before any store to it. W0303: an unused parameter. W0305: a store
that rounds its value. W0306: a sum in a name, which is lost.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from mlcc.errors import Label
from mlcc.ir import relax, tir
from mlcc.ir.node import children, find
from mlcc.ir.tir import Expr, ForKind
from mlcc.verify.out_of_bounds import shape_symbols
from mlcc.verify.paths import Loop, PathStep, PathVisitor, pointers, unique_nodes
from mlcc.verify.report import Report
from mlcc.verify.witness import BudgetExceeded, Env, IntEvaluator

WORK = 200_000  # nodes that the analysis of one function may look at

Node = tir.BufferLoad | tir.BufferStore


@dataclass(frozen=True, slots=True, eq=False)
class _Access:
    node: Node
    path: PathStep
    loops: frozenset[Loop]  # the parallel loops around


def lint_prim_func(func: tir.PrimFunc, report: Report) -> None:
    """The warnings of one TensorIR function that is well-formed."""
    report.at(func)
    if not any(not isinstance(s, tir.Evaluate) for s in func.body):
        return  # a declaration
    _unused_params(func, report)
    _lossy_stores(func, report)
    _lost_values(func, report)
    linter = _LintVisitor(func, report)
    with contextlib.suppress(BudgetExceeded):
        linter.function(func)
        linter.report_races()


def lint_function(func: relax.Function, report: Report) -> None:
    """The warnings of one graph function."""
    report.at(func)
    used = {n for n in unique_nodes(func.body) if isinstance(n, (relax.Var, tir.Var))}
    infos = [_symbols(p) for p in func.params]
    for at, param in enumerate(func.params):
        others = {v for i, symbols in enumerate(infos) if i != at for v in symbols}
        if param not in used and not param.name.startswith("_") and not (infos[at] - others) & used:
            report.warn("W0303", f"parameter `{param.name}` is not used", param, help=_UNUSED)


_UNUSED = "remove it, or let its name begin with `_`"


def _symbols(param: relax.Var) -> set[tir.Var]:
    info = param.struct_info
    return set() if info is None else {n for n in unique_nodes(info) if isinstance(n, tir.Var)}


def _unused_params(func: tir.PrimFunc, report: Report) -> None:
    used: set[Any] = set()
    for node in unique_nodes(func.body):
        if isinstance(node, tir.Var):
            used.add(node)
        elif isinstance(node, tir.Buffer):
            used |= {node, node.data}
    parts = [_buffer_variables(b) for b in func.buffers]
    bound = {n.var.name for n in unique_nodes(func.body) if isinstance(n, tir.Bind)}
    for at, (param, buffer) in enumerate(zip(func.params, func.buffers, strict=True)):
        others = {v for i, p in enumerate(parts) if i != at for v in p}
        binds = parts[at] & (used | others)
        is_used = param in used or (buffer is not None and (buffer in used or buffer.data in used)) or binds
        name = param.name if buffer is None else buffer.name
        if not is_used and param not in others and not name.startswith("_"):
            help = f"`{name} = ...` binds a new name; an element is stored by `{name}[...] = ...`"
            help = help if name in bound and buffer is not None else _UNUSED
            report.warn("W0303", f"parameter `{name}` is not used", buffer or param, help=help)


def _lossy_stores(func: tir.PrimFunc, report: Report) -> None:
    """Warn of stores whose value is converted, without the text saying so, to a dtype that cannot hold it.

    The conversion that the reader inserts has the place of the value; one that is written has its own, around it.
    """
    for node in unique_nodes(func.body):
        value = node.value if isinstance(node, tir.BufferStore) else None
        if not isinstance(value, tir.Cast) or value.span is None or value.span != value.value.span:
            continue
        given, kept = value.value.dtype, value.dtype
        if given.is_float and (not kept.is_float or kept.bits < given.bits):
            message = f"a value of {given} is rounded to {kept}, as which `{node.buffer.name}` stores it"
            help = f'if that is meant, write it: `T.Cast("{kept}", ...)`; else compute in {kept}'
            report.warn("W0305", message, value, help=help)


def _lost_values(func: tir.PrimFunc, report: Report) -> None:
    """Warn of `s = s + ...` in a loop where nothing reads the new `s`: each iteration begins with the outer one."""
    binds = [b for b in find(func.body, tir.Bind) if any(v.name == b.var.name for v in find(b.value, tir.Var))]
    if not binds:
        return
    loops = [n.body for n in unique_nodes(func.body) if isinstance(n, (tir.For, tir.While))]
    repeated = {b for body in loops for b in find(body, tir.Bind)}
    read: set[tir.Var] = set()
    for node in unique_nodes(func.body):
        bound = node.var if isinstance(node, tir.Bind) else None
        read.update(child for child in children(node) if isinstance(child, tir.Var) and child is not bound)
    for bind in binds:
        if bind in repeated and bind.var not in read:
            name = bind.var.name
            message = f"`{name} = ...` binds a new `{name}` in each iteration, which nothing reads"
            buffer = f'`{name} = T.alloc_buffer((1,), "{bind.value.dtype}")` before the loop'
            help = f"what iterations add to is in a buffer: {buffer}, and `{name}[0] = {name}[0] + ...` in it"
            report.warn("W0306", message, bind, help=help)


def _buffer_variables(buffer: tir.Buffer | None) -> set[tir.Var]:
    """The variables in the shape, strides and offset of a buffer."""
    if buffer is None:
        return set()
    parts = (*buffer.shape, *buffer.strides, *(() if buffer.elem_offset is None else (buffer.elem_offset,)))
    return {n for n in unique_nodes(parts) if isinstance(n, tir.Var)}


class _LintVisitor(PathVisitor):
    def __init__(self, func: tir.PrimFunc, report: Report) -> None:
        self._report = report
        self._numbers = IntEvaluator(WORK)
        symbols = shape_symbols(func)
        self._samples: list[Env] = [{v: 64 * at for at, v in enumerate(symbols, 1)}]
        if symbols:
            self._samples.append({v: 67 + 4 * at for at, v in enumerate(symbols, 1)})
        self._params = {b.data for b in func.buffers if b is not None}
        self._roots: dict[tir.Var, tir.Var | None] = {}  # the buffer behind each view, None if not known
        self._unwritten: set[tir.Var] = set()  # allocated memory that nothing has written so far
        self._accesses: dict[tir.Var, list[_Access]] = {}
        self._parallel: list[Loop] = []
        self._loops: list[Loop] = []
        self._parallel_around: dict[tir.Var, frozenset[Loop]] = {}  # the parallel loops around an allocation
        self._aliased: set[tir.Var] = set()  # roots that are seen through more than one buffer

    # ------------------------------------------------------------ calls from Paths

    def step(self, step: PathStep) -> None:
        if isinstance(step, Loop) and isinstance(step.node, tir.For) and step.node.kind is ForKind.PARALLEL:
            self._parallel.append(step)
            self._loops.append(step)

    def leave(self, loop: Loop) -> None:
        if self._parallel and self._parallel[-1] is loop:
            self._parallel.pop()

    def allocate(self, buffer: tir.Buffer, path: PathStep) -> None:
        self._unwritten.add(buffer.data)
        self._parallel_around[buffer.data] = frozenset(self._parallel)

    def alias(self, data: tir.Var, value: Expr) -> None:
        for pointer in pointers(value):
            root = self._root(pointer)
            self._mark_written(root)
            self._aliased.add(root)
        self._roots[data] = self._root(value) if isinstance(value, tir.Var) else None

    def escape(self, call: tir.Call) -> None:
        for pointer in pointers(call):
            self._mark_written(self._root(pointer))

    def access(self, node: Node, path: PathStep) -> None:
        root = self._root(node.buffer.data)
        if isinstance(node, tir.BufferStore):
            self._mark_written(root)
        elif root in self._unwritten and self._surely_runs(path):
            self._unwritten.discard(root)
            message = f"`{node.buffer.name}` is read before anything is written to it"
            help = "write it first: `T.init()` of a reduction, or a loop that fills it"
            self._report.warn("W0302", message, node, help=help)
        self._accesses.setdefault(root, []).append(_Access(node, path, frozenset(self._parallel)))

    def _root(self, data: tir.Var) -> tir.Var:
        return self._roots.get(data) or data

    def _mark_written(self, root: tir.Var) -> None:
        self._unwritten.discard(root)

    def _surely_runs(self, path: PathStep) -> bool:
        """Return True if the first iterations of a path's loops reach its end, for each sample of nonzero sizes."""
        steps = path.steps()
        return all(self._numbers.follow_path(steps, {}, dict(sizes)) is not None for sizes in self._samples)

    # ------------------------------------------------------------ parallel loops

    def report_races(self) -> None:
        """Report parallel loops that certainly have a data race between two iterations."""
        for loop in self._loops:
            for root, accesses in self._accesses.items():
                inside = [a for a in accesses if loop in a.loops]
                local = root not in self._params and len(inside) == len(
                    accesses
                )  # each iteration may have a private copy
                if root in self._aliased or local or loop in self._parallel_around.get(root, ()):
                    continue
                if any(isinstance(a.node, tir.BufferStore) for a in inside) and self._report_race(loop, inside):
                    break

    def _report_race(self, loop: Loop, accesses: list[_Access]) -> bool:
        pairs = [self._find_race(loop, accesses, sizes) for sizes in self._samples]
        if any(f is None for f in pairs):
            return False
        store, other, element, first, second = pairs[0]  # type: ignore[misc]
        name = store.node.buffer.name
        verb = "write" if isinstance(other.node, tir.BufferStore) else "write and read"
        shown = ", ".join(map(str, element))
        message = f"iterations of the parallel loop `{loop.var.name}` {verb} the same element of `{name}`"
        text = f"`{name}[{shown}]` where `{loop.var.name}` is {first}"
        again = "written" if isinstance(other.node, tir.BufferStore) else "read"
        related = (
            Label(other.node.span, f"{again} where `{loop.var.name}` is {second}"),
            Label(loop.node.span, "its iterations may run in any order and at the same time"),
        )
        help = "make the loop serial, or give each iteration its own elements"
        self._report.warn("W0301", message, store.node, text, related=related, help=help)
        return True

    def _find_race(
        self, loop: Loop, accesses: list[_Access], sizes: Env
    ) -> tuple[_Access, _Access, tuple[int, ...], int, int] | None:
        """A store and another access of one element in two iterations, with the element and the loop variable."""
        seen: dict[tuple[int, ...], list[tuple[_Access, int]]] = {}
        for access in sorted(accesses, key=lambda a: not isinstance(a.node, tir.BufferStore)):
            for element, at in self._sample_elements(access, loop, sizes):
                for store, first in seen.get(element, ()):
                    if first != at and not _same_constant(store.node, access.node):
                        return store, access, element, first, at
                if isinstance(access.node, tir.BufferStore):
                    seen.setdefault(element, []).append((access, at))
        return None

    def _sample_elements(self, access: _Access, loop: Loop, sizes: Env) -> list[tuple[tuple[int, ...], int]]:
        """Elements that an access touches in a few iterations, each with the value of the loop variable."""
        steps = access.path.steps()
        inner = [s for s in steps if isinstance(s, Loop) and s is not loop]
        elements: set[tuple[tuple[int, ...], int]] = set()
        for ends in (False, True):
            trips = self._numbers.follow_path(steps, {}, dict(sizes))
            if trips is None and not ends:
                continue
            last = {s: trips[s] - 1 for s in inner} if ends and trips and not self._symbolic else {}
            count = trips[loop] if trips else 3
            turns = {0, 1, 2} if self._symbolic else {0, 1, 2, count - 2, count - 1}
            for turn in turns:
                env = dict(sizes)
                if self._numbers.follow_path(steps, {**last, loop: turn}, env) is None:
                    continue
                values = [self._numbers.value(i, env) for i in access.node.indices]
                if all(v is not None for v in values):
                    elements.add((tuple(values), env[loop.var]))  # type: ignore[arg-type]
        return sorted(elements)

    @property
    def _symbolic(self) -> bool:
        return len(self._samples) > 1


def _same_constant(a: Node, b: Node) -> bool:
    """True for two stores of the same constant, whose order does not matter."""
    if not isinstance(a, tir.BufferStore) or not isinstance(b, tir.BufferStore):
        return False
    return (
        isinstance(a.value, (tir.IntImm, tir.FloatImm))
        and isinstance(b.value, (tir.IntImm, tir.FloatImm))
        and a.value.value == b.value.value
    )
