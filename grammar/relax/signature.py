"""The signature of a relax function, and names bound by its statements' syntax."""

from __future__ import annotations

from dataclasses import dataclass

from mlcc.grammar.context import TypeVar
from mlcc.grammar.relax import types as relax_types
from mlcc.grammar.relax.scope import FunctionWalk
from mlcc.grammar.syntax import tree
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import INT64, DType
from mlcc.ir.node import replace


@dataclass
class Signature:
    """Parameters and result annotation, before the body is walked."""

    params: tuple[relax.Var, ...]
    ret: relax.StructInfo | None
    pure: bool
    private: bool

    def info(self) -> relax.FuncStructInfo:
        """The struct info at call sites; a result without annotation is an object."""
        params = tuple(p.struct_info or relax.ObjectStructInfo() for p in self.params)
        return relax.FuncStructInfo(params, self.ret or relax.ObjectStructInfo(), self.pure)


def read_signature(fw: FunctionWalk, cst: tree.Def) -> Signature:
    """Parameters with their struct info; quoted names in it introduce symbolic variables."""
    walk, parameters = fw.walk, cst.parameters
    scalars: dict[str, tir.Var] = {}
    annotated: list[tuple[tree.Parameter, tree.Expr]] = []
    for parameter in parameters:
        if parameter.annotation is None:
            help = f'such as `{parameter.name}: R.Tensor((4, "n"), "float32")`'
            walk.fail("E0413", f"parameter `{parameter.name}` needs a type annotation", parameter, help=help)
        annotated.append((parameter, parameter.annotation))
        _introduce(fw, cst, parameter.name, parameter.annotation, scalars)
    params = []
    for parameter, annotation in annotated:
        name = parameter.name
        if parameter.default is not None:
            walk.note("E0413", "parameters of relax functions cannot have default values", parameter)
        info = relax_types.struct_info(fw, annotation)
        if name in scalars and isinstance(info, relax.PrimStructInfo):
            info = replace(info, value=scalars[name])
        params.append(relax.Var(name, info, span=walk.span(parameter)))
        fw.define(parameter.place, params[-1])  # the types that follow may mention it: a shape, or a scalar
    ret = relax_types.struct_info(fw, cst.returns) if cst.returns is not None else None
    options = _options(fw, cst)
    return Signature(tuple(params), ret, options.get("pure", True), options.get("private", False))


def _introduce(fw: FunctionWalk, cst: tree.Def, name: str, annotation: tree.Expr, scalars: dict[str, tir.Var]) -> None:
    """The symbolic variables of one parameter; a scalar parameter is one itself, unless its value is stated."""
    dtype = _plain_scalar(fw, annotation)
    if dtype is not None:
        scalars[name] = tir.Var(name, dtype)
        fw.scope.define(name, scalars[name])
    for word, place, is_dimension in relax_types.quoted_identifiers(fw, annotation):
        binding = fw.scope.find(word)
        if binding is None or not isinstance(binding.value, (tir.Var, TypeVar)):
            dtype = INT64 if is_dimension else _declared(fw, cst, word)
            fw.define(tree.Name(place.start, place.end, word), fw.symbol(word, dtype))


def _declared(fw: FunctionWalk, cst: tree.Def, name: str) -> DType:
    """The dtype that a line `n = T.int32()` of the body gives a symbolic variable of the signature."""
    for statement in cst.body:
        if isinstance(statement, tree.Assign) and statement.value is not None:
            for target, item in pairs(statement.target, statement.value):
                dtype = declaration(fw, item)
                if dtype is not None and isinstance(target, tree.Name) and target.id == name:
                    return dtype
    return INT64


def _options(fw: FunctionWalk, cst: tree.Def) -> dict[str, bool]:
    options: dict[str, bool] = {}
    for decorator in cst.decorators:
        if not isinstance(decorator, tree.Call):
            continue
        for keyword in decorator.keywords:
            name, item = keyword.name, keyword.value
            if name not in ("pure", "private", "check_well_formed"):
                fw.walk.note("E0413", f"R.function has no option `{name}`", keyword)
            elif not isinstance(item, tree.Const) or not isinstance(item.value, bool):
                fw.walk.note("E0413", f"`{name}` must be True or False", item)
            else:
                options[name] = item.value
    return options


# ---------------------------------------------------------------- parts of syntax


def pairs(target: tree.Expr, item: tree.Expr) -> list[tuple[tree.Expr, tree.Expr]]:
    """Names beside values: `a, b = x, y` is two bindings."""
    if isinstance(target, tree.Display) and isinstance(item, tree.Display) and len(target.items) == len(item.items):
        return list(zip(target.items, item.items, strict=True))
    return [(target, item)]


def bound_names(statement: tree.Stmt) -> list[tree.Name]:
    """The names that a statement binds, as syntax nodes, in order."""
    if isinstance(statement, tree.Assign):
        return _target_names(statement.target)
    if isinstance(statement, tree.Def):
        return [statement.place]
    if isinstance(statement, tree.With):
        return [name for inner in statement.body for name in bound_names(inner)]
    if isinstance(statement, tree.If):
        branches = [bound_names(branch[-1]) for branch in (statement.then, statement.other) if branch]
        return branches[0][-1:] if branches else []
    return []


def _target_names(target: tree.Expr) -> list[tree.Name]:
    if isinstance(target, tree.Display):
        return [name for part in target.items for name in _target_names(part)]
    return [target] if isinstance(target, tree.Name) else []


def last_binding_offsets(body: tree.Body, outputs: tuple[tree.Name, ...]) -> set[int]:
    """Return the positions of the last bindings of a block's outputs."""
    places = {name.id: name.start for statement in body for name in bound_names(statement)}
    return {places[o.id] for o in outputs if o.id in places}


def declaration(fw: FunctionWalk, cst: tree.Expr) -> DType | None:
    """The dtype in `T.int64()`, `T.var("int64")` and `TypeVar("n")`, which declare symbolic variables."""
    if not isinstance(cst, tree.Call) or cst.keywords:
        return None
    head, args = cst.function, cst.args
    if isinstance(head, tree.Name) and head.id == "TypeVar":
        return INT64 if len(args) == 1 and isinstance(args[0], tree.Str) else None
    path = fw.walk.dotted(head, fw.scope)
    if path is None or not path.startswith("T."):
        return None
    name = path[2:]
    if name in ("var", "Var") and args and isinstance(args[-1], tree.Str):
        name, args = args[-1].value, ()
    if args:
        return None
    named = tree.Attribute(cst.start, cst.end, tree.Name(cst.start, cst.end, "T"), name)
    info = relax_types.type_of(fw, named)
    return info.dtype if isinstance(info, relax.PrimStructInfo) else None


def _plain_scalar(fw: FunctionWalk, annotation: tree.Expr) -> DType | None:
    """The dtype of a scalar type whose value is not stated: `R.Prim("int64")`, `T.int64`."""
    name = relax_types.type_name(fw, tree.callee_of(annotation))
    if name is None or (name != "Prim" and not name.startswith("T.")):
        return None
    if isinstance(annotation, tree.Call) and any(k.name == "value" for k in annotation.keywords):
        return None
    info = relax_types.struct_info(fw, annotation)
    return info.dtype if isinstance(info, relax.PrimStructInfo) else None
