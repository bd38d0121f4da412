"""The rules of graph-level functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc.errors import Label
from mlcc.ir import relax, tir
from mlcc.ir.node import children
from mlcc.ir.visit import substitute
from mlcc.ops.infer import match_info
from mlcc.ops.size_limits import impossible_size
from mlcc.verify.graph_calls import check_call, diagnostic_node, impurity_reason
from mlcc.verify.report import Report
from mlcc.verify.struct_info import Functions, bound_variables, dims_in, mismatch


class GraphVerifier:
    """Walks one function; findings go to `report`."""

    def __init__(self, report: Report, functions: Functions) -> None:
        self.report = report
        self._functions = functions
        self._live: set[relax.Var] = set()
        self._known: dict[relax.Var, Any] = {}  # variable -> where it is bound
        self._ended: set[relax.Var] = set()  # of dataflow blocks that ended
        self._sizes: set[tir.Var] = set()
        self._reported: set[Any] = set()
        self._in_dataflow = False
        self._pure = True
        self._rules: dict[type, Callable[[Any], None]] = {
            relax.Var: self._use, relax.DataflowVar: self._use, relax.Call: self._call, relax.If: self._if,
            relax.SeqExpr: self._seq, relax.Tuple: self._tuple, relax.TupleGetItem: self._item,
            relax.ShapeExpr: self._shape, relax.PrimValue: lambda e: self._dims((e.value,), e),
            relax.Function: self.function, relax.Constant: self._leaf, relax.GlobalVar: self._leaf,
            relax.ExternFunc: self._leaf, relax.StringImm: self._leaf, relax.DataTypeImm: self._leaf,
        }  # fmt: skip

    def function(self, func: relax.Function) -> None:
        """Check a function and those nested in it, which see the variables of the outer one."""
        self.report.at(func)
        live, sizes, pure, flow = set(self._live), set(self._sizes), self._pure, self._in_dataflow
        self._pure, self._in_dataflow = func.is_pure and not func.attrs.get("relax.force_pure", False), False
        for param in func.params:
            self._bind(param, param)
            if isinstance(param, relax.DataflowVar):
                self.report.add("E0494", f"parameter `{param.name}` is a dataflow variable", param)
            self._sizes.update(bound_variables(param.struct_info))
        for param in func.params:
            self._info(param.struct_info, param)
        if not isinstance(func.body, relax.SeqExpr):
            self.report.add("E0494", "the body of a function must be a sequence of blocks and a result", func)
            return
        self._seq(func.body)
        self._info(func.ret_struct_info, func)
        have = func.body.body.struct_info
        if func.ret_struct_info is not None and have is not None:
            why = mismatch(func.ret_struct_info, have)
            if why is not None:
                where = func.body if func.body.span is not None else func
                self.report.add("E0495", f"the result does not fit the declared one: {why}", where)
        self._live, self._sizes, self._pure, self._in_dataflow = live, sizes, pure, flow

    # ------------------------------------------------------------ blocks

    def _seq(self, seq: relax.SeqExpr) -> None:
        for block in seq.blocks:
            flow = isinstance(block, relax.DataflowBlock)
            self._in_dataflow = flow
            block_vars: list[relax.Var] = []
            for binding in block.bindings:
                self._binding(binding)
                if isinstance(binding.var, relax.DataflowVar):
                    block_vars.append(binding.var)
                    if not flow:
                        message = f"`{binding.var.name}` is a dataflow variable, but its block is not a dataflow block"
                        self.report.add("E0494", message, binding)
            self._in_dataflow = False
            self._live.difference_update(block_vars)
            self._ended.update(block_vars)
        self.report.at(seq)
        self._expr(seq.body)

    def _binding(self, binding: relax.Binding) -> None:
        near = self.report.nearest_span
        self.report.at(binding)
        if isinstance(binding, relax.MatchCast):
            self._expr(binding.value)
            have = binding.value.struct_info
            stated = binding.struct_info if have is None else self._substitute_new_sizes(binding.struct_info, have)
            self._sizes.update(bound_variables(binding.struct_info))
            self._info(binding.struct_info, binding)
            why = mismatch(stated, have) if have is not None else None
            if why is not None:
                self.report.add("E0492", f"this match_cast cannot hold: {why}", binding)
            self._bind(binding.var, binding)
        elif isinstance(binding, relax.VarBinding):
            if isinstance(binding.value, relax.Function):
                self._bind(binding.var, binding)  # a local function may call itself
                self._expr(binding.value)
            else:
                self._expr(binding.value)
                self._bind(binding.var, binding)
            self._info(binding.var.struct_info, binding)
            stated_info, have = binding.var.struct_info, binding.value.struct_info
            why = mismatch(stated_info, have) if stated_info is not None and have is not None else None
            if why is not None:
                message = f"the value of `{binding.var.name}` does not fit its annotation: {why}"
                self.report.add("E0496", message, binding)
        else:
            self.report.add("E0494", f"`{type(binding).__name__}` is not a binding", binding)
        self.report.nearest_span = near

    def _substitute_new_sizes(self, want: relax.StructInfo, have: relax.StructInfo) -> relax.StructInfo:
        """Substitute the new sizes in `want` by those of `have`: (n, n) and (3, 4) give (3, 3)."""
        bound: dict[tir.Var, tir.Expr] = {}
        match_info(want, have, bound)
        new = {var: value for var, value in bound.items() if var not in self._sizes}
        return substitute(want, new)

    def _bind(self, var: relax.Var, at: Any) -> None:
        if var in self._known:
            place = getattr(self._known[var], "span", None)
            related = (Label(place, "it is also bound here"),) if place is not None else ()
            self.report.add("E0484", f"`{var.name}` is bound twice", at, related=related)
        self._known.setdefault(var, at)
        self._live.add(var)

    # ------------------------------------------------------------ expressions

    def _expr(self, expr: relax.Expr) -> None:
        near = self.report.nearest_span
        if not isinstance(expr, relax.Var):  # a variable's place is where it is bound
            self.report.at(expr)
        rule = self._rules.get(type(expr))
        if rule is None:
            self.report.add("E0494", f"`{type(expr).__name__}` is not allowed in a relax function", expr)
        else:
            rule(expr)
        self.report.nearest_span = near

    def _leaf(self, expr: relax.Expr) -> None:
        pass

    def _use(self, var: relax.Var) -> None:
        if var in self._live or var in self._reported:
            return
        self._reported.add(var)
        place = getattr(self._known.get(var), "span", None)
        if var in self._ended:
            related = (Label(place, f"`{var.name}` is bound here, inside a dataflow block"),) if place else ()
            help = f"list it as an output of the block: `R.output({var.name})`"
            message = f"`{var.name}` is used outside its dataflow block"
            self.report.add("E0481", message, None, "not visible here", related=related, help=help)
        elif var in self._known:
            related = (Label(place, f"`{var.name}` is bound here"),) if place else ()
            message = f"`{var.name}` is used outside its scope"
            self.report.add("E0480", message, None, "not visible here", related=related)
        else:
            self.report.add("E0480", f"`{var.name}` is not bound before this", None, "not bound")

    def _tuple(self, expr: relax.Tuple) -> None:
        for field in expr.fields:
            self._expr(field)

    def _item(self, expr: relax.TupleGetItem) -> None:
        self._expr(expr.tuple_value)
        info = expr.tuple_value.struct_info
        if isinstance(info, relax.TupleStructInfo):
            if not 0 <= expr.index < len(info.fields):
                count = len(info.fields)
                self.report.add("E0490", f"index {expr.index} is out of range: the tuple has {count}", expr)
        elif info is not None and not isinstance(info, relax.ObjectStructInfo):
            self.report.add("E0490", "only tuples have elements", expr)

    def _shape(self, expr: relax.ShapeExpr) -> None:
        self._dims(expr.values, expr)
        for value in expr.values:
            if not value.dtype.is_int:
                self.report.add("E0494", f"a dimension must be an integer, not {value.dtype}", expr)

    def _if(self, expr: relax.If) -> None:
        self._expr(expr.condition)
        info = expr.condition.struct_info
        dtype, ndim = None, 0
        if isinstance(info, relax.TensorStructInfo):
            dtype, ndim = info.dtype, max(info.ndim, 0)
        elif isinstance(info, relax.PrimStructInfo):
            dtype = info.dtype
        elif info is not None and not isinstance(info, relax.ObjectStructInfo):
            self.report.add(
                "E0491", "the condition of `if` must be a single bool", diagnostic_node(expr.condition, expr)
            )
        if ndim or (dtype is not None and not dtype.is_bool):
            what = f"a tensor of {ndim} dimensions" if ndim else str(dtype)
            message = f"the condition of `if` must be a single bool, not {what}"
            self.report.add("E0491", message, diagnostic_node(expr.condition, expr))
        for branch in (expr.true_branch, expr.false_branch):
            live, sizes, flow = set(self._live), set(self._sizes), self._in_dataflow
            self._expr(branch)
            self._live, self._sizes, self._in_dataflow = live, sizes, flow

    def _call(self, call: relax.Call) -> None:
        if isinstance(call.op, relax.Expr):
            self._expr(call.op)
        for argument in call.args:
            self._expr(argument)
        for info in call.sinfo_args:
            self._info(info, call)
        why = impurity_reason(call, self._functions)
        if why is not None:
            self._impure(call, why)
        check_call(call, self._functions, self.report)

    def _impure(self, call: relax.Call, why: str) -> None:
        if self._in_dataflow:
            help = "move the call out of the dataflow block"
            self.report.add("E0482", f"{why} inside a dataflow block", call, "has a side effect", help=help)
        elif self._pure:
            help = "declare the function `@R.function(pure=False)`"
            self.report.add("E0483", f"{why} in a pure function", call, "has a side effect", help=help)

    # ------------------------------------------------------------ symbolic sizes

    def _info(self, info: relax.StructInfo | None, at: Any) -> None:
        self._dims(tuple(dims_in(info)), at)
        reason = impossible_size(info)
        if reason is not None:
            self.report.add(*reason, at)

    def _dims(self, dims: tuple[tir.Expr, ...], at: Any) -> None:
        stack: list[Any] = list(dims)
        while stack:
            top = stack.pop()
            if isinstance(top, tir.Var):
                if top not in self._sizes and top not in self._reported:
                    self._reported.add(top)
                    message = f"the symbolic size `{top.name}` is not bound here"
                    parameter = f'R.Shape(["{top.name}"])'
                    help = f"bind it first: use it alone as a dimension, or pass it as a parameter `{parameter}`"
                    self.report.add("E0493", message, at, "not bound", help=help)
            elif not isinstance(top, tir.IntImm):
                stack.extend(children(top))


def verify_function(func: relax.Function, report: Report, functions: Functions) -> None:
    """Check all rules of one graph-level function."""
    GraphVerifier(report, functions).function(func)
