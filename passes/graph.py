"""What passes over relax functions share: uses, purity, construction, and a mutator that infers what it changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from mlcc.errors import Span
from mlcc.ir import relax, tir
from mlcc.ir.module import Func, IRModule
from mlcc.ir.node import Attrs, Node, field_names, replace
from mlcc.ops.infer import erase
from mlcc.ops.relations import Fit, fit, variables

PRIMITIVE = "Primitive"
CALL_TIR = tir.Op("relax.call_tir")
CALL_TIR_INPLACE = tir.Op("relax.call_tir_inplace")


# ---------------------------------------------------------------- looking


def is_call(expr: Any, name: str) -> bool:
    """Whether `expr` calls the operator `name`, such as `relax.add`."""
    return isinstance(expr, relax.Call) and isinstance(expr.op, tir.Op) and expr.op.name == name


def tir_callee(expr: Any) -> str | None:
    """The name of the function that a `call_tir` or `call_tir_inplace` calls; None for anything else."""
    if isinstance(expr, relax.Call) and expr.op in (CALL_TIR, CALL_TIR_INPLACE):
        callee = expr.args[0]
        return callee.name if isinstance(callee, relax.GlobalVar) else None
    return None


def call_arguments(call: relax.Call) -> tuple[relax.Expr, ...]:
    """The tensors that a call works on: those of a `call_tir` without callee and symbolic values."""
    if call.op in (CALL_TIR, CALL_TIR_INPLACE) and isinstance(call.args[1], relax.Tuple):
        return call.args[1].fields
    return call.args


def is_primitive(func: Func | None) -> bool:
    """A fused function: one kernel to be, which no pass looks into for fusing again."""
    return isinstance(func, relax.Function) and bool(func.attrs.get(PRIMITIVE))


def operands(expr: Any) -> Iterator[Any]:
    """The direct children but for the expression's own struct info."""
    of_expr = isinstance(expr, relax.Expr)
    for name in field_names(type(expr)):
        if not (of_expr and name == "struct_info"):
            yield from _nodes(getattr(expr, name))


def _nodes(value: Any) -> Iterator[Any]:
    if isinstance(value, Node):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _nodes(item)
    elif isinstance(value, Attrs):
        for item in value.values():
            yield from _nodes(item)


def used_vars(root: Any) -> Iterator[relax.Var]:
    """Every use of a relax variable in an expression, in order; in nested functions and branches too.

    Variables of bindings and parameters are not uses. A variable that a struct info mentions as a shape is one.
    """
    stack = [root]
    while stack:
        top = stack.pop()
        if isinstance(top, relax.Var):
            yield top
        elif isinstance(top, tir.Expr):
            continue
        elif isinstance(top, relax.Binding):
            stack.append(top.value)  # type: ignore[attr-defined]
            if isinstance(top, relax.MatchCast):
                stack.append(top.struct_info)
        elif isinstance(top, relax.Function):
            stack.append(top.body)
        else:
            stack.extend(reversed(list(operands(top))))


def all_bindings(root: Any) -> Iterator[tuple[relax.Binding, relax.BindingBlock]]:
    """Every binding with its block, outer ones first, in order; those of branches and nested functions too."""
    stack = [root]
    while stack:
        top = stack.pop()
        if isinstance(top, relax.SeqExpr):
            stack.append(top.body)
            stack.extend(reversed(top.blocks))
        elif isinstance(top, relax.BindingBlock):
            stack.extend((binding, top) for binding in reversed(top.bindings))
        elif isinstance(top, tuple):
            yield top
            stack.append(top[0].value)
        elif isinstance(top, (relax.Function, relax.If, relax.Call, relax.Tuple)):
            stack.extend(c for c in reversed(list(operands(top))) if not isinstance(c, (relax.Var, tir.Expr)))


@dataclass
class Uses:
    """What the variables of one function are bound to, and how often each is used."""

    value: dict[relax.Var, relax.Expr] = field(default_factory=dict)
    count: dict[relax.Var, int] = field(default_factory=dict)

    @staticmethod
    def of(func: relax.Function) -> Uses:
        found = Uses()
        for binding, _ in all_bindings(func.body):
            if isinstance(binding, relax.VarBinding):
                found.value[binding.var] = binding.value
        for var in used_vars(func.body):
            found.count[var] = found.count.get(var, 0) + 1
        return found

    def resolve(self, expr: relax.Expr) -> relax.Expr:
        """What a variable is bound to, through plain renamings; other expressions as they are."""
        seen = 0
        while isinstance(expr, relax.Var) and expr in self.value and seen < len(self.value):
            expr = self.value[expr]
            seen += 1
        return expr


def is_impure(root: Any, module: IRModule) -> bool:
    """Whether evaluating an expression may do more than give a value. That does not run a nested function's body."""
    from mlcc import ops

    stack = [root]
    while stack:
        top = stack.pop()
        if isinstance(top, (tir.Expr, relax.Var, relax.Function)):
            continue
        if isinstance(top, relax.Call):
            if isinstance(top.op, tir.Op):
                known = ops.get(top.op.name)
                if known is None or not known.pure:
                    return True
            elif not _is_pure_callee(top.op, module):
                return True
        stack.extend(operands(top))
    return False


def _is_pure_callee(op: Any, module: IRModule) -> bool:
    if isinstance(op, relax.GlobalVar) and op in module:
        op = module[op]
    if isinstance(op, relax.Function):
        return op.is_pure
    if isinstance(op, relax.ExternFunc):
        return False  # what the environment does is not known
    return isinstance(op, relax.Expr) and isinstance(op.struct_info, relax.FuncStructInfo) and op.struct_info.purity


def callees(func: Func) -> set[str]:
    """The functions of the module that a function mentions."""
    found = set()
    stack: list[Any] = [func.body]
    while stack:
        top = stack.pop()
        if isinstance(top, relax.GlobalVar):
            found.add(top.name)
        elif isinstance(top, tir.Call) and isinstance(top.op, relax.GlobalVar):
            found.add(top.op.name)
            stack.extend(operands(top))
        elif isinstance(top, tuple):
            stack.extend(top)
        else:
            stack.extend(operands(top))
    return found


# ---------------------------------------------------------------- making


def function_info(func: Func) -> relax.FuncStructInfo:
    """The struct info of a reference to a function."""
    if isinstance(func, tir.PrimFunc):
        params = tuple(_param_info(v, b) for v, b in zip(func.params, func.buffers, strict=True))
        ret: relax.StructInfo = relax.TupleStructInfo(())
        if func.ret_dtype is not None:
            ret = relax.PrimStructInfo(func.ret_dtype)
        return relax.FuncStructInfo(params, ret, False)
    infos = tuple(p.struct_info or relax.ObjectStructInfo() for p in func.params)
    return relax.FuncStructInfo(infos, func.ret_struct_info or relax.ObjectStructInfo(), func.is_pure)


def _param_info(var: tir.Var, buffer: tir.Buffer | None) -> relax.StructInfo:
    if buffer is None:
        return relax.ObjectStructInfo() if var.dtype.is_handle else relax.PrimStructInfo(var.dtype, var)
    return tensor_info(buffer.shape, buffer.dtype)


def tensor_info(dims: Iterable[tir.Expr], dtype: Any) -> relax.TensorStructInfo:
    """A tensor of known dimensions."""
    values = tuple(dims)
    shape = relax.ShapeExpr(values, relax.ShapeStructInfo(values, len(values)))
    return relax.TensorStructInfo(shape, dtype, len(values))


def make_function(
    params: tuple[relax.Var, ...], body: relax.SeqExpr, attrs: Attrs, ret: relax.StructInfo | None = None,
    is_pure: bool = True, span: Span | None = None,
) -> relax.Function:  # fmt: skip
    """A function. Its result has the struct info `ret`, or that of the body where this says more."""
    known = seen_from_outside(body.struct_info or relax.ObjectStructInfo(), params)
    if ret is None or fit(ret, known) is Fit.COVERS:
        ret = known if ret is None or not same_info(ret, known) else ret
    made = relax.Function(params, body, ret, is_pure, attrs, span=span)
    return replace(made, struct_info=function_info(made))  # type: ignore[no-any-return]


def seen_from_outside(info: relax.StructInfo, params: tuple[relax.Var, ...]) -> relax.StructInfo:
    """What callers know of a result: nothing that mentions symbolic variables or shapes of the body's own."""
    visible = {v for p in params for v in variables(p)}
    inner = set(variables(info)) - visible
    return _without_shapes(erase(info, {}, inner) if inner else info, set(params))


def _without_shapes(info: relax.StructInfo, params: set[relax.Var]) -> relax.StructInfo:
    """Shapes that are variables are unknown, unless they are parameters."""
    if isinstance(info, relax.TensorStructInfo) and isinstance(info.shape, relax.Var) and info.shape not in params:
        return replace(info, shape=None)  # type: ignore[no-any-return]
    if isinstance(info, relax.TupleStructInfo):
        return replace(info, fields=tuple(_without_shapes(f, params) for f in info.fields))  # type: ignore[no-any-return]
    return info


def make_seq(blocks: Iterable[relax.BindingBlock], body: relax.Expr) -> relax.SeqExpr:
    """A sequence of the blocks that are not empty; neighbours of one kind become one block."""
    return relax.SeqExpr(tuple(joined(blocks)), body, body.struct_info)


def joined(blocks: Iterable[relax.BindingBlock]) -> list[relax.BindingBlock]:
    """The blocks that are not empty, neighbours of one kind as one block."""
    made: list[relax.BindingBlock] = []
    for block in blocks:
        if made and block.bindings and type(made[-1]) is type(block):
            made[-1] = replace(made[-1], bindings=made[-1].bindings + block.bindings)
        elif block.bindings:
            made.append(block)
    return made


def with_bound_result(branch: relax.SeqExpr) -> relax.SeqExpr:
    """A branch whose result is a variable that it binds itself: the text of a branch ends in a binding."""
    if isinstance(branch.body, relax.Var):
        for block in branch.blocks:
            if any(b.var is branch.body for b in block.bindings):
                return branch
    result = relax.Var("branch", branch.body.struct_info)
    last = relax.BindingBlock((relax.VarBinding(result, branch.body),))
    return replace(make_seq([*branch.blocks, last], result), span=branch.span)  # type: ignore[no-any-return]


def flat(block: relax.BindingBlock) -> list[relax.BindingBlock]:
    """The block with sequences that it binds in front of their results: `y = {a = ...; a}` is `a = ...; y = a`."""
    made: list[relax.BindingBlock] = []
    current: list[relax.Binding] = []
    for binding in block.bindings:
        value = binding.value  # type: ignore[attr-defined]
        if not isinstance(value, relax.SeqExpr):
            current.append(binding)
            continue
        inner = [part for b in value.blocks for part in flat(b)]
        if isinstance(block, relax.DataflowBlock):
            current += (b for part in inner for b in part.bindings)
        else:
            made += [replace(block, bindings=tuple(current)), *inner]
            current = []
        current.append(replace(binding, value=value.body))
    if not any(isinstance(b.value, relax.SeqExpr) for b in block.bindings):  # type: ignore[attr-defined]
        return [block]
    return [*made, replace(block, bindings=tuple(current))]


def make_tuple(fields: Iterable[relax.Expr]) -> relax.Tuple:
    made = tuple(fields)
    return relax.Tuple(made, relax.TupleStructInfo(tuple(f.struct_info or relax.ObjectStructInfo() for f in made)))


def get_item(value: relax.Expr, index: int) -> relax.TupleGetItem:
    info = value.struct_info
    known = info.fields[index] if isinstance(info, relax.TupleStructInfo) and index < len(info.fields) else None
    return relax.TupleGetItem(value, index, known)


def shape_expr(values: Iterable[tir.Expr]) -> relax.ShapeExpr:
    made = tuple(values)
    return relax.ShapeExpr(made, relax.ShapeStructInfo(made, len(made)))


def call_function(name: str, func: Func, args: tuple[relax.Expr, ...]) -> relax.Call:
    """A call of a function of the module."""
    from mlcc import ops

    call = relax.Call(relax.GlobalVar(name, function_info(func)), args)
    return replace(call, struct_info=ops.infer_struct_info(call))  # type: ignore[no-any-return]


def prim_value(value: tir.Expr) -> relax.PrimValue:
    """A symbolic value as an argument."""
    return relax.PrimValue(value, relax.PrimStructInfo(value.dtype, value))


def call_tir(name: str, func: tir.PrimFunc, args: Iterable[relax.Expr], out: relax.StructInfo) -> relax.Call:
    """`R.call_tir(name, args, out_sinfo=out)`."""
    callee = relax.GlobalVar(name, function_info(func))
    return relax.Call(CALL_TIR, (callee, make_tuple(args)), sinfo_args=(out,), struct_info=out)


def global_vars(module: IRModule) -> dict[str, relax.GlobalVar]:
    """References to all functions, with their struct info, as inference wants them."""
    return {name: relax.GlobalVar(name, function_info(func)) for name, func in module.functions.items()}


def same_info(a: relax.StructInfo | None, b: relax.StructInfo | None) -> bool:
    """Whether two struct infos say the same, variables being the same objects."""
    if a is b or a is None or b is None:
        return a is b
    from mlcc.ir.equal import structural_equal

    return structural_equal(a, b)


def map_relax_functions(module: IRModule, change: Any, primitive: bool = True) -> IRModule:
    """A copy with `change(name, func)` in place of every relax function; fused ones only if `primitive`."""
    made = module.copy()
    for name, func in module.functions.items():
        if isinstance(func, relax.Function) and (primitive or not is_primitive(func)):
            made.functions[name] = change(name, func)
    return made


# ---------------------------------------------------------------- changing


class Mutator:
    """Rewrites relax functions binding by binding, in order; struct info of what changes is inferred anew.

    Subclasses override `rewrite` (an expression whose operands are done), `visit_binding` or `visit_block`. `emit`
    puts a new binding before the one in hand. `remap` says what stands for a variable from here on. Neighbouring
    blocks of one kind are joined.
    """

    def __init__(self, module: IRModule) -> None:
        self.module = module
        self.remap: dict[relax.Var, relax.Expr] = {}
        self.in_dataflow = False
        self._made: list[list[relax.Binding]] = []
        self._global_vars: dict[str, relax.GlobalVar] | None = None

    # what subclasses override

    def rewrite(self, expr: relax.Expr) -> relax.Expr:
        """The expression to put in the place of `expr`, whose operands are rewritten."""
        return expr

    def visit_binding(self, binding: relax.Binding) -> None:
        value = self.visit(binding.value)  # type: ignore[attr-defined]
        if isinstance(binding, relax.MatchCast):
            self.put(replace(binding, value=value))
        else:
            self.rebind(binding, value)

    # what they call

    def put(self, binding: relax.Binding) -> None:
        """Append a binding as it is."""
        self._made[-1].append(binding)

    def emit(self, value: relax.Expr, name: str = "lv", output: bool = False) -> relax.Var:
        """Bind a new variable to `value`; one that is visible outside a dataflow block if `output`."""
        kind = relax.DataflowVar if self.in_dataflow and not output else relax.Var
        var = kind(name, value.struct_info)
        self.put(relax.VarBinding(var, value))
        return var

    def rebind(self, binding: Any, value: relax.Expr) -> None:
        """Bind the variable of `binding` to a value, with the struct info of the value where that is another."""
        var = binding.var
        if value is not binding.value:
            var = self.retype(var, value.struct_info)
        self.put(replace(binding, var=var, value=value))

    def retype(self, var: relax.Var, info: relax.StructInfo | None) -> relax.Var:
        """`var`, or one with the struct info `info` that stands for it from here on."""
        if info is None or same_info(var.struct_info, info):
            return var
        made: relax.Var = replace(var, struct_info=info)
        self.remap[var] = made
        return made

    # the walk

    def visit_function(self, func: relax.Function) -> relax.Function:
        body = self.visit_scope(func.body)
        if body is func.body:
            return func
        return make_function(func.params, body, func.attrs, func.ret_struct_info, func.is_pure, func.span)

    def visit_scope(self, seq: relax.SeqExpr) -> relax.SeqExpr:
        """A sequence that is not part of the block in hand: a branch, or the body of a function."""
        before, self.in_dataflow = self.in_dataflow, False
        made = self.visit_seq(seq)
        self.in_dataflow = before
        return made

    def visit_seq(self, seq: relax.SeqExpr) -> relax.SeqExpr:
        blocks = [part for b in joined(seq.blocks) for part in flat(self.visit_block(b))]
        self._made.append([])
        body = self.visit(seq.body)
        rest = self._made.pop()
        if rest:
            blocks += flat(relax.BindingBlock(tuple(rest)))
        same = len(blocks) == len(seq.blocks) and all(a is b for a, b in zip(blocks, seq.blocks, strict=True))
        if same and body is seq.body and all(b.bindings for b in blocks):
            return seq
        made: relax.SeqExpr = replace(make_seq(blocks, body), span=seq.span)
        return made

    def visit_block(self, block: relax.BindingBlock) -> relax.BindingBlock:
        before, self.in_dataflow = self.in_dataflow, isinstance(block, relax.DataflowBlock)
        self._made.append([])
        for binding in block.bindings:
            self.visit_binding(binding)
        made = tuple(self._made.pop())
        self.in_dataflow = before
        same = len(made) == len(block.bindings) and all(a is b for a, b in zip(made, block.bindings, strict=True))
        return block if same else replace(block, bindings=made)

    def visit(self, expr: relax.Expr) -> relax.Expr:
        match expr:
            case relax.Var():
                return self.remap.get(expr, expr)
            case relax.Call(args=args):
                made = self._all(args)
                op = self.visit(expr.op) if isinstance(expr.op, relax.Expr) else expr.op
                if made is args and op is expr.op:
                    return self.rewrite(expr)
                return self.rewrite(self.infer(replace(expr, op=op, args=made)))
            case relax.Tuple(fields=fields):
                made = self._all(fields)
                return self.rewrite(expr if made is fields else replace(make_tuple(made), span=expr.span))
            case relax.TupleGetItem(tuple_value=value, index=index):
                done = self.visit(value)
                return self.rewrite(expr if done is value else replace(get_item(done, index), span=expr.span))
            case relax.If():
                return self.rewrite(self._if(expr))
            case relax.SeqExpr():
                return self.visit_scope(expr)
            case relax.Function():
                return self.rewrite(self.visit_function(expr))
        return self.rewrite(expr)

    def _if(self, expr: relax.If) -> relax.If:
        condition = self.visit(expr.condition)
        outer = dict(self.remap)
        then = with_bound_result(self.visit_scope(expr.true_branch))
        self.remap = dict(outer)
        other = with_bound_result(self.visit_scope(expr.false_branch))
        self.remap = outer
        return replace(expr, condition=condition, true_branch=then, false_branch=other)  # type: ignore[no-any-return]

    def _all(self, exprs: tuple[relax.Expr, ...]) -> tuple[relax.Expr, ...]:
        made = tuple(self.visit(e) for e in exprs)
        return exprs if all(a is b for a, b in zip(made, exprs, strict=True)) else made

    def infer(self, call: relax.Call) -> relax.Call:
        """The call with its struct info inferred anew; as it was where no rule is known."""
        from mlcc import ops

        if self._global_vars is None:
            self._global_vars = global_vars(self.module)
        info = ops.infer_struct_info(replace(call, struct_info=None), self._global_vars)
        return call if info is None else replace(call, struct_info=info)  # type: ignore[no-any-return]
