"""The pass `split-kernels`: split a TIR function of several products into several functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.ir.visit import substitute, used_vars
from mlcc.passes.auto_schedule.contraction import match_contraction
from mlcc.passes.auto_schedule.eligibility import why_ineligible
from mlcc.passes.auto_schedule.stage import Stage
from mlcc.passes.fusion.fused_kernel import extract_function, handle
from mlcc.passes.fusion.transposed_copies import Axes, permutation
from mlcc.passes.graph.dead_code import entry_functions, keep_reachable
from mlcc.passes.graph.relax_mutator import RelaxMutator, map_relax_functions
from mlcc.passes.lowering.narrow_floats import OPERATOR, is_operator, widen_intermediates
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.passes.schedule.tree import Tree
from mlcc.relax.construct import CALL_TIR, call_tir, prim_value, tensor_info
from mlcc.relax.module_builder import ModuleBuilder
from mlcc.relax.queries import is_call, tir_callee


@dataclass(frozen=True)
class SplitKernels(Pass):
    """Split a TIR function of several products, or of one and other reductions, into one function for each.

    Stages between products stay together. Each part then gets the schedule of its kind, and may fuse with its
    neighbours in the graph. Functions that are scheduled already are left alone, and so are those with several results.

    Before:  def attention(q, k, v, out): ...         # R.call_tir(cls.attention, (q, k, v), ...)
    After:   def attention_batch_matmul_NT(q, k, scores): ...
             def attention_softmax_norm(scores, weights): ...
             def attention_batch_matmul_NN(weights, v, out): ...
    """

    name: ClassVar[str] = "split-kernels"
    needs_blocks: ClassVar[bool] = True

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        splitter = _Splitter(module)
        new_module = map_relax_functions(module, lambda _, func: splitter.visit_function(func), primitive=False)
        if not splitter.changed:
            return module
        new_module.functions = {
            name: new_module.functions.get(name, func) for name, func in splitter.builder.module.functions.items()
        }
        return keep_reachable(new_module, entry_functions(module, (), self.name))


@dataclass(frozen=True, slots=True)
class _Part:
    """Some statements of the root block as a function that reads `inputs` and writes `output`, buffers of the original.

    `sizes` are variables that it takes as numbers, because no shape binds them.
    """

    function: tir.PrimFunc
    hint: str
    inputs: tuple[tir.Buffer, ...]
    output: tir.Buffer
    sizes: tuple[tir.Var, ...]


class _Splitter(RelaxMutator):
    def __init__(self, module: IRModule) -> None:
        super().__init__(module)
        self.builder = ModuleBuilder(module)
        self.changed = False
        self._parts: dict[tuple[str, tuple[Axes | None, ...]], list[_Part] | None] = {}
        self._transposed: dict[relax.Expr, Axes] = {}  # copies with permuted axes

    def visit_binding(self, binding: relax.Binding) -> None:
        super().visit_binding(binding)
        value: Any = binding.value  # type: ignore[attr-defined]
        func = self.module.functions.get(tir_callee(value) or "")
        if isinstance(func, tir.PrimFunc) and is_call(value, CALL_TIR.name) and why_ineligible(func) is None:
            axes = permutation(func)
            if axes is not None:
                self._transposed[binding.var] = axes

    def rewrite(self, expr: relax.Expr) -> relax.Expr:
        callee = tir_callee(expr)
        func = self.module.functions.get(callee or "")
        if callee is None or not isinstance(func, tir.PrimFunc) or not is_call(expr, CALL_TIR.name):
            return expr
        arguments = expr.args[1]  # type: ignore[attr-defined]
        out = expr.struct_info
        if len(expr.args) != 2 or not isinstance(arguments, relax.Tuple) or not _has_dims(out):  # type: ignore[attr-defined]
            return expr
        if len(arguments.fields) != len(func.params) - 1:
            return expr
        for argument, buffer in zip(arguments.fields, func.buffers, strict=False):
            if not (isinstance(argument, relax.PrimValue) if buffer is None else _has_dims(argument.struct_info)):
                return expr
        transposed = tuple(self._transposed.get(argument) for argument in arguments.fields)
        if (callee, transposed) not in self._parts:
            self._parts[callee, transposed] = split_function(func, callee, transposed)
        parts = self._parts[callee, transposed]
        if parts is None:
            return expr
        self.changed = True
        return self.calls(parts, func, arguments.fields, out)  # type: ignore[arg-type]

    def calls(
        self, parts: list[_Part], func: tir.PrimFunc, arguments: tuple[relax.Expr, ...], out: relax.TensorStructInfo
    ) -> relax.Expr:
        """Emit the calls of the parts, and return the last one."""
        values: dict[Any, relax.Expr] = dict(zip(func.buffers, arguments, strict=False))
        sizes = _sizes(func, arguments, out)
        analyzer = Analyzer()
        for part in parts:
            last = part is parts[-1]
            dims = (analyzer.simplify(c.cast("int64", substitute(n, sizes))) for n in part.output.shape)
            info = out if last else tensor_info(dims, part.output.dtype)
            numbers = [prim_value(c.cast("int64", substitute(v, sizes))) for v in part.sizes]
            passed = [*(values[b] for b in part.inputs), *numbers]
            call = call_tir(self.builder.add(part.function, part.hint), part.function, passed, info)
            if last:
                return call
            values[part.output] = self.emit(call)
        raise AssertionError("a function without parts")


def _has_dims(info: Any) -> bool:
    return isinstance(info, relax.TensorStructInfo) and info.dims is not None


def _sizes(func: tir.PrimFunc, arguments: Sequence[relax.Expr], out: relax.TensorStructInfo) -> dict[tir.Var, tir.Expr]:
    """Map scalar parameters, and the variables in the shapes of the others, to their values in a call."""
    sizes: dict[tir.Var, tir.Expr] = {
        param: argument.value
        for param, argument in zip(func.params, arguments, strict=False)
        if isinstance(argument, relax.PrimValue)
    }
    infos = [*(a.struct_info for a in arguments), out]
    for buffer, info in zip(func.buffers, infos, strict=True):
        if buffer is None or not isinstance(info, relax.TensorStructInfo):
            continue
        for want, have in zip(buffer.shape, info.dims or (), strict=False):
            if isinstance(want, tir.Var):
                sizes.setdefault(want, c.cast(want.dtype, have))
    return sizes


# ---------------------------------------------------------------- splitting a function


def split_function(
    func: tir.PrimFunc, name: str, transposed: tuple[Axes | None, ...] = ()
) -> list[_Part] | None:  # fmt: skip
    """Return the parts in execution order; None for a function that stays whole.

    `transposed` has the permutations of the arguments that are copies with permuted axes.
    """
    if is_operator(func):
        func = widen_intermediates(func)
    root = func.root
    sizes = [p for p, b in zip(func.params, func.buffers, strict=True) if b is None]
    if root is None or why_ineligible(func) is not None or any(not p.dtype.is_int for p in sizes):
        return None
    tree = Tree(func)
    stages = [Stage(r, tuple(tree.loops_above(r.block))) for r in tree.child_realizes(root.body)]
    products = [bool(s.reduced) and not isinstance(match_contraction(s), str) for s in stages]
    if len(stages) != len(root.body) or not any(products) or sum(bool(s.reduced) for s in stages) < 2:
        return None
    writers: dict[tir.Buffer, int] = {}
    for position, stage in enumerate(stages):
        stored = {a.buffer for a in stage.accesses if a.stored}
        if len(stored) != 1 or not stage.plain or not stored.isdisjoint(writers):
            return None
        writers[stored.pop()] = position
    reads = [
        {a.buffer for a in s.accesses if not a.stored and writers.get(a.buffer) != position}
        for position, s in enumerate(stages)
    ]
    dependences = [{writers[b] for b in used if b in writers} for used in reads]
    if (
        any(p > position for position, producers in enumerate(dependences) for p in producers)
        or func.buffers[-1] not in writers
    ):
        return None
    orders = {b: axes for b, axes in zip(func.buffers, transposed, strict=False) if b is not None and axes is not None}
    groups = _merge_copies(_group_stages(products, dependences), stages, products, dependences, orders)
    return _build_parts(func, name, stages, groups, writers, reads)


def _group_stages(products: list[bool], dependences: list[set[int]]) -> list[list[int]]:
    """Return the stages of each part.

    Stages that are not products are grouped where one reads the other and equally many products precede both, so that
    no part depends on a part that depends on it.
    """
    product_depth: list[int] = []
    group: list[int] = []
    for position, producers in enumerate(dependences):
        product_depth.append(max((product_depth[p] + products[p] for p in producers), default=0))
        group.append(position)
        if not products[position]:
            for p in producers:
                if not products[p] and product_depth[p] == product_depth[position]:
                    group = [group[position] if g == group[p] else g for g in group]
    order = sorted(set(group), key=lambda g: (product_depth[g], products[g], g))
    return [[position for position, g in enumerate(group) if g == representative] for representative in order]


def _merge_copies(
    groups: list[list[int]], stages: list[Stage], products: list[bool], dependences: list[set[int]],
    orders: Mapping[tir.Buffer, Axes],
) -> list[list[int]]:  # fmt: skip
    """Merge permuting copies into the product that reads each of their elements once, as with one query and all keys.

    Such a product may just as well read the source of the copy. An unknown number of queries may be one: then copies
    are merged that only undo a transpose (`orders` has those of arguments), so that the source is read in its order.
    """
    readers = [{at for at, producers in enumerate(dependences) if p in producers} for p in range(len(stages))]
    merged = [list(g) for g in groups]
    for group in groups:
        (reader, *more) = {r for at in group for r in readers[at]} - set(group) or {-1}
        if more or reader < 0 or not products[reader] or not all(stages[at].only_moves_elements for at in group):
            continue
        product, copy = stages[reader], stages[max(group)].stores[0].buffer
        if product.reads_once(copy) or (product.may_read_once(copy) and _restores_order(stages[min(group)], orders)):
            merged.remove(group)
            target = next(g for g in merged if reader in g)
            target[:] = sorted([*group, *target])
    return merged


def _restores_order(stage: Stage, orders: Mapping[tir.Buffer, Axes]) -> bool:
    """Return True if a copy walks through the source of a transposed argument in the order of its elements."""
    load = stage.stores[0].value
    if not isinstance(load, tir.BufferLoad) or not all(i in load.indices for i in stage.stores[0].indices):
        return False
    return orders.get(load.buffer) == tuple(load.indices.index(i) for i in stage.stores[0].indices)


def _build_parts(
    func: tir.PrimFunc, name: str, stages: list[Stage], groups: list[list[int]], writers: dict[tir.Buffer, int],
    reads: list[set[tir.Buffer]],
) -> list[_Part] | None:  # fmt: skip
    root = func.root
    assert root is not None
    order = [*(b for b in func.buffers if b is not None), *root.alloc_buffers]
    scalars = [p for p, b in zip(func.params, func.buffers, strict=True) if b is None]
    symbols = list(dict.fromkeys([*scalars, *(n for b in order for n in b.shape if isinstance(n, tir.Var))]))
    result = func.buffers[-1]
    parts = []
    for members in groups:
        written = {b for b, at in writers.items() if at in members}
        read_elsewhere = {b for at, read in enumerate(reads) if at not in members for b in read}
        read = {b for at in members for b in reads[at]} - written
        inputs = [b for b in order if b in read]
        outputs = [b for b in order if b in written and (b in read_elsewhere or b is result)]
        if len(outputs) != 1 or len(inputs) != len(read):
            return None
        params = [*inputs, *outputs]
        body = [root.body[at] for at in members]
        bound = {n for b in params for n in b.shape}
        needed = used_vars((*body, *(n for b in params for n in b.shape))) - bound
        sizes = tuple(v for v in symbols if v in needed)
        parameters = [
            *((handle(b), b) for b in inputs),
            *((v, None) for v in sizes),
            *((handle(b), b) for b in outputs),
        ]
        hint = stages[members[-1]].block.name.removeprefix("T_")
        part = extract_function(root, body, parameters, written)
        part = part.with_attr(OPERATOR, True) if is_operator(func) else part
        parts.append(_Part(part, f"{name}_{hint}", tuple(inputs), outputs[0], sizes))
    return parts if len(parts) > 1 and parts[-1].output is result else None
