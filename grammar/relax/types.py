"""Struct info from text: `R.Tensor((1, "n"), "float32")` and its kin, in all dialects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc.errors import did_you_mean
from mlcc.grammar.global_infos import resolve_device
from mlcc.grammar.quoted_expressions import parse_quoted
from mlcc.grammar.relax.scope import FunctionWalk
from mlcc.grammar.syntax import tree
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import INT64, NAMES, DType
from mlcc.ops import values

OBJECT = relax.ObjectStructInfo()

# Names of types that the 2022 dialect writes without `R.`.
BARE = frozenset({"Tensor", "Shape", "Prim", "Tuple", "Callable", "Object", "Any"})


def struct_info(fw: FunctionWalk, cst: tree.Expr) -> relax.StructInfo:
    """Return the struct info of an annotation; reports an error if it is none."""
    info = type_of(fw, cst)
    if info is None:
        fw.walk.fail("E0400", "this is not a type", cst, help="types are R.Tensor, R.Shape, R.Prim, R.Tuple, ...")
    return info


def type_of(fw: FunctionWalk, cst: tree.Expr) -> relax.StructInfo | None:
    """The struct info that an expression means; None if it is something else."""
    if tree.unless_none(cst) is None:
        return relax.TupleStructInfo(())
    head, args, kwargs = cst, tuple[tree.Expr, ...](), tuple[tree.Keyword, ...]()
    if isinstance(cst, tree.Call):
        head, args, kwargs = cst.function, cst.args, cst.keywords
    name = type_name(fw, head)
    if name is None:
        if head is cst and fw.walk.dotted(head, fw.scope) in ("R.str", "R.dtype"):
            return relax.ObjectStructInfo(span=fw.walk.span(cst))
        if isinstance(cst, tree.Name):
            binding = fw.find(cst.id)
            if binding is not None and isinstance(binding.value, relax.StructInfo):
                return binding.value
        return None
    if name.startswith("T."):
        return _scalar_type(fw, name[2:], cst, args, kwargs)
    return _TYPES[name](fw, cst, args, _by_name(kwargs))


def type_name(fw: FunctionWalk, head: tree.Expr) -> str | None:
    """Return the name of a type, such as `Tensor` for `relax.Tensor` and `T.int64` for itself; None for other names."""
    if isinstance(head, tree.Name):
        name = head.id
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
        dtype = DType.of(name)
    except ValueError:
        return None
    return None if dtype.is_void else dtype


def _scalar_type(fw: FunctionWalk, name: str, cst: tree.Expr, args: Any, kwargs: Any) -> relax.StructInfo | None:
    dtype = _dtype_named(name)
    return None if args or kwargs or dtype is None else relax.PrimStructInfo(dtype, span=fw.walk.span(cst))


def _by_name(kwargs: tuple[tree.Keyword, ...]) -> dict[str, tree.Keyword]:
    return {k.name: k for k in kwargs}


def _sort(
    fw: FunctionWalk,
    cst: tree.Expr,
    args: tuple[tree.Expr, ...],
    kwargs: dict[str, tree.Keyword],
    names: tuple[str, ...],
) -> dict[str, tree.Expr]:
    """Arguments by name. Fails for too many, doubled, or unknown ones."""
    if len(args) > len(names):
        fw.walk.fail("E0401", f"this type takes at most {len(names)} arguments", args[len(names)])
    arguments = dict(zip(names, args, strict=False))
    for name, keyword in kwargs.items():
        if name not in names:
            fw.walk.fail("E0401", f"this type has no argument `{name}`", keyword, help=did_you_mean(name, names))
        if name in arguments:
            fw.walk.fail("E0401", f"`{name}` is given twice", keyword)
        arguments[name] = keyword.value
    return {name: value for name, value in arguments.items() if tree.unless_none(value) is not None}


# ---------------------------------------------------------------- dimensions


def dimensions(fw: FunctionWalk, cst: tree.Expr) -> tuple[tir.Expr, ...]:
    """The dimensions that a tuple or list gives, each a number, an expression, or a string that holds one."""
    listed = fw.scope.get(cst.id) if isinstance(cst, tree.Name) else None
    if isinstance(listed, (tuple, list)):
        return _listed(fw, listed, cst)
    if not isinstance(cst, tree.Display):
        help = 'put the sizes into brackets: R.Tensor((1, "n"), "float32")'
        fw.walk.fail("E0401", "a shape must be a tuple such as (1, n)", cst, help=help)
    return tuple(dimension(fw, item) for item in cst.items)


def _listed(fw: FunctionWalk, sizes: tuple[Any, ...] | list[Any], cst: tree.Expr) -> tuple[tir.Expr, ...]:
    """The dimensions in a tuple that a name stands for."""
    return tuple(_checked(fw, size, cst) for size in sizes)


def dimension(fw: FunctionWalk, cst: tree.Expr) -> tir.Expr:
    return _checked(fw, fw.scalar(parse_quoted(fw.walk, cst) if isinstance(cst, tree.Str) else cst), cst)


def _checked(fw: FunctionWalk, value: Any, cst: tree.Expr) -> tir.Expr:
    """A value as a dimension. Reports an error for what is none."""
    if isinstance(value, int) and not isinstance(value, bool) and value < 0:
        fw.walk.fail("E0401", f"a dimension cannot be {value}", cst)
    if isinstance(value, tir.Expr) and not (isinstance(value, tir.IntImm) or str(value.dtype) == "int64"):
        fw.walk.fail("E0401", f"dimensions must be int64, but this is {value.dtype}", cst)
    try:
        return values.dim(value)
    except values.InvalidValue:
        fw.walk.fail("E0401", "a dimension must be an integer expression", cst)


def quoted_identifiers(fw: FunctionWalk, annotation: tree.Expr) -> list[tuple[str, tree.Str, bool]]:
    """The identifiers in quotes in an annotation, with their places, and whether they are dimensions (or scalars)."""
    identifiers = []
    for node in tree.nodes(annotation):
        items: tuple[tree.Expr, ...] = ()
        if isinstance(node, tree.Display):
            items = node.items
        elif isinstance(node, tree.Call) and type_name(fw, node.function) == "Prim":
            items = tuple(k.value for k in node.keywords if k.name == "value")
        quoted = [i for i in items if isinstance(i, tree.Str) and i.value.isidentifier()]
        identifiers += [(i.value, i, isinstance(node, tree.Display)) for i in quoted]
    return identifiers


# ---------------------------------------------------------------- the types


def _object(fw: FunctionWalk, cst: tree.Expr, args: Any, kwargs: Any) -> relax.StructInfo:
    _sort(fw, cst, args, kwargs, ())
    return relax.ObjectStructInfo(span=fw.walk.span(cst))


def _tensor(fw: FunctionWalk, cst: tree.Expr, args: Any, kwargs: Any) -> relax.StructInfo:
    arguments = _sort(fw, cst, args, kwargs, ("shape", "dtype", "vdevice", "ndim"))
    if "shape" in arguments and isinstance(arguments["shape"], tree.Str) and "dtype" not in arguments:
        arguments["dtype"] = arguments.pop("shape")
    shape = _shape_of(fw, arguments["shape"]) if "shape" in arguments else None
    known = shape.struct_info if shape is not None else None
    ndim = known.ndim if isinstance(known, relax.ShapeStructInfo) else -1
    stated = _ndim(fw, arguments["ndim"]) if "ndim" in arguments else -1
    if stated != -1 and ndim not in (-1, stated):
        fw.walk.fail("E0401", f"the shape has {ndim} dimensions, but ndim={stated}", arguments["ndim"])
    device = _device(fw, arguments["vdevice"]) if "vdevice" in arguments else None
    dtype = tensor_dtype(fw, arguments["dtype"]) if "dtype" in arguments else None
    return relax.TensorStructInfo(shape, dtype, max(ndim, stated), device, span=fw.walk.span(cst))


def _shape_of(fw: FunctionWalk, cst: tree.Expr) -> relax.Expr:
    """The shape of a tensor: dimensions, or a variable that holds a shape."""
    if isinstance(cst, tree.Name):
        shape = fw.resolve(cst)
        if isinstance(shape, relax.Expr) and isinstance(shape.struct_info, relax.ShapeStructInfo):
            return shape
        if isinstance(shape, (tuple, list)):
            return values.shape_expr(_listed(fw, shape, cst), fw.walk.span(cst))
        fw.walk.fail("E0401", f"`{cst.id}` is not a shape", cst, help="a shape must be a tuple such as (1, n)")
    if isinstance(cst, tree.Call) and fw.walk.dotted(cst.function, fw.scope) == "R.shape" and len(cst.args) == 1:
        cst = cst.args[0]
    return values.shape_expr(dimensions(fw, cst), fw.walk.span(cst))


def _ndim(fw: FunctionWalk, cst: tree.Expr) -> int:
    value = fw.scalar(cst)
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value <= 64:
        fw.walk.fail("E0401", "ndim must be a number of dimensions, or -1", cst)
    return value


def tensor_dtype(fw: FunctionWalk, cst: tree.Expr) -> DType | None:
    """The dtype that a string names; `void` and the empty string leave it open."""
    value = fw.scalar(cst)
    if isinstance(value, relax.PrimStructInfo):
        return value.dtype
    if isinstance(value, DType):
        return value
    if not isinstance(value, str):
        fw.walk.fail("E0401", 'a dtype must be a string such as "float32"', cst)
    if value in ("", "void"):
        return None
    try:
        return DType.of(value)
    except ValueError as problem:
        from mlcc.grammar.foreign import meant_dtype

        fw.walk.fail("E0312", str(problem), cst, help=did_you_mean(meant_dtype(value) or value, NAMES))


def _device(fw: FunctionWalk, cst: tree.Expr) -> str:
    """A device as kind:index:scope; `cuda` is `cuda:0:global`, unless the module declares its devices."""
    value = fw.scalar(cst)
    if not isinstance(value, str) or not value or len(value.split(":")) > 3:
        fw.walk.fail("E0401", 'a device must be a string such as "cuda:0"', cst)
    return resolve_device(fw.walk, value, cst)


def _shape(fw: FunctionWalk, cst: tree.Expr, args: Any, kwargs: Any) -> relax.StructInfo:
    arguments = _sort(fw, cst, args, kwargs, ("values", "ndim"))
    ndim = _ndim(fw, arguments["ndim"]) if "ndim" in arguments else -1
    if "values" not in arguments:
        return relax.ShapeStructInfo(None, ndim, span=fw.walk.span(cst))
    dims = dimensions(fw, arguments["values"])
    if ndim not in (-1, len(dims)):
        fw.walk.fail("E0401", f"the shape has {len(dims)} dimensions, but ndim={ndim}", arguments["ndim"])
    return relax.ShapeStructInfo(dims, len(dims), span=fw.walk.span(cst))


def _prim(fw: FunctionWalk, cst: tree.Expr, args: Any, kwargs: Any) -> relax.StructInfo:
    arguments = _sort(fw, cst, args, kwargs, ("dtype", "value"))
    value: Any = None
    if "value" in arguments:
        value = fw.scalar(
            parse_quoted(fw.walk, arguments["value"])
            if isinstance(arguments["value"], tree.Str)
            else arguments["value"]
        )
        if not isinstance(value, tir.Expr):
            with fw.guard(arguments["value"]):
                value = values.dim(value)
    if "dtype" not in arguments:
        if value is None:
            fw.walk.fail("E0401", "R.Prim needs a dtype or a value", cst)
        return relax.PrimStructInfo(value.dtype, value, span=fw.walk.span(cst))
    dtype = tensor_dtype(fw, arguments["dtype"])
    if dtype is None or (value is not None and value.dtype is not dtype):
        fw.walk.fail("E0401", "the dtype differs from that of the value", cst)
    return relax.PrimStructInfo(dtype, value, span=fw.walk.span(cst))


def _tuple(fw: FunctionWalk, cst: tree.Expr, args: Any, kwargs: Any) -> relax.StructInfo:
    _sort(fw, cst, (), kwargs, ())
    if len(args) == 1 and isinstance(args[0], tree.Display):
        args = args[0].items
    return relax.TupleStructInfo(tuple(struct_info(fw, a) for a in args), span=fw.walk.span(cst))


def _callable(fw: FunctionWalk, cst: tree.Expr, args: Any, kwargs: Any) -> relax.StructInfo:
    """A function type. Quoted names that are new stand for symbolic variables of the type itself."""
    arguments = _sort(fw, cst, args, kwargs, ("params", "ret", "purity", "derive_func"))
    if "derive_func" in arguments:
        fw.walk.fail(
            "E0401", "derive_func is not supported", arguments["derive_func"], help="state the type of the result"
        )
    with fw.scope.frame(", and is visible in that type only"):
        for name, place, _ in quoted_identifiers(fw, arguments["params"]) if "params" in arguments else ():
            if fw.scope.find(name) is None:
                fw.define(tree.Name(place.start, place.end, name), tir.Var(name, INT64))
        params = None
        if "params" in arguments:
            params = tuple(struct_info(fw, item) for item in tree.items_of(arguments["params"]))
        ret = struct_info(fw, arguments["ret"]) if "ret" in arguments else OBJECT
    pure = params is not None
    if "purity" in arguments:
        pure = fw.scalar(arguments["purity"])
        if not isinstance(pure, bool):
            fw.walk.fail("E0401", "purity must be True or False", arguments["purity"])
    return relax.FuncStructInfo(params, ret, pure, span=fw.walk.span(cst))


def _packed(fw: FunctionWalk, cst: tree.Expr, args: Any, kwargs: Any) -> relax.StructInfo:
    return relax.FuncStructInfo(None, OBJECT, False, span=fw.walk.span(cst))


def _distributed(fw: FunctionWalk, cst: tree.Expr, args: Any, kwargs: Any) -> relax.StructInfo:
    fw.walk.fail("E0401", "distributed tensors are not supported", cst)


_TYPES: dict[str, Callable[[FunctionWalk, tree.Expr, Any, Any], relax.StructInfo]] = {
    "Any": _object, "Object": _object, "Tensor": _tensor, "Shape": _shape, "Prim": _prim, "Tuple": _tuple,
    "Callable": _callable, "PackedFunc": _packed, "DTensor": _distributed,
}  # fmt: skip

__all__ = ["BARE", "dimension", "dimensions", "quoted_identifiers", "struct_info", "tensor_dtype", "type_of"]
