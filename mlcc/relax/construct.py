"""Making relax functions and their parts, with struct info."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mlcc.errors import Span
from mlcc.ir import relax, tir
from mlcc.ir.module import Func, IRModule
from mlcc.ir.node import Attrs, replace
from mlcc.ops.infer import erase
from mlcc.ops.relations import SubtypeCheck, check_subtype, variables

PRIMITIVE = "Primitive"
CALL_TIR = tir.Op("relax.call_tir")
CALL_TIR_INPLACE = tir.Op("relax.call_tir_inplace")


def function_info(func: Func) -> relax.FuncStructInfo:
    """The struct info of a reference to a function."""
    if isinstance(func, tir.PrimFunc):
        params = tuple(_param_info(v, b) for v, b in zip(func.params, func.buffers, strict=True))
        ret: relax.StructInfo = relax.TupleStructInfo(())
        if func.ret_dtype is not None:
            ret = relax.PrimStructInfo(func.ret_dtype)
        return relax.FuncStructInfo(params, ret, False)
    infos = tuple(p.struct_info or relax.ObjectStructInfo() for p in func.params)
    return relax.FuncStructInfo(infos, func.ret_struct_info or relax.ObjectStructInfo(), func.is_pure)


def _param_info(var: tir.Var, buffer: tir.Buffer | None) -> relax.StructInfo:
    if buffer is None:
        return relax.ObjectStructInfo() if var.dtype.is_handle else relax.PrimStructInfo(var.dtype, var)
    return tensor_info(buffer.shape, buffer.dtype)


def tensor_info(dims: Iterable[tir.Expr], dtype: Any) -> relax.TensorStructInfo:
    """A tensor of known dimensions."""
    values = tuple(dims)
    shape = relax.ShapeExpr(values, relax.ShapeStructInfo(values, len(values)))
    return relax.TensorStructInfo(shape, dtype, len(values))


def make_function(
    params: tuple[relax.Var, ...], body: relax.SeqExpr, attrs: Attrs, ret: relax.StructInfo | None = None,
    is_pure: bool = True, span: Span | None = None,
) -> relax.Function:  # fmt: skip
    """Make a function. Its result has the struct info `ret`, or that of the body if it is more precise."""
    known = visible_struct_info(body.struct_info or relax.ObjectStructInfo(), params)
    if ret is None or check_subtype(ret, known) is SubtypeCheck.COVERS:
        ret = known if ret is None or not equal_struct_info(ret, known) else ret
    func = relax.Function(params, body, ret, is_pure, attrs, span=span)
    return replace(func, struct_info=function_info(func))


def visible_struct_info(info: relax.StructInfo, params: tuple[relax.Var, ...]) -> relax.StructInfo:
    """Return the struct info of a result at call sites, without symbolic variables and shapes local to the body."""
    visible = {v for p in params for v in variables(p)}
    inner = set(variables(info)) - visible
    return _without_shapes(erase(info, {}, inner) if inner else info, set(params))


def _without_shapes(info: relax.StructInfo, params: set[relax.Var]) -> relax.StructInfo:
    """Shapes that are variables are unknown, unless they are parameters."""
    if isinstance(info, relax.TensorStructInfo) and isinstance(info.shape, relax.Var) and info.shape not in params:
        return replace(info, shape=None)
    if isinstance(info, relax.TupleStructInfo):
        return replace(info, fields=tuple(_without_shapes(f, params) for f in info.fields))
    return info


def make_seq(blocks: Iterable[relax.BindingBlock], body: relax.Expr) -> relax.SeqExpr:
    """A sequence of the blocks that are not empty; neighbours of one kind become one block."""
    return relax.SeqExpr(tuple(merge_blocks(blocks)), body, body.struct_info)


def merge_blocks(blocks: Iterable[relax.BindingBlock]) -> list[relax.BindingBlock]:
    """The blocks that are not empty, neighbours of one kind as one block."""
    merged: list[relax.BindingBlock] = []
    for block in blocks:
        if merged and block.bindings and type(merged[-1]) is type(block):
            merged[-1] = replace(merged[-1], bindings=merged[-1].bindings + block.bindings)
        elif block.bindings:
            merged.append(block)
    return merged


def with_bound_result(branch: relax.SeqExpr) -> relax.SeqExpr:
    """Return a branch whose result is a variable that it binds: the text of a branch must end in a binding."""
    if isinstance(branch.body, relax.Var):
        for block in branch.blocks:
            if any(b.var is branch.body for b in block.bindings):
                return branch
    result = relax.Var("branch", branch.body.struct_info)
    last = relax.BindingBlock((relax.VarBinding(result, branch.body),))
    return replace(make_seq([*branch.blocks, last], result), span=branch.span)


def flatten_block(block: relax.BindingBlock) -> list[relax.BindingBlock]:
    """The block with sequences that it binds in front of their results: `y = {a = ...; a}` is `a = ...; y = a`."""
    blocks: list[relax.BindingBlock] = []
    current: list[relax.Binding] = []
    for binding in block.bindings:
        value = binding.value  # type: ignore[attr-defined]
        if not isinstance(value, relax.SeqExpr):
            current.append(binding)
            continue
        inner = [part for b in value.blocks for part in flatten_block(b)]
        if isinstance(block, relax.DataflowBlock):
            current += (b for part in inner for b in part.bindings)
        else:
            blocks += [replace(block, bindings=tuple(current)), *inner]
            current = []
        current.append(replace(binding, value=value.body))
    if not any(isinstance(b.value, relax.SeqExpr) for b in block.bindings):  # type: ignore[attr-defined]
        return [block]
    return [*blocks, replace(block, bindings=tuple(current))]


def make_tuple(fields: Iterable[relax.Expr]) -> relax.Tuple:
    items = tuple(fields)
    return relax.Tuple(items, relax.TupleStructInfo(tuple(f.struct_info or relax.ObjectStructInfo() for f in items)))


def get_item(value: relax.Expr, index: int) -> relax.TupleGetItem:
    info = value.struct_info
    known = info.fields[index] if isinstance(info, relax.TupleStructInfo) and index < len(info.fields) else None
    return relax.TupleGetItem(value, index, known)


def shape_expr(values: Iterable[tir.Expr]) -> relax.ShapeExpr:
    dims = tuple(values)
    return relax.ShapeExpr(dims, relax.ShapeStructInfo(dims, len(dims)))


def call_function(name: str, func: Func, args: tuple[relax.Expr, ...]) -> relax.Call:
    """A call of a function of the module."""
    from mlcc import ops

    call = relax.Call(relax.GlobalVar(name, function_info(func)), args)
    return replace(call, struct_info=ops.infer_struct_info(call))


def prim_value(value: tir.Expr) -> relax.PrimValue:
    """A symbolic value as an argument."""
    return relax.PrimValue(value, relax.PrimStructInfo(value.dtype, value))


def call_tir(name: str, func: tir.PrimFunc, args: Iterable[relax.Expr], out: relax.StructInfo) -> relax.Call:
    """`R.call_tir(name, args, out_sinfo=out)`."""
    callee = relax.GlobalVar(name, function_info(func))
    return relax.Call(CALL_TIR, (callee, make_tuple(args)), sinfo_args=(out,), struct_info=out)


def global_vars(module: IRModule) -> dict[str, relax.GlobalVar]:
    """References to all functions, with their struct info, as inference wants them."""
    return {name: relax.GlobalVar(name, function_info(func)) for name, func in module.functions.items()}


def equal_struct_info(a: relax.StructInfo | None, b: relax.StructInfo | None) -> bool:
    """Return True if two struct infos are structurally equal; variables are compared by identity."""
    if a is b or a is None or b is None:
        return a is b
    from mlcc.ir.equal import structural_equal

    return structural_equal(a, b)
