"""Graph-level expressions from text: names, tuples, operators, calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlcc import ops
from mlcc.errors import did_you_mean
from mlcc.grammar.context import Scope
from mlcc.grammar.global_infos import resolve_device
from mlcc.grammar.metadata import metadata_key
from mlcc.grammar.relax import const as relax_const
from mlcc.grammar.relax.forms import FORMS, Form, sort_arguments
from mlcc.grammar.relax.scope import MODULE, FunctionWalk
from mlcc.grammar.relax.types import struct_info, type_of
from mlcc.grammar.syntax.tree import Cst
from mlcc.grammar.tir.parts import index_map_of
from mlcc.grammar.tir.values import Evaluator
from mlcc.ir import relax, tir
from mlcc.ir.node import Attrs
from mlcc.ir.visit import substitute
from mlcc.ops import relations, values
from mlcc.ops.relations import Fit
from mlcc.ops.signature import signature


@dataclass(frozen=True)
class Cast:
    """`R.match_cast(value, struct_info)`, which only a binding can take."""

    value: relax.Expr
    struct_info: relax.StructInfo


# ---------------------------------------------------------------- any value


def expression(fw: FunctionWalk, cst: Cst) -> relax.Expr:
    """A graph-level expression, nested as the text has it."""
    return as_expr(fw, value(fw, cst), cst)


def as_expr(fw: FunctionWalk, made: Any, cst: Cst) -> relax.Expr:
    """A value as a graph-level expression. Fails for what is none."""
    if isinstance(made, Cast):
        fw.walk.fail("E0405", "R.match_cast stands alone on the right of `=`", cst)
    if made is MODULE:
        fw.walk.fail("E0406", "the module itself is no value", cst)
    if isinstance(made, relax.StructInfo):
        fw.walk.fail("E0406", "a type is no value", cst)
    if isinstance(made, relax.GlobalVar):
        return _as_value(made)
    try:
        return values.expr(made, fw.walk.span(cst))
    except values.BadValue as problem:
        fw.walk.fail("E0406", f"an expression is needed here; this {problem}", cst)


def _as_value(function: relax.GlobalVar) -> relax.GlobalVar:
    """A function of the module as a value: its type has symbolic variables of its own."""
    info = function.struct_info
    if info is None:
        info = relax.FuncStructInfo(None, relax.ObjectStructInfo(), False)
        return relax.GlobalVar(function.name, info, span=function.span)
    renamed = {v: tir.Var(v.name, v.dtype) for v in relations.variables(info)}
    return relax.GlobalVar(function.name, substitute(info, renamed), span=function.span)


def value(fw: FunctionWalk, cst: Cst) -> Any:
    """What an expression means: a graph-level expression, a scalar, a type, a Python value, or several of these."""
    kind = cst[0]
    if kind in ("int", "float", "str", "const"):
        if cst[3] is Ellipsis:
            fw.walk.fail("E0406", "`...` is no value", cst, "something is still to be written here")
        return cst[3]
    if kind == "name":
        return _name(fw, cst)
    if kind == "tuple":
        return tuple(value(fw, item) for item in cst[3])
    if kind == "list":
        return [value(fw, item) for item in cst[3]]
    if kind == "dict":
        return _dict(fw, cst)
    if kind == "attr":
        return _attribute(fw, cst)
    if kind == "call":
        return call(fw, cst)
    if kind == "index":
        return _index(fw, cst)
    if kind in ("binary", "compare", "unary") and fw.is_graph_level(cst):
        return _operator(fw, cst)
    if kind in ("binary", "compare", "unary", "bool", "ifexp"):
        return fw.scalar(cst)
    if kind == "lambda":
        with fw.guard(cst):
            return index_map_of(Evaluator(fw.walk, Scope(fw.scalars)), cst)
    fw.walk.fail("E0406", "this cannot stand in a relax function", cst)


def _name(fw: FunctionWalk, cst: Cst) -> Any:
    found = type_of(fw, cst)
    return found if found is not None else fw.resolve(cst)


def _dict(fw: FunctionWalk, cst: Cst) -> Attrs:
    made = {}
    for key, item in cst[3]:
        name = value(fw, key)
        if not isinstance(name, str):
            fw.walk.fail("E0407", "keys are strings here", key)
        made[name] = values.plain(value(fw, item))
    return Attrs(made)


def _attribute(fw: FunctionWalk, cst: Cst) -> Any:
    """`cls.f`, or a type such as `R.Object` and `T.int64`."""
    found = type_of(fw, cst)
    if found is not None:
        return found
    if is_module(fw, cst[3]):
        return fw.member(cst, cst[4])
    path = fw.walk.dotted(cst, fw.scope)
    if path is not None:
        fw.walk.fail("E0406", f"`{path}` is no value", cst)
    fw.walk.fail("E0406", f"values of a relax function have no attribute `{cst[4]}`", cst)


def is_module(fw: FunctionWalk, cst: Cst) -> bool:
    """Whether an expression is the module itself: its name, or `cls`."""
    if cst[0] != "name":
        return False
    found = fw.scope.find(cst[3])
    if found is not None:
        return found.value is MODULE
    return cst[3] in fw.walk.self_names or cst[3] == fw.walk.module_name


def _index(fw: FunctionWalk, cst: Cst) -> Any:
    """An item of a tuple, or metadata."""
    if cst[3][0] == "index" and fw.walk.strings:
        text = fw.walk.strings.get(metadata_key(cst) or "")
        if text is not None:
            return text
    found = relax_const.metadata(fw, cst)
    if found is not None:
        return found
    if len(cst[4]) != 1 or cst[4][0][0] == "slice":
        fw.walk.fail("E0408", "a tuple is indexed by one number", cst)
    at = values.plain(fw.scalar(cst[4][0]))
    base = value(fw, cst[3])
    if isinstance(at, bool) or not isinstance(at, int):
        fw.walk.fail("E0408", "a tuple is indexed by a number", cst[4][0])
    if isinstance(base, (tuple, list)):
        if not -len(base) <= at < len(base):
            fw.walk.fail("E0408", f"the tuple has {len(base)} items, there is no item {at}", cst[4][0])
        return base[at]
    return item(fw, as_expr(fw, base, cst[3]), at, cst)


def item(fw: FunctionWalk, base: relax.Expr, at: int, cst: Cst) -> relax.TupleGetItem:
    """`base[at]`; negative numbers count from the end of a tuple of known length."""
    known = base.struct_info
    if isinstance(known, relax.TupleStructInfo):
        size = len(known.fields)
        if not -size <= at < size:
            fw.walk.fail("E0408", f"the tuple has {size} items, there is no item {at}", cst)
        at %= max(size, 1)
        return relax.TupleGetItem(base, at, known.fields[at], span=fw.walk.span(cst))
    if known is not None and not isinstance(known, relax.ObjectStructInfo):
        fw.walk.fail("E0408", "only tuples are indexed", cst, help="R.take and R.strided_slice select from a tensor")
    if at < 0:
        fw.walk.fail("E0408", f"item {at} of a tuple whose length is not known", cst)
    return relax.TupleGetItem(base, at, relax.ObjectStructInfo(), span=fw.walk.span(cst))


# ---------------------------------------------------------------- operators

_BINARY = {
    "+": "add", "-": "subtract", "*": "multiply", "/": "divide", "//": "floor_divide", "%": "mod", "**": "power",
    "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal",
}  # fmt: skip


def _operator(fw: FunctionWalk, cst: Cst) -> relax.Expr:
    """Infix operators on tensors; a Python number takes the dtype of the tensor beside it."""
    if cst[0] == "unary":
        if cst[3] != "-":
            fw.walk.fail(
                "E0406", f"tensors have no operator `{cst[3]}`", cst, help="use an operator such as R.logical_not"
            )
        return _bind(fw, cst, "negative", (expression(fw, cst[4]),), {})
    name = _BINARY.get(cst[3])
    if name is None:
        fw.walk.fail("E0406", f"tensors have no operator `{cst[3]}`", cst, help="use an operator such as R.equal")
    sides = [value(fw, cst[4]), value(fw, cst[5])]
    for at, other in ((0, 1), (1, 0)):
        if isinstance(sides[at], (bool, int, float)):
            info = sides[other].struct_info if isinstance(sides[other], relax.Expr) else None
            dtype = info.dtype if isinstance(info, relax.TensorStructInfo) else None
            sides[at] = relax_const.number(fw, cst[4 + at], sides[at], dtype)
    return _bind(fw, cst, name, tuple(as_expr(fw, s, c) for s, c in zip(sides, cst[4:6], strict=True)), {})


# ---------------------------------------------------------------- calls


def call(fw: FunctionWalk, cst: Cst) -> Any:
    """A call: of an operator, a form of the language, a function of the module, or a closure."""
    head = cst[3]
    found = type_of(fw, cst)
    if found is not None:
        return found
    path = fw.walk.dotted(head, fw.scope)
    if path is None:
        return _call_value(fw, cst)
    if path.startswith("R."):
        name = path[2:].removeprefix("op.")
        form = _FORMS.get(name)
        if form is not None:
            names, required, make = form
            return make(fw, cst, sort_arguments(fw, cst, names, required))
        if name in _CALLEES:
            return _call_function(fw, cst, name)
        if name == "call_packed":
            return _call_packed(fw, cst)
        if name in _STATEMENTS:
            fw.walk.fail("E0405", f"R.{name} is a statement of its own", cst)
        args, kwargs = _arguments(fw, cst)
        if name == "to_vdevice":
            args, kwargs = _with_device(fw, cst, args, kwargs)
        return _bind(fw, cst, name, args, kwargs)
    if path.startswith("T."):
        return fw.scalar(cst)
    if path in ("I.meta_var",) and len(cst[4]) == 1:
        return value(fw, cst[4][0])
    fw.walk.fail("E0406", f"`{path}` cannot be called here", cst)


def _arguments(fw: FunctionWalk, cst: Cst, skip: int = 0) -> tuple[tuple[Any, ...], dict[str, Any]]:
    for argument in cst[4]:
        if argument[0] == "star":
            fw.walk.fail("E0406", "a tuple is not unpacked in a call", argument, help="write its items one by one")
    args = tuple(value(fw, a) for a in cst[4][skip:])
    kwargs = {k[0]: value(fw, k[3]) for k in cst[5]}
    for made, at in zip((*args, *kwargs.values()), (*cst[4][skip:], *(k[3] for k in cst[5])), strict=True):
        if isinstance(made, Cast) or made is MODULE:
            as_expr(fw, made, at)
    return args, kwargs


def _with_device(
    fw: FunctionWalk, cst: Cst, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of `R.to_vdevice` with the full name of the device."""
    if len(args) == 2 and isinstance(args[1], str):
        args = (args[0], resolve_device(fw.walk, args[1], cst[4][1]))
    elif isinstance(kwargs.get("dst_vdevice"), str):
        place = next(k[3] for k in cst[5] if k[0] == "dst_vdevice")
        kwargs = {**kwargs, "dst_vdevice": resolve_device(fw.walk, kwargs["dst_vdevice"], place)}
    return args, kwargs


def _bind(fw: FunctionWalk, cst: Cst, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> relax.Call:
    """The call of an operator."""
    if not ops.is_operator(name):
        known = [*(n.removeprefix("relax.") for n in ops.names()), *_FORMS, *_CALLEES, "call_packed", *_STATEMENTS]
        fw.walk.fail("E0440", f"there is no operator `R.{name}`", cst[3], help=did_you_mean(name, known))
    stated = _stated(fw, cst, name, kwargs)
    with fw.guard(cst):
        made = ops.bind_call(name, args, kwargs, fw.walk.span(cst))
    inferred = made.struct_info
    if stated is not None and inferred is not None and relations.fit(stated, inferred) is not Fit.COVERS:
        from mlcc.grammar.relax.known import text_of

        fw.walk.fail("E0411", f"the result is {text_of(inferred)}, not {text_of(stated)}", cst)
    return made if made.struct_info is not None else _known(made, None)


def _stated(fw: FunctionWalk, cst: Cst, name: str, kwargs: dict[str, Any]) -> relax.StructInfo | None:
    """The result's type, taken out of `sinfo_args=(type,)` of an operator that infers it."""
    found = next((k for k in _TYPES_OF_RESULTS if k in kwargs), None)
    known = signature(name.removeprefix("relax."))
    if found is None or known is None or any(p.is_types for p in known.params):
        return None
    given = kwargs.pop(found)
    types = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    if len(types) != 1 or not isinstance(types[0], relax.StructInfo):
        fw.walk.fail("E0442", f"`{found}` takes the type of the result", next(k for k in cst[5] if k[0] == found)[3])
    return types[0]


def _known(made: relax.Call, info: relax.StructInfo | None) -> relax.Call:
    """A call with what is known of its result: at worst that it is some object."""
    return relax.Call(made.op, made.args, made.attrs, made.sinfo_args, info or relax.ObjectStructInfo(), span=made.span)


def _call_value(fw: FunctionWalk, cst: Cst) -> relax.Call:
    """A call of what an expression gives: a function of the module, a closure, a packed function."""
    head = cst[3]
    if head[0] == "attr" and not is_module(fw, head[3]):
        method = _method(fw, cst)
        if method is not None:
            return method
    callee = value(fw, head)
    args, kwargs = _arguments(fw, cst)
    if isinstance(callee, relax.ExternFunc):
        return _packed(fw, cst, callee, args, kwargs)
    if kwargs:
        fw.walk.fail("E0406", "functions take their arguments by position", cst[5][0])
    if not isinstance(callee, (relax.GlobalVar, relax.Var, relax.Call, relax.TupleGetItem)):
        fw.walk.fail("E0406", "this is no function, it cannot be called", head)
    op = callee if isinstance(callee, (relax.GlobalVar, relax.Var)) else fw.leaf(callee)
    given = tuple(as_expr(fw, a, c) for a, c in zip(args, cst[4], strict=True))
    made = relax.Call(op, given, span=fw.walk.span(cst))
    if isinstance(op, relax.GlobalVar) and fw.is_prim_func(op.name):
        return _known(made, _written(fw, op.name))
    with fw.guard(cst):
        info = ops.infer_struct_info(made, fw.walk.functions)
    return _known(made, info)


def _written(fw: FunctionWalk, name: str) -> relax.StructInfo:
    """What a call of a PrimFunc gives: a scalar if it says that it returns one, else nothing."""
    dtype = fw.walk.return_dtypes.get(name)
    return relax.TupleStructInfo(()) if dtype is None else relax.PrimStructInfo(dtype)


def _method(fw: FunctionWalk, cst: Cst) -> relax.Call | None:
    """`x.astype("float16")`, the one method that tensors have."""
    head = cst[3]
    if head[4] != "astype" or fw.walk.dotted(head, fw.scope) is not None or len(cst[4]) != 1:
        return None
    return _bind(fw, cst, "astype", (expression(fw, head[3]), value(fw, cst[4][0])), {})


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


def _call_function(fw: FunctionWalk, cst: Cst, name: str) -> relax.Call:
    """`R.call_tir(f, ...)` and its kin.

    A PrimFunc of the module is always called by call_tir, and a packed function by call_dps_packed, whatever the text
    wrote: the two mean the same, and which one it is depends on whether the module has a function of that name.
    """
    keyword = {k[0]: k for k in cst[5]}
    first = next((n for n in ("gvar", "func") if n in keyword), None)
    if not cst[4] and first is None:
        fw.walk.fail("E0441", f"R.{name} lacks the function to call", cst)
    head = cst[4][0] if cst[4] else keyword[first][3]
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
    return _bind(fw, cst, name, (callee, *args), kwargs)


def _callee(fw: FunctionWalk, cst: Cst, name: str) -> relax.Expr:
    if cst[0] == "str":
        own = fw.walk.functions.get(cst[3])
        if own is not None and name.startswith(("call_tir", "call_dps")) and fw.is_prim_func(cst[3]):
            return own
        return values.extern(cst[3], fw.walk.span(cst))
    if cst[0] == "name" and fw.find(cst[3]) is None:
        return fw.member(cst, cst[3])
    return as_expr(fw, value(fw, cst), cst)


def _call_packed(fw: FunctionWalk, cst: Cst) -> relax.Call:
    if not cst[4] or cst[4][0][0] != "str":
        fw.walk.fail("E0441", "R.call_packed takes the name of a packed function first", cst)
    head = cst[4][0]
    args, kwargs = _arguments(fw, cst, 1)
    return _packed(fw, cst, values.extern(head[3], fw.walk.span(head)), args, kwargs)


def _packed(
    fw: FunctionWalk, cst: Cst, callee: relax.ExternFunc, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> relax.Call:
    """A call of a packed function; what it returns is what the text says, or any object."""
    types: tuple[relax.StructInfo, ...] = ()
    for name in _TYPES_OF_RESULTS:
        if name in kwargs:
            listed = kwargs.pop(name)
            types = tuple(listed) if isinstance(listed, (tuple, list)) else (listed,)
            if not all(isinstance(t, relax.StructInfo) for t in types):
                fw.walk.fail("E0442", f"`{name}` takes types", next(k for k in cst[5] if k[0] == name))
    kwargs.pop("attrs_type_key", None)
    attrs = {k: values.plain(v) for k, v in kwargs.items()}
    given = tuple(as_expr(fw, a, c) for a, c in zip(args, cst[4][len(cst[4]) - len(args) :], strict=True))
    made = relax.Call(callee, given, Attrs(attrs), types, span=fw.walk.span(cst))
    return _known(made, ops.infer_struct_info(made))


# ---------------------------------------------------------------- forms that hold expressions


def _tuple(fw: FunctionWalk, cst: Cst, given: dict[str, Cst]) -> relax.Expr:
    if cst[5]:
        fw.walk.fail("E0441", "R.tuple takes its items by position", cst[5][0])
    args, _ = _arguments(fw, cst)
    return values.tuple_expr([as_expr(fw, a, c) for a, c in zip(args, cst[4], strict=True)], fw.walk.span(cst))


def _match_cast(fw: FunctionWalk, cst: Cst, given: dict[str, Cst]) -> Cast:
    return Cast(expression(fw, given["value"]), struct_info(fw, given["struct_info"]))


_FORMS: dict[str, Form] = {
    **FORMS,
    "tuple": (("*",), 0, _tuple),
    "match_cast": (("value", "struct_info"), 2, _match_cast),
}
