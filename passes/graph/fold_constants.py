"""The pass `fold-constants`: evaluation at compile time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from mlcc import ops
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.ir.node import replace
from mlcc.ir.tensor_data import TensorData
from mlcc.passes.graph.dead_code import remove_unused
from mlcc.passes.graph.few_rows import decodes_weight
from mlcc.passes.graph.relax_mutator import RelaxMutator, map_relax_functions
from mlcc.passes.lowering.work_estimate import module_work
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.relax.construct import shape_expr, tensor_info
from mlcc.relax.queries import DefUse, is_call, tir_callee

WORK_LIMIT = 1 << 22  # most operations of a TIR function that is evaluated


@dataclass(frozen=True)
class FoldConstants(Pass):
    """Evaluate operators and TIR calls whose operands are all known, and remove what is then unused.

    Operators are evaluated in dataflow blocks, where nothing has side effects. A result with more than `limit` elements
    is left to run time, unless it is no larger than its operands; so is one with more than `created` elements that has
    no tensor operands, as those of `R.zeros` and `R.arange`. With `decoding`, weights of 16 bits that become float32
    for products of at most 32 or an unknown number of rows are left, too: `fuse{dequantize}` converts them there.

    Before:  lv = R.permute_dims(R.const([[1, 2], [3, 4]], "float32"))
             gv = R.matmul(x, lv)
    After:   gv = R.matmul(x, R.const([[1, 3], [2, 4]], "float32"))
    """

    name: ClassVar[str] = "fold-constants"
    limit: int = 1 << 16
    created: int = 1 << 10
    decoding: bool = False

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        def fold(_: str, func: relax.Function) -> relax.Function:
            left = _decoded_weights(func) if self.decoding else frozenset[relax.Var]()
            return remove_unused(_Folder(module, self.limit, self.created, left).visit_function(func), module)

        return map_relax_functions(module, fold)


def _decoded_weights(func: relax.Function) -> frozenset[relax.Var]:
    """Return the variables that are converted from 16 bits to float32 for a product of few rows alone."""
    uses = DefUse.of(func)
    weights = [value.args[1] for value in uses.value.values() if decodes_weight(value)]  # type: ignore[attr-defined]
    return frozenset(w for w in weights if uses.count.get(w) == 1 and _widens(uses.value.get(w)))


def _widens(value: relax.Expr | None) -> bool:
    """Return True for a conversion of numbers of 16 bits to float32."""
    if not is_call(value, "relax.astype"):
        return False
    source, target = (getattr(e.struct_info, "dtype", None) for e in (value.args[0], value))  # type: ignore[union-attr]
    return str(source) in ("float16", "bfloat16") and str(target) == "float32"


class _Folder(RelaxMutator):
    """Fold constants, but for the values of the variables `left`."""

    def __init__(self, module: IRModule, limit: int, created: int, left: frozenset[relax.Var] = frozenset()) -> None:
        super().__init__(module)
        self.left, self.leaves = left, False
        self.limit = limit
        self.created = created
        self.known: dict[relax.Var, relax.Expr] = {}

    def visit_binding(self, binding: relax.Binding) -> None:
        self.leaves = binding.var in self.left
        super().visit_binding(binding)

    def put(self, binding: relax.Binding) -> None:
        super().put(binding)
        if isinstance(binding, relax.VarBinding):
            value = binding.value
            while isinstance(value, relax.Var) and value in self.known:
                value = self.known[value]
            if isinstance(value, (relax.Constant, relax.ShapeExpr)):
                self.known[binding.var] = value

    def visit(self, expr: relax.Expr) -> relax.Expr:
        folded = super().visit(expr)
        if isinstance(folded, relax.Var) and isinstance(self.known.get(folded), relax.Constant):
            return self.known[folded]
        return folded

    def rewrite(self, expr: relax.Expr) -> relax.Expr:
        if not (isinstance(expr, relax.Call) and isinstance(expr.op, tir.Op)):
            return expr
        if tir_callee(expr) is not None:
            return self.fold_tir(expr) or expr
        args = tuple(self.shape(a) for a in expr.args)
        if any(a is not b for a, b in zip(args, expr.args, strict=True)):
            expr = self.infer(replace(expr, args=args))
        return (self.fold(expr) or expr) if self.in_dataflow else expr

    def shape(self, expr: relax.Expr) -> relax.Expr:
        known = self.known.get(expr) if isinstance(expr, relax.Var) else None
        return known if isinstance(known, relax.ShapeExpr) else expr

    # ------------------------------------------------------------ operators

    def fold(self, call: relax.Call) -> relax.Expr | None:
        is_large = (_size(call.struct_info) or 0) > self.limit
        return None if self.leaves and is_large else fold_call(call, self.limit, self.created)

    def fold_tir(self, call: relax.Call) -> relax.Expr | None:
        """Return the results of a TIR function on constants; None if they are large, or expensive to compute."""
        name, arguments = tir_callee(call) or "", call.args[1]
        func = self.module.functions.get(name)
        if not isinstance(func, tir.PrimFunc) or not isinstance(arguments, relax.Tuple) or len(call.args) > 2:
            return None
        constants = [a.data for a in arguments.fields if isinstance(a, relax.Constant) and a.data.array is not None]
        if len(constants) != len(arguments.fields) or not is_worth_folding(call, self.limit, self.created):
            return None
        outputs = _results(call.struct_info)
        shapes = [*(d.shape for d in constants), *([tir.const_int(d) for d in info.dims or ()] for info in outputs)]
        work = module_work(self.module, name, shapes)
        if work is None or work > WORK_LIMIT:
            return None
        folded = _interpret(func, constants, outputs)
        if folded is None or isinstance(call.struct_info, relax.TensorStructInfo):
            return None if folded is None else folded[0]
        return relax.Tuple(tuple(folded), call.struct_info)


def fold_call(call: relax.Call, limit: int = 1 << 16, created: int = 1 << 10) -> relax.Expr | None:
    """Return the result of an operator whose operands are all known; None if it is left to run time."""
    if is_call(call, "relax.tensor_to_shape"):
        return _tensor_to_shape(call)
    op = ops.get(call.op.name) if isinstance(call.op, tir.Op) else None
    if op is None or not op.pure:
        return None
    values = [_operand_value(a) for a in call.args]
    if any(v is None for v in values) or not is_worth_folding(call, limit, created):
        return None
    if op.short == "shape_to_tensor":
        return _constant(values[0], call.struct_info)
    if op.impl.numpy is None:
        return None
    import numpy as np

    with np.errstate(all="ignore"):
        constant = _constant(op.impl.numpy(call, *values), call.struct_info)
    for leaf in (leaf for a in call.args for leaf in _leaves(a)):
        if isinstance(leaf, relax.Constant):
            leaf.data.release()
    return constant


def is_worth_folding(call: relax.Call, limit: int, created: int) -> bool:
    """Return True if the result of a call is small enough to be folded to a constant; see FoldConstants."""
    sizes = [_size(info) for info in _results(call.struct_info)]
    if not sizes or any(size is None for size in sizes):
        return False
    size = sum(filter(None, sizes))
    leaves = [leaf for a in call.args for leaf in _leaves(a)]
    operand_elements = (
        0 if _decodes(call) else sum(leaf.data.size for leaf in leaves if isinstance(leaf, relax.Constant))
    )
    has_tensors = any(isinstance(leaf.struct_info, relax.TensorStructInfo) for leaf in leaves)
    return size <= max(limit if has_tensors else min(limit, created), operand_elements)


def _decodes(call: relax.Call) -> bool:
    """Return True for a dequantization with a scale per group, which products fuse with."""
    if not is_call(call, "relax.dequantize"):
        return False
    ranks = [getattr(a.struct_info, "ndim", -1) for a in call.args[:2]]
    return ranks[0] == ranks[1] > 1


def _results(info: relax.StructInfo | None) -> list[relax.TensorStructInfo]:
    """Return the tensors of a result; none if it has any other component."""
    fields = info.fields if isinstance(info, relax.TupleStructInfo) else (info,)
    tensors = [i for i in fields if isinstance(i, relax.TensorStructInfo)]
    return tensors if len(tensors) == len(fields) else []


def _leaves(expr: relax.Expr) -> list[relax.Expr]:
    return [leaf for f in expr.fields for leaf in _leaves(f)] if isinstance(expr, relax.Tuple) else [expr]


def _size(info: relax.StructInfo | None) -> int | None:
    """Return the number of elements of a tensor of known size, or None."""
    if not isinstance(info, relax.TensorStructInfo) or info.dims is None or info.dtype is None:
        return None
    size = 1
    for dim in info.dims:
        if not isinstance(dim, tir.IntImm):
            return None
        size *= dim.value
    return size


def _operand_value(expr: relax.Expr) -> Any:
    """Return an operand in the form that reference implementations take: arrays, tuples, numbers; None if unknown."""
    from mlcc.ir.narrow_floats import decode

    match expr:
        case relax.Constant(data=data) if data.array is not None:
            return decode(data.array, data.dtype)
        case relax.Tuple(fields=fields):
            values = tuple(map(_operand_value, fields))
            return None if any(v is None for v in values) else values
        case relax.ShapeExpr(values=values) if all(isinstance(v, tir.IntImm) for v in values):
            return tuple(v.value for v in values)  # type: ignore[attr-defined]
        case relax.PrimValue(value=tir.IntImm() | tir.FloatImm() as number):
            return number.value
        case relax.StringImm(value=value) | relax.DataTypeImm(value=value):
            return value
    return None


def _constant(value: Any, info: relax.StructInfo | None) -> relax.Constant | None:
    """Return a constant of the inferred struct info; None if the value does not conform to it."""
    import numpy as np

    from mlcc.ir.narrow_floats import encode

    if not isinstance(info, relax.TensorStructInfo) or info.dims is None or info.dtype is None:
        return None
    array = np.asarray(value)
    if array.shape != tuple(tir.const_int(d) for d in info.dims):
        return None
    data = TensorData(info.dtype, array.shape, encode(array, info.dtype))
    return relax.Constant(data, tensor_info((c.const(n, "int64") for n in array.shape), info.dtype))


def _tensor_to_shape(call: relax.Call) -> relax.Expr | None:
    value = _operand_value(call.args[0])
    return None if value is None else shape_expr(c.const(int(n), "int64") for n in value)


def _interpret(
    func: tir.PrimFunc, constants: list[TensorData], outputs: list[relax.TensorStructInfo]
) -> list[relax.Constant] | None:
    """Run a TIR function in the interpreter; return None if the interpreter refuses it."""
    import numpy as np

    from mlcc.errors import MlccError
    from mlcc.interp import run_prim_func
    from mlcc.ir.tensor_data import storage_dtype

    results: list[Any] = []
    for info in outputs:
        assert info.dtype is not None
        shape: Any = [tir.const_int(d) for d in info.dims or ()]
        results.append(np.zeros(shape, storage_dtype(info.dtype)))
    try:
        run_prim_func(func, [*(d.array for d in constants), *results])
    except MlccError:
        return None
    result_constants = []
    for info, result in zip(outputs, results, strict=True):
        assert info.dtype is not None
        dims = (c.const(n, "int64") for n in result.shape)
        result_constants.append(
            relax.Constant(TensorData(info.dtype, result.shape, result), tensor_info(dims, info.dtype))
        )
    return result_constants
