"""Calls that are statements in C because they may fail, return through a pointer, or have effects, whose order C leaves
open in an expression: PrimFuncs, packed functions, externs, checked indices.

`lift` prints such calls in an expression before the statement that it is part of, from left to right, each once and
under the conditions under which the expression evaluates it, and puts variables in their places.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.checked_index import INDEX_ERROR, checked_index
from mlcc.ir.dtypes import INT64
from mlcc.ir.intrinsics import Effect, called
from mlcc.ir.node import Node, children, find, holds, map_children
from mlcc.ir.visit import substitute
from mlcc.targets.c import expressions as ex
from mlcc.targets.c import packed
from mlcc.targets.c.dtypes import declared, memory_type, register_type
from mlcc.targets.llvm.codegen.libm import LIBM
from mlcc.targets.plan.kernel_calls import is_array, symbol_values
from mlcc.targets.source.dialect import refuse
from mlcc.targets.source.expressions import EQUAL

if TYPE_CHECKING:
    from mlcc.targets.c.context import FileContext
    from mlcc.targets.c.kernel import KernelWriter

Guards = tuple[tir.Expr, ...]


def written_pointers(body: tuple[tir.Stmt, ...]) -> set[tir.Var]:
    """Return the pointers through which memory may be written, also by views of it and by functions that take it."""
    written = {store.buffer.data for store in find(body, tir.BufferStore)}
    sources: list[tuple[tir.Var, tir.Expr]] = [(decl.buffer.data, decl.data) for decl in find(body, tir.DeclBuffer)]
    sources += [(bind.var, bind.value) for bind in find(body, tir.Bind) if bind.var.dtype.is_handle]
    for call in find(body, tir.Call):
        if called(call).effect >= Effect.UPDATE or isinstance(call.op, relax.GlobalVar):
            written |= {v for v in find(call, tir.Var) if v.dtype.is_handle}
    for pointer, source in reversed(sources):
        if pointer in written or not isinstance(source, tir.Var):
            written |= {v for v in find(source, tir.Var) if v.dtype.is_handle}
    return written


def callee(node: tir.Call, ctx: FileContext) -> str | None:
    """Return the name of the PrimFunc that a call calls; None for other calls."""
    if isinstance(node.op, relax.GlobalVar):
        return node.op.name
    if called(node).extern and node.args and isinstance(node.args[0], tir.StringImm):
        return node.args[0].value if node.args[0].value in ctx.functions else None
    return None


def callee_workspace(node: Node, ctx: FileContext) -> int:
    """Print the kernels that a node calls; return the maximum of their workspaces, in bytes."""
    largest = 0
    for call in find(node, tir.Call):
        name = callee(call, ctx)
        if name is not None:
            size = tir.const_int(ctx.kernel(name).workspace)
            if size is None:
                message = f"`{name}` has temporaries of symbolic size, so only relax functions can call it"
                raise refuse(message, call.span)
            largest = max(largest, size)
    return largest


def may_fail(func: tir.PrimFunc, ctx: FileContext) -> bool:
    """Return True if a function may end with an error code, temporaries on the heap aside."""
    if any(not tir.const_int(stmt.condition) for stmt in find(func.body, tir.AssertStmt)):
        return True
    return any(_fails(call, ctx) for call in find(func.body, tir.Call))


def _fails(call: tir.Call, ctx: FileContext) -> bool:
    name = callee(call, ctx)
    if name is not None:
        return ctx.kernel(name).fails
    return called(call).packed or checked_index(call) is not None


def is_fallible(node: tir.Expr) -> bool:
    """Return True if an expression contains a call that is a statement in C."""
    return any(_is_statement(call) for call in find(node, tir.Call))


def _is_statement(call: tir.Call) -> bool:
    return isinstance(call.op, relax.GlobalVar) or called(call).packed or called(call).extern or (
        checked_index(call) is not None
    )  # fmt: skip


def has_effect(node: tir.Call) -> bool:
    """Return True if a call does something besides computing a value."""
    return called(node).effect >= Effect.UPDATE and not isinstance(node.op, relax.GlobalVar)


def may_write(node: Node) -> bool:
    """Return True if an expression contains a call that may change memory or the outside."""
    return any(_may_write(call) for call in find(node, tir.Call))


def _may_write(call: tir.Call) -> bool:
    if isinstance(call.op, relax.GlobalVar) or called(call).packed:
        return True
    return called(call).extern and has_effect(call) and not _is_libm(call)


def _is_libm(call: tir.Call) -> bool:
    return bool(call.args) and isinstance(call.args[0], tir.StringImm) and call.args[0].value in LIBM


def lift(w: KernelWriter, node: tir.Expr, guards: Guards = ()) -> tir.Expr:
    """Print the calls in an expression that are statements in C; return the expression over their results.

    The calls are made if all `guards` are true. Those of a vector expression are lifted if all lanes share them.
    """
    if holds(node, tir.Let):
        node = substitute_lets(node)
    return _lift(w, node, guards) if is_fallible(node) else node


def substitute_lets(node: Any) -> Any:
    """Replace the variables of `let` expressions by their values, unless computing these changes something."""
    node = map_children(node, substitute_lets)
    if isinstance(node, tir.Let) and not may_write(node.value):
        return substitute(node.body, {node.var: node.value})
    return node


def _lift(w: KernelWriter, node: Any, guards: Guards) -> Any:
    if not isinstance(node, tir.Expr) or not is_fallible(node):
        return node
    match node:
        case tir.Let(var=var, value=value, body=body):
            known = saved(w, _lift(w, value, guards), var.name, guards)
            return _lift(w, substitute(body, {var: known}), guards)
        case tir.Call(op=tir.Op(name="tir.if_then_else"), args=(condition, true, false)):
            sides = _lift_sides(w, condition, true, false, guards)
            return tir.Call(node.dtype, node.op, sides, span=node.span)
        case tir.Select(condition=condition, true_value=true, false_value=false):
            return tir.Select(node.dtype, *_lift_sides(w, condition, true, false, guards), span=node.span)
        case tir.And(lhs=lhs, rhs=rhs) | tir.Or(lhs=lhs, rhs=rhs):
            first = _lift(w, lhs, guards)
            if first.dtype.lanes > 1:
                return type(node)(node.dtype, first, rhs, span=node.span)
            if may_write(rhs):
                first = saved(w, first, "chosen", guards)
            reached = first if isinstance(node, tir.And) else c.logical_not(first)
            return type(node)(node.dtype, first, _lift(w, rhs, (*guards, reached)), span=node.span)
    node = _lift_children(w, node, guards)
    if not isinstance(node, tir.Call) or not _is_statement(node):
        return node
    return _statement(w, node, guards)


def _lift_children(w: KernelWriter, node: tir.Expr, guards: Guards) -> tir.Expr:
    """Lift the calls of the operands; what an operand loads is saved if a later one may change it."""
    operands = [child for child in children(node) if isinstance(child, tir.Expr)]
    last = max((at for at, operand in enumerate(operands) if may_write(operand)), default=0)
    places = iter(range(len(operands)))

    def lifted(child: Any) -> Any:
        if not isinstance(child, tir.Expr):
            return child
        at, value = next(places), _lift(w, child, guards)
        if at >= last or value.dtype.lanes > 1 or value.dtype.is_handle or not holds(value, tir.BufferLoad):
            return value
        return saved(w, value, "loaded", guards)

    return map_children(node, lifted)


def saved(w: KernelWriter, node: tir.Expr, hint: str, guards: Guards) -> tir.Expr:
    """Return a variable with the value of an expression, which is computed under conditions; a constant as it is."""
    if isinstance(node, (tir.Var, tir.IntImm, tir.FloatImm)):
        return node
    if not guards:
        return w.to_variable(node, hint)
    var = tir.Var(hint, node.dtype)
    name = w.define(var)
    w.lines.add(f"{declared(register_type(node.dtype, node.span))}{name} = 0;", name)
    with w.lines.block(f"if ({_condition(w, guards)})"):
        w.lines.add(f"{name} = {ex.text(w, node)};", name)
    return var


def _condition(w: KernelWriter, guards: Guards) -> str:
    return " && ".join(ex.text(w, guard, EQUAL) for guard in guards)


def _lift_sides(
    w: KernelWriter, condition: tir.Expr, true: tir.Expr, false: tir.Expr, guards: Guards
) -> tuple[tir.Expr, ...]:
    condition = _lift(w, condition, guards)
    if condition.dtype.lanes > 1:
        return condition, true, false
    if is_fallible(true) or is_fallible(false):
        condition = saved(w, condition, "chosen", guards)
    return (
        condition, _lift(w, true, (*guards, condition)), _lift(w, false, (*guards, c.logical_not(condition))),
    )  # fmt: skip


def _statement(w: KernelWriter, node: tir.Call, guards: Guards) -> tir.Expr:
    name = callee(node, w.ctx)
    if node.dtype.lanes > 1:
        return node
    if name is None and called(node).extern:
        return _extern(w, node, guards)
    result: tir.Var | None = None
    if checked_index(node) is not None:
        result = tir.Var("place", INT64)
    elif name is not None and w.ctx.kernel(name).signature.result is not None:
        result = tir.Var("value", node.dtype)
    if result is not None:
        c_name = w.define(result)
        w.lines.add(f"{declared(register_type(result.dtype))}{c_name} = 0;", c_name)
    if not guards:
        _print(w, node, name, result)
    else:
        with w.lines.block(f"if ({_condition(w, guards)})"):
            _print(w, node, name, result)
    return result or tir.IntImm(node.dtype if node.dtype.is_int else INT64, 0)


def _extern(w: KernelWriter, node: tir.Call, guards: Guards) -> tir.Expr:
    """Print the call of a C function that has effects, also where nothing uses its result; leave others in place."""
    if not _may_write(node) or node.dtype.is_void and not guards:
        return node
    printed = ex.text(w, node)
    if node.dtype.is_void:
        with w.lines.block(f"if ({_condition(w, guards)})"):
            w.lines.add(f"{printed};")
        return tir.IntImm(INT64, 0)
    result = tir.Var("value", node.dtype)
    name, type = w.define(result), declared(register_type(node.dtype, node.span))
    if not guards:
        const = "" if node.dtype.is_handle else "const "
        w.lines.add(f"{const}{type}{name} = {printed};", name, f"(void){printed};")
        return result
    w.lines.add(f"{type}{name} = 0;", name)
    with w.lines.block(f"if ({_condition(w, guards)})"):
        w.lines.add(f"{name} = {printed};", name, f"(void){printed};")
    return result


def _print(w: KernelWriter, node: tir.Call, name: str | None, result: tir.Var | None) -> None:
    if name is not None:
        _call_kernel(w, node, name, result)
    elif called(node).packed:
        packed.call(w, node)
    elif result is not None:
        _check_index(w, node, result)


def _check_index(w: KernelWriter, node: tir.Call, place: tir.Var) -> None:
    check = checked_index(node)
    assert check is not None
    code = w.ctx.error_code(INDEX_ERROR, check.message)
    w.ctx.has_faults = True
    index = w.to_variable(c.cast(INT64, check.index), "given")
    extent = ex.text(w, c.cast(INT64, check.extent))
    name, at = w.name(place), w.name(index)
    if check.from_end and not check.index.dtype.is_uint:
        w.lines.add(f"{name} = {w.helpers.use('place_from_end')}({at}, {extent});")
    else:
        w.lines.add(f"{name} = {at};")
    w.lines.add(f"if ({name} < 0 || {name} >= {extent}) return fault({code}, {at}, {extent});")


def _call_kernel(w: KernelWriter, node: tir.Call, name: str, result: tir.Var | None) -> None:
    kernel = w.ctx.kernel(name)
    sig = kernel.signature
    args = node.args if isinstance(node.op, relax.GlobalVar) else node.args[1:]
    symbols = symbol_values(name, sig, args, node, refuse)
    texts: list[str] = []
    for param, arg in zip(sig.params, args, strict=True):
        text = packed.start(w, arg) if is_array(arg) else ex.text(w, arg)
        texts.append(text if param.buffer is None else f"({memory_type(param.buffer.dtype)} *)(void *)({text})")
    texts += [ex.index(w, symbols[symbol]) for symbol in sig.symbols]
    target = ""
    if result is not None and sig.result is not None:
        target = w.fresh("result")
        w.lines.add(f"{memory_type(sig.result)} {target};")
        texts.append(f"&{target}")
    if kernel.takes_workspace:
        texts.append(f"workspace + {w.memory.callee_offset}")
    call = f"{kernel.name}({', '.join(texts)})"
    if kernel.fails:
        code = w.fresh("code")
        w.lines.add(f"const int32_t {code} = {call};")
        w.lines.add(f"if ({code} != 0) return {code};")
    else:
        w.lines.add(f"{call};")
    if result is not None and sig.result is not None:
        w.lines.add(f"{w.name(result)} = {ex.from_memory(w, target, sig.result)[1]};", w.name(result))
