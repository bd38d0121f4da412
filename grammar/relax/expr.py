"""Graph-level expressions from text: names, tuples, operators, calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from mlcc import ops
from mlcc.grammar.context import Scope
from mlcc.grammar.global_infos import resolve_device
from mlcc.grammar.metadata import metadata_key
from mlcc.grammar.relax import const as relax_const
from mlcc.grammar.relax.annotations import Cast, text_of
from mlcc.grammar.relax.scope import MODULE, FunctionWalk
from mlcc.grammar.relax.special_forms import SPECIAL_FORMS, Form, bind_arguments
from mlcc.grammar.relax.types import struct_info, type_of
from mlcc.grammar.syntax import tree
from mlcc.grammar.tir.evaluator import Evaluator
from mlcc.grammar.tir.non_expressions import index_map_of
from mlcc.ir import relax, tir
from mlcc.ir.node import Attrs
from mlcc.ir.visit import substitute
from mlcc.ops import relations, values
from mlcc.ops.relations import SubtypeCheck
from mlcc.ops.signature import signature

# ---------------------------------------------------------------- any value


def expression(fw: FunctionWalk, cst: tree.Expr) -> relax.Expr:
    """A graph-level expression, nested as the text has it."""
    return as_expr(fw, value(fw, cst), cst)


def as_expr(fw: FunctionWalk, value: Any, cst: tree.Expr) -> relax.Expr:
    """Return a value as a graph-level expression; reports an error if it is none."""
    if isinstance(value, Cast):
        fw.walk.fail("E0405", "R.match_cast must be the whole right side of `=`", cst)
    if value is MODULE:
        fw.walk.fail("E0406", "the module itself is not a value", cst)
    if isinstance(value, relax.StructInfo):
        fw.walk.fail("E0406", "a type is not a value", cst)
    if isinstance(value, relax.GlobalVar):
        return _as_value(value)
    try:
        return values.expr(value, fw.walk.span(cst))
    except values.InvalidValue as problem:
        fw.walk.fail("E0406", f"an expression is needed here; this {problem}", cst)


def _as_value(function: relax.GlobalVar) -> relax.GlobalVar:
    """Return a function of the module as a value, with fresh symbolic variables in its type."""
    info = function.struct_info
    if info is None:
        info = relax.FuncStructInfo(None, relax.ObjectStructInfo(), False)
        return relax.GlobalVar(function.name, info, span=function.span)
    renamed = {v: tir.Var(v.name, v.dtype) for v in relations.variables(info)}
    return relax.GlobalVar(function.name, substitute(info, renamed), span=function.span)


def value(fw: FunctionWalk, cst: tree.Expr) -> Any:
    """Evaluate an expression: to a graph-level expression, a scalar, a type, a Python value, or several of these."""
    walk = _VALUE.get(type(cst))
    if walk is None:
        fw.walk.fail("E0406", "this is not allowed in a relax function", cst)
    return walk(fw, cst)


def _literal(fw: FunctionWalk, cst: tree.Literal) -> Any:
    if cst.value is Ellipsis:
        fw.walk.fail("E0406", "`...` is not a value", cst, "this part is still to be written")
    return cst.value


def _logic(fw: FunctionWalk, cst: tree.Bool | tree.IfExp) -> Any:
    if fw.is_graph_level(cst):
        if isinstance(cst, tree.Bool):
            what, word = f"operator `{cst.op}`", f"logical_{cst.op}(x1, x2)"
        else:
            what, word = "`if` in an expression", "where(condition, x1, x2)"
        fw.walk.fail("E0406", f"tensors have no {what}", cst, help=f"write `R.{word}`, element by element")
    return fw.scalar(cst)


def _infix(fw: FunctionWalk, cst: tree.Unary | tree.Binary | tree.Compare) -> Any:
    return _operator(fw, cst) if fw.is_graph_level(cst) else fw.scalar(cst)


def _lambda(fw: FunctionWalk, cst: tree.Lambda) -> tir.IndexMap:
    if fw.is_graph_level(cst):
        help = "write a function inside this one: `@R.function` above `def f(v: R.Tensor(...)):`"
        fw.walk.fail("E0406", "a lambda is a map of indices, no function of tensors", cst, help=help)
    with fw.guard(cst):
        return index_map_of(Evaluator(fw.walk, Scope(fw.scalars)), cst)


def _display(fw: FunctionWalk, cst: tree.Display) -> tuple[Any, ...] | list[Any]:
    items = [value(fw, item) for item in cst.items]
    return items if isinstance(cst, tree.List) else tuple(items)


def _name(fw: FunctionWalk, cst: tree.Name) -> Any:
    info = type_of(fw, cst)
    return info if info is not None else fw.resolve(cst)


def _dict(fw: FunctionWalk, cst: tree.Dict) -> Attrs:
    attributes = {}
    for key, item in cst.entries:
        name = value(fw, key)
        if not isinstance(name, str):
            fw.walk.fail("E0407", "keys must be strings here", key)
        attributes[name] = values.python_value(value(fw, item))
    return Attrs(attributes)


def _attribute(fw: FunctionWalk, cst: tree.Attribute) -> Any:
    """Evaluate `cls.f`, or a type such as `R.Object` and `T.int64`."""
    info = type_of(fw, cst)
    if info is not None:
        return info
    if is_module(fw, cst.base):
        return fw.module_function(cst, cst.name)
    path = fw.walk.dotted(cst, fw.scope)
    if path is not None:
        fw.walk.fail("E0406", f"`{path}` is not a value", cst)
    _no_attribute(fw, cst, called=False)


def _no_attribute(fw: FunctionWalk, cst: tree.Attribute, called: bool) -> NoReturn:
    """Report an attribute or method that nothing has: of a library, or of a value."""
    from mlcc.grammar.foreign import method_hint

    root: tree.Expr = cst
    while isinstance(root, tree.Attribute):
        root = root.base
    if isinstance(root, tree.Name) and fw.find(root.id) is None:
        fw.resolve(root)
    help = method_hint(source_text(fw, cst.base), cst.name, called)
    fw.walk.fail("E0406", f"values of a relax function have no attribute `{cst.name}`", cst, help=help)


def source_text(fw: FunctionWalk, cst: tree.Expr) -> str:
    """The text of an expression for a message: what is long is `x`."""
    text = fw.walk.source.text[cst.start : cst.end]
    return text if len(text) <= 20 and "\n" not in text else "x"


def is_module(fw: FunctionWalk, cst: tree.Expr) -> bool:
    """Return True if an expression denotes the module itself: its name, or `cls`."""
    if not isinstance(cst, tree.Name):
        return False
    binding = fw.scope.find(cst.id)
    if binding is not None:
        return binding.value is MODULE
    return cst.id in fw.walk.self_names or cst.id == fw.walk.module_name


def _index(fw: FunctionWalk, cst: tree.Index) -> Any:
    """An item of a tuple, or metadata."""
    if isinstance(cst.base, tree.Index) and fw.walk.strings:
        text = fw.walk.strings.get(metadata_key(cst) or "")
        if text is not None:
            return text
    data = relax_const.metadata(fw, cst)
    if data is not None:
        return data
    _refuse_tensor(fw, cst)
    if len(cst.items) != 1 or isinstance(cst.items[0], tree.Slice):
        fw.walk.fail("E0408", "the index of a tuple must be a single number", cst)
    at = values.python_value(fw.scalar(cst.items[0]))
    base = value(fw, cst.base)
    if isinstance(at, bool) or not isinstance(at, int):
        fw.walk.fail("E0408", "the index of a tuple must be a number", cst.items[0])
    if isinstance(base, (tuple, list)):
        if not -len(base) <= at < len(base):
            fw.walk.fail("E0408", f"index {at} is out of range: the tuple has {len(base)} items", cst.items[0])
        return base[at]
    return item(fw, as_expr(fw, base, cst.base), at, cst)


def _refuse_tensor(fw: FunctionWalk, cst: tree.Index) -> None:
    """Fail for an index of a tensor that a name stands for, naming the operators that select."""
    found = fw.find(cst.base.id) if isinstance(cst.base, tree.Name) else None
    info = found.value.struct_info if found is not None and isinstance(found.value, relax.Expr) else None
    if isinstance(info, relax.TensorStructInfo):
        from mlcc.grammar.foreign import index_hint

        items = [(_index_kind(i), fw.walk.source.text[i.start : i.end]) for i in cst.items]
        shape = info.shape.values if isinstance(info.shape, relax.ShapeExpr) else ()
        help = index_hint(source_text(fw, cst.base), items, [_size_text(size) for size in shape])
        fw.walk.fail("E0408", "only tuples can be indexed, and this is a tensor", cst, help=help)


def _size_text(size: tir.Expr) -> str:
    from mlcc.grammar.printer.printer import script

    known = tir.const_int(size)
    return script(size).strip() if known is None else str(known)


def _index_kind(cst: tree.Expr) -> str:
    number = isinstance(cst, tree.Int) or (isinstance(cst, tree.Unary) and isinstance(cst.operand, tree.Int))
    return "slice" if isinstance(cst, tree.Slice) else "number" if number else "other"


def item(fw: FunctionWalk, base: relax.Expr, at: int, cst: tree.Expr) -> relax.TupleGetItem:
    """`base[at]`; negative numbers count from the end of a tuple of known length."""
    known = base.struct_info
    if isinstance(known, relax.TupleStructInfo):
        size = len(known.fields)
        if not -size <= at < size:
            fw.walk.fail("E0408", f"index {at} is out of range: the tuple has {size} items", cst)
        at %= max(size, 1)
        return relax.TupleGetItem(base, at, known.fields[at], span=fw.walk.span(cst))
    if known is not None and not isinstance(known, relax.ObjectStructInfo):
        fw.walk.fail("E0408", "only tuples can be indexed", cst, help="R.take and R.strided_slice select from a tensor")
    if at < 0:
        fw.walk.fail("E0408", f"item {at} of a tuple whose length is not known", cst)
    return relax.TupleGetItem(base, at, relax.ObjectStructInfo(), span=fw.walk.span(cst))


# ---------------------------------------------------------------- operators

_BINARY = {
    "+": "add", "-": "subtract", "*": "multiply", "/": "divide", "//": "floor_divide", "%": "mod", "**": "power",
    "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal",
}  # fmt: skip


def _operator(fw: FunctionWalk, cst: tree.Unary | tree.Binary | tree.Compare) -> relax.Expr:
    """Infix operators on tensors; a Python number takes the dtype of the tensor beside it."""
    if isinstance(cst, tree.Unary):
        if cst.op != "-":
            fw.walk.fail(
                "E0406", f"tensors have no operator `{cst.op}`", cst, help="use an operator such as R.logical_not"
            )
        return _operator_call(fw, cst, "negative", (expression(fw, cst.operand),), {})
    name = _BINARY.get(cst.op)
    if name is None:
        fw.walk.fail("E0406", f"tensors have no operator `{cst.op}`", cst, help="use an operator such as R.equal")
    operands = (cst.left, cst.right)
    sides = [value(fw, operand) for operand in operands]
    for at, other in ((0, 1), (1, 0)):
        if isinstance(sides[at], (bool, int, float)):
            info = sides[other].struct_info if isinstance(sides[other], relax.Expr) else None
            dtype = info.dtype if isinstance(info, relax.TensorStructInfo) else None
            sides[at] = relax_const.number(fw, operands[at], sides[at], dtype)
    return _operator_call(fw, cst, name, tuple(as_expr(fw, s, c) for s, c in zip(sides, operands, strict=True)), {})


# ---------------------------------------------------------------- calls


def call(fw: FunctionWalk, cst: tree.Call) -> Any:
    """A call: of an operator, a form of the language, a function of the module, or a closure."""
    head = cst.function
    info = type_of(fw, cst)
    if info is not None:
        return info
    path = fw.walk.dotted(head, fw.scope)
    if path is None:
        return _call_value(fw, cst)
    if path.startswith("R."):
        name = path[2:].removeprefix("op.")
        form = _FORMS.get(name)
        if form is not None:
            names, required, make = form
            return make(fw, cst, bind_arguments(fw, cst, names, required))
        if name in _CALLEES:
            return _call_function(fw, cst, name)
        if name == "call_packed":
            return _call_packed(fw, cst)
        if name in _STATEMENTS:
            fw.walk.fail("E0405", f"R.{name} is a statement and cannot be part of an expression", cst)
        args, kwargs = _arguments(fw, cst)
        if name == "to_vdevice":
            args, kwargs = _with_device(fw, cst, args, kwargs)
        return _operator_call(fw, cst, name, args, kwargs)
    if path.startswith("T."):
        return fw.scalar(cst)
    if path in ("I.meta_var",) and len(cst.args) == 1:
        return value(fw, cst.args[0])
    fw.walk.fail("E0406", f"`{path}` cannot be called here", cst)


def _arguments(fw: FunctionWalk, cst: tree.Call, skip: int = 0) -> tuple[tuple[Any, ...], dict[str, Any]]:
    for argument in cst.args:
        if isinstance(argument, tree.Star):
            fw.walk.fail("E0406", "a tuple cannot be unpacked in a call", argument, help="write its items one by one")
    args = tuple(value(fw, a) for a in cst.args[skip:])
    kwargs = {k.name: value(fw, k.value) for k in cst.keywords}
    for given_value, at in zip(
        (*args, *kwargs.values()), (*cst.args[skip:], *(k.value for k in cst.keywords)), strict=True
    ):
        if isinstance(given_value, Cast) or given_value is MODULE:
            as_expr(fw, given_value, at)
    return args, kwargs


def _with_device(
    fw: FunctionWalk, cst: tree.Call, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of `R.to_vdevice` with the full name of the device."""
    if len(args) == 2 and isinstance(args[1], str):
        args = (args[0], resolve_device(fw.walk, args[1], cst.args[1]))
    elif isinstance(kwargs.get("dst_vdevice"), str):
        place = next(k.value for k in cst.keywords if k.name == "dst_vdevice")
        kwargs = {**kwargs, "dst_vdevice": resolve_device(fw.walk, kwargs["dst_vdevice"], place)}
    return args, kwargs


def _operator_call(
    fw: FunctionWalk, cst: tree.Expr, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> relax.Call:
    """The call of an operator."""
    if not ops.is_operator(name):
        from mlcc.ops.meant import operator_help

        known = [*(n.removeprefix("relax.") for n in ops.names()), *_FORMS, *_CALLEES, "call_packed", *_STATEMENTS]
        fw.walk.fail("E0440", f"there is no operator `R.{name}`", tree.callee_of(cst), help=operator_help(name, known))
    stated = _stated_result_type(fw, cst, name, kwargs) if isinstance(cst, tree.Call) else None
    with fw.guard(cst):
        bound = ops.bind_call(name, args, kwargs, fw.walk.span(cst))
    inferred = bound.struct_info
    if (
        stated is not None
        and inferred is not None
        and relations.check_subtype(stated, inferred) is not SubtypeCheck.COVERS
    ):
        fw.walk.fail("E0411", f"the result is {text_of(inferred)}, not {text_of(stated)}", cst)
    return bound if bound.struct_info is not None else _with_struct_info(bound, None)


def _stated_result_type(fw: FunctionWalk, cst: tree.Call, name: str, kwargs: dict[str, Any]) -> relax.StructInfo | None:
    """Remove `sinfo_args=(type,)` from the keywords of an operator call and return the type that it states."""
    keyword = next((k for k in _TYPES_OF_RESULTS if k in kwargs), None)
    known = signature(name.removeprefix("relax."))
    if keyword is None or known is None or any(p.is_types for p in known.params):
        return None
    stated = kwargs.pop(keyword)
    types = tuple(stated) if isinstance(stated, (tuple, list)) else (stated,)
    if len(types) != 1 or not isinstance(types[0], relax.StructInfo):
        at = next(k.value for k in cst.keywords if k.name == keyword)
        fw.walk.fail("E0442", f"`{keyword}` takes the type of the result", at)
    return types[0]


def _with_struct_info(call: relax.Call, info: relax.StructInfo | None) -> relax.Call:
    """Return a call with struct info `info`, or that of an object if it is unknown."""
    return relax.Call(call.op, call.args, call.attrs, call.sinfo_args, info or relax.ObjectStructInfo(), span=call.span)


def _call_value(fw: FunctionWalk, cst: tree.Call) -> Any:
    """A call of what an expression gives: a function of the module, a closure, a packed function. `float("inf")`, which
    attributes may be, is a number."""
    head = cst.function
    if isinstance(head, tree.Name) and head.id == "float" and fw.find(head.id) is None:
        return relax_const.literal(fw, cst)
    if isinstance(head, tree.Attribute) and not is_module(fw, head.base):
        method = _method(fw, cst)
        if method is not None:
            return method
        if fw.walk.dotted(head, fw.scope) is None:
            _no_attribute(fw, head, called=True)
    callee = value(fw, head)
    args, kwargs = _arguments(fw, cst)
    if isinstance(callee, relax.ExternFunc):
        return _call_extern(fw, cst, callee, args, kwargs)
    if kwargs:
        fw.walk.fail("E0406", "functions take positional arguments only", cst.keywords[0])
    if not isinstance(callee, (relax.GlobalVar, relax.Var, relax.Call, relax.TupleGetItem)):
        fw.walk.fail("E0406", "this is not a function and cannot be called", head)
    op = callee if isinstance(callee, (relax.GlobalVar, relax.Var)) else fw.leaf(callee)
    positional = tuple(as_expr(fw, a, c) for a, c in zip(args, cst.args, strict=True))
    new_call = relax.Call(op, positional, span=fw.walk.span(cst))
    if isinstance(op, relax.GlobalVar) and fw.is_prim_func(op.name):
        return _with_struct_info(new_call, _prim_func_result(fw, op.name))
    with fw.guard(cst):
        info = ops.infer_struct_info(new_call, fw.walk.functions)
    return _with_struct_info(new_call, info)


def _prim_func_result(fw: FunctionWalk, name: str) -> relax.StructInfo:
    """Return the struct info of a PrimFunc call: a scalar if the function declares a return dtype, else `()`."""
    dtype = fw.walk.return_dtypes.get(name)
    return relax.TupleStructInfo(()) if dtype is None else relax.PrimStructInfo(dtype)


def _method(fw: FunctionWalk, cst: tree.Call) -> relax.Call | None:
    """`x.astype("float16")`, the one method that tensors have."""
    head = cst.function
    if not isinstance(head, tree.Attribute) or head.name != "astype":
        return None
    if fw.walk.dotted(head, fw.scope) is not None or len(cst.args) != 1:
        return None
    return _operator_call(fw, cst, "astype", (expression(fw, head.base), value(fw, cst.args[0])), {})


# Operators whose first argument is a function: a string or a bare name stands for one of the module, if it has it.
_CALLEES = frozenset(
    {
        "call_builtin_with_ctx", "call_dps_packed", "call_inplace_packed", "call_pure_packed", "call_tir",
        "call_tir_inplace", "call_tir_with_grad", "dist.call_tir_local_view", "make_closure", "vm.call_tir_dyn",
    }
)  # fmt: skip
_TUPLED = frozenset({"call_dps_packed", "call_tir", "call_tir_inplace", "call_tir_with_grad"})
_TYPES_OF_RESULTS = ("sinfo_args", "ty_args", "type_args")  # by the names of three ages
_STATEMENTS = ("func_attr", "output", "dataflow", "function", "func_name", "func_ret_value")


def _call_function(fw: FunctionWalk, cst: tree.Call, name: str) -> relax.Call:
    """`R.call_tir(f, ...)` and its kin.

    A PrimFunc of the module is always called by call_tir, and a packed function by call_dps_packed, whatever the text
    wrote: the two mean the same, and which one it is depends on whether the module has a function of that name.
    """
    keywords = {k.name: k.value for k in cst.keywords}
    head = cst.args[0] if cst.args else keywords.get("gvar", keywords.get("func"))
    if head is None:
        fw.walk.fail("E0441", f"R.{name} needs the function to call", cst)
    callee = _callee(fw, head, name)
    args, kwargs = _arguments(fw, cst, 1)
    kwargs.pop("gvar", None)
    kwargs.pop("func", None)
    if len(args) > 2 and isinstance(args[2], (str, list, tuple)) and name in ("call_tir", "call_dps_packed"):
        args, kwargs = args[:2] + args[3:], {**kwargs, "dtype": args[2]}  # 2022: call_tir(f, args, shape, dtype)
    if name in _TUPLED:  # one argument stands for a tuple of one
        if args and isinstance(args[0], relax.Expr) and not isinstance(args[0], relax.Tuple):
            args = ((args[0],), *args[1:])
        elif isinstance(kwargs.get("args"), relax.Expr) and not isinstance(kwargs["args"], relax.Tuple):
            kwargs["args"] = (kwargs["args"],)
    if name in ("call_tir", "call_dps_packed") and isinstance(callee, relax.ExternFunc):
        name = "call_dps_packed"
    elif name == "call_dps_packed" and isinstance(callee, relax.GlobalVar):
        name = "call_tir"
    return _operator_call(fw, cst, name, (callee, *args), kwargs)


def _callee(fw: FunctionWalk, cst: tree.Expr, name: str) -> relax.Expr:
    if isinstance(cst, tree.Str):
        own = fw.walk.functions.get(cst.value)
        if own is not None and name.startswith(("call_tir", "call_dps")) and fw.is_prim_func(cst.value):
            return own
        return values.extern(cst.value, fw.walk.span(cst))
    if isinstance(cst, tree.Name) and fw.find(cst.id) is None:
        return fw.module_function(cst, cst.id)
    return as_expr(fw, value(fw, cst), cst)


def _call_packed(fw: FunctionWalk, cst: tree.Call) -> relax.Call:
    if not cst.args or not isinstance(cst.args[0], tree.Str):
        fw.walk.fail("E0441", "R.call_packed takes the name of a packed function first", cst)
    head = cst.args[0]
    args, kwargs = _arguments(fw, cst, 1)
    return _call_extern(fw, cst, values.extern(head.value, fw.walk.span(head)), args, kwargs)


def _call_extern(
    fw: FunctionWalk, cst: tree.Call, callee: relax.ExternFunc, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> relax.Call:
    """A call of a packed function; what it returns is what the text says, or any object."""
    types: tuple[relax.StructInfo, ...] = ()
    for name in _TYPES_OF_RESULTS:
        if name in kwargs:
            listed = kwargs.pop(name)
            types = tuple(listed) if isinstance(listed, (tuple, list)) else (listed,)
            if not all(isinstance(t, relax.StructInfo) for t in types):
                fw.walk.fail("E0442", f"`{name}` takes types", next(k for k in cst.keywords if k.name == name))
    kwargs.pop("attrs_type_key", None)
    attrs = {k: values.python_value(v) for k, v in kwargs.items()}
    positional = tuple(as_expr(fw, a, c) for a, c in zip(args, cst.args[len(cst.args) - len(args) :], strict=True))
    new_call = relax.Call(callee, positional, Attrs(attrs), types, span=fw.walk.span(cst))
    return _with_struct_info(new_call, ops.infer_struct_info(new_call))


# ---------------------------------------------------------------- forms that hold expressions


def _tuple(fw: FunctionWalk, cst: tree.Call, arguments: dict[str, tree.Expr]) -> relax.Expr:
    if cst.keywords:
        fw.walk.fail("E0441", "R.tuple takes positional arguments only", cst.keywords[0])
    args, _ = _arguments(fw, cst)
    return values.tuple_expr([as_expr(fw, a, c) for a, c in zip(args, cst.args, strict=True)], fw.walk.span(cst))


def _match_cast(fw: FunctionWalk, cst: tree.Call, arguments: dict[str, tree.Expr]) -> Cast:
    return Cast(expression(fw, arguments["value"]), struct_info(fw, arguments["struct_info"]))


_VALUE: dict[type[tree.Expr], Callable[[FunctionWalk, Any], Any]] = {
    tree.Int: _literal, tree.Float: _literal, tree.Str: _literal, tree.Const: _literal, tree.Name: _name,
    tree.Tuple: _display, tree.List: _display, tree.Dict: _dict, tree.Attribute: _attribute, tree.Call: call,
    tree.Index: _index, tree.Unary: _infix, tree.Binary: _infix, tree.Compare: _infix, tree.Bool: _logic,
    tree.IfExp: _logic, tree.Lambda: _lambda,
}  # fmt: skip
_FORMS: dict[str, Form] = {
    **SPECIAL_FORMS,
    "tuple": (("*",), 0, _tuple),
    "match_cast": (("value", "struct_info"), 2, _match_cast),
}
