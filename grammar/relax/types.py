"""Struct info from text: `R.Tensor((1, "n"), "float32")` and its kin, in all dialects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc.errors import did_you_mean
from mlcc.grammar.global_infos import resolve_device
from mlcc.grammar.quoted import parse_quoted
from mlcc.grammar.relax.scope import FunctionWalk, nodes_in
from mlcc.grammar.syntax.tree import Cst
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import INT64, NAMES, DType
from mlcc.ops import values

OBJECT = relax.ObjectStructInfo()

# Names of types that the 2022 dialect writes without `R.`.
BARE = frozenset({"Tensor", "Shape", "Prim", "Tuple", "Callable", "Object", "Any"})


def struct_info(fw: FunctionWalk, cst: Cst) -> relax.StructInfo:
    """The struct info that an annotation means. Fails for what is none."""
    found = type_of(fw, cst)
    if found is None:
        fw.walk.fail("E0400", "this is no type", cst, help="types are R.Tensor, R.Shape, R.Prim, R.Tuple, ...")
    return found


def type_of(fw: FunctionWalk, cst: Cst) -> relax.StructInfo | None:
    """The struct info that an expression means; None if it is something else."""
    if cst[0] == "const" and cst[3] is None:
        return relax.TupleStructInfo(())
    called = cst[0] == "call"
    head = cst[3] if called else cst
    name = type_name(fw, head)
    if name is None:
        if not called and fw.walk.dotted(head, fw.scope) in ("R.str", "R.dtype"):
            return relax.ObjectStructInfo(span=fw.walk.span(cst))
        if cst[0] == "name":
            found = fw.find(cst[3])
            if found is not None and isinstance(found.value, relax.StructInfo):
                return found.value
        return None
    args, kwargs = (cst[4], cst[5]) if called else ((), ())
    if name.startswith("T."):
        return _scalar_type(fw, name[2:], cst, args, kwargs)
    return _TYPES[name](fw, cst, args, _by_name(kwargs))


def type_name(fw: FunctionWalk, head: Cst) -> str | None:
    """`Tensor` for `R.Tensor`, `relax.Tensor` and `Tensor`, `T.int64` for itself; None for what names no type."""
    if head[0] == "name":
        name = head[3]
        own = name in fw.walk.functions or name in fw.walk.self_names or name == fw.walk.module_name
        return name if name in BARE and not own and fw.find(name) is None else None
    path = fw.walk.dotted(head, fw.scope)
    if path is None:
        return None
    if path == "I.StringType":
        return "Object"
    if path.startswith("T."):
        return path if _dtype_named(path[2:]) is not None else None
    name = path.removeprefix("R.")
    return name if name in _TYPES and path != name else None


def _dtype_named(name: str) -> DType | None:
    if name == "boolean":
        name = "bool"
    try:
        found = DType.of(name)
    except ValueError:
        return None
    return None if found.is_void else found


def _scalar_type(fw: FunctionWalk, name: str, cst: Cst, args: Any, kwargs: Any) -> relax.StructInfo | None:
    dtype = _dtype_named(name)
    return None if args or kwargs or dtype is None else relax.PrimStructInfo(dtype, span=fw.walk.span(cst))


def _by_name(kwargs: tuple[Cst, ...]) -> dict[str, Cst]:
    return {k[0]: k for k in kwargs}


def _sort(
    fw: FunctionWalk, cst: Cst, args: tuple[Cst, ...], kwargs: dict[str, Cst], names: tuple[str, ...]
) -> dict[str, Cst]:
    """Arguments by name. Fails for too many, doubled, or unknown ones."""
    if len(args) > len(names):
        fw.walk.fail("E0401", f"this type takes at most {len(names)} arguments", args[len(names)])
    given = dict(zip(names, args, strict=False))
    for name, keyword in kwargs.items():
        if name not in names:
            fw.walk.fail("E0401", f"this type has no argument `{name}`", keyword, help=did_you_mean(name, names))
        if name in given:
            fw.walk.fail("E0401", f"`{name}` is given twice", keyword)
        given[name] = keyword[3]
    for name in [n for n, value in given.items() if value[0] == "const" and value[3] is None]:
        del given[name]
    return given


# ---------------------------------------------------------------- dimensions


def dimensions(fw: FunctionWalk, cst: Cst) -> tuple[tir.Expr, ...]:
    """The dimensions that a tuple or list gives, each a number, an expression, or a string that holds one."""
    if cst[0] not in ("tuple", "list"):
        fw.walk.fail("E0401", "a shape is a tuple such as (1, n)", cst)
    return tuple(dimension(fw, item) for item in cst[3])


def dimension(fw: FunctionWalk, cst: Cst) -> tir.Expr:
    value = fw.scalar(parse_quoted(fw.walk, cst) if cst[0] == "str" else cst)
    if isinstance(value, int) and not isinstance(value, bool) and value < 0:
        fw.walk.fail("E0401", f"a dimension cannot be {value}", cst)
    if isinstance(value, tir.Expr) and not (isinstance(value, tir.IntImm) or str(value.dtype) == "int64"):
        fw.walk.fail("E0401", f"dimensions are int64, this is {value.dtype}", cst)
    try:
        return values.dim(value)
    except values.BadValue:
        fw.walk.fail("E0401", "a dimension is an integer expression", cst)


def introduced(fw: FunctionWalk, annotation: Cst) -> list[tuple[str, Cst, bool]]:
    """The identifiers in quotes in an annotation, with their places, and whether they are dimensions (or scalars)."""
    found = []
    for node in nodes_in(annotation):
        items: tuple[Cst, ...] = ()
        is_prim = node[0] == "call" and type_name(fw, node[3]) == "Prim"
        if node[0] in ("tuple", "list"):
            items = node[3]
        elif is_prim:
            items = tuple(k[3] for k in node[5] if k[0] == "value")
        found += [(i[3], i, not is_prim) for i in items if i[0] == "str" and i[3].isidentifier()]
    return found


# ---------------------------------------------------------------- the types


def _object(fw: FunctionWalk, cst: Cst, args: Any, kwargs: Any) -> relax.StructInfo:
    _sort(fw, cst, args, kwargs, ())
    return relax.ObjectStructInfo(span=fw.walk.span(cst))


def _tensor(fw: FunctionWalk, cst: Cst, args: Any, kwargs: Any) -> relax.StructInfo:
    given = _sort(fw, cst, args, kwargs, ("shape", "dtype", "vdevice", "ndim"))
    if "shape" in given and given["shape"][0] == "str" and "dtype" not in given:
        given["dtype"] = given.pop("shape")
    shape = _shape_of(fw, given["shape"]) if "shape" in given else None
    known = shape.struct_info if shape is not None else None
    ndim = known.ndim if isinstance(known, relax.ShapeStructInfo) else -1
    stated = _ndim(fw, given["ndim"]) if "ndim" in given else -1
    if stated != -1 and ndim not in (-1, stated):
        fw.walk.fail("E0401", f"the shape has {ndim} dimensions, ndim says {stated}", given["ndim"])
    device = _device(fw, given["vdevice"]) if "vdevice" in given else None
    dtype = tensor_dtype(fw, given["dtype"]) if "dtype" in given else None
    return relax.TensorStructInfo(shape, dtype, max(ndim, stated), device, span=fw.walk.span(cst))


def _shape_of(fw: FunctionWalk, cst: Cst) -> relax.Expr:
    """The shape of a tensor: dimensions, or a variable that holds a shape."""
    if cst[0] == "name":
        found = fw.resolve(cst)
        if isinstance(found, relax.Expr) and isinstance(found.struct_info, relax.ShapeStructInfo):
            return found
        fw.walk.fail("E0401", f"`{cst[3]}` is no shape", cst, help="a shape is a tuple such as (1, n)")
    if cst[0] == "call" and fw.walk.dotted(cst[3], fw.scope) == "R.shape" and len(cst[4]) == 1:
        cst = cst[4][0]
    return values.shape_expr(dimensions(fw, cst), fw.walk.span(cst))


def _ndim(fw: FunctionWalk, cst: Cst) -> int:
    value = fw.scalar(cst)
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value <= 64:
        fw.walk.fail("E0401", "ndim is a number of dimensions, or -1", cst)
    return value


def tensor_dtype(fw: FunctionWalk, cst: Cst) -> DType | None:
    """The dtype that a string names; `void` and the empty string leave it open."""
    value = fw.scalar(cst)
    if isinstance(value, relax.PrimStructInfo):
        return value.dtype
    if isinstance(value, DType):
        return value
    if not isinstance(value, str):
        fw.walk.fail("E0401", 'a dtype is a string such as "float32"', cst)
    if value in ("", "void"):
        return None
    try:
        return DType.of(value)
    except ValueError as problem:
        fw.walk.fail("E0312", str(problem), cst, help=did_you_mean(value, NAMES))


def _device(fw: FunctionWalk, cst: Cst) -> str:
    """A device as kind:index:scope; `cuda` is `cuda:0:global`, unless the module declares its devices."""
    value = fw.scalar(cst)
    if not isinstance(value, str) or not value or len(value.split(":")) > 3:
        fw.walk.fail("E0401", 'a device is a string such as "cuda:0"', cst)
    return resolve_device(fw.walk, value, cst)


def _shape(fw: FunctionWalk, cst: Cst, args: Any, kwargs: Any) -> relax.StructInfo:
    given = _sort(fw, cst, args, kwargs, ("values", "ndim"))
    ndim = _ndim(fw, given["ndim"]) if "ndim" in given else -1
    if "values" not in given:
        return relax.ShapeStructInfo(None, ndim, span=fw.walk.span(cst))
    dims = dimensions(fw, given["values"])
    if ndim not in (-1, len(dims)):
        fw.walk.fail("E0401", f"the shape has {len(dims)} dimensions, ndim says {ndim}", given["ndim"])
    return relax.ShapeStructInfo(dims, len(dims), span=fw.walk.span(cst))


def _prim(fw: FunctionWalk, cst: Cst, args: Any, kwargs: Any) -> relax.StructInfo:
    given = _sort(fw, cst, args, kwargs, ("dtype", "value"))
    value: Any = None
    if "value" in given:
        value = fw.scalar(parse_quoted(fw.walk, given["value"]) if given["value"][0] == "str" else given["value"])
        if not isinstance(value, tir.Expr):
            with fw.guard(given["value"]):
                value = values.dim(value)
    if "dtype" not in given:
        if value is None:
            fw.walk.fail("E0401", "R.Prim needs a dtype or a value", cst)
        return relax.PrimStructInfo(value.dtype, value, span=fw.walk.span(cst))
    dtype = tensor_dtype(fw, given["dtype"])
    if dtype is None or (value is not None and value.dtype is not dtype):
        fw.walk.fail("E0401", "the dtype is not that of the value", cst)
    return relax.PrimStructInfo(dtype, value, span=fw.walk.span(cst))


def _tuple(fw: FunctionWalk, cst: Cst, args: Any, kwargs: Any) -> relax.StructInfo:
    _sort(fw, cst, (), kwargs, ())
    if len(args) == 1 and args[0][0] in ("tuple", "list"):
        args = args[0][3]
    return relax.TupleStructInfo(tuple(struct_info(fw, a) for a in args), span=fw.walk.span(cst))


def _callable(fw: FunctionWalk, cst: Cst, args: Any, kwargs: Any) -> relax.StructInfo:
    """A function type. Quoted names that are new stand for symbolic variables of the type itself."""
    given = _sort(fw, cst, args, kwargs, ("params", "ret", "purity", "derive_func"))
    if "derive_func" in given:
        fw.walk.fail("E0401", "derive_func is not supported", given["derive_func"], help="state the type of the result")
    with fw.scope.frame(", and lives in that type only"):
        for name, place, _ in introduced(fw, given["params"]) if "params" in given else ():
            if fw.scope.find(name) is None:
                fw.define(("name", place[1], place[2], name), tir.Var(name, INT64))
        params = None
        if "params" in given:
            listed = given["params"]
            items = listed[3] if listed[0] in ("tuple", "list") else (listed,)
            params = tuple(struct_info(fw, item) for item in items)
        ret = struct_info(fw, given["ret"]) if "ret" in given else OBJECT
    pure = params is not None
    if "purity" in given:
        pure = fw.scalar(given["purity"])
        if not isinstance(pure, bool):
            fw.walk.fail("E0401", "purity is True or False", given["purity"])
    return relax.FuncStructInfo(params, ret, pure, span=fw.walk.span(cst))


def _packed(fw: FunctionWalk, cst: Cst, args: Any, kwargs: Any) -> relax.StructInfo:
    return relax.FuncStructInfo(None, OBJECT, False, span=fw.walk.span(cst))


def _distributed(fw: FunctionWalk, cst: Cst, args: Any, kwargs: Any) -> relax.StructInfo:
    fw.walk.fail("E0401", "distributed tensors are not supported", cst)


_TYPES: dict[str, Callable[[FunctionWalk, Cst, Any, Any], relax.StructInfo]] = {
    "Any": _object, "Object": _object, "Tensor": _tensor, "Shape": _shape, "Prim": _prim, "Tuple": _tuple,
    "Callable": _callable, "PackedFunc": _packed, "DTensor": _distributed,
}  # fmt: skip

__all__ = ["BARE", "dimension", "dimensions", "introduced", "struct_info", "tensor_dtype", "type_of"]
