"""Serialise planned functions as JSON: the steps of a call, with memory locations as expressions over its symbols.

A location is `[kind, number, offset in bytes]`; the kind is `arg` (the argument vector, results included), `const`, or
`work`, whose number is 0. An argument of a kernel has its size in bytes as a fourth part, unless it is known to be
aligned.
"""

from __future__ import annotations

from typing import Any

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.runtime.launch.plan import POINTER_ALIGNMENT
from mlcc.targets.launch.names import Names
from mlcc.targets.launch.scalars import as_json
from mlcc.targets.plan.context import AnyPlanning
from mlcc.targets.plan.manifest import symbol_names
from mlcc.targets.plan.prim import offset_bytes
from mlcc.targets.plan.steps import (
    Branch,
    CallKernel,
    CallPacked,
    Check,
    Copy,
    HostFunction,
    Loop,
    Memory,
    MemoryKind,
    NextIteration,
    ReadSymbol,
    Scalar,
    Shape,
    Step,
    Tensor,
    Text,
    Value,
    walk_steps,
)


def function_plan(func: HostFunction, shared: AnyPlanning) -> dict[str, Any]:
    """Return the launch plan of a function whose workspace is assigned."""
    return _Writer(func, shared).function()


class _Writer:
    def __init__(self, func: HostFunction, shared: AnyPlanning) -> None:
        self.func = func
        self.shared = shared
        self.leaves = [*func.inputs(), *func.outputs()]
        self.names = Names(symbol_names(func))
        for leaf in func.inputs():
            if leaf.kind == "scalar" and isinstance(leaf.value, tir.Var):
                self.names.add(leaf.value)
        for step in walk_steps(func.steps):
            if isinstance(step, ReadSymbol):
                self.names.add(step.symbol)

    def function(self) -> dict[str, Any]:
        func = self.func
        places = []
        for place, expr in func.places:
            tree = self.scalar(expr)
            places.append([self.names.add(place), tree])
        entry: dict[str, Any] = {"places": places, "workspace": self.scalar(func.workspace)}
        floats = {i: v for i, leaf in enumerate(func.inputs()) if (v := self._float_name(leaf.value, leaf.kind))}
        if floats:
            entry["floats"] = [[index, name] for index, name in floats.items()]
        shifts = [
            [index, self.scalar(offset_bytes(leaf))]
            for index, leaf in enumerate(self.leaves)
            if leaf.kind == "tensor" and leaf.offset is not None and tir.const_int(leaf.offset) != 0
        ]
        if shifts:
            entry["shifts"] = shifts
        entry["steps"] = self.steps(func.steps)
        if func.values:
            entry["values"] = [[leaf, self.scalar(expr)] for leaf, expr in func.values]
        actual = [
            [len(func.inputs()) + i, [self.scalar(d) for d in leaf.actual]]
            for i, leaf in enumerate(func.outputs())
            if leaf.actual is not None
        ]
        if actual:
            entry["actual"] = actual
        return entry

    def _float_name(self, value: tir.Expr | None, kind: str) -> str | None:
        if kind == "scalar" and isinstance(value, tir.Var) and value.dtype.is_float:
            return self.names[value]
        return None

    # ------------------------------------------------------------ values

    def scalar(self, expr: tir.Expr) -> Any:
        return as_json(expr, self.names)

    def place(self, memory: Memory, offset: tir.Expr) -> list[Any]:
        """Return the location of the byte `offset` of a piece of memory."""
        root = memory.root()
        match root.place:
            case MemoryKind.TEMPORARY:
                assert root.offset is not None
                return ["work", 0, self.scalar(self.func.dims.simplify(c.add(root.offset, offset)))]
            case MemoryKind.CONSTANT:
                return ["const", root.index, self.scalar(offset)]
        leaf = self.leaves[root.index]
        if (
            leaf.kind == "tensor" and leaf.offset is not None
        ):  # the kernel's pointer is `leaf.offset` elements before the first one
            offset = self.func.dims.simplify(c.sub(offset, offset_bytes(leaf)))
        return ["arg", root.index, self.scalar(offset)]

    def tensor(self, value: Tensor) -> list[Any]:
        return self.place(value.memory, value.offset)

    def pointer(self, value: Tensor) -> list[Any]:
        """Return the location of a kernel argument, with its size if it may be misaligned."""
        misalignment = self.func.dims.simplify(c.floormod(value.offset, POINTER_ALIGNMENT))
        return self.tensor(value) + ([] if tir.const_int(misalignment) == 0 else [self.scalar(value.size)])

    def condition(self, value: Scalar | Tensor) -> Any:
        """Return a scalar, or `{"load": location}` for a bool in device memory."""
        return {"load": self.tensor(value)} if isinstance(value, Tensor) else self.scalar(value.value)

    # ------------------------------------------------------------ steps

    def steps(self, steps: list[Step]) -> list[dict[str, Any]]:
        return [self.step(s) for s in steps]

    def step(self, step: Step) -> dict[str, Any]:
        match step:
            case CallKernel():
                return self._program(step)
            case CallPacked(slot=slot, args=args):
                return {"do": "packed", "slot": slot, "args": [self.packed_argument(a) for a in args]}
            case Copy(target=target, source=source):
                destination, origin = self.tensor(target), self.tensor(source)
                return {"do": "copy", "to": destination, "from": origin, "bytes": self.scalar(target.size)}
            case Check(condition=condition, code=code, exact=exact):
                entry = {"do": "check", "cond": self.condition(condition), "code": code}
                return entry | ({"exact": True} if exact else {})
            case ReadSymbol(symbol=symbol, source=source, code=code):
                return {"do": "measure", "name": self.names[symbol], "from": self.tensor(source), "code": code}
            case Branch(condition=condition, then_steps=then, else_steps=other):
                entry = {"do": "if", "cond": self.condition(condition), "then": self.steps(then)}
                return entry | ({"else": self.steps(other)} if other else {})
            case Loop(steps=steps):
                return {"do": "loop", "body": self.steps(steps)}
            case NextIteration():
                return {"do": "again"}

    def _program(self, step: CallKernel) -> dict[str, Any]:
        args = [self.pointer(a) if isinstance(a, Tensor) else self.scalar(a.value) for a in step.args]
        entry: dict[str, Any] = {"do": "run", "program": step.kernel, "args": args}
        if step.symbols:
            entry["symbols"] = [self.scalar(s) for s in step.symbols]
        if step.workspace is not None:
            entry["work"] = self.place(step.workspace, tir.IntImm(step.workspace.size.dtype, 0))
        return entry

    def packed_argument(self, value: Value) -> dict[str, Any]:
        match value:
            case Tensor(dims=dims, dtype=dtype):
                return {"tensor": self.tensor(value), "dtype": str(dtype), "shape": [self.scalar(d) for d in dims]}
            case Shape(dims=dims):
                return {"shape": [self.scalar(d) for d in dims]}
            case Text(value=text):
                return {"str": text}
            case Scalar(value=expr):
                kind = "bool" if expr.dtype.is_bool else "float" if expr.dtype.is_float else "int"
                return {kind: self.scalar(expr)}
        raise AssertionError(f"{type(value).__name__} is no argument")
