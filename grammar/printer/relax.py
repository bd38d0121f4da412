"""relax functions, bindings and expressions as text."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from typing import Any

from mlcc.grammar.constants import as_tensor
from mlcc.grammar.printer.constant import constant
from mlcc.grammar.printer.expr import var_creation
from mlcc.grammar.printer.literals import integer, quote
from mlcc.grammar.printer.struct_info import info
from mlcc.grammar.printer.tir import write_attributes
from mlcc.grammar.printer.writer import ATOM, END, START, Child, Part, Parts, Value, Writer, call, handles, separated
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import INT32, INT64, DType
from mlcc.ir.node import Attrs, Node, children, find, holds, replace, walk
from mlcc.ir.tensor_data import is_ndarray

# ---------------------------------------------------------------- functions


def function(out: Writer, func: relax.Function, name: str, nested: bool = False) -> None:
    """A function with its decorator, under the identifier `name`."""
    out.imports.add("R")
    marked = out.reach(func)
    options = ["private=True"] if func.is_private and not nested else []
    if not func.is_pure:
        options.append("pure=False")
    out.line("@R.function" + (f"({', '.join(options)})" if options else ""))
    head = len(out.lines)
    out.line("")
    saved = out.prelude, out.function_scope, out.from_signature
    out.prelude, out.from_signature = [], {}
    if not nested:
        out.names.forget()
    with out.indented():
        out.function_scope = len(out.scopes) - 1
        out.signature = set()
        params = [_param(out, p) for p in func.params]
        result = f" -> {info(out, func.ret_struct_info)}" if func.ret_struct_info is not None else ""
        start, end = (START, END) if marked else ("", "")
        out.lines[head] = f"{'    ' * (out.depth - 1)}{start}def {name}({', '.join(params)}){result}:{end}"
        out.signature = None
        _forget_inner_symbols(out, func)
        for var in [v for v in out.from_signature if v.dtype is not INT64]:
            out.prelude.append(f"{out.from_signature.pop(var)} = {var_creation(var)}")
            out.imports.add("T")
        write_attributes(out, _with_named_weights(func), name, "R.func_attr")
        top = len(out.lines)
        if out.module_name and not nested and _calls_module(func):
            out.line(f"cls = {out.module_name}")
        body = _without_check(func)
        outer, out.checked = out.checked, _find_checked(body)
        _seq(out, body)
        out.checked = outer
        out.lines[top:top] = ["    " * out.depth + line for line in out.prelude]
    out.prelude, out.function_scope, out.from_signature = saved


def _with_named_weights(func: relax.Function) -> Attrs:
    """The attributes; the arrays of `params` have the names of the parameters that they are the values of."""
    weights = func.attrs.get("params")
    if not isinstance(weights, tuple) or not 0 < len(weights) <= len(func.params):
        return func.attrs
    named = zip(weights, func.params[-len(weights) :], strict=True)
    return func.attrs.with_item("params", tuple(as_tensor(w, None, p.name) if is_ndarray(w) else w for w, p in named))


def _forget_inner_symbols(out: Writer, func: relax.Function) -> None:
    """Unbind the symbolic variables that only function types in a signature mention: they are local to those types."""
    visible: set[Any] = set()
    stack = [*(p.struct_info for p in func.params), func.ret_struct_info]
    while stack:
        top = stack.pop()
        if isinstance(top, relax.TupleStructInfo):
            stack += top.fields
        elif top is not None and not isinstance(top, relax.FuncStructInfo):
            visible.update(walk(top))
    for var in [n for n in out.scopes[-1] if isinstance(n, tir.Var) and n not in visible]:
        out.names.release(out.bound.pop(var))
        out.from_signature.pop(var, None)


def _param(out: Writer, param: relax.Var) -> str:
    """`name: struct info`. A scalar parameter is itself the symbolic variable of its value, unless that is another."""
    known = param.struct_info
    if isinstance(known, relax.PrimStructInfo):
        scalar = known.value
        if isinstance(scalar, tir.Var) and scalar not in out.bound:
            name = out.define(param, param.name)
            out.bind(scalar, name)
            return f"{name}: {info(out, relax.PrimStructInfo(known.dtype))}"
        if scalar is None and not out.dialect.is_tvm:
            return f"{out.define(param, param.name)}: R.Prim({quote(str(known.dtype))}, value=None)"
        if isinstance(scalar, tir.Var) and out.bound[scalar] == param.name and not out.dialect.is_tvm:
            out.bind(param, param.name)  # both are the same number, under one name
            return f"{param.name}: {info(out, known)}"
    annotation = "" if known is None else f": {info(out, known)}"
    return out.define(param, param.name) + annotation


def _calls_module(func: relax.Function) -> bool:
    return holds(func.body, relax.GlobalVar)


def _without_check(func: relax.Function) -> relax.Expr:
    """Return the body of a function without the final check of its declared result, which the signature expresses."""
    from mlcc.ir.equal import structural_equal

    seq = func.body
    if not isinstance(seq, relax.SeqExpr) or not seq.blocks or isinstance(seq.blocks[-1], relax.DataflowBlock):
        return seq
    *others, last = seq.blocks[-1].bindings
    if not isinstance(last, relax.MatchCast) or last.stated != "result" or last.var is not seq.body:
        return seq
    if func.ret_struct_info is None or not structural_equal(last.struct_info, func.ret_struct_info):
        return seq
    rest = (replace(seq.blocks[-1], bindings=tuple(others)),) if others else ()
    return replace(seq, blocks=(*seq.blocks[:-1], *rest), body=last.value)


def _seq(out: Writer, seq: relax.Expr) -> None:
    """Write the body of a function: its blocks and its result."""
    result: Any = seq
    if isinstance(seq, relax.SeqExpr):
        marked, at = out.reach(seq), len(out.lines)
        for part in seq.blocks:
            block(out, part)
        result = seq.body
        out.mark(marked, at)
    result = _hoisted(out, result)
    out.line(f"return {out.text(result)}")


def sequence(out: Writer, seq: relax.SeqExpr) -> None:
    """The blocks of a sequence, and its value."""
    for part in seq.blocks:
        block(out, part)
    out.line(out.text(_hoisted(out, seq.body)))


# ---------------------------------------------------------------- blocks and bindings


def block(out: Writer, part: relax.BindingBlock) -> None:
    """The bindings of a block; a dataflow block names those of its variables that are visible outside."""
    marked, at = out.reach(part), len(out.lines)
    if isinstance(part, relax.DataflowBlock):
        outer = len(out.scopes) - 1
        out.line("with R.dataflow():")
        visible = [b.var for b in part.bindings if not isinstance(b.var, relax.DataflowVar)]
        with out.indented():
            for one in part.bindings:
                _in_block(out, one, -1 if isinstance(one.var, relax.DataflowVar) else outer)
                if isinstance(one.var, relax.DataflowVar) and one.var in out.bound:
                    out.past[one.var] = out.bound[one.var]
            out.line(f"R.output({', '.join([out.text(v) for v in visible])})")
    else:
        for one in part.bindings:
            _in_block(out, one)
    out.mark(marked, at)


def _in_block(out: Writer, one: relax.Binding, depth: int = -1) -> None:
    """A binding of a block, without the one that only hands its value to the check of an annotation behind it."""
    if one.var not in out.checked:
        binding(out, one, depth)


def _find_checked(body: relax.Expr) -> dict[relax.Var, Any]:
    """The values that replace variables in the text: those bound only to be checked by the next binding."""
    casts = {n.value: n for n in find(body, relax.MatchCast) if n.stated}
    if not casts:
        return {}
    uses = Counter(c for n in walk(body) for c in children(n) if isinstance(c, relax.Var))
    checked: dict[relax.Var, Any] = {}
    for part in walk(body):
        if isinstance(part, relax.BindingBlock):
            for one, after in itertools.pairwise(part.bindings):
                if isinstance(one, relax.VarBinding) and casts.get(one.var) is after and uses[one.var] == 2:
                    checked[one.var] = one.value
    return checked


def binding(out: Writer, one: relax.Binding, depth: int = -1) -> None:
    """One binding, its variable defined in the scope at `depth`."""
    marked, at = out.reach(one), len(out.lines)
    if isinstance(one, relax.MatchCast) and one.stated:
        value = out.checked.get(one.value, one.value) if isinstance(one.value, relax.Var) else one.value
        _bind_value(out, one.var, value, depth)
    elif isinstance(one, relax.MatchCast):
        value = out.text(_hoisted(out, one.value))
        shape = info(out, one.struct_info)
        annotation = _annotation(out, one.var)
        out.line(f"{_defined(out, one.var, depth)}{annotation} = R.match_cast({value}, {shape})")
    elif isinstance(one, relax.VarBinding):
        _bind_value(out, one.var, one.value, depth)
    out.mark(marked, at)
    out.comment(one, at)


def _bind_value(out: Writer, var: relax.Var, value: Any, depth: int) -> None:
    if isinstance(value, relax.Function):
        name = _defined(out, var, depth)
        function(out, value, name, nested=True)
        return
    if isinstance(value, relax.SeqExpr):
        for part in value.blocks:
            block(out, part)
        _bind_value(out, var, value.body, depth)
        return
    if isinstance(value, relax.If):
        _if(out, var, value, depth)
        return
    text = out.text(value)
    annotation = _annotation(out, var) if _annotated(out, var, value) else ""
    out.line(f"{_defined(out, var, depth)}{annotation} = {text}")


def _annotation(out: Writer, var: relax.Var) -> str:
    return f": {info(out, var.struct_info)}" if var.struct_info is not None else ""


def _defined(out: Writer, var: relax.Var, depth: int) -> str:
    """The variable's name; the variable of an `if` is defined by both branches, and named once."""
    return out.bound.get(var) or out.define(var, var.name, depth)


def _annotated(out: Writer, var: relax.Var, value: Any) -> bool:
    """True unless the value states the variable's struct info explicitly."""
    if var.struct_info is None:
        return False
    if out.dialect.is_tvm or not isinstance(value, relax.Call) or not _is_destination_call(value):
        return True
    from mlcc.ir.equal import structural_equal

    return not structural_equal(var.struct_info, value.sinfo_args[0])


def _if(out: Writer, var: relax.Var, node: relax.If, depth: int) -> None:
    """Write an `if`: both branches end by binding the same name, which is the value of the whole."""
    condition = out.text(_hoisted(out, node.condition))
    name = out.fresh_name(var, var.name, depth)
    for word, branch in ((f"if {condition}:", node.true_branch), ("else:", node.false_branch)):
        out.line(word)
        with out.indented():
            result: Any = branch
            if isinstance(branch, relax.SeqExpr):
                for part in branch.blocks:
                    block(out, part)
                result = branch.body
            if isinstance(result, relax.If):
                _if(out, relax.Var(name, var.struct_info), result, -1)
                continue
            text = out.text(_hoisted(out, result))
            out.line(f"{name}{_annotation(out, var)} = {text}")
    out.bind(var, name, depth)


def _hoisted(out: Writer, value: Any) -> Any:
    """Return a value that can be part of an expression; one that needs statements is bound to a variable first."""
    if not isinstance(value, (relax.If, relax.SeqExpr, relax.Function)):
        return value
    var = relax.Var("value", value.struct_info)
    _bind_value(out, var, value, -1)
    return var


# ---------------------------------------------------------------- expressions


@handles(relax.Var, relax.DataflowVar)
def _var(out: Writer, node: relax.Var, like: DType | None) -> Parts:
    name = out.bound.get(node)
    if name is None and not out.names.is_taken(out.past.get(node, "R")):
        name = out.past[node]  # of a dataflow block that ended: wrong, but it can be written
    if name is None:
        name = out.define(node, node.name, out.function_scope)
    return ATOM, [name]


@handles(relax.GlobalVar)
def _global_var(out: Writer, node: relax.GlobalVar, like: DType | None) -> Parts:
    return ATOM, [f"cls.{out.function_name(node.name)}"]


@handles(relax.ExternFunc)
def _extern(out: Writer, node: relax.ExternFunc, like: DType | None) -> Parts:
    return call("R.ExternFunc", quote(node.name))


@handles(relax.Constant)
def _constant(out: Writer, node: relax.Constant, like: DType | None) -> Parts:
    return ATOM, [constant(out, node)]


@handles(relax.ShapeExpr)
def _shape(out: Writer, node: relax.ShapeExpr, like: DType | None) -> Parts:
    return call("R.shape", ["[", *separated([[Child(v, like=INT64)] for v in node.values]), "]"])


@handles(relax.PrimValue)
def _prim_value(out: Writer, node: relax.PrimValue, like: DType | None) -> Parts:
    value = node.value
    if isinstance(value, tir.IntImm) and value.dtype is INT32:  # a bare number is int64 here
        return call("R.prim_value", f"T.int32({value.value})")
    return call("R.prim_value", Child(value))


@handles(relax.StringImm)
def _string(out: Writer, node: relax.StringImm, like: DType | None) -> Parts:
    return call("R.str", quote(node.value))


@handles(relax.DataTypeImm)
def _dtype(out: Writer, node: relax.DataTypeImm, like: DType | None) -> Parts:
    return call("R.dtype", quote(str(node.value)))


@handles(relax.Tuple)
def _tuple(out: Writer, node: relax.Tuple, like: DType | None) -> Parts:
    if not node.fields:
        return ATOM, ["R.tuple()"]
    fields = separated([[Child(f)] for f in node.fields])
    return ATOM, ["(", *fields, ",)" if len(node.fields) == 1 else ")"]


@handles(relax.TupleGetItem)
def _item(out: Writer, node: relax.TupleGetItem, like: DType | None) -> Parts:
    return ATOM, [Child(node.tuple_value, ATOM), f"[{integer(node.index)}]"]


@handles(relax.If, relax.SeqExpr, relax.Function)
def _statement(out: Writer, node: Any, like: DType | None) -> Parts:
    return ATOM, [Child(_hoisted(out, node))]


_DESTINATION = frozenset(
    ["relax.call_tir", "relax.call_tir_inplace", "relax.call_tir_with_grad", "relax.call_dps_packed"]
)


_FORMAT = {"relax.print": 0, "relax.assert_op": 1}  # the argument that the text gives by the keyword `format`


def _is_destination_call(node: relax.Call) -> bool:
    """True for calls whose struct info argument is that of the result, `out_sinfo=`."""
    return isinstance(node.op, tir.Op) and node.op.name in _DESTINATION and len(node.sinfo_args) == 1


@handles(relax.Call)
def _call(out: Writer, node: relax.Call, like: DType | None) -> Parts:
    op = node.op
    arguments, attrs = (node.args, node.attrs) if out.style.call is None else out.style.call(node)
    args: list[Part | list[Part]] = [Child(a) if isinstance(a, Node) else Value(a) for a in arguments]
    if args and isinstance(node.args[0], relax.ExternFunc) and isinstance(op, tir.Op):
        args[0] = quote(node.args[0].name)
    if isinstance(op, relax.ExternFunc):
        name: Part = "R.call_packed"
        args.insert(0, quote(op.name))
    elif isinstance(op, tir.Op):
        name = "R." + op.name.removeprefix("relax.")
        if not all(part.isidentifier() for part in op.name.split(".")):
            name = "R.call_packed"
            args.insert(0, quote(op.name))
    else:
        name = Child(op, ATOM)
    at = _FORMAT.get(op.name) if isinstance(op, tir.Op) else None
    if at is not None and at < len(args):
        template = node.args[at]
        del args[at]
        args.append(["format=", quote(template.value) if isinstance(template, relax.StringImm) else Child(template)])
    destination = _is_destination_call(node)
    if destination and isinstance(op, tir.Op) and len(args) == 3 and op.name == "relax.call_tir":
        args[2] = ["tir_vars=", Child(node.args[2])]
    if destination:
        args.append([f"{out.dialect.out_sinfo}=", *_results(node.sinfo_args[0])])
    args += _keywords(attrs)
    if node.sinfo_args and not destination:
        infos = separated([[Child(s)] for s in node.sinfo_args])
        args.append([f"{out.dialect.sinfo_args}=(", *infos, ",)" if len(node.sinfo_args) == 1 else ")"])
    return ATOM, [name, "(", *separated([a if isinstance(a, list) else [a] for a in args]), ")"]


def _keywords(attrs: Mapping[str, Any]) -> list[Part | list[Part]]:
    return [[f"{key}=", Value(value)] for key, value in attrs.items() if key.isidentifier()]


def _results(result: relax.StructInfo) -> list[Part]:
    """Write several results as a list; a list of one would be read as the result itself."""
    if isinstance(result, relax.TupleStructInfo) and len(result.fields) > 1:
        return ["[", *separated([[Child(f)] for f in result.fields]), "]"]
    return [Child(result)]


__all__ = ["binding", "block", "function", "sequence"]
