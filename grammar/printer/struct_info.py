"""Struct info as text. In a signature, dimensions that it introduces are quoted: `R.Tensor(("n", 4), "float32")`."""

from __future__ import annotations

from mlcc.grammar.printer.literals import quote
from mlcc.grammar.printer.writer import ATOM, END, START, Child, Part, Parts, Writer, call, handles, separated
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import INT32, INT64, DType
from mlcc.ir.tir import Expr as PrimExpr


def info(out: Writer, node: relax.StructInfo) -> str:
    return out.text(node)


def _dim(out: Writer, dim: PrimExpr) -> str:
    """One dimension; quoted if it holds a variable of the signature being written."""
    out.mentions_signature = False
    text = out.text(dim, like=INT64)
    if out.signature is None or not out.mentions_signature:
        return text
    quoted = quote(text)
    return quoted.replace("\\x01", START).replace("\\x02", END) if out.trail else quoted


def _dims(out: Writer, dims: tuple[PrimExpr, ...]) -> list[str]:
    return [_dim(out, d) for d in dims]


@handles(relax.ObjectStructInfo)
def _object(out: Writer, node: relax.ObjectStructInfo, like: DType | None) -> Parts:
    return ATOM, [out.dialect.anything]


@handles(relax.PrimStructInfo)
def _prim(out: Writer, node: relax.PrimStructInfo, like: DType | None) -> Parts:
    if node.value is None or out.dialect.is_tvm:
        return call("R.Prim", quote(str(node.dtype)))
    out.mentions_signature = False
    text = out.text(node.value)
    if isinstance(node.value, tir.IntImm) and node.value.dtype is INT32:  # a bare number is int64 here
        text = f"T.int32({node.value.value})"
    return call("R.Prim", "value=" + (quote(text) if out.signature is not None and out.mentions_signature else text))


@handles(relax.ShapeStructInfo)
def _shape(out: Writer, node: relax.ShapeStructInfo, like: DType | None) -> Parts:
    if node.values is None:
        return call("R.Shape", f"ndim={node.ndim}")
    return call("R.Shape", f"[{', '.join(_dims(out, node.values))}]")


@handles(relax.TensorStructInfo)
def _tensor(out: Writer, node: relax.TensorStructInfo, like: DType | None) -> Parts:
    args: list[Part | list[Part]] = []
    if isinstance(node.shape, relax.ShapeExpr):
        dims = _dims(out, node.shape.values)
        args.append(f"({', '.join(dims)}{',' if len(dims) == 1 else ''})")
    elif node.shape is not None:
        args.append([Child(node.shape)])
    if node.dtype is not None and not node.dtype.is_void:
        args.append(f"dtype={quote(str(node.dtype))}")
    if node.vdevice is not None:
        args.append(f"vdevice={quote(node.vdevice)}")
    if node.shape is None and node.ndim != -1:
        args.append(f"ndim={node.ndim}")
    return call("R.Tensor", *args) if args else (ATOM, ["R.Tensor"])


@handles(relax.TupleStructInfo)
def _tuple(out: Writer, node: relax.TupleStructInfo, like: DType | None) -> Parts:
    return call("R.Tuple", *[Child(f) for f in node.fields]) if node.fields else (ATOM, ["R.Tuple"])


@handles(relax.FuncStructInfo)
def _callable(out: Writer, node: relax.FuncStructInfo, like: DType | None) -> Parts:
    if node.params is not None:
        params = separated([[Child(p)] for p in node.params])
        comma = "," if len(node.params) == 1 else ""
        return call("R.Callable", ["(", *params, comma + ")"], Child(node.ret), str(node.purity))
    args: list[Part | list[Part]] = []
    if not isinstance(node.ret, relax.ObjectStructInfo):
        args.append(["ret=", Child(node.ret)])
    if node.purity:
        args.append("purity=True")
    return call("R.Callable", *args) if args else (ATOM, ["R.Callable"])
