"""The pass `topological-sort`: reorder the bindings of dataflow blocks."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from mlcc.ir import relax
from mlcc.ir.module import IRModule
from mlcc.ir.node import replace
from mlcc.passes.graph.relax_mutator import RelaxMutator, map_relax_functions
from mlcc.passes.graph.symbolic import info_symbols, mentioned_symbols
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.relax.queries import operands, used_vars

_INPUT, _OUTPUT = "input", "output"  # the two artificial nodes of the graph; all others are variables


@dataclass(frozen=True)
class TopologicalSort(Pass):
    """Sort the bindings of dataflow blocks, depth or breadth first, starting at the inputs or at the outputs.

    Before:  lv = R.add(x, x)
             lv1 = R.add(y, y)
             lv2 = R.exp(lv)
    After:   lv = R.add(x, x)
             lv2 = R.exp(lv)
             lv1 = R.add(y, y)
    """

    name: ClassVar[str] = "topological-sort"
    order: Literal["depth-first", "breadth-first"] = "depth-first"
    direction: Literal["from-inputs", "from-outputs"] = "from-inputs"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        depth_first, from_inputs = self.order == "depth-first", self.direction == "from-inputs"
        return map_relax_functions(
            module, lambda _, func: _Sorter(module, depth_first, from_inputs).visit_function(func)
        )


@dataclass
class _Graph:
    """The dataflow graph of a function, with an edge for each use of a value, in order.

    `users` maps each value to the values computed from it, `needs` maps it to its operands; `bound` are the variables
    of all bindings.
    """

    users: dict[Any, deque[Any]] = field(default_factory=dict)
    needs: dict[Any, deque[Any]] = field(default_factory=dict)
    bound: list[relax.Var] = field(default_factory=list)

    @staticmethod
    def of(func: relax.Function) -> _Graph:
        graph = _Graph()
        graph.function(func, _OUTPUT)
        graph.add_symbols(func)
        sources = [v for v in graph.bound if v not in graph.needs]
        unused = [v for v in graph.bound if v not in graph.users]
        for var in sources:
            graph.edge(_INPUT, var)
        for var in reversed(unused):
            graph.needs.setdefault(_OUTPUT, deque()).appendleft(var)
            graph.users.setdefault(var, deque()).appendleft(_OUTPUT)
        return graph

    def edge(self, source: Any, user: Any) -> None:
        self.users.setdefault(source, deque()).append(user)
        self.needs.setdefault(user, deque()).append(source)

    def function(self, func: relax.Function, user: Any) -> None:
        for param in func.params:
            self.edge(_INPUT, param)
        self.expr(func.body, user)

    def expr(self, expr: Any, user: Any) -> None:
        match expr:
            case relax.Function():
                self.function(expr, user)
            case relax.SeqExpr(blocks=blocks, body=body):
                for block in blocks:
                    for binding in block.bindings:
                        self.expr(binding.value, binding.var)  # type: ignore[attr-defined]
                        if isinstance(binding, relax.MatchCast):
                            self.expr(binding.struct_info, binding.var)
                        self.bound.append(binding.var)
                self.expr(body, user)
            case relax.If() | relax.Call() | relax.Tuple() | relax.TupleGetItem():
                for child in operands(expr):
                    self.expr(child, user)
            case _:
                for var in used_vars(expr):
                    self.edge(var, user)

    def add_symbols(self, func: relax.Function) -> None:
        """Add an edge from each `match_cast` to the bindings that use a symbolic variable that it defines."""
        parameter_symbols = {symbol for param in func.params for symbol in info_symbols(param.struct_info)}
        origin: dict[Any, relax.Var] = {}
        for block in func.body.blocks:
            for binding in block.bindings:
                if origin:
                    for symbol in mentioned_symbols(binding.value):  # type: ignore[attr-defined]
                        if symbol in origin:
                            self.edge(origin[symbol], binding.var)
                if isinstance(binding, relax.MatchCast):
                    for symbol in info_symbols(binding.struct_info):
                        if symbol not in parameter_symbols:
                            origin.setdefault(symbol, binding.var)


class _Sorter(RelaxMutator):
    def __init__(self, module: IRModule, depth_first: bool, from_inputs: bool) -> None:
        super().__init__(module)
        self.depth_first = depth_first
        self.from_inputs = from_inputs
        self.graph = _Graph()

    def visit_function(self, func: relax.Function) -> relax.Function:
        outer, self.graph = self.graph, _Graph.of(func)
        if self.depth_first:
            for users in self.graph.users.values():
                users.reverse()
        new_func = super().visit_function(func)
        self.graph = outer
        return new_func

    def visit_block(self, block: relax.BindingBlock) -> relax.BindingBlock:
        if isinstance(block, relax.DataflowBlock):
            bindings = self.sorted(block.bindings)
            if bindings != block.bindings:
                block = replace(block, bindings=bindings)
        return super().visit_block(block)

    def sorted(self, bindings: tuple[relax.Binding, ...]) -> tuple[relax.Binding, ...]:
        """Return the bindings of a block in the order in which a traversal of the function's graph reaches them.

        A value is visited after all its operands or, from the outputs, after all its users.
        """
        unplaced = {binding.var: binding for binding in bindings}
        forward, backward = self.graph.users, self.graph.needs
        queue: deque[Any] = deque([_INPUT])
        if not self.from_inputs:
            forward, backward, queue = backward, forward, deque([_OUTPUT])
        visited: set[Any] = set()
        order: list[relax.Binding] = []
        while queue:
            current = queue.pop() if self.depth_first else queue.popleft()
            if current in unplaced:
                order.append(unplaced.pop(current))
            visited.add(current)
            for other in forward.get(current, ()):
                if other not in visited and all(need in visited for need in backward[other]):
                    queue.append(other)
        assert not unplaced, f"bindings not reached: {[v.name for v in unplaced]}"
        return tuple(order if self.from_inputs else reversed(order))
