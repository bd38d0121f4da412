"""The signature of a relax function, and what the syntax of its statements says of names."""

from __future__ import annotations

from dataclasses import dataclass

from mlcc.grammar.context import TypeVar
from mlcc.grammar.relax import types as relax_types
from mlcc.grammar.relax.scope import FunctionWalk
from mlcc.grammar.syntax.tree import Cst
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import INT64, DType
from mlcc.ir.node import replace


@dataclass
class Signature:
    """Parameters and what the text says of the result, before the body is walked."""

    params: tuple[relax.Var, ...]
    ret: relax.StructInfo | None
    pure: bool
    private: bool

    def info(self) -> relax.FuncStructInfo:
        """What callers know; a result that nobody stated may be anything."""
        params = tuple(p.struct_info or relax.ObjectStructInfo() for p in self.params)
        return relax.FuncStructInfo(params, self.ret or relax.ObjectStructInfo(), self.pure)


def read_signature(fw: FunctionWalk, cst: Cst) -> Signature:
    """Parameters with their struct info; quoted names in it introduce symbolic variables."""
    walk, parameters = fw.walk, cst[5]
    scalars: dict[str, tir.Var] = {}
    for name, start, end, annotation, _ in parameters:
        if annotation is None:
            walk.fail("E0413", f"parameter `{name}` has no type", ("name", start, end, name))
        _introduce(fw, cst, name, annotation, scalars)
    params = []
    for name, start, end, annotation, default in parameters:
        if default is not None:
            walk.note("E0413", "parameters of relax functions have no defaults", ("name", start, end, name))
        info = relax_types.struct_info(fw, annotation)
        if name in scalars and isinstance(info, relax.PrimStructInfo):
            info = replace(info, value=scalars[name])
        place = ("name", start, end, name)
        params.append(relax.Var(name, info, span=walk.span(place)))
        fw.define(place, params[-1])  # the types that follow may mention it: a shape, or a scalar
    ret = relax_types.struct_info(fw, cst[6]) if cst[6] is not None else None
    options = _options(fw, cst)
    return Signature(tuple(params), ret, options.get("pure", True), options.get("private", False))


def _introduce(fw: FunctionWalk, cst: Cst, name: str, annotation: Cst, scalars: dict[str, tir.Var]) -> None:
    """The symbolic variables of one parameter; a scalar parameter is one itself, unless its value is stated."""
    dtype = _plain_scalar(fw, annotation)
    if dtype is not None:
        scalars[name] = tir.Var(name, dtype)
        fw.scope.define(name, scalars[name])
    for word, place, is_dimension in relax_types.introduced(fw, annotation):
        found = fw.scope.find(word)
        if found is None or not isinstance(found.value, (tir.Var, TypeVar)):
            dtype = INT64 if is_dimension else _declared(fw, cst, word)
            fw.define(("name", place[1], place[2], word), fw.symbol(word, dtype))


def _declared(fw: FunctionWalk, cst: Cst, name: str) -> DType:
    """The dtype that a line `n = T.int32()` of the body gives a symbolic variable of the signature."""
    for statement in cst[8]:
        if statement[0] == "assign" and statement[5] is not None:
            for target, item in pairs(statement[3], statement[5]):
                dtype = declaration(fw, item)
                if dtype is not None and target[0] == "name" and target[3] == name:
                    return dtype
    return INT64


def _options(fw: FunctionWalk, cst: Cst) -> dict[str, bool]:
    found: dict[str, bool] = {}
    for decorator in cst[7]:
        if decorator[0] != "call":
            continue
        for name, start, end, item in decorator[5]:
            if name not in ("pure", "private", "check_well_formed"):
                fw.walk.note("E0413", f"R.function has no option `{name}`", ("name", start, end, name))
            elif item[0] != "const" or not isinstance(item[3], bool):
                fw.walk.note("E0413", f"`{name}` is True or False", item)
            else:
                found[name] = item[3]
    return found


# ---------------------------------------------------------------- parts of syntax


def pairs(target: Cst, item: Cst) -> list[tuple[Cst, Cst]]:
    """Names beside values: `a, b = x, y` is two bindings."""
    if target[0] in ("tuple", "list") and item[0] in ("tuple", "list") and len(target[3]) == len(item[3]):
        return list(zip(target[3], item[3], strict=True))
    return [(target, item)]


def bound_names(statement: Cst) -> list[Cst]:
    """The names that a statement binds, as syntax nodes, in order."""
    kind = statement[0]
    if kind == "assign":
        return _target_names(statement[3])
    if kind == "def":
        return [("name", *statement[4], statement[3])]
    if kind == "with":
        return [name for inner in statement[4] for name in bound_names(inner)]
    if kind == "if":
        found = [bound_names(branch[-1]) for branch in (statement[4], statement[5]) if branch]
        return found[0][-1:] if found else []
    return []


def _target_names(target: Cst) -> list[Cst]:
    if target[0] in ("tuple", "list"):
        return [name for part in target[3] for name in _target_names(part)]
    return [target] if target[0] == "name" else []


def last_bound(body: tuple[Cst, ...], outputs: tuple[Cst, ...]) -> set[int]:
    """Where the outputs of a block are bound for the last time."""
    places = {name[3]: name[1] for statement in body for name in bound_names(statement)}
    return {places[o[3]] for o in outputs if o[3] in places}


def declaration(fw: FunctionWalk, cst: Cst) -> DType | None:
    """The dtype in `T.int64()`, `T.var("int64")` and `TypeVar("n")`, which declare symbolic variables."""
    if cst[0] != "call" or cst[5]:
        return None
    head, args = cst[3], cst[4]
    if head[0] == "name" and head[3] == "TypeVar":
        return INT64 if len(args) == 1 and args[0][0] == "str" else None
    path = fw.walk.dotted(head, fw.scope)
    if path is None or not path.startswith("T."):
        return None
    name = path[2:]
    if name in ("var", "Var") and args and args[-1][0] == "str":
        name, args = args[-1][3], ()
    if args:
        return None
    found = relax_types.type_of(fw, ("attr", cst[1], cst[2], ("name", cst[1], cst[2], "T"), name))
    return found.dtype if isinstance(found, relax.PrimStructInfo) else None


def _plain_scalar(fw: FunctionWalk, annotation: Cst) -> DType | None:
    """The dtype of a scalar type whose value is not stated: `R.Prim("int64")`, `T.int64`."""
    head = annotation[3] if annotation[0] == "call" else annotation
    name = relax_types.type_name(fw, head)
    if name is None or (name != "Prim" and not name.startswith("T.")):
        return None
    if annotation[0] == "call" and any(k[0] == "value" for k in annotation[5]):
        return None
    info = relax_types.struct_info(fw, annotation)
    return info.dtype if isinstance(info, relax.PrimStructInfo) else None
