"""The state of walking one relax function: its names, its symbolic variables, and the bindings made so far."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from mlcc.errors import CompileError, Label, Span, nearest
from mlcc.grammar.constants import Constants
from mlcc.grammar.context import UNKNOWN, Binding, Scope, Skip, TypeVar, Walk
from mlcc.grammar.syntax import tree
from mlcc.grammar.tir.evaluator import evaluate
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import INT64, DType
from mlcc.ir.node import children

MAX_TYPE = 10_000  # nodes of a type


class _Module:
    """The type of `MODULE`, the value of `cls` after `cls = Module`."""


MODULE = _Module()


@dataclass
class BlockCollector:
    """Blocks of bindings under construction; `outputs` are the places where dataflow outputs are bound."""

    blocks: list[relax.BindingBlock] = field(default_factory=list)
    bindings: list[relax.Binding] = field(default_factory=list)
    in_dataflow: bool = False
    outputs: set[int] = field(default_factory=set)

    def close(self) -> None:
        """End the block being made."""
        if self.bindings or self.in_dataflow:
            kind = relax.DataflowBlock if self.in_dataflow else relax.BindingBlock
            self.blocks.append(kind(tuple(self.bindings)))
        self.bindings, self.in_dataflow, self.outputs = [], False, set()


class FunctionWalk:
    """One function being walked; `outer` is the function around it, if any."""

    def __init__(self, walk: Walk, outer: FunctionWalk | None = None) -> None:
        self.walk = walk
        self.outer = outer
        self.scope: Scope = Scope(outer.scope if outer is not None else walk.prelude)
        self.scalars = Scalars(self)
        self.symbols: dict[str, tir.Var] = {}
        self.out = BlockCollector()
        self.sizes: dict[int, tuple[Any, int]] = outer.sizes if outer is not None else {}
        self.inside = 0  # how many branches are open
        self.return_span: Span | None = None  # where the function returned

    # ------------------------------------------------------------ names

    def find(self, name: str) -> Binding | None:
        """The binding of a name; a symbolic variable is made where the name stands for one per function."""
        binding = self.scope.find(name)
        if binding is None:
            return None
        if binding.value is UNKNOWN:
            raise Skip
        if isinstance(binding.value, TypeVar):
            return Binding(self.symbol(name, binding.value.dtype), binding.span)
        if isinstance(binding.value, tir.Var) and self.walk.prelude.find(name) is binding:
            return Binding(self.symbol(name, binding.value.dtype), binding.span)
        return binding

    def symbol(self, name: str, dtype: DType = INT64) -> tir.Var:
        """The symbolic variable of that name: this function's, or that of a function around it."""
        at: FunctionWalk | None = self
        while at is not None:
            if name in at.symbols:
                return at.symbols[name]
            at = at.outer
        return self.symbols.setdefault(name, tir.Var(name, dtype))

    def resolve(self, cst: tree.Name) -> Any:
        """Resolve a name in this scope. Reports an error for an unknown name."""
        name = cst.id
        binding = self.find(name)
        if binding is not None:
            return binding.value
        if name in self.walk.functions:
            return self.walk.functions[name]
        if name in self.walk.self_names or name == self.walk.module_name:
            return MODULE
        self.walk.unknown_name(cst, name, self.scope, graph=True)

    def module_function(self, cst: tree.Expr, name: str) -> relax.GlobalVar:
        """A function of the module. Fails if there is none of that name."""
        handle = self.walk.functions.get(name)
        if handle is None and isinstance(cst, tree.Name) and name in self.walk.unavailable:
            self.walk.unknown_name(cst, name, self.scope, graph=True)
        if handle is None:
            close = nearest(name, self.walk.functions, 1)
            known = ", ".join(f"`{n}`" for n in list(self.walk.functions)[:8])
            help = f"did you mean `{close[0]}`?" if close else f"it has {known}" if known else None
            self.walk.fail("E0250", f"the module has no function `{name}`", cst, "not defined", help=help)
        return handle

    def is_prim_func(self, name: str) -> bool:
        """Return True if a function of the module is a PrimFunc, by its decorator."""
        cst = self.walk.definitions.get(name)
        decorators = () if cst is None else cst.decorators
        return any(self.walk.dotted(tree.callee_of(decorator)) == "T.prim_func" for decorator in decorators)

    def define(self, cst: tree.Name, value: Any) -> None:
        """Bind the name in `cst`."""
        self.scope.define(cst.id, value, self.walk.span(cst))

    # ------------------------------------------------------------ scalars

    def scalar(self, cst: tree.Expr) -> Any:
        """The value of a scalar expression: a Python value or a TensorIR expression."""
        for name in names_in(cst):
            binding = self.find(name.id)
            if binding is not None and isinstance(binding.value, relax.Expr) and scalar_of(binding.value) is None:
                self._no_scalar(name, binding)
        with self.guard(cst):
            return evaluate(self.walk, self.scalars, cst)

    def _no_scalar(self, cst: tree.Name, binding: Binding) -> None:
        info = binding.value.struct_info
        where = (Label(binding.span, f"`{cst.id}` is bound here"),) if binding.span is not None else ()
        if isinstance(info, relax.PrimStructInfo):
            help = "bind its value to a symbolic variable with R.match_cast"
            self.walk.fail("E0403", f"the value of `{cst.id}` is not known here", cst, help=help, related=where)
        self.walk.fail("E0403", f"`{cst.id}` is not a scalar", cst, "a scalar is needed here", related=where)

    def is_graph_level(self, cst: tree.Expr) -> bool:
        """Return True if an expression is a graph-level one (on tensors, shapes, tuples), not a scalar one."""
        for name in names_in(cst):
            binding = self.find(name.id)
            if binding is not None and isinstance(binding.value, relax.Expr) and scalar_of(binding.value) is None:
                return True
        return any(
            self.walk.dotted(node.function, self.scope) is not None and self._is_relax(node) for node in calls_in(cst)
        )

    def _is_relax(self, call: tree.Call) -> bool:
        return (self.walk.dotted(call.function, self.scope) or "").startswith("R.")

    # ------------------------------------------------------------ errors

    @contextlib.contextmanager
    def guard(self, cst: tree.Node) -> Iterator[None]:
        """Turn exceptions of code without access to the syntax tree into diagnostics at `cst`."""
        try:
            yield
        except CompileError as problem:
            self.walk.diagnostics += problem.diagnostics
            raise Skip from None
        except (ValueError, OverflowError, TypeError, ZeroDivisionError) as problem:
            self.walk.fail("E0404", str(problem) or "this has no value", cst)

    @property
    def constants(self) -> Constants:
        """The data of the text's constant references."""
        walk = self.walk
        if walk.constants is None:
            folder = None if walk.folder is None else os.fspath(walk.folder)
            walk.constants = Constants(walk.source, walk.data, folder)
        return walk.constants  # type: ignore[no-any-return]

    # ------------------------------------------------------------ bindings

    def check_size(self, info: relax.StructInfo | None, cst: tree.Node) -> None:
        """Fail for a type too large to be written out: tuples of tuples, and dimensions, can double with every line."""
        if info is not None and self._size(info) > MAX_TYPE:
            self.walk.fail("E0418", f"the type of this has more than {MAX_TYPE} parts", cst)

    def _size(self, node: Any) -> int:
        """Return the size of `node` as a tree: shared nodes count at each occurrence, but are visited once."""
        if isinstance(node, (tir.Var, tir.IntImm)):
            return 1
        known = self.sizes.get(id(node))
        if known is None:
            known = self.sizes[id(node)] = (node, 1 + sum(self._size(child) for child in children(node)))
        return known[1]

    def variable(self, name: str, at: int, info: relax.StructInfo | None, span: Span | None) -> relax.Var:
        """A new variable, bound at offset `at` of the text."""
        inner = self.out.in_dataflow and at not in self.out.outputs
        return (relax.DataflowVar if inner else relax.Var)(name, info, span=span)

    def hidden(self, value: relax.Expr) -> relax.Var:
        """A variable for a part of an expression that needs one."""
        var = self.variable("lv" if self.out.in_dataflow else "gv", -1, value.struct_info, value.span)
        self.out.bindings.append(relax.VarBinding(var, value, span=value.span))
        return var

    def normal(self, value: relax.Expr) -> relax.Expr:
        """Return `value` in A-normal form: nested computations are bound to variables, in the order of evaluation."""
        if isinstance(value, relax.Call):
            args = tuple(self.leaf(a) for a in value.args)
            return value if _same(args, value.args) else _with(value, args=args)
        if isinstance(value, relax.TupleGetItem):
            inner = self.leaf(value.tuple_value)
            return value if inner is value.tuple_value else _with(value, tuple_value=inner)
        if isinstance(value, relax.Tuple):
            return self.leaf(value)
        return value

    def leaf(self, value: relax.Expr) -> relax.Expr:
        """Return `value` as an argument: a leaf, or a tuple of leaves."""
        if isinstance(value, relax.Tuple):
            fields = tuple(self.leaf(f) for f in value.fields)
            return value if _same(fields, value.fields) else _with(value, fields=fields)
        if isinstance(value, (relax.Call, relax.TupleGetItem, relax.If, relax.Function, relax.SeqExpr)):
            return self.hidden(self.normal(value))
        return value


class Scalars(Scope):
    """The names of a function as scalar expressions see them: a scalar variable stands for its symbolic value."""

    graph = True

    def __init__(self, function: FunctionWalk) -> None:
        super().__init__()
        self._function = function
        self.gone = function.scope.gone

    def find(self, name: str) -> Binding | None:
        binding = self._function.find(name)
        if binding is None:
            return super().find(name)
        value = scalar_of(binding.value) if isinstance(binding.value, relax.Expr) else binding.value
        return Binding(value, binding.span)

    def names(self) -> list[str]:
        return self._function.scope.names()


def scalar_of(value: relax.Expr) -> tir.Expr | None:
    """The symbolic value of a graph-level scalar, where it is known."""
    if isinstance(value, relax.PrimValue):
        return value.value
    return value.struct_info.value if isinstance(value.struct_info, relax.PrimStructInfo) else None


def names_in(cst: tree.Expr) -> Iterator[tree.Name]:
    """All names in an expression, in order."""
    return (node for node in tree.nodes(cst) if isinstance(node, tree.Name))


def calls_in(cst: tree.Expr) -> Iterator[tree.Call]:
    """All calls in an expression, outer ones first."""
    return (node for node in tree.nodes(cst) if isinstance(node, tree.Call))


def _same(new: tuple[relax.Expr, ...], old: tuple[relax.Expr, ...]) -> bool:
    return all(a is b for a, b in zip(new, old, strict=True))


def _with(node: Any, **changes: Any) -> Any:
    from mlcc.ir.node import replace

    return replace(node, **changes)
