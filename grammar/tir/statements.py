"""Statements that call `T.*`, on lines of their own or right of an assignment: evaluations, attributes, bindings,
memory, threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc.grammar.syntax import tree
from mlcc.grammar.tir import (
    attribute_values,
)
from mlcc.grammar.tir import (
    blocks as tir_blocks,
)
from mlcc.grammar.tir import (
    buffers as tir_buffers,
)
from mlcc.grammar.tir import (
    calls as tir_calls,
)
from mlcc.grammar.tir import (
    types as tir_types,
)
from mlcc.grammar.tir.arguments import signature
from mlcc.grammar.tir.evaluation_results import Scalar, set_span
from mlcc.grammar.tir.scope import FunctionWalk
from mlcc.ir import construct, tir
from mlcc.ir.dtypes import HANDLE, INT32, DType
from mlcc.ir.node import Attrs
from mlcc.ir.tir import IterKind


def callee_name(fw: FunctionWalk, call: tree.Call) -> str:
    """The function that a call names, without `T.`; empty for anything else."""
    path = fw.walk.dotted(call.function, fw.scope)
    return path[2:] if path is not None and path.startswith("T.") else ""


# ---------------------------------------------------------------- calls on lines of their own


def call_statement(fw: FunctionWalk, call: tree.Call) -> bool:
    """Walk a call that is a statement; False if it is only evaluated for its value."""
    name = callee_name(fw, call)
    handler = _LINES.get(name) or tir_blocks.STATEMENTS.get(name)
    if handler is not None:
        handler(fw, call)
        return True
    if isinstance(call.function, tree.Attribute) and call.function.name == "vstore":
        return _vstore(fw, call.function, call)
    if name in ("match_buffer", "alloc_buffer", "decl_buffer", "sblock_alloc_buffer", "allocate", "env_thread"):
        fw.walk.fail("E0305", f"the result of `T.{name}` needs a name", call, help=f"`X = T.{name}(...)`")
    return False


def _evaluate(fw: FunctionWalk, call: tree.Call) -> None:
    at = signature("T.evaluate", "value").bind(fw.walk, call)["value"]
    if isinstance(at, tree.Call) and callee_name(fw, at) in ("break_loop", "continue_loop"):
        call_statement(fw, at)
        return
    value = fw.ev.value(at)
    expr = tir.StringImm(value, span=fw.walk.span(at)) if isinstance(value, str) else fw.ev.as_expr(value, at)
    fw.out.add(tir.Evaluate(expr, span=fw.walk.span(call)))


def _func_attr(fw: FunctionWalk, call: tree.Call) -> None:
    arguments = signature("T.func_attr", "attrs").bind(fw.walk, call)
    attrs = attribute_values.attributes(fw.ev, arguments["attrs"], "attributes")
    # TVM 0.27 calls `tir.noalias` `tirx.noalias`, and so on
    fw.attrs.update({f"tir.{k[5:]}" if k.startswith("tirx.") else k: v for k, v in attrs.items()})


def _attr_line(fw: FunctionWalk, call: tree.Call) -> None:
    """Walk `T.attr(...)` on its own line, which annotates all following statements."""
    for make in attr_makers(fw, call):
        fw.out.enter(make)


def attr_makers(fw: FunctionWalk, call: tree.Call) -> list[Callable[[tuple[tir.Stmt, ...]], tir.Stmt]]:
    """`T.attr(subject, key, value)`, or `T.attr({key: value})` for several about nothing in particular."""
    span = fw.walk.span(call)
    args = call.args
    if len(args) == 1 and isinstance(args[0], tree.Dict):
        zero = tir.IntImm(INT32, 0, span=span)
        items = [
            (zero, fw.ev.string(k, "a key"), attribute_values.attr_value(fw.ev, fw.ev.value(v), v))
            for k, v in args[0].entries
        ]
    else:
        arguments = signature("T.attr", "node attr_key value").bind(fw.walk, call)
        subject = attribute_values.subject(fw.ev, arguments["node"])
        items = [(subject, fw.ev.string(arguments["attr_key"], "the key"), _attr_value(fw, arguments["value"]))]
    return [_attr_maker(fw, *item, call) for item in items]


def _attr_value(fw: FunctionWalk, cst: tree.Expr) -> Any:
    return attribute_values.attr_value(fw.ev, fw.ev.value(cst), cst)


def _attr_maker(
    fw: FunctionWalk, subject: Any, key: str, value: Any, cst: tree.Expr
) -> Callable[[tuple[tir.Stmt, ...]], tir.Stmt]:
    span = fw.walk.span(cst)
    return lambda body: tir.AttrStmt(subject, key, value, body, span=span)


def _launch_line(fw: FunctionWalk, call: tree.Call) -> None:
    make, _ = launch(fw, call, "thread")
    fw.out.enter(make)


def launch(
    fw: FunctionWalk, call: tree.Call, name: str, at: tree.Expr | None = None
) -> tuple[Callable[[tuple[tir.Stmt, ...]], tir.Stmt], tir.Var]:
    """`T.launch_thread("threadIdx.x", 32)`; `name` is for the thread variable."""
    arguments = signature("T.launch_thread", "thread extent").bind(fw.walk, call)
    thread = fw.ev.value(arguments["thread"])
    extent = fw.ev.expr(arguments["extent"])
    if not extent.dtype.is_int:
        fw.walk.fail("E0301", f"an extent must be an integer, not {extent.dtype}", arguments["extent"])
    span = fw.walk.span(at or call)
    if isinstance(thread, tir.IterVar):
        tag, var = thread.thread_tag, thread.var
        if var.dtype is not extent.dtype:
            extent = fw.ev.build(arguments["extent"], construct.cast, var.dtype, extent)
    elif isinstance(thread, str):
        tag, var = thread, tir.Var(name, extent.dtype, span=span)
    else:
        fw.walk.fail("E0302", 'a thread must be given by its name, such as `"threadIdx.x"`', arguments["thread"])
    dom = tir.Range(tir.IntImm(extent.dtype, 0, span=span), extent, span=span)
    axis = tir.IterVar(var, dom, IterKind.THREAD, tag, span=span)
    return _attr_maker(fw, axis, "thread_extent", extent, call), var


def assert_line(fw: FunctionWalk, call: tree.Call) -> None:
    arguments = signature("T.Assert", "condition message", "error_kind").bind(fw.walk, call)
    kind, parts = attribute_values.assert_message(fw.ev, arguments["message"])
    if "error_kind" in arguments:
        kind = fw.ev.string(arguments["error_kind"], "the kind of error")
    fw.out.add(tir.AssertStmt(fw.ev.bool(arguments["condition"]), kind, parts, span=fw.walk.span(call)))


def _buffer_store(fw: FunctionWalk, call: tree.Call) -> None:
    arguments = signature("T.buffer_store", "buffer value indices", "predicate").bind(fw.walk, call)
    buffer = fw.ev.value(arguments["buffer"])
    if not isinstance(buffer, tir.Buffer):
        fw.walk.fail("E0302", "`buffer` must be a buffer", arguments["buffer"])
    at = tree.Index(call.start, call.end, arguments["buffer"], tree.items_of(arguments["indices"]))
    indices = fw.ev.indices(buffer, at)
    fw.store(buffer, fw.ev.operand(arguments["value"]), tuple(indices), call)


def _vstore(fw: FunctionWalk, method: tree.Attribute, call: tree.Call) -> bool:
    """Walk `A.vstore([0, 0], vector)`."""
    from mlcc.grammar.tir.methods import vector_indices

    buffer = fw.ev.value(method.base)
    if not isinstance(buffer, tir.Buffer):
        return False
    arguments = signature("vstore", "begin value").bind(fw.walk, call)
    value = fw.ev.operand(arguments["value"])
    lanes = value.dtype.lanes if isinstance(value, tir.Expr) else buffer.dtype.lanes
    fw.store(buffer, value, tuple(vector_indices(fw.ev, buffer, arguments["begin"], lanes, call)), call)
    return True


def bind_line(fw: FunctionWalk, call: tree.Call) -> None:
    """`T.Bind(value, var=x)` for a variable that was declared before."""
    arguments = _BIND.bind(fw.walk, call)
    if "var" not in arguments:
        fw.walk.fail("E0305", "the value needs a name", call, help="`x: T.int32 = value`")
    var = fw.ev.value(arguments["var"])
    if not isinstance(var, tir.Var):
        fw.walk.fail("E0302", "`var` must be a variable", arguments["var"])
    bind_var(fw, var, fw.ev.expr(arguments["value"]), call)


def bind_var(fw: FunctionWalk, var: tir.Var, value: tir.Expr, cst: tree.Expr) -> None:
    if var.dtype is not value.dtype:
        if var.dtype.is_handle or value.dtype.is_handle:
            fw.walk.fail("E0301", f"`{var.name}` is {var.dtype}, but its value is {value.dtype}", cst)
        value = fw.ev.build(cst, construct.cast, var.dtype, value)
    fw.out.add(tir.Bind(var, value, span=fw.walk.span(cst)))


def _jump(statement: type[tir.Stmt], word: str) -> Callable[[FunctionWalk, tree.Call], None]:
    return lambda fw, call: fw.jump(call, statement, word)


_BIND = signature("T.Bind", "value type_annotation=", "var span")
_LINES: dict[str, Callable[[FunctionWalk, tree.Call], None]] = {
    "evaluate": _evaluate, "func_attr": _func_attr, "attr": _attr_line, "launch_thread": _launch_line,
    "Assert": assert_line, "buffer_store": _buffer_store, "Bind": bind_line, "bind": bind_line,
    "LetStmt": bind_line,
    "break_loop": _jump(tir.Break, "break"), "continue_loop": _jump(tir.Continue, "continue"),
}  # fmt: skip


# ---------------------------------------------------------------- on the right of an assignment


def call_binding(fw: FunctionWalk, target: tree.Name, call: tree.Call) -> bool:
    """`X = T.alloc_buffer(...)` and the like; False if the call only has a value."""
    handler = _BINDINGS.get(callee_name(fw, call))
    if handler is not None:
        handler(fw, target, call)
        return True
    if isinstance(call.function, tree.Attribute) and call.function.name == "view":
        return _view(fw, target, call.function, call)
    return False


def _alloc_buffer(fw: FunctionWalk, target: tree.Name, call: tree.Call) -> None:
    """Walk `T.alloc_buffer`: a statement in texts of TVM 0.27, else an allocation of the enclosing block."""
    if fw.s_tir:
        _alloc_statement(fw, target, call)
    else:
        tir_blocks.alloc(fw, target, call)


def _sblock_alloc(fw: FunctionWalk, target: tree.Name, call: tree.Call) -> None:
    tir_blocks.alloc(fw, target, call)


def _alloc_statement(fw: FunctionWalk, target: tree.Name, call: tree.Call, scope: str | None = None) -> None:
    arguments = tir_buffers.ALLOC.bind(fw.walk, call)
    data = None
    if "data" in arguments and fw.ev.value(arguments["data"]) is not None:
        data, _ = tir_buffers.data_pointer(fw.ev, arguments["data"], target.id, DType.of("float32"), "global")
    buffer = tir_buffers.buffer_of(
        fw.ev, arguments, target.id, target, data=data, scope=None if "scope" in arguments else scope
    )
    notes = attribute_values.annotations_of(fw.ev, arguments)
    fw.define(target, buffer)
    fw.out.add(tir.AllocBuffer(buffer, Attrs(notes), span=fw.walk.span(call)))


def _alloc_in(scope: str) -> Callable[[FunctionWalk, tree.Name, tree.Call], None]:
    return lambda fw, target, call: _alloc_statement(fw, target, call, scope)


def _allocate(fw: FunctionWalk, target: tree.Name, call: tree.Call) -> None:
    """`p = T.allocate([128], "float32", "shared")` names the pointer; buffers over it are declared after."""
    arguments = signature("T.allocate", "extents dtype scope= condition=", "annotations").bind(fw.walk, call)
    if "condition" in arguments and fw.ev.value(arguments["condition"]) not in (None, True):
        condition = fw.ev.value(arguments["condition"])
        if tir.const_int(condition if isinstance(condition, tir.Expr) else None) != 1:
            fw.walk.fail("E0302", "an allocation under a condition is not supported", arguments["condition"])
    arguments["shape"] = arguments.pop("extents")
    buffer = tir_buffers.buffer_of(fw.ev, arguments, target.id, target)
    notes = attribute_values.annotations_of(fw.ev, arguments)
    fw.define(target, buffer.data)
    fw.out.add(tir.AllocBuffer(buffer, Attrs(notes), span=fw.walk.span(call)))


def _decl_buffer(fw: FunctionWalk, target: tree.Name, call: tree.Call) -> None:
    """Declare a view of existing memory; without `data`, allocate memory."""
    arguments = tir_buffers.DECLARE.bind(fw.walk, call)
    if "data" not in arguments or fw.ev.value(arguments["data"]) is None:
        arguments.pop("data", None)
        buffer = tir_buffers.buffer_of(fw.ev, arguments, target.id, target)
        fw.define(target, buffer)
        fw.out.add(tir.AllocBuffer(buffer, span=fw.walk.span(call)))
        return
    dtype = fw.ev.dtype(arguments["dtype"]) if "dtype" in arguments else DType.of("float32")
    scope = fw.ev.string(arguments["scope"], "a storage scope") if "scope" in arguments else "global"
    data, pointer = tir_buffers.data_pointer(fw.ev, arguments["data"], target.id, dtype, scope)
    buffer = tir_buffers.buffer_of(fw.ev, arguments, target.id, target, data=data)
    fw.define(target, buffer)
    fw.out.add(tir.DeclBuffer(buffer, pointer, span=fw.walk.span(call)))


def _view(fw: FunctionWalk, target: tree.Name, method: tree.Attribute, call: tree.Call) -> bool:
    """`B = A.view(4, 4)` or `B = A.view("int8")`: the same memory in another shape or type."""
    base = fw.ev.value(method.base)
    if not isinstance(base, tir.Buffer):
        return False
    args = call.args
    dtype, shape, offset = base.dtype, base.shape, base.elem_offset
    first = fw.ev.value(args[0]) if len(args) == 1 else None
    if isinstance(first, (str, DType)):
        dtype = fw.ev.dtype(args[0])
        shape, offset = fw.ev.build(args[0], _retyped, base, dtype)
    else:
        shape = _view_shape(fw, base, args, call)
    span = fw.walk.span(target)
    view = tir.Buffer(
        target.id, base.data, dtype, shape, base.strides, offset, base.alignment, base.offset_factor, span=span
    )
    fw.define(target, view)
    fw.out.add(tir.DeclBuffer(view, base.data, span=fw.walk.span(call)))
    return True


def _retyped(base: tir.Buffer, dtype: DType) -> tuple[tuple[tir.Expr, ...], tir.Expr | None]:
    """Shape and offset of `base` counted in elements of another size."""
    old, new = base.dtype.bytes * base.dtype.lanes, dtype.bytes * dtype.lanes
    if not base.shape or (old % new and new % old):
        raise ValueError(f"{base.dtype} elements cannot be seen as {dtype}")

    def scaled(count: tir.Expr) -> tir.Expr:
        return construct.mul(count, old // new) if old >= new else construct.floordiv(count, new // old)

    offset = None if base.elem_offset is None else scaled(base.elem_offset)
    return (*base.shape[:-1], scaled(base.shape[-1])), offset


def _view_shape(
    fw: FunctionWalk, base: tir.Buffer, args: tuple[tree.Expr, ...], call: tree.Call
) -> tuple[tir.Expr, ...]:
    values = [fw.ev.operand(a) for a in args]
    free = [i for i, v in enumerate(values) if isinstance(v, int) and v == -1]
    if len(free) > 1:
        fw.walk.fail("E0302", "only one extent of a view may be -1", call)
    if free:

        def rest() -> tir.Expr:
            total: tir.Expr = construct.const(1)
            for n in base.shape:
                total = construct.mul(total, n)
            for v in values:
                total = total if isinstance(v, int) and v == -1 else construct.floordiv(total, v)
            return total

        values[free[0]] = fw.ev.build(call, rest)
    return tuple(fw.ev.as_expr(v, a) for v, a in zip(values, args, strict=True))


def _env_thread(fw: FunctionWalk, target: tree.Name, call: tree.Call) -> None:
    """Declare a thread variable; the number of threads is given when it is launched."""
    arguments = signature("T.env_thread", "thread_tag dtype=").bind(fw.walk, call)
    dtype = fw.ev.dtype(arguments["dtype"]) if "dtype" in arguments else INT32
    span = fw.walk.span(target)
    zero = tir.IntImm(dtype, 0, span=span)
    var = tir.Var(target.id, dtype, span=span)
    tag = fw.ev.string(arguments["thread_tag"], "the thread")
    fw.define(target, tir.IterVar(var, tir.Range(zero, zero, span=span), IterKind.THREAD, tag, span=span))


def _launch_binding(fw: FunctionWalk, target: tree.Name, call: tree.Call) -> None:
    make, var = launch(fw, call, target.id, target)
    fw.define(target, var)
    fw.out.enter(make)


def _bind(fw: FunctionWalk, target: tree.Name, call: tree.Call) -> None:
    """`x = T.LetStmt(value)` and its newer names."""
    arguments = _BIND.bind(fw.walk, call)
    at = arguments["value"]
    value = fw.ev.value(at)
    expr = tir.StringImm(value, span=fw.walk.span(at)) if isinstance(value, str) else fw.ev.as_expr(value, at)
    var = fw.ev.value(arguments["var"]) if "var" in arguments else None
    if "type_annotation" in arguments:
        kind = tir_types.bound_type(fw.ev, arguments["type_annotation"])
        if kind is not None and kind[0] is not None:
            var = tir.Var(target.id, kind[0], kind[1], span=fw.walk.span(target))
    if isinstance(var, tir.Var) and var.dtype is not expr.dtype and not (var.dtype.is_handle or expr.dtype.is_handle):
        expr = fw.ev.build(at, construct.cast, var.dtype, expr)
    fw.bind(target, expr, var if isinstance(var, tir.Var) else None, call)


def _scalar(scope: str) -> Callable[[FunctionWalk, tree.Name, tree.Call], None]:
    def handler(fw: FunctionWalk, target: tree.Name, call: tree.Call) -> None:
        arguments = signature("T.alloc_scalar", "dtype= scope=").bind(fw.walk, call)
        dtype = fw.ev.dtype(arguments["dtype"]) if "dtype" in arguments else DType.of("float32")
        where = fw.ev.string(arguments["scope"], "a storage scope") if "scope" in arguments else scope
        buffer = set_span(construct.make_buffer(target.id, (1,), dtype, where), fw.walk.span(target))
        fw.define(target, Scalar(buffer))
        fw.out.add(tir.AllocBuffer(buffer, scalar=True, span=fw.walk.span(call)))

    return handler


def _match(fw: FunctionWalk, target: tree.Name, call: tree.Call) -> None:
    tir_blocks.match(fw, target, call)


_BINDINGS: dict[str, Callable[[FunctionWalk, tree.Name, tree.Call], None]] = {
    "alloc_buffer": _alloc_buffer, "sblock_alloc_buffer": _sblock_alloc, "alloc_buffer_stmt": _alloc_statement,
    "alloc_local": _alloc_in("local"), "alloc_shared": _alloc_in("shared"), "allocate": _allocate,
    "decl_buffer": _decl_buffer, "Buffer": _decl_buffer, "buffer_decl": _decl_buffer, "match_buffer": _match,
    "env_thread": _env_thread, "launch_thread": _launch_binding, "LetStmt": _bind, "Bind": _bind, "bind": _bind,
    "local_scalar": _scalar("local"), "shared_scalar": _scalar("shared"), "alloc_scalar": _scalar("global"),
}  # fmt: skip


# ---------------------------------------------------------------- shared with assignments


def vector_annotation(fw: FunctionWalk, annotation: tree.Expr) -> tuple[DType, tuple[tir.Expr, ...]] | None:
    """`x: T.float32[4]`: memory for a few elements."""
    if not isinstance(annotation, tree.Index):
        return None
    path = fw.walk.dotted(annotation.base, fw.scope)
    dtype = tir_calls.dtype_named(path[2:]) if path is not None and path.startswith("T.") else None
    if dtype is None or dtype is HANDLE:
        return None
    return dtype, tuple(fw.ev.expr(item) for item in annotation.items)
