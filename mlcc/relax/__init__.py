"""relax from Python: building modules with BlockBuilder, visitors and mutators, all operators as functions.

Names and behaviour are those of TVM's `relax`; see docs/python.md. Parts load on first use.
"""

import importlib as _importlib
from typing import Any as _Any

_NODES = (
    "BindingBlock", "Call", "Constant", "DataTypeImm", "DataflowBlock", "DataflowVar", "ExternFunc", "FuncStructInfo",
    "Function", "GlobalVar", "If", "MatchCast", "PrimStructInfo", "PrimValue", "SeqExpr", "ShapeExpr",
    "ShapeStructInfo", "StringImm", "TensorStructInfo", "Tuple", "TupleGetItem", "TupleStructInfo", "Var", "VarBinding",
)  # fmt: skip
_BASES = ("Binding", "Expr", "ObjectStructInfo", "StructInfo")
_CALLS = (
    "call_dps_packed", "call_pure_packed", "call_tir", "call_tir_inplace", "const", "extern", "get_shape_of",
    "prim_value",
)  # fmt: skip
_PUBLIC = {
    **dict.fromkeys(_NODES, "mlcc.relax.nodes"),
    **dict.fromkeys(_BASES, "mlcc.ir.relax"),
    **dict.fromkeys(_CALLS, "mlcc.relax.calls"),
    "BlockBuilder": "mlcc.relax.block_builder",
    "ExprFunctor": "mlcc.relax.expr_functor",
    "PyExprMutator": "mlcc.relax.mutator",
    "PyExprVisitor": "mlcc.relax.visitor",
    "Op": "mlcc.ir.tir",
}
_ALIASES = {  # TVM's newer names
    "AnyType": "ObjectStructInfo", "FuncType": "FuncStructInfo", "GenericConst": "Constant",
    "ObjectType": "ObjectStructInfo", "PrimType": "PrimStructInfo", "ShapeType": "ShapeStructInfo",
    "TensorType": "TensorStructInfo", "TupleType": "TupleStructInfo", "Type": "StructInfo",
}  # fmt: skip
_MODULES = ("analysis", "block_builder", "expr_functor", "op")


def __getattr__(name: str) -> _Any:
    where = _PUBLIC.get(_ALIASES.get(name, name))
    if where is not None:
        value = getattr(_importlib.import_module(where), _ALIASES.get(name, name))
        globals()[name] = value
        return value
    if name in _MODULES:
        return _importlib.import_module(f"mlcc.relax.{name}")
    raise AttributeError(f"module 'mlcc.relax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*(n for n in globals() if n.startswith("__")), *_PUBLIC, *_ALIASES, *_MODULES])


from mlcc.relax.operators import install as _install  # noqa: E402  (operators are there as soon as anything is)

_install()
